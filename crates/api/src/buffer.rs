//! Typed managed memory that frees itself.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytemuck::Pod;
use pagewise_hal::{DevicePtr, Result, Span};

use crate::memory::Memory;
use crate::names::Name;
use crate::range::{elements, part_of};
use crate::{
    AccessedBy, Discarded, Machine, ManagedRange, ManagedRangeMut, Place, Region, RegionMut,
    Regions, RegionsMut, Stream,
};

/// Elements in managed memory, which the host and every device reach by one address.
///
/// The memory is freed when the buffer goes out of scope. Views borrow the buffer, so neither use
/// after free nor reading during a write compiles. A caller that gives the address to a *device*
/// does so by its own `unsafe` code, which answers for the device's accesses.
///
/// | back end | memory |
/// | --- | --- |
/// | CUDA | `cuMemAllocManaged`, attached globally |
/// | simulator | the same at simulated addresses, which are real memory |
///
/// Allocations under 2 MiB share pages with others: advice on them reaches their neighbours.
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
///
/// # Misuse that does not compile
///
/// Use after free, and freeing twice:
///
/// ```compile_fail,E0382
/// let buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 1)?;
/// buffer.free()?;
/// buffer.free()?;
/// # Ok::<(), pagewise::Error>(())
/// ```
///
/// A view that outlives its buffer:
///
/// ```compile_fail,E0505
/// let buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 1)?;
/// let view = buffer.read()?;
/// drop(buffer);
/// println!("{}", view[0]);
/// # Ok::<(), pagewise::Error>(())
/// ```
///
/// Reading what is being written, or discarded:
///
/// ```compile_fail,E0502
/// let mut buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 1)?;
/// let view = buffer.read()?;
/// buffer.write()?[0] = 1;
/// println!("{}", view[0]);
/// # Ok::<(), pagewise::Error>(())
/// ```
///
/// ```compile_fail,E0502
/// use pagewise::{Device, Machine, ManagedBuffer, Stream};
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
/// let discarded = buffer.discard(&stream)?;
/// println!("{}", buffer.read()?[0]);
/// discarded.fill(1)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
///
/// Elements that are not plain data:
///
/// ```compile_fail,E0599
/// pagewise::ManagedBuffer::<String>::new(pagewise::sim()?, 1)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub struct ManagedBuffer<T> {
    pub(crate) memory: Memory,
    pub(crate) elements: PhantomData<T>,
}

impl<T: Pod> ManagedBuffer<T> {
    /// How many elements; at least 1.
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

    /// Some of the elements, with all operations of the buffer.
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
        let span = part_of::<T>(&self.memory, range)?;
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
        let span = part_of::<T>(&self.memory, range)?;
        Ok(ManagedRangeMut::of(RegionMut(Region { span, ..self.region() })))
    }

    /// Shows all elements to the host. See [`ManagedRange::read`].
    ///
    /// # Errors
    /// As [`ManagedRange::read`].
    pub fn read(&self) -> Result<&[T]> {
        self.whole().read()
    }

    /// Lends all elements to the host for writing. See [`ManagedRangeMut::write`].
    ///
    /// # Errors
    /// As [`ManagedRangeMut::write`].
    pub fn write(&mut self) -> Result<&mut [T]> {
        self.whole_mut().write()
    }

    /// Declares all contents worthless, in stream order. See [`discard`](crate::discard).
    ///
    /// # Errors
    /// As [`discard`](crate::discard).
    pub fn discard(&mut self, stream: &Stream) -> Result<Discarded<'_, T>> {
        self.whole_mut().discard(stream)
    }

    /// Declares all contents worthless and moves the pages, without copying. See
    /// [`discard_prefetch`](crate::discard_prefetch).
    ///
    /// # Errors
    /// As [`discard_prefetch`](crate::discard_prefetch).
    pub fn discard_prefetch(
        &mut self,
        to: impl Into<Place>,
        stream: &Stream,
    ) -> Result<Discarded<'_, T>> {
        self.whole_mut().discard_prefetch(to, stream)
    }
}

impl<T> From<&ManagedBuffer<T>> for Span {
    fn from(buffer: &ManagedBuffer<T>) -> Self {
        buffer.span()
    }
}

