//! The summary of a process: what moved, as a file that is up to date after each call and each
//! fault of the host.
//!
//! The file is written anew whenever a call or a fault of the host changed something, so that a process that ends in a
//! crash leaves its summary too. Text of one length replaces text of another by one write.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use pagewise_hal::{Backend, BytesByCause, Counters, DeviceId, DevicePtr, Processor, Span};
use pagewise_sim::{HostFaultMechanism, SimBackend};
use serde::Serialize;

/// The most buffers that a summary lists: those with the largest peaks.
const LISTED_BUFFERS: usize = 64;

/// The most buffers that are followed. Those allocated later are not listed.
const FOLLOWED_BUFFERS: usize = 4096;

/// The text of a summary. Keys are stable: scripts read them.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    profile: &'a str,
    devices: u32,
    /// The mechanism by which accesses of the host are seen.
    host_faults: &'static str,
    gpu_fault_groups: u64,
    gpu_faults: u64,
    cpu_faults: u64,
    h2d_bytes: u64,
    d2h_bytes: u64,
    d2d_bytes: u64,
    bytes_by_cause: Ways,
    thrashing: u64,
    throttling: u64,
    remote_maps: u64,
    simulated_ns: u64,
    unsupported: Vec<&'a str>,
    pressure: Vec<DevicePressure>,
    buffers: Vec<Buffer>,
}

/// Bytes each way, by cause.
#[derive(Debug, Serialize)]
struct Ways {
    h2d: BytesByCause,
    d2h: BytesByCause,
}

/// The use that managed pages made of one device.
#[derive(Debug, Serialize)]
struct DevicePressure {
    capacity_bytes: u64,
    peak_bytes: u64,
    evicted_bytes: u64,
    returned_bytes: u64,
    verdict: &'static str,
}

/// One managed allocation.
#[derive(Debug, Clone, Copy, Serialize)]
struct Buffer {
    /// Its number among the managed allocations of the process, from 1.
    number: u64,
    bytes: u64,
    /// The most of it that was resident on devices after a call, duplicates counted each.
    peak_device_bytes: u64,
}

/// The file of a summary, and what it needs to remember between calls.
#[derive(Debug)]
pub(crate) struct SummaryFile {
    file: File,
    /// The process that the file belongs to: a child of `fork` must not write it.
    process: u32,
    /// The state at the last write.
    seen: Option<Seen>,
    buffers: Buffers,
    text: Vec<u8>,
    /// How long the text in the file is.
    written: u64,
}

/// The state that a summary depends on.
#[derive(Debug, PartialEq)]
struct Seen {
    counters: Counters,
    clock_ns: u64,
    unsupported: usize,
    live: usize,
}

impl Seen {
    fn of(sim: &SimBackend, unsupported: &BTreeSet<String>, live: usize) -> Self {
        let (counters, clock_ns) = (sim.counters(), sim.clock_ns());
        Self { counters, clock_ns, unsupported: unsupported.len(), live }
    }
}

impl SummaryFile {
    /// Begins the summary of this process, in a folder.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let process = std::process::id();
        let path = folder.join(format!("summary-{process}.json"));
        let file = File::create(path)?;
        let buffers = Buffers::default();
        Ok(Self { file, process, seen: None, buffers, text: Vec::new(), written: 0 })
    }

    /// Brings the file up to date, if anything changed since the last time.
    pub(crate) fn update(&mut self, sim: &SimBackend, unsupported: &BTreeSet<String>) {
        let live = sim.live_managed();
        let seen = Seen::of(sim, unsupported, live.len());
        if self.seen.as_ref() == Some(&seen) || self.process != std::process::id() {
            return;
        }
        self.buffers.follow(sim, &live);
        self.replace(sim, unsupported, seen);
    }

    /// Brings the file up to date after a fault of the host, which brings no memory to devices: so
    /// the peaks of buffers stay as they are.
    pub(crate) fn update_counts(&mut self, sim: &SimBackend, unsupported: &BTreeSet<String>) {
        let live = self.seen.as_ref().map_or(0, |seen| seen.live);
        let seen = Seen::of(sim, unsupported, live);
        if self.seen.as_ref() != Some(&seen) && self.process == std::process::id() {
            self.replace(sim, unsupported, seen);
        }
    }

    fn replace(&mut self, sim: &SimBackend, unsupported: &BTreeSet<String>, seen: Seen) {
        let text = summary(sim, &seen, unsupported, self.buffers.largest());
        self.text.clear();
        if serde_json::to_writer(&mut self.text, &text).is_ok() && self.write().is_ok() {
            self.seen = Some(seen);
        }
    }

    /// Writes the text over the older one; blanks cover what is left of a longer one.
    fn write(&mut self) -> io::Result<()> {
        let length = self.text.len() as u64;
        let padded = usize::try_from(self.written.max(length)).unwrap_or(self.text.len());
        self.text.resize(padded, b' ');
        self.file.write_all_at(&self.text, 0)?;
        self.written = padded as u64;
        Ok(())
    }
}

