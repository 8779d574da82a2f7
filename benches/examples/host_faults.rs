//! The time that genuine faults of the host take, by each mechanism, on this machine's clock.
//!
//! `cargo run -p pagewise-benches --example host_faults`. A figure is the median over pages that
//! lie 2 MiB apart, or the mean over a dense range, in nanoseconds: the best of ten machines, because
//! other work only adds. The row `declared` makes the same
//! accesses by `host_touch`, one call for each page, without faults.

use std::error::Error;
use std::time::Instant;

use pagewise::{
    Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, EventCapture, HostAccess, HostFaults,
    HostTouch, Location, SimBackend, SimConfig, Span, StreamHandle,
};

const DEVICE: DeviceId = DeviceId(0);
const PAGE: u64 = 4096;
const BLOCK: u64 = 2 << 20;
const BLOCKS: u64 = 64;
const ROUNDS: usize = 10;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A machine with memory, and a way to read and write a byte of it.
struct Bench {
    sim: SimBackend,
    span: Span,
    declared: bool,
}

impl Bench {
    fn new(faults: HostFaults) -> Outcome<Self> {
        let config = SimConfig::h200().host_faults(faults).events(EventCapture::Off);
        let sim = SimBackend::new(config)?;
        let span = sim.alloc(BLOCKS * BLOCK)?;
        Ok(Self { sim, span, declared: faults == HostFaults::Declared })
    }

    /// One access of the host.
    fn access(&self, offset: u64, write: bool) -> Outcome<()> {
        let ptr = self.span.ptr.offset(offset);
        if self.declared {
            let access = if write { HostAccess::Write(1) } else { HostAccess::Read };
            let touch = HostTouch { span: Span::new(ptr, 1), stride_bytes: 1, access };
            // SAFETY: only this program uses the memory, from one thread.
            unsafe { self.sim.host_touch(touch) }?;
            return Ok(());
        }
        let place = std::ptr::with_exposed_provenance_mut::<u8>(ptr.0 as usize);
        // SAFETY: the byte lies in live managed memory that only this program uses.
        unsafe {
            if write {
                place.write_volatile(1)
            } else {
                let _ = place.read_volatile();
            }
        };
        Ok(())
    }

    /// One thread of the device accesses a byte of each page, or of one page of each block.
    fn device(&self, stride_bytes: u64, access: DeviceAccess) -> Outcome<()> {
        let (device, span, blocks, threads) = (DEVICE, self.span, 1, 1);
        let touch = DeviceTouch { device, span, stride_bytes, access, blocks, threads };
        // SAFETY: only this program uses the memory, from one thread.
        unsafe { self.sim.device_touch(touch, StreamHandle::PER_THREAD) }?;
        Ok(())
    }

    /// The median time of an access to one page of each block.
    fn sparse(&self, offset: u64, write: bool) -> Outcome<u128> {
        let mut times = Vec::new();
        for block in 0..BLOCKS {
            let start = Instant::now();
            self.access(block * BLOCK + offset, write)?;
            times.push(start.elapsed().as_nanos());
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// The mean time of an access to each page.
    fn dense(&self) -> Outcome<u128> {
        let start = Instant::now();
        (0..BLOCKS * BLOCK / PAGE).try_for_each(|page| self.access(page * PAGE, false))?;
        Ok(start.elapsed().as_nanos() / u128::from(BLOCKS * BLOCK / PAGE))
    }
}

/// The figures of one machine, in the order of the columns.
fn round(faults: HostFaults) -> Outcome<[u128; 6]> {
    let bench = Bench::new(faults)?;
    bench.device(BLOCK, DeviceAccess::Write(1))?;
    let moved = bench.sparse(0, false)?;
    let again = bench.sparse(0, false)?;
    bench.device(PAGE, DeviceAccess::Write(1))?;
    let dense = bench.dense()?;
    // All pages are the host's and shown. They leave.
    let start = Instant::now();
    bench.sim.prefetch_to(bench.span, Location::device(DEVICE))?;
    let leave = start.elapsed().as_nanos() / u128::from(BLOCKS);
    // The driver maps all pages for the host in one call, and the program's view shows none.
    let touch = HostTouch { span: bench.span, stride_bytes: PAGE, access: HostAccess::Read };
    // SAFETY: only this program uses the memory, from one thread.
    unsafe { bench.sim.host_touch(touch) }?;
    let shown = bench.sparse(0, false)?;
    bench.sim.set_read_mostly(bench.span, true)?;
    bench.device(BLOCK, DeviceAccess::Read)?;
    let collapsed = bench.sparse(0, true)?;
    Ok([moved, shown, collapsed, again, dense, leave])
}

fn row(faults: HostFaults) -> Outcome<()> {
    let mut best = [u128::MAX; 6];
    for _ in 0..ROUNDS {
        let figures = round(faults)?;
        best.iter_mut().zip(figures).for_each(|(best, figure)| *best = figure.min(*best));
    }
    let figures = best.map(|figure| figure.to_string()).join(" | ");
    println!("| {faults:?} | {figures} |");
    Ok(())
}

fn main() -> Outcome<()> {
    println!(
        "| host faults | moves | shown only | collapses | none | dense, a page | leaves, a block |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for faults in [HostFaults::Declared, HostFaults::Userfaultfd, HostFaults::PageProtection] {
        if let Err(error) = row(faults) {
            println!("| {faults:?} | {error} |");
        }
    }
    Ok(())
}
