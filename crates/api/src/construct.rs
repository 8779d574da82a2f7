//! Constructors of managed buffers: allocated, taken from a resource, adopted.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use pagewise_hal::{AttachFlags, DevicePtr, PointerAttribute, Result, Span};

use crate::memory::{Memory, Release};
use crate::names::Name;
use crate::refuse::{invalid, unsupported};
use crate::resource::{MemoryKind, MemoryResource};
use crate::{Machine, ManagedBuffer, Stream};

impl<T: Pod> ManagedBuffer<T> {
    fn of(memory: Memory) -> Self {
        Self { memory, elements: PhantomData }
    }

    /// Allocates room for `len` elements. Their contents are up to the back end, as with
    /// `cuMemAllocManaged`; any bytes are a `T`.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for no elements, elements of no size, or more bytes than an
    /// address space has; `OutOfMemory` (2).
    ///
    /// ```
    /// use pagewise::{ErrorKind, ManagedBuffer};
    ///
    /// let sim = pagewise::sim()?;
    /// assert_eq!(ManagedBuffer::<u32>::new(&sim, 1000)?.len(), 1000);
    /// let error = ManagedBuffer::<u32>::new(&sim, 0).unwrap_err();
    /// assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[track_caller]
    pub fn new(machine: impl Into<Machine>, len: usize) -> Result<Self> {
        let machine = machine.into();
        let bytes = bytes_of::<T>("allocate", len)?;
        let ptr = machine.backend().alloc_managed(bytes, AttachFlags::GLOBAL)?;
        allocated::<T>(MemoryKind::Managed, machine, Span::new(ptr, bytes)).map(Self::of)
    }

    /// Allocates room for `len` elements and writes zeros, on the host.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`write`](Self::write).
    #[track_caller]
    pub fn zeroed(machine: impl Into<Machine>, len: usize) -> Result<Self> {
        let mut buffer = Self::new(machine, len)?;
        buffer.write()?.fill(T::zeroed());
        Ok(buffer)
    }

    /// Allocates room for these elements and writes them, on the host.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`write`](Self::write).
    #[track_caller]
    pub fn from_slice(machine: impl Into<Machine>, values: &[T]) -> Result<Self> {
        let mut buffer = Self::new(machine, values.len())?;
        buffer.write()?.copy_from_slice(values);
        Ok(buffer)
    }

    /// Takes room for `len` elements from a resource of managed memory, in the order of a stream,
    /// and frees it on the same one. Views of the host wait for the allocation. Other streams that
    /// use the buffer wait for it, too, and the free waits for them.
    ///
    /// # Errors
    /// `Unsupported` (no CUDA code) for a resource of other memory; as [`new`](Self::new) and
    /// [`MemoryResource::allocate`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pagewise::resource::ManagedMemoryResource;
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let resource = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    /// let mut buffer = ManagedBuffer::<u32>::from_resource(resource, 100, &stream)?;
    /// buffer.write()?.fill(1);
    /// assert_eq!(buffer.read()?.iter().sum::<u32>(), 100);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[track_caller]
    pub fn from_resource(
        resource: Arc<dyn MemoryResource>,
        len: usize,
        stream: &Stream,
    ) -> Result<Self> {
        leased::<T>(MemoryKind::Managed, resource, len, stream).map(Self::of)
    }

    /// Uses managed memory that other code allocated, all of an allocation or a part. The buffer
    /// does not free it. It keeps `owner` until it is dropped, so `owner` can be the value that
    /// frees the memory.
    ///
    /// # Errors
    /// `InvalidValue`: without a CUDA code for no elements, an address that is not aligned for
    /// `T`, memory that is not managed, or a range that passes the end of its allocation; code 1
    /// for an address that belongs to no allocation.
    ///
    /// # Safety
    /// The memory must stay allocated until `owner` is dropped. Until then no other code may write
    /// it while it is borrowed from this buffer, or use it while it is borrowed for writing.
    ///
    /// ```
    /// use pagewise::{BackendExt, Backend, ManagedBuffer};
    ///
    /// let sim = pagewise::sim()?;
    /// let span = sim.alloc(4096)?;
    /// // SAFETY: the memory has to live as long as the buffer and be the buffer's alone; it is
    /// // freed after the buffer is dropped, and no other code uses it.
    /// let buffer = unsafe { ManagedBuffer::<u64>::from_raw(&sim, span.ptr, 512, ()) }?;
    /// buffer.set_read_mostly(true)?;
    /// drop(buffer);
    /// // SAFETY: the buffer is dropped, and no other code uses the memory.
    /// unsafe { sim.free(span.ptr) }?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_raw(
        machine: impl Into<Machine>,
        ptr: DevicePtr,
        len: usize,
        owner: impl Send + Sync + 'static,
    ) -> Result<Self> {
        adopted::<T>(MemoryKind::Managed, machine.into(), ptr, len, Box::new(owner)).map(Self::of)
    }
}

