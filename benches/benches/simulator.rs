//! The cost of calls and page movements on the simulator, per page, fault or call.

use std::hint::black_box;

use chacha20::ChaCha8Rng;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewise::{
    Advice, Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, EventCapture, HostAccess,
    KernelParam, LaunchShape, Location, MemoryContents, RangeAttribute, SimBackend, SimConfig,
    Span, StreamFlags, StreamHandle,
};
use pagewise_benches::{GPU, PAGE, device, host, machine_of};
use rand::{RngExt, SeedableRng};

const MIB: u64 = 1 << 20;

fn machine(bytes: u64) -> (SimBackend, Span) {
    machine_of(SimConfig::h200(), bytes)
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
            // SAFETY: no work uses the memory, and it is freed once.
            unsafe { sim.free(small.ptr) }.expect("managed memory");
        });
    });
    group.finish();
}

/// A kernel of one instruction, by a call of the trait: what a launch costs beside its kernel.
fn launches(criterion: &mut Criterion) {
    const EMPTY: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n\
        .visible .entry empty(.param .u64 at) { ret; }";
    let (sim, span) = machine_of(SimConfig::h200().events(EventCapture::Off), 64 * MIB);
    // SAFETY: the image is text, which need not be whole.
    let module = unsafe { sim.module_load(DeviceId(0), EMPTY) }.expect("PTX");
    let empty = sim.module_function(module, "empty").expect("in the module");
    let params = [KernelParam::from(span.ptr)];
    let mut group = criterion.benchmark_group("launch");
    for blocks in [1, 132] {
        let shape = LaunchShape::linear(blocks, 32);
        group.bench_function(format!("an empty kernel, {blocks} warps"), |bench| {
            // SAFETY: the kernel uses no memory.
            bench.iter(|| unsafe { sim.launch(empty, shape, &params, StreamHandle::NULL) });
        });
    }
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

/// Bytes of the memory that is oversubscribed; the device has two thirds of them.
const OVERSUBSCRIBED: u64 = 3 << 30;

/// A machine with a device that has less memory than the range needs.
fn small_device(config: SimConfig) -> (SimBackend, Span) {
    let (sim, span) = machine_of(config, OVERSUBSCRIBED);
    let free = sim.memory_info(DeviceId(0)).expect("a device").free_bytes;
    sim.alloc_device(DeviceId(0), free - OVERSUBSCRIBED / 3 * 2).expect("there is that much");
    for page in 0..OVERSUBSCRIBED / PAGE {
        // SAFETY: the address of managed memory is the host's of the same bytes, and they are live.
        // The read does not go through the simulator, so that the operating system's own first
        // touches are not measured.
        unsafe { ((span.ptr.0 + page * PAGE) as *const u8).read_volatile() };
    }
    (sim, span)
}

/// Faults of a device that has less memory than it touches, by the counters: an element is a fault,
/// what hits comes on top. A third of the random pages are in blocks that are not there, so about
/// two of five faults push a block out.
fn oversubscribed(criterion: &mut Criterion) {
    const FAULTS: u64 = 1 << 14;
    let mut group = criterion.benchmark_group("random faults at 1.5x oversubscription");
    group.throughput(Throughput::Elements(FAULTS));
    let counted = || SimConfig::h200().events(EventCapture::Off);
    let kept = || SimConfig::h200().events(EventCapture::Ring { capacity: 1 << 16 });
    let mut bench =
        |name: &str, config: SimConfig, step: fn(&SimBackend, Span, &mut ChaCha8Rng)| {
            group.bench_function(name, |bench| {
                let (sim, span) = small_device(config.clone());
                let mut random = ChaCha8Rng::seed_from_u64(1);
                let mut wanted = 0;
                let mut faults = |more: u64| {
                    wanted += more;
                    while sim.counters().gpu_faults < wanted {
                        step(&sim, span, &mut random);
                    }
                };
                // Fills the device, so that from here on what arrives pushes something out.
                faults(16 * FAULTS);
                bench.iter(|| faults(FAULTS));
            });
        };
    let pages_only = || counted().contents(MemoryContents::Skipped);
    bench("one page a call, counters", counted(), touch_pages);
    bench("one page a call, counters, no contents", pages_only(), touch_pages);
    bench("one page a call, records", kept(), touch_pages);
    bench("one page of 512 stretches a call, counters", counted(), touch_window);
    bench("one page of 512 stretches a call, counters, no contents", pages_only(), touch_window);
    group.finish();
}

/// Reads random pages, one call each.
fn touch_pages(sim: &SimBackend, span: Span, random: &mut ChaCha8Rng) {
    for _ in 0..64 {
        let page = random.random_range(0..OVERSUBSCRIBED / PAGE);
        device(sim, Span::new(span.ptr.offset(page * PAGE), 1), DeviceAccess::Read);
    }
}

/// Reads a page of every second 64 KiB of 64 MiB at a random place, in one call.
fn touch_window(sim: &SimBackend, span: Span, random: &mut ChaCha8Rng) {
    const WINDOW: u64 = 64 * MIB;
    const STRIDE: u64 = 128 << 10;
    let page = random.random_range(0..(OVERSUBSCRIBED - WINDOW) / PAGE);
    let span = Span::new(span.ptr.offset(page * PAGE), WINDOW);
    let (device, access) = (DeviceId(0), DeviceAccess::Read);
    let touch = DeviceTouch { device, span, stride_bytes: STRIDE, access, blocks: 1, threads: 1 };
    // SAFETY: one thread uses the memory.
    unsafe { sim.device_touch(touch, StreamHandle::NULL) }.expect("inside");
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
            // SAFETY: no code reads the discarded contents.
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

criterion_group!(benches, calls, launches, pages, whole_ranges, oversubscribed, machines);
criterion_main!(benches);
