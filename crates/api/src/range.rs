//! Ranges of elements of a buffer.

use std::marker::PhantomData;
use std::ops::{Bound, Deref, Range, RangeBounds};

use bytemuck::Pod;
use pagewise_hal::{DevicePtr, Result, Span};

use crate::Rounding;
use crate::memory::Memory;
use crate::refuse::invalid;
use crate::region::{Region, RegionMut};

/// Some elements of a managed buffer, shared.
///
/// It has all operations of a [`Region`], and shows contents.
///
/// ```
/// use pagewise::ManagedBuffer;
///
/// let buffer = ManagedBuffer::from_slice(pagewise::sim()?, &[1_u32, 2, 3, 4])?;
/// let middle = buffer.range(1..3)?;
/// assert_eq!(middle.len(), 2);
/// assert_eq!(middle.read()?, [2, 3]);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct ManagedRange<'b, T> {
    region: Region<'b>,
    elements: PhantomData<&'b [T]>,
}

impl<'b, T: Pod> ManagedRange<'b, T> {
    /// `span` must lie in the region's buffer, aligned for `T`, and be borrowed for `'b`.
    pub(crate) fn of(region: Region<'b>) -> Self {
        Self { region, elements: PhantomData }
    }

    /// How many elements; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(&self) -> usize {
        elements::<T>(self.region.span)
    }

    /// The bytes.
    #[must_use]
    pub fn region(&self) -> Region<'b> {
        self.region
    }

    /// The same elements, with another treatment of pages that they cover in part.
    ///
    /// ```
    /// use pagewise::{ManagedBuffer, Rounding};
    ///
    /// let buffer = ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 100)?;
    /// assert!(buffer.range(..50)?.rounded(Rounding::Inward).set_read_mostly(true).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn rounded(&self, rounding: Rounding) -> Region<'b> {
        self.region.rounded(rounding)
    }

    /// Shows the elements to the host. On the simulator every page that they touch counts as read
    /// by the host, now.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) if contents were discarded and not written since;
    /// `Unsupported` if addresses are not the host's, as a mock's. Without concurrent managed
    /// access, while work is in flight and not waited for: `IllegalAddress` (700) from the
    /// simulator, `NotReady` on a driver, where the process would end.
    pub fn read(self) -> Result<&'b [T]> {
        self.region.named(self.region.memory.prepare_read(self.region.span))?;
        // SAFETY: the span is live memory of the buffer, borrowed for `'b`, aligned and a whole
        // number of elements by construction. The back end promised (`HostAddresses`, which safe
        // code cannot fake) that the host may read it, and any bytes are a `T`. Code that writes it
        // needs an exclusive borrow, which is refused for `'b`, or `unsafe`: device programs stay
        // within their elements (`DeviceTouch::check`). Code that moves it keeps its bytes: no page
        // of it is marked as discarded any more (`prepare_write`, `discard_spans`).
        Ok(unsafe { std::slice::from_raw_parts(first(self.region.span), self.len()) })
    }
}

impl<'b, T> Deref for ManagedRange<'b, T> {
    type Target = Region<'b>;

    fn deref(&self) -> &Region<'b> {
        &self.region
    }
}

/// Some elements of a managed buffer, held exclusively: they can be written and discarded.
///
/// ```
/// use pagewise::ManagedBuffer;
///
/// let mut buffer = ManagedBuffer::<u32>::zeroed(pagewise::sim()?, 4)?;
/// buffer.range_mut(1..3)?.write()?.copy_from_slice(&[8, 9]);
/// assert_eq!(buffer.read()?, [0, 8, 9, 0]);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct ManagedRangeMut<'b, T> {
    pub(crate) region: RegionMut<'b>,
    elements: PhantomData<&'b mut [T]>,
}

impl<'b, T: Pod> ManagedRangeMut<'b, T> {
    /// As [`ManagedRange::of`], borrowed exclusively.
    pub(crate) fn of(region: RegionMut<'b>) -> Self {
        Self { region, elements: PhantomData }
    }

