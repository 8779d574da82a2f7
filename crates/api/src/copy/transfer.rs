//! Copies: one, and batches of them.

use bytemuck::Pod;
use pagewise_hal::{
    BatchSupport, CopyAttributes, CopyFlags, Error, Location, Result, SourceOrder, Span, SpanCopy,
};

use super::elements::{Elements, ElementsMut, Part};
use crate::refuse::{invalid, unsupported};
use crate::{Machine, Place, Stream};

/// The time at which a copy of a batch may read its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReadOrder {
    /// In stream order.
    #[default]
    Stream,
    /// Before the call returns, without regard to the stream. Earlier copies and fills of this
    /// crate that write the source are waited for first, on the host.
    DuringCall,
    /// At any time until the stream has passed the call. Earlier copies and fills of this crate
    /// that write the source are waited for first, on the host.
    Any,
}

impl From<ReadOrder> for SourceOrder {
    fn from(order: ReadOrder) -> Self {
        match order {
            ReadOrder::Stream => Self::STREAM,
            ReadOrder::DuringCall => Self::DURING_CALL,
            ReadOrder::Any => Self::ANY,
        }
    }
}

/// Wishes for a copy of a batch. They change how it is made, and never the bytes.
///
/// ```
/// use pagewise::copy::{CopyOptions, ReadOrder};
/// use pagewise::{Device, Place};
///
/// let options = CopyOptions {
///     source_hint: Some(Place::HOST),
///     destination_hint: Some(Device::FIRST.into()),
///     overlap_with_compute: true,
///     ..CopyOptions::default()
/// };
/// assert_eq!(options.source_order, ReadOrder::Stream);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CopyOptions {
    /// When the source may be read.
    pub source_order: ReadOrder,
    /// Where managed memory had better be read. The driver ignores it for other memory.
    pub source_hint: Option<Place>,
    /// Where managed memory had better be written. The driver ignores it for other memory.
    pub destination_hint: Option<Place>,
    /// The copy had better overlap with kernels.
    pub overlap_with_compute: bool,
}

impl CopyOptions {
    fn attributes(&self) -> CopyAttributes {
        let hint = |place: Option<Place>| place.map_or(Location::NONE, Location::from);
        let flags = match self.overlap_with_compute {
            true => CopyFlags::PREFER_OVERLAP_WITH_COMPUTE,
            false => CopyFlags::empty(),
        };
        CopyAttributes {
            source_order: self.source_order.into(),
            source_hint: hint(self.source_hint),
            destination_hint: hint(self.destination_hint),
            flags,
        }
    }
}

/// A copy of a batch: its destination, its source and its options.
///
/// Its two sides have elements of one type. Copies of one batch may have different types.
///
/// ```
/// use pagewise::copy::{CopyOptions, Transfer};
/// use pagewise::{Machine, ManagedBuffer};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let from = ManagedBuffer::<u32>::zeroed(&machine, 4)?;
/// let mut to = ManagedBuffer::<u32>::new(&machine, 4)?;
/// let options = CopyOptions { overlap_with_compute: true, ..CopyOptions::default() };
/// let transfer = Transfer::new(&mut to, &from).with(options);
/// assert_eq!(transfer.options(), options);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a transfer is made by `copy_batch`"]
pub struct Transfer<'b> {
    to: Part<'b>,
    from: Part<'b>,
    options: CopyOptions,
    /// Holds the destination exclusively.
    _exclusive: std::marker::PhantomData<&'b mut ()>,
}

impl<'b> Transfer<'b> {
    /// A copy with the default options. Lengths are compared by [`copy_batch`].
    pub fn new<T: Pod>(
        to: impl Into<ElementsMut<'b, T>>,
        from: impl Into<Elements<'b, T>>,
    ) -> Self {
        let (to, from, options) = (to.into().part, from.into().part, CopyOptions::default());
        Self { to, from, options, _exclusive: std::marker::PhantomData }
    }

