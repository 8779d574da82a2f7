//! Allocation from a pool if a resource has one, otherwise by a call of its own.

use pagewise_hal::{Backend, DevicePtr, Result};

use super::memory_resource::check_request;
use super::pool::Pool;
use crate::{Machine, Stream};

/// Allocates in stream order from a pool, if there is one, else by a call of its own.
pub(super) fn allocate_from(
    pool: Option<&Pool>,
    machine: &Machine,
    bytes: u64,
    stream: &Stream,
    direct: impl FnOnce(&dyn Backend) -> Result<DevicePtr>,
) -> Result<DevicePtr> {
    if let Some(pool) = pool {
        return pool.allocate(bytes, stream);
    }
    check_request(machine, bytes, stream)?;
    direct(machine.backend())
}

/// Gives back what [`allocate_from`] gave: in stream order, or by a call of its own once the work
/// of the stream is done, also if that failed.
///
/// # Safety
/// The memory is the pool's, if there is one; only work in the stream uses it.
pub(super) unsafe fn deallocate_to(
    pool: Option<&Pool>,
    ptr: DevicePtr,
    stream: &Stream,
    direct: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if let Some(pool) = pool {
        // SAFETY: the memory came from this pool, and the caller promised that only work of the
        // stream uses it.
        return unsafe { pool.deallocate(ptr, stream) };
    }
    let waited = stream.synchronize();
    let freed = direct();
    waited.and(freed)
}
