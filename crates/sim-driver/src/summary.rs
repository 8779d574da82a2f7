//! The summary of a process: what moved, as a file that is up to date after each call and each
//! fault of the host.
//!
//! The file is written anew whenever a call or a fault of the host changed something, so that a process that ends in a
//! crash leaves its summary too. Text of one length replaces text of another by one write.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use pagewise_hal::{Backend, BytesByCause, Counters, DeviceId};
use pagewise_sim::{HostFaultMechanism, SimBackend};
use serde::Serialize;

use crate::followed::Buffers;

/// The text of a summary, but for its buffers. Keys are stable: scripts read them.
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

/// The file of a summary, and what it needs to remember between calls.
#[derive(Debug)]
pub(crate) struct SummaryFile {
    file: File,
    /// The process that the file belongs to: a child of `fork` must not write it.
    process: u32,
    /// The state at the last write.
    seen: Option<Seen>,
    buffers: Buffers,
    /// The text of the largest buffers.
    listed: Vec<u8>,
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
}

impl Seen {
    fn of(sim: &SimBackend, unsupported: &BTreeSet<String>) -> Self {
        let (counters, clock_ns) = (sim.counters(), sim.clock_ns());
        Self { counters, clock_ns, unsupported: unsupported.len() }
    }
}

impl SummaryFile {
    /// Begins the summary of this process, in a folder.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let process = std::process::id();
        let path = folder.join(format!("summary-{process}.json"));
        Ok(Self {
            file: File::create(path)?,
            process,
            seen: None,
            buffers: Buffers::default(),
            listed: b"[]".to_vec(),
            text: Vec::new(),
            written: 0,
        })
    }

    /// Brings the file up to date, if anything changed since the last time.
    pub(crate) fn update(&mut self, sim: &SimBackend, unsupported: &BTreeSet<String>) {
        let changes = sim.take_managed_changes();
        if self.buffers.follow(sim, &changes) {
            self.listed.clear();
            // A vector takes all that is written, and the buffers are plain numbers.
            _ = serde_json::to_writer(&mut self.listed, &self.buffers.largest());
            self.seen = None;
        }
        self.update_counts(sim, unsupported);
    }

    /// Brings the file up to date after a fault of the host, which brings no memory to devices: so
    /// the peaks of buffers stay as they are.
    pub(crate) fn update_counts(&mut self, sim: &SimBackend, unsupported: &BTreeSet<String>) {
        let seen = Seen::of(sim, unsupported);
        if self.seen.as_ref() == Some(&seen) || self.process != std::process::id() {
            return;
        }
        let text = summary(sim, &seen, unsupported);
        self.text.clear();
        if serde_json::to_writer(&mut self.text, &text).is_ok() {
            self.text.pop();
            self.text.extend_from_slice(b",\"buffers\":");
            self.text.extend_from_slice(&self.listed);
            self.text.push(b'}');
            if self.write().is_ok() {
                self.seen = Some(seen);
            }
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

fn summary<'a>(sim: &'a SimBackend, seen: &Seen, unsupported: &'a BTreeSet<String>) -> Summary<'a> {
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
    }
}

fn mechanism(sim: &SimBackend) -> &'static str {
    match sim.host_faults().and_then(|faults| faults.mechanism) {
        Some(HostFaultMechanism::Userfaultfd) => "userfaultfd",
        Some(HostFaultMechanism::PageProtection) => "page_protection",
        _ => "declared",
    }
}
