//! The cost of a call over the same call straight into the driver: through `Arc<dyn Backend>`, and
//! through the API's buffers.
//!
//! `cargo build --release -p pagewise-benches --example overhead`, then run it on a machine with a
//! GPU; it needs no Rust there and allocates 2 MiB of managed memory. All kinds of call are made in
//! one program, in turns of about 0.2 ms, so that all meet the same machine; which goes first
//! rotates. Calls that only queue work get turns of 32, or as many as the argument says. The stream
//! is waited for between turns, so that no turn pays for another's queue.
//!
//! The program prints the median over turns of the raw call, and the medians by which neighbouring
//! turns of the other kinds cost more. It prints the same for the first call of a turn, which the
//! other figures leave out, and the allocations per call of the last kind, as the global allocator
//! counts them. `again` is a second turn of the raw call, which shows the noise.
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
use pagewise::{
    Advice, AttachFlags, Backend, CudaBackend, Device, DeviceAttribute, DeviceId, EventFlags,
    Location, Machine, ManagedBuffer, Place, PointerAttribute, RangeAttribute, Stream,
};

/// How many turns each kind of call gets, and how long one is.
const TURNS: usize = 1000;
const TURN: Duration = Duration::from_micros(200);

/// The most calls that are queued before the stream is waited for.
const QUEUED: u32 = 32;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: an allocator has to give memory of the layout, to one owner at a time. All calls go to
// the system's allocator, which does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the layout is passed on unchanged, and the caller promised that its size is not
        // 0.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `alloc` took the memory from `System` with this layout, and the caller promised
        // to free it once and to use it no more.
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

const GPU: MemLocation = MemLocation { kind: 1, id: 0 };
const HOST: MemLocation = MemLocation { kind: 2, id: 0 };

/// `cuMemPrefetchBatchAsync` and `cuMemDiscardAndPrefetchBatchAsync`
type Moves = unsafe extern "C" fn(
    *mut u64,
    *mut usize,
    usize,
    *mut MemLocation,
    *mut usize,
    usize,
    u64,
    *mut c_void,
) -> i32;

/// The driver's functions, by their exported names.
struct Raw(Library);

impl Raw {
    fn open() -> Result<Self, Box<dyn Error>> {
        let name = std::env::var_os("PAGEWISE_LIBCUDA").unwrap_or_else(|| "libcuda.so.1".into());
        // SAFETY: opening a library runs its initialisers. The back end has opened the same library
        // before.
        Ok(Self(unsafe { Library::new(name) }?))
    }

    /// # Safety
    /// `T` must be the type of the function with this name.
    unsafe fn get<T: Copy>(&self, name: &str) -> Result<T, Box<dyn Error>> {
        // SAFETY: the caller promised that `T` is the type of the function. The library stays open
        // as long as `self`, which outlives every comparison.
        Ok(*unsafe { self.0.get::<T>(name.as_bytes()) }?)
    }
}

/// The time that a turn took, in nanoseconds.
struct Turn {
    /// The first call, which finds caches as waiting and other kinds left them.
    first: f64,
    /// Each of the calls after it.
    each: f64,
}

