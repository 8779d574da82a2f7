//! Operations on one region or many, in one call of the driver where it has one.
//!
//! All checks of all regions come before the first call. Driver 580 and later (CUDA 13.0) take
//! prefetches and discards of many ranges at once. On older drivers prefetches are a loop, and an
//! error names the item that failed and the state of the others. Advice is always a loop: no driver
//! takes it for many ranges.

use pagewise_hal::{BatchSupport, Error, Location, Result, Span};
use rangemap::RangeMap;
use smallvec::smallvec;

use crate::lists::Few;
use crate::refuse::invalid;
use crate::region::{Region, RegionMut};
use crate::spans::midway;
use crate::{Destinations, Machine, MemoryAdvice, Place, Regions, RegionsMut, Rounding, Stream};

/// Gives advice on each region, in order.
///
/// # Errors
/// Before anything is advised: `InvalidValue` (no CUDA code) for no regions; as
/// [`Region::advise`], with the item, for any of them. If the driver fails midway: its error with
/// the item; the items before it were advised, it and those after it were not.
///
/// ```
/// use pagewise::{Device, ManagedBuffer, MemoryAdvice, advise};
///
/// let sim = pagewise::sim()?;
/// let (a, b) = (ManagedBuffer::<u8>::zeroed(&sim, 1)?, ManagedBuffer::<u8>::zeroed(&sim, 1)?);
/// advise([a.region(), b.region()], MemoryAdvice::SetReadMostly)?;
/// assert!(a.read_mostly()? && b.read_mostly()?);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn advise<'b>(regions: impl Into<Regions<'b>>, advice: MemoryAdvice) -> Result<()> {
    let regions = regions.into().0;
    advise_all(&regions, advice).map_err(|error| name_item(regions.iter(), error))
}

fn advise_all(regions: &[Region<'_>], advice: MemoryAdvice) -> Result<()> {
    const OPERATION: &str = "advise";
    let machine = common_machine(OPERATION, regions.iter())?;
    advice.check(OPERATION, machine)?;
    let spans = spans_of(regions.iter(), |region| {
        Rounding::for_advice(region.rounding, OPERATION, region.span)
    })?;
    machine.advise_spans(&spans, advice)
}

/// Asks for migration of each region, in stream order. Success promises no residency.
///
/// | back end | behaviour |
/// | --- | --- |
/// | one region | [`Region::prefetch`], on any stream |
/// | several, CUDA 13.0 and later | `cuMemPrefetchBatchAsync`, equal neighbours of places merged |
/// | several, CUDA 12 | a loop; on failure the items before were submitted |
///
/// # Errors
/// Before anything is submitted, without a CUDA code: `InvalidValue` for no regions, for different
/// numbers of places and regions, for regions of several machines, and for two regions that share a
/// page and go to different places (the driver leaves the order open); as [`Region::prefetch`],
/// with the item, for any of them. From the driver: `InvalidValue` (1) for the legacy default
/// stream.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Place, Stream, prefetch};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let a = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
/// let b = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
/// prefetch([a.region(), b.region()], [Device::FIRST.into(), Place::HOST], &stream)?;
/// assert_eq!(b.last_prefetch_location()?, Some(Place::HOST));
/// prefetch(&a, Place::HOST, &stream)?;
/// assert_eq!(a.last_prefetch_location()?, Some(Place::HOST));
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn prefetch<'b>(
    regions: impl Into<Regions<'b>>,
    to: impl Into<Destinations>,
    stream: &Stream,
) -> Result<()> {
    let (regions, to) = (regions.into().0, to.into());
    prefetch_all(&regions, to, stream).map_err(|error| name_item(regions.iter(), error))
}

