//! Constructors of managed buffers: allocated, taken from a resource, adopted.

use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bytemuck::Pod;
use pagewise_hal::{AttachFlags, DevicePtr, PointerAttribute, Result, Span};

use crate::contents::Contents;
use crate::memory::{Lease, Memory, Release};
use crate::names::{Listed, Name};
use crate::refuse::{invalid, unsupported};
use crate::resource::{MemoryKind, MemoryResource};
use crate::{Machine, ManagedBuffer, Stream};

impl<T: Pod> ManagedBuffer<T> {
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
        const OPERATION: &str = "allocate";
        let machine = machine.into();
        let bytes = bytes_of::<T>(OPERATION, len)?;
        let ptr = machine.backend().alloc_managed(bytes, AttachFlags::GLOBAL)?;
        let span = Span::new(ptr, bytes);
        let contents = Contents::default();
        let listed = Listed::new(&machine, span, Name::of_caller());
        let memory = Memory { machine, span, listed, contents, release: Release::Free };
        check_aligned::<T>(OPERATION, span)?;
        Ok(Self { memory, elements: PhantomData })
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
        const OPERATION: &str = "allocate";
        let bytes = bytes_of::<T>(OPERATION, len)?;
        if resource.memory_kind() != MemoryKind::Managed {
            let why = "the resource's memory is not managed: use `resource::Allocation`";
            return Err(unsupported(OPERATION, why));
        }
        let span = Span::new(resource.allocate(bytes, stream)?, bytes);
        let machine = resource.machine().clone();
        let release = Release::Resource(Lease {
            resource,
            stream: stream.clone(),
            arrived: AtomicBool::new(false),
            users: Mutex::default(),
        });
        let listed = Listed::new(&machine, span, Name::of_caller());
        let contents = Contents::default();
        let memory = Memory { machine, span, listed, contents, release };
        check_aligned::<T>(OPERATION, span)?;
        Ok(Self { memory, elements: PhantomData })
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
        const OPERATION: &str = "from_raw";
        let machine = machine.into();
        let span = Span::new(ptr, bytes_of::<T>(OPERATION, len)?);
        let ask = |attribute| machine.backend().pointer_attribute(ptr, attribute);
        let refuse = |why| Err(invalid(OPERATION, why).with_span(span));
        if ask(PointerAttribute::IS_MANAGED)? == 0 {
            return refuse("the memory is not managed: allocate it as such");
        }
        let start = ask(PointerAttribute::RANGE_START_ADDR)?;
        let end = start.saturating_add(ask(PointerAttribute::RANGE_SIZE)?);
        if span.end().is_none_or(|last| ptr.0 < start || last > end) {
            return refuse("the range passes the end of its allocation");
        }
        check_aligned::<T>(OPERATION, span)?;
        let (contents, release) = (Contents::default(), Release::Owner(Box::new(owner)));
        let listed = Listed::new(&machine, span, Name::of_caller());
        let memory = Memory { machine, span, listed, contents, release };
        Ok(Self { memory, elements: PhantomData })
    }
}

/// Bytes of `len` elements: at least 1, and within an address space.
fn bytes_of<T>(operation: &'static str, len: usize) -> Result<u64> {
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

fn check_aligned<T>(operation: &'static str, span: Span) -> Result<()> {
    let align = align_of::<T>() as u64;
    if span.ptr.0.is_multiple_of(align) && !span.ptr.is_null() {
        return Ok(());
    }
    let why = format!("the address is not a multiple of {align}, which the element type needs");
    Err(invalid(operation, why).with_span(span))
}
