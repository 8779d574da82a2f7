//! The addresses of a warp's lanes: runs, and offsets in a region.
//!
//! Each question has two answers, which are the same: one of AVX2's vectors, and one of loops for
//! other machines.

use super::access::Region;
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
    /// How the addresses do, for accesses of so many bytes. `wide_vectors` promises AVX2.
    #[inline(always)]
    pub(super) fn of(base: Base<'_>, bytes: u32, wide_vectors: bool) -> Option<Self> {
        // Two lanes tell which of the two it can be.
        let step = match base {
            Base::Words(base) => base[1].wrapping_sub(base[0]).into(),
            Base::Doubles(base) => base[1].wrapping_sub(base[0]),
        };
        if step != 0 && step != u64::from(bytes) {
            return None;
        }
        let run = if step == 0 { Self::Same } else { Self::Row };
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

/// The offsets that an access may have.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The difference between an offset and the value of the register.
    pub(super) shift: u64,
    /// The highest one.
    pub(super) last: u32,
    /// Bits that no offset has, so that the addresses are multiples of the access's size.
    pub(super) odd: u32,
    /// The region's first address, which has none of these bits either.
    pub(super) start: u32,
    /// The lanes, of which at least one is active.
    pub(super) mask: u32,
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
            return unsafe {
                match base {
                    Base::Words(base) => vectors::offsets_of_words(base, bounds, self),
                    Base::Doubles(base) => vectors::offsets_of_doubles(base, bounds, self),
                }
            };
        }
        self.fill_by_lanes(base, bounds)
    }

    #[inline(always)]
    pub(super) fn fill_by_lanes(&mut self, base: Base<'_>, bounds: Bounds) -> bool {
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
