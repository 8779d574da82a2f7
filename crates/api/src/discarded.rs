//! Elements with discarded contents, until they are written.

use std::ops::Deref;

use bytemuck::Pod;
use pagewise_hal::Result;

use crate::refuse::invalid;
use crate::{ManagedRangeMut, Place, Region, Stream};

/// Elements with indeterminate contents, without a way to read them.
///
/// They may be advised and prefetched, as any [`Region`]. Writing all of them ends the state; so
/// does [`assume_written`](Self::assume_written), for a caller that had a device write them. If the
/// value is dropped before that, the buffer remembers which bytes are indeterminate and refuses to
/// show them.
///
/// Discards round inward to whole pages, so elements on pages that are covered in part keep their
/// contents.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let mut buffer = ManagedBuffer::<u32>::zeroed(&machine, 4096)?;
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let discarded = buffer.discard(&stream)?;
/// discarded.prefetch(Device::FIRST, &stream)?;
/// discarded.fill(9)?;
/// assert!(buffer.read()?.iter().all(|&n| n == 9));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the contents are gone: write them, or say that a device has"]
pub struct Discarded<'b, T> {
    range: ManagedRangeMut<'b, T>,
}

impl<'b, T> Discarded<'b, T> {
    /// The elements, which their buffer still counts as discarded.
    pub(crate) fn into_range(self) -> ManagedRangeMut<'b, T> {
        self.range
    }
}

impl<'b, T: Pod> ManagedRangeMut<'b, T> {
    /// Declares the contents worthless, in stream order. See [`discard`](crate::discard).
    ///
    /// # Errors
    /// As [`discard`](crate::discard).
    ///
    /// ```
    /// use pagewise::{Device, Machine, ManagedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let discarded = buffer.range_mut(..4096)?.discard(&stream)?;
    /// discarded.fill(5)?;
    /// assert_eq!(buffer.read()?[4095..4097], [5, 0]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn discard(self, stream: &Stream) -> Result<Discarded<'b, T>> {
        crate::batch::discard_all(std::slice::from_ref(&self.region), stream)?;
        Ok(Discarded::of(self))
    }

    /// Declares the contents worthless and moves the pages, without copying. See
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
    /// let to = Device::FIRST;
    /// let discarded = buffer.range_mut(..)?.discard_prefetch(to, &stream)?;
    /// assert_eq!(discarded.last_prefetch_location()?, Some(to.into()));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn discard_prefetch(
        self,
        to: impl Into<Place>,
        stream: &Stream,
    ) -> Result<Discarded<'b, T>> {
        let to = to.into().into();
        crate::batch::discard_prefetch_all(std::slice::from_ref(&self.region), to, stream)?;
        Ok(Discarded::of(self))
    }
}

impl<'b, T: Pod> Discarded<'b, T> {
    pub(crate) fn of(range: ManagedRangeMut<'b, T>) -> Self {
        Self { range }
    }

    /// How many elements.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Writes one value to every element, on the host.
    ///
    /// # Errors
    /// As [`ManagedRangeMut::write`].
    ///
    /// ```
    /// # use pagewise::{Device, Machine, ManagedBuffer, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    /// buffer.discard(&Stream::new(&machine, Device::FIRST)?)?.fill(3)?;
    /// assert_eq!(buffer.read()?[0], 3);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn fill(self, value: T) -> Result<()> {
        self.range.write()?.fill(value);
        Ok(())
    }

    /// Writes every element, on the host.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) unless there are as many values as elements; as
    /// [`ManagedRangeMut::write`].
    ///
    /// ```
    /// # use pagewise::{Device, Machine, ManagedBuffer, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// assert!(buffer.discard(&stream)?.copy_from_slice(&[1, 2]).is_err());
    /// buffer.discard(&stream)?.copy_from_slice(&[1; 4096])?;
    /// assert_eq!(buffer.read()?, [1; 4096]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn copy_from_slice(self, values: &[T]) -> Result<()> {
        if values.len() != self.len() {
            let why = format!("{} values for {} elements", values.len(), self.len());
            return self.range.region.named(Err(invalid("write", why)));
        }
        self.range.write()?.copy_from_slice(values);
        Ok(())
    }

    /// Counts all elements as written, because a device has written them. It waits for the discard.
    ///
    /// # Errors
    /// As [`ManagedRangeMut::assume_written`].
    ///
    /// # Safety
    /// As [`ManagedRangeMut::assume_written`].
    ///
    /// ```
    /// # use pagewise::{Backend, Device, Machine, ManagedBuffer, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let discarded = buffer.discard(&stream)?;
    /// // SAFETY: no view of the elements exists, so only the fill uses them.
    /// unsafe { machine.backend().memset(discarded.span(), 7, stream.handle())? };
    /// // SAFETY: every element has to be written, and the fill writes all of them.
    /// unsafe { discarded.assume_written()? };
    /// assert_eq!(buffer.read()?, [7; 4096]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn assume_written(mut self) -> Result<()> {
        // SAFETY: `assume_written` of the range asks that every page of the elements was written;
        // the caller of this method promised that.
        unsafe { self.range.assume_written() }
    }
}

impl<'b, T> Deref for Discarded<'b, T> {
    type Target = Region<'b>;

    fn deref(&self) -> &Region<'b> {
        &self.range
    }
}
