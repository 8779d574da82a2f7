//! Typed managed memory that frees itself.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bytemuck::Pod;
use pagewise_hal::{AttachFlags, DevicePtr, PointerAttribute, Result, Span};

use crate::contents::Contents;
use crate::memory::{Lease, Memory, Release};
use crate::range::{elements, sub_span};
use crate::refuse::{invalid, unsupported};
use crate::resource::{MemoryKind, MemoryResource};
use crate::{
    AccessedBy, Discarded, Machine, ManagedRange, ManagedRangeMut, Place, Region, RegionMut, Stream,
};

/// Elements in managed memory, which the host and every device reach by one address.
///
/// Freed when it goes out of scope. Views borrow it, so that neither use after free nor reading
/// what is being written compiles; what a *device* does with the address is promised by whoever
/// gives it one, in their own `unsafe`.
///
/// | back end | memory |
/// | --- | --- |
/// | CUDA | `cuMemAllocManaged`, attached globally |
/// | simulator | the same at simulated addresses, which are real memory |
///
/// Allocations under 2 MiB share pages with others (recording `small`, driver 580): advice on them
/// reaches their neighbours.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::from_slice(&machine, &[1.0_f32, 2.0, 3.0])?;
/// buffer.set_read_mostly(true)?;
/// buffer.prefetch(Device::FIRST, &stream)?;
/// buffer.write()?[0] = 4.0;
/// assert_eq!(buffer.read()?, [4.0, 2.0, 3.0]);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub struct ManagedBuffer<T> {
    memory: Memory,
    elements: PhantomData<T>,
}

impl<T: Pod> ManagedBuffer<T> {
    /// Allocates room for `len` elements. What they hold is up to the back end, as with
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
    pub fn new(machine: impl Into<Machine>, len: usize) -> Result<Self> {
        const OPERATION: &str = "allocate";
        let machine = machine.into();
        let bytes = bytes_of::<T>(OPERATION, len)?;
        let ptr = machine.backend().alloc_managed(bytes, AttachFlags::GLOBAL)?;
        let span = Span::new(ptr, bytes);
        let contents = Contents::default();
        let memory = Memory { machine, span, contents, release: Release::Free };
        check_aligned::<T>(OPERATION, span)?;
        Ok(Self { memory, elements: PhantomData })
    }

