//! A criterion group for each goal of the paging engine's speed (issue 19) that is a time. The rates
//! example prints the same rows beside their goals, and the bytes of a block.

use std::thread::scope;
use std::time::{Duration, Instant};

use chacha20::ChaCha8Rng;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewise::{
    Advice, Backend, BackendExt, DeviceAccess, EventCapture, GpuProfile, HostAccess, Location,
    MemoryContents, RangeAttribute, SimBackend, SimConfig, Span,
};
use pagewise_benches::{GPU, PAGE, device, host, kernel, machine_of, page_of};
use rand::{RngExt, SeedableRng};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A machine without records.
fn machine(contents: MemoryContents, bytes: u64) -> (SimBackend, Span) {
    machine_of(SimConfig::h200().contents(contents).events(EventCapture::Off), bytes)
}

/// One page a call, all of them there.
fn touches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("touch of one page in memory");
    group.throughput(Throughput::Elements(1));
    for (name, home) in [("by a device", GPU), ("by the host", Location::HOST)] {
        let (sim, span) = machine(MemoryContents::Skipped, GIB);
        sim.prefetch_to(span, home).expect("managed");
        host_maps(&sim, span, home);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let page = page_of(span, random.random_range(0..GIB / PAGE));
                if home == GPU {
                    device(&sim, page, DeviceAccess::Read)
                } else {
                    host(&sim, page, HostAccess::Read)
                }
            });
        });
    }
    group.finish();
}

/// A prefetch to the host maps nothing, so the host reads each page once.
fn host_maps(sim: &SimBackend, span: Span, home: Location) {
    if home == Location::HOST {
        host(sim, span, HostAccess::Read);
    }
}

/// Random reads of a device that has memory for two thirds of what it reads; elements are faults.
fn faults(criterion: &mut Criterion) {
    const MEMORY: u64 = 3 * GIB;
    let context_bytes = GpuProfile::h200().context_bytes;
    let memory_bytes = context_bytes + MEMORY / 3 * 2;
    let text = format!("base = 'h200'\nname = 'small'\nmemory_bytes = {memory_bytes}");
    let gpu = GpuProfile::from_toml(&text).expect("a profile");
    let mut group = criterion.benchmark_group("random fault at 1.5 times the memory");
    group.throughput(Throughput::Elements(1));
    for (name, contents) in [
        ("without contents", MemoryContents::Skipped),
        ("with contents", MemoryContents::Described),
    ] {
        let config = SimConfig::new(gpu.clone()).contents(contents).events(EventCapture::Off);
        let (sim, span) = machine_of(config, MEMORY);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut faulted = |count: u64| {
            let wanted = sim.counters().gpu_faults + count;
            let start = Instant::now();
            while sim.counters().gpu_faults < wanted {
                let page = page_of(span, random.random_range(0..MEMORY / PAGE));
                device(&sim, page, DeviceAccess::Read);
            }
            start.elapsed()
        };
        faulted(1 << 17);
        group.bench_function(name, |bench| bench.iter_custom(&mut faulted));
    }
    group.finish();
}

/// Calls on 16 GiB; elements are pages.
fn whole_ranges(criterion: &mut Criterion) {
    const MEMORY: u64 = 16 * GIB;
    let mut group = criterion.benchmark_group("16 GiB");
    group.throughput(Throughput::Elements(2 * MEMORY / PAGE)).sample_size(10);
    let (sim, span) = machine(MemoryContents::Skipped, MEMORY);
    let there_and_back = || {
        sim.prefetch_to(span, GPU).expect("managed");
        sim.prefetch_to(span, Location::HOST).expect("managed");
    };
    group.bench_function("prefetch there and back, blocks alike", |bench| {
        bench.iter(there_and_back);
    });
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut unlike = |times: u64| {
        let mut elapsed = Duration::ZERO;
        for _ in 0..times {
            for block in 0..MEMORY / (2 * MIB) {
                let page = page_of(span, 512 * block + random.random_range(0..512));
                device(&sim, page, DeviceAccess::Write(1));
            }
            let start = Instant::now();
            there_and_back();
            elapsed += start.elapsed();
        }
        elapsed
    };
    group.bench_function("prefetch there and back, blocks unlike", |bench| {
        bench.iter_custom(&mut unlike);
    });
    group.bench_function("advise read-mostly and back", |bench| {
        bench.iter(|| {
            sim.advise(span, Advice::SET_READ_MOSTLY, GPU).expect("managed");
            sim.advise(span, Advice::UNSET_READ_MOSTLY, GPU).expect("managed");
        });
    });
    group.finish();
}

