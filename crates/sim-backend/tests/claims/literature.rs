//! Published figures of programs that need more memory than the GPU has, each held against the
//! simulator. `docs/driver/eviction.md` has the table, with what does not match and why.
//!
//! The simulated GPU is an H200 with 64 MiB: figures of time carry over as ratios only. What runs
//! at once has to be scaled down with the memory, or a sweep in order becomes one that touches all
//! at once: [`WAVE`] is 1024 threads, 4 MiB at one touch per page. The published programs' waves are
//! at most 4 % of the memory, too. Sources:
//!
//! - *SC'21*: Allen and Ge, "In-Depth Analyses of Unified Virtual Memory System for GPU Accelerated
//!   Computing", table 4, on a Titan V;
//! - *UVMBench*: Gu et al., arXiv 2007.09822, section on oversubscription, on a GTX 1080 Ti: many
//!   programs take 2 to 3 times as long with footprints of 110 % and 125 %;
//! - *cyclic thrashing*: Park et al., CASES 2020: under the driver's order, a program that goes over
//!   its memory in turn finds none of it again;
//! - *stride sweep*: `memory/micro/t0rq3_results.csv` of eunomia-bpf/co-processor-demo, one touch
//!   per page on a card of 32,109 MiB, medians;
//! - *advice*: Chien et al., arXiv 1910.09598: advice saves up to 25 % of the time on Intel hosts
//!   over PCIe at about 150 % of the memory.

use pagewise_hal::{Advice, Backend, Counters, DeviceAccess, Location, PAGE_BYTES};
use pagewise_sim::GpuProfile;

use crate::common::MIB;
use crate::oversubscription::{CAPACITY, WrittenMemory, small_gpu};

/// Blocks and threads of all that runs at once.
const WAVE: (u32, u32) = (8, 128);

/// Memory that is so many times the GPU's, in whole va_blocks.
fn footprint(factor: f64) -> u64 {
    (CAPACITY as f64 * factor) as u64 / (2 * MIB) * (2 * MIB)
}

fn gpu_with_prefetcher(is_on: bool) -> GpuProfile {
    let mut gpu = small_gpu(CAPACITY);
    gpu.paging.prefetch_enable = is_on;
    gpu
}

/// Copies and nanoseconds of the second of two sweeps with one touch per page.
fn second_sweep(factor: f64) -> (Counters, u64) {
    let memory = WrittenMemory::new(small_gpu(CAPACITY), footprint(factor));
    let sweep = || memory.kernel(memory.span, PAGE_BYTES, DeviceAccess::Read, WAVE);
    sweep();
    let mut ns = 0;
    let counters = memory.counted(|| ns = sweep());
    (counters, ns)
}

/// Nanoseconds of kernels that each go over all memory, densely.
fn passes(gpu: GpuProfile, bytes: u64, count: u32, access: DeviceAccess) -> f64 {
    let memory = WrittenMemory::new(gpu, bytes);
    (0..count).map(|_| memory.kernel(memory.span, 128, access, WAVE)).sum::<u64>() as f64
}

/// Source: cyclic thrashing; the stride sweep's times, which grow with all of the memory and not
/// with what does not fit: 188 ns per page at 125 %, 160 ns at 150 %. Bytes are exact here.
#[test]
fn a_sweep_in_turn_brings_all_of_its_memory_again_at_110_125_and_150_percent() {
    for factor in [1.1, 1.25, 1.5] {
        let (counters, _) = second_sweep(factor);
        let bytes = footprint(factor);
        assert_eq!(counters.to_device.bytes, bytes, "{factor}: to the device");
        assert_eq!(counters.by_eviction.bytes, bytes, "{factor}: to make room");
    }
    assert_eq!(second_sweep(1.0).0.to_device.bytes, 0, "what fits stays");
}

