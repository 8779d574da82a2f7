//! Regions: the bytes of a buffer without their element type, with every operation that leaves
//! contents alone. Buffers and ranges of elements call these operations of their region.

use std::fmt;

use pagewise_hal::{PAGE_BYTES, RangeAttribute, Result, Span};

use crate::memory::Memory;
use crate::{Machine, MemoryAdvice, Place, Rounding, Stream};

/// Bytes of a managed buffer.
///
/// A copy names the same bytes. Operations work on pages, as [`Rounding`] says. Reads of attributes
/// are always rounded outward, as the driver does it.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let buffer = ManagedBuffer::<u64>::zeroed(&machine, 2048)?;
/// let region = buffer.region();
/// region.prefetch(Device::FIRST, &Stream::legacy_default(&machine))?;
/// assert_eq!(region.last_prefetch_location()?, Some(Device::FIRST.into()));
/// assert_eq!(region.bytes(), 2048 * 8);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Region<'b> {
    pub(crate) memory: &'b Memory,
    pub(crate) span: Span,
    pub(crate) rounding: Option<Rounding>,
}

impl From<Region<'_>> for Span {
    fn from(region: Region<'_>) -> Self {
        region.span
    }
}

impl fmt::Debug for Region<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({}, {})", self.memory.listed.part(self.span), self.span)
    }
}

