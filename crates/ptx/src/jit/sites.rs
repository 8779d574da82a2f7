//! The memory that accesses of pieces found last.

use std::ops::Range;

use crate::code::Place;

/// A span that an access needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) place: Place,
    pub(super) bytes: u32,
    /// The alignment.
    pub(super) align: u32,
    pub(super) writes: bool,
    /// The access, counted from the piece's first.
    pub(super) site: u32,
    /// The instruction to leave before if the bytes are not at hand.
    pub(super) at: u32,
}

/// The memory that an access of a piece found last: a window, or the shared memory of the block.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    /// Its first address.
    pub(crate) start: u64,
    /// How many aligned places a span of the access has in it; 0 if it is none, or begins at an odd address.
    pub(crate) places: u64,
    /// The last offset at which a span begins.
    pub(crate) last: u64,
    /// Its first byte; null if it is shared memory, which each block has of its own.
    pub(crate) host: *mut u8,
}

impl Site {
    /// Memory of so many bytes, for spans of some of them that begin at multiples of an alignment. `None` if it
    /// is smaller than a span.
    #[inline(always)]
    pub(crate) fn of(memory: (u64, u64), host: *mut u8, (span, align): (u32, u32)) -> Option<Self> {
        let (start, bytes) = memory;
        let last = bytes.checked_sub(span.into())?;
        let is_even = start & (u64::from(align) - 1) == 0;
        let places = if is_even { (last >> align.trailing_zeros()) + 1 } else { 0 };
        Some(Self { start, places, last, host })
    }
}

impl Default for Site {
    fn default() -> Self {
        Self { start: 0, places: 0, last: 0, host: std::ptr::null_mut() }
    }
}

// SAFETY: the pointer is used only for the round of its window, as in the windows that a run keeps.
unsafe impl Send for Site {}

/// The sites of all pieces that a run enters.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    all: Vec<Site>,
    /// The round of the memory for which the sites of a piece hold, at the number of its first one.
    rounds: Vec<u64>,
}

impl Sites {
    /// The sites of a piece in a round: those of another round hold nothing any more.
    #[inline(always)]
    pub(crate) fn of(&mut self, piece: &Range<usize>, round: u64) -> *mut Site {
        if self.rounds.get(piece.start) != Some(&round) {
            self.begin(piece, round);
        }
        self.all.as_mut_ptr().wrapping_add(piece.start)
    }

    /// A round begins for the sites of a piece.
    #[cold]
    fn begin(&mut self, piece: &Range<usize>, round: u64) {
        if self.all.len() < piece.end {
            self.all.resize(piece.end, Site::default());
            self.rounds.resize(piece.end, 0);
        }
        self.rounds[piece.start] = round;
        self.all[piece.clone()].fill(Site::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_site_are_the_aligned_spans_in_its_memory() {
        let memories =
            [0, 8, 12, 4097].map(|start| [0, 3, 16, 130, 256].map(|bytes| (start, bytes)));
        for (start, bytes) in memories.into_iter().flatten() {
            for (span, align) in [(1, 1), (2, 2), (4, 4), (128, 4), (64, 4), (256, 8), (16, 16)] {
                let site = Site::of((start, bytes), std::ptr::null_mut(), (span, align));
                let site = site.unwrap_or_default();
                for offset in 0..=bytes {
                    let place = offset.rotate_right(align.trailing_zeros());
                    let is_inside = offset + u64::from(span) <= bytes;
                    let is_aligned = (start | offset).is_multiple_of(align.into());
                    let expected = is_inside && is_aligned;
                    assert_eq!(place < site.places, expected, "{start} {bytes} {span} {offset}");
                }
            }
        }
    }
}
