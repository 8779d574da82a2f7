//! The findings of `pagewise doctor` for people.

use std::fmt::Display;

use pagewise_hal::{BatchSupport, Capabilities, DriverVersion, Error, ErrorKind};

use super::findings::{
    CallForm, Device, Driver, Entry, Findings, Host, State, Supported, is_unknown,
};

/// Width of the names in front of what is said of them.
const NAMES: usize = 26;

pub(super) fn text(findings: &Findings) -> String {
    let mut text = Text(String::new());
    text.heading("CUDA driver");
    match &findings.driver {
        Ok(driver) => text.driver(driver),
        Err(error) => text.line("missing", error),
    }
    findings.devices.iter().for_each(|device| text.device(device));
    text.host(&findings.host);
    text.supported(&findings.supported, findings.driver.is_err());
    text.0
}

/// The value, or why there is none.
fn known<T: Display, E: Display>(found: &Result<T, E>) -> String {
    found.as_ref().map_or_else(ToString::to_string, ToString::to_string)
}

struct Text(String);

impl Text {
    fn heading(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0 += text;
        self.0.push('\n');
    }

    fn line(&mut self, name: &str, said: impl Display) {
        self.0 += &format!("  {name:<NAMES$}{said}\n");
    }

    fn driver(&mut self, driver: &Driver) {
        let Driver { library, version, used_as, .. } = driver;
        self.line("library", library);
        self.line("version", format_args!("CUDA {version}, used as {used_as}"));
        self.line("advise and prefetch", form(driver));
        let (required, optional): (Vec<&Entry>, Vec<&Entry>) =
            driver.entry_points.iter().partition(|entry| entry.required);
        self.count("required entry points", &required);
        let serves = |entry: &&Entry| entry.serves_virtual_memory();
        let serving: Vec<&Entry> = driver.entry_points.iter().filter(serves).collect();
        self.count("those of virtual memory", &serving);
        self.0 += "  optional entry points\n";
        for entry in optional {
            let state = match entry.state {
                State::Found => "found",
                State::NotUsed => "not used, newer than the ceiling",
                State::Missing => "not in this driver",
            };
            let name = format!("  {}", entry.name);
            self.0 += &format!("  {name:<36} as of {:<6}{state}\n", entry.since.to_string());
        }
        self.line("devices", known(&driver.devices));
    }

    /// How many of some entry points are found, and which are missing.
    fn count(&mut self, name: &str, entries: &[&Entry]) {
        let is_found = |entry: &&&Entry| entry.state == State::Found;
        let found = entries.iter().filter(is_found).count();
        self.line(name, format_args!("{found} of {} found", entries.len()));
        for entry in entries.iter().filter(|entry| !is_found(entry)) {
            self.line("", format_args!("missing: {}", entry.name));
        }
    }

    fn device(&mut self, device: &Device) {
        self.heading(&format!("Device {}: {}", device.ordinal, known(&device.name)));
        let memory = device.memory.as_ref().map(|memory| {
            format!("{} MiB, {} MiB free", memory.total_bytes >> 20, memory.free_bytes >> 20)
        });
        self.line("memory", known(&memory));
        if let Some(capability) = &device.compute_capability {
            self.line("compute capability", capability);
        }
        for attribute in &device.attributes {
            let value = match &attribute.value {
                Err(error) if is_unknown(error) => "unknown to this version of the driver".into(),
                value => known(value),
            };
            self.line(attribute.name, value);
        }
        let units = match &device.virtual_memory {
            Ok(units) => {
                let [least, best] = [units.granularity_bytes, units.recommended_granularity_bytes];
                format!("{} KiB, recommended {} KiB", least >> 10, best >> 10)
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        self.line("virtual memory units", units);
    }

    fn host(&mut self, host: &Host) {
        self.heading("Host");
        let nodes: Vec<String> = host.numa_nodes.iter().map(ToString::to_string).collect();
        self.line("NUMA nodes", nodes.join(", "));
        if let Some(shown) = host.page_table {
            self.line("page table", if shown { "readable" } else { "not shown by this system" });
        }
        let records = match &host.records {
            Ok(records) => format!("{}, CUPTI API {}", records.library, records.api),
            Err(reason) => format!("none: {reason}"),
        };
        self.line("records of what moves", records);
        let faults = &host.faults;
        match faults.mechanism {
            Some(mechanism) => {
                self.line("simulated host faults", format_args!("by {mechanism}: {}", faults.why));
            }
            None => self.line("simulated host faults", format_args!("none: {}", faults.why)),
        }
        if faults.mechanism.is_some() && !faults.system_calls {
            self.line("", "system calls with pages that are elsewhere fail with EFAULT");
        }
    }

    fn supported(&mut self, supported: &Supported, was_told: bool) {
        self.heading("Supported");
        let no = |error: &Error| match was_told {
            true => "no: see above".to_owned(),
            false => format!("no: {error}"),
        };
        match (&supported.capabilities, &supported.driver) {
            (Some(capabilities), _) => self.capabilities(capabilities),
            (None, Err(error)) => self.line("the driver", no(error)),
            (None, Ok(())) => self.line("the driver", "yes"),
        }
        self.line("the simulator", "yes, everywhere: --backend sim");
    }

    fn capabilities(&mut self, found: &Capabilities) {
        self.line("advice and prefetch", "yes");
        let since =
            |yes, version| if yes { "yes".to_owned() } else { format!("needs CUDA {version}") };
        self.line("host NUMA locations", since(found.locations, "12.2"));
        let batches = match found.prefetch_batch {
            BatchSupport::Native => "yes",
            BatchSupport::Loop => "yes, by a loop over single calls; needs CUDA 13.0 for its own",
            _ => "no",
        };
        self.line("prefetch batches", batches);
        self.line("discard", since(found.discard, "13.0"));
        self.line("pools by location", since(found.location_pools, "13.0"));
        let virtual_memory = match found.virtual_memory {
            true => "yes, on every device",
            false => "no: needs its entry points, and every device to support it",
        };
        self.line("virtual memory", virtual_memory);
        let concurrent = match found.concurrent_managed_access {
            true => "yes, on every device",
            false => "no: the host may not touch managed memory while a device works",
        };
        self.line("host and device at once", concurrent);
    }
}

/// Which form of the calls is used, and why.
fn form(driver: &Driver) -> String {
    let used = driver.used_as;
    if driver.advise_and_prefetch == CallForm::ByLocation {
        return format!("by location (CUDA 12.2), since CUDA {used} has that form");
    }
    let why = if used < DriverVersion::CUDA_12_2 { "is older" } else { "lacks that form" };
    format!("by device ordinal (CUDA 8.0): by location needs 12.2, and CUDA {used} {why}")
}