fn prefetch_all(regions: &[Region<'_>], to: Destinations, stream: &Stream) -> Result<()> {
    const OPERATION: &str = "prefetch";
    let machine = common_machine(OPERATION, regions.iter())?;
    machine.check_stream(OPERATION, stream)?;
    let to = runs_of(OPERATION, machine, to, regions.len())?;
    let spans = spans_of(regions.iter(), |region| {
        Rounding::for_advice(region.rounding, OPERATION, region.span)
    })?;
    check_one_place_each(OPERATION, &spans, &to)?;
    for region in regions {
        region.memory.use_on(stream)?;
    }
    if let [span] = spans[..] {
        return machine.prefetch(span, to.places[0], stream.raw());
    }
    if machine.capabilities().prefetch_batch == BatchSupport::Absent {
        for (item, &span) in spans.iter().enumerate() {
            let sent = machine.prefetch(span, to.of(item), stream.raw());
            sent.map_err(|error| midway(error, item, span, "submitted"))?;
        }
        return Ok(());
    }
    let locations = to.locations();
    machine.backend().prefetch_batch(&spans, &locations, &to.starts, 0, stream.raw())
}

/// Declares the contents of each region worthless, in stream order: nothing is copied, the pages
/// are unmapped everywhere, and the next touch populates them anew.
///
/// A discard takes whole pages: a page that a region covers in part keeps its contents, unless
/// [`Region::rounded`] asks for a refusal. The buffers remember which bytes are indeterminate. They
/// refuse to show them until they are written
/// ([`ManagedRangeMut::write`](crate::ManagedRangeMut::write)) or declared to be written
/// ([`assume_written`](crate::ManagedRangeMut::assume_written)). For one range,
/// [`ManagedRangeMut::discard`](crate::ManagedRangeMut::discard) returns a type without a way to
/// read.
///
/// | back end | behaviour |
/// | --- | --- |
/// | CUDA 13.0 and later | `cuMemDiscardBatchAsync`, rounded inward here, with each range twice: of read-mostly memory the first time may only unmap what is duplicated |
/// | CUDA 12 | `Unsupported`, before anything is done |
/// | simulator | as its driver version; what discarded memory holds is configured |
///
/// # Errors
/// Before anything is submitted, without a CUDA code: `Unsupported` before CUDA 13.0;
/// `InvalidValue` for no regions, regions of several machines, a stream of another machine or the
/// legacy default stream, and ranges that a [`Rounding`] refuses. From the driver: its own errors;
/// then no contents count as discarded.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Stream, discard};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut a = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
/// let mut b = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
/// discard([a.region_mut(), b.region_mut()], &stream)?;
/// assert!(b.read().is_err());
/// b.write()?.fill(1);
/// assert_eq!(b.read()?[0], 1);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn discard<'b>(regions: impl Into<RegionsMut<'b>>, stream: &Stream) -> Result<()> {
    discard_all(&regions.into().0, stream)
}

/// Discards each region, then migrates it without copying, in stream order.
///
/// The discard takes whole pages, and the migration takes all pages that a region touches. Pages
/// that it covers in part move with their contents, unless it is [rounded
/// inward](Rounding::Inward).
///
/// # Errors
/// As [`discard`] and [`prefetch`].
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Stream, discard_prefetch};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
/// discard_prefetch(&mut buffer, Device::FIRST, &stream)?;
/// assert_eq!(buffer.last_prefetch_location()?, Some(Device::FIRST.into()));
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn discard_prefetch<'b>(
    regions: impl Into<RegionsMut<'b>>,
    to: impl Into<Destinations>,
    stream: &Stream,
) -> Result<()> {
    discard_prefetch_all(&regions.into().0, to.into(), stream)
}