/// A fill of 1 GiB by many threads; elements are virtual nanoseconds.
fn fill(criterion: &mut Criterion) {
    let fill = || {
        let (sim, span) = machine(MemoryContents::Skipped, GIB);
        let (start_ns, start) = (sim.clock_ns(), Instant::now());
        kernel(&sim, span, DeviceAccess::Write(1), (132, 1024));
        (sim.clock_ns() - start_ns, start.elapsed())
    };
    let mut group = criterion.benchmark_group("fill of 1 GiB by 132 x 1024 threads");
    group.throughput(Throughput::Elements(fill().0)).sample_size(10);
    group.bench_function("without contents", |bench| {
        bench.iter_custom(|times| (0..times).map(|_| fill().1).sum());
    });
    group.finish();
}

/// An allocation and its end beside others, and the end of a large one.
fn allocations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allocate and free");
    for live in [10, 1000, 100_000] {
        let (sim, _) = machine(MemoryContents::Described, 4 * MIB);
        (1..live).for_each(|_| _ = sim.alloc(4 * MIB).expect("address space"));
        group.bench_function(format!("4 MiB, {live} live"), |bench| {
            bench.iter(|| {
                let span = sim.alloc(4 * MIB).expect("address space");
                // SAFETY: no code uses the memory, and it is freed once.
                unsafe { sim.free(span.ptr) }.expect("live");
            });
        });
    }
    group.sample_size(10);
    let (sim, _) = machine(MemoryContents::Skipped, 4 * MIB);
    group.bench_function("the end of 1 TiB that was prefetched", |bench| {
        bench.iter_custom(|times| {
            let end = || {
                let span = sim.alloc(1 << 40).expect("address space");
                sim.prefetch_to(span, Location::HOST).expect("managed");
                let start = Instant::now();
                // SAFETY: no code uses the memory, and it is freed once.
                unsafe { sim.free(span.ptr) }.expect("live");
                start.elapsed()
            };
            (0..times).map(|_| end()).sum()
        });
    });
    group.finish();
}

/// A call on memory that only the calling thread uses.
type Call = fn(&SimBackend, Span);

/// Calls of one thread, of two threads on two machines, and of two on one; elements are the calls of
/// all threads.
fn threads(criterion: &mut Criterion) {
    let calls: [(&str, Call); 2] = [
        ("touch", |sim, span| _ = host(sim, span, HostAccess::Write(1))),
        ("attribute", |sim, span| {
            sim.range_attribute(span, RangeAttribute::READ_MOSTLY).expect("managed");
        }),
    ];
    let mut group = criterion.benchmark_group("threads");
    let (one, one_span) = machine(MemoryContents::Skipped, 2 * MIB);
    let (other, other_span) = machine(MemoryContents::Skipped, 2 * MIB);
    let second = one.alloc(2 * MIB).expect("managed memory");
    let (a, b, beside) = ((&one, one_span), (&other, other_span), (&one, second));
    for (name, call) in calls {
        for (how, on) in
            [("one", vec![a]), ("two, a machine each", vec![a, b]), ("two on one", vec![a, beside])]
        {
            group.throughput(Throughput::Elements(on.len() as u64));
            group.bench_function(format!("{name}, {how}"), |bench| {
                bench.iter_custom(|times| {
                    let start = Instant::now();
                    scope(|scope| {
                        for (sim, span) in &on {
                            let span = page_of(*span, 0);
                            scope.spawn(move || (0..times).for_each(|_| call(sim, span)));
                        }
                    });
                    start.elapsed()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, touches, faults, whole_ranges, fill, allocations, threads);
criterion_main!(benches);
