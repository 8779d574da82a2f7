//! Claims about single steps of evictions and of the allocations that need them.

use super::super::processor::ProcSet;
use super::super::protection::Protection;
use super::super::range::Policy;
use super::super::testing::{Heard, heard_in, heard_on};
use super::super::thrash::{self, Hint};
use super::super::{Access, Discard, GpuMemory, PagingParams, Relations};
use super::*;
use crate::GpuProfile;
use pagewise_hal::MemoryEvent;

const GPU: ProcId = ProcId(1);
const GPU0: Processor = Processor::device(0);

/// A GPU with this many chunks, and eight full blocks.
fn paging(chunks: u64) -> Paging {
    let gpus = [GpuMemory { capacity_bytes: chunks << 21 }];
    let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, Relations::pcie_with_nvlink(1));
    paging.create_range(0, 8 * 512);
    paging
}

/// Where copies by eviction begin, with their length, in pages.
fn evicted(records: &[MemoryEvent]) -> Vec<(u64, u64)> {
    let run = |record: &MemoryEvent| match record {
        MemoryEvent::Copy { address, bytes, cause: CopyCause::Eviction, .. } => {
            Some((address / 4096, bytes / 4096))
        }
        _ => None,
    };
    records.iter().filter_map(run).collect()
}

/// The first page of the chunk that goes next.
fn next(paging: &mut Paging) -> Option<u64> {
    let chunks = &mut paging.chunks[0];
    let next = chunks.next_to_give_up()?;
    chunks.first_piece(next)
}

#[test]
fn an_eviction_takes_the_pages_of_its_chunk_and_leaves_the_rest_of_the_block() {
    // Pages 0 to 15 have memory on the GPU and are there; a chunk of pages 8 to 23 goes.
    let policy = Policy { preferred: Some(GPU), ..Policy::default() };
    let ((block, evictions), heard) = heard_in(&GpuProfile::h200().paging, policy, |context| {
        let mut block = Block::new(0, 512);
        block.populate(GPU, PageMask::range(0..16));
        block.add_resident(GPU, PageMask::range(0..16));
        context.totals.came(GPU, 16);
        context.evict(&mut block, GPU, PageMask::range(8..24));
        (block, context.work.evictions)
    });
    assert_eq!(block.resident(GPU), PageMask::range(0..8));
    assert_eq!(block.populated(GPU), PageMask::range(0..8));
    assert_eq!(block.resident(ProcId::HOST), PageMask::range(8..16));
    let gone: Vec<_> =
        heard.holdings.iter().filter(|(_, _, _, now)| *now == Holding::Gone).collect();
    assert_eq!(gone, [&(0, PageMask::range(8..16), GPU.into(), Holding::Gone)]);
    assert_eq!(evictions, 1);
}

#[test]
fn evictions_are_counted_by_chunk() {
    let gpus = [GpuMemory { capacity_bytes: 2 << 21 }];
    let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, Relations::pcie_with_nvlink(1));
    paging.create_range(0, 2048);
    let counts = [0, 512, 1024, 1536].map(|page| {
        paging.touch(GPU.into(), page, Access::Read, 0, &mut Vec::<MemoryEvent>::new());
        paging.evictions
    });
    assert_eq!(counts, [0, 0, 1, 2]);
}

#[test]
fn an_allocation_is_reported_for_the_processor_and_the_block_that_need_it() {
    let gpus = [GpuMemory { capacity_bytes: 1 << 30 }; 2];
    let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, Relations::pcie_with_nvlink(2));
    paging.create_range(512, 512);
    let mut heard = Heard::default();
    let second = Processor::device(1);
    paging.touch(second, 600, Access::Read, 0, &mut heard);
    let allocations = heard.work.iter().filter(|work| work.cause == WorkCause::Allocation);
    let allocations: Vec<_> = allocations.map(|work| (work.processor, work.block)).collect();
    assert_eq!(allocations, [(Some(second), 512)]);
}

#[test]
fn a_gpu_that_counts_accesses_maps_evicted_pages_unless_advice_keeps_it_to_its_own_memory() {
    // PAGING-216.
    let gh200 = GpuProfile::named("gh200").expect("a shipped profile");
    let relations = Relations::new(gh200.host_link, gh200.peer_link, 1);
    let maps = |params: &PagingParams, policy: Policy| {
        let (maps, _) = heard_on(&relations, params, policy, |context| {
            let mut block = Block::new(0, 512);
            block.populate(GPU, PageMask::range(0..16));
            block.add_resident(GPU, PageMask::range(0..16));
            context.totals.came(GPU, 16);
            context.evict(&mut block, GPU, PageMask::range(0..16));
            block.mappers().contains(GPU)
        });
        maps
    };
    let of = |preferred: Option<ProcId>, read_mostly: bool| Policy {
        preferred,
        read_mostly,
        ..Policy::default()
    };
    assert!(maps(&gh200.paging, of(None, false)));
    assert!(maps(&gh200.paging, of(Some(ProcId::HOST), false)));
    assert!(!maps(&gh200.paging, of(Some(GPU), false)));
    assert!(!maps(&gh200.paging, of(None, true)));
    assert!(!maps(&GpuProfile::h200().paging, of(None, false)), "nothing is counted");
}

