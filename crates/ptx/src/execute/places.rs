//! The places of the bytes of a warp's lanes, in a piece of memory that the warp reaches.

use super::access::Region;
use crate::code::{Lanes, Op, WIDTH, active};

/// The offsets of lanes with 1, 2, 4 … bytes each, that follow one another.
const ROWS: [[u32; WIDTH]; 6] = {
    let mut rows = [[0; WIDTH]; 6];
    let mut at = 0;
    while at < 6 * WIDTH {
        rows[at / WIDTH][at % WIDTH] = ((at % WIDTH) as u32) << (at / WIDTH);
        at += 1;
    }
    rows
};

/// How the addresses of all 32 lanes follow from the first one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// All are the same.
    Same,
    /// The bytes of each lane follow those of the lane before.
    Row,
}

impl Run {
    /// How the addresses in a register do, for accesses of so many bytes.
    #[inline(always)]
    fn of(lanes: &Lanes<'_>, op: &Op, wide: bool, bytes: u32) -> Option<Self> {
        // Two lanes tell which of the two it can be.
        let step = if wide {
            let base = lanes.double(op.s[0]);
            base[1].wrapping_sub(base[0])
        } else {
            let base = lanes.word(op.s[0]);
            base[1].wrapping_sub(base[0]).into()
        };
        if step != 0 && step != u64::from(bytes) {
            return None;
        }
        let row = ROWS.get(step.trailing_zeros() as usize).unwrap_or(&[0; WIDTH]);
        let mut gaps = 0;
        if wide {
            let base = lanes.double(op.s[0]);
            for lane in 0..WIDTH {
                gaps |= base[lane].wrapping_sub(row[lane].into()) ^ base[0];
            }
        } else {
            let base = lanes.word(op.s[0]);
            let mut narrow = 0;
            for lane in 0..WIDTH {
                narrow |= base[lane].wrapping_sub(row[lane]) ^ base[0];
            }
            gaps = narrow.into();
        }
        (gaps == 0).then_some(if step == 0 { Self::Same } else { Self::Row })
    }
}

/// Where the lanes' bytes are in a region.
struct Offsets {
    /// Those of lanes that are not active are the ones of the first active lane.
    of: [u32; WIDTH],
    /// All lanes access the same bytes.
    is_same: bool,
}

impl Offsets {
    /// The offsets of an instruction's lanes, if all are aligned and inside of the region.
    #[inline(always)]
    fn of(lanes: &Lanes<'_>, op: &Op, wide: bool, region: &Region, bytes: u32) -> Option<Self> {
        let mut of = [0; WIDTH];
        let mut high = 0;
        if wide {
            let (base, shift) = (lanes.double(op.s[0]), op.imm.wrapping_sub(region.start));
            for lane in 0..WIDTH {
                let offset = base[lane].wrapping_add(shift);
                let kept = i64::from(lanes.mask.cast_signed() << (31 - lane) >> 31);
                high |= (offset >> 32) as u32 & kept as u32;
                of[lane] = offset as u32;
            }
        } else {
            let base = lanes.word(op.s[0]);
            for lane in 0..WIDTH {
                of[lane] = base[lane].wrapping_add(op.imm as u32);
            }
            // Regions that begin elsewhere have addresses of 64 bits, but for frames.
            if region.start != 0 {
                return None;
            }
        }
        Self::checked(of, lanes.mask, region, bytes).filter(|_| high == 0)
    }

    #[inline(always)]
    fn checked(addressed: [u32; WIDTH], mask: u32, region: &Region, bytes: u32) -> Option<Self> {
        let first = addressed[mask.trailing_zeros() as usize % WIDTH];
        let mut of = addressed;
        if mask != u32::MAX {
            for lane in 0..WIDTH {
                let kept = (mask.cast_signed() << (31 - lane) >> 31).cast_unsigned();
                of[lane] = addressed[lane] & kept | first & !kept;
            }
        }
        let (mut most, mut all, mut differ) = (0, 0, 0);
        for &offset in &of {
            most = offset.max(most);
            all |= offset;
            differ |= offset ^ first;
        }
        let is_aligned = (all | region.start as u32) & (bytes - 1) == 0;
        let is_inside = most < region.bytes && region.bytes - most >= bytes;
        let is_same = differ == 0 && region.apart == 0;
        (is_aligned && is_inside).then_some(Self { of, is_same })
    }
}

