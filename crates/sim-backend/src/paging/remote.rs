//! Migration by access counters: memory that a GPU keeps reaching remotely moves to it.
//!
//! When a count reaches the threshold, the driver is told, moves what was accessed to where the GPU
//! wants it, and the count starts again (PAGING-240, as nvidia-uvm 595 has it). Accessed-by does not
//! hold the pages.
//!
//! Off on PCIe hosts. Nothing here was compared with hardware. In particular it is assumed that
//! each access of a program counts once, and that the driver acts when the program is over: its
//! work is beside the program's and takes none of its time.
#![allow(clippy::arithmetic_side_effects, reason = "a page of a block is below its length")]

use std::collections::BTreeMap;

use pagewise_hal::{CopyCause, MapCause, Processor};

use super::access::Access;
use super::block::Block;
use super::engine::Paging;
use super::evict::OwnChunk;
use super::mask::PageMask;
use super::moves::Reason;
use super::processor::{ProcId, ProcSet};
use super::protection::Protection;
use super::range::Policy;
use super::report::{ReportSink, WorkCause};
use super::thrash::{self, Hint};
use super::walk::Walk;
use super::{prefetcher, residency};

impl Paging {
    /// Counts the remote accesses of a GPU's walk, and moves what is to move. The walk is over: what
    /// it faulted on is where it is now.
    #[inline]
    pub(crate) fn count_accesses(&mut self, walk: &Walk, now_ns: u64, sink: &mut dyn ReportSink) {
        if self.params.access_counters.enable && walk.by != Processor::HOST {
            self.count_accesses_of(walk, now_ns, sink);
        }
    }

    fn count_accesses_of(&mut self, walk: &Walk, now_ns: u64, sink: &mut dyn ReportSink) {
        let by = ProcId::from(walk.by);
        let Some(pages) = walk.pages() else { return };
        let threshold = u64::from(self.params.access_counters.threshold);
        for piece in self.ranges.pieces(&pages) {
            let Some(range) = self.ranges.containing(piece.start) else { continue };
            let (Some(block), policy) = (range.block(piece.start), range.policy) else { continue };
            let touched = walk.pages_within(&piece, block.first_page());
            let remote = (touched & block.mapped(by, Protection::Read)).minus(block.resident(by));
            if remote.is_empty() {
                continue;
            }
            let first_page = block.first_page();
            let accesses = remote.pages().map(|page| walk.accesses_in(first_page + page as u64));
            let counted = (accesses.sum(), remote);
            if let Some(told) = self.counters.count(by, block, counted, threshold) {
                self.serve_counters(by, piece.start, told, policy, now_ns, sink);
            }
        }
    }

    /// The driver was told that a GPU keeps reaching these pages of the block that holds `page`.
    fn serve_counters(
        &mut self,
        by: ProcId,
        page: u64,
        told: PageMask,
        policy: Policy,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        self.with_memory(sink, |paging, sink| {
            paging.serve_counters_once(by, page, told, policy, now_ns, sink)
        });
    }

