//! The rates of the simulator's paging engine, a row for each goal: the goal, and what was measured.
//!
//! `cargo run --release -p pagewise-benches --example rates` prints all rows. `rates ROW` runs the
//! rows with names that begin so, and `rates ROW COUNT` gives each so much to do, for profilers: two
//! counts differ by the instructions of the operations between them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use chacha20::ChaCha8Rng;
use pagewise::{
    Advice, Backend, BackendExt, DeviceAccess, EventCapture, GpuProfile, HostAccess, Location,
    MemoryContents, SimBackend, SimConfig, Span,
};
use pagewise_benches::{GPU, PAGE, device, host, kernel, page_of};
use rand::{RngExt, SeedableRng};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Counts allocations and the bytes that are live.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: an allocator has to give memory of the layout, to one owner at a time. All calls go to
// the system's allocator, which does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the layout is passed on unchanged, and the caller promised that its size is not
        // 0.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: `alloc` took the memory from `System` with this layout, and the caller promised
        // to free it once and to use it no more.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A timed stretch: how much was done, in how long, with how many allocations.
struct Measured {
    amount: f64,
    seconds: f64,
    allocations: u64,
}

/// Times `act`, which returns how much it did.
fn timed(act: impl FnOnce() -> f64) -> Measured {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let start = Instant::now();
    let amount = act();
    let seconds = start.elapsed().as_secs_f64();
    Measured { amount, seconds, allocations: ALLOCATIONS.load(Ordering::Relaxed) - before }
}

/// A machine with managed memory that counts its records and keeps none, and has no contents.
fn machine(bytes: u64) -> (SimBackend, Span) {
    machine_of(SimConfig::h200().contents(MemoryContents::Skipped), bytes)
}

fn machine_of(config: SimConfig, bytes: u64) -> (SimBackend, Span) {
    pagewise_benches::machine_of(config.events(EventCapture::Off), bytes)
}

/// Touches of random pages that are there already, one call each.
fn touches(by_host: bool, count: u64) -> Measured {
    let (sim, span) = machine(GIB);
    let home = if by_host { Location::HOST } else { GPU };
    sim.prefetch_to(span, home).expect("managed");
    if by_host {
        host(&sim, span, HostAccess::Read);
    }
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let pages: Vec<u64> = (0..4096).map(|_| random.random_range(0..GIB / PAGE)).collect();
    timed(|| {
        for touch in 0..count as usize {
            let page = page_of(span, pages[touch % pages.len()]);
            if by_host {
                host(&sim, page, HostAccess::Read);
            } else {
                device(&sim, page, DeviceAccess::Read);
            }
        }
        count as f64
    })
}

/// Faults of a device on random pages of 3 GiB, of which it has memory for two thirds. A third of
/// the pages is in blocks that are not there, so about two of five faults push a block out.
fn oversubscribed(contents: MemoryContents, count: u64) -> Measured {
    let mut small = Small::new(contents);
    small.faults(1 << 17);
    timed(|| {
        small.faults(count);
        count as f64
    })
}

/// 3 GiB of managed memory, and a device with 2 GiB.
struct Small {
    sim: SimBackend,
    span: Span,
    random: ChaCha8Rng,
}

impl Small {
    const MEMORY: u64 = 3 * GIB;

    fn new(contents: MemoryContents) -> Self {
        let context_bytes = GpuProfile::h200().context_bytes;
        let memory_bytes = context_bytes + Self::MEMORY / 3 * 2;
        let text = format!("base = 'h200'\nname = 'small'\nmemory_bytes = {memory_bytes}");
        let gpu = GpuProfile::from_toml(&text).expect("a profile");
        let (sim, span) = machine_of(SimConfig::new(gpu).contents(contents), Self::MEMORY);
        Self { sim, span, random: ChaCha8Rng::seed_from_u64(1) }
    }

    /// Reads random pages until so many of them faulted.
    fn faults(&mut self, count: u64) {
        let Self { sim, span, random } = self;
        let wanted = sim.counters().gpu_faults + count;
        while sim.counters().gpu_faults < wanted {
            for _ in 0..64 {
                let page = random.random_range(0..Self::MEMORY / PAGE);
                device(sim, page_of(*span, page), DeviceAccess::Read);
            }
        }
    }
}

/// Prefetches of 16 GiB there and back, in pages. Unlike blocks have random pages at the device.
fn whole_ranges(unlike: bool, count: u64) -> Measured {
    const MEMORY: u64 = 16 * GIB;
    let (sim, span) = machine(MEMORY);
    sim.prefetch_to(span, Location::HOST).expect("managed");
    let mut measured = Measured { amount: 0.0, seconds: 0.0, allocations: 0 };
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let times = count.div_ceil(2 * MEMORY / PAGE);
    for _ in 0..times {
        for block in (0..MEMORY / 2 / MIB).filter(|_| unlike) {
            for _ in 0..3 {
                let page = 512 * block + random.random_range(0..512);
                device(&sim, page_of(span, page), DeviceAccess::Write(1));
            }
        }
        let round = timed(|| {
            sim.prefetch_to(span, GPU).expect("managed");
            sim.prefetch_to(span, Location::HOST).expect("managed");
            (2 * MEMORY / PAGE) as f64
        });
        measured.amount += round.amount;
        measured.seconds += round.seconds;
        measured.allocations += round.allocations;
    }
    measured
}

