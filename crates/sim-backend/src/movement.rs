//! Calls that advise, move and discard: `cuMemAdvise`, `cuMemPrefetchAsync`, the batch calls.
//!
//! The order of checks is the driver's: CONTRACT-20 to CONTRACT-54.

use std::ops::Range;

use pagewise_hal::{
    Advice, DriverVersion, Location, LocationKind, PAGE_BYTES, Processor, Span, StreamHandle,
    locations_of_ranges, starts_are_valid,
};

use crate::attributes::AttributeChange;
use crate::locate::{self, Unknown};
use crate::pager::Discard;
use crate::refusal::{Checked, Refusal, bad_device, invalid, no_entry_point, unsupported};
use crate::sim::Sim;
use crate::space::MemoryKind;

/// A prefetch that passed every check: its pages, the destination, and the location to record.
type Prefetch = (Range<u64>, Processor, Location);

impl Sim {
    /// `cuMemAdvise` by ordinal.
    pub(crate) fn advise_ordinal(
        &mut self,
        span: Span,
        advice: Advice,
        ordinal: i32,
    ) -> Checked<()> {
        check_advice(advice)?;
        check_not_empty(span)?;
        let at = self.topology.processor(locate::of_ordinal(ordinal)).ok();
        if advice.uses_location() && at.is_none() {
            return bad_device("the ordinal is neither -1 (host) nor a device");
        }
        self.check_advised_device(advice, at)?;
        let pages = self.advisable_pages(span)?;
        self.apply_advice(pages, advice, at);
        Ok(())
    }

    /// `cuMemAdvise_v2`
    pub(crate) fn advise(&mut self, span: Span, advice: Advice, location: Location) -> Checked<()> {
        self.check_locations_exist()?;
        check_advice(advice)?;
        let at = self.topology.processor(location);
        if at == Err(Unknown::Type) {
            return invalid("the location's type is not 1 to 4");
        }
        if matches!(location.kind, LocationKind::HOST_NUMA | LocationKind::HOST_NUMA_CURRENT) {
            return advise_numa(advice, at.is_ok());
        }
        let at = at.ok();
        check_not_empty(span)?;
        if advice.uses_location() && at.is_none() {
            return invalid("the device does not exist");
        }
        self.check_advised_device(advice, at)?;
        let pages = self.advisable_pages(span)?;
        self.apply_advice(pages, advice, at);
        Ok(())
    }

    /// The pages of a range that takes advice. Memory of a managed pool takes none, which the
    /// driver says before it looks at the range's end (CONTRACT-34).
    fn advisable_pages(&self, span: Span) -> Checked<Range<u64>> {
        match self.space.containing(span.ptr) {
            Some(allocation)
                if allocation.kind != MemoryKind::Managed && self.is_managed(allocation) =>
            {
                unsupported("memory of a managed pool takes no advice")
            }
            _ => self.managed_pages(span),
        }
    }

    fn apply_advice(&mut self, pages: Range<u64>, advice: Advice, at: Option<Processor>) {
        let change = match (advice, at) {
            (Advice::SET_READ_MOSTLY, _) => AttributeChange::ReadMostly(true),
            (Advice::UNSET_READ_MOSTLY, _) => AttributeChange::ReadMostly(false),
            (Advice::SET_PREFERRED_LOCATION, Some(processor)) => AttributeChange::Preferred(Some(
                locate::normalised(locate::of_processor(processor)),
            )),
            (Advice::UNSET_PREFERRED_LOCATION, _) => AttributeChange::Preferred(None),
            (Advice::SET_ACCESSED_BY, Some(processor)) => {
                AttributeChange::AccessedBy(processor, true)
            }
            (Advice::UNSET_ACCESSED_BY, Some(processor)) => {
                AttributeChange::AccessedBy(processor, false)
            }
            // `check_advice` and the location checks let nothing else through.
            _ => return,
        };
        self.attributes.change(pages.clone(), change);
        if self.exclusive.is_some() {
            return;
        }
        self.lend_during(bytes_of(&pages));
        match change {
            AttributeChange::ReadMostly(on) => self.pager.set_read_mostly(pages, on),
            AttributeChange::Preferred(None) => self.pager.set_preferred(pages, None),
            AttributeChange::Preferred(Some(_)) => self.pager.set_preferred(pages, at),
            AttributeChange::AccessedBy(processor, on) => {
                self.pager.set_accessed_by(pages, processor, on)
            }
            AttributeChange::LastPrefetch(_) => {}
        }
    }

