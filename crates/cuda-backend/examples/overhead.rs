//! What a call through `Arc<dyn Backend>` costs over the same call straight into the driver.
//!
//! `cargo build --release -p pagewise-cuda --example overhead`, then run it on a machine with a
//! GPU; it needs no Rust there and allocates 2 MiB of managed memory. Both kinds of call are made
//! in one program, in turns of about 0.2 ms, so that both meet the same machine. Printed are
//! medians over turns; the difference is the median of the differences of neighbouring turns.
//! Allocations are counted by the global allocator.
//!
//! `PAGEWISE_LIBCUDA` names another driver library, such as the simulated one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libloading::Library;
use pagewise_cuda::CudaBackend;
use pagewise_hal::{
    Advice, AttachFlags, Backend, BackendExt, DeviceAttribute, DeviceId, EventFlags, Location,
    PointerAttribute, RangeAttribute, Span, StreamFlags, StreamHandle,
};

/// How many turns each kind of call gets, and how long one is.
const TURNS: usize = 400;
const TURN: Duration = Duration::from_micros(200);

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's duty is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's duty is the same.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy)]
struct MemLocation {
    kind: i32,
    id: i32,
}

/// The driver's functions, by their exported names.
struct Raw(Library);

impl Raw {
    fn open() -> Result<Self, Box<dyn Error>> {
        let name = std::env::var_os("PAGEWISE_LIBCUDA").unwrap_or_else(|| "libcuda.so.1".into());
        // SAFETY: the back end has opened the same library before.
        Ok(Self(unsafe { Library::new(name) }?))
    }

    /// # Safety
    /// `T` must be the type of the function with this name.
    unsafe fn get<T: Copy>(&self, name: &str) -> Result<T, Box<dyn Error>> {
        // SAFETY: the caller vouches for the type.
        Ok(*unsafe { self.0.get::<T>(name.as_bytes()) }?)
    }
}

/// What one kind of call costs.
struct Figures {
    raw_ns: f64,
    backend_ns: f64,
    difference_ns: f64,
    allocations: f64,
}

/// Nanoseconds per call over `calls` calls.
fn turn(calls: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(mut raw: impl FnMut(), mut backend: impl FnMut()) -> Figures {
    let once = turn(50, &mut raw).max(turn(50, &mut backend)).max(1.0);
    let calls = (TURN.as_nanos() as f64 / once).clamp(10.0, 100_000.0) as u32;
    let (mut by_raw, mut by_backend) = (Vec::with_capacity(TURNS), Vec::with_capacity(TURNS));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..TURNS {
        by_raw.push(turn(calls, &mut raw));
        by_backend.push(turn(calls, &mut backend));
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let differences = by_raw.iter().zip(&by_backend).map(|(raw, backend)| backend - raw);
    Figures {
        difference_ns: median(differences.collect()),
        raw_ns: median(by_raw),
        backend_ns: median(by_backend),
        allocations: allocations as f64 / (f64::from(calls) * TURNS as f64),
    }
}

fn print(name: &str, figures: &Figures) {
    let Figures { raw_ns, backend_ns, difference_ns, allocations } = figures;
    println!("{name:<34}{raw_ns:>10.1}{backend_ns:>10.1}{difference_ns:>10.1}{allocations:>12.4}");
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:<34}{:>10}{:>10}{:>10}{:>12}",
        "ns per call", "raw", "backend", "more", "allocations"
    );
    run("", Arc::new(CudaBackend::open()?))?;
    let asking = CudaBackend::builder().foreign_contexts(true).open()?;
    run(", foreign contexts", Arc::new(asking))
}

