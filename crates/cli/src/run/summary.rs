//! The summary of a program: the sum over its processes, as JSON and as text.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use pagewise_hal::BytesByCause;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most buffers that the text lists.
const LISTED_BUFFERS: usize = 8;

/// The work of a program, all processes together. The keys are stable.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Summary {
    /// The program's exit status; 128 and the number of the signal that ended it.
    exit: i32,
    /// How many of its processes called the driver.
    processes: u64,
    profile: String,
    devices: u32,
    /// How the processes' own accesses to memory were seen.
    host_faults: String,
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
    /// Of the process that took longest.
    simulated_ns: u64,
    unsupported: BTreeSet<String>,
    pressure: Vec<Pressure>,
    buffers: Vec<Buffer>,
}

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
struct Ways {
    h2d: BytesByCause,
    d2h: BytesByCause,
}

/// The use that one process made of one device.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Pressure {
    capacity_bytes: u64,
    peak_bytes: u64,
    evicted_bytes: u64,
    returned_bytes: u64,
    verdict: String,
}

/// One managed allocation.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Buffer {
    number: u64,
    bytes: u64,
    peak_device_bytes: u64,
}

impl Summary {
    /// Reads what the processes left in a folder.
    ///
    /// # Errors
    /// If a summary cannot be read.
    pub(super) fn collect(folder: &Path, exit: i32) -> Result<Self, String> {
        let unreadable = |error: std::io::Error| format!("{}: {error}", folder.display());
        let entries = std::fs::read_dir(folder).map_err(unreadable)?;
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            paths.extend(
                path.extension().is_some_and(|extension| extension == "json").then_some(path),
            );
        }
        paths.sort();
        let mut all = Self { exit, ..Self::default() };
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(unreadable)?;
            if text.trim().is_empty() {
                // The process ended before its first call did.
                continue;
            }
            let one = serde_json::from_str(&text)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            all.add(one);
        }
        Ok(all)
    }

    /// Adds a process.
    fn add(&mut self, one: Self) {
        let sum = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        sum(&mut self.processes, 1);
        (self.profile, self.devices) = (one.profile, one.devices);
        self.host_faults = one.host_faults;
        sum(&mut self.gpu_fault_groups, one.gpu_fault_groups);
        sum(&mut self.gpu_faults, one.gpu_faults);
        sum(&mut self.cpu_faults, one.cpu_faults);
        sum(&mut self.h2d_bytes, one.h2d_bytes);
        sum(&mut self.d2h_bytes, one.d2h_bytes);
        sum(&mut self.d2d_bytes, one.d2d_bytes);
        add(&mut self.bytes_by_cause.h2d, one.bytes_by_cause.h2d);
        add(&mut self.bytes_by_cause.d2h, one.bytes_by_cause.d2h);
        sum(&mut self.thrashing, one.thrashing);
        sum(&mut self.throttling, one.throttling);
        sum(&mut self.remote_maps, one.remote_maps);
        self.simulated_ns = self.simulated_ns.max(one.simulated_ns);
        self.unsupported.extend(one.unsupported);
        self.pressure.extend(one.pressure);
        self.buffers.extend(one.buffers);
    }

    /// The summary as one object.
    pub(super) fn json(&self) -> Value {
        serde_json::to_value(self).expect("plain data with string keys")
    }
}

/// Adds the bytes of a process.
fn add(to: &mut BytesByCause, more: BytesByCause) {
    to.user = to.user.saturating_add(more.user);
    to.coherence = to.coherence.saturating_add(more.coherence);
    to.prefetch = to.prefetch.saturating_add(more.prefetch);
    to.eviction = to.eviction.saturating_add(more.eviction);
    to.access_counters = to.access_counters.saturating_add(more.access_counters);
}