/// Source: stride sweep. Per page, 150 % takes 0.85 times what 125 % takes; 20 % are allowed, as
/// the medians of three runs spread by more. The times themselves are 188 and 160 ns over the same
/// generation of PCIe; the H200's costs of many threads' faults, fitted to small programs, make it
/// 530 ns, which is stated and not hidden: between 1 and 4 times.
#[test]
fn a_page_that_thrashes_in_turn_costs_the_same_at_125_and_150_percent() {
    let per_page = |factor| second_sweep(factor).1 as f64 / (footprint(factor) / PAGE_BYTES) as f64;
    let (at_125, at_150) = (per_page(1.25), per_page(1.5));
    let ratio = at_150 / at_125;
    assert!((0.85 * 0.8..=0.85 * 1.2).contains(&ratio), "{at_125} and {at_150} ns");
    for (ours, published) in [(at_125, 188.0), (at_150, 160.0)] {
        assert!((1.0..4.0).contains(&(ours / published)), "{ours} ns, published {published} ns");
    }
}

/// Source: UVMBench. The programs are streaming kernels that go over their memory two or three
/// times; the footprint stays, and the memory is taken away, as there. Bars are read to 20 %.
#[test]
fn programs_of_two_and_three_passes_take_two_to_three_times_as_long_at_110_and_125_percent() {
    for access in [DeviceAccess::Read, DeviceAccess::Write(1)] {
        for count in [2, 3] {
            let fits = passes(small_gpu(CAPACITY), CAPACITY, count, access);
            for factor in [1.1, 1.25] {
                let capacity = (CAPACITY as f64 / factor) as u64 / (2 * MIB) * (2 * MIB);
                let slowdown = passes(small_gpu(capacity), CAPACITY, count, access) / fits;
                let allowed = 2.0 * 0.8..3.0 * 1.2;
                assert!(allowed.contains(&slowdown), "{access:?}, {count} at {factor}: {slowdown}");
            }
        }
    }
}

/// Source: SC'21: Gauss-Seidel at 116 % takes 66.393 s without the prefetcher and 19.550 s with it,
/// HPGMG at 125 % 40.472 s and 14.879 s. Theirs are solvers, which compute as well, on an older GPU;
/// ours is a sweep of three passes, which does nothing but fault. So it may lose up to half more,
/// and no less. Without a price of a batch (TIMING-25) it loses less at 116 %.
#[test]
fn the_prefetcher_saves_a_sweep_what_it_saves_published_solvers_or_up_to_half_more() {
    for (factor, without, with) in [(1.16, 66.393, 19.550), (1.25, 40.472, 14.879)] {
        let time =
            |is_on| passes(gpu_with_prefetcher(is_on), footprint(factor), 3, DeviceAccess::Read);
        let (ours, published) = (time(false) / time(true), without / with);
        let allowed = 1.0..1.5;
        assert!(allowed.contains(&(ours / published)), "{factor}: {ours}, published {published}");
    }
}

/// Source: advice. Memory that is only read loses the copy to the host at eviction (EVICTION-17).
/// The published figure is an upper bound over programs.
#[test]
fn read_mostly_advice_saves_up_to_a_quarter_of_the_time_at_150_percent() {
    let run = |advised: bool| {
        let memory = WrittenMemory::new(small_gpu(CAPACITY), footprint(1.5));
        if advised {
            memory.sim.advise(memory.span, Advice::SET_READ_MOSTLY, Location::HOST).unwrap();
        }
        let mut ns = 0;
        let counters = memory.counted(|| {
            ns = (0..3).map(|_| memory.kernel(memory.span, 128, DeviceAccess::Read, WAVE)).sum();
        });
        (counters, ns as f64)
    };
    let ((plain, plain_ns), (advised, advised_ns)) = (run(false), run(true));
    assert_eq!(advised.to_device.bytes, plain.to_device.bytes);
    assert_eq!((advised.to_host.bytes, plain.to_host.bytes > 0), (0, true));
    let saved = 1.0 - advised_ns / plain_ns;
    assert!((0.05..=0.25).contains(&saved), "{saved}");
}
