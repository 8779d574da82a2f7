//! Code under test, as a user of the HAL would write it: a staging buffer that makes a range
//! resident on a device and gives up politely when the device is full.

use std::sync::Arc;

use pagewise_hal::{
    Advice, AttachFlags, Backend, DeviceId, ErrorKind, Location, Result, Span, StreamHandle,
};

/// Where a staged range ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staged {
    /// On its way to the device.
    OnDevice,
    /// Left on the host and mapped by the device, because the device is full.
    MappedOnHost,
}

/// Prefetches a range to a device; maps it there if there is no room.
///
/// # Errors
/// Whatever else the back end refuses.
pub fn stage(backend: &dyn Backend, span: Span, device: DeviceId) -> Result<Staged> {
    let to = Location::device(device);
    match backend.prefetch(span, to, 0, StreamHandle::NULL) {
        Ok(()) => Ok(Staged::OnDevice),
        Err(error) if error.kind() == ErrorKind::OutOfMemory => {
            backend.advise(span, Advice::SET_ACCESSED_BY, to)?;
            Ok(Staged::MappedOnHost)
        }
        Err(error) => Err(error),
    }
}

/// A managed allocation that frees itself.
#[derive(Debug)]
pub struct Scratch {
    backend: Arc<dyn Backend>,
    span: Span,
}

impl Scratch {
    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    /// As [`Backend::alloc_managed`].
    pub fn new(backend: Arc<dyn Backend>, bytes: u64) -> Result<Self> {
        let ptr = backend.alloc_managed(bytes, AttachFlags::GLOBAL)?;
        Ok(Self { backend, span: Span::new(ptr, bytes) })
    }

    /// The allocation.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: `self` is the only owner of the memory and is dropped here. The answer is left
        // out, because a destructor cannot report.
        let _ = unsafe { self.backend.free(self.span.ptr) };
    }
}
