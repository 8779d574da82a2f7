//! Memory for other processes.

use pagewise_hal::{Result, Span};

use super::host_only::HostOnlyManager;
use super::pointer::{MemoryPointer, PointerKind};
use crate::Device;
use crate::refuse::{invalid, unsupported};

/// What another process opens to use memory: the driver's handle of a whole allocation, and where
/// in it the memory lies.
///
/// ```
/// assert_eq!(pagewise::emm::IpcHandle::HANDLE_BYTES, 64);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IpcHandle {
    /// `CUipcMemHandle`.
    pub handle: [u8; Self::HANDLE_BYTES],
    /// Bytes from the start of the allocation to the memory.
    pub offset_bytes: u64,
    /// Bytes of the memory.
    pub bytes: u64,
    /// The device that it is on.
    pub device: Device,
}

impl IpcHandle {
    /// Bytes of the driver's handle.
    pub const HANDLE_BYTES: usize = 64;

    /// The handle of device memory.
    pub(super) fn of(_base: &HostOnlyManager, memory: &MemoryPointer) -> Result<Self> {
        const OPERATION: &str = "get_ipc_handle";
        let refuse = |why: &'static str| Err(unsupported(OPERATION, why).with_span(memory.span()));
        if memory.is_freed() {
            return Err(invalid(OPERATION, "the memory was freed").with_span(memory.span()));
        }
        match memory.kind() {
            PointerKind::Managed => refuse("managed memory has no handle for other processes"),
            PointerKind::Mapped | PointerKind::Pinned => {
                refuse("host memory has no handle for other processes: share it by a file")
            }
            PointerKind::Memory | PointerKind::AutoFree => {
                refuse("this back end has no call that makes handles for other processes")
            }
        }
    }

    /// The bytes of the memory in an allocation that was opened at this address.
    #[must_use]
    pub fn span_at(&self, base: pagewise_hal::DevicePtr) -> Span {
        Span::new(base.offset(self.offset_bytes), self.bytes)
    }
}