/// The causes that there were, by bytes.
struct Causes(BytesByCause);

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = self;
        let causes = [
            ("asked for", bytes.user),
            ("faulted", bytes.coherence),
            ("prefetched with faults", bytes.prefetch),
            ("evicted", bytes.eviction),
            ("by access counters", bytes.access_counters),
        ];
        let mut gap = "  (";
        for (name, bytes) in causes.into_iter().filter(|(_, bytes)| *bytes > 0) {
            write!(f, "{gap}{} {name}", size(bytes))?;
            gap = ", ";
        }
        if gap == ", " { f.write_str(")") } else { Ok(()) }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.processes == 0 {
            return writeln!(f, "pagewise: the program did not call the CUDA driver");
        }
        let Self { devices, profile, processes, .. } = self;
        let ms = self.simulated_ns as f64 / 1e6;
        write!(f, "pagewise: {devices} simulated {profile}, {ms:.3} ms of its time")?;
        if *processes > 1 {
            write!(f, ", {processes} processes")?;
        }
        let Ways { h2d, d2h } = self.bytes_by_cause;
        let (h2d, d2h) = (Causes(h2d), Causes(d2h));
        writeln!(f, "\n  host to device   {}{h2d}", size(self.h2d_bytes))?;
        writeln!(f, "  device to host   {}{d2h}", size(self.d2h_bytes))?;
        if self.d2d_bytes > 0 {
            writeln!(f, "  device to device {}", size(self.d2d_bytes))?;
        }
        let Self { gpu_faults, gpu_fault_groups, cpu_faults, remote_maps, .. } = self;
        writeln!(
            f,
            "  faults           {gpu_faults} of devices in {gpu_fault_groups} records, \
                     {cpu_faults} of the host"
        )?;
        if *remote_maps > 0 {
            writeln!(f, "  remote mappings  {remote_maps}")?;
        }
        if self.thrashing > 0 || self.throttling > 0 {
            let Self { thrashing, throttling, .. } = self;
            writeln!(f, "  thrashing        {thrashing} pages, {throttling} waits")?;
        }
        self.write_pressure(f)?;
        self.write_buffers(f)?;
        if !self.unsupported.is_empty() {
            let names: Vec<&str> = self.unsupported.iter().map(String::as_str).collect();
            writeln!(f, "  not supported    {}", names.join(", "))?;
        }
        Ok(())
    }
}

impl Summary {
    fn write_pressure(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, pressure) in self.pressure.iter().enumerate() {
            if pressure.peak_bytes == 0 {
                continue;
            }
            let device = number.checked_rem(self.devices as usize).unwrap_or(0);
            let Pressure { peak_bytes, capacity_bytes, evicted_bytes, verdict, .. } = pressure;
            write!(
                f,
                "  memory of GPU {device}  {} of {} at most: {verdict}",
                size(*peak_bytes),
                size(*capacity_bytes)
            )?;
            match evicted_bytes {
                0 => writeln!(f)?,
                bytes => writeln!(f, ", {} evicted", size(*bytes))?,
            }
        }
        Ok(())
    }

    fn write_buffers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut largest: Vec<&Buffer> = self.buffers.iter().collect();
        largest.sort_by_key(|buffer| std::cmp::Reverse(buffer.peak_device_bytes));
        for buffer in largest.iter().take(LISTED_BUFFERS) {
            let Buffer { number, bytes, peak_device_bytes } = buffer;
            let (bytes, peak) = (size(*bytes), size(*peak_device_bytes));
            writeln!(f, "  buffer {number:<9} {bytes}, at most {peak} on devices")?;
        }
        match largest.len().saturating_sub(LISTED_BUFFERS) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more buffers"),
        }
    }
}

/// Bytes in the largest unit of which there is one.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = |shift: &u32| bytes.trailing_zeros() >= *shift;
    match UNITS.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((name, shift)) if whole(shift) => format!("{} {name}", bytes >> shift),
        Some((name, shift)) => format!("{:.1} {name}", bytes as f64 / f64::from(*shift).exp2()),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_or_have_one_decimal() {
        let text = [0, 1023, 1024, 1536, 2 << 20, (64 << 20) + 1, 3 << 40].map(size);
        assert_eq!(text, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "2 MiB", "64.0 MiB", "3 TiB"]);
    }

    #[test]
    fn processes_add_up_and_the_longest_time_counts() {
        let one = |ns, faults, name: &str| Summary {
            simulated_ns: ns,
            gpu_faults: faults,
            unsupported: BTreeSet::from([name.to_owned()]),
            ..Summary::default()
        };
        let mut all = Summary::default();
        all.add(one(7, 3, "cuTexRefCreate"));
        all.add(one(5, 4, "cuTexRefCreate"));
        assert_eq!((all.processes, all.simulated_ns, all.gpu_faults), (2, 7, 7));
        assert_eq!(all.unsupported.len(), 1);
        assert!(all.to_string().contains("2 processes"), "{all}");
    }
}