    /// Allocates room for `len` elements and writes zeros, on the host.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`write`](Self::write).
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<i16>::zeroed(pagewise::sim()?, 3)?;
    /// assert_eq!(buffer.read()?, [0, 0, 0]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn zeroed(machine: impl Into<Machine>, len: usize) -> Result<Self> {
        let mut buffer = Self::new(machine, len)?;
        buffer.write()?.fill(T::zeroed());
        Ok(buffer)
    }

    /// Allocates room for these elements and writes them, on the host.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`write`](Self::write).
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::from_slice(pagewise::sim()?, &[1_u8, 2])?;
    /// assert_eq!(buffer.read()?, [1, 2]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn from_slice(machine: impl Into<Machine>, values: &[T]) -> Result<Self> {
        let mut buffer = Self::new(machine, values.len())?;
        buffer.write()?.copy_from_slice(values);
        Ok(buffer)
    }

    /// Takes room for `len` elements from a resource of managed memory, in the order of a stream;
    /// it goes back on the same one. Views of the host wait for it to come; other streams that the
    /// buffer is used on wait for it, and it waits for them before it goes.
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
        let memory = Memory { machine, span, contents: Contents::default(), release };
        check_aligned::<T>(OPERATION, span)?;
        Ok(Self { memory, elements: PhantomData })
    }

    /// Uses managed memory that somebody else allocated, all of an allocation or a part. It is not
    /// freed here; `owner` is kept until the buffer goes, so that whoever frees it can be that.
    ///
    /// # Errors
    /// `InvalidValue`: without a CUDA code for no elements, an address that is not aligned for
    /// `T`, memory that is not managed, or a range that passes the end of its allocation; code 1
    /// for an address that belongs to no allocation.
    ///
    /// # Safety
    /// The memory must stay allocated until `owner` is dropped, and until then nobody else may
    /// write it while it is borrowed from this buffer, or use it while it is borrowed for writing.
    ///
    /// ```
    /// use pagewise::{BackendExt, Backend, ManagedBuffer};
    ///
    /// let sim = pagewise::sim()?;
    /// let span = sim.alloc(4096)?;
    /// // SAFETY: nobody else uses the memory, and it is freed after the buffer is gone.
    /// let buffer = unsafe { ManagedBuffer::<u64>::from_raw(&sim, span.ptr, 512, ()) }?;
    /// buffer.set_read_mostly(true)?;
    /// drop(buffer);
    /// // SAFETY: as above.
    /// unsafe { sim.free(span.ptr) }?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
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
        let memory = Memory { machine, span, contents, release };
        Ok(Self { memory, elements: PhantomData })
    }

    /// How many elements; at least 1.
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 3)?;
    /// assert_eq!(buffer.len(), 3);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        elements::<T>(self.memory.span)
    }

    /// All of it, shared.
    fn whole(&self) -> ManagedRange<'_, T> {
        ManagedRange::of(self.region())
    }

    /// All of it, exclusively.
    fn whole_mut(&mut self) -> ManagedRangeMut<'_, T> {
        ManagedRangeMut::of(self.region_mut())
    }

    /// Some of the elements, which do all that the buffer does.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for no elements, or elements beyond the end.
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 3 << 20)?;
    /// buffer.range(..1 << 20)?.set_read_mostly(true)?;
    /// assert!(!buffer.read_mostly()?, "not all of it is");
    /// assert!(buffer.range(4 << 20..).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn range(&self, range: impl RangeBounds<usize>) -> Result<ManagedRange<'_, T>> {
        let span = sub_span::<T>("range", self.memory.span, range)?;
        Ok(ManagedRange::of(Region { span, ..self.region() }))
    }

    /// Some of the elements, to be written or discarded.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    ///
    /// ```
    /// let mut buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 10)?;
    /// buffer.range_mut(..=4)?.write()?.fill(1);
    /// assert_eq!(buffer.read()?.iter().sum::<u8>(), 5);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn range_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ManagedRangeMut<'_, T>> {
        let span = sub_span::<T>("range", self.memory.span, range)?;
        Ok(ManagedRangeMut::of(RegionMut(Region { span, ..self.region() })))
    }

    /// Shows all elements to the host. See [`ManagedRange::read`].
    ///
    /// # Errors
    /// As [`ManagedRange::read`].
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::from_slice(pagewise::sim()?, &[1_i8])?;
    /// assert_eq!(buffer.read()?, [1]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn read(&self) -> Result<&[T]> {
        self.whole().read()
    }

    /// Lends all elements to the host for writing. See [`ManagedRangeMut::write`].
    ///
    /// # Errors
    /// As [`ManagedRangeMut::write`].
    ///
    /// ```
    /// let mut buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 2)?;
    /// buffer.write()?[1] = 7;
    /// assert_eq!(buffer.read()?, [0, 7]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn write(&mut self) -> Result<&mut [T]> {
        self.whole_mut().write()
    }

    /// Declares all contents worthless, in stream order. See [`discard`](crate::discard).
    ///
    /// # Errors
    /// As [`discard`](crate::discard).
    ///
    /// ```
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    /// buffer.discard(&Stream::new(&machine, Device::FIRST)?)?.fill(1)?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn discard(&mut self, stream: &Stream) -> Result<Discarded<'_, T>> {
        self.whole_mut().discard(stream)
    }

    /// Declares all contents worthless and moves the pages, without copying. See
    /// [`discard_prefetch`](crate::discard_prefetch).
    ///
    /// # Errors
    /// As [`discard_prefetch`](crate::discard_prefetch).
    ///
    /// ```
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// buffer.discard_prefetch(Device::FIRST, &stream)?.assume_written()?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn discard_prefetch(
        &mut self,
        to: impl Into<Place>,
        stream: &Stream,
    ) -> Result<Discarded<'_, T>> {
        self.whole_mut().discard_prefetch(to, stream)
    }
}

