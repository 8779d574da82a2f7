//! The places of the bytes of a warp's lanes, in a piece of memory that the warp reaches.

use super::access::Region;
use super::offsets::{Base, Offsets};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::vectors;
use crate::code::{WIDTH, active};

/// Bytes of lanes in a region.
pub(super) struct Places<'o> {
    host: *mut u8,
    apart: usize,
    offsets: &'o Offsets,
}

impl<'o> Places<'o> {
    /// The places of all lanes of a mask, if all bytes are aligned and inside of the region; their
    /// offsets are left in `offsets`. The instruction adds `imm` to the addresses of the register.
    /// `WIDE` promises AVX2.
    #[inline(always)]
    pub(super) fn of<const WIDE: bool>(
        base: Base<'_>,
        (imm, mask): (u64, u32),
        region: &Region,
        bytes: u32,
        offsets: &'o mut Offsets,
    ) -> Option<Self> {
        if !reaches(matches!(base, Base::Doubles(_)), region)
            || !offsets.fill::<WIDE>(base, imm, mask, region, bytes)
        {
            return None;
        }
        Some(Self { host: region.host, apart: region.apart, offsets })
    }

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
    pub(super) unsafe fn values<T: Copy, W: From<T> + Copy + Default>(
        &self,
        at: usize,
    ) -> [W; WIDTH] {
        // SAFETY: the caller's. Volatile: another thread of the process may write the bytes.
        let read = |lane: usize| unsafe {
            W::from(self.lane(lane).wrapping_add(at).cast::<T>().read_volatile())
        };
        if self.offsets.is_same && self.apart == 0 {
            return [read(0); WIDTH];
        }
        let mut values = [W::default(); WIDTH];
        for (lane, value) in values.iter_mut().enumerate() {
            *value = read(lane);
        }
        values
    }

    /// Reads a word of each lane of a mask into a register; by vectors if the machine has them, which
    /// `WIDE` says.
    ///
    /// # Safety
    /// The lanes' bytes hold a word at `at`, and the machine has AVX2 if `WIDE`.
    #[inline(always)]
    pub(super) unsafe fn words<const WIDE: bool>(
        &self,
        at: usize,
        mask: u32,
        values: &mut [u32; WIDTH],
    ) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if WIDE && mask == u32::MAX && self.apart == 0 {
            // SAFETY: the caller promises the words and AVX2.
            return unsafe { vectors::words(self.host.wrapping_add(at), &self.offsets.of, values) };
        }
        for lane in active(mask) {
            let place = self.lane(lane).wrapping_add(at).cast::<u32>();
            // SAFETY: the caller's. Volatile: another thread of the process may write the bytes.
            values[lane] = unsafe { place.read_volatile() };
        }
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

/// Whether addresses can be those of a region. One that does not begin at 0 has addresses of 64 bits,
/// but for frames.
#[inline(always)]
fn reaches(wide: bool, region: &Region) -> bool {
    wide || region.start == 0
}
