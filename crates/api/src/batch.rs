//! Operations on one region or many, in one call of the driver where it has one.
//!
//! All checks of all regions come before the first call. Driver 580 and later take prefetches and
//! discards of many ranges at once (CUDA 13.0); before it prefetches are a loop, and an error names
//! the item that failed and what became of the others. Advice is always a loop: no driver takes it
//! for many ranges.

use pagewise_hal::{BatchSupport, Error, Location, Result, Span, StreamHandle};
use rangemap::RangeMap;
use smallvec::{SmallVec, smallvec};

use crate::lists::Few;
use crate::refuse::{also, invalid, unsupported};
use crate::region::{Region, RegionMut};
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
    const OPERATION: &str = "advise";
    let regions = regions.into().0;
    let machine = common_machine(OPERATION, regions.iter())?;
    advice.check(OPERATION, machine)?;
    let spans = spans_of(regions.iter(), |region| {
        Rounding::for_advice(region.rounding, OPERATION, region.span)
    })?;
    for (item, &span) in spans.iter().enumerate() {
        machine.advise(span, advice).map_err(|error| midway(error, item, span, "advised"))?;
    }
    Ok(())
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
/// Before anything is submitted, without a CUDA code: `InvalidValue` for no regions, as many places
/// as are not regions, regions of several machines, regions of which two share a page and go to
/// different places (the driver leaves the order open); as [`Region::prefetch`], with the item, for
/// any of them. From the driver: `InvalidValue` (1) for the legacy default stream.
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
    const OPERATION: &str = "prefetch";
    let regions = regions.into().0;
    let machine = common_machine(OPERATION, regions.iter())?;
    machine.check_stream(OPERATION, stream)?;
    let to = runs_of(OPERATION, machine, to.into(), regions.len())?;
    let spans = spans_of(regions.iter(), |region| {
        Rounding::for_advice(region.rounding, OPERATION, region.span)
    })?;
    check_one_place_each(OPERATION, &spans, &to)?;
    for region in &regions {
        region.memory.use_on(stream)?;
    }
    if let [span] = spans[..] {
        return machine.prefetch(span, to.places[0], stream.handle());
    }
    if machine.capabilities().prefetch_batch == BatchSupport::Absent {
        for (item, &span) in spans.iter().enumerate() {
            let sent = machine.prefetch(span, to.of(item), stream.handle());
            sent.map_err(|error| midway(error, item, span, "submitted"))?;
        }
        return Ok(());
    }
    let locations = to.locations();
    machine.backend().prefetch_batch(&spans, &locations, &to.starts, 0, stream.handle())
}

/// Declares the contents of each region worthless, in stream order: nothing is copied, the pages
/// are unmapped everywhere, and the next touch populates them anew.
///
/// A discard takes whole pages: what a region covers in part keeps its contents, unless
/// [`Region::rounded`] asks for a refusal. The buffers remember what is indeterminate and refuse to
/// show it until it is written ([`ManagedRangeMut::write`](crate::ManagedRangeMut::write)) or said
/// to be ([`assume_written`](crate::ManagedRangeMut::assume_written)). For one range,
/// [`ManagedRangeMut::discard`](crate::ManagedRangeMut::discard) says the same by type.
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
/// legacy default stream, and ranges that a [`Rounding`] refuses. The driver's own, and then no
/// contents count as discarded.
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
/// The discard takes whole pages, the migration all pages that a region touches: those that it
/// covers in part move with their contents, unless it is [rounded inward](Rounding::Inward).
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

