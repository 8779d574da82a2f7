//! Claims about batches of pages that all thrash.

use super::super::{Access, GpuMemory, Relations};
use super::*;
use crate::GpuProfile;
use pagewise_hal::{MemoryEvent, Processor};

const HOST: Processor = Processor::HOST;
const GPU0: Processor = Processor::device(0);
const US: u64 = 1000;

/// The time at which a batch on pages of two blocks ends. Both thrash, and the host got `first`
/// 100 us before `second`.
fn ends_at(first: u64, second: u64, batch: &[u64]) -> u64 {
    let gpus = [GpuMemory { capacity_bytes: 1 << 30 }];
    let relations = Relations::pcie_with_nvlink(1);
    let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, relations);
    paging.create_range(0, 1024);
    let mut records = Vec::new();
    let mut now_ns = 10_000 * US;
    for by in [HOST, GPU0, HOST, GPU0, HOST, GPU0] {
        for page in [first, second] {
            now_ns = paging.touch(by, page, Access::Write, now_ns, &mut records).now_ns;
        }
        now_ns += 50 * US;
    }
    let thrashes = |record: &&MemoryEvent| matches!(record, MemoryEvent::Thrashing { .. });
    assert_eq!(records.iter().filter(thrashes).count(), 32, "64 KiB around each page");
    for page in [first, second] {
        now_ns = paging.touch(HOST, page, Access::Write, now_ns, &mut records).now_ns + 100 * US;
    }
    let batch = batch_on(batch);
    let mut touched = Touched { now_ns, ..Touched::default() };
    let who = (ProcId::from(GPU0), &[Access::Write][..]);
    paging.batch(who, &batch, &mut HeldOff::default(), &mut touched, &mut records);
    assert_eq!(touched.throttles, 1, "one wait, in vain");
    touched.now_ns
}

#[test]
fn a_batch_that_is_held_in_all_of_its_blocks_waits_for_the_page_that_is_free_first() {
    for (first, second) in [(0, 512), (512, 0)] {
        let together = ends_at(first, second, &[0, 512]);
        assert_eq!(together, ends_at(first, second, &[first]));
        assert!(together < ends_at(first, second, &[second]), "that one is free later");
    }
}