impl<'b> Region<'b> {
    /// The buffer's name ([`ManagedBuffer::named`](crate::ManagedBuffer::named)). A part of the
    /// buffer is followed by its bytes: the first, and the one after the last.
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u32>::new(pagewise::sim()?, 1024)?.named("weights");
    /// assert_eq!(buffer.region().name(), "weights");
    /// assert_eq!(buffer.range(..512)?.name(), "weights[0..2048]");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> String {
        self.memory.listed.part(self.span).to_string()
    }

    /// The answer; an error with the buffer's name.
    pub(crate) fn named<T>(&self, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| self.memory.name_in(error, self.span))
    }

    /// The bytes, by address.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// How many bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.span.bytes
    }

    /// How many pages of 4 KiB it touches, those that it covers in part included.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let pages = self.span.pages_outward();
        pages.end - pages.start
    }

    /// Whether it is whole pages, so that nothing is rounded.
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 8192)?;
    /// assert!(buffer.range(4096..)?.is_whole_pages());
    /// assert!(!buffer.range(1..)?.is_whole_pages());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn is_whole_pages(&self) -> bool {
        self.span.ptr.0.is_multiple_of(PAGE_BYTES) && self.span.bytes.is_multiple_of(PAGE_BYTES)
    }

    /// The machine that the memory is of.
    #[must_use]
    pub fn machine(&self) -> &'b Machine {
        &self.memory.machine
    }

    /// The same bytes, with another treatment of pages that they cover in part.
    ///
    /// ```
    /// use pagewise::{ManagedBuffer, Rounding};
    ///
    /// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 100)?;
    /// let exact = buffer.region().rounded(Rounding::Exact);
    /// assert!(exact.set_read_mostly(true).is_err(), "100 bytes are no whole page");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn rounded(self, rounding: Rounding) -> Self {
        Self { rounding: Some(rounding), ..self }
    }

    /// Gives advice.
    ///
    /// # Errors
    /// Before the back end is asked, without a CUDA code: `InvalidValue` for accessed-by with a
    /// NUMA node, or a range that the [`Rounding`] refuses; `InvalidDevice` for a device that does
    /// not exist; `Unsupported` for a NUMA node before CUDA 12.2. From the back end: `Unsupported`
    /// (801) for memory of a managed pool (driver 580).
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | CUDA 12.2 and later | `cuMemAdvise_v2`; a NUMA node has no effect on driver 580 with one node |
    /// | CUDA 12.0, 12.1 | `cuMemAdvise` |
    /// | simulator | as its driver version |
    ///
    /// ```
    /// use pagewise::{Device, ManagedBuffer, MemoryAdvice};
    ///
    /// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 4096)?;
    /// buffer.region().advise(MemoryAdvice::SetPreferredLocation(Device::FIRST.into()))?;
    /// assert_eq!(buffer.preferred_location()?, Some(Device::FIRST.into()));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn advise(&self, advice: MemoryAdvice) -> Result<()> {
        const OPERATION: &str = "advise";
        let advise = || {
            advice.check(OPERATION, self.machine())?;
            let span = Rounding::for_advice(self.rounding, OPERATION, self.span)?;
            self.machine().advise(span, advice)
        };
        self.named(advise())
    }

    /// Whether all of it is read-mostly.
    ///
    /// # Errors
    /// Errors of the back end for reads of attributes.
    pub fn read_mostly(&self) -> Result<bool> {
        Ok(self.attribute(RangeAttribute::READ_MOSTLY)? != 0)
    }

    /// Sets or unsets read-mostly: reads duplicate pages on the reader, a write collapses them.
    ///
    /// # Errors
    /// As [`advise`](Self::advise).
    ///
    /// ```
    /// let buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 4096)?;
    /// buffer.region().set_read_mostly(true)?;
    /// assert!(buffer.read_mostly()?);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_read_mostly(&self, on: bool) -> Result<()> {
        let (set, unset) = (MemoryAdvice::SetReadMostly, MemoryAdvice::UnsetReadMostly);
        self.advise(if on { set } else { unset })
    }

    /// The place at which faults leave pages if they can. `None` means that there is none, or that
    /// parts have different ones: the driver does not tell these apart.
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | CUDA 12.2 and later | kind and id of the place, two reads |
    /// | CUDA 12.0, 12.1 | a device or the host, one read |
    /// | driver 580 | may report one place over pages that never had it: it walks records |
    ///
    /// # Errors
    /// Errors of the back end for reads of attributes.
    pub fn preferred_location(&self) -> Result<Option<Place>> {
        self.place([
            RangeAttribute::PREFERRED_LOCATION,
            RangeAttribute::PREFERRED_LOCATION_TYPE,
            RangeAttribute::PREFERRED_LOCATION_ID,
        ])
    }

    /// Sets the place at which faults leave pages if they can; `None` forgets it. No page moves.
    ///
    /// # Errors
    /// As [`advise`](Self::advise).
    ///
    /// ```
    /// use pagewise::{ManagedBuffer, Place};
    ///
    /// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 4096)?;
    /// buffer.region().set_preferred_location(Some(Place::HOST))?;
    /// assert_eq!(buffer.preferred_location()?, Some(Place::HOST));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_preferred_location(&self, place: Option<Place>) -> Result<()> {
        self.advise(match place {
            Some(place) => MemoryAdvice::SetPreferredLocation(place),
            None => MemoryAdvice::UnsetPreferredLocation,
        })
    }

    /// The place of the last prefetch *request*, which does not say where the pages are now. `None`
    /// means that there was no prefetch, or that parts have different places.
    ///
    /// # Errors
    /// Errors of the back end for reads of attributes.
    pub fn last_prefetch_location(&self) -> Result<Option<Place>> {
        self.place([
            RangeAttribute::LAST_PREFETCH_LOCATION,
            RangeAttribute::LAST_PREFETCH_LOCATION_TYPE,
            RangeAttribute::LAST_PREFETCH_LOCATION_ID,
        ])
    }

    /// Asks for migration, in stream order. Success promises no residency.
    ///
    /// # Errors
    /// Before the back end is asked, without a CUDA code: `InvalidDevice` for a device that does
    /// not exist; `Unsupported` for a NUMA node before CUDA 12.2; `InvalidValue` for a stream of
    /// another machine, or a range that the [`Rounding`] refuses. From the back end:
    /// `InvalidDevice` (101) on devices without concurrent managed access.
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | CUDA 12.2 and later | `cuMemPrefetchAsync_v2` |
    /// | CUDA 12.0, 12.1 | `cuMemPrefetchAsync` |
    /// | simulator | as its driver version; pages have moved when the call returns |
    ///
    /// ```
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let buffer = ManagedBuffer::<u8>::zeroed(&machine, 4 << 20)?;
    /// let half = buffer.range(..2 << 20)?;
    /// half.prefetch(Device::FIRST, &Stream::legacy_default(&machine))?;
    /// assert_eq!(half.last_prefetch_location()?, Some(Device::FIRST.into()));
    /// assert_eq!(buffer.last_prefetch_location()?, None, "the other half has none");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn prefetch(&self, to: impl Into<Place>, stream: &Stream) -> Result<()> {
        const OPERATION: &str = "prefetch";
        let to = to.into();
        let prefetch = || {
            self.machine().check_place(OPERATION, to)?;
            self.machine().check_stream(OPERATION, stream)?;
            let span = Rounding::for_advice(self.rounding, OPERATION, self.span)?;
            self.memory.use_on(stream)?;
            self.machine().prefetch(span, to, stream.raw())
        };
        self.named(prefetch())
    }

    /// Waits, on the host, for discards of these bytes, so that none is in flight. The contents
    /// stay indeterminate until they are written.
    ///
    /// # Errors
    /// Failures of work on the streams that the discards are on, with the driver's code.
    ///
    /// ```
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    /// drop(buffer.discard(&Stream::new(&machine, Device::FIRST)?)?);
    /// buffer.region().wait_for_discards()?;
    /// assert!(buffer.read().is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn wait_for_discards(&self) -> Result<()> {
        self.named(self.memory.contents.wait(self.span))
    }

    fn attribute(&self, attribute: RangeAttribute) -> Result<i32> {
        self.named(self.machine().backend().range_attribute(self.span, attribute))
    }

    /// A place by its ordinal, or where the driver has them by kind and id.
    fn place(&self, [ordinal, kind, id]: [RangeAttribute; 3]) -> Result<Option<Place>> {
        if !self.machine().capabilities().locations {
            return self.attribute(ordinal).map(Place::of_ordinal);
        }
        let kind = pagewise_hal::LocationKind(self.attribute(kind)?);
        if kind == pagewise_hal::LocationKind::INVALID {
            return Ok(None);
        }
        Ok(Place::of_location(pagewise_hal::Location { kind, id: self.attribute(id)? }))
    }
}

/// Bytes of a managed buffer without another view: the memory that a discard takes.
///
/// ```
/// use pagewise::ManagedBuffer;
///
/// let mut buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 8192)?;
/// let region = buffer.region_mut();
/// assert_eq!(region.bytes(), 8192, "it does all that a region does");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct RegionMut<'b>(pub(crate) Region<'b>);

impl<'b> RegionMut<'b> {
    /// The same bytes, with another treatment of pages that they cover in part.
    ///
    /// ```
    /// use pagewise::{Machine, ManagedBuffer, Rounding};
    /// use pagewise::{Device, Stream, discard};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 100)?;
    /// let exact = buffer.region_mut().rounded(Rounding::Exact);
    /// assert!(discard(exact, &Stream::new(&machine, Device::FIRST)?).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn rounded(self, rounding: Rounding) -> Self {
        Self(self.0.rounded(rounding))
    }
}

impl<'b> std::ops::Deref for RegionMut<'b> {
    type Target = Region<'b>;

    fn deref(&self) -> &Region<'b> {
        &self.0
    }
}