/// Prefetches ranges of anybody's memory to one checked place: in one call, or in a loop where the
/// back end has none or the stream is the legacy default, which batch calls refuse.
pub(crate) fn prefetch_spans(
    machine: &Machine,
    spans: &[Span],
    to: Place,
    stream: StreamHandle,
) -> Result<()> {
    let absent = machine.capabilities().prefetch_batch == BatchSupport::Absent;
    if spans.len() > 1 && !absent && !stream.is_legacy() {
        return machine.backend().prefetch_batch(spans, &[to.into()], &[0], 0, stream);
    }
    for (item, &span) in spans.iter().enumerate() {
        let sent = machine.prefetch(span, to, stream);
        sent.map_err(|error| midway(error, item, span, "submitted"))?;
    }
    Ok(())
}

/// Discards ranges of anybody's memory, once the stream has nothing unfinished: driver 580 loses
/// what is written after a discard that queued behind a prefetch.
///
/// Each range is named twice. Where some pages of a va_block are duplicated by read-mostly, a
/// discard unmaps those only. The others keep their mappings and are just marked: a write to them
/// does not fault, the mark stays, and the next migration loses what was written. The second time
/// no page is duplicated any more, so all are unmapped, and the first write of each takes its mark
/// away.
///
/// # Safety
/// As [`Backend::discard_batch`](pagewise_hal::Backend::discard_batch).
pub(crate) unsafe fn discard_spans(
    machine: &Machine,
    spans: &[Span],
    stream: StreamHandle,
) -> Result<()> {
    machine.backend().stream_synchronize(stream)?;
    let twice: SmallVec<[Span; 2]> = spans.iter().chain(spans).copied().collect();
    // SAFETY: the caller promised for these ranges what the call asks for; naming each twice is the
    // same as discarding it twice.
    unsafe { machine.backend().discard_batch(&twice, 0, stream) }
}

pub(crate) fn discard_all(regions: &[RegionMut<'_>], stream: &Stream) -> Result<()> {
    const OPERATION: &str = "discard";
    let (machine, discarded) = check_discard(OPERATION, regions, stream)?;
    let spans: Few<Span> = discarded.iter().copied().filter(|span| span.bytes > 0).collect();
    if spans.is_empty() {
        return Ok(());
    }
    for region in regions {
        region.memory.use_on(stream)?;
    }
    // SAFETY: the regions are borrowed exclusively; from here on their buffers refuse to show what
    // is discarded, and wait for the stream before it is written.
    unsafe { discard_spans(machine, &spans, stream.handle())? };
    remember(regions, &discarded, stream);
    Ok(())
}

pub(crate) fn discard_prefetch_all(
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
        region.memory.use_on(stream)?;
    }
    // SAFETY: the regions are borrowed exclusively; from here on their buffers refuse to show what
    // is discarded, and wait for the stream before it is written.
    unsafe {
        let backend = machine.backend();
        backend.discard_prefetch_batch(&spans, &locations, &to.starts, 0, stream.handle())?;
    }
    remember(regions, &discarded, stream);
    Ok(())
}

fn shared<'r, 'b>(regions: &'r [RegionMut<'b>]) -> impl Iterator<Item = &'r Region<'b>> {
    regions.iter().map(|region| &**region)
}

/// Everything that can be said before the driver is asked, and the bytes that will be discarded.
fn check_discard<'b>(
    operation: &'static str,
    regions: &[RegionMut<'b>],
    stream: &Stream,
) -> Result<(&'b Machine, Few<Span>)> {
    let machine = common_machine(operation, shared(regions))?;
    if !machine.capabilities().discard {
        let version = machine.capabilities().driver_version;
        let why = format!("needs a driver of CUDA 13.0 or later, this one is of {version}");
        return Err(unsupported(operation, why));
    }
    machine.check_stream(operation, stream)?;
    if stream.is_legacy_default() {
        let why = "the driver takes no legacy default stream here: make one with `Stream::new`";
        return Err(invalid(operation, why));
    }
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

/// What a loop says that failed at an item.
#[cold]
fn midway(error: Error, item: usize, span: Span, done: &str) -> Error {
    let outcome = format!("the {item} regions before this one were {done}, the others were not");
    also(error, &outcome).with_item(item).with_span(span)
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
