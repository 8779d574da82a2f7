//! Accesses of one thread: finding the pages on which they fault, and servicing those one after
//! another.
//!
//! An access to a mapped page costs nothing here, and runs of mapped pages are skipped by mask
//! words. Faults are serial: each is serviced before the next access is made (PAGING-20,
//! PAGING-22).
#![allow(
    clippy::arithmetic_side_effects,
    reason = "pages of live memory, and an access that is not before the first; faults are counted"
)]

use pagewise_hal::{MemoryEvent, PAGE_BYTES};

use super::access::Access;
use super::batch::Faulted;
use super::block::Block;
use super::engine::Paging;
use super::mask::{PAGES, PageMask};
use super::processor::ProcId;
use super::protection::Protection;
use super::report::ReportSink;
use super::survey::Covered;
use super::walk::{HeldOff, Touched, Walk, fault_record};

/// The time in which a GPU faults again on a page that it was refused (thrash:283, four fault
/// records of 7.0 to 7.4 us).
const REFAULT_NS: u64 = 7_000;

/// How long the host sleeps if it has to wait for so long. The driver asks the kernel for whole
/// microseconds and up to half as many more, and a timer fires as late as it may (PAGING-29).
fn host_nap_ns(wait_ns: u64) -> u64 {
    let least_us = wait_ns / 1000;
    (least_us + least_us / 2).saturating_mul(1000).max(wait_ns) + 1
}

