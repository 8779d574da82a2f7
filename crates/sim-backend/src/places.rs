//! The places of a walk over memory, by number: strided ranges, one after another.
//!
//! A place of range `r` with number `n` is at `start(r) + (n - first(r)) * stride(r)`. Addresses of
//! one range ascend; those of different ranges need not. Addresses and strides are in bytes.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "a place below the last of its range lies in live memory; places are counted, at most \
              one for each byte of 2^22 ranges of live memory"
)]

use pagewise_hal::StridedSpan;

/// A range of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Number of its first place.
    first: u64,
    start: u64,
    stride: u64,
}

/// Places at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strided {
    /// The address of the first.
    pub(crate) byte: u64,
    /// Bytes from one to the next.
    pub(crate) stride: u64,
    /// How many there are.
    pub(crate) count: u64,
}

/// Places at known addresses, numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    runs: Vec<Run>,
    count: u64,
}

impl Places {
    /// `count` places, a stride apart.
    pub(crate) fn even(start: u64, stride: u64, count: u64) -> Self {
        Self { runs: vec![Run { first: 0, start, stride: stride.max(1) }], count }
    }

    /// The places of these ranges, in their order. Ranges without a place are left out.
    pub(crate) fn of(ranges: &[StridedSpan]) -> Self {
        let mut places = Self { runs: Vec::with_capacity(ranges.len()), count: 0 };
        for range in ranges.iter().filter(|range| range.places() > 0) {
            let (start, stride) = (range.span.ptr.0, range.stride_bytes);
            places.runs.push(Run { first: places.count, start, stride });
            places.count += range.places();
        }
        places
    }

    /// How many places there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The stride, if there is one range.
    pub(crate) fn stride(&self) -> Option<u64> {
        match &self.runs[..] {
            [run] => Some(run.stride),
            _ => None,
        }
    }

    /// The range of a place, and the number of the first place behind that range.
    #[inline]
    fn run(&self, place: u64) -> (Run, u64) {
        let behind = match &self.runs[..] {
            [_] => 1,
            runs => runs.partition_point(|run| run.first <= place),
        };
        let end = self.runs.get(behind).map_or(self.count, |next| next.first);
        (self.runs[behind - 1], end)
    }

    /// Where a place is. `place` is below the [`count`](Self::count).
    pub(crate) fn address(&self, place: u64) -> u64 {
        let (run, _) = self.run(place);
        run.start + (place - run.first) * run.stride
    }

    /// The places from `place` on in its range. `place` is below the [`count`](Self::count).
    #[inline]
    pub(crate) fn strided_from(&self, place: u64) -> Strided {
        let (run, end) = self.run(place);
        let byte = run.start + (place - run.first) * run.stride;
        Strided { byte, stride: run.stride, count: end - place }
    }

    /// The first place from `place` on that is in another range, or in the same range at `byte` or
    /// behind it. `place` is below the [`count`](Self::count).
    pub(crate) fn from(&self, place: u64, byte: u64) -> u64 {
        let (run, end) = self.run(place);
        let in_run = byte.saturating_sub(run.start).div_ceil(run.stride);
        run.first.saturating_add(in_run).clamp(place, end)
    }

    /// The first place behind the range of a place.
    pub(crate) fn behind_range(&self, place: u64) -> u64 {
        self.run(place).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewise_hal::{DevicePtr, Span};

    fn ranges() -> Vec<StridedSpan> {
        let range = |start, bytes, stride_bytes| StridedSpan {
            span: Span::new(DevicePtr(start), bytes),
            stride_bytes,
        };
        vec![range(100, 10, 4), range(7, 0, 1), range(50, 1, 9), range(60, 21, 10)]
    }

    /// Every address, in the order of the places.
    fn listed() -> Vec<u64> {
        vec![100, 104, 108, 50, 60, 70, 80]
    }

    #[test]
    fn places_are_numbered_in_the_order_of_their_ranges() {
        let places = Places::of(&ranges());
        let addresses: Vec<u64> = (0..places.count()).map(|at| places.address(at)).collect();
        assert_eq!(addresses, listed());
        assert_eq!(Places::even(100, 4, 3), Places::of(&ranges()[..1]));
    }

    #[test]
    fn the_next_place_is_in_another_range_or_at_the_byte_or_behind_it() {
        let (places, run_of) = (Places::of(&ranges()), [0, 0, 0, 1, 2, 2, 2]);
        for place in 0..places.count() {
            for byte in 0..120 {
                let found =
                    |&at: &usize| run_of[at] != run_of[place as usize] || listed()[at] >= byte;
                let next = (place as usize..7).find(found).map_or(7, |at| at as u64);
                assert_eq!(places.from(place, byte), next, "from {place}, byte {byte}");
            }
        }
        assert_eq!([0, 3, 6].map(|place| places.behind_range(place)), [3, 4, 7]);
    }
}