    /// The same copy with these options.
    pub fn with(mut self, options: CopyOptions) -> Self {
        self.options = options;
        self
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> CopyOptions {
        self.options
    }

    fn spans(&self) -> SpanCopy {
        SpanCopy::new(self.to.span.ptr, self.from.span.ptr, self.to.span.bytes)
    }

    /// Refuses what can be refused without the back end.
    fn check(&self, operation: &'static str, machine: &Machine) -> Result<()> {
        let Self { to, from, .. } = self;
        if to.memory.machine != *machine || from.memory.machine != *machine {
            return Err(invalid(operation, "the memory is of different machines"));
        }
        if to.span.bytes != from.span.bytes {
            let why = format!(
                "{} bytes cannot be copied to {}: take as many elements of both",
                from.span.bytes, to.span.bytes
            );
            return Err(invalid(operation, why).with_span(to.span));
        }
        for hint in [self.options.source_hint, self.options.destination_hint].into_iter().flatten()
        {
            machine.check_place(operation, hint)?;
        }
        from.memory.contents.check_readable(operation, from.span)
    }

    /// Orders earlier work on both sides before this copy.
    fn begin(&self, stream: &Stream) -> Result<()> {
        let Self { to, from, options, .. } = self;
        if options.source_order != ReadOrder::Stream {
            from.memory.wait_to_read(from.span)?;
        }
        from.memory.begin_read(from.span, stream)?;
        to.memory.begin_write(to.span, stream)
    }

    /// The stream was given this copy.
    fn note(&self, stream: &Stream) {
        self.from.memory.has_work(self.from.span, stream, false);
        self.to.memory.has_work(self.to.span, stream, true);
    }

    /// The error with the name of the destination.
    fn named(&self, error: Error) -> Error {
        self.to.memory.name_in(error, self.to.span)
    }
}

/// The first of these copies that writes memory which it, or another one, uses too. Only buffers of
/// one piece of adopted memory can overlap: borrows exclude all else.
fn overlapping(copies: &[SpanCopy]) -> Option<usize> {
    let ends = |span: Span| (span.ptr.0, span.ptr.0.saturating_add(span.bytes));
    let sides = copies
        .iter()
        .enumerate()
        .flat_map(|(item, copy)| [(ends(copy.to()), true, item), (ends(copy.from()), false, item)]);
    let mut sides: Vec<((u64, u64), bool, usize)> = sides.collect();
    sides.sort_unstable();
    let (mut written_to, mut used_to) = (0, 0);
    for ((start, end), writes, item) in sides {
        if start < written_to || (writes && start < used_to) {
            return Some(item);
        }
        used_to = used_to.max(end);
        if writes {
            written_to = written_to.max(end);
        }
    }
    None
}

const OVERLAPS: &str = "the destination overlaps other memory of the copy: copy by way of a third \
                        buffer";

/// Copies elements between two buffers of any kinds, in stream order. See the [module](super).
///
/// | back end | behaviour |
/// | --- | --- |
/// | CUDA | `cuMemcpyAsync` |
/// | simulator | the stream's device reads the pages of managed sources and writes those of managed destinations |
///
/// # Errors
/// Without a CUDA code: `InvalidValue` for sides of different length, a stream of another machine,
/// memory of different machines, memory that overlaps (which only adopted memory can), and a source
/// with discarded contents. From the back end: as [`Backend::memcpy`](crate::Backend::memcpy).
///
/// ```
/// use pagewise::{Device, DeviceBuffer, Machine, ManagedBuffer, Stream, copy};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let from = ManagedBuffer::from_slice(&machine, &[1_u32, 2, 3, 4])?;
/// let mut middle = DeviceBuffer::<u32>::new(&machine, Device::FIRST, 2)?;
/// let mut to = ManagedBuffer::<u32>::zeroed(&machine, 4)?;
/// copy(&mut middle, from.range(1..3)?, &stream)?;
/// copy(to.range_mut(2..)?, &middle, &stream)?;
/// assert_eq!(to.read()?, [0, 0, 2, 3], "the read waits for the copy");
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn copy<'b, T: Pod>(
    to: impl Into<ElementsMut<'b, T>>,
    from: impl Into<Elements<'b, T>>,
    stream: &Stream,
) -> Result<()> {
    const OPERATION: &str = "copy";
    let transfer = Transfer::new(to, from);
    let copied = || {
        let machine = &transfer.to.memory.machine;
        transfer.check(OPERATION, machine)?;
        machine.check_stream(OPERATION, stream)?;
        let SpanCopy { destination, source, bytes } = transfer.spans();
        if overlapping(&[transfer.spans()]).is_some() {
            return Err(invalid(OPERATION, OVERLAPS));
        }
        transfer.begin(stream)?;
        // SAFETY: the destination is borrowed exclusively and the source shared, and they do not
        // overlap. Earlier work on both was ordered before the stream's by `begin`. The memory of
        // both notes this copy before the borrows end, and waits for the stream before it is used
        // in a way that conflicts.
        let made = unsafe { machine.backend().memcpy(destination, source, bytes, stream.raw()) };
        transfer.note(stream);
        made?;
        transfer.to.memory.contents.written(transfer.to.span);
        Ok(())
    };
    copied().map_err(|error| transfer.named(error))
}

