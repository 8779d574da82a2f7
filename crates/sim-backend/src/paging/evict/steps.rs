//! Claims about single steps of evictions and of the allocations that need them.

use super::super::range::Policy;
use super::super::testing::{Heard, heard_in, heard_on};
use super::super::{Access, GpuMemory, PagingParams, Relations};
use super::*;
use crate::GpuProfile;
use pagewise_hal::MemoryEvent;

const GPU: ProcId = ProcId(1);

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
