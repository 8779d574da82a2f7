//! The reservations, physical memory and mappings of a hostile program.

use std::ptr::null_mut;

use pagewise_driver::{
    MemAllocationProp, MemLocation, cuMemAddressFree, cuMemAddressReserve, cuMemCreate, cuMemMap,
    cuMemRelease, cuMemUnmap,
};

/// The bytes of a piece of memory.
pub(super) const UNIT: usize = 2 << 20;

/// Memory of device 0.
pub(super) const OF_DEVICE: MemAllocationProp = MemAllocationProp {
    allocation_type: 1,
    handle_types: 0,
    location: MemLocation { kind: 1, id: 0 },
    win32_handle_meta_data: null_mut(),
    alloc_flags: [0; 8],
};

/// Reservations, physical memory and mappings of a hostile program.
#[derive(Debug, Default)]
pub(super) struct VirtualMemory {
    pub(super) reserved: Vec<(u64, usize)>,
    pub(super) handles: Vec<u64>,
    pub(super) mapped: Vec<(u64, usize)>,
}

impl VirtualMemory {
    /// The program has memory of device 0 mapped in the first half of a reservation, unless it has
    /// some already.
    pub(super) fn furnish(&mut self) {
        if !self.mapped.is_empty() {
            return;
        }
        let (mut ptr, mut handle, props) = (0, 0, OF_DEVICE);
        // SAFETY: the results go to locals that outlive the calls.
        unsafe {
            if cuMemAddressReserve(&raw mut ptr, 2 * UNIT, 0, 0, 0) != 0 {
                return;
            }
            self.reserved.push((ptr, 2 * UNIT));
            if cuMemCreate(&raw mut handle, UNIT, &raw const props, 0) != 0 {
                return;
            }
            self.handles.push(handle);
            if cuMemMap(ptr, UNIT, 0, handle, 0) == 0 {
                self.mapped.push((ptr, UNIT));
            }
        }
    }

    /// Gives everything back if there is much.
    pub(super) fn make_room(&mut self) {
        if self.reserved.len().max(self.handles.len()) > 8 {
            self.end();
        }
    }

    /// Gives everything back.
    pub(super) fn end(&mut self) {
        // SAFETY: the program ends here and uses none of it again, and the simulator has no device
        // that works by itself.
        unsafe {
            self.mapped.drain(..).for_each(|(ptr, bytes)| _ = cuMemUnmap(ptr, bytes));
            self.handles.drain(..).for_each(|handle| _ = cuMemRelease(handle));
            self.reserved.drain(..).for_each(|(ptr, bytes)| _ = cuMemAddressFree(ptr, bytes));
        }
    }
}