#[test]
fn a_chunk_with_discarded_pages_keeps_its_place_if_not_all_of_the_block_is_discarded() {
    // EVICTION-11: an eager discard ends residency without a word to the lists.
    let mut paging = paging(4);
    let none = &mut Vec::<MemoryEvent>::new();
    paging.migrate(0..1024, GPU0, 0, none);
    paging.migrate(512..768, Processor::HOST, 0, none);
    paging.discard(768..1024, Discard::Eager, 0, none);
    assert_eq!(next(&mut paging), Some(0), "the second chunk holds nothing, and stays on USED");
    paging.migrate(0..512, Processor::HOST, 0, none);
    paging.migrate(512..513, GPU0, 0, none);
    paging.migrate(512..513, Processor::HOST, 0, none);
    paging.migrate(0..1, GPU0, 0, none);
    assert_eq!(next(&mut paging), Some(512), "a page that moves away says it");
}

#[test]
fn a_block_that_is_discarded_as_a_whole_leaves_its_chunk_unused_or_discarded() {
    // EVICTION-12.
    for (manner, list) in [(Discard::Eager, List::Unused), (Discard::Lazy, List::Discarded)] {
        let mut paging = paging(4);
        let none = &mut Vec::<MemoryEvent>::new();
        paging.migrate(0..1024, GPU0, 0, none);
        paging.discard(512..768, manner, 0, none);
        assert_eq!(next(&mut paging), Some(0), "half of it");
        paging.discard(768..1024, manner, 0, none);
        assert_eq!(next(&mut paging), Some(512), "{list:?}");
        paging.migrate(0..512, Processor::HOST, 0, none);
        let first = if list == List::Unused { 512 } else { 0 };
        assert_eq!(next(&mut paging), Some(first), "unused goes before discarded");
    }
}

#[test]
fn a_fault_that_maps_a_discarded_page_leaves_the_chunk_among_the_discarded() {
    // EVICTION-13: the mapping is made while the page still counts as discarded.
    for access in [Access::Read, Access::Write] {
        let mut paging = paging(4);
        let none = &mut Vec::<MemoryEvent>::new();
        paging.migrate(0..1024, GPU0, 0, none);
        paging.discard(512..513, Discard::Eager, 0, none);
        assert_eq!(next(&mut paging), Some(0));
        paging.touch(GPU0, 512, access, 0, none);
        assert_eq!(next(&mut paging), Some(512), "{access:?}: 511 pages of data, and goes first");
        paging.migrate(512..1024, GPU0, 0, none);
        assert_eq!(next(&mut paging), Some(0), "the next service puts it among the used ones");
    }
}

#[test]
fn the_pieces_of_a_block_in_one_chunk_leave_in_one_step() {
    // EVICTION-15: one copy for each run of pages, not for each piece.
    let mut paging = paging(1);
    let none = &mut Vec::<MemoryEvent>::new();
    paging.set_preferred(0..256, Some(Processor::HOST), 0, none);
    paging.migrate(0..256, GPU0, 0, none);
    let mut records = Vec::new();
    paging.migrate(512..1024, GPU0, 0, &mut records);
    assert_eq!(evicted(&records), [(0, 256)]);
    assert_eq!(paging.evictions, 1);
}

#[test]
fn the_blocks_in_a_chunk_leave_in_the_order_of_their_places_in_it() {
    // EVICTION-16: by place in the chunk, not by address.
    let mut paging = paging(1);
    let none = &mut Vec::<MemoryEvent>::new();
    for block in [0, 512] {
        paging.set_preferred(block..block + 64, Some(Processor::HOST), 0, none);
    }
    for pages in [512..528, 0..16, 528..544] {
        paging.migrate(pages, GPU0, 0, none);
    }
    let mut records = Vec::new();
    paging.migrate(1024..1536, GPU0, 0, &mut records);
    assert_eq!(evicted(&records), [(512, 32), (0, 16)]);
}