/// Memory for elements of `T` that the back end allocated, and that it is to free.
///
/// # Errors
/// `InvalidValue` (no CUDA code) for an address that is not aligned for `T`; then it is freed.
#[track_caller]
pub(crate) fn allocated<T>(kind: MemoryKind, machine: Machine, span: Span) -> Result<Memory> {
    let memory = Memory::new(machine, span, Name::of_caller(), kind, Release::Free);
    check_aligned::<T>("allocate", span)?;
    Ok(memory)
}

/// Memory for `len` elements from a resource of this kind of memory.
///
/// # Errors
/// As [`ManagedBuffer::from_resource`].
#[track_caller]
pub(crate) fn leased<T>(
    kind: MemoryKind,
    resource: Arc<dyn MemoryResource>,
    len: usize,
    stream: &Stream,
) -> Result<Memory> {
    const OPERATION: &str = "allocate";
    let bytes = bytes_of::<T>(OPERATION, len)?;
    if resource.memory_kind() != kind {
        let is = resource.memory_kind();
        let why = format!("the resource gives {is:?} memory, and the buffer needs {kind:?}");
        return Err(unsupported(OPERATION, why));
    }
    let span = Span::new(resource.allocate(bytes, stream)?, bytes);
    let machine = resource.machine().clone();
    let release = Release::leased(resource, stream);
    let memory = Memory::new(machine, span, Name::of_caller(), kind, release);
    check_aligned::<T>(OPERATION, span)?;
    Ok(memory)
}

/// Memory for `len` elements that other code allocated, of this kind.
///
/// # Errors
/// As [`ManagedBuffer::from_raw`].
#[track_caller]
pub(crate) fn adopted<T>(
    kind: MemoryKind,
    machine: Machine,
    ptr: DevicePtr,
    len: usize,
    owner: Box<dyn Any + Send + Sync>,
) -> Result<Memory> {
    const OPERATION: &str = "from_raw";
    let span = Span::new(ptr, bytes_of::<T>(OPERATION, len)?);
    check_adopted(OPERATION, &machine, span, kind)?;
    check_aligned::<T>(OPERATION, span)?;
    Ok(Memory::new(machine, span, Name::of_caller(), kind, Release::Owner(owner)))
}

/// The kind of memory at an address, as the driver knows it.
fn kind_at(machine: &Machine, ptr: DevicePtr) -> Result<MemoryKind> {
    /// `CU_MEMORYTYPE_HOST`
    const HOST: u64 = 1;
    let ask = |attribute| machine.backend().pointer_attribute(ptr, attribute);
    if ask(PointerAttribute::IS_MANAGED)? != 0 {
        return Ok(MemoryKind::Managed);
    }
    let is_host = ask(PointerAttribute::MEMORY_TYPE)? == HOST;
    Ok(if is_host { MemoryKind::Pinned } else { MemoryKind::Device })
}

/// Refuses memory of another kind, and a range that passes the end of its allocation.
pub(crate) fn check_adopted(
    operation: &'static str,
    machine: &Machine,
    span: Span,
    wanted: MemoryKind,
) -> Result<()> {
    let found = kind_at(machine, span.ptr)?;
    if found != wanted {
        let named = |kind| match kind {
            MemoryKind::Managed => ("managed memory", "ManagedBuffer"),
            MemoryKind::Pinned => ("page-locked host memory", "PinnedBuffer"),
            MemoryKind::Device => ("memory of a device", "DeviceBuffer"),
        };
        let ((is, takes), (not, _)) = (named(found), named(wanted));
        let why = format!("this is {is}, not {not}: adopt it by `{takes}::from_raw`");
        return Err(invalid(operation, why).with_span(span));
    }
    let ask = |attribute| machine.backend().pointer_attribute(span.ptr, attribute);
    let (start, bytes) =
        (ask(PointerAttribute::RANGE_START_ADDR)?, ask(PointerAttribute::RANGE_SIZE)?);
    // For memory of host pools a driver counts the start from that of the pool. Then the address
    // counts as the first byte.
    let is_inside = span.ptr.0.wrapping_sub(start) < bytes;
    let last = (if is_inside { start } else { span.ptr.0 }).saturating_add(bytes);
    if span.end().is_none_or(|end| end > last) {
        let why = "the range passes the end of its allocation";
        return Err(invalid(operation, why).with_span(span));
    }
    Ok(())
}

/// Bytes of `len` elements: at least 1, and within an address space.
pub(crate) fn bytes_of<T>(operation: &'static str, len: usize) -> Result<u64> {
    let size = size_of::<T>();
    if size == 0 {
        return Err(invalid(operation, "elements of no size need no memory"));
    }
    match len.checked_mul(size) {
        None => Err(invalid(operation, format!("{len} elements of {size} bytes are too many"))),
        Some(0) => Err(invalid(operation, "give at least one element")),
        Some(bytes) => Ok(bytes as u64),
    }
}

pub(crate) fn check_aligned<T>(operation: &'static str, span: Span) -> Result<()> {
    let align = align_of::<T>() as u64;
    if span.ptr.0.is_multiple_of(align) && !span.ptr.is_null() {
        return Ok(());
    }
    let why = format!("the address is not a multiple of {align}, which the element type needs");
    Err(invalid(operation, why).with_span(span))
}