/// Makes many copies in stream order, in one call of the driver where it has one. Copies of a batch
/// have no order among themselves. See the [module](super).
///
/// | back end | behaviour |
/// | --- | --- |
/// | CUDA 12.8 and later | `cuMemcpyBatchAsync` |
/// | CUDA before 12.8 | a loop of `cuMemcpyAsync` without hints; it waits for the stream if a source is to be read during the call |
/// | simulator | moves the pages that single copies move; ignores hints |
///
/// # Errors
/// With the item ([`Error::item`]) where one is to blame. Before anything is submitted, without a
/// CUDA code: `InvalidValue` for no copies, the legacy default stream, a stream of another machine,
/// sides of different length, memory of different machines, destinations that overlap other memory
/// of the batch (which only adopted memory can), and sources with discarded contents;
/// `InvalidDevice` and `Unsupported` for hints as [`Machine::check_place`]; `Unsupported` for a back
/// end without batches of copies. From the back end: as
/// [`Backend::memcpy_batch`](crate::Backend::memcpy_batch); the contents of the destinations are
/// indeterminate then.
///
/// ```
/// use pagewise::copy::{CopyOptions, Transfer};
/// use pagewise::{Device, Machine, ManagedBuffer, PinnedBuffer, Stream, copy_batch};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let from = ManagedBuffer::from_slice(&machine, &[7_u8; 100])?;
/// let mut to = ManagedBuffer::<u8>::zeroed(&machine, 100)?;
/// let numbers = ManagedBuffer::from_slice(&machine, &[1.5_f64; 10])?;
/// let mut kept = PinnedBuffer::<f64>::new(&machine, 10)?;
/// let overlap = CopyOptions { overlap_with_compute: true, ..CopyOptions::default() };
/// let transfers = [
///     Transfer::new(&mut to, &from).with(overlap),
///     Transfer::new(&mut kept, &numbers),
/// ];
/// copy_batch(&transfers, &stream)?;
/// assert_eq!((to.read()?[99], kept.read()?[9]), (7, 1.5));
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn copy_batch(transfers: &[Transfer<'_>], stream: &Stream) -> Result<()> {
    const OPERATION: &str = "copy_batch";
    let Some(first) = transfers.first() else {
        return Err(invalid(OPERATION, "give at least one copy"));
    };
    let machine = &first.to.memory.machine;
    let blame = |item: usize| {
        move |error: Error| {
            let error = error.with_item(item);
            transfers.get(item).map_or(error.clone(), |transfer| transfer.named(error))
        }
    };
    for (item, transfer) in transfers.iter().enumerate() {
        transfer.check(OPERATION, machine).map_err(blame(item))?;
    }
    machine.check_stream(OPERATION, stream)?;
    if stream.is_legacy_default() {
        let why = "the driver takes no legacy default stream here: make one with `Stream::new`";
        return Err(invalid(OPERATION, why));
    }
    if machine.capabilities().copy_batch == BatchSupport::Absent {
        return Err(unsupported(OPERATION, "this back end copies one range at a time: use `copy`"));
    }
    let copies: Vec<SpanCopy> = transfers.iter().map(Transfer::spans).collect();
    if let Some(item) = overlapping(&copies) {
        return Err(blame(item)(invalid(OPERATION, OVERLAPS)));
    }
    for (item, transfer) in transfers.iter().enumerate() {
        transfer.begin(stream).map_err(blame(item))?;
    }
    let (attributes, starts) = runs(transfers);
    // SAFETY: destinations are borrowed exclusively and sources shared, and `overlapping` found
    // nothing. Earlier work on them was ordered before the stream's by `begin`, and before the call
    // where the order is not the stream's. The memory notes these copies before the borrows end,
    // and waits for the stream before it is used in a way that conflicts.
    let made =
        unsafe { machine.backend().memcpy_batch(&copies, &attributes, &starts, stream.raw()) };
    transfers.iter().for_each(|transfer| transfer.note(stream));
    made.map_err(|error| match error.item() {
        Some(item) => blame(item)(error),
        None => error,
    })?;
    for Transfer { to, .. } in transfers {
        to.memory.contents.written(to.span);
    }
    Ok(())
}

/// The attributes of the copies, equal neighbours once, and the first copy of each.
fn runs(transfers: &[Transfer<'_>]) -> (Vec<CopyAttributes>, Vec<usize>) {
    let mut attributes: Vec<CopyAttributes> = Vec::new();
    let mut starts = Vec::new();
    for (item, transfer) in transfers.iter().enumerate() {
        let own = transfer.options.attributes();
        if attributes.last() != Some(&own) {
            attributes.push(own);
            starts.push(item);
        }
    }
    (attributes, starts)
}

#[cfg(test)]
mod tests {
    use pagewise_hal::DevicePtr;

    use super::*;

    fn copy(to: u64, from: u64, bytes: u64) -> SpanCopy {
        SpanCopy::new(DevicePtr(to), DevicePtr(from), bytes)
    }

    #[test]
    fn the_driver_gets_every_wish_and_none_that_was_not_made() {
        let plain = CopyOptions::default().attributes();
        assert_eq!((plain.source_hint, plain.destination_hint), (Location::NONE, Location::NONE));
        assert_eq!((plain.source_order, plain.flags), (SourceOrder::STREAM, CopyFlags::empty()));
        let options = CopyOptions {
            source_order: ReadOrder::Any,
            source_hint: Some(Place::HOST),
            destination_hint: Some(Place::Device(crate::Device::FIRST)),
            overlap_with_compute: true,
        };
        let wishes = options.attributes();
        assert_eq!(wishes.source_order, SourceOrder::ANY);
        assert_eq!(wishes.source_hint, Location::HOST);
        assert_eq!(wishes.destination_hint, Location::from(Place::Device(crate::Device::FIRST)));
        assert_eq!(wishes.flags, CopyFlags::PREFER_OVERLAP_WITH_COMPUTE);
    }

    #[cfg(feature = "sim")]
    #[test]
    fn neighbours_with_equal_options_share_attributes() -> Result<()> {
        let machine = Machine::from(crate::sim()?);
        let from = crate::ManagedBuffer::<u8>::zeroed(&machine, 4)?;
        let to = (0..4).map(|_| crate::ManagedBuffer::<u8>::zeroed(&machine, 4));
        let mut to = to.collect::<Result<Vec<_>>>()?;
        let plain = CopyOptions::default();
        let apart = CopyOptions { overlap_with_compute: true, ..plain };
        let options = [plain, plain, apart, plain];
        let transfers = to.iter_mut().zip(options);
        let transfers: Vec<_> =
            transfers.map(|(to, options)| Transfer::new(to, &from).with(options)).collect();
        assert_eq!(transfers[2].options(), apart);
        let [plain, apart] = [plain, apart].map(|options| options.attributes());
        assert_eq!(runs(&transfers), (vec![plain, apart, plain], vec![0, 2, 3]));
        Ok(())
    }

    #[test]
    fn only_a_destination_may_not_overlap() {
        assert_eq!(overlapping(&[copy(0, 100, 50), copy(50, 100, 50)]), None, "one source twice");
        assert_eq!(overlapping(&[copy(0, 49, 50)]), Some(0), "its own source");
        assert_eq!(overlapping(&[copy(0, 100, 50), copy(49, 200, 10)]), Some(1));
        assert_eq!(overlapping(&[copy(300, 100, 50), copy(120, 200, 10)]), Some(1));
        assert_eq!(overlapping(&[copy(100, 0, 50), copy(300, 90, 20)]), Some(0), "a long source");
        let inside = [copy(0, 1000, 500), copy(2000, 100, 5)];
        assert_eq!(overlapping(&inside), Some(1), "a source within what another one writes");
    }
}
