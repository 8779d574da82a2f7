//! Page-locked memory through which copies of other memory of the host go.
//!
//! One buffer is kept for the next copy, as the driver keeps some: the pages of a new one are zeroed
//! one by one, which takes many times as long as a copy.

use pagewise_hal::{Backend, DevicePtr, HostAddresses, HostAllocFlags};

use crate::driver::{Driver, Outcome, answer};
use crate::kept_buffer::PageLocked;

/// Bytes of the shortest buffer.
const LEAST: u64 = 1 << 16;
/// Bytes of the longest buffer that is kept.
const MOST_KEPT: u64 = 256 << 20;

/// A buffer of one copy.
pub(crate) struct BounceBuffer<'a> {
    driver: &'a Driver,
    memory: PageLocked,
    is_used: bool,
}

impl<'a> BounceBuffer<'a> {
    /// A buffer of at least so many bytes: the one that is kept, or a new one.
    pub(crate) fn new(driver: &'a Driver, bytes: u64) -> Outcome<Self> {
        if let Some(memory) = driver.kept_buffer.exchange(None) {
            let is_used = memory.bytes >= bytes;
            let buffer = Self { driver, memory, is_used };
            if is_used {
                return Ok(buffer);
            }
        }
        let bytes = bytes.checked_next_power_of_two().unwrap_or(bytes).max(LEAST);
        takes_no_time(driver);
        let start = answer(driver.sim.alloc_pinned(bytes, HostAllocFlags::empty()))?;
        Ok(Self { driver, memory: PageLocked { start, bytes }, is_used: false })
    }

    /// The address in the simulator.
    pub(crate) fn start(&self) -> u64 {
        self.memory.start.0
    }

    /// The place of one of its bytes in the engine's view, where accesses take no fault of the host.
    pub(crate) fn place(&self, address: u64) -> *mut u8 {
        let address = self.driver.machine.simulator.kernel_address(DevicePtr(address)).0;
        std::ptr::with_exposed_provenance_mut(address as usize)
    }

    /// The copy was carried out: the buffer may serve another one. After a call that was refused,
    /// all is as before it.
    pub(crate) fn keep(mut self) {
        self.is_used = true;
    }
}

impl Drop for BounceBuffer<'_> {
    fn drop(&mut self) {
        let is_kept = self.is_used && self.memory.bytes <= MOST_KEPT;
        let others = match is_kept {
            true => self.driver.kept_buffer.exchange(Some(self.memory)),
            false => Some(self.memory),
        };
        if let Some(PageLocked { start, .. }) = others {
            takes_no_time(self.driver);
            // SAFETY: `free_pinned` asks that no code uses the memory any more: the copy is complete
            // when the simulator returns from it, and only this module knows the address.
            _ = unsafe { self.driver.sim.free_pinned(start) };
        }
    }
}

/// Lets the next call take no simulated time, as the driver has its buffers from the start. If another
/// thread makes that call, it takes none instead.
fn takes_no_time(driver: &Driver) {
    driver.machine.simulator.pace_next_op(0, []);
}