#[test]
fn a_cut_block_is_evicted_in_two_steps() {
    // EVICTION-6: the chunk of a block that was cut holds the pages of both parts.
    let mut paging = paging(1);
    let none = &mut Vec::<MemoryEvent>::new();
    paging.migrate(0..512, GPU0, 0, none);
    paging.set_preferred(0..100, Some(GPU0), 0, none);
    let mut records = Vec::new();
    paging.migrate(512..1024, GPU0, 0, &mut records);
    assert_eq!(evicted(&records), [(0, 100), (100, 412)]);
}

#[test]
fn a_page_pinned_to_a_gpu_stays_pinned_to_it_when_it_is_evicted() {
    // EVICTION-22: eviction is no thrashing event and resets nothing.
    const GPUS: [ProcId; 2] = [GPU, ProcId(2)];
    let params = GpuProfile::h200().paging;
    let (hints, _) = heard_in(&params, Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        block.populate(GPU, PageMask::range(0..16));
        block.add_resident(GPU, PageMask::range(0..16));
        context.totals.came(GPU, 16);
        thrash::tests::make_thrashing(context, &mut block, 3, &GPUS);
        let hints = |context: &mut Context<'_>, block: &mut Block| {
            context.now_ns += params.thrashing.stamp_ns;
            GPUS.map(|by| thrash::hint(context, block, 3, by))
        };
        let before = hints(context, &mut block);
        context.evict(&mut block, GPU, PageMask::range(0..16));
        assert_eq!(block.residents_of(3), ProcSet::single(ProcId::HOST));
        [before, hints(context, &mut block)]
    });
    assert_eq!(hints, [[Hint::Pin(GPU); 2]; 2], "both GPUs go on sending the page there");
}

#[test]
fn accessed_by_processors_are_mapped_to_all_of_a_block_that_lost_pages() {
    // EVICTION-20: as the advice would map it, not the evicted pages alone.
    let policy = Policy { accessed_by: ProcSet::single(GPU), ..Policy::default() };
    let (mapped, _) = heard_in(&GpuProfile::h200().paging, policy, |context| {
        let mut block = Block::new(0, 512);
        block.populate(GPU, PageMask::range(0..16));
        block.add_resident(GPU, PageMask::range(0..16));
        block.add_resident(ProcId::HOST, PageMask::range(16..32));
        context.totals.came(GPU, 16);
        context.evict(&mut block, GPU, PageMask::range(0..16));
        block.mapped(GPU, Protection::Read)
    });
    assert_eq!(mapped, PageMask::range(0..32));
}

#[test]
fn an_evicted_page_goes_to_the_host_and_its_copies_with_it() {
    // EVICTION-17, EVICTION-19: not to a peer with room, nor to the preferred location.
    let gpus = [GpuMemory { capacity_bytes: 1 << 21 }, GpuMemory { capacity_bytes: 4 << 21 }];
    let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, Relations::pcie_with_nvlink(2));
    paging.create_range(0, 1024);
    let none = &mut Vec::<MemoryEvent>::new();
    paging.set_preferred(0..512, Some(GPU0), 0, none);
    paging.set_read_mostly(0..512, true, 0, none);
    for gpu in [GPU0, Processor::device(1)] {
        paging.migrate(0..512, gpu, 0, none);
    }
    assert_eq!(paging.resident_on(7), [GPU0, Processor::device(1)]);
    paging.migrate(512..1024, GPU0, 0, none);
    assert_eq!(paging.resident_on(7), [Processor::HOST]);
    for by in [Processor::HOST, GPU0, Processor::device(1)] {
        assert_eq!(paging.mapping(7, by), None, "{by}");
    }
}

#[test]
fn the_prefetcher_fills_a_block_without_another_eviction() {
    // EVICTION-23.
    let mut paging = paging(1);
    let none = &mut Vec::<MemoryEvent>::new();
    paging.migrate(0..1024, Processor::HOST, 0, none);
    paging.touch(GPU0, 512, Access::Read, 0, none);
    for page in 0..512 {
        paging.touch(GPU0, page, Access::Read, 0, none);
    }
    assert_eq!((paging.evictions, paging.resident_pages(GPU0)), (1, 512));
}

#[test]
fn a_batch_over_more_blocks_than_there_are_chunks_evicts_its_own() {
    // EVICTION-26: a walk over three blocks in turn, with room for two.
    let mut paging = paging(2);
    let none = &mut Vec::<MemoryEvent>::new();
    for page in [0, 512, 1024, 0, 512, 1024] {
        paging.touch(GPU0, page, Access::Read, 0, none);
    }
    assert_eq!(paging.evictions, 4, "each of them is gone when its turn comes again");
}
