//! Reservation and eviction: memory on a GPU for pages that are about to arrive, taken from others
//! if none is free.
//!
//! Memory once given stays when pages leave; it goes at eviction and with the range. Evicted
//! pages go to the host, whatever was advised. PAGING-210 to PAGING-217 are the driver's rules.
//! No recording shows an eviction.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "GPUs come after the host; pages of one block; chunks and evictions are counted"
)]

use std::ops::Range;

use pagewise_hal::{CopyCause, MapCause, Processor};

use super::block::Block;
use super::chunks::{Chunks, List, RootId};
use super::context::Context;
use super::engine::Paging;
use super::mask::{PAGES, PageMask};
use super::moves::Reason;
use super::processor::ProcId;
use super::report::{Holding, ReportSink, Work, WorkCause};

/// Pages in a 64 KiB chunk.
const BIG: usize = 16;

/// A step needs a chunk that holds pages of the block that it has taken out of its range. It puts
/// the block back and begins again once the chunk is empty.
#[derive(Debug)]
pub(super) struct OwnChunk {
    id: ProcId,
    chunk: RootId,
    now_ns: u64,
}

impl Paging {
    /// Runs a step on one block, and again whenever the block itself had to give memory up.
    ///
    /// The driver drops the block's lock to evict, keeps what the step took so far, and begins the
    /// step anew (PAGING-28). So a chunk with older pages of the block may go like any other.
    pub(super) fn with_memory<T>(
        &mut self,
        sink: &mut dyn ReportSink,
        mut step: impl FnMut(&mut Self, &mut dyn ReportSink) -> Result<T, OwnChunk>,
    ) -> T {
        loop {
            match step(self, sink) {
                Ok(done) => {
                    self.chunks.iter_mut().for_each(Chunks::unpin);
                    return done;
                }
                Err(OwnChunk { id, chunk, now_ns }) => self.evict(id, chunk, now_ns, sink),
            }
        }
    }

