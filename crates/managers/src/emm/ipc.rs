//! Handles of a manager's memory for other processes.
//!
//! The exporter has an [`IpcHandle`], which keeps the memory. It sends an [`IpcDescriptor`], which
//! is plain data: feature `serde` serialises it. The other process opens that, once.

use std::fmt;
use std::mem;

use pagewise::refuse::{invalid, unsupported};
use pagewise::{
    Device, DevicePtr, Error, IpcMemHandle, Machine, PointerAttribute, Result, Span, Stream,
};

use super::host_view::Writing;
use super::identity::DeviceIdentity;
use super::pointer::{Hold, MemoryPointer, PointerKind};

/// The exporter's part of memory for another process: keep it until the importers have closed the
/// memory. The memory is not freed before: [`MemoryPointer::free`] is refused, and memory that
/// would go with its last pointer or owner goes with the handle.
pub struct IpcHandle {
    descriptor: IpcDescriptor,
    hold: Hold,
}

impl IpcHandle {
    /// The handle of device memory, whatever the manager: the answer that [`get_ipc_handle`]
    /// asks for.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidValue` for memory that was freed, `Unsupported` for managed and
    /// host memory. As [`Backend::ipc_mem_handle`](pagewise::Backend::ipc_mem_handle): memory of pools
    /// has no such handle.
    ///
    /// [`get_ipc_handle`]: super::ExternalMemoryManager::get_ipc_handle
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
    /// let sent = handle.descriptor();
    /// assert_eq!((sent.offset_bytes(), sent.bytes()), (100, 200));
    /// assert!(array.free().is_err(), "the handle holds it");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn of(memory: &MemoryPointer) -> Result<Self> {
        const OPERATION: &str = "get_ipc_handle";
        let refuse = |why: &'static str| Err(unsupported(OPERATION, why).with_span(memory.span()));
        let hold = memory.hold(OPERATION, |_| Ok(()))?;
        match memory.kind() {
            PointerKind::Managed => refuse("managed memory has no handle for other processes"),
            PointerKind::Mapped | PointerKind::Pinned => {
                refuse("host memory has no handle for other processes: share it by a file")
            }
            PointerKind::Memory | PointerKind::AutoFree => {
                let about = |error: Error| error.with_span(memory.span());
                Ok(Self { descriptor: IpcDescriptor::of(memory).map_err(about)?, hold })
            }
        }
    }

    /// The message for one process that is to open the memory. Each answer opens once.
    #[must_use]
    pub fn descriptor(&self) -> IpcDescriptor {
        let IpcDescriptor { handle, offset_bytes, bytes, device } = self.descriptor;
        IpcDescriptor { handle, offset_bytes, bytes, device }
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &MemoryPointer {
        self.hold.pointer()
    }
}

impl fmt::Debug for IpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IpcHandle({:?}, on {})", self.memory(), self.descriptor.device)
    }
}

/// The message by which another process opens memory: the driver's handle of a whole allocation,
/// where in it the memory lies, and the device that it is on. Feature `serde` serialises it.
///
/// It opens once: it is no `Clone`, and opening takes it. A process that reads the same message
/// twice has two of them; the driver counts how often the allocation is open, and closes it with
/// the last.
///
/// ```compile_fail
/// # use pagewise_managers::emm::IpcDescriptor;
/// fn twice(sent: IpcDescriptor) -> (IpcDescriptor, IpcDescriptor) {
///     (sent.clone(), sent)
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IpcDescriptor {
    handle: IpcMemHandle,
    offset_bytes: u64,
    bytes: u64,
    device: DeviceIdentity,
}

impl IpcDescriptor {
    fn of(memory: &MemoryPointer) -> Result<Self> {
        let (machine, ptr) = (memory.machine(), memory.device_ptr());
        let ask = |attribute| machine.backend().pointer_attribute(ptr, attribute);
        let start = DevicePtr(ask(PointerAttribute::RANGE_START_ADDR)?);
        // The memory says it, not its manager: a resource may be of another device.
        let ordinal = ask(PointerAttribute::DEVICE_ORDINAL)?;
        let device = Device::new(u32::try_from(ordinal).unwrap_or(u32::MAX))?;
        Ok(Self {
            handle: machine.backend().ipc_mem_handle(start)?,
            offset_bytes: ptr.0.saturating_sub(start.0),
            bytes: memory.bytes(),
            device: DeviceIdentity::of(machine, device)?,
        })
    }

    /// The driver's handle of the whole allocation.
    #[must_use]
    pub fn handle(&self) -> IpcMemHandle {
        self.handle
    }

    /// Bytes from the start of the allocation to the memory.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Bytes of the memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device that it is on, as every process of the machine knows it.
    #[must_use]
    pub fn device(&self) -> DeviceIdentity {
        self.device
    }

    /// The bytes of the memory in an allocation that was opened at this address.
    #[must_use]
    pub fn span_at(&self, base: DevicePtr) -> Span {
        Span::new(base.offset(self.offset_bytes), self.bytes)
    }

    /// Whether a device reaches the memory: its own, or a peer of it.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) if this process does not see the memory's device; as
    /// [`Backend::can_access_peer`](pagewise::Backend::can_access_peer).
    pub fn is_reached_by(&self, machine: &Machine, device: Device) -> Result<bool> {
        let own = self.device.find(machine)?;
        Ok(own == device || machine.backend().can_access_peer(device.id(), own.id())?)
    }

