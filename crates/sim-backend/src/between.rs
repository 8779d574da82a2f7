//! Calls that the trait of back ends does not have, most of them for other processes: the C entry
//! points of `pagewise-driver` make them. They take no virtual time and have no records.

use pagewise_hal::{
    DeviceId, DevicePtr, EventHandle, HandleTypes, MemoryHandle, MemoryProps, Result,
    SHARED_BLOB_BYTES, ShareableHandle,
};

use crate::backend::SimBackend;

impl SimBackend {
    /// A descriptor by which a process imports physical memory (`cuMemExportToShareableHandle`). It
    /// is the caller's.
    ///
    /// # Errors
    /// `InvalidValue` for no live memory, or memory that was not made with the handle type;
    /// `NotSupported` for types other than file descriptors, and on systems other than Linux on
    /// x86-64 and aarch64; `OutOfMemory` if the host has no memory or no descriptor left.
    pub fn memory_export(
        &self,
        memory: MemoryHandle,
        kind: HandleTypes,
    ) -> Result<ShareableHandle> {
        self.beside("memory_export", |sim| sim.memory_export(memory, kind))
    }

    /// Physical memory of this process or of another one
    /// (`cuMemImportFromShareableHandle`). The descriptor stays the caller's. The memory counts as
    /// used on the machine that exported it only.
    ///
    /// # Errors
    /// `InvalidValue` for no handle type; `NotSupported` for types other than file descriptors; 999
    /// (`UNKNOWN`) for a descriptor that is none of physical memory; `InvalidDevice` for memory on
    /// a device that this machine does not have.
    pub fn memory_import(
        &self,
        handle: ShareableHandle,
        kind: HandleTypes,
    ) -> Result<MemoryHandle> {
        self.beside("memory_import", |sim| sim.memory_import(handle, kind))
    }

    /// Lets other devices reach memory of `cuMemAlloc`, in place of those that did before: what
    /// `cuCtxEnablePeerAccess` does for the memory of a context. Other memory in the list stays as it
    /// is. Recordings do not note it.
    ///
    /// # Errors
    /// `InvalidDevice` for a device that does not exist; nothing changes.
    pub fn set_peer_access(&self, allocations: &[DevicePtr], devices: &[DeviceId]) -> Result<()> {
        self.beside("set_peer_access", |sim| sim.set_peer_access(allocations, devices))
    }

    /// The handle of the physical memory that is mapped at an address
    /// (`cuMemRetainAllocationHandle`): the one that was mapped, also if the program released it. It
    /// is released once for each time that a call gave it.
    ///
    /// # Errors
    /// `InvalidValue` if nothing is mapped at the address; `NotSupported` on a device without virtual
    /// memory management.
    pub fn memory_retain(&self, ptr: DevicePtr) -> Result<MemoryHandle> {
        self.beside("memory_retain", |sim| sim.memory_retain(ptr))
    }

    /// The properties that physical memory was made with (`cuMemGetAllocationPropertiesFromHandle`).
    ///
    /// # Errors
    /// `InvalidValue` for no live memory; `NotSupported` on a device without virtual memory
    /// management.
    pub fn memory_props(&self, memory: MemoryHandle) -> Result<MemoryProps> {
        self.beside("memory_props", |sim| sim.memory_props(memory))
    }

    /// A handle by which another process opens an event (`cuIpcGetEventHandle`), until the event is
    /// destroyed. The caller knows whether the event was made for that.
    ///
    /// # Errors
    /// `InvalidHandle` for no live event; `OutOfMemory` if the host has no memory or no descriptor
    /// left.
    pub fn ipc_event_handle(&self, event: EventHandle) -> Result<[u8; SHARED_BLOB_BYTES]> {
        self.beside("ipc_event_handle", |sim| sim.ipc_event_handle(event))
    }

    /// Whether a handle names a live event of another process (`cuIpcOpenEventHandle`). Work is
    /// complete when its call returns, and so is each event: an event of this process that is never
    /// busy stands for it.
    ///
    /// # Errors
    /// 201 (`INVALID_CONTEXT`) for an event of this machine, as an H200 answers; `InvalidValue` for
    /// bytes that are no handle; `InvalidHandle` for an event that is gone, or a process that is.
    pub fn check_ipc_event_handle(&self, handle: &[u8; SHARED_BLOB_BYTES]) -> Result<()> {
        self.beside("check_ipc_event_handle", |sim| sim.check_ipc_event(handle))
    }
}