/// Times one call, and then `calls` calls.
fn turn(calls: u32, call: &mut dyn FnMut()) -> Turn {
    let start = Instant::now();
    call();
    let first = start.elapsed();
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    let each = start.elapsed().as_nanos() as f64 / f64::from(calls);
    Turn { first: first.as_nanos() as f64, each }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Compares kinds of a call that are done when they return, the raw one first.
fn compare(name: &str, kinds: &mut [&mut dyn FnMut()]) {
    compare_settled(name, kinds, &mut || {}, u32::MAX);
}

/// Compares kinds of a call that queues work on a stream.
fn compare_queued(name: &str, stream: &Stream, kinds: &mut [&mut dyn FnMut()]) {
    let mut settle = || stream.synchronize().expect("no work fails");
    let queued = std::env::args().nth(1).map_or(QUEUED, |calls| calls.parse().expect("a number"));
    compare_settled(name, kinds, &mut settle, queued);
}

fn compare_settled(
    name: &str,
    kinds: &mut [&mut dyn FnMut()],
    settle: &mut dyn FnMut(),
    calls_max: u32,
) {
    let once = kinds.iter_mut().map(|call| turn(20, call).each).fold(1.0, f64::max);
    settle();
    let calls = ((TURN.as_nanos() as f64 / once).clamp(10.0, 100_000.0) as u32).min(calls_max);
    // The raw call has a second turn at the end: how far it is from its first is the noise.
    let order: Vec<usize> = (0..kinds.len()).chain([0]).collect();
    let mut turns: Vec<Vec<Turn>> = order.iter().map(|_| Vec::with_capacity(TURNS)).collect();
    let mut allocations = 0;
    for first in 0..TURNS {
        for place in 0..order.len() {
            let at = (first + place) % order.len();
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let took = turn(calls, kinds[order[at]]);
            if at + 1 == kinds.len() {
                allocations += ALLOCATIONS.load(Ordering::Relaxed) - before;
            }
            turns[at].push(took);
            settle();
        }
    }
    let more = |at: usize, part: fn(&Turn) -> f64| {
        median(turns[at].iter().zip(&turns[0]).map(|(a, b)| part(a) - part(b)))
    };
    let each: fn(&Turn) -> f64 = |turn| turn.each;
    let first: fn(&Turn) -> f64 = |turn| turn.first;
    let shown = |at: usize, part| match at < kinds.len() {
        true => format!("{:.1}", more(at, part)),
        false => String::new(),
    };
    let raw = |part| median(turns[0].iter().map(part));
    let per_call = allocations as f64 / (f64::from(calls + 1) * TURNS as f64);
    println!(
        "{name:<46}{:>10.1}{:>8.1}{:>10}{:>10}{:>10.0}{:>10}{:>10}{per_call:>12.4}",
        raw(each),
        more(kinds.len(), each),
        shown(1, each),
        shown(2, each),
        raw(first),
        shown(1, first),
        shown(2, first),
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:<46}{:>10}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}",
        "ns per call",
        "raw",
        "again +",
        "backend +",
        "buffer +",
        "1st: raw",
        "backend +",
        "buffer +",
        "allocations"
    );
    run("", Arc::new(CudaBackend::open()?))?;
    let asking = CudaBackend::builder().foreign_contexts(true).open()?;
    run(", foreign contexts", Arc::new(asking))
}

/// All comparisons on one back end. Arguments are the same for all kinds.
fn run(suffix: &str, cuda: Arc<dyn Backend>) -> Result<(), Box<dyn Error>> {
    let machine = Machine::from(&cuda);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
    buffer.prefetch(Device::FIRST, &stream)?;
    stream.synchronize()?;
    let setup = Setup { suffix, cuda: &*cuda, machine: &machine, stream: &stream };
    let driver = Raw::open()?;
    // SAFETY: the types of the functions are those of `cuda.h`. Arguments are live and the same for
    // all kinds, and no other code uses the memory.
    unsafe {
        setup.questions(&driver, &buffer)?;
        setup.advice(&driver, &buffer)?;
        if cuda.capabilities().locations {
            setup.prefetches(&driver, &buffer)?;
        }
        if cuda.capabilities().discard {
            setup.batches(&driver, &mut buffer)?;
        }
        setup.streams(&driver)?;
        setup.allocations(&driver)
    }
}

/// The back end, machine and stream that all comparisons share.
struct Setup<'a> {
    suffix: &'a str,
    cuda: &'a dyn Backend,
    machine: &'a Machine,
    stream: &'a Stream,
}