    /// `cuMemPrefetchAsync` by ordinal.
    pub(crate) fn prefetch_ordinal(
        &mut self,
        span: Span,
        ordinal: i32,
        stream: StreamHandle,
    ) -> Checked<()> {
        check_not_empty(span)?;
        let location = locate::of_ordinal(ordinal);
        let Ok(to) = self.topology.processor(location) else {
            return bad_device("the ordinal is neither -1 (host) nor a device");
        };
        self.check_prefetch_works()?;
        let pages = self.managed_pages(span)?;
        self.streams.check(stream)?;
        self.carry_out(&[(pages, to, locate::normalised(location))], None);
        Ok(())
    }

    /// `cuMemPrefetchAsync_v2`
    pub(crate) fn prefetch(
        &mut self,
        span: Span,
        location: Location,
        flags: u32,
        stream: StreamHandle,
    ) -> Checked<()> {
        self.check_locations_exist()?;
        check_not_empty(span)?;
        if flags != 0 {
            return invalid("flags must be 0");
        }
        let to = match self.topology.processor(location) {
            Ok(to) => to,
            Err(Unknown::Device) => return bad_device("the device does not exist"),
            Err(Unknown::Node) => return invalid("the NUMA node does not exist"),
            Err(Unknown::Type) => return invalid("the location's type is not 1 to 4"),
        };
        self.check_prefetch_works()?;
        let pages = self.managed_pages(span)?;
        self.streams.check(stream)?;
        self.carry_out(&[(pages, to, locate::normalised(location))], None);
        Ok(())
    }

