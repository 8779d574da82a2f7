//! Operands: elements of buffers, each with the accesses that a kernel makes to them.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use pagewise_hal::{KernelAccess, KernelWalk, Result};

use super::order::ElementOrder;
use super::view::{Places, PlacesMut};
use crate::refuse::invalid;
use crate::{ManagedBuffer, ManagedRange, ManagedRangeMut, Region};

pub(super) const OPERATION: &str = "launch";

/// A kernel reads all elements, in order.
///
/// ```
/// use pagewise::{Device, Launch, Machine, ManagedBuffer, Stream};
/// use pagewise::launch::{read, update};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let a = ManagedBuffer::from_slice(&machine, &[1_u32, 2, 3, 4])?;
/// let mut sum = ManagedBuffer::<u32>::zeroed(&machine, 1)?;
/// let operands = (read(a.range(1..3)?), update(&mut sum));
/// Launch::new(Device::FIRST).run(&stream, operands, |(a, sum)| sum[0] = a.iter().sum())?;
/// assert_eq!(sum.read()?, [5]);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn read<'b, T: Pod>(elements: impl Into<ManagedRange<'b, T>>) -> Read<'b, T> {
    Read(elements.into())
}

/// A kernel writes all elements, in order. Discarded elements count as written.
///
/// ```
/// use pagewise::{Device, Launch, Machine, ManagedBuffer, Stream};
/// use pagewise::launch::write;
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut ones = ManagedBuffer::<u32>::zeroed(&machine, 3)?;
/// Launch::new(Device::FIRST).run(&stream, (write(&mut ones),), |(ones,)| ones.fill(1))?;
/// assert_eq!(ones.read()?, [1; 3]);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn write<'b, T: Pod>(elements: impl Into<ManagedRangeMut<'b, T>>) -> Write<'b, T> {
    Write { elements: elements.into(), access: KernelAccess::Store }
}

/// A kernel reads and then writes each element, in order.
///
/// ```
/// use pagewise::{Device, Launch, Machine, ManagedBuffer, Stream};
/// use pagewise::launch::update;
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut counts = ManagedBuffer::from_slice(&machine, &[1_u32, 2])?;
/// let operands = (update(&mut counts),);
/// Launch::new(Device::FIRST).run(&stream, operands, |(counts,)| counts[1] += 5)?;
/// assert_eq!(counts.read()?, [1, 7]);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn update<'b, T: Pod>(elements: impl Into<ManagedRangeMut<'b, T>>) -> Write<'b, T> {
    Write { elements: elements.into(), access: KernelAccess::Update }
}

/// A kernel updates each element atomically, in order, and does not use the old value.
///
/// ```
/// use pagewise::{Device, Launch, Machine, ManagedBuffer, Stream};
/// use pagewise::launch::{atomic, read};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let keys = [2_usize, 0, 2, 2];
/// let mut bins = ManagedBuffer::<u32>::zeroed(&machine, 3)?;
/// let operands = (atomic(&mut bins).gather(&keys),);
/// Launch::new(Device::FIRST).run(&stream, operands, |(mut bins,)| {
///     (0..keys.len()).for_each(|key| bins[key] += 1);
/// })?;
/// assert_eq!(bins.read()?, [1, 0, 3]);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn atomic<'b, T: Pod>(elements: impl Into<ManagedRangeMut<'b, T>>) -> Write<'b, T> {
    Write { elements: elements.into(), access: KernelAccess::Atomic }
}

/// Elements that a kernel reads. The closure sees them as a slice. Made by [`read`].
#[derive(Debug)]
#[must_use = "an operand does nothing until it is launched"]
pub struct Read<'b, T>(ManagedRange<'b, T>);

/// Some elements that a kernel reads. The closure sees them as [`Places`].
#[derive(Debug)]
#[must_use = "an operand does nothing until it is launched"]
pub struct ReadSome<'b, T> {
    elements: ManagedRange<'b, T>,
    order: Order,
}

/// Elements that a kernel writes, updates or updates atomically. The closure sees them as a slice.
/// Made by [`write()`], [`update`] and [`atomic`].
#[derive(Debug)]
#[must_use = "an operand does nothing until it is launched"]
pub struct Write<'b, T> {
    elements: ManagedRangeMut<'b, T>,
    access: KernelAccess,
}

/// Some elements that a kernel writes, updates or updates atomically. The closure sees them as
/// [`PlacesMut`].
#[derive(Debug)]
#[must_use = "an operand does nothing until it is launched"]
pub struct WriteSome<'b, T> {
    elements: ManagedRangeMut<'b, T>,
    access: KernelAccess,
    order: Order,
}

/// An order, or why it is refused when the kernel is run.
type Order = Result<Arc<ElementOrder>, String>;