    /// How many elements; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(&self) -> usize {
        elements::<T>(self.region.span)
    }

    /// The same elements, with another treatment of pages that they cover in part.
    ///
    /// ```
    /// use pagewise::{Device, Machine, ManagedBuffer, Rounding, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 100)?;
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let exact = buffer.range_mut(..50)?.rounded(Rounding::Exact);
    /// assert!(exact.discard(&stream).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn rounded(self, rounding: Rounding) -> Self {
        Self::of(self.region.rounded(rounding))
    }

    /// The bytes, without their type.
    #[must_use]
    pub fn into_region(self) -> RegionMut<'b> {
        self.region
    }

    /// The first `count` elements, and the others.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) unless both have at least one.
    ///
    /// ```
    /// let mut buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 10)?;
    /// let (left, right) = buffer.range_mut(..)?.split_at(4)?;
    /// assert_eq!((left.len(), right.len()), (4, 6));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn split_at(self, count: usize) -> Result<(Self, Self)> {
        let whole = *self.region;
        let part = |range: Range<usize>| -> Result<Self> {
            let span = sub_span::<T>("split", whole.span, range)?;
            Ok(Self::of(RegionMut(Region { span, ..whole })))
        };
        Ok((part(0..count)?, part(count..self.len())?))
    }

    /// Shows the elements to the host. See [`ManagedRange::read`].
    ///
    /// # Errors
    /// As [`ManagedRange::read`].
    pub fn read(&self) -> Result<&[T]> {
        ManagedRange::of(*self.region).read()
    }

    /// Lends the elements to the host for writing, after waiting for discards of them that are in
    /// flight. On the simulator every page that they touch counts as written by the host, now.
    /// Discarded elements count as written from then on. The method writes a byte of each of their
    /// pages; the other bytes are indeterminate.
    ///
    /// # Errors
    /// As [`ManagedRange::read`], except for discarded contents; and failures of work on the
    /// streams that are waited for.
    ///
    /// ```
    /// let mut buffer = pagewise::ManagedBuffer::<u8>::zeroed(pagewise::sim()?, 10)?;
    /// buffer.range_mut(8..)?.write()?.fill(1);
    /// assert_eq!(buffer.read()?.iter().sum::<u8>(), 2);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn write(self) -> Result<&'b mut [T]> {
        let (memory, span) = (self.region.memory, self.region.span);
        self.region.named(memory.prepare_write(span))?;
        // SAFETY: the span is live memory of the buffer, aligned and a whole number of elements by
        // construction. The back end promised (`HostAddresses`) that the host may write it, and any
        // bytes are a `T`. `self` stands for the exclusive borrow of these elements for `'b`, and
        // is consumed, so no other view of them is made meanwhile; copies of its `Region` can move
        // pages and not write them.
        Ok(unsafe {
            std::slice::from_raw_parts_mut(first::<T>(span).cast_mut(), elements::<T>(span))
        })
    }

    /// Counts discarded elements as written, because a device has written them. Waits for discards
    /// in flight.
    ///
    /// The crate knows of device programs that it runs itself
    /// ([`run_on_device`](Self::run_on_device)). This method is for kernels that it does not see.
    ///
    /// # Errors
    /// Failures of work on the streams that are waited for.
    ///
    /// # Safety
    /// Since the discard every page of the discarded elements has been written. The driver drops
    /// the contents of an unwritten page whenever it moves, under views that are alive, too.
    ///
    /// ```
    /// use pagewise::{Backend, Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// drop(buffer.discard(&stream)?);
    /// assert!(buffer.read().is_err());
    /// // SAFETY: no view of the elements exists, so only the fill uses them.
    /// unsafe { machine.backend().memset(buffer.span(), 7, stream.handle())? };
    /// // SAFETY: every element has to be written, and the fill writes all of them, after the
    /// // discard on the same stream.
    /// unsafe { buffer.range_mut(..)?.assume_written()? };
    /// assert_eq!(buffer.read()?, [7; 8192]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn assume_written(&mut self) -> Result<()> {
        self.region.named(self.region.memory.contents.settle(self.region.span))
    }

    /// Counts the elements as written without a wait. It is for work in a stream that will have
    /// written them before they are read.
    ///
    /// # Safety
    /// No discard of the elements is in flight, as after
    /// [`wait_for_discards`](crate::Region::wait_for_discards). Work that is already in a stream
    /// writes every page of the elements, and the host waits for it before it reads them.
    ///
    /// ```
    /// use pagewise::{Backend, Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// drop(buffer.discard(&stream)?);
    /// buffer.region().wait_for_discards()?;
    /// // SAFETY: no view of the elements exists, so only the fill uses them.
    /// unsafe { machine.backend().memset(buffer.span(), 7, stream.handle())? };
    /// // SAFETY: every element has to be written before it is read. The fill writes all of them
    /// // and is waited for below.
    /// unsafe { buffer.range_mut(..)?.forget_discards() };
    /// stream.synchronize()?;
    /// assert_eq!(buffer.read()?, [7; 8192]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn forget_discards(&mut self) {
        self.region.memory.contents.written(self.region.span);
    }
}

impl<'b, T> Deref for ManagedRangeMut<'b, T> {
    type Target = Region<'b>;

    fn deref(&self) -> &Region<'b> {
        &self.region
    }
}

/// Elements of `T` in bytes that are a whole number of them.
pub(crate) fn elements<T>(span: Span) -> usize {
    span.bytes as usize / size_of::<T>()
}

/// The host's pointer to the first byte.
fn first<T>(span: Span) -> *const T {
    std::ptr::with_exposed_provenance(span.ptr.0 as usize)
}

/// The bytes of some elements of a buffer.
pub(crate) fn part_of<T>(memory: &Memory, range: impl RangeBounds<usize>) -> Result<Span> {
    let whole = memory.span;
    sub_span::<T>("range", whole, range).map_err(|error| memory.name_in(error, whole))
}

/// The bytes of some elements of a range.
fn sub_span<T>(
    operation: &'static str,
    whole: Span,
    range: impl RangeBounds<usize>,
) -> Result<Span> {
    let length = elements::<T>(whole);
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(length),
    };
    match (start, end) {
        (Some(start), Some(end)) if start < end && end <= length => {
            let size = size_of::<T>() as u64;
            let ptr = DevicePtr(whole.ptr.0 + start as u64 * size);
            Ok(Span::new(ptr, (end - start) as u64 * size))
        }
        _ => Err(invalid(
            operation,
            format!("give at least one element, and none beyond the {length} that there are"),
        )),
    }
}