    /// Provides memory on `id` for pages of a block that is taken out of its range, within
    /// [`with_memory`](Self::with_memory).
    pub(super) fn reserve(
        &mut self,
        block: &mut Block,
        id: ProcId,
        pages: PageMask,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Result<(), OwnChunk> {
        if id.is_host() {
            return Ok(()); // The host's memory is provided by the move itself.
        }
        if block.is_populated(id) {
            return Ok(());
        }
        if block.is_full_size() {
            if !pages.is_empty() {
                self.give_chunk(block, id, 0..PAGES, now_ns, sink)?;
                report_given(block, id, block.all(), (PAGES, 1), sink);
                block.populate_all(id);
            }
            return Ok(());
        }
        let mut given = PageMask::EMPTY;
        let (mut given_chunks, mut given_pages) = (0, 0);
        let mut room = Ok(());
        for chunk in chunks_for(block, pages.minus(block.populated(id))) {
            room = self.give_chunk(block, id, chunk.clone(), now_ns, sink);
            if room.is_err() {
                break;
            }
            given_chunks += 1;
            given_pages += chunk.len();
            given.insert_range(chunk);
        }
        if given_chunks > 0 {
            report_given(block, id, given, (given_pages, given_chunks), sink);
            block.populate(id, given);
        }
        room
    }

    /// Takes a chunk for these pages of a block, or a piece of one.
    fn give_chunk(
        &mut self,
        block: &Block,
        id: ProcId,
        chunk: Range<usize>,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Result<(), OwnChunk> {
        let len = chunk.len() as u16;
        self.make_room(block, id, len, now_ns, sink)?;
        let chunks = &mut self.chunks[id.index() - 1];
        let root = chunks.allocate(block.first_page() + chunk.start as u64, len);
        chunks.pin(root);
        Ok(())
    }

    /// Evicts until a piece of this length fits, for a block that is taken out of its range.
    fn make_room(
        &mut self,
        block: &Block,
        id: ProcId,
        len: u16,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Result<(), OwnChunk> {
        let gpu = id.index() - 1;
        while !self.chunks[gpu].has_room(len) {
            let chunk = self.chunks[gpu].next_to_give_up().or_else(|| {
                // All chunks are the step's own, each shared with other blocks. The driver fails
                // here; no device is so small. One empty chunk has room for the whole block.
                self.chunks[gpu].unpin();
                self.chunks[gpu].next_to_give_up()
            });
            let Some(chunk) = chunk else { break };
            if self.chunks[gpu].has_piece_in(chunk, &block.pages()) {
                return Err(OwnChunk { id, chunk, now_ns });
            }
            self.evict(id, chunk, now_ns, sink);
        }
        Ok(())
    }

    /// Leaves this much of a GPU's memory to allocations that do not migrate. Managed pages leave
    /// as long as there is less than that.
    pub(crate) fn claim(
        &mut self,
        gpu: Processor,
        bytes: u64,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        let id = ProcId::from(gpu);
        let Some(index) = id.index().checked_sub(1) else { return };
        self.chunks[index].claim(bytes);
        while self.chunks[index].is_over() {
            let Some(victim) = self.chunks[index].next_to_give_up() else { break };
            self.evict(id, victim, now_ns, sink);
        }
    }

    /// Empties a chunk: its pages go to the host, one va_block after the other, each in one step
    /// (EVICTION-15).
    fn evict(&mut self, id: ProcId, chunk: RootId, now_ns: u64, sink: &mut dyn ReportSink) {
        self.evictions += 1;
        let gpu = id.index() - 1;
        let cause = (WorkCause::Eviction, Some(id));
        if let Some(first) = self.chunks[gpu].whole_block(chunk) {
            let pages = first..first + PAGES as u64;
            self.on_existing(&pages, cause, now_ns, sink, |context, block, within| {
                context.evict(block, id, within);
            });
            self.chunks[gpu].evict(&pages);
            return;
        }
        while let Some(first) = self.chunks[gpu].first_piece(chunk) {
            let block = self.block(first).map_or(first..first + 1, Block::pages);
            let pieces = self.chunks[gpu].pieces_in(chunk, &block);
            self.on_existing(&block, cause, now_ns, sink, |context, block, _| {
                let page = |page: u64| (page - block.first_page()) as usize;
                let mut pages = PageMask::EMPTY;
                for piece in &pieces {
                    pages.insert_range(page(piece.start)..page(piece.end));
                }
                context.evict(block, id, pages);
            });
            pieces.iter().for_each(|piece| self.chunks[gpu].evict(piece));
        }
    }
}

impl Context<'_> {
    /// Moves what a GPU holds of these pages to the host and gives its memory back.
    fn evict(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        if self.is_plain(block, id) {
            self.leave_plainly(block, id, &pages);
            self.gone(block, id, pages);
            return;
        }
        let leaving = pages & (block.resident(id) | block.discarded());
        self.move_pages(block, ProcId::HOST, leaving, &Reason::of(CopyCause::Eviction));
        self.gone(block, id, pages);
        // Accessed-by processors follow the pages, later on the driver, at once here.
        for by in self.policy.accessed_by.iter() {
            self.accessed_by_added(block, by);
        }
        // Where accesses are counted, a GPU goes on reaching what left it, until the counters bring
        // it back (PAGING-216). Not compared with hardware.
        if self.params.access_counters.enable {
            self.map_highest(block, id, leaving, Some(MapCause::Eviction));
        }
    }

    /// The chunk of a full block on a GPU goes to the end of a list; not if the running step took
    /// it, and not on the host.
    pub(super) fn mark(&mut self, block: &Block, id: ProcId, list: List) {
        if let Some(gpu) = id.index().checked_sub(1)
            && block.is_full_size()
            && let Some(chunks) = self.chunks.get_mut(gpu)
        {
            chunks.note(block.first_page(), list);
        }
    }

    /// Pages came to a processor, or were there already (EVICTION-10).
    pub(super) fn mark_if_held(&mut self, block: &Block, id: ProcId) {
        if block.holds_any(id) {
            self.mark(block, id, List::Used);
        }
    }

    /// A fault was serviced, and left all pages of the block discarded (EVICTION-12).
    pub(super) fn mark_if_all_discarded(&mut self, block: &Block, by: ProcId) {
        if block.is_discarded() {
            self.mark(block, by, List::Discarded);
        }
    }

    /// The memory of pages is no longer theirs.
    fn gone(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        if self.wants.holdings {
            self.note_holding(block, id, pages & block.populated(id), Holding::Gone);
        }
        block.depopulate(id, &pages);
        self.work.evictions += 1;
    }
}

/// Reports that pages of a block are about to get memory of a GPU: so many, in so many chunks.
fn report_given(
    block: &Block,
    id: ProcId,
    given: PageMask,
    (pages, chunks): (usize, u64),
    sink: &mut dyn ReportSink,
) {
    // New chunks are zeroed where nothing valid is resident (PAGING-64).
    let valid = block.resident_anywhere().minus(block.discarded());
    sink.work(&Work {
        cause: WorkCause::Allocation,
        processor: Some(id.into()),
        block: block.first_page(),
        pages_populated_device: pages as u64,
        zeroed_runs_device: given.minus(valid).run_count() as u64,
        chunks_device: chunks,
        ..Work::default()
    });
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
mod steps;

#[cfg(test)]
mod tests {
    use super::super::testing::Heard;
    use super::super::{Access, Discard, GpuMemory, Relations};
    use super::*;
    use crate::GpuProfile;
    use pagewise_hal::{MemoryEvent, Processor};

    const GPU0: Processor = Processor::device(0);
    const HOST: Processor = Processor::HOST;

    fn paging(chunks: u64) -> Paging {
        let gpus = [GpuMemory { capacity_bytes: chunks << 21 }];
        let mut paging =
            Paging::new(GpuProfile::h200().paging, &gpus, Relations::pcie_with_nvlink(1));
        paging.create_range(0, 4 * 512);
        paging
    }

    fn evicted(records: &[MemoryEvent]) -> Vec<u64> {
        let page = |record: &MemoryEvent| match record {
            MemoryEvent::Copy { address, cause: CopyCause::Eviction, .. } => Some(address / 4096),
            _ => None,
        };
        records.iter().filter_map(page).collect()
    }

    #[test]
    fn the_block_serviced_longest_ago_goes_first() {
        let mut paging = paging(2);
        let mut records = Vec::new();
        for block in [0, 1, 0, 2] {
            paging.migrate(block * 512..block * 512 + 512, GPU0, 0, &mut records);
        }
        assert_eq!(evicted(&records), [512]);
        assert_eq!(paging.resident_on(512), [HOST]);
        assert_eq!(paging.resident_on(1024), [GPU0]);
    }

    #[test]
    fn a_migration_larger_than_the_device_brings_everything_twice() {
        let mut paging = paging(2);
        let mut records = Vec::new();
        paging.migrate(0..4 * 512, Processor::HOST, 0, &mut records);
        records.clear();
        paging.migrate(0..4 * 512, GPU0, 0, &mut records);
        assert_eq!(evicted(&records), [0, 512, 1024, 1536, 0, 512]);
    }

    #[test]
    fn discarded_pages_leave_without_a_copy() {
        let mut paging = paging(1);
        let mut records = Vec::new();
        paging.migrate(0..512, GPU0, 0, &mut records);
        paging.discard(0..512, Discard::Lazy, 0, &mut records);
        records.clear();
        paging.migrate(512..1024, GPU0, 0, &mut records);
        assert_eq!(records, []);
        assert_eq!(paging.resident_on(0), [HOST]);
    }

    #[test]
    fn a_chunk_of_discarded_pages_goes_before_older_ones_with_data() {
        // PAGING-212: the head of DISCARDED comes before the head of USED.
        let mut paging = paging(2);
        let mut records = Vec::new();
        paging.migrate(0..1024, GPU0, 0, &mut records);
        paging.discard(512..1024, Discard::Lazy, 0, &mut records);
        paging.migrate(1024..1536, GPU0, 0, &mut records);
        assert_eq!(paging.resident_on(0), [GPU0], "serviced longest ago, and stays");
        assert_eq!(paging.resident_on(512), [Processor::HOST]);
    }

    #[test]
    fn a_chunk_that_its_pages_have_left_goes_before_older_ones_with_data() {
        // PAGING-212: the head of UNUSED comes first.
        let mut paging = paging(2);
        let mut records = Vec::new();
        paging.migrate(0..1024, GPU0, 0, &mut records);
        paging.migrate(512..1024, Processor::HOST, 0, &mut records);
        paging.migrate(1024..1536, GPU0, 0, &mut records);
        assert_eq!(evicted(&records), [0; 0], "there was nothing left to copy");
        assert_eq!(paging.resident_on(0), [GPU0]);
    }

    #[test]
    fn a_chunk_without_pages_keeps_its_place_when_its_block_is_serviced_elsewhere() {
        // EVICTION-11: a chunk comes to UNUSED when its last page leaves, and only services that
        // bring pages to it move it.
        let gpus = [GpuMemory { capacity_bytes: 2 << 21 }, GpuMemory { capacity_bytes: 4 << 21 }];
        let relations = Relations::pcie_with_nvlink(2);
        let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, relations);
        paging.create_range(0, 4 * 512);
        let mut records = Vec::new();
        paging.migrate(0..1024, GPU0, 0, &mut records);
        paging.migrate(0..512, Processor::HOST, 0, &mut records);
        paging.migrate(512..1024, Processor::HOST, 0, &mut records);
        // Discarded pages of read-mostly memory go to the preferred location, whatever the
        // migration's destination is (PAGING-173).
        paging.set_read_mostly(0..512, true, 0, &mut records);
        paging.set_preferred(0..512, Some(Processor::device(1)), 0, &mut records);
        paging.discard(0..511, Discard::Eager, 0, &mut records);
        paging.migrate(0..511, GPU0, 0, &mut records);
        assert_eq!(paging.resident_on(0), [Processor::device(1)]);
        paging.migrate(1024..1536, GPU0, 0, &mut records);
        let has_memory =
            |page| !paging.block(page).expect("a block").populated(ProcId::from(GPU0)).is_empty();
        assert_eq!((has_memory(0), has_memory(512)), (false, true), "the first to be empty went");
    }

    #[test]
    fn discarded_pages_without_a_holder_are_the_hosts_after_an_eviction() {
        // PAGING-214: no copy, and the pages become resident on the host.
        let mut paging = paging(1);
        let mut records = Vec::new();
        paging.migrate(0..512, GPU0, 0, &mut records);
        paging.discard(0..512, Discard::Eager, 0, &mut records);
        assert_eq!(paging.resident_on(0), []);
        paging.migrate(512..1024, GPU0, 0, &mut records);
        assert_eq!(paging.resident_on(0), [Processor::HOST]);
    }

    #[test]
    fn new_memory_is_zeroed_where_no_contents_will_come() {
        // PAGING-64: where a page is resident nowhere, or discarded.
        let mut paging = paging(1);
        paging.migrate(0..512, Processor::HOST, 0, &mut Vec::new());
        for (discarded, runs) in [(0..0, 0), (4..6, 1), (100..101, 2)] {
            paging.discard(discarded, Discard::Lazy, 0, &mut Vec::new());
            let mut heard = Heard::default();
            paging.touch(GPU0, 40, Access::Read, 0, &mut heard);
            let given: Vec<_> =
                heard.work.iter().filter(|work| work.cause == WorkCause::Allocation).collect();
            let [given] = given[..] else { panic!("{given:?}") };
            assert_eq!(given.zeroed_runs_device, runs);
            // The chunk goes again, and the pages are the host's as before.
            paging.claim(GPU0, 1 << 21, 0, &mut Vec::new());
            paging.claim(GPU0, 0, 0, &mut Vec::new());
        }
    }

    #[test]
    fn accessed_by_processors_follow_evicted_pages() {
        // PAGING-215.
        let mut paging = paging(1);
        paging.set_accessed_by(0..512, GPU0, true, 0, &mut Vec::new());
        paging.migrate(0..512, GPU0, 0, &mut Vec::new());
        let mut records: Vec<MemoryEvent> = Vec::new();
        paging.migrate(512..1024, GPU0, 0, &mut records);
        assert_eq!(evicted(&records), [0]);
        let remote = MemoryEvent::RemoteMap {
            address: 0,
            bytes: 2 << 20,
            by: GPU0,
            at: Processor::HOST,
            cause: MapCause::Policy,
        };
        assert!(records.contains(&remote), "{records:?}");
        assert!(paging.mapping(0, GPU0).is_some());
    }

    #[test]
    fn other_allocations_push_managed_pages_out() {
        let mut paging = paging(4);
        let mut records = Vec::new();
        paging.migrate(0..3 * 512, GPU0, 0, &mut records);
        records.clear();
        paging.claim(GPU0, 2 << 21, 0, &mut records);
        assert_eq!(evicted(&records), [0]);
        assert_eq!((paging.device_chunks_in_use(GPU0), paging.resident_pages(GPU0)), (2, 1024));
        paging.migrate(0..512, GPU0, 0, &mut records);
        assert_eq!(evicted(&records), [0, 512], "there is still no more room than before");
        paging.claim(GPU0, 0, 0, &mut records);
        paging.migrate(512..1024, GPU0, 0, &mut records);
        assert_eq!(paging.resident_pages(GPU0), 3 * 512);
    }

    /// Splits the blocks at these pages.
    fn split(paging: &mut Paging, at: &[u64]) {
        for page in at {
            let (start, to) = (page / 512 * 512, Some(GPU0));
            paging.set_preferred(start..*page, to, 0, &mut Vec::new());
        }
    }

    #[test]
    fn a_short_block_gives_up_its_own_older_memory_in_its_turn() {
        let mut paging = paging(2);
        split(&mut paging, &[256, 512 + 256]);
        let mut records = Vec::new();
        for pages in [0..16, 512..768, 768..1008, 1024..1536] {
            paging.migrate(pages, GPU0, 0, &mut records);
        }
        assert_eq!((evicted(&records), paging.device_chunks_in_use(GPU0)), (vec![], 2));
        paging.migrate(16..32, GPU0, 0, &mut records);
        let on = |page| paging.resident_on(page);
        assert_eq!((on(0), on(512), on(1007)), (vec![HOST], vec![HOST], vec![HOST]));
        assert_eq!((on(16), on(1024)), (vec![GPU0], vec![GPU0]));
    }

    #[test]
    fn a_short_block_that_fits_beside_no_other_gets_the_last_chunk_alone() {
        let mut paging = paging(1);
        split(&mut paging, &[100, 512 + 500]);
        paging.migrate(0..100, GPU0, 0, &mut Vec::new());
        paging.migrate(512..1012, GPU0, 0, &mut Vec::new());
        assert_eq!((paging.device_chunks_in_use(GPU0), paging.resident_pages(GPU0)), (1, 500));
        assert_eq!((paging.resident_on(0), paging.resident_on(512)), (vec![HOST], vec![GPU0]));
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