impl<T> ManagedBuffer<T> {
    /// The address of the first element, for host and devices alike. It is valid until the buffer
    /// goes.
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 2)?;
    /// assert!(!buffer.device_ptr().is_null());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn device_ptr(&self) -> DevicePtr {
        self.memory.span.ptr
    }

    /// All bytes, by address.
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// assert_eq!(buffer.span().bytes, 8);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn span(&self) -> Span {
        self.memory.span
    }

    /// The machine that the memory is of.
    ///
    /// ```
    /// let machine = pagewise::Machine::from(pagewise::sim()?);
    /// assert_eq!(pagewise::ManagedBuffer::<u8>::zeroed(&machine, 2)?.machine(), &machine);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.memory.machine
    }

    /// All bytes, without their type: what the functions over many buffers take.
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// assert_eq!(buffer.region().bytes(), 8);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn region(&self) -> Region<'_> {
        Region { memory: &self.memory, span: self.memory.span, rounding: None }
    }

    /// All bytes, exclusively: what discards of many buffers take.
    ///
    /// ```
    /// let mut buffer = pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// assert_eq!(buffer.region_mut().bytes(), 8);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn region_mut(&mut self) -> RegionMut<'_> {
        RegionMut(self.region())
    }

    /// Whether all of it is read-mostly. See [`Region::read_mostly`].
    ///
    /// # Errors
    /// As [`Region::read_mostly`].
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// assert!(!buffer.read_mostly()?);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn read_mostly(&self) -> Result<bool> {
        self.region().read_mostly()
    }

    /// Sets or unsets read-mostly. See [`Region::set_read_mostly`].
    ///
    /// # Errors
    /// As [`Region::advise`].
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// buffer.set_read_mostly(true)?;
    /// assert!(buffer.read_mostly()?);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_read_mostly(&self, on: bool) -> Result<()> {
        self.region().set_read_mostly(on)
    }

    /// Where faults leave pages if they can. See [`Region::preferred_location`].
    ///
    /// # Errors
    /// As [`Region::preferred_location`].
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// assert_eq!(buffer.preferred_location()?, None);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn preferred_location(&self) -> Result<Option<Place>> {
        self.region().preferred_location()
    }

    /// Sets it; `None` forgets it. See [`Region::set_preferred_location`].
    ///
    /// # Errors
    /// As [`Region::advise`].
    ///
    /// ```
    /// use pagewise::{Device, ManagedBuffer};
    ///
    /// let buffer = ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// buffer.set_preferred_location(Some(Device::FIRST.into()))?;
    /// buffer.set_preferred_location(None)?;
    /// assert_eq!(buffer.preferred_location()?, None);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_preferred_location(&self, place: Option<Place>) -> Result<()> {
        self.region().set_preferred_location(place)
    }

    /// The processors that keep it mapped, as a set that can be changed.
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// assert!(buffer.accessed_by().is_empty()?);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn accessed_by(&self) -> AccessedBy<'_> {
        self.region().accessed_by()
    }

    /// Where it was last asked to go. See [`Region::last_prefetch_location`].
    ///
    /// # Errors
    /// As [`Region::last_prefetch_location`].
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?;
    /// assert_eq!(buffer.last_prefetch_location()?, None);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn last_prefetch_location(&self) -> Result<Option<Place>> {
        self.region().last_prefetch_location()
    }

    /// Asks for migration, in stream order. See [`Region::prefetch`].
    ///
    /// # Errors
    /// As [`Region::prefetch`].
    ///
    /// ```
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let buffer = ManagedBuffer::<u32>::zeroed(&machine, 2)?;
    /// buffer.prefetch(Device::FIRST, &Stream::legacy_default(&machine))?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn prefetch(&self, to: impl Into<Place>, stream: &Stream) -> Result<()> {
        self.region().prefetch(to, stream)
    }

    /// Gives the memory back now, and says whether that worked; going out of scope does the same
    /// and cannot say.
    ///
    /// # Errors
    /// As [`Backend::free`](crate::Backend::free). The buffer is gone either way.
    ///
    /// ```
    /// pagewise::ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 2)?.free()?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn free(mut self) -> Result<()> {
        self.memory.release()
    }
}

impl<T> fmt::Debug for ManagedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::any::type_name::<T>();
        write!(f, "ManagedBuffer<{name}>({}, {:?})", self.memory.span, self.memory.machine)
    }
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

fn check_aligned<T>(operation: &'static str, span: Span) -> Result<()> {
    let align = align_of::<T>() as u64;
    if span.ptr.0.is_multiple_of(align) && !span.ptr.is_null() {
        return Ok(());
    }
    let why = format!("the address is not a multiple of {align}, which the element type needs");
    Err(invalid(operation, why).with_span(span))
}