/// All comparisons on one back end. Arguments are the same on both sides.
fn run(suffix: &str, cuda: Arc<dyn Backend>) -> Result<(), Box<dyn Error>> {
    let driver = Raw::open()?;
    let span = cuda.alloc(2 << 20)?;
    let (ptr, bytes) = (span.ptr.0, span.bytes as usize);
    let device = DeviceId(0);
    let stream = cuda.stream_create(device, StreamFlags::NON_BLOCKING)?;
    let raw_stream = stream.as_raw() as *mut c_void;
    let gpu = MemLocation { kind: 1, id: 0 };
    cuda.prefetch_to(span, Location::device(device))?;
    cuda.stream_synchronize(StreamHandle::NULL)?;
    let report = |name: &str, figures: Figures| print(&format!("{name}{suffix}"), &figures);

    // SAFETY: the types of the functions are those of `cuda.h`; arguments are live and the same as
    // the back end's; nobody else uses the memory.
    unsafe {
        let attribute: unsafe extern "C" fn(*mut i32, i32, i32) -> i32 =
            driver.get("cuDeviceGetAttribute")?;
        let mut value = 0;
        let concurrent = DeviceAttribute::CONCURRENT_MANAGED_ACCESS;
        report(
            "device attribute",
            compare(
                || _ = black_box(attribute(&raw mut value, concurrent.0, 0)),
                || _ = black_box(cuda.device_attribute(device, concurrent)),
            ),
        );

        let range: unsafe extern "C" fn(*mut i32, usize, i32, u64, usize) -> i32 =
            driver.get("cuMemRangeGetAttribute")?;
        let asked = RangeAttribute::READ_MOSTLY;
        report(
            "range attribute",
            compare(
                || _ = black_box(range(&raw mut value, 4, asked.0, ptr, bytes)),
                || _ = black_box(cuda.range_attribute(span, asked)),
            ),
        );
        let mut list = [0; 9];
        let accessed_by = RangeAttribute::ACCESSED_BY;
        let mut other = [0; 9];
        report(
            "range accessed-by",
            compare(
                || _ = black_box(range(list.as_mut_ptr(), 36, accessed_by.0, ptr, bytes)),
                || _ = black_box(cuda.range_accessed_by(span, &mut other)),
            ),
        );

        let pointer: unsafe extern "C" fn(*mut u64, i32, u64) -> i32 =
            driver.get("cuPointerGetAttribute")?;
        let mut wide = 0;
        let asked = PointerAttribute::RANGE_SIZE;
        report(
            "pointer attribute",
            compare(
                || _ = black_box(pointer(&raw mut wide, asked.0, ptr)),
                || _ = black_box(cuda.pointer_attribute(span.ptr, asked)),
            ),
        );

        let advise: unsafe extern "C" fn(u64, usize, i32, i32) -> i32 =
            driver.get("cuMemAdvise")?;
        let advice = Advice::UNSET_READ_MOSTLY;
        report(
            "advise by ordinal",
            compare(
                || _ = black_box(advise(ptr, bytes, advice.0, 0)),
                || _ = black_box(cuda.advise_ordinal(span, advice, 0)),
            ),
        );
        if cuda.capabilities().locations {
            let advise: unsafe extern "C" fn(u64, usize, i32, MemLocation) -> i32 =
                driver.get("cuMemAdvise_v2")?;
            let to = Location::device(device);
            report(
                "advise by location",
                compare(
                    || _ = black_box(advise(ptr, bytes, advice.0, gpu)),
                    || _ = black_box(cuda.advise(span, advice, to)),
                ),
            );
            let prefetch: unsafe extern "C" fn(u64, usize, MemLocation, u32, *mut c_void) -> i32 =
                driver.get("cuMemPrefetchAsync_v2")?;
            report(
                "prefetch, resident",
                compare(
                    || _ = black_box(prefetch(ptr, bytes, gpu, 0, raw_stream)),
                    || _ = black_box(cuda.prefetch(span, to, 0, stream)),
                ),
            );
            cuda.stream_synchronize(stream)?;
        }
        if cuda.capabilities().discard {
            batches(&driver, &*cuda, span, stream, &report)?;
        }

        let synchronize: unsafe extern "C" fn(*mut c_void) -> i32 =
            driver.get("cuStreamSynchronize")?;
        report(
            "stream synchronise, idle",
            compare(
                || _ = black_box(synchronize(raw_stream)),
                || _ = black_box(cuda.stream_synchronize(stream)),
            ),
        );
        let event = cuda.event_create(device, EventFlags::DISABLE_TIMING)?;
        let raw_event = event.as_raw() as *mut c_void;
        let record: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32 =
            driver.get("cuEventRecord")?;
        report(
            "event record",
            compare(
                || _ = black_box(record(raw_event, raw_stream)),
                || _ = black_box(cuda.event_record(event, stream)),
            ),
        );
        cuda.event_destroy(event)?;

        let alloc: unsafe extern "C" fn(*mut u64, usize, u32) -> i32 =
            driver.get("cuMemAllocManaged")?;
        let free: unsafe extern "C" fn(u64) -> i32 = driver.get("cuMemFree_v2")?;
        report(
            "allocate and free 4 KiB",
            compare(
                || {
                    let mut made = 0;
                    alloc(&raw mut made, 4096, 1);
                    free(made);
                },
                || {
                    let made = cuda.alloc_managed(4096, AttachFlags::GLOBAL);
                    _ = made.and_then(|ptr| cuda.free(ptr));
                },
            ),
        );
        cuda.stream_destroy(stream)?;
        cuda.free(span.ptr)?;
    }
    Ok(())
}

/// The batch calls with one range.
///
/// # Safety
/// `driver` must be the library of `cuda`, and nobody may use the range.
unsafe fn batches(
    driver: &Raw,
    cuda: &dyn Backend,
    span: Span,
    stream: StreamHandle,
    report: &dyn Fn(&str, Figures),
) -> Result<(), Box<dyn Error>> {
    type Prefetch = unsafe extern "C" fn(
        *mut u64,
        *mut usize,
        usize,
        *mut MemLocation,
        *mut usize,
        usize,
        u64,
        *mut c_void,
    ) -> i32;
    type Discard = unsafe extern "C" fn(*mut u64, *mut usize, usize, u64, *mut c_void) -> i32;
    let raw_stream = stream.as_raw() as *mut c_void;
    let (mut ptr, mut bytes) = (span.ptr.0, span.bytes as usize);
    let (mut gpu, mut start) = (MemLocation { kind: 1, id: 0 }, 0);
    let to = Location::device(DeviceId(0));
    // SAFETY: as in `run`; arrays of one item each.
    unsafe {
        let prefetch: Prefetch = driver.get("cuMemPrefetchBatchAsync")?;
        let one = compare(
            || {
                let (ptrs, sizes) = (&raw mut ptr, &raw mut bytes);
                let (places, starts) = (&raw mut gpu, &raw mut start);
                black_box(prefetch(ptrs, sizes, 1, places, starts, 1, 0, raw_stream));
            },
            || _ = black_box(cuda.prefetch_batch(&[span], &[to], &[0], 0, stream)),
        );
        report("prefetch batch of one, resident", one);
        cuda.stream_synchronize(stream)?;
        let discard: Discard = driver.get("cuMemDiscardBatchAsync")?;
        let one = compare(
            || _ = black_box(discard(&raw mut ptr, &raw mut bytes, 1, 0, raw_stream)),
            || _ = black_box(cuda.discard_batch(&[span], 0, stream)),
        );
        report("discard batch of one", one);
        cuda.stream_synchronize(stream)?;
    }
    Ok(())
}
