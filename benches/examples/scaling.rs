//! The growth of the time of calls with the bytes of an allocation, and with the allocations, devices,
//! streams and kept records of a machine.
//!
//! `cargo run --release -p pagewise-benches --example scaling`. A row is one call: its time at the
//! smallest and at the largest size in nanoseconds, and the exponent, which is the slope of the times
//! over the sizes, both as logarithms. A call that takes a range may grow as the range does
//! (exponent 1); all others, and all calls on other axes, should not grow (exponent 0).

use std::time::Instant;

use pagewise::{
    Advice, AttachFlags, Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, EventCapture,
    HostAccess, HostTouch, Location, MemoryContents, RangeAttribute, SimBackend, SimConfig, Span,
    StreamFlags, StreamHandle,
};

const DEVICE: DeviceId = DeviceId(0);
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A call, by name, on a machine and the span that it is for.
type Call = (&'static str, fn(&SimBackend, Span));

fn config() -> SimConfig {
    SimConfig::h200().events(EventCapture::Off).contents(MemoryContents::Described)
}

fn open(config: SimConfig) -> SimBackend {
    SimBackend::new(config).expect("address space")
}

/// The least time of a call, in nanoseconds, of several series; of one call that takes long. The first
/// call, which makes blocks, does not count.
fn time(sim: &SimBackend, span: Span, call: fn(&SimBackend, Span)) -> f64 {
    let series = |calls: u32| {
        let start = Instant::now();
        (0..calls).for_each(|_| call(sim, span));
        start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
    };
    series(1);
    let once = series(1);
    if once > 1e8 {
        return once;
    }
    let calls = (2e6 / once).clamp(1.0, 1000.0) as u32;
    (0..5).map(|_| series(calls)).fold(f64::INFINITY, f64::min)
}

/// The slope of a line through the logarithms, by least squares.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(size, ns)| (size.ln(), ns.ln())).collect();
    let count = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|log| log.0), mean(|log| log.1));
    let both: f64 = logs.iter().map(|log| (log.0 - x) * (log.1 - y)).sum();
    both / logs.iter().map(|log| (log.0 - x).powi(2)).sum::<f64>()
}

/// Times all calls at all sizes and prints a row for each call.
fn axis(name: &str, sizes: &[u64], calls: &[Call], make: impl Fn(u64) -> (SimBackend, Span)) {
    let mut points = vec![Vec::new(); calls.len()];
    for &size in sizes {
        let (sim, span) = make(size);
        for (points, (_, call)) in points.iter_mut().zip(calls) {
            points.push((size as f64, time(&sim, span, *call)));
        }
    }
    for ((call, _), points) in calls.iter().zip(points) {
        let (first, last) = (points[0].1, points[points.len() - 1].1);
        println!("{name:24} {call:36} {first:14.0} {last:14.0} {:9.2}", exponent(&points));
    }
}

fn prefetch(sim: &SimBackend, span: Span, location: Location) {
    sim.prefetch_to(span, location).expect("managed memory");
}

fn host_touch(sim: &SimBackend, span: Span, stride_bytes: u64, access: HostAccess) {
    // SAFETY: no other code uses the memory.
    unsafe { sim.host_touch(HostTouch { span, stride_bytes, access }) }.expect("inside");
}

fn device_touch(sim: &SimBackend, span: Span, stride_bytes: u64, access: DeviceAccess) {
    let touch = DeviceTouch { device: DEVICE, span, stride_bytes, access, blocks: 1, threads: 1 };
    // SAFETY: no other code uses the memory.
    unsafe { sim.device_touch(touch, StreamHandle::NULL) }.expect("inside");
}

fn alloc_and_free(sim: &SimBackend, bytes: u64) {
    let ptr = sim.alloc_managed(bytes, AttachFlags::GLOBAL).expect("address space");
    // SAFETY: no other code uses the memory.
    unsafe { sim.free(ptr) }.expect("live");
}

fn memset(sim: &SimBackend, span: Span) {
    // SAFETY: no other code uses the memory.
    unsafe { sim.memset(span, 1, StreamHandle::NULL) }.expect("inside");
}

fn advise(sim: &SimBackend, span: Span, advice: Advice) {
    sim.advise(span, advice, Location::HOST).expect("managed memory");
}

/// Calls on one page, one allocation or the machine.
const ONE: [Call; 11] = [
    ("alloc and free 4 MiB", |sim, _| alloc_and_free(sim, 4 * MIB)),
    ("alloc and free 4 KiB", |sim, _| alloc_and_free(sim, PAGE)),
    ("alloc_device and free 4 MiB", |sim, _| {
        let ptr = sim.alloc_device(DEVICE, 4 * MIB).expect("memory");
        // SAFETY: no other code uses the memory.
        unsafe { sim.free(ptr) }.expect("live");
    }),
    ("host_touch, one resident page", |sim, span| {
        host_touch(sim, Span::new(span.ptr, 1), PAGE, HostAccess::Write(1));
    }),
    ("page to the device and back", |sim, span| {
        device_touch(sim, Span::new(span.ptr, 4), PAGE, DeviceAccess::AtomicAdd);
        host_touch(sim, Span::new(span.ptr, 1), PAGE, HostAccess::Write(1));
    }),
    ("prefetch, there and back", |sim, span| there_and_back(sim, Span::new(span.ptr, PAGE))),
    ("advise and unadvise", |sim, span| {
        advise(sim, Span::new(span.ptr, PAGE), Advice::SET_READ_MOSTLY);
        advise(sim, Span::new(span.ptr, PAGE), Advice::UNSET_READ_MOSTLY);
    }),
    ("range_attribute", |sim, span| {
        let range = Span::new(span.ptr, PAGE);
        sim.range_attribute(range, RangeAttribute::READ_MOSTLY).expect("managed memory");
    }),
    ("memset of a page", |sim, span| memset(sim, Span::new(span.ptr, PAGE))),
    ("stream_create and destroy", |sim, _| {
        let stream = sim.stream_create(DEVICE, StreamFlags::NON_BLOCKING).expect("a stream");
        // SAFETY: no other code uses the stream.
        unsafe { sim.stream_destroy(stream) }.expect("live");
    }),
    ("memory_info", |sim, _| _ = sim.memory_info(DEVICE).expect("a device")),
];

