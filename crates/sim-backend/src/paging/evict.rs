//! Room on GPUs: memory for pages that are about to arrive, and eviction of others if there is
//! none left.
//!
//! Memory once given stays when pages leave; it goes at eviction and with the range. What is
//! evicted goes to the host, whatever was advised. Source: uvm_policy 1.3 to 1.5 and 7. No
//! recording shows an eviction.

use std::ops::Range;

use pagewise_hal::{CopyCause, MapCause, Processor};

use super::block::Block;
use super::chunks::{List, RootId};
use super::event::{EventSink, Holding, Step, Work};
use super::mask::{PAGES, PageMask};
use super::moves::Reason;
use super::processor::ProcId;
use super::{Context, Paging};

/// Pages in a 64 KiB chunk.
const BIG: usize = 16;

impl Paging {
    /// Provides memory on `id` for pages of a block that is taken out of its range.
    pub(super) fn reserve(
        &mut self,
        block: &mut Block,
        id: ProcId,
        pages: PageMask,
        now_ns: u64,
        sink: &mut dyn EventSink,
    ) {
        if id.is_host() {
            return; // The host's memory is provided by the move itself.
        }
        if block.is_populated(id) {
            return;
        }
        let missing = pages.minus(block.populated(id));
        if missing.is_empty() {
            return;
        }
        let gpu = id.index() - 1;
        let keep = block.first_page()..block.first_page() + block.len() as u64;
        let mut given = PageMask::EMPTY;
        let mut given_chunks = 0;
        for chunk in chunks_for(block, missing) {
            let len = chunk.len() as u16;
            while !self.chunks[gpu].has_room(len) {
                let Some(victim) = self.chunks[gpu].next_to_give_up(&keep) else { break };
                self.evict(id, victim, now_ns, sink);
            }
            self.chunks[gpu].allocate(keep.start + chunk.start as u64, len);
            given.insert_range(chunk);
            given_chunks += 1;
        }
        // New chunks are zeroed where nothing valid is resident (uvm_policy 1.5).
        let valid = block.resident_anywhere().minus(block.discarded());
        block.populate(id, given);
        let mut work =
            Work { step: Step::Allocation, processor: Some(id.into()), ..Work::default() };
        work.block = block.first_page();
        work.pages_populated_device = given.count() as u64;
        work.zeroed_runs_device = given.minus(valid).run_count() as u64;
        work.chunks_device = given_chunks;
        sink.work(&work);
    }

    /// Leaves this much of a GPU's memory to allocations that do not migrate. Managed pages leave
    /// as long as there is less than that.
    pub(crate) fn claim(
        &mut self,
        gpu: Processor,
        bytes: u64,
        now_ns: u64,
        sink: &mut dyn EventSink,
    ) {
        let id = ProcId::from(gpu);
        let Some(index) = id.index().checked_sub(1) else { return };
        self.chunks[index].claim(bytes);
        while self.chunks[index].is_over() {
            let Some(victim) = self.chunks[index].next_to_give_up(&(0..0)) else { break };
            self.evict(id, victim, now_ns, sink);
        }
    }

    /// Empties a chunk: what is in it goes to the host.
    fn evict(&mut self, id: ProcId, chunk: RootId, now_ns: u64, sink: &mut dyn EventSink) {
        self.evictions += 1;
        let gpu = id.index() - 1;
        while let Some(piece) = self.chunks[gpu].first_piece(chunk) {
            let mut left = piece.clone();
            while let Some(part) = self.ranges.first_piece(&left) {
                let step = (Step::Eviction, Some(id));
                self.on_existing(&part, step, now_ns, sink, |context, block, within| {
                    context.evict(block, id, within);
                });
                left.start = part.end;
            }
            self.chunks[gpu].free(&piece);
        }
    }

    /// Tells the chunk lists what a full block holds after a step.
    pub(super) fn note_chunks(&mut self, block: &Block, serviced: Option<ProcId>) {
        if !block.is_full_size() {
            return;
        }
        for (gpu, chunks) in self.chunks.iter_mut().enumerate() {
            let id = ProcId(gpu as u8 + 1);
            if !block.has_memory(id) {
                continue;
            }
            let list = if !block.holds_any(id) {
                List::Unused
            } else if block.is_discarded() {
                List::Discarded
            } else {
                List::Used
            };
            chunks.note(block.first_page(), list, serviced == Some(id) && list != List::Unused);
        }
    }
}

impl Context<'_> {
    /// Moves what a GPU holds of these pages to the host and gives its memory back.
    fn evict(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        if let Some(held) = self.plain(block, id) {
            self.leave_plainly(block, id, held, pages);
            self.gone(block, id, pages);
            return;
        }
        let leaving = pages & (block.resident(id) | block.discarded());
        self.move_pages(block, ProcId::HOST, leaving, &Reason::of(CopyCause::Eviction));
        self.gone(block, id, pages);
        // Accessed-by processors follow the pages, later on the driver, at once here.
        for by in self.policy.accessed_by.iter() {
            self.follow_evicted(block, by, leaving);
        }
        if self.params.access_counters.enable {
            self.map_evicted(block, id, leaving);
        }
    }

    /// The memory of pages is no longer theirs.
    fn gone(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        self.note_holding(block, id, pages & block.populated(id), Holding::Gone);
        block.depopulate(id, pages);
        self.work.evictions += 1;
    }
}