    /// `cuMemPrefetchBatchAsync`, or before CUDA 13.0 a loop with the same checks (CONTRACT-3).
    pub(crate) fn prefetch_batch(
        &mut self,
        spans: &[Span],
        locations: &[Location],
        starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Checked<()> {
        let mut prefetches = self.checked_batch(spans, locations, starts, flags, stream)?;
        if !self.has(DriverVersion::CUDA_13_0) {
            // The single call records normalised ids.
            for (_, _, recorded) in &mut prefetches {
                *recorded = locate::normalised(*recorded);
            }
        }
        self.carry_out(&prefetches, None);
        Ok(())
    }

    /// `cuMemDiscardBatchAsync`
    pub(crate) fn discard_batch(
        &mut self,
        spans: &[Span],
        flags: u64,
        stream: StreamHandle,
    ) -> Checked<()> {
        self.check_discard_exists()?;
        self.check_batch(spans, flags, stream)?;
        for (index, &span) in spans.iter().enumerate() {
            self.managed_pages(span).map_err(|refusal| refusal.of_item(index))?;
        }
        self.lend();
        self.discard(spans, Discard::Eager);
        Ok(())
    }

    /// Ranges are rounded inward: bytes outside them keep their contents. Driver 580 takes a range
    /// that begins and ends inside one page for the end of the list (CONTRACT-22).
    fn discard(&mut self, spans: &[Span], manner: Discard) {
        if self.rehearses {
            return;
        }
        for span in spans {
            let end = span.end().unwrap_or(u64::MAX);
            if span.ptr.0.div_ceil(PAGE_BYTES) > end / PAGE_BYTES {
                break;
            }
            let pages = span.pages_inward();
            if !pages.is_empty() {
                self.pager.discard(pages, manner);
            }
        }
    }

    /// `cuMemDiscardAndPrefetchBatchAsync`: all ranges are discarded, then each is moved. The
    /// discard rounds inward and only marks the pages; the move rounds outward.
    pub(crate) fn discard_prefetch_batch(
        &mut self,
        spans: &[Span],
        locations: &[Location],
        starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Checked<()> {
        self.check_discard_exists()?;
        let prefetches = self.checked_batch(spans, locations, starts, flags, stream)?;
        self.carry_out(&prefetches, Some(spans));
        Ok(())
    }

    /// Records where ranges were asked to go, even if nothing moves, and lets the engine migrate
    /// them, once these were discarded.
    fn carry_out(&mut self, prefetches: &[Prefetch], discarded: Option<&[Span]>) {
        if self.rehearses {
            return;
        }
        for (pages, _, recorded) in prefetches {
            self.attributes.change(pages.clone(), AttributeChange::LastPrefetch(*recorded));
        }
        let bytes = prefetches.iter().map(|(pages, ..)| bytes_of(pages));
        self.lend_during(bytes.fold(0, u64::saturating_add));
        self.discard(discarded.unwrap_or_default(), Discard::Lazy);
        for (pages, to, _) in prefetches {
            self.pager.migrate(pages.clone(), *to);
        }
    }

    /// Every range with its destination, or the refusal of the whole batch.
    fn checked_batch(
        &mut self,
        spans: &[Span],
        locations: &[Location],
        starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Checked<Vec<Prefetch>> {
        self.check_batch(spans, flags, stream)?;
        if locations.is_empty() || locations.len() != starts.len() {
            return invalid("give one start for each location, and at least one");
        }
        if !starts_are_valid(starts, spans.len()) {
            return invalid("starts begin at 0 and stay below the number of ranges");
        }
        let mut targets = Vec::with_capacity(locations.len());
        for &location in locations {
            if !self.has(DriverVersion::CUDA_12_2) {
                check_ordinal_can_name(location)?;
            }
            // Unlike the single call, an unknown device is an invalid value here (CONTRACT-50).
            let Ok(to) = self.topology.processor(location) else {
                return invalid("a location names no device, NUMA node or known type");
            };
            targets.push((to, location));
        }
        let mut prefetches: Vec<Prefetch> = Vec::with_capacity(spans.len());
        let locations = locations_of_ranges(starts, spans.len());
        for ((index, &span), location) in spans.iter().enumerate().zip(locations) {
            let (to, location) = targets[location];
            match self.managed_pages(span) {
                Ok(pages) => prefetches.push((pages, to, location)),
                Err(refusal) => {
                    self.record_before_refusal(prefetches);
                    return Err(refusal.of_item(index));
                }
            }
        }
        Ok(prefetches)
    }

    /// The driver's batch calls move nothing if they refuse a range, but have by then recorded
    /// where the ranges before it were to go (CONTRACT-54).
    fn record_before_refusal(&mut self, prefetches: Vec<Prefetch>) {
        if self.has(DriverVersion::CUDA_13_0) {
            for (pages, _, recorded) in prefetches {
                self.attributes.change(pages, AttributeChange::LastPrefetch(recorded));
            }
        }
    }

    /// The checks of a batch call before it looks at ranges. All failures have the same code, so
    /// their order does not show.
    fn check_batch(&self, spans: &[Span], flags: u64, stream: StreamHandle) -> Checked<()> {
        if stream.is_legacy() {
            return invalid("batch calls do not take the legacy default stream");
        }
        self.streams.check(stream)?;
        if flags != 0 {
            return invalid("flags must be 0");
        }
        self.check_concurrent()?;
        if spans.is_empty() {
            return invalid("give at least one range");
        }
        Ok(())
    }

    fn check_locations_exist(&self) -> Checked<()> {
        if self.has(DriverVersion::CUDA_12_2) {
            return Ok(());
        }
        no_entry_point("the location form needs a driver of CUDA 12.2 or later: use ordinals")
    }

    fn check_discard_exists(&self) -> Checked<()> {
        if self.has(DriverVersion::CUDA_13_0) {
            return Ok(());
        }
        no_entry_point("discard needs a driver of CUDA 13.0 or later")
    }
}

/// The bytes of pages of one allocation.
fn bytes_of(pages: &Range<u64>) -> u64 {
    (pages.end - pages.start) * PAGE_BYTES
}

/// Advice with a host NUMA location never reaches the memory: on a machine with one node, driver
/// 580 refuses what it would have to remember and accepts the rest without looking at the range
/// (CONTRACT-32).
fn advise_numa(advice: Advice, exists: bool) -> Checked<()> {
    match advice {
        Advice::SET_ACCESSED_BY | Advice::UNSET_ACCESSED_BY => {
            invalid("accessed-by takes a device or HOST, not a NUMA node")
        }
        Advice::SET_PREFERRED_LOCATION if !exists => invalid("the NUMA node does not exist"),
        _ => Ok(()),
    }
}

fn check_advice(advice: Advice) -> Checked<()> {
    if advice.is_known() { Ok(()) } else { invalid("the advice is not 1 to 6") }
}

fn check_not_empty(span: Span) -> Checked<()> {
    if span.ptr.is_null() || span.bytes == 0 {
        return invalid("the range is empty or starts at the null address");
    }
    Ok(())
}

/// Before CUDA 12.2 the loop goes through ordinals, which have no word for NUMA nodes (CONTRACT-2).
fn check_ordinal_can_name(location: Location) -> Result<(), Refusal> {
    match location.kind {
        LocationKind::HOST_NUMA | LocationKind::HOST_NUMA_CURRENT => {
            no_entry_point("host NUMA locations need a driver of CUDA 12.2 or later")
        }
        _ => Ok(()),
    }
}