/// The patterns of an operand, which take it and give it with fewer elements.
macro_rules! patterns {
    ($operand:ident, $some:ident) => {
        impl<'b, T: Pod> $operand<'b, T> {
            /// Only every `step`-th element, from the first on. A step of 0 is refused when the
            /// kernel is run.
            pub fn strided(self, step: usize) -> $some<'b, T> {
                let order = ElementOrder::strided(self.length(), step);
                self.ordered(order)
            }

            /// Only the elements with these indices, in this order. When the kernel is run, it is
            /// refused if there are none, if one is beyond the end, or if an element comes twice
            /// and the kernel writes or updates it, as threads would race for it.
            pub fn gather(self, indices: &[usize]) -> $some<'b, T> {
                let order = ElementOrder::gathered(self.length(), indices);
                self.ordered(order)
            }

            /// Only the elements of these ranges, one range after another. It is refused as a
            /// [`gather`](Self::gather) of their elements, and if a range is empty or there are
            /// more than [`KernelAccesses::RANGES_MAX`](crate::KernelAccesses::RANGES_MAX).
            pub fn ranges(self, ranges: impl IntoIterator<Item = Range<usize>>) -> $some<'b, T> {
                let order = ElementOrder::ranges(self.length(), ranges);
                self.ordered(order)
            }
        }
    };
}

patterns!(Read, ReadSome);
patterns!(Write, WriteSome);

impl<'b, T: Pod> Read<'b, T> {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn ordered(self, order: Result<ElementOrder, String>) -> ReadSome<'b, T> {
        ReadSome { elements: self.0, order: order.map(Arc::new) }
    }
}

impl<'b, T: Pod> Write<'b, T> {
    fn length(&self) -> usize {
        self.elements.len()
    }

    fn ordered(self, order: Result<ElementOrder, String>) -> WriteSome<'b, T> {
        let Self { elements, access } = self;
        WriteSome { elements, access, order: order.map(Arc::new) }
    }
}

/// An operand as the launch needs it: the memory, and the accesses to it.
#[derive(Debug)]
pub struct Declared<'o> {
    /// The elements, all of them.
    pub(super) region: Region<'o>,
    pub(super) access: KernelAccess,
    pub(super) order: Arc<ElementOrder>,
    size: u64,
}

impl<'o> Declared<'o> {
    fn new<T: Pod>(region: Region<'o>, access: KernelAccess, order: &Order) -> Result<Self> {
        region.named(Self::checked::<T>(region, access, order))
    }

    fn checked<T: Pod>(region: Region<'o>, access: KernelAccess, order: &Order) -> Result<Self> {
        let refuse = |why: String| invalid(OPERATION, why).with_span(region.span);
        let order = order.clone().map_err(refuse)?;
        if matches!(access, KernelAccess::Store | KernelAccess::Update)
            && let Some(twice) = order.repeated()
        {
            return Err(refuse(format!(
                "element {twice} is accessed twice, so that threads race for it: write each \
                 element once, or declare atomics"
            )));
        }
        Ok(Self { region, access, order, size: size_of::<T>() as u64 })
    }

    pub(super) fn walks(&self) -> impl Iterator<Item = KernelWalk> {
        let walks = self.order.walks(self.region.span.ptr, self.size).into_iter();
        let access = self.access;
        walks.map(move |places| KernelWalk { access, places })
    }

    /// Refuses to read discarded contents.
    pub(super) fn check_readable(&self) -> Result<()> {
        let contents = &self.region.memory.contents;
        if self.access == KernelAccess::Store || contents.discarded_in(self.region.span).is_empty()
        {
            return Ok(());
        }
        let mut spans = self.order.spans(self.region.span.ptr, self.size);
        let answer = spans.try_for_each(|(span, _)| contents.check_readable(OPERATION, span));
        self.region.named(answer)
    }

    /// Counts the elements that were written wholly as written. Discards of them are done.
    pub(super) fn count_as_written(&self) {
        let contents = &self.region.memory.contents;
        if self.access == KernelAccess::Store && !contents.discarded_in(self.region.span).is_empty()
        {
            let spans = self.order.spans(self.region.span.ptr, self.size);
            let whole = spans.filter(|(_, is_whole)| *is_whole);
            whole.for_each(|(span, _)| contents.written(span));
        }
    }
}

/// The elements of a kernel as the launch needs them. Only this crate implements it.
pub trait Declare {
    /// The memory and the accesses to it.
    fn declare(&self) -> Result<Declared<'_>>;
}

/// An operand of a kernel, made by [`read`], [`write()`], [`update`] or [`atomic`].
pub trait Operand: Declare {
    /// The view that the closure gets.
    type View<'v>;

    /// Shows the elements.
    ///
    /// # Safety
    /// The host can read the elements at their address for `'v`, and write those that are declared
    /// as written. `'v` is not longer than the operand is held, and no other view of it is alive.
    #[doc(hidden)]
    unsafe fn view<'v>(&self) -> Self::View<'v>;
}

