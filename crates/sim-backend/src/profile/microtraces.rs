//! Claims about the GTX 1080 Ti against published measurements of it: the profiles at the end of
//! the micro-benchmarks of DebashisGanguly/gpgpu-sim_UVMSmart (TIMING-40).
//!
//! The engine runs the published access sequences, the meter of the profile says how long each fault
//! takes. The profile is a fit to the same tables, so this shows how well two parameters describe
//! them, not that they predict.

use pagewise_hal::{MemoryEvent, Processor};

use super::GpuProfile;
use crate::cost::{Call, Meter};
use crate::paging::{
    Access, GpuMemory, Holding, PageMask, Paging, Relations, ReportSink, Work, WorkCause,
};

const GPU: Processor = Processor::device(0);
/// Pages of a basic block of 64 KiB.
const BASIC_BLOCK: u64 = 16;

/// Notes how long each fault of the device takes.
struct Stopwatch {
    meter: Meter,
    faults: Vec<(u64, u64)>,
}

impl ReportSink for Stopwatch {
    fn record(&mut self, _: MemoryEvent) {}

    fn work(&mut self, work: &Work) -> u64 {
        let ns = self.meter.work(work);
        if work.cause == WorkCause::Fault && work.processor == Some(GPU) {
            self.faults.push((work.pages_to_device, ns));
        }
        ns
    }

    fn fault_latency_ns(&mut self, _: Processor, _: u64) -> u64 {
        0
    }

    fn holding(&mut self, _: u64, _: PageMask, _: Processor, _: Holding) {}
}

/// The host writes 2 MiB, then the device updates these basic blocks: pages and nanoseconds of each
/// fault.
fn faults(order: &[u64]) -> Vec<(u64, u64)> {
    let profile = GpuProfile::named("gtx1080ti").expect("a shipped profile");
    let relations = Relations::new(profile.host_link, profile.peer_link, 1);
    let gpus = [GpuMemory { capacity_bytes: profile.usable_bytes() }];
    let mut paging = Paging::new(profile.paging, &gpus, relations);
    let mut watch = Stopwatch { meter: Meter::new(profile.cost), faults: Vec::new() };
    paging.create_range(0, 512);
    (0..512).for_each(|page| _ = paging.touch(Processor::HOST, page, Access::Write, 0, &mut watch));
    watch.meter.begin(Call::DeviceTouch { threads: 1, bulk: false }, 0);
    for index in order {
        paging.touch(GPU, index * BASIC_BLOCK, Access::Write, 0, &mut watch);
    }
    watch.faults
}

/// By how many percent a prediction exceeds what was published.
fn percent_off(predicted_ns: f64, published_us: f64) -> f64 {
    (predicted_ns / (published_us * 1000.0) - 1.0) * 100.0
}

#[test]
fn the_time_of_a_warm_fault_is_within_7_percent_of_the_published() {
    // The first fault of P1 sets its block up, which the next test looks at.
    let published = [(16, 25.2), (32, 31.8), (64, 49.3), (128, 84.4), (256, 157.0)];
    let faults = faults(&[0, 1, 2, 4, 8, 16]);
    for ((pages, us), (moved, ns)) in published.into_iter().zip(&faults[1..]) {
        assert_eq!(*moved, pages);
        let off = percent_off(*ns as f64, us);
        assert!(off.abs() <= 7.0, "{pages} pages: {off:.1} %");
    }
}

#[test]
fn the_first_fault_in_a_block_takes_what_was_published() {
    let (pages, ns) = faults(&[0])[0];
    assert_eq!(pages, 16);
    assert!((55_400..=57_700).contains(&ns), "{ns} ns");
}

#[test]
fn the_first_fault_of_a_process_takes_what_was_published() {
    let profile = GpuProfile::named("gtx1080ti").expect("a shipped profile");
    let mut meter = Meter::new(profile.cost);
    meter.begin(Call::DeviceTouch { threads: 1, bulk: false }, 0);
    let ns = meter.fault_latency_ns(GPU, 0) + faults(&[0])[0].1;
    assert!((174_000..=192_000).contains(&ns), "{ns} ns");
}

#[test]
fn the_time_of_a_copy_is_within_3_percent_of_the_published() {
    let costs = GpuProfile::named("gtx1080ti").expect("a shipped profile").cost.prefetch;
    let kib = |kib: u32| f64::from(kib) * 1024.0;
    for (size, us) in [(60, 5.98), (124, 11.23), (252, 21.70), (508, 43.26), (1020, 86.40)] {
        let off = percent_off(costs.copy_run + costs.to_device_byte * kib(size), us);
        assert!(off.abs() <= 3.0, "{size} KiB to the device: {off:.1} %");
    }
    for (size, us) in [(4, 1.056), (60, 5.28), (124, 10.41)] {
        let off = percent_off(costs.copy_run + costs.to_host_byte * kib(size), us);
        assert!(off.abs() <= 3.0, "{size} KiB to the host: {off:.1} %");
    }
}