    fn serve_counters_once(
        &mut self,
        by: ProcId,
        page: u64,
        told: PageMask,
        policy: Policy,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Result<(), OwnChunk> {
        let Some(mut block) = self.ranges.containing_mut(page).and_then(|range| range.take(page))
        else {
            return Ok(());
        };
        let groups = self.destinations(by, &mut block, told, policy, now_ns, sink);
        let single = groups.len() == 1;
        for (destination, pages) in groups {
            let cause = (WorkCause::Migration, Some(by));
            let context = self.context(&block, policy, cause, now_ns, sink);
            let prefetched = if single {
                prefetcher::pages_to_prefetch(context.by_policy(), &mut block, pages, destination)
            } else {
                PageMask::EMPTY
            };
            let pages = pages | prefetched;
            let there = self.reserve(&mut block, destination, pages, now_ns, sink);
            if there.is_err() {
                self.put(block);
                return there;
            }
            let mut context = self.context(&block, policy, cause, now_ns, sink);
            let reason =
                Reason { cause: CopyCause::AccessCounters, prefetched, pinned: PageMask::EMPTY };
            context.move_pages(&mut block, destination, pages, &reason);
            let levels = context.promoted(&block, by, destination, pages, Protection::Read);
            for (level, protection) in levels.into_iter().zip(Protection::ALL) {
                context.map(&mut block, by, level, protection, Some(MapCause::Policy));
                let who = (by, destination);
                context.map_others(&mut block, who, level, protection, ProcSet::EMPTY);
            }
            block.remove_discarded(levels[1] | levels[2]);
            context.mark_if_all_discarded(&block, by);
            context.finish();
        }
        self.put(block);
        Ok(())
    }

    /// Where the pages go, lowest processor first; those that stay are left out.
    fn destinations(
        &mut self,
        by: ProcId,
        block: &mut Block,
        told: PageMask,
        policy: Policy,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> BTreeMap<ProcId, PageMask> {
        let closest = self.relations.closest(by, block.residents().without(by));
        let held = closest.map_or(PageMask::EMPTY, |id| block.resident(id));
        let wanted = (told & held).minus(block.resident(by)).minus(block.duplicated());
        let mut ignoring = policy;
        ignoring.accessed_by.remove(by);
        let mut context =
            self.context(block, ignoring, (WorkCause::Migration, Some(by)), now_ns, sink);
        let mut groups: BTreeMap<ProcId, PageMask> = BTreeMap::new();
        for page in wanted.pages() {
            let hint = thrash::hint(&mut context, block, page, by);
            if matches!(hint, Hint::Throttle { .. }) {
                continue;
            }
            let to = residency::select(&context, block, page, by, Access::Read, hint).destination;
            if !block.resident(to).contains(page) {
                groups.entry(to).or_insert(PageMask::EMPTY).insert(page);
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::{MemoryEvent, PAGE_BYTES, Processor};

    use super::super::mask::PAGES;
    use super::super::{GpuMemory, PagingParams, Relations};
    use super::*;
    use crate::profile::GpuProfile;

    const GPU: Processor = Processor::device(0);
    const HOST: Processor = Processor::HOST;
    const PAGES_PER_BLOCK: u64 = PAGES as u64;

    /// A coherent machine with two blocks on the host, which the GPU is advised to access.
    fn paging(params: PagingParams) -> Paging {
        let profile = GpuProfile::named("gh200").expect("a shipped profile");
        let relations = Relations::new(profile.host_link, profile.peer_link, 1);
        let mut paging = Paging::new(params, &[GpuMemory { capacity_bytes: 1 << 30 }], relations);
        let all = 0..2 * PAGES_PER_BLOCK;
        let mut records = Vec::new();
        paging.create_range(0, 2 * PAGES_PER_BLOCK);
        paging.migrate(all.clone(), HOST, 0, &mut records);
        paging.set_accessed_by(all, GPU, true, 0, &mut records);
        paging
    }

    fn gh200() -> PagingParams {
        GpuProfile::named("gh200").expect("a shipped profile").paging
    }

    /// The GPU reads once in each of so many pages; returns what was recorded.
    fn read(paging: &mut Paging, first_page: u64, pages: u64) -> Vec<MemoryEvent> {
        let walk = Walk {
            by: GPU,
            first_byte: first_page * PAGE_BYTES,
            bytes: pages * PAGE_BYTES,
            stride_bytes: PAGE_BYTES,
            access: Access::Read,
        };
        let mut records = Vec::new();
        paging.walk(walk, 0, &mut records);
        paging.count_accesses(&walk, 0, &mut records);
        records
    }

    fn copied_pages(records: &[MemoryEvent], why: CopyCause) -> u64 {
        let bytes = |record: &MemoryEvent| match record {
            MemoryEvent::Copy { bytes, cause, .. } if *cause == why => *bytes,
            _ => 0,
        };
        records.iter().map(bytes).sum::<u64>() / PAGE_BYTES
    }

    #[test]
    fn pages_move_when_the_threshold_is_reached_and_not_before() {
        let mut paging = paging(gh200());
        for round in 1..16 {
            let records = read(&mut paging, 0, 16);
            assert_eq!(records, [], "{} accesses", 16 * round);
            assert_eq!(paging.resident_on(0), [HOST]);
        }
        let records = read(&mut paging, 0, 16);
        assert_eq!(copied_pages(&records, CopyCause::AccessCounters), 16, "256 accesses");
        assert_eq!(paging.resident_on(0), [GPU]);
        assert_eq!(paging.resident_on(16), [HOST], "another 64 KiB");
        assert_eq!(read(&mut paging, 0, 16), [], "local now");
    }

    #[test]
    fn all_of_a_touched_64_kib_comes_along_and_the_tree_adds_its_own() {
        let mut paging = paging(gh200());
        // One page in each of the first 9 of 32 sub-regions, until the count is full.
        let mut moved = Vec::new();
        while moved.is_empty() {
            for region in 0..9 {
                moved.extend(read(&mut paging, region * 16, 1));
            }
        }
        assert_eq!(copied_pages(&moved, CopyCause::AccessCounters), 9 * 16);
        // 144 of 256 pages are more than 51 %, 144 of 512 are not.
        assert_eq!(copied_pages(&moved, CopyCause::Prefetch), 256 - 9 * 16);
    }

    #[test]
    fn each_block_is_counted_for_itself() {
        let mut paging = paging(gh200());
        assert_eq!(read(&mut paging, 0, 255), []);
        assert_eq!(read(&mut paging, PAGES_PER_BLOCK, 255), []);
        assert_ne!(read(&mut paging, PAGES_PER_BLOCK, 1), []);
        assert_eq!(paging.resident_on(0), [HOST]);
    }

    #[test]
    fn memory_that_prefers_the_host_stays_there() {
        let mut paging = paging(gh200());
        let all = 0..2 * PAGES_PER_BLOCK;
        paging.set_preferred(all, Some(HOST), 0, &mut Vec::new());
        for _ in 0..4 {
            assert_eq!(copied_pages(&read(&mut paging, 0, 512), CopyCause::AccessCounters), 0);
        }
        assert_eq!(paging.resident_on(0), [HOST]);
    }

    #[test]
    fn nothing_is_counted_where_counters_are_off() {
        let mut paging = paging(GpuProfile::h200().paging);
        for _ in 0..4 {
            assert_eq!(read(&mut paging, 0, 512), []);
        }
        assert!(paging.counters.0.is_empty());
    }

    #[test]
    fn freed_memory_is_no_longer_counted() {
        let mut paging = paging(gh200());
        read(&mut paging, 0, 255);
        paging.destroy_range(0, 2 * PAGES_PER_BLOCK);
        assert!(paging.counters.0.is_empty());
    }
}
