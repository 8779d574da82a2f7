//! The bytes of a page, as short as the writes to it allow.

use std::ops::Range;
use std::sync::Arc;

use pagewise_hal::PAGE_BYTES;

/// The bytes of a page, as a length.
pub(super) const LENGTH: usize = PAGE_BYTES as usize;

/// Bytes of a value that fills memory.
const VALUE_BYTES: usize = 4;

/// The bytes of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// A value over and over, except for one byte. Without an exception that is the first byte.
    Filled {
        value: [u8; VALUE_BYTES],
        at: u16,
        byte: u8,
    },
    Bytes(Arc<[u8; LENGTH]>),
}

/// Places in a page: from a first one on, at a stride, before an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) stride: usize,
}

impl Places {
    fn iter(self) -> impl Iterator<Item = usize> {
        (self.first..self.end).step_by(self.stride)
    }

    fn count(self) -> usize {
        (self.end - self.first).div_ceil(self.stride)
    }

    fn contains(self, at: usize) -> bool {
        (self.first..self.end).contains(&at) && (at - self.first).is_multiple_of(self.stride)
    }
}

impl Page {
    pub(crate) const ZERO: Self = Self::filled([0; VALUE_BYTES]);

    const fn filled(value: [u8; VALUE_BYTES]) -> Self {
        Self::Filled { value, at: 0, byte: value[0] }
    }

    /// A page with these bytes.
    pub(super) fn of(bytes: [u8; LENGTH]) -> Self {
        if bytes == [0; LENGTH] { Self::ZERO } else { Self::Bytes(Arc::new(bytes)) }
    }

    pub(crate) fn bytes(&self) -> [u8; LENGTH] {
        match self {
            Self::Bytes(bytes) => **bytes,
            Self::Filled { value, at, byte } => {
                let mut bytes = [0; LENGTH];
                bytes.as_chunks_mut().0.fill(*value);
                bytes[usize::from(*at)] = *byte;
                bytes
            }
        }
    }

    fn get(&self, at: usize) -> u8 {
        match self {
            Self::Bytes(bytes) => bytes[at],
            Self::Filled { at: except, byte, .. } if usize::from(*except) == at => *byte,
            Self::Filled { value, .. } => value[at % VALUE_BYTES],
        }
    }

    fn set(&mut self, at: usize, new: u8) {
        if self.get(at) == new {
            return;
        }
        if let Self::Filled { value, at: except, byte } = self {
            let is_exception = *byte != value[usize::from(*except) % VALUE_BYTES];
            if !is_exception || usize::from(*except) == at {
                *self = match value[at % VALUE_BYTES] == new {
                    true => Self::filled(*value),
                    false => Self::Filled { value: *value, at: at as u16, byte: new },
                };
                return;
            }
        }
        self.bytes_mut()[at] = new;
    }

    fn bytes_mut(&mut self) -> &mut [u8; LENGTH] {
        if let Self::Filled { .. } = self {
            *self = Self::Bytes(Arc::new(self.bytes()));
        }
        match self {
            Self::Bytes(bytes) => Arc::make_mut(bytes),
            Self::Filled { .. } => unreachable!("it has bytes now"),
        }
    }

    /// The sum of the bytes at these places.
    pub(super) fn sum(&self, places: Places) -> u64 {
        match self {
            Self::Filled { value, at, byte } if *value == [value[0]; VALUE_BYTES] => {
                let alike = u64::from(value[0]) * places.count() as u64;
                match places.contains(usize::from(*at)) {
                    true => alike - u64::from(value[0]) + u64::from(*byte),
                    false => alike,
                }
            }
            _ => places.iter().map(|at| u64::from(self.get(at))).sum(),
        }
    }

    /// Writes a byte to each of these places.
    pub(super) fn write(&mut self, places: Places, byte: u8) {
        if places.stride == 1 {
            self.fill(places.first..places.end, &[byte]);
        } else if places.count() == 1 {
            self.set(places.first, byte);
        } else {
            let bytes = self.bytes_mut();
            places.iter().for_each(|at| bytes[at] = byte);
        }
    }

    /// Writes a value of 1, 2 or 4 bytes over and over. The range begins at a multiple of its size.
    pub(super) fn fill(&mut self, range: Range<usize>, pattern: &[u8]) {
        if range.len() == LENGTH {
            *self = Self::filled(std::array::from_fn(|at| pattern[at % pattern.len()]));
        } else if range.len() == 1 {
            self.set(range.start, pattern[0]);
        } else {
            let values = self.bytes_mut()[range].chunks_mut(pattern.len());
            values.for_each(|value| value.copy_from_slice(&pattern[..value.len()]));
        }
    }

    /// Adds 1 to the little-endian word that holds each of these places.
    pub(super) fn add(&mut self, places: Places) {
        for at in places.iter() {
            let word = at / VALUE_BYTES * VALUE_BYTES;
            let old = std::array::from_fn(|byte| self.get(word + byte));
            let new = u32::from_le_bytes(old).wrapping_add(1).to_le_bytes();
            new.into_iter().enumerate().for_each(|(byte, new)| self.set(word + byte, new));
        }
    }

    /// Writes bytes from a place on.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
