//! Fills: one value in every element.

use bytemuck::Pod;
use pagewise_hal::{Result, Span, StreamHandle};

use super::elements::ElementsMut;
use crate::refuse::invalid;
use crate::{Machine, Stream};

/// A value as the driver fills with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    Byte(u8),
    Half(u16),
    Word(u32),
}

impl Pattern {
    /// The pattern of a value of 1, 2 or 4 bytes. A longer value has one if it repeats its first 1,
    /// 2 or 4 bytes, as zeros do.
    fn of(bytes: &[u8]) -> Option<Self> {
        let repeats = |width: usize| bytes.chunks(width).all(|chunk| *chunk == bytes[..width]);
        Some(match *bytes {
            [a, b] => Self::Half(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => Self::Word(u32::from_ne_bytes([a, b, c, d])),
            [a, ..] if repeats(1) => Self::Byte(a),
            [a, b, ..] if repeats(2) => Self::Half(u16::from_ne_bytes([a, b])),
            [a, b, c, d, ..] if repeats(4) => Self::Word(u32::from_ne_bytes([a, b, c, d])),
            _ => return None,
        })
    }

    const fn width(self) -> u64 {
        match self {
            Self::Byte(_) => 1,
            Self::Half(_) => 2,
            Self::Word(_) => 4,
        }
    }

    /// # Safety
    /// As [`Backend::memset`](crate::Backend::memset).
    unsafe fn fill(self, machine: &Machine, span: Span, stream: StreamHandle) -> Result<()> {
        let backend = machine.backend();
        // SAFETY: the three calls ask for the same: that no other code or work uses the range until
        // the stream has passed the call. The caller promised that.
        unsafe {
            match self {
                Self::Byte(value) => backend.memset(span, value, stream),
                Self::Half(value) => backend.memset_d16(span, value, stream),
                Self::Word(value) => backend.memset_d32(span, value, stream),
            }
        }
    }
}

/// Writes a value to every element, by a device, in stream order. See the [module](super).
///
/// The driver fills with values of 1, 2 and 4 bytes. A longer value can be one of them over and
/// over, as zeros are.
///
/// | size of the value | driver's function |
/// | --- | --- |
/// | 1 | `cuMemsetD8Async` |
/// | 2 | `cuMemsetD16Async` |
/// | 4 | `cuMemsetD32Async` |
///
/// # Errors
/// Without a CUDA code: `InvalidValue` for a stream of another machine, a longer value that does not
/// repeat, or an address that is no multiple of the value's size, which only adopted memory can
/// have. From the back end: as [`Backend::memset`](crate::Backend::memset); `InvalidValue` (1) for
/// memory of another device than the stream's. Contents are as before after a refusal.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Stream, fill};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::<f32>::zeroed(&machine, 1000)?;
/// fill(buffer.range_mut(500..)?, 2.5, &stream)?;
/// assert_eq!(buffer.read()?.iter().sum::<f32>(), 1250.0, "the read waits for the fill");
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn fill<'b, T: Pod>(
    to: impl Into<ElementsMut<'b, T>>,
    value: T,
    stream: &Stream,
) -> Result<()> {
    const OPERATION: &str = "fill";
    let part = to.into().part;
    let (memory, span) = (part.memory, part.span);
    let filled = || {
        memory.machine.check_stream(OPERATION, stream)?;
        let Some(pattern) = Pattern::of(bytemuck::bytes_of(&value)) else {
            let why = "the driver fills with values of 1, 2 or 4 bytes, and this longer one does \
                       not repeat such a value: write it on the host, or copy it";
            return Err(invalid(OPERATION, why));
        };
        if !span.ptr.0.is_multiple_of(pattern.width()) {
            let why = format!("the address is no multiple of {} bytes", pattern.width());
            return Err(invalid(OPERATION, why));
        }
        memory.begin_write(span, stream)?;
        // SAFETY: the elements are borrowed exclusively. Earlier work on them was ordered before
        // the stream's by `begin_write`. The memory notes this fill before the borrow ends, and
        // waits for the stream before it is used for anything else.
        let filled = unsafe { pattern.fill(&memory.machine, span, stream.raw()) };
        memory.has_work(span, stream, true);
        filled?;
        memory.contents.written(span);
        Ok(())
    };
    filled().map_err(|error| memory.name_in(error, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_fills_if_it_repeats_1_2_or_4_bytes() {
        let word = |value: u32| Some(Pattern::Word(value));
        assert_eq!(Pattern::of(&[7]), Some(Pattern::Byte(7)));
        assert_eq!(Pattern::of(&[7]).map(Pattern::width), Some(1));
        assert_eq!(Pattern::of(&[7; 2]), Some(Pattern::Half(0x0707)));
        assert_eq!(Pattern::of(&[7; 4]), word(0x0707_0707));
        assert_eq!(Pattern::of(&[7; 12]), Some(Pattern::Byte(7)));
        assert_eq!(Pattern::of(&[1, 1, 1, 1, 1, 1, 1, 2]), None);
        let halves = u64::from_ne_bytes([1, 2, 1, 2, 1, 2, 1, 2]).to_ne_bytes();
        assert_eq!(Pattern::of(&halves), Some(Pattern::Half(u16::from_ne_bytes([1, 2]))));
        assert_eq!(Pattern::of(&[1, 2, 3, 4, 1, 2, 3, 4]), word(u32::from_ne_bytes([1, 2, 3, 4])));
        assert_eq!(Pattern::of(&[1, 2, 3, 1, 2, 3]), None, "3 bytes are no pattern");
        assert_eq!(Pattern::of(&[]), None);
    }
}
