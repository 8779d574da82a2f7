//! Handles of a manager's memory for other processes.

use pagewise::refuse::{invalid, unsupported};
use pagewise::{Device, DevicePtr, Error, IpcMemHandle, Machine, PointerAttribute, Result, Span};

use super::pointer::{MemoryPointer, PointerKind};

/// A handle that another process opens to use memory: the driver's of a whole allocation, and where
/// in it the memory lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpcHandle {
    /// The driver's handle of the whole allocation.
    pub handle: IpcMemHandle,
    /// Bytes from the start of the allocation to the memory.
    pub offset_bytes: u64,
    /// Bytes of the memory.
    pub bytes: u64,
    /// The device that it is on.
    pub device: Device,
}

impl IpcHandle {
    /// The handle of device memory, whatever the manager: what [`ExternalMemoryManager`] asks for.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidValue` for memory that was freed, `Unsupported` for managed and
    /// host memory. As [`Backend::ipc_mem_handle`](pagewise::Backend::ipc_mem_handle): memory of pools
    /// has no such handle.
    ///
    /// [`ExternalMemoryManager`]: super::ExternalMemoryManager
    ///
    /// ```
    /// use pagewise_managers::emm::{ExternalMemoryManager, EmmOptions, ResourceManager};
    /// use pagewise::{Device, Machine};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let manager = ResourceManager::direct(&machine, Device::FIRST, EmmOptions::default())?;
    /// manager.initialize()?;
    /// let array = manager.memalloc(1000)?;
    /// let handle = manager.get_ipc_handle(&array.view(100, Some(300))?)?;
    /// assert_eq!((handle.offset_bytes, handle.bytes), (100, 200));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn of(device: Device, memory: &MemoryPointer) -> Result<Self> {
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
                let backend = memory.machine().backend();
                let (ptr, bytes) = (memory.device_ptr(), memory.bytes());
                let about = |error: Error| error.with_span(memory.span());
                let start = backend.pointer_attribute(ptr, PointerAttribute::RANGE_START_ADDR);
                let start = DevicePtr(start.map_err(about)?);
                let handle = backend.ipc_mem_handle(start).map_err(about)?;
                let offset_bytes = ptr.0.saturating_sub(start.0);
                Ok(Self { handle, offset_bytes, bytes, device })
            }
        }
    }

    /// Opens it, in a process other than the one that made it. It is closed with the last pointer.
    /// Opening takes the handle: it cannot be opened twice.
    ///
    /// # Errors
    /// As [`Backend::ipc_open_mem_handle`](pagewise::Backend::ipc_open_mem_handle): 201 in the process
    /// that made it.
    ///
    /// # Safety
    /// The memory stays allocated until the pointer is gone.
    pub unsafe fn open(self, machine: impl Into<Machine>) -> Result<MemoryPointer> {
        let machine = machine.into();
        // SAFETY: the caller promised that the handle is of live memory of another process.
        let base = unsafe { machine.backend().ipc_open_mem_handle(self.device.id(), self.handle)? };
        let closes = machine.clone();
        let finalizer = Box::new(move || {
            // SAFETY: the memory was opened above, and a finalizer runs once. Code that got the
            // address has promised, as for every free, that it uses the memory no more.
            unsafe { closes.backend().ipc_close_mem_handle(base) }
        });
        let span = self.span_at(base);
        Ok(MemoryPointer::new(machine, PointerKind::Memory, span, Some(finalizer)))
    }

    /// The bytes of the memory in an allocation that was opened at this address.
    #[must_use]
    pub fn span_at(&self, base: DevicePtr) -> Span {
        Span::new(base.offset(self.offset_bytes), self.bytes)
    }
}