/// Where an access finds the bytes of its lanes.
pub(super) enum Found {
    /// All lanes are active, and the bytes follow from those of the first lane.
    Run(Run, *mut u8),
    Places(Places),
}

/// Bytes of lanes in a region.
pub(super) struct Places {
    host: *mut u8,
    apart: usize,
    offsets: Offsets,
}

impl Places {
    /// Where a lane's bytes are.
    #[inline(always)]
    fn lane(&self, lane: usize) -> *mut u8 {
        self.host.wrapping_add(self.offsets.of[lane] as usize + lane * self.apart)
    }

    /// Reads a value of each lane.
    ///
    /// # Safety
    /// The lanes' bytes hold a value at `at`.
    #[inline(always)]
    pub(super) unsafe fn values<T: Copy + Default, W: From<T> + Copy + Default>(
        &self,
        at: usize,
    ) -> [W; WIDTH] {
        let mut values = [W::default(); WIDTH];
        // SAFETY: the caller's. Volatile: another thread of the process may write the bytes.
        let read = |place: *mut u8| W::from(unsafe { place.cast::<T>().read_volatile() });
        if self.offsets.is_same {
            return [read(self.lane(0).wrapping_add(at)); WIDTH];
        }
        let start = self.host.wrapping_add(at);
        if self.apart == 0 {
            for (value, &offset) in values.iter_mut().zip(&self.offsets.of) {
                *value = read(start.wrapping_add(offset as usize));
            }
        } else {
            for (lane, value) in values.iter_mut().enumerate() {
                *value = read(self.lane(lane).wrapping_add(at));
            }
        }
        values
    }

    /// Writes a value of each lane of a mask, the last one last.
    ///
    /// # Safety
    /// The lanes' bytes hold a value at `at`, and are ones to write.
    #[inline(always)]
    pub(super) unsafe fn set_values<T: Copy>(
        &self,
        at: usize,
        mask: u32,
        value: impl Fn(usize) -> T,
    ) {
        let set = |lane: usize| {
            // SAFETY: the caller's. Volatile: another thread of the process may read the bytes.
            unsafe { self.lane(lane).wrapping_add(at).cast::<T>().write_volatile(value(lane)) };
        };
        if mask == u32::MAX {
            for lane in 0..WIDTH {
                set(lane);
            }
        } else {
            for lane in active(mask) {
                set(lane);
            }
        }
    }
}

/// The places of all active lanes, if all bytes are aligned and inside of the region.
#[inline(always)]
pub(super) fn found(
    lanes: &Lanes<'_>,
    op: &Op,
    wide: bool,
    region: &Region,
    (address, bytes): (u64, u32),
) -> Option<Found> {
    let run = run(lanes, op, wide, region, (address, bytes));
    if run.is_some() {
        return run;
    }
    let offsets = Offsets::of(lanes, op, wide, region, bytes)?;
    Some(Found::Places(Places { host: region.host, apart: region.apart, offsets }))
}

/// The place of the first lane, if all lanes are active and their addresses follow from its address,
/// and all bytes are aligned and inside of the region.
#[inline(always)]
fn run(
    lanes: &Lanes<'_>,
    op: &Op,
    wide: bool,
    region: &Region,
    (address, bytes): (u64, u32),
) -> Option<Found> {
    // As in `Offsets::of`, and bytes of lanes that are apart are no row.
    if lanes.mask != u32::MAX || region.apart != 0 || !wide && region.start != 0 {
        return None;
    }
    let run = Run::of(lanes, op, wide, bytes)?;
    let (offset, limit) = (address.wrapping_sub(region.start), u64::from(region.bytes));
    let span = u64::from(bytes) * if run == Run::Row { WIDTH as u64 } else { 1 };
    let is_aligned = address & u64::from(bytes - 1) == 0;
    let is_inside = offset < limit && limit - offset >= span;
    let first = region.host.wrapping_add(offset as usize);
    (is_aligned && is_inside).then_some(Found::Run(run, first))
}