    /// Opens it on its own device, in a process other than the one that made it. It is closed with
    /// the last pointer.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) if this process does not see the device. As
    /// [`Backend::ipc_open_mem_handle`](pagewise::Backend::ipc_open_mem_handle): 201 in the process
    /// that made it.
    ///
    /// # Safety
    /// The exporter keeps its [`IpcHandle`] until the pointer is gone.
    pub unsafe fn open(self, machine: impl Into<Machine>) -> Result<MemoryPointer> {
        let machine = machine.into();
        let device = self.device.find(&machine)?;
        // SAFETY: the caller promised that the exporter keeps the memory until the pointer is gone.
        unsafe { self.open_in(machine, device) }
    }

    /// Opens it for use on another device, which has to reach it.
    ///
    /// # Errors
    /// As [`open`](Self::open); `Unsupported` (no CUDA code) if the device
    /// [does not reach it](Self::is_reached_by).
    ///
    /// # Safety
    /// The exporter keeps its [`IpcHandle`] until the pointer is gone.
    pub unsafe fn open_on(
        self,
        machine: impl Into<Machine>,
        device: Device,
    ) -> Result<MemoryPointer> {
        let machine = machine.into();
        if !self.is_reached_by(&machine, device)? {
            let why = format!("{device} is no peer of {}: use `open_or_copy`", self.device);
            return Err(unsupported(OPEN, why));
        }
        // SAFETY: the caller promised that the exporter keeps the memory until the pointer is gone.
        unsafe { self.open_in(machine, device) }
    }

    /// Opens it for use on another device or, if that does not reach it, copies it into memory of
    /// that device, which `allocate` gives for a number of bytes. The default stream makes the copy,
    /// and is waited for.
    ///
    /// ```no_run
    /// # use pagewise_managers::emm::{ExternalMemoryManager, IpcDescriptor, MemoryPointer};
    /// # use pagewise::{Device, Machine, Result};
    /// # fn open(
    /// #     sent: IpcDescriptor, machine: &Machine, manager: &dyn ExternalMemoryManager,
    /// # ) -> Result<MemoryPointer> {
    /// // SAFETY: the exporter keeps its handle, and writes nothing, until it is told that the
    /// // pointer is gone.
    /// unsafe { sent.open_or_copy(machine, Device::FIRST, |bytes| manager.memalloc(bytes)) }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open); of `allocate`, and `InvalidValue` (no CUDA code) if it gives another
    /// number of bytes or memory that its maker does not [vouch](MemoryPointer::vouch) for; as
    /// [`Backend::memcpy`](pagewise::Backend::memcpy). Nothing stays open or allocated then, except
    /// after a copy that cannot be waited for.
    ///
    /// # Safety
    /// The exporter keeps its [`IpcHandle`] until the pointer is gone. Nothing writes the memory
    /// during the call.
    pub unsafe fn open_or_copy(
        self,
        machine: impl Into<Machine>,
        device: Device,
        allocate: impl FnOnce(u64) -> Result<MemoryPointer>,
    ) -> Result<MemoryPointer> {
        let machine = machine.into();
        if self.is_reached_by(&machine, device)? {
            // SAFETY: the caller promised that the exporter keeps the memory until the pointer is
            // gone.
            return unsafe { self.open_in(machine, device) };
        }
        let target = allocate(self.bytes)?;
        if target.bytes() != self.bytes {
            let why = format!("{} bytes were asked for, not {}", self.bytes, target.bytes());
            return Err(invalid(OPEN, why).with_span(target.span()));
        }
        let stream = Stream::legacy_default(&machine);
        let writing = Writing::on(&stream, &target, OPEN)?;
        // SAFETY: the caller promised that the exporter keeps the memory; it is closed before this
        // function returns, or never.
        let source = unsafe { self.open(&machine)? };
        let (to, from) = (target.device_ptr(), source.span());
        // SAFETY: both ranges are live and have so many bytes. The target is written by nothing
        // else, and the caller promised that nothing writes the source meanwhile.
        unsafe { machine.backend().memcpy(to, from.ptr, from.bytes, stream.handle())? };
        if let Err(error) = stream.synchronize() {
            // The copy may still go on: neither end may become other memory.
            mem::forget((writing, source));
            return Err(error);
        }
        source.free()?;
        Ok(target)
    }

    /// # Safety
    /// The exporter keeps its [`IpcHandle`] until the pointer is gone.
    unsafe fn open_in(self, machine: Machine, device: Device) -> Result<MemoryPointer> {
        let backend = machine.backend();
        // SAFETY: the caller promised that the handle is of live memory of another process, which
        // keeps it until it was closed here.
        let base = unsafe { backend.ipc_open_mem_handle(device.id(), self.handle)? };
        let closes = machine.clone();
        let finalizer = Box::new(move || {
            // SAFETY: the memory was opened above, and a finalizer runs once. Code that got the
            // address has promised, as for every free, that it uses the memory no more.
            unsafe { closes.backend().ipc_close_mem_handle(base) }
        });
        let span = self.span_at(base);
        let opened = MemoryPointer::new(&machine, PointerKind::Memory, span, Some(finalizer));
        check_extent(&machine, base, span)?;
        Ok(opened)
    }
}

const OPEN: &str = "open_ipc_handle";

/// A size that another process sent is not to be believed.
fn check_extent(machine: &Machine, base: DevicePtr, span: Span) -> Result<()> {
    let extent = machine.backend().pointer_attribute(base, PointerAttribute::RANGE_SIZE)?;
    let end = base.0.checked_add(extent);
    let is_inside = span.end().zip(end).is_some_and(|(last, end)| last <= end);
    if is_inside && span.ptr.0 >= base.0 && span.bytes > 0 {
        return Ok(());
    }
    let why = format!("the message names {span}, the allocation has {extent} bytes at {base}");
    Err(invalid(OPEN, why))
}