/// Calls on all of an allocation.
const WHOLE: [Call; 7] = [
    ("alloc and free", |sim, span| alloc_and_free(sim, span.bytes)),
    ("prefetch, there and back", there_and_back),
    ("advise and unadvise", |sim, span| {
        advise(sim, span, Advice::SET_READ_MOSTLY);
        advise(sim, span, Advice::UNSET_READ_MOSTLY);
    }),
    ("range_attribute", |sim, span| {
        sim.range_attribute(span, RangeAttribute::READ_MOSTLY).expect("managed memory");
    }),
    ("host_touch, each page", |sim, span| host_touch(sim, span, PAGE, HostAccess::Write(1))),
    ("host_touch, each 2 MiB", |sim, span| host_touch(sim, span, 2 * MIB, HostAccess::Write(2))),
    ("alloc, prefetch and free", |sim, span| {
        let other = sim.alloc(span.bytes).expect("address space");
        prefetch(sim, other, Location::HOST);
        // SAFETY: no other code uses the memory.
        unsafe { sim.free(other.ptr) }.expect("live");
    }),
];

/// Calls that make records or read them, on a machine that keeps all.
const RECORDS: [Call; 3] = [
    ("prefetch, there and back", |sim, span| there_and_back(sim, Span::new(span.ptr, PAGE))),
    ("events_since, the last 16", |sim, _| {
        let end = sim.events_since(u64::MAX).expect("records").position;
        let last = sim.events_since(end.saturating_sub(16)).expect("records");
        assert_eq!(last.events.len(), 16);
    }),
    ("events_since, all", |sim, _| _ = sim.events_since(0).expect("records")),
];

fn there_and_back(sim: &SimBackend, span: Span) {
    prefetch(sim, span, Location::device(DEVICE));
    prefetch(sim, span, Location::HOST);
}

/// A machine that has kept so many records of copies.
fn with_records(records: u64) -> (SimBackend, Span) {
    let capacity = records as usize;
    let sim = open(config().events(EventCapture::Ring { capacity }));
    let span = sim.alloc(4 * MIB).expect("address space");
    host_touch(&sim, Span::new(span.ptr, 1), PAGE, HostAccess::Write(1));
    let made = || sim.events_since(u64::MAX).expect("records").position;
    while made() < records {
        (0..1024).for_each(|_| there_and_back(&sim, Span::new(span.ptr, PAGE)));
    }
    (sim, span)
}

/// A machine with one allocation of 4 MiB behind others.
fn with_allocations(count: u64, bytes: u64) -> (SimBackend, Span) {
    let sim = open(config());
    for _ in 1..count {
        sim.alloc(bytes).expect("address space");
    }
    let span = sim.alloc(4 * MIB).expect("address space");
    (sim, span)
}

/// A machine with one allocation. It has no contents: a byte in each page of 1 TiB would need memory
/// for each page.
fn with_bytes(bytes: u64) -> (SimBackend, Span) {
    let sim = open(config().contents(MemoryContents::Skipped));
    let span = sim.alloc(bytes).expect("address space");
    (sim, span)
}

fn main() {
    println!(
        "{:24} {:36} {:>14} {:>14} {:>9}",
        "axis", "call", "smallest/ns", "largest/ns", "exponent"
    );
    let counts = [10, 100, 1000, 10_000, 100_000, 1_000_000];
    axis("10..10^6 of 4 MiB", &counts, &ONE, |count| with_allocations(count, 4 * MIB));
    axis("10..10^6 of 4 KiB", &counts, &ONE, |count| with_allocations(count, PAGE));
    // Up to what the device has memory for, and beyond: there each page that comes makes one leave.
    let powers = |powers: std::ops::RangeInclusive<u32>| powers.map(|power| 1 << power).collect();
    let (within, beyond): (Vec<u64>, Vec<u64>) = (powers(30..=37), powers(38..=40));
    axis("1..128 GiB", &within, &WHOLE, with_bytes);
    // Faults on each page take minutes there.
    let by_call: Vec<Call> =
        WHOLE.into_iter().filter(|(name, _)| *name != "host_touch, each page").collect();
    axis("256 GiB..1 TiB", &beyond, &by_call, with_bytes);
    axis("1..128 GiB", &within, &[("memset", memset)], with_bytes);
    axis("1..32 devices", &[1, 2, 4, 8, 16, 32], &ONE, |devices| {
        let sim = open(config().devices(devices as u32));
        let span = sim.alloc(4 * MIB).expect("address space");
        (sim, span)
    });
    let records: Vec<u64> = (14..=22).step_by(2).map(|power| 1 << power).collect();
    axis("2^14..2^22 records", &records, &RECORDS, with_records);
    axis("10..10^5 streams", &counts[..5], &ONE, |streams| {
        let (sim, span) = with_allocations(1, PAGE);
        for _ in 0..streams {
            sim.stream_create(DEVICE, StreamFlags::NON_BLOCKING).expect("a stream");
        }
        (sim, span)
    });
}
