//! The places of the bytes of a warp's lanes, in a region of memory that has all of them.

use super::access::Region;
use crate::code::{Access, Lanes, Op, WIDTH, active};

/// Where the lanes' bytes are in a region.
pub(super) struct Offsets {
    /// Those of lanes that are not active are the ones of the first active lane.
    of: [u32; WIDTH],
    /// All lanes access the same bytes.
    is_same: bool,
}

impl Offsets {
    /// The offsets of an instruction's lanes, if all are aligned and inside of the region.
    #[inline(always)]
    pub(super) fn of(
        lanes: &Lanes<'_>,
        op: &Op,
        wide: bool,
        region: &Region,
        bytes: u32,
    ) -> Option<Self> {
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

/// The bytes of the lanes of an instruction.
pub(super) enum Found {
    /// The first of bytes that follow one another, each lane's behind those of the lane before.
    Row(*mut u8),
    Places(Places),
}

impl Found {
    /// The places of the lanes, each of which has so many bytes.
    #[inline(always)]
    pub(super) fn places(self, bytes: u8) -> Places {
        match self {
            Self::Places(places) => places,
            Self::Row(host) => {
                let mut of = [0; WIDTH];
                for (lane, offset) in of.iter_mut().enumerate() {
                    *offset = lane as u32 * u32::from(bytes);
                }
                Places { host, apart: 0, offsets: Offsets { of, is_same: false } }
            }
        }
    }
}

/// The bytes of all lanes, if these follow one another in a region. Most accesses do.
#[inline(always)]
pub(super) fn row(
    lanes: &Lanes<'_>,
    op: &Op,
    access: Access,
    region: &Region,
    (address, bytes): (u64, u32),
) -> Option<*mut u8> {
    if lanes.mask != u32::MAX || access.bytes < 4 || region.apart != 0 {
        return None;
    }
    // An address of 32 bits that passes the end of its space is beyond the region, too.
    let is_row = if access.wide {
        let (base, mut gaps) = (lanes.double(op.s[0]), 0);
        for lane in 0..WIDTH {
            gaps |= base[lane].wrapping_sub(lane as u64 * u64::from(bytes)) ^ base[0];
        }
        gaps == 0
    } else {
        let (base, mut gaps) = (lanes.word(op.s[0]), 0);
        for lane in 0..WIDTH {
            gaps |= base[lane].wrapping_sub(lane as u32 * bytes) ^ base[0];
        }
        gaps == 0
    };
    let offset = address.wrapping_sub(region.start);
    let is_inside = offset <= u64::from(region.bytes)
        && u64::from(region.bytes) - offset >= WIDTH as u64 * u64::from(bytes);
    let is_aligned = address & u64::from(bytes - 1) == 0;
    (is_row && is_inside && is_aligned).then(|| region.host.wrapping_add(offset as usize))
}

/// Bytes of lanes in a region.
pub(super) struct Places {
    pub(super) host: *mut u8,
    pub(super) apart: usize,
    pub(super) offsets: Offsets,
}

impl Places {
    /// Where a lane's bytes are.
    #[inline(always)]
    pub(super) fn lane(&self, lane: usize) -> *mut u8 {
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
