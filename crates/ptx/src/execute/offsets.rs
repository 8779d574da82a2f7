//! The addresses of a warp's lanes: runs, and offsets in a region.
//!
//! Each question has two answers, which are the same: one of AVX2's vectors, and one of loops for
//! other machines.

use super::access::Region;
use super::bounds::Bounds;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::vectors;
use crate::code::WIDTH;

/// The register that an instruction takes addresses from.
#[derive(Clone, Copy)]
pub(super) enum Base<'w> {
    Words(&'w [u32; WIDTH]),
    Doubles(&'w [u64; WIDTH]),
}

impl Base<'_> {
    /// The address of a lane, which the instruction adds `imm` to.
    #[inline(always)]
    pub(super) fn address(self, lane: usize, imm: u64) -> u64 {
        match self {
            Self::Words(base) => base[lane].wrapping_add(imm as u32).into(),
            Self::Doubles(base) => base[lane].wrapping_add(imm),
        }
    }
}

/// How the addresses of all 32 lanes follow from the first one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// All are the same.
    Same,
    /// The bytes of each lane follow those of the lane before.
    Row,
}

impl Run {
    /// How they do if each is `step` bytes behind the one before.
    #[inline(always)]
    pub(super) fn by_step(step: u64, bytes: u32) -> Option<Self> {
        match step {
            0 => Some(Self::Same),
            _ if step == u64::from(bytes) => Some(Self::Row),
            _ => None,
        }
    }

    /// How the addresses do, for accesses of so many bytes. `wide_vectors` promises AVX2.
    #[inline(always)]
    pub(super) fn of(base: Base<'_>, bytes: u32, wide_vectors: bool) -> Option<Self> {
        // Two lanes tell which of the two it can be.
        let step = match base {
            Base::Words(base) => base[1].wrapping_sub(base[0]).into(),
            Base::Doubles(base) => base[1].wrapping_sub(base[0]),
        };
        let run = Self::by_step(step, bytes)?;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if wide_vectors {
            // SAFETY: the machine has the instructions.
            let follow = unsafe {
                match base {
                    Base::Words(base) => vectors::words_follow(base, step as u32),
                    Base::Doubles(base) => vectors::doubles_follow(base, step),
                }
            };
            return follow.then_some(run);
        }
        let follow = match base {
            Base::Words(base) => {
                let lanes = base.iter().zip(0..);
                lanes.fold(0, |gaps, (at, lane)| {
                    gaps | (at.wrapping_sub(lane * step as u32) ^ base[0])
                }) == 0
            }
            Base::Doubles(base) => {
                let lanes = base.iter().zip(0..);
                lanes.fold(0, |gaps, (at, lane)| gaps | (at.wrapping_sub(lane * step) ^ base[0]))
                    == 0
            }
        };
        follow.then_some(run)
    }
}

/// Where the lanes' bytes are in a region.
#[derive(Default)]
pub(super) struct Offsets {
    /// Those of lanes that are not active are the ones of the first active lane.
    pub(super) of: [u32; WIDTH],
    /// All lanes access the same bytes.
    pub(super) is_same: bool,
}

impl Offsets {
    /// Takes the offsets of an instruction's lanes. Returns whether all are aligned and inside of the
    /// region; if not, the offsets are of no use. `WIDE` promises AVX2.
    #[inline(always)]
    pub(super) fn fill<const WIDE: bool>(
        &mut self,
        base: Base<'_>,
        imm: u64,
        mask: u32,
        region: &Region,
        bytes: u32,
    ) -> bool {
        let Some(last) = region.bytes.checked_sub(bytes) else { return false };
        let bounds = Bounds {
            shift: imm.wrapping_sub(region.start),
            last,
            odd: bytes - 1,
            start: region.start as u32,
            mask,
        };
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if WIDE {
            // SAFETY: `WIDE` says that the machine has the instructions.
            let is_same = unsafe {
                match base {
                    Base::Words(base) => vectors::offsets_of_words(base, bounds, &mut self.of),
                    Base::Doubles(base) => vectors::offsets_of_doubles(base, bounds, &mut self.of),
                }
            };
            self.is_same = is_same == Some(true);
            return is_same.is_some();
        }
        self.fill_by_lanes(base, bounds)
    }