fn summary<'a>(
    sim: &'a SimBackend,
    seen: &Seen,
    unsupported: &'a BTreeSet<String>,
    buffers: Vec<Buffer>,
) -> Summary<'a> {
    let counters = seen.counters;
    let devices = sim.config().device_count();
    let pressure = |device| {
        let pressure = sim.pressure(DeviceId(device))?;
        Some(DevicePressure {
            capacity_bytes: pressure.capacity_bytes,
            peak_bytes: pressure.peak_bytes,
            evicted_bytes: pressure.evicted_bytes,
            returned_bytes: pressure.returned_bytes,
            verdict: pressure.verdict().name(),
        })
    };
    Summary {
        profile: &sim.config().gpu().name,
        devices,
        host_faults: mechanism(sim),
        gpu_fault_groups: counters.gpu_faults,
        gpu_faults: counters.merged_gpu_faults,
        cpu_faults: counters.cpu_faults,
        h2d_bytes: counters.to_device.bytes,
        d2h_bytes: counters.to_host.bytes,
        d2d_bytes: counters.between_devices.bytes,
        bytes_by_cause: Ways { h2d: counters.to_device_by, d2h: counters.to_host_by },
        thrashing: counters.thrashing_pages,
        throttling: counters.throttles,
        remote_maps: counters.remote_maps,
        simulated_ns: seen.clock_ns,
        unsupported: unsupported.iter().map(String::as_str).collect(),
        pressure: (0..i32::try_from(devices).unwrap_or(i32::MAX)).filter_map(pressure).collect(),
        buffers,
    }
}

fn mechanism(sim: &SimBackend) -> &'static str {
    match sim.host_faults().and_then(|faults| faults.mechanism) {
        Some(HostFaultMechanism::Userfaultfd) => "userfaultfd",
        Some(HostFaultMechanism::PageProtection) => "page_protection",
        _ => "declared",
    }
}

/// The managed allocations of the process.
#[derive(Debug, Default)]
struct Buffers {
    /// Those that live, by address.
    live: BTreeMap<DevicePtr, Buffer>,
    /// The largest of those that were freed.
    freed: Vec<Buffer>,
    /// How many there were.
    count: u64,
}

impl Buffers {
    /// Notes which allocations live now, and how much of each is on devices.
    fn follow(&mut self, sim: &SimBackend, live: &[Span]) {
        let spans: BTreeMap<DevicePtr, u64> =
            live.iter().map(|span| (span.ptr, span.bytes)).collect();
        let freed = &mut self.freed;
        let before = freed.len();
        self.live.retain(|ptr, buffer| {
            let lives = spans.get(ptr) == Some(&buffer.bytes);
            freed.extend((!lives).then_some(*buffer));
            lives
        });
        if freed.len() > before {
            freed.sort_by_key(|buffer| std::cmp::Reverse(buffer.peak_device_bytes));
            freed.truncate(LISTED_BUFFERS);
        }
        for span in live {
            if self.live.len() >= FOLLOWED_BUFFERS && !self.live.contains_key(&span.ptr) {
                continue;
            }
            let buffer = self.live.entry(span.ptr).or_insert_with(|| {
                self.count = self.count.saturating_add(1);
                Buffer { number: self.count, bytes: span.bytes, peak_device_bytes: 0 }
            });
            let on = |device| sim.resident_bytes(*span, Processor::device(device));
            let now = (0..sim.config().device_count()).map(on).fold(0, u64::saturating_add);
            buffer.peak_device_bytes = buffer.peak_device_bytes.max(now);
        }
    }

    /// Those with the largest peaks, in the order of allocation.
    fn largest(&self) -> Vec<Buffer> {
        let mut all: Vec<Buffer> = self.live.values().chain(&self.freed).copied().collect();
        all.sort_by_key(|buffer| (std::cmp::Reverse(buffer.peak_device_bytes), buffer.number));
        all.truncate(LISTED_BUFFERS);
        all.sort_by_key(|buffer| buffer.number);
        all
    }
}
