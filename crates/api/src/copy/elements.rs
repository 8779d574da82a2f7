//! Elements of any buffer, as copies and fills take them.

use std::marker::PhantomData;

use bytemuck::Pod;
use pagewise_hal::Span;

use crate::memory::Memory;
use crate::range::elements;
use crate::{Discarded, ManagedBuffer, ManagedRange, ManagedRangeMut};

/// Bytes of a buffer of any kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'b> {
    pub(crate) memory: &'b Memory,
    pub(crate) span: Span,
}

/// Elements that a copy reads: of managed, device or pinned memory.
///
/// `into()` makes it from a reference to a buffer, a [`ManagedRange`], or a range of a
/// [`PlainBuffer`](crate::PlainBuffer). So functions take any of them.
///
/// ```
/// use pagewise::copy::Elements;
/// use pagewise::{Device, DeviceBuffer, Machine, ManagedBuffer};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let managed = ManagedBuffer::<u32>::zeroed(&machine, 4)?;
/// let device = DeviceBuffer::<u32>::new(&machine, Device::FIRST, 4)?;
/// let all = [Elements::from(&managed), Elements::from(managed.range(..4)?), (&device).into()];
/// assert!(all.iter().all(|elements| elements.len() == 4));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Elements<'b, T> {
    pub(crate) part: Part<'b>,
    of: PhantomData<&'b [T]>,
}

/// Elements that a copy or a fill writes, held exclusively.
///
/// `into()` makes it from an exclusive reference to a buffer, a [`ManagedRangeMut`], a range of a
/// [`PlainBuffer`](crate::PlainBuffer), or [`Discarded`] elements.
///
/// ```
/// use pagewise::copy::ElementsMut;
/// use pagewise::{Device, DeviceBuffer};
///
/// let mut buffer = DeviceBuffer::<u32>::new(pagewise::sim()?, Device::FIRST, 4)?;
/// assert_eq!(ElementsMut::from(&mut buffer).len(), 4);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct ElementsMut<'b, T> {
    pub(crate) part: Part<'b>,
    of: PhantomData<&'b mut [T]>,
}

impl<'b, T: Pod> Elements<'b, T> {
    /// `span` must be whole elements of the memory, borrowed for `'b`.
    pub(crate) fn of(memory: &'b Memory, span: Span) -> Self {
        Self { part: Part { memory, span }, of: PhantomData }
    }

    /// How many; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is at least one element")]
    pub fn len(&self) -> usize {
        elements::<T>(self.part.span)
    }
}

impl<'b, T: Pod> ElementsMut<'b, T> {
    /// `span` must be whole elements of the memory, borrowed exclusively for `'b`.
    pub(crate) fn of(memory: &'b Memory, span: Span) -> Self {
        Self { part: Part { memory, span }, of: PhantomData }
    }

    /// How many; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is at least one element")]
    pub fn len(&self) -> usize {
        elements::<T>(self.part.span)
    }
}

impl<'b, T: Pod> From<&'b ManagedBuffer<T>> for Elements<'b, T> {
    fn from(buffer: &'b ManagedBuffer<T>) -> Self {
        Self::of(&buffer.memory, buffer.memory.span)
    }
}

impl<'b, T: Pod> From<ManagedRange<'b, T>> for Elements<'b, T> {
    fn from(range: ManagedRange<'b, T>) -> Self {
        let region = range.region();
        Self::of(region.memory, region.span)
    }
}

impl<'b, T: Pod> From<&'b ManagedRangeMut<'_, T>> for Elements<'b, T> {
    fn from(range: &'b ManagedRangeMut<'_, T>) -> Self {
        Self::of(range.region.memory, range.region.span)
    }
}

impl<'b, T: Pod> From<&'b mut ManagedBuffer<T>> for ElementsMut<'b, T> {
    fn from(buffer: &'b mut ManagedBuffer<T>) -> Self {
        Self::of(&buffer.memory, buffer.memory.span)
    }
}

impl<'b, T: Pod> From<ManagedRangeMut<'b, T>> for ElementsMut<'b, T> {
    fn from(range: ManagedRangeMut<'b, T>) -> Self {
        Self::of(range.region.memory, range.region.span)
    }
}

impl<'b, T: Pod> From<&'b mut ManagedRangeMut<'_, T>> for ElementsMut<'b, T> {
    fn from(range: &'b mut ManagedRangeMut<'_, T>) -> Self {
        Self::of(range.region.memory, range.region.span)
    }
}

impl<'b, T: Pod> From<Discarded<'b, T>> for ElementsMut<'b, T> {
    fn from(discarded: Discarded<'b, T>) -> Self {
        discarded.into_range().into()
    }
}