/// Prepares regions for work that a program puts in a stream by itself. The stream waits for the
/// streams on which the memory was allocated, and the memory is freed only after the stream's
/// present work.
///
/// Operations of this crate do it themselves. Only memory of a
/// [resource](crate::ManagedBuffer::from_resource) is allocated and freed in the order of a stream.
/// For other memory, and for a stream that was prepared before, there is nothing to do. The stream
/// waits once for each stream on which memory was allocated, not once for each region.
///
/// # Errors
/// `InvalidValue` (no CUDA code), with the item, for a stream of another machine; as
/// [`Stream::wait_for`]. After an error the program must not put work on the regions in the stream.
///
/// ```
/// use std::sync::Arc;
/// use pagewise::resource::ManagedMemoryResource;
/// use pagewise::{Device, Machine, ManagedBuffer, Stream, use_on};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let (first, second) =
///     (Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?);
/// let resource = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
/// let buffer = ManagedBuffer::<u32>::from_resource(resource, 100, &first)?;
/// use_on(&buffer, &second)?;
/// // Launch kernels that use it on the second stream here.
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn use_on<'b>(regions: impl Into<Regions<'b>>, stream: &Stream) -> Result<()> {
    let regions = regions.into().0;
    for (item, region) in regions.iter().enumerate() {
        let checked = region.machine().check_stream("use_on", stream);
        checked.map_err(|error| name_item(regions.iter(), error.with_item(item)))?;
    }
    let mut waited: Few<&Stream> = Few::new();
    for memory in regions.iter().map(|region| region.memory) {
        let Some(before) = memory.comes_before(stream) else { continue };
        if !waited.contains(&before) {
            stream.wait_for(before)?;
            waited.push(before);
        }
        memory.is_used_on(stream);
    }
    Ok(())
}