/// Advice on 16 GiB and its end, in pages, while blocks are alike.
fn advice(count: u64) -> Measured {
    const MEMORY: u64 = 16 * GIB;
    let (sim, span) = machine(MEMORY);
    sim.prefetch_to(span, GPU).expect("managed");
    let times = count.div_ceil(2 * MEMORY / PAGE);
    timed(|| {
        for _ in 0..times {
            sim.advise(span, Advice::SET_READ_MOSTLY, GPU).expect("managed");
            sim.advise(span, Advice::UNSET_READ_MOSTLY, GPU).expect("managed");
        }
        (times * 2 * MEMORY / PAGE) as f64
    })
}

/// Bytes of the heap for each block of 3 GiB, of which a device has memory for two thirds, after
/// random faults of the device.
fn state(count: u64) -> Measured {
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    let mut small = Small::new(MemoryContents::Skipped);
    small.faults(1); // What a machine has once.
    let empty = LIVE_BYTES.load(Ordering::Relaxed) - before;
    small.faults(count);
    let amount = (LIVE_BYTES.load(Ordering::Relaxed) - before - empty) as f64;
    drop(small);
    Measured { amount, seconds: (Small::MEMORY / 2 / MIB) as f64, allocations: 0 }
}

/// A fill of `count` MiB by a kernel of 132 x 1024 threads: virtual seconds in each real one.
fn fill(count: u64) -> Measured {
    let (sim, span) = machine(count * MIB);
    timed(|| {
        let start_ns = sim.clock_ns();
        kernel(&sim, span, DeviceAccess::Write(1), (132, 1024));
        (sim.clock_ns() - start_ns) as f64 / 1e9
    })
}

struct Row {
    name: &'static str,
    unit: &'static str,
    /// A unit in terms of what is measured.
    scale: f64,
    goal: f64,
    count: u64,
    measure: fn(u64) -> Measured,
}

const ROWS: [Row; 11] = [
    row("touch-device: one page a call, in memory", "M/s", 1e6, 50.0, 1 << 23, |count| {
        touches(false, count)
    }),
    row("touch-host: one page a call, in memory", "M/s", 1e6, 50.0, 1 << 23, |count| {
        touches(true, count)
    }),
    row("fault-pages: random, 1.5x, pages only", "M/s", 1e6, 5.0, 1 << 20, |count| {
        oversubscribed(MemoryContents::Skipped, count)
    }),
    row("fault-contents: random, 1.5x, with contents", "M/s", 1e6, 5.0, 1 << 20, |count| {
        oversubscribed(MemoryContents::Real, count)
    }),
    row("fault-described: random, 1.5x, described", "M/s", 1e6, 5.0, 1 << 20, |count| {
        oversubscribed(MemoryContents::Described, count)
    }),
    row("range-alike: prefetch there and back", "Gpages/s", 1e9, 5.0, 1 << 28, |count| {
        whole_ranges(false, count)
    }),
    row("range-unlike: prefetch there and back", "Gpages/s", 1e9, 2.0, 1 << 25, |count| {
        whole_ranges(true, count)
    }),
    row("range-advice: read-mostly and back", "Gpages/s", 1e9, 5.0, 1 << 28, advice),
    row("state: a block after random faults", "bytes", 1.0, 256.0, 1 << 18, state),
    row("fill-small: 1 GiB, 132 x 1024 threads", "x", 1.0, 20.0, 1 << 10, fill),
    row("fill: 16 GiB, 132 x 1024 threads", "x", 1.0, 20.0, 1 << 14, fill),
];

const fn row(
    name: &'static str,
    unit: &'static str,
    scale: f64,
    goal: f64,
    count: u64,
    measure: fn(u64) -> Measured,
) -> Row {
    Row { name, unit, scale, goal, count, measure }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let count = arguments.next().map(|count| count.parse().expect("a number"));
    println!("{:46}{:>8}{:>12}{:>14}", "row", "goal", "measured", "allocations");
    for row in ROWS.iter().filter(|row| row.name.starts_with(&wanted)) {
        let Measured { amount, seconds, allocations } = (row.measure)(count.unwrap_or(row.count));
        let rate = amount / seconds / row.scale;
        let Row { name, goal, unit, .. } = row;
        println!("{name:46}{goal:>8}{rate:>12.2}{allocations:>14} {unit}");
    }
}