impl<T> ManagedBuffer<T> {
    /// Gives it a name for messages: errors, failed claims, observations, traced events. Until then
    /// its name is the place in the source that made it, such as `src/main.rs:12`.
    ///
    /// Control characters count as blanks, and at most 100 characters are kept. Two buffers can
    /// have one name.
    ///
    /// ```
    /// use pagewise::{Machine, ManagedBuffer, Budget, Device, Stream, observe};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let weights = ManagedBuffer::<u8>::zeroed(&machine, 4096)?.named("weights");
    /// let error = weights.range(5000..).unwrap_err().to_string();
    /// assert!(error.starts_with("range: invalid value: weights, range 0x"), "{error}");
    /// let (_, seen) = observe(&machine, || weights.prefetch(Device::FIRST, &stream))?;
    /// let over = Budget::new().to_device(&weights, 0).check(&seen).unwrap_err().to_string();
    /// assert!(over.starts_with("bytes of weights to devices: 4096, expected 0"), "{over}");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn named(mut self, name: impl AsRef<str>) -> Self {
        self.memory.listed.rename(Name::given(name.as_ref()));
        self
    }

    /// The name that messages use: see [`named`](Self::named).
    #[must_use]
    pub fn name(&self) -> String {
        self.memory.listed.name().to_string()
    }

    /// The address of the first element, for host and devices alike. It is valid until the buffer
    /// is dropped.
    #[must_use]
    pub fn device_ptr(&self) -> DevicePtr {
        self.memory.span.ptr
    }

    /// All bytes, by address.
    #[must_use]
    pub fn span(&self) -> Span {
        self.memory.span
    }

    /// The machine that the memory is of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.memory.machine
    }

    /// All bytes, without their type. Functions over many buffers take it.
    #[must_use]
    pub fn region(&self) -> Region<'_> {
        Region { memory: &self.memory, span: self.memory.span, rounding: None }
    }

    /// All bytes, exclusively. Discards of many buffers take it.
    #[must_use]
    pub fn region_mut(&mut self) -> RegionMut<'_> {
        RegionMut(self.region())
    }

    /// Whether all of it is read-mostly. See [`Region::read_mostly`].
    ///
    /// # Errors
    /// As [`Region::read_mostly`].
    pub fn read_mostly(&self) -> Result<bool> {
        self.region().read_mostly()
    }

    /// Sets or unsets read-mostly. See [`Region::set_read_mostly`].
    ///
    /// # Errors
    /// As [`Region::advise`].
    pub fn set_read_mostly(&self, on: bool) -> Result<()> {
        self.region().set_read_mostly(on)
    }

    /// The place at which faults leave pages if they can. See [`Region::preferred_location`].
    ///
    /// # Errors
    /// As [`Region::preferred_location`].
    pub fn preferred_location(&self) -> Result<Option<Place>> {
        self.region().preferred_location()
    }

    /// Sets the preferred location; `None` forgets it. See [`Region::set_preferred_location`].
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
    #[must_use]
    pub fn accessed_by(&self) -> AccessedBy<'_> {
        self.region().accessed_by()
    }

    /// The place of the last prefetch request. See [`Region::last_prefetch_location`].
    ///
    /// # Errors
    /// As [`Region::last_prefetch_location`].
    pub fn last_prefetch_location(&self) -> Result<Option<Place>> {
        self.region().last_prefetch_location()
    }

    /// Asks for migration, in stream order. See [`Region::prefetch`].
    ///
    /// # Errors
    /// As [`Region::prefetch`].
    pub fn prefetch(&self, to: impl Into<Place>, stream: &Stream) -> Result<()> {
        self.region().prefetch(to, stream)
    }

    /// Makes memory of a resource be freed on another stream. For other memory there is nothing to
    /// do. The method does not wait: it is for code that moves many allocations and waits once.
    ///
    /// # Safety
    /// `stream` is of the same machine, and waits already for the present work of the stream on
    /// which the memory would have been freed.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pagewise::resource::ManagedMemoryResource;
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let (first, second) =
    ///     (Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?);
    /// let resource = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    /// let mut buffer = ManagedBuffer::<u32>::from_resource(resource, 100, &first)?;
    /// second.wait_for(&first)?;
    /// // SAFETY: the new stream has to come after all work on the buffer, and `second` waits for
    /// // `first`.
    /// unsafe { buffer.set_stream_unchecked(&second) };
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn set_stream_unchecked(&mut self, stream: &Stream) {
        self.memory.move_to(stream);
    }

    /// Frees the memory now and reports a failure. Going out of scope does the same without a
    /// report.
    ///
    /// # Errors
    /// As [`Backend::free`](crate::Backend::free). The buffer is consumed either way.
    pub fn free(mut self) -> Result<()> {
        self.memory.release()
    }
}

impl<T> fmt::Debug for ManagedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, Memory { listed, span, machine, .. }) = (type_name::<T>(), &self.memory);
        write!(f, "ManagedBuffer<{of}>({}, {span}, {machine:?})", listed.name())
    }
}

impl<'b, T> From<&'b ManagedBuffer<T>> for Regions<'b> {
    fn from(buffer: &'b ManagedBuffer<T>) -> Self {
        buffer.region().into()
    }
}

impl<'b, T> From<&'b mut ManagedBuffer<T>> for RegionsMut<'b> {
    fn from(buffer: &'b mut ManagedBuffer<T>) -> Self {
        buffer.region_mut().into()
    }
}