pub(crate) fn discard_all(regions: &[RegionMut<'_>], stream: &Stream) -> Result<()> {
    discard_unnamed(regions, stream).map_err(|error| name_item(shared(regions), error))
}

fn discard_unnamed(regions: &[RegionMut<'_>], stream: &Stream) -> Result<()> {
    const OPERATION: &str = "discard";
    let (machine, discarded) = check_discard(OPERATION, regions, stream)?;
    let spans: Few<Span> = discarded.iter().copied().filter(|span| span.bytes > 0).collect();
    if spans.is_empty() {
        return Ok(());
    }
    for region in regions {
        region.memory.wait_for_copies(region.span)?;
        region.memory.use_on(stream)?;
    }
    // SAFETY: the discard asks that no code uses the contents until they are written. The regions
    // are borrowed exclusively; from here on their buffers refuse to show what is discarded, and
    // wait for the stream before it is written.
    unsafe { machine.discard_spans(&spans, stream.raw())? };
    remember(regions, &discarded, stream);
    Ok(())
}

pub(crate) fn discard_prefetch_all(
    regions: &[RegionMut<'_>],
    to: Destinations,
    stream: &Stream,
) -> Result<()> {
    let answer = discard_prefetch_unnamed(regions, to, stream);
    answer.map_err(|error| name_item(shared(regions), error))
}

fn discard_prefetch_unnamed(
    regions: &[RegionMut<'_>],
    to: Destinations,
    stream: &Stream,
) -> Result<()> {
    const OPERATION: &str = "discard_prefetch";
    let (machine, discarded) = check_discard(OPERATION, regions, stream)?;
    let to = runs_of(OPERATION, machine, to, regions.len())?;
    // The driver rounds the discard inward and the migration outward.
    let spans = spans_of(shared(regions), |region| {
        Rounding::for_advice(region.rounding, OPERATION, region.span)
    })?;
    check_one_place_each(OPERATION, &spans, &to)?;
    let locations = to.locations();
    for region in regions {
        region.memory.wait_for_copies(region.span)?;
        region.memory.use_on(stream)?;
    }
    // SAFETY: the discard asks that no code uses the contents until they are written. The regions
    // are borrowed exclusively; from here on their buffers refuse to show what is discarded, and
    // wait for the stream before it is written.
    unsafe {
        let backend = machine.backend();
        backend.discard_prefetch_batch(&spans, &locations, &to.starts, 0, stream.raw())?;
    }
    remember(regions, &discarded, stream);
    Ok(())
}

/// The error with the name of the region that it is about: that of its item, or the only one.
#[cold]
fn name_item<'r, 'b: 'r>(
    mut regions: impl ExactSizeIterator<Item = &'r Region<'b>>,
    error: Error,
) -> Error {
    let item = if regions.len() == 1 { Some(0) } else { error.item() };
    match item.and_then(|item| regions.nth(item)) {
        Some(region) => region.memory.name_in(error, region.span),
        None => error,
    }
}

fn shared<'r, 'b>(regions: &'r [RegionMut<'b>]) -> impl ExactSizeIterator<Item = &'r Region<'b>> {
    regions.iter().map(|region| &**region)
}

/// Everything that can be said before the driver is asked, and the bytes that will be discarded.
fn check_discard<'b>(
    operation: &'static str,
    regions: &[RegionMut<'b>],
    stream: &Stream,
) -> Result<(&'b Machine, Few<Span>)> {
    let machine = common_machine(operation, shared(regions))?;
    machine.check_discard(operation, stream)?;
    let discarded = spans_of(shared(regions), |region| {
        Rounding::for_discard(region.rounding, operation, region.span)
    })?;
    Ok((machine, discarded))
}

fn remember(regions: &[RegionMut<'_>], discarded: &[Span], stream: &Stream) {
    for (region, &span) in regions.iter().zip(discarded) {
        region.memory.contents.discarded(span, stream);
    }
}

/// The machine that all regions are of; there is at least one.
fn common_machine<'r, 'b: 'r>(
    operation: &'static str,
    mut regions: impl Iterator<Item = &'r Region<'b>>,
) -> Result<&'b Machine> {
    let Some(first) = regions.next() else {
        return Err(invalid(operation, "give at least one region"));
    };
    let machine = first.machine();
    match regions.position(|region| region.machine() != machine) {
        None => Ok(machine),
        Some(before) => {
            let why = "the region is of another machine than the first: make one call for each";
            Err(invalid(operation, why).with_item(before + 1))
        }
    }
}

/// The bytes of each region, rounded; an error names the item.
fn spans_of<'r, 'b: 'r>(
    regions: impl Iterator<Item = &'r Region<'b>>,
    round: impl Fn(&Region<'b>) -> Result<Span>,
) -> Result<Few<Span>> {
    let spans = regions.enumerate();
    spans.map(|(item, region)| round(region).map_err(|error| error.with_item(item))).collect()
}

/// Places of items, equal neighbours merged: as the driver takes them.
#[derive(Debug)]
struct Runs {
    places: Few<Place>,
    starts: Few<usize>,
}

impl Runs {
    fn of(&self, item: usize) -> Place {
        self.places[self.starts.partition_point(|&start| start <= item) - 1]
    }

    fn locations(&self) -> Few<Location> {
        self.places.iter().map(|&place| place.into()).collect()
    }
}

fn runs_of(
    operation: &'static str,
    machine: &Machine,
    to: Destinations,
    regions: usize,
) -> Result<Runs> {
    let each = match to {
        Destinations::All(place) => {
            machine.check_place(operation, place)?;
            return Ok(Runs { places: smallvec![place], starts: smallvec![0] });
        }
        Destinations::Each(each) => each,
    };
    if each.len() != regions {
        let why = format!(
            "{} places for {regions} regions: give one for each, or one for all",
            each.len()
        );
        return Err(invalid(operation, why));
    }
    let mut runs = Runs { places: Few::new(), starts: Few::new() };
    for (item, &place) in each.iter().enumerate() {
        machine.check_place(operation, place).map_err(|error| error.with_item(item))?;
        if runs.places.last() != Some(&place) {
            runs.places.push(place);
            runs.starts.push(item);
        }
    }
    Ok(runs)
}

/// Refuses batches that ask for one page at two places.
fn check_one_place_each(operation: &'static str, spans: &[Span], to: &Runs) -> Result<()> {
    if to.places.len() == 1 {
        return Ok(());
    }
    let mut taken: RangeMap<u64, Place> = RangeMap::new();
    for (item, span) in spans.iter().enumerate() {
        let (pages, place) = (span.pages_outward(), to.of(item));
        if taken.overlapping(pages.clone()).any(|(_, other)| *other != place) {
            let why = "shares a page with an earlier region that goes elsewhere, and the driver \
                       leaves open which comes first";
            return Err(invalid(operation, why).with_item(item).with_span(*span));
        }
        taken.insert(pages, place);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn equal_neighbours_are_one_run_and_each_item_keeps_its_place() {
        let device = Place::from(Device::FIRST);
        let runs =
            Runs { places: smallvec![device, Place::HOST, device], starts: smallvec![0, 2, 3] };
        let places: Vec<Place> = (0..5).map(|item| runs.of(item)).collect();
        assert_eq!(places, [device, device, Place::HOST, device, device]);
    }
}
