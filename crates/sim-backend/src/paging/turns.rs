//! Accesses of one thread that makes those of several walks in turn: place 0 of each walk, then
//! place 1 of each, and so on.
//!
//! As in a single walk, each access is complete before the next is made (PAGING-20, PAGING-22), and
//! accesses to mapped pages cost nothing here.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "pages of live memory; places and faults are counted"
)]

use pagewise_hal::{PAGE_BYTES, Processor};

use super::access::Access;
use super::engine::Paging;
use super::mask::PAGES;
use super::processor::ProcId;
use super::report::ReportSink;
use super::walk::Touched;
use crate::places::Places;

/// One walk of a kernel: the access at each of its places.
#[derive(Debug, Clone)]
pub(crate) struct TurnWalk {
    pub(crate) access: Access,
    pub(crate) places: Places,
}

impl Paging {
    /// The accesses of one thread. Places outside of all ranges are passed over.
    pub(crate) fn walk_in_turn(
        &mut self,
        by: Processor,
        walks: &[TurnWalk],
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Touched {
        let by = ProcId::from(by);
        let mut touched = Touched { now_ns, ..Touched::default() };
        // The next place of each walk. Places before it were found mapped since the last eviction.
        let mut next = vec![0; walks.len()];
        self.advance(now_ns, sink);
        loop {
            let left = |number: &usize| next[*number] < walks[*number].places.count();
            let first = (0..walks.len()).filter(left).min_by_key(|&number| next[number]);
            let Some(number) = first else { return touched };
            let TurnWalk { access, places } = &walks[number];
            let place = next[number];
            let page = places.address(place) / PAGE_BYTES;
            let behind = match self.next_fault(by, page, access.needs(by, &self.params)) {
                Some(fault) if fault == page => {
                    let evictions = self.evictions;
                    touched.pass(sink.fault_latency_ns(by.into(), place));
                    self.fault(by, page, *access, &mut touched, sink);
                    if self.evictions != evictions {
                        // Pages that were found mapped ahead of the thread may be gone.
                        for (other, next) in next.iter_mut().enumerate() {
                            *next = (*next).min(place + u64::from(other < number));
                        }
                    }
                    page + 1
                }
                Some(fault) => fault,
                None => page / PAGES as u64 * PAGES as u64 + PAGES as u64,
            };
            next[number] = places.from(place, behind * PAGE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GpuProfile;
    use crate::paging::{GpuMemory, Relations, Walk};
    use pagewise_hal::{DevicePtr, MemoryEvent, Span, StridedSpan};

    const HOST: Processor = Processor::HOST;
    const GPU0: Processor = Processor::device(0);

    /// Three buffers of 4 blocks, all of them on the host.
    fn paging(chunks: u64) -> Paging {
        let gpus = [GpuMemory { capacity_bytes: chunks << 21 }];
        let relations = Relations::pcie_with_nvlink(1);
        let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, relations);
        for buffer in 0..3 {
            paging.create_range(buffer * 2048, 2048);
        }
        paging.migrate(0..3 * 2048, HOST, 0, &mut Vec::new());
        paging
    }

    fn walk(buffer: u64, access: Access, stride: u64) -> TurnWalk {
        let places = Places::even(buffer * 2048 * PAGE_BYTES, stride, 2048 * PAGE_BYTES / stride);
        TurnWalk { access, places }
    }

    fn fault_pages(records: &[MemoryEvent]) -> Vec<u64> {
        let page = |record: &MemoryEvent| match record {
            MemoryEvent::GpuFault { address, .. } => Some(address / PAGE_BYTES),
            _ => None,
        };
        records.iter().filter_map(page).collect()
    }

    #[test]
    fn one_walk_in_turn_is_a_walk() {
        for (access, stride) in
            [(Access::Read, 4), (Access::Write, PAGE_BYTES), (Access::Atomic, 12_288)]
        {
            let (mut one, mut other) = (paging(64), paging(64));
            let (mut expected, mut records) = (Vec::new(), Vec::new());
            let bytes = 2048 * PAGE_BYTES / stride * stride;
            let plain = Walk { by: GPU0, first_byte: 0, bytes, stride_bytes: stride, access };
            let touched = one.walk(plain, 7, &mut expected);
            let turns = [walk(0, access, stride)];
            assert_eq!(other.walk_in_turn(GPU0, &turns, 7, &mut records), touched);
            assert_eq!(records, expected);
        }
    }

    #[test]
    fn the_faults_of_walks_alternate_page_by_page() {
        let walks = [walk(0, Access::Read, 4), walk(1, Access::Read, 4), walk(2, Access::Write, 4)];
        let mut records = Vec::new();
        paging(64).walk_in_turn(GPU0, &walks, 0, &mut records);
        let faults = fault_pages(&records);
        assert_eq!(faults[..3], [0, 2048, 4096], "page 0 of each buffer, in order");
        let buffers: Vec<u64> = faults.iter().map(|page| page / 2048).collect();
        assert!(buffers.chunks(3).all(|turn| turn == [0, 1, 2]), "{buffers:?}");
    }

    /// Carries accesses out one at a time, without passing over any.
    fn step_by_step(paging: &mut Paging, walks: &[TurnWalk]) -> Vec<MemoryEvent> {
        let mut records = Vec::new();
        let mut now_ns = 0;
        let most = walks.iter().map(|walk| walk.places.count()).max().unwrap_or(0);
        for place in 0..most {
            for TurnWalk { access, places } in walks {
                if place < places.count() {
                    let page = places.address(place) / PAGE_BYTES;
                    now_ns = paging.touch(GPU0, page, *access, now_ns, &mut records).now_ns;
                }
            }
        }
        records
    }

    #[test]
    fn no_access_is_passed_over_when_pages_push_each_other_out() {
        // 12 blocks in all, room for 3, 4 and 5 of them; the last walk goes backwards.
        let byte = |page: u64| Span::new(DevicePtr(page * PAGE_BYTES), 1);
        let back = (0..40).rev().map(|at| byte(4096 + at * 51));
        let back: Vec<_> = back.map(|span| StridedSpan { span, stride_bytes: 1 }).collect();
        let back = Places::of(&back);
        let walks = [
            walk(0, Access::Read, 256 * PAGE_BYTES),
            walk(1, Access::Write, 100 * PAGE_BYTES),
            TurnWalk { access: Access::Read, places: back },
        ];
        for chunks in [3, 4, 5] {
            let mut records = Vec::new();
            paging(chunks).walk_in_turn(GPU0, &walks, 0, &mut records);
            let expected = step_by_step(&mut paging(chunks), &walks);
            assert_eq!(fault_pages(&records), fault_pages(&expected), "{chunks} chunks");
            assert!(!records.is_empty());
        }
    }
}