/// The methods look functions up by name and call them.
///
/// # Safety
/// The driver must be the library of the back end, the buffer one of its machine that no other code
/// uses.
impl Setup<'_> {
    fn named(&self, name: &str) -> String {
        format!("{name}{}", self.suffix)
    }

    fn raw_stream(&self) -> *mut c_void {
        self.stream.handle().as_raw() as *mut c_void
    }

    unsafe fn questions(
        &self,
        driver: &Raw,
        buffer: &ManagedBuffer<u8>,
    ) -> Result<(), Box<dyn Error>> {
        let (cuda, span, device) = (self.cuda, buffer.span(), DeviceId(0));
        let (ptr, bytes) = (span.ptr.0, span.bytes as usize);
        let mut value = 0;
        // SAFETY: the type of the function is that of `cuda.h`, and answers go to a local that
        // outlives the call.
        unsafe {
            let attribute: unsafe extern "C" fn(*mut i32, i32, i32) -> i32 =
                driver.get("cuDeviceGetAttribute")?;
            let asked = DeviceAttribute::CONCURRENT_MANAGED_ACCESS;
            compare(
                &self.named("device attribute"),
                &mut [&mut || _ = black_box(attribute(&raw mut value, asked.0, 0)), &mut || {
                    _ = black_box(cuda.device_attribute(device, asked))
                }],
            );
            let range: unsafe extern "C" fn(*mut i32, usize, i32, u64, usize) -> i32 =
                driver.get("cuMemRangeGetAttribute")?;
            let asked = RangeAttribute::READ_MOSTLY;
            compare(
                &self.named("range attribute: read-mostly"),
                &mut [
                    &mut || _ = black_box(range(&raw mut value, 4, asked.0, ptr, bytes)),
                    &mut || _ = black_box(cuda.range_attribute(span, asked)),
                    &mut || _ = black_box(buffer.read_mostly()),
                ],
            );
            let (mut list, mut other) = ([0; 2], [0; 2]);
            let accessed_by = RangeAttribute::ACCESSED_BY;
            compare(
                &self.named("range accessed-by"),
                &mut [
                    &mut || {
                        let list = list.as_mut_ptr();
                        _ = black_box(range(list, 8, accessed_by.0, ptr, bytes));
                    },
                    &mut || _ = black_box(cuda.range_accessed_by(span, &mut other)),
                ],
            );
            let pointer: unsafe extern "C" fn(*mut u64, i32, u64) -> i32 =
                driver.get("cuPointerGetAttribute")?;
            let mut wide = 0;
            let asked = PointerAttribute::RANGE_SIZE;
            compare(
                &self.named("pointer attribute"),
                &mut [&mut || _ = black_box(pointer(&raw mut wide, asked.0, ptr)), &mut || {
                    _ = black_box(cuda.pointer_attribute(span.ptr, asked))
                }],
            );
        }
        Ok(())
    }

    unsafe fn advice(
        &self,
        driver: &Raw,
        buffer: &ManagedBuffer<u8>,
    ) -> Result<(), Box<dyn Error>> {
        let (cuda, span) = (self.cuda, buffer.span());
        let (ptr, bytes, advice) = (span.ptr.0, span.bytes as usize, Advice::UNSET_READ_MOSTLY);
        // SAFETY: the type of the function is that of `cuda.h`, and the range is a live buffer's.
        unsafe {
            let advise: unsafe extern "C" fn(u64, usize, i32, i32) -> i32 =
                driver.get("cuMemAdvise")?;
            compare(
                &self.named("advise by ordinal"),
                &mut [&mut || _ = black_box(advise(ptr, bytes, advice.0, -1)), &mut || {
                    _ = black_box(cuda.advise_ordinal(span, advice, -1))
                }],
            );
            if !cuda.capabilities().locations {
                return Ok(());
            }
            let advise: unsafe extern "C" fn(u64, usize, i32, MemLocation) -> i32 =
                driver.get("cuMemAdvise_v2")?;
            compare(
                &self.named("advise by location: read-mostly"),
                &mut [
                    &mut || _ = black_box(advise(ptr, bytes, advice.0, HOST)),
                    &mut || _ = black_box(cuda.advise(span, advice, Location::HOST)),
                    &mut || _ = black_box(buffer.set_read_mostly(false)),
                ],
            );
        }
        Ok(())
    }

    unsafe fn prefetches(
        &self,
        driver: &Raw,
        buffer: &ManagedBuffer<u8>,
    ) -> Result<(), Box<dyn Error>> {
        let (cuda, span, stream) = (self.cuda, buffer.span(), self.stream);
        let (ptr, bytes, raw_stream) = (span.ptr.0, span.bytes as usize, self.raw_stream());
        let to = Location::device(DeviceId(0));
        // SAFETY: the types of the functions are those of `cuda.h`. The range is a live buffer's,
        // the stream is live, and no other code uses either.
        unsafe {
            let prefetch: unsafe extern "C" fn(u64, usize, MemLocation, u32, *mut c_void) -> i32 =
                driver.get("cuMemPrefetchAsync_v2")?;
            compare_queued(
                &self.named("prefetch, resident"),
                stream,
                &mut [
                    &mut || _ = black_box(prefetch(ptr, bytes, GPU, 0, raw_stream)),
                    &mut || _ = black_box(cuda.prefetch(span, to, 0, stream.handle())),
                    &mut || _ = black_box(buffer.prefetch(Device::FIRST, stream)),
                ],
            );
        }
        Ok(())
    }

    /// The batch calls with one range.
    unsafe fn batches(
        &self,
        driver: &Raw,
        buffer: &mut ManagedBuffer<u8>,
    ) -> Result<(), Box<dyn Error>> {
        let (cuda, span, stream) = (self.cuda, buffer.span(), self.stream);
        let handle = stream.handle();
        let raw_stream = self.raw_stream();
        let to = Location::device(DeviceId(0));
        // SAFETY: the types of the functions are those of `cuda.h`. Each array has one item and
        // outlives its call, and no other code uses the buffer.
        unsafe {
            let raw = |call: Moves| {
                let (mut ptr, mut bytes) = (span.ptr.0, span.bytes as usize);
                let (mut gpu, mut start) = (GPU, 0);
                let (ptrs, sizes) = (&raw mut ptr, &raw mut bytes);
                let (places, starts) = (&raw mut gpu, &raw mut start);
                _ = black_box(call(ptrs, sizes, 1, places, starts, 1, 0, raw_stream));
            };
            let prefetch: Moves = driver.get("cuMemPrefetchBatchAsync")?;
            compare_queued(
                &self.named("prefetch batch of one, resident"),
                stream,
                &mut [
                    &mut || raw(prefetch),
                    &mut || _ = black_box(cuda.prefetch_batch(&[span], &[to], &[0], 0, handle)),
                    &mut || {
                        let region = buffer.region();
                        _ = black_box(pagewise::prefetch(
                            region,
                            Place::from(Device::FIRST),
                            stream,
                        ));
                    },
                ],
            );
            let discard_prefetch: Moves = driver.get("cuMemDiscardAndPrefetchBatchAsync")?;
            let mut by_buffer = || {
                _ = black_box(buffer.discard_prefetch(Device::FIRST, stream).map(drop));
            };
            compare_queued(
                &self.named("discard and prefetch, resident"),
                stream,
                &mut [
                    &mut || raw(discard_prefetch),
                    &mut || {
                        let (spans, places) = ([span], [to]);
                        let done = cuda.discard_prefetch_batch(&spans, &places, &[0], 0, handle);
                        _ = black_box(done);
                    },
                    &mut by_buffer,
                ],
            );
            let discard: unsafe extern "C" fn(
                *mut u64,
                *mut usize,
                usize,
                u64,
                *mut c_void,
            ) -> i32 = driver.get("cuMemDiscardBatchAsync")?;
            compare_queued(
                &self.named("discard"),
                stream,
                &mut [
                    &mut || {
                        let (mut ptr, mut bytes) = (span.ptr.0, span.bytes as usize);
                        _ = black_box(discard(&raw mut ptr, &raw mut bytes, 1, 0, raw_stream));
                    },
                    &mut || _ = black_box(cuda.discard_batch(&[span], 0, handle)),
                    &mut || _ = black_box(buffer.discard(stream).map(drop)),
                ],
            );
        }
        Ok(())
    }

    unsafe fn streams(&self, driver: &Raw) -> Result<(), Box<dyn Error>> {
        let (cuda, handle, raw_stream) = (self.cuda, self.stream.handle(), self.raw_stream());
        // SAFETY: the type of the function is that of `cuda.h`, and the stream is live.
        unsafe {
            let synchronize: unsafe extern "C" fn(*mut c_void) -> i32 =
                driver.get("cuStreamSynchronize")?;
            compare(
                &self.named("stream synchronise, idle"),
                &mut [
                    &mut || _ = black_box(synchronize(raw_stream)),
                    &mut || _ = black_box(cuda.stream_synchronize(handle)),
                    &mut || _ = black_box(self.stream.synchronize()),
                ],
            );
            let event = cuda.event_create(DeviceId(0), EventFlags::DISABLE_TIMING)?;
            let raw_event = event.as_raw() as *mut c_void;
            let record: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32 =
                driver.get("cuEventRecord")?;
            compare_queued(
                &self.named("event record"),
                self.stream,
                &mut [&mut || _ = black_box(record(raw_event, raw_stream)), &mut || {
                    _ = black_box(cuda.event_record(event, handle))
                }],
            );
            cuda.event_destroy(event)?;
        }
        Ok(())
    }

    unsafe fn allocations(&self, driver: &Raw) -> Result<(), Box<dyn Error>> {
        let cuda = self.cuda;
        // SAFETY: the types of the functions are those of `cuda.h`. Each allocation is freed here
        // once, and no code uses it.
        unsafe {
            let alloc: unsafe extern "C" fn(*mut u64, usize, u32) -> i32 =
                driver.get("cuMemAllocManaged")?;
            let free: unsafe extern "C" fn(u64) -> i32 = driver.get("cuMemFree_v2")?;
            compare(
                &self.named("allocate and free 4 KiB"),
                &mut [
                    &mut || {
                        let mut made = 0;
                        alloc(&raw mut made, 4096, 1);
                        free(made);
                    },
                    &mut || {
                        let made = cuda.alloc_managed(4096, AttachFlags::GLOBAL);
                        _ = made.and_then(|ptr| cuda.free(ptr));
                    },
                    &mut || {
                        let made = ManagedBuffer::<u8>::new(self.machine, 4096);
                        _ = made.and_then(ManagedBuffer::free);
                    },
                ],
            );
        }
        Ok(())
    }
}
