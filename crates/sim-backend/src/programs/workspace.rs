//! Memory of a device that a launch needs beside the program's.

use std::sync::{Arc, Mutex};

use pagewise_hal::{Backend, Code, DeviceId, DevicePtr, Error, HostAddresses, Operation, Result};

use super::heap::{Heap, Heaps, lock};
use crate::backend::SimBackend;

/// The heap of a device: empty, or if a kernel needs it of this many bytes. `memory` gives it its
/// memory.
pub(super) fn heap_of(
    heaps: &Heaps,
    device: DeviceId,
    bytes: Option<u64>,
    memory: &dyn Backend,
) -> Result<Arc<Mutex<Heap>>> {
    let Some(bytes) = bytes else { return Ok(Arc::default()) };
    heaps.of(device, || Ok((memory.alloc_device(device, bytes)?.0, bytes)))
}

/// Bytes of the barrier of a cooperative grid.
const BARRIER_BYTES: u64 = 16;

/// Memory in which the barrier of a cooperative grid counts, for one launch.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) address: u64,
    heap: Arc<Mutex<Heap>>,
}

impl Workspace {
    /// Memory of a heap, cleared.
    ///
    /// # Errors
    /// `OutOfMemory`
    pub(super) fn new(sim: &SimBackend, heap: Arc<Mutex<Heap>>) -> Result<Self> {
        let refused = || {
            Error::from_code(Operation::Launch.name(), Code::OUT_OF_MEMORY)
                .with_detail("the device's heap has no room for the barrier of the grid")
        };
        let address = lock(&heap).allocate(BARRIER_BYTES).ok_or_else(refused)?;
        let place = sim.kernel_address(DevicePtr(address)).0;
        let place = std::ptr::with_exposed_provenance_mut::<u8>(place as usize);
        // SAFETY: the bytes are of the heap's live allocation, at the address by which a simulated
        // device reaches them, and no kernel has them.
        unsafe { place.write_bytes(0, BARRIER_BYTES as usize) };
        Ok(Self { address, heap })
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        lock(&self.heap).free(self.address);
    }
}