/// The address at which a closure accesses the first element: accesses of a closure
/// are not the host's and must not fault.
fn kernel_address(region: &Region<'_>) -> usize {
    region.memory.machine.backend().kernel_address(region.span.ptr).0 as usize
}

/// # Safety
/// `region` is live memory that the host can read for `'v`, and no code writes it meanwhile.
unsafe fn shared<'v, T: Pod>(region: Region<'_>, length: usize) -> &'v [T] {
    let first = std::ptr::with_exposed_provenance(kernel_address(&region));
    // SAFETY: the caller promised that the memory is live and readable and that no code writes it.
    // Ranges of elements are aligned and a whole number of them, and any bytes are a `T`.
    unsafe { std::slice::from_raw_parts(first, length) }
}

/// # Safety
/// `region` is live memory that the host can write for `'v`, and no other code uses it meanwhile.
unsafe fn exclusive<'v, T: Pod>(region: Region<'_>, length: usize) -> &'v mut [T] {
    let first = std::ptr::with_exposed_provenance_mut(kernel_address(&region));
    // SAFETY: the caller promised that the memory is live and writable and that no other code uses
    // it. Ranges of elements are aligned and a whole number of them, and any bytes are a `T`.
    unsafe { std::slice::from_raw_parts_mut(first, length) }
}

impl<T: Pod> Declare for Read<'_, T> {
    fn declare(&self) -> Result<Declared<'_>> {
        let region = self.0.region();
        let order = Ok(Arc::new(ElementOrder::dense(self.length())));
        Declared::new::<T>(region, KernelAccess::Load, &order)
    }
}

impl<T: Pod> Operand for Read<'_, T> {
    type View<'v> = &'v [T];

    unsafe fn view<'v>(&self) -> &'v [T] {
        // SAFETY: the caller promised that the host can read the elements. They are borrowed
        // shared, so no code writes them.
        unsafe { shared(self.0.region(), self.length()) }
    }
}

impl<T: Pod> Declare for ReadSome<'_, T> {
    fn declare(&self) -> Result<Declared<'_>> {
        let region = self.elements.region();
        Declared::new::<T>(region, KernelAccess::Load, &self.order)
    }
}

impl<T: Pod> Operand for ReadSome<'_, T> {
    type View<'v> = Places<'v, T>;

    unsafe fn view<'v>(&self) -> Places<'v, T> {
        let length = self.elements.len();
        // SAFETY: the caller promised that the host can read the elements. They are borrowed
        // shared, so no code writes them.
        let elements = unsafe { shared(self.elements.region(), length) };
        Places { elements, order: ordered(&self.order) }
    }
}

impl<T: Pod> Declare for Write<'_, T> {
    fn declare(&self) -> Result<Declared<'_>> {
        let region = *self.elements;
        let order = Ok(Arc::new(ElementOrder::dense(self.length())));
        Declared::new::<T>(region, self.access, &order)
    }
}

impl<T: Pod> Operand for Write<'_, T> {
    type View<'v> = &'v mut [T];

    unsafe fn view<'v>(&self) -> &'v mut [T] {
        // SAFETY: the caller promised that the host can write the elements and that there is no
        // other view of `self`, which borrows them exclusively.
        unsafe { exclusive(*self.elements, self.length()) }
    }
}

impl<T: Pod> Declare for WriteSome<'_, T> {
    fn declare(&self) -> Result<Declared<'_>> {
        let region = *self.elements;
        Declared::new::<T>(region, self.access, &self.order)
    }
}

impl<T: Pod> Operand for WriteSome<'_, T> {
    type View<'v> = PlacesMut<'v, T>;

    unsafe fn view<'v>(&self) -> PlacesMut<'v, T> {
        let length = self.elements.len();
        // SAFETY: the caller promised that the host can write the elements and that there is no
        // other view of `self`, which borrows them exclusively.
        let elements = unsafe { exclusive(*self.elements, length) };
        PlacesMut { elements, order: ordered(&self.order) }
    }
}

/// The order of an operand that was declared, and so not refused.
fn ordered(order: &Order) -> Arc<ElementOrder> {
    order.as_ref().map_or_else(|_| Arc::new(ElementOrder::dense(0)), Arc::clone)
}

/// All elements of a buffer.
impl<'b, T: Pod> From<&'b ManagedBuffer<T>> for ManagedRange<'b, T> {
    fn from(buffer: &'b ManagedBuffer<T>) -> Self {
        Self::of(buffer.region())
    }
}

/// All elements of a buffer.
impl<'b, T: Pod> From<&'b mut ManagedBuffer<T>> for ManagedRangeMut<'b, T> {
    fn from(buffer: &'b mut ManagedBuffer<T>) -> Self {
        Self::of(buffer.region_mut())
    }
}