    #[inline(always)]
    fn fill_by_lanes(&mut self, base: Base<'_>, bounds: Bounds) -> bool {
        let of = &mut self.of;
        let mut high = 0;
        match base {
            Base::Words(base) => {
                for lane in 0..WIDTH {
                    of[lane] = base[lane].wrapping_add(bounds.shift as u32);
                }
            }
            Base::Doubles(base) => {
                for lane in 0..WIDTH {
                    let offset = base[lane].wrapping_add(bounds.shift);
                    high |= (offset >> 32) as u32 & kept(bounds.mask, lane);
                    of[lane] = offset as u32;
                }
            }
        }
        let first = of[bounds.mask.trailing_zeros() as usize % WIDTH];
        let (mut most, mut all, mut differ) = (0, 0, 0);
        for (lane, offset) in of.iter_mut().enumerate() {
            let kept = kept(bounds.mask, lane);
            *offset = *offset & kept | first & !kept;
            most = most.max(*offset);
            all |= *offset;
            differ |= *offset ^ first;
        }
        self.is_same = differ == 0;
        high == 0 && most <= bounds.last && (all | bounds.start) & bounds.odd == 0
    }
}

/// All bits if the lane is active, or none.
#[inline(always)]
fn kept(mask: u32, lane: usize) -> u32 {
    (mask.cast_signed() << (31 - lane) >> 31).cast_unsigned()
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::code::has_wide_vectors;

    /// Numbers that follow from the one before, the same everywhere.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % limit
        }
    }

    /// Addresses as kernels have them: runs, rows of eight and sixteen lanes, and any.
    fn addresses(numbers: &mut Numbers) -> [u64; WIDTH] {
        let columns = [1, 4, 8, 16, 32, 64][numbers.below(6) as usize];
        let (first, step) = (8 * numbers.below(64), [0, 1, 2, 4, 8, 16][numbers.below(6) as usize]);
        let further = 4 * numbers.below(256);
        let mut addresses = std::array::from_fn(|lane| {
            let lane = lane as u64;
            first + lane % columns * step + lane / columns * further
        });
        match numbers.below(4) {
            0 => addresses[numbers.below(32) as usize] ^= 1 << numbers.below(40),
            1 => addresses = std::array::from_fn(|_| 4 * numbers.below(512)),
            _ => {}
        }
        addresses
    }

    #[test]
    fn vectors_find_the_runs_and_offsets_that_loops_find() {
        if !has_wide_vectors() {
            return;
        }
        let mut numbers = Numbers(7);
        let (mut runs, mut fits) = (0, 0);
        for _ in 0..100_000 {
            let doubles = addresses(&mut numbers);
            let words = doubles.map(|address| address as u32);
            let mask =
                if numbers.below(2) == 0 { u32::MAX } else { 1 + numbers.below(1 << 31) as u32 };
            let odd = (1 << numbers.below(5)) - 1;
            let shift = if numbers.below(4) == 0 { numbers.below(1 << 33) } else { 0 };
            let bounds = Bounds { shift, last: 4096 - odd - 1, odd, start: 0, mask };
            for base in [Base::Words(&words), Base::Doubles(&doubles)] {
                let run = Run::of(base, odd + 1, false);
                assert!(run == Run::of(base, odd + 1, true));
                let (mut wide, mut plain) = ([0; WIDTH], Offsets::default());
                // SAFETY: the machine has AVX2.
                let is_same = unsafe {
                    match base {
                        Base::Words(base) => vectors::offsets_of_words(base, bounds, &mut wide),
                        Base::Doubles(base) => vectors::offsets_of_doubles(base, bounds, &mut wide),
                    }
                };
                let does_fit = is_same.is_some();
                assert_eq!(does_fit, plain.fill_by_lanes(base, bounds));
                if does_fit {
                    assert_eq!((wide, is_same), (plain.of, Some(plain.is_same)));
                }
                (runs, fits) = (runs + u32::from(run.is_some()), fits + u32::from(does_fit));
            }
        }
        assert!(runs > 10_000 && fits > 10_000, "{runs} runs, {fits} that fit");
    }

    #[test]
    fn vectors_read_the_words_at_all_offsets() {
        if !has_wide_vectors() {
            return;
        }
        let memory: Vec<u32> = (0..1024).map(|word| word * 7919).collect();
        let mut numbers = Numbers(11);
        for _ in 0..20_000 {
            let offsets = addresses(&mut numbers).map(|address| (address as u32 & 0xfff) & !3);
            let mut values = [0; WIDTH];
            // SAFETY: the machine has AVX2, and each offset is that of a word of the memory, as is
            // a row that follows from one, since its offsets are those of the lanes.
            unsafe { vectors::words(memory.as_ptr().cast(), &offsets, &mut values) };
            assert_eq!(values, offsets.map(|offset| memory[offset as usize / 4]));
        }
    }
}