impl Context<'_> {
    /// Where accesses are counted, a GPU goes on reaching what left it, until the counters bring it
    /// back (uvm_policy 7, `uvm_perf_map_remote_on_eviction`). Not compared with hardware.
    fn map_evicted(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        let elsewhere = self.policy.preferred == Some(id) || self.policy.read_mostly;
        if !elsewhere {
            self.map_highest(block, id, pages, Some(MapCause::Eviction));
        }
    }
}

/// The chunks that hold these pages: all of a full block, else its 64 KiB pages, and single pages
/// before the first and after the last of them.
fn chunks_for(block: &Block, pages: PageMask) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let page = pages.next_set(at);
        if page >= block.len() {
            return None;
        }
        let chunk = chunk_of(block, page);
        at = chunk.end;
        Some(chunk)
    })
}

fn chunk_of(block: &Block, page: usize) -> Range<usize> {
    if block.is_full_size() {
        return 0..PAGES;
    }
    let first = block.first_page() as usize;
    let start = (first + page) / BIG * BIG;
    let inside = start >= first && start + BIG <= first + block.len();
    if inside { start - first..start - first + BIG } else { page..page + 1 }
}

#[cfg(test)]
mod tests {
    use super::super::{GpuMemory, PagingParams, Relations};
    use super::*;
    use pagewise_hal::{MemoryEvent, Processor};

    const GPU0: Processor = Processor::device(0);

    fn paging(chunks: u64) -> Paging {
        let gpus = [GpuMemory { capacity_bytes: chunks << 21 }];
        let mut paging =
            Paging::new(PagingParams::default(), &gpus, Relations::pcie_with_nvlink(1));
        paging.create_range(0, 4 * 512);
        paging
    }

    fn evicted(events: &[MemoryEvent]) -> Vec<u64> {
        let page = |event: &MemoryEvent| match event {
            MemoryEvent::Copy { address, cause: CopyCause::Eviction, .. } => Some(address / 4096),
            _ => None,
        };
        events.iter().filter_map(page).collect()
    }

    #[test]
    fn the_block_serviced_longest_ago_goes_first() {
        let mut paging = paging(2);
        let mut events = Vec::new();
        for block in [0, 1, 0, 2] {
            paging.migrate(block * 512..block * 512 + 512, GPU0, 0, &mut events);
        }
        assert_eq!(evicted(&events), [512]);
        assert_eq!(paging.resident_on(512), [Processor::HOST]);
        assert_eq!(paging.resident_on(1024), [GPU0]);
    }

    #[test]
    fn a_migration_larger_than_the_device_brings_everything_twice() {
        let mut paging = paging(2);
        let mut events = Vec::new();
        paging.migrate(0..4 * 512, Processor::HOST, 0, &mut events);
        events.clear();
        paging.migrate(0..4 * 512, GPU0, 0, &mut events);
        assert_eq!(evicted(&events), [0, 512, 1024, 1536, 0, 512]);
    }

    #[test]
    fn discarded_pages_leave_without_a_copy() {
        let mut paging = paging(1);
        let mut events = Vec::new();
        paging.migrate(0..512, GPU0, 0, &mut events);
        paging.discard(0..512, super::super::Discard::Lazy, 0, &mut events);
        events.clear();
        paging.migrate(512..1024, GPU0, 0, &mut events);
        assert_eq!(events, []);
        assert_eq!(paging.resident_on(0), [Processor::HOST]);
    }

    #[test]
    fn other_allocations_push_managed_pages_out() {
        let mut paging = paging(4);
        let mut events = Vec::new();
        paging.migrate(0..3 * 512, GPU0, 0, &mut events);
        events.clear();
        paging.claim(GPU0, 2 << 21, 0, &mut events);
        assert_eq!(evicted(&events), [0]);
        assert_eq!((paging.device_chunks_in_use(GPU0), paging.resident_pages(GPU0)), (2, 1024));
        paging.migrate(0..512, GPU0, 0, &mut events);
        assert_eq!(evicted(&events), [0, 512], "there is still no more room than before");
        paging.claim(GPU0, 0, 0, &mut events);
        paging.migrate(512..1024, GPU0, 0, &mut events);
        assert_eq!(paging.resident_pages(GPU0), 3 * 512);
    }

    #[test]
    fn a_freed_range_gives_its_memory_back() {
        let mut paging = paging(4);
        paging.migrate(0..2048, GPU0, 0, &mut Vec::new());
        assert_eq!(paging.device_chunks_in_use(GPU0), 4);
        paging.destroy_range(0, 2048);
        assert_eq!(paging.device_chunks_in_use(GPU0), 0);
    }

    #[test]
    fn a_short_block_takes_64_kib_chunks_and_single_pages_at_its_ends() {
        let block = Block::new(10, 100);
        let pages = PageMask::range(4..8) | PageMask::single(99);
        let chunks: Vec<_> = chunks_for(&block, pages).collect();
        assert_eq!(chunks, [4..5, 5..6, 6..22, 99..100]);
    }
}