impl Paging {
    /// One access.
    #[cfg(test)]
    pub(crate) fn touch(
        &mut self,
        by: pagewise_hal::Processor,
        page: u64,
        access: Access,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Touched {
        let (first_byte, bytes, stride_bytes) = (page * PAGE_BYTES, 1, 1);
        self.walk(Walk { by, first_byte, bytes, stride_bytes, access }, now_ns, sink)
    }

    /// A walk over memory. Places outside of all ranges are passed over.
    #[inline]
    pub(crate) fn walk(&mut self, walk: Walk, now_ns: u64, sink: &mut dyn ReportSink) -> Touched {
        self.advance(now_ns, sink);
        let Some(page) = walk.only_page() else { return self.walk_far(walk, now_ns, sink) };
        let by = ProcId::from(walk.by);
        let mut touched = Touched { now_ns, ..Touched::default() };
        if self.misses(by, page, walk.access.needs(by, &self.params)) {
            self.fault_in_walk((by, page), walk.access, 0, &mut touched, sink);
        }
        self.walked.note(by, Some(page..page + 1));
        touched
    }

    /// A walk of any number of accesses.
    fn walk_far(&mut self, walk: Walk, now_ns: u64, sink: &mut dyn ReportSink) -> Touched {
        let by = ProcId::from(walk.by);
        let stride = walk.stride_bytes.max(1);
        let needs = walk.access.needs(by, &self.params);
        let end = walk.first_byte.saturating_add(walk.bytes);
        let mut touched = Touched { now_ns, ..Touched::default() };
        let mut at = walk.first_byte;
        while at < end {
            let page = at / PAGE_BYTES;
            let next = match self.next_fault(by, page, needs) {
                Some(fault) if fault == page => {
                    let nth = (at - walk.first_byte) / stride;
                    self.fault_in_walk((by, page), walk.access, nth, &mut touched, sink);
                    page + 1
                }
                Some(fault) => fault,
                None => page / PAGES as u64 * PAGES as u64 + PAGES as u64,
            };
            let next_byte = next * PAGE_BYTES;
            if next_byte >= end {
                break;
            }
            let strides = (next_byte - at).div_ceil(stride);
            match strides.checked_mul(stride).and_then(|bytes| at.checked_add(bytes)) {
                Some(further) => at = further,
                None => break,
            }
        }
        self.walked.note(by, walk.pages());
        touched
    }

    /// The access of a walk with this number faults.
    #[inline]
    fn fault_in_walk(
        &mut self,
        (by, page): (ProcId, u64),
        access: Access,
        nth: u64,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) {
        touched.pass(sink.fault_latency_ns(by.into(), nth));
        self.fault(by, page, access, touched, sink);
    }

    /// A walk of one access that its processor may make already, to a page that the host, if it is
    /// the host's, wrote or reads: what a [`walk`](Self::walk) would come to, and what it would
    /// have [covered](Self::covered). `None`, and nothing is done, if it is another one, or if pages
    /// are pinned or accesses are counted.
    #[inline]
    pub(crate) fn touch_mapped(&mut self, walk: &Walk) -> Option<Covered> {
        let page = walk.only_page()?;
        if !self.pins.is_empty() || self.params.access_counters.enable {
            return None;
        }
        let by = ProcId::from(walk.by);
        let needs = walk.access.needs(by, &self.params);
        let block = self.ranges.containing(page)?.block(page)?;
        let at = (page - block.first_page()) as usize;
        let own = block.of(by)?;
        if !own.maps(needs, at) {
            return None;
        }
        if by.is_host() {
            let written_before = u64::from(own.has_written(at));
            let is_news = walk.access.writes() && written_before == 0;
            return (!is_news).then_some(Covered {
                pages: 1,
                written_before,
                ..Covered::default()
            });
        }
        let covered = Covered::of_device(Some(own), block, at);
        self.walked.note_of_device(by, page..page + 1);
        Some(covered)
    }

    /// Whether `by` cannot access a page of a range yet.
    #[inline]
    fn misses(&self, by: ProcId, page: u64, needs: Protection) -> bool {
        let Some(range) = self.ranges.containing(page) else { return false };
        let maps = |block: &Block| block.maps(by, needs, (page - block.first_page()) as usize);
        !range.block(page).is_some_and(maps)
    }

    /// The first page from `page` on, in its block or right behind it, that `by` cannot access
    /// yet; `None` where there is no range.
    pub(super) fn next_fault(&self, by: ProcId, page: u64, needs: Protection) -> Option<u64> {
        let range = self.ranges.containing(page)?;
        let Some(block) = range.block(page) else { return Some(page) };
        let first = block.first_page();
        let at = (page - first) as usize;
        if !block.maps(by, needs, at) {
            return Some(page);
        }
        let clear = block.mapped(by, needs).next_clear(at);
        Some(first + clear.min(block.len()) as u64)
    }

    /// Services a fault, waiting first if the page thrashes.
    pub(super) fn fault(
        &mut self,
        by: ProcId,
        page: u64,
        access: Access,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) {
        touched.faults += 1;
        self.advance(touched.now_ns, sink);
        let record = fault_record(page, by, access, 1);
        sink.record(record);
        if self.service_node(by, page, touched, sink) {
            return;
        }
        let Some(range) = self.ranges.containing(page) else { return };
        let first_page = range.block_pages(page).start;
        let pages = PageMask::single((page - first_page) as usize);
        let (who, mut held) = ((by, access), HeldOff::default());
        let faulted = || Faulted { first_page, pages: &pages, came: None };
        while let Some(until_ns) = self.service(who, faulted(), &mut held, touched, sink) {
            self.hold_off(until_ns, by, record, touched, sink);
        }
    }

    /// Lets time pass until a throttled processor goes on, which is later than it may. A GPU faults
    /// again in each batch until its service gives up and waits; the host sleeps in its one fault
    /// (PAGING-29).
    pub(super) fn hold_off(
        &mut self,
        until_ns: u64,
        by: ProcId,
        record: MemoryEvent,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) {
        touched.throttles += 1;
        if !by.is_host() {
            for _ in 0..self.params.throttled_batches_per_service {
                sink.record(record);
            }
        }
        let wait_ns = until_ns.saturating_sub(touched.now_ns);
        touched.pass(if by.is_host() {
            host_nap_ns(wait_ns)
        } else {
            wait_ns.saturating_add(REFAULT_NS)
        });
        // A nap leads beyond the end of the clock: a wait that never ended would hang the call.
        touched.now_ns = touched.now_ns.max(until_ns.saturating_add(1));
        self.advance(touched.now_ns, sink);
    }
}
