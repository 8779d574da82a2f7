//! What calls and page movements cost on the simulator, per page, fault or call.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewise::{
    Advice, Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, EventCapture, HostAccess,
    HostTouch, Location, RangeAttribute, SimBackend, SimConfig, Span, StreamFlags, StreamHandle,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const GPU: Location = Location::device(DeviceId(0));

fn machine(bytes: u64) -> (SimBackend, Span) {
    machine_of(SimConfig::h200(), bytes)
}

fn machine_of(config: SimConfig, bytes: u64) -> (SimBackend, Span) {
    let sim = SimBackend::new(config).expect("address space");
    let span = sim.alloc(bytes).expect("managed memory");
    (sim, span)
}

fn host(sim: &SimBackend, span: Span, access: HostAccess) -> u64 {
    // SAFETY: one thread uses the memory.
    unsafe { sim.host_touch(HostTouch { span, stride_bytes: PAGE, access }) }.expect("inside")
}

fn device(sim: &SimBackend, span: Span, access: DeviceAccess) -> u64 {
    let device = DeviceId(0);
    let touch = DeviceTouch { device, span, stride_bytes: PAGE, access, blocks: 1, threads: 1 };
    // SAFETY: one thread uses the memory.
    unsafe { sim.device_touch(touch, StreamHandle::NULL) }.expect("inside")
}

fn calls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("call");
    let (sim, span) = machine(64 * MIB);
    group.bench_function("range attribute", |bench| {
        bench.iter(|| sim.range_attribute(black_box(span), RangeAttribute::READ_MOSTLY));
    });
    group.bench_function("advise, set and unset", |bench| {
        bench.iter(|| {
            sim.advise(span, Advice::SET_READ_MOSTLY, GPU).expect("managed");
            sim.advise(span, Advice::UNSET_READ_MOSTLY, GPU).expect("managed");
        });
    });
    group.bench_function("allocate and free 4 KiB", |bench| {
        bench.iter(|| {
            let small = sim.alloc(black_box(PAGE)).expect("managed memory");
            // SAFETY: nothing uses the memory.
            unsafe { sim.free(small.ptr) }.expect("managed memory");
        });
    });
    group.finish();
}

fn pages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pages");
    let bytes = 64 * MIB;
    let count = bytes / PAGE;
    group.throughput(Throughput::Elements(count));
    let (sim, span) = machine(bytes);
    device(&sim, span, DeviceAccess::Write(1));
    group.bench_function("touch in memory", |bench| {
        bench.iter(|| device(&sim, span, DeviceAccess::Write(2)));
    });
    let (sim, span) = machine(bytes);
    group.bench_function("ping-pong by faults", |bench| {
        bench.iter(|| {
            host(&sim, span, HostAccess::Write(1));
            device(&sim, span, DeviceAccess::Write(2));
            sim.take_events().expect("records")
        });
    });
    group.finish();
}

/// Pages that fault in random order on a device with less memory than they need.
fn oversubscribed(criterion: &mut Criterion) {
    const TOUCHES: u64 = 1 << 16;
    let mut group = criterion.benchmark_group("random faults at 1.5x oversubscription");
    let bytes = 3 << 30;
    for (name, events) in
        [("counters", EventCapture::Off), ("records", EventCapture::Ring { capacity: 1 << 16 })]
    {
        let (sim, span) = machine_of(SimConfig::h200().events(events), bytes);
        let free = sim.memory_info(DeviceId(0)).expect("a device").free_bytes;
        sim.alloc_device(DeviceId(0), free - (2 << 30)).expect("there is that much");
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let before = sim.counters();
        let mut touch = || {
            let page = random.random_range(0..bytes / PAGE);
            device(&sim, Span::new(span.ptr.offset(page * PAGE), 1), DeviceAccess::Read);
        };
        // Fills the device, so that from here on what arrives pushes something out.
        (0..4 * TOUCHES).for_each(|_| touch());
        let faults = sim.counters().gpu_faults - before.gpu_faults;
        group.throughput(Throughput::Elements(TOUCHES));
        group.bench_function(name, |bench| bench.iter(|| (0..TOUCHES).for_each(|_| touch())));
        eprintln!("{faults} of {} touches faulted before", 4 * TOUCHES);
    }
    group.finish();
}

/// Operations on all of a large range at once. Each iteration leaves the range as it was.
fn whole_ranges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("whole range");
    let bytes = 16 << 30;
    group.throughput(Throughput::Elements(2 * bytes / PAGE));
    let (sim, span) = machine(bytes);
    let stream = sim.stream_create(DeviceId(0), StreamFlags::NON_BLOCKING).expect("stream");
    group.bench_function("prefetch there and back", |bench| {
        bench.iter(|| {
            sim.prefetch_to(span, GPU).expect("managed");
            sim.prefetch_to(span, Location::HOST).expect("managed");
        });
    });
    group.bench_function("advise read-mostly and back", |bench| {
        bench.iter(|| {
            sim.advise(span, Advice::SET_READ_MOSTLY, GPU).expect("managed");
            sim.advise(span, Advice::UNSET_READ_MOSTLY, GPU).expect("managed");
        });
    });
    group.bench_function("discard and prefetch", |bench| {
        bench.iter(|| {
            // SAFETY: nobody reads what is discarded.
            unsafe { sim.discard_batch(&[span], 0, stream) }.expect("managed");
            sim.prefetch_to(span, GPU).expect("managed");
        });
    });
    group.finish();
}

fn machines(criterion: &mut Criterion) {
    criterion.bench_function("make and drop a machine", |bench| {
        bench.iter(|| SimBackend::new(SimConfig::h200()).expect("address space"));
    });
}

criterion_group!(benches, calls, pages, whole_ranges, oversubscribed, machines);
criterion_main!(benches);
