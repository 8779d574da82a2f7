//! The cost of the public API over the calls that it makes. Each pair is the same calls, made by
//! hand and through the API.
//!
//! `PAGEWISE_BACKEND=cuda cargo bench --bench api` measures on the driver, otherwise on the
//! simulator.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use pagewise::resource::{ManagedMemoryResource, MemoryResource, SubAllocator};
use pagewise::{
    Advice, AttachFlags, Builder, Device, EventCapture, Location, Machine, ManagedBuffer, Place,
    RangeAttribute, Region, SimBackend, SimConfig, Span, Stream, prefetch,
};

/// Pieces that live while others come and go.
const LIVE: usize = 1_000_000;
const PAGE: usize = 4096;

fn machine() -> Machine {
    if std::env::var_os(Builder::VARIABLE).is_some_and(|name| name == "cuda") {
        return Machine::open().expect("a driver");
    }
    let config = SimConfig::h200().events(EventCapture::Off);
    Machine::from(Arc::new(SimBackend::new(config).expect("address space")))
}

fn buffer(machine: &Machine, bytes: usize) -> ManagedBuffer<u8> {
    ManagedBuffer::zeroed(machine, bytes).expect("managed memory")
}

/// The most calls that are queued before the stream is waited for, which is not measured: a full
/// queue makes a call wait for the device.
const QUEUED: u64 = 32;

/// Measures a call that only queues work.
fn queued<T>(bench: &mut Bencher<'_>, stream: &Stream, mut call: impl FnMut() -> T) {
    bench.iter_custom(|calls| {
        let (mut left, mut total) = (calls, Duration::ZERO);
        while left > 0 {
            let now = left.min(QUEUED);
            let start = Instant::now();
            (0..now).for_each(|_| _ = black_box(call()));
            total += start.elapsed();
            stream.synchronize().expect("no work fails");
            left -= now;
        }
        total
    });
}

fn single(criterion: &mut Criterion) {
    let machine = machine();
    let backend = machine.backend();
    let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
    let buffer = buffer(&machine, PAGE);
    let span = buffer.span();
    let mut group = criterion.benchmark_group("single");
    group.bench_function("read_mostly get, raw", |bench| {
        bench.iter(|| backend.range_attribute(black_box(span), RangeAttribute::READ_MOSTLY));
    });
    group.bench_function("read_mostly get, api", |bench| bench.iter(|| buffer.read_mostly()));
    group.bench_function("read_mostly set, raw", |bench| {
        bench.iter(|| backend.advise(black_box(span), Advice::SET_READ_MOSTLY, Location::HOST));
    });
    group.bench_function("read_mostly set, api", |bench| {
        bench.iter(|| buffer.set_read_mostly(black_box(true)));
    });
    buffer.set_read_mostly(false).expect("managed memory");
    group.bench_function("accessed_by, raw", |bench| {
        bench.iter(|| {
            let mut places = vec![0; 2];
            backend.range_accessed_by(black_box(span), &mut places).map(|()| places)
        });
    });
    group.bench_function("accessed_by, api", |bench| bench.iter(|| buffer.accessed_by().to_set()));
    group.bench_function("prefetch, raw", |bench| {
        queued(bench, &stream, || {
            backend.prefetch(black_box(span), Location::HOST, 0, stream.handle())
        });
    });
    group.bench_function("prefetch, api", |bench| {
        queued(bench, &stream, || buffer.prefetch(black_box(Place::HOST), &stream));
    });
    group.bench_function("discard_prefetch, raw", |bench| {
        queued(bench, &stream, || {
            let places = &[Location::HOST];
            // SAFETY: no code reads the contents again.
            unsafe { backend.discard_prefetch_batch(&[span], places, &[0], 0, stream.handle()) }
        });
    });
    let mut buffer = buffer;
    group.bench_function("discard_prefetch, api", |bench| {
        queued(bench, &stream, || buffer.discard_prefetch(Place::HOST, &stream).map(drop));
    });
    group.finish();
}

fn allocation(criterion: &mut Criterion) {
    let machine = machine();
    let backend = machine.backend();
    let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
    let mut group = criterion.benchmark_group("allocate and free 4 KiB");
    group.bench_function("direct, raw", |bench| {
        bench.iter(|| {
            let ptr = backend.alloc_managed(PAGE as u64, AttachFlags::GLOBAL).expect("memory");
            // SAFETY: no work uses the memory, and it is freed once.
            unsafe { backend.free(ptr) }
        });
    });
    group.bench_function("direct, api", |bench| {
        bench.iter(|| ManagedBuffer::<u8>::new(&machine, PAGE).expect("memory").free());
    });
    let resource =
        Arc::new(ManagedMemoryResource::new_pool(&machine, None).expect("pools of managed memory"));
    let pool = resource.pool().expect("it has one").handle();
    group.bench_function("pool, raw", |bench| {
        queued(bench, &stream, || {
            let ptr = backend.pool_alloc(pool, PAGE as u64, stream.handle()).expect("memory");
            // SAFETY: no work uses the memory, and it is freed once.
            unsafe { backend.free_async(ptr, stream.handle()) }
        });
    });
    group.bench_function("pool, api", |bench| {
        queued(bench, &stream, || {
            ManagedBuffer::<u8>::from_resource(resource.clone(), PAGE, &stream).map(drop)
        });
    });
    group.finish();
}

fn batches(criterion: &mut Criterion) {
    let machine = machine();
    let backend = machine.backend();
    let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
    let mut group = criterion.benchmark_group("batch of prefetches");
    for count in [16, 256] {
        let buffers: Vec<_> = (0..count).map(|_| buffer(&machine, PAGE)).collect();
        let spans: Vec<Span> = buffers.iter().map(ManagedBuffer::span).collect();
        let regions: Vec<Region<'_>> = buffers.iter().map(ManagedBuffer::region).collect();
        group.bench_function(format!("{count}, one place, raw"), |bench| {
            queued(bench, &stream, || {
                backend.prefetch_batch(&spans, &[Location::HOST], &[0], 0, stream.handle())
            });
        });
        group.bench_function(format!("{count}, one place, api"), |bench| {
            queued(bench, &stream, || prefetch(&regions[..], Place::HOST, &stream));
        });
        let places = vec![Place::HOST; count];
        group.bench_function(format!("{count}, a place each, api"), |bench| {
            queued(bench, &stream, || prefetch(&regions[..], &places[..], &stream));
        });
    }
    group.finish();
}

fn pieces(criterion: &mut Criterion) {
    let machine = machine();
    let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
    let pieces =
        SubAllocator::new(ManagedMemoryResource::direct(&machine), 256 << 20).expect("whole pages");
    let sizes = [256, 700, 1000, 3000];
    let size_of = |n: usize| sizes[n.wrapping_mul(0x9e37_79b9) >> 7 & 3];
    let mut live: Vec<_> = (0..LIVE)
        .map(|n| (pieces.allocate(size_of(n), &stream).expect("room"), size_of(n)))
        .collect();
    let mut at = 0_usize;
    criterion.bench_function("sub-allocator, free and allocate with a million live", |bench| {
        bench.iter(|| {
            at = (at + 7_919) % LIVE;
            let (ptr, bytes) = live[at];
            // SAFETY: the piece is live, no work uses it, and the next piece takes its place in the
            // list, so it is given back once.
            unsafe { pieces.deallocate(ptr, bytes, &stream) }.expect("given here");
            let bytes = size_of(at ^ bytes as usize);
            live[at] = (pieces.allocate(bytes, &stream).expect("room"), bytes);
        });
    });
}

criterion_group!(benches, single, allocation, batches, pieces);
criterion_main!(benches);
