//! `pagewise doctor`: reports what this machine's CUDA driver offers, or why there is none.

use std::fmt::{self, Display};

use pagewise_cuda::{CudaBackend, Cupti, EntryPoint, LoadError, Probe, host_numa_nodes, probe};
use pagewise_hal::{
    Backend, BatchSupport, Capabilities, DeviceAttribute, DeviceId, DriverVersion, Result,
};

/// Width of the names in front of what is said of them.
const NAMES: usize = 26;

/// Looks, and says what there is. Never fails: the missing parts are the answer.
pub(crate) fn doctor(ceiling: Option<DriverVersion>) -> String {
    let mut findings = Findings(String::new());
    let probed = probe();
    findings.driver(&probed, ceiling);
    let opened = match (&probed, ceiling) {
        (Err(error), _) => Err(error.clone().into()),
        (Ok(_), Some(ceiling)) => CudaBackend::builder().max_version(ceiling).open(),
        (Ok(_), None) => CudaBackend::open(),
    };
    if let Ok(cuda) = &opened {
        findings.devices(cuda);
    }
    findings.host(opened.as_ref().ok());
    findings.supported(&probed, &opened);
    findings.0
}

/// The findings before anything was used.
type Probed = Result<Probe, LoadError>;

struct Findings(String);

impl Findings {
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

    fn driver(&mut self, probed: &Probed, ceiling: Option<DriverVersion>) {
        self.heading("CUDA driver");
        let probe = match probed {
            Ok(probe) => probe,
            Err(error) => return self.line("missing", error),
        };
        let own = probe.driver_version;
        let used = ceiling.map_or(own, |ceiling| ceiling.min(own));
        self.line("library", &probe.library);
        self.line("version", format_args!("CUDA {own}, used as {used}"));
        let here = |entry: &EntryPoint| entry.present && entry.since <= used;
        let has = |name: &str, since| {
            let mut entries = probe.entry_points.iter();
            entries.any(|entry| entry.name == name && entry.since == since && here(entry))
        };
        let locations = ["cuMemAdvise", "cuMemPrefetchAsync"];
        let by_location = locations.iter().all(|name| has(name, DriverVersion::CUDA_12_2));
        self.line("advise and prefetch", Abi { by_location, used });
        let (required, optional): (Vec<_>, Vec<_>) =
            probe.entry_points.iter().partition(|entry| entry.required);
        let found = required.iter().filter(|entry| here(entry)).count();
        self.line("required entry points", format_args!("{found} of {} found", required.len()));
        for entry in required.iter().filter(|entry| !here(entry)) {
            self.line("", format_args!("missing: {}", entry.name));
        }
        self.0 += "  optional entry points\n";
        for entry in optional {
            let state = match (entry.present, entry.since <= used) {
                (true, true) => "found",
                (true, false) => "not used, newer than the ceiling",
                (false, _) => "not in this driver",
            };
            let name = format!("  {}", entry.name);
            self.0 += &format!("  {name:<36} as of {:<6}{state}\n", entry.since.to_string());
        }
        match &probe.devices {
            Ok(count) => self.line("devices", count),
            Err(error) => self.line("devices", error),
        }
    }

    fn devices(&mut self, cuda: &CudaBackend) {
        let count = cuda.device_count().unwrap_or(0).cast_signed();
        for device in (0..count).map(DeviceId) {
            let name = cuda.device_name(device).unwrap_or_else(|error| error.to_string());
            self.heading(&format!("Device {}: {name}", device.0));
            let memory = cuda.memory_info(device).map(|info| {
                format!("{} MiB, {} MiB free", info.total_bytes >> 20, info.free_bytes >> 20)
            });
            self.line("memory", memory.unwrap_or_else(|error| error.to_string()));
            let major = cuda.device_attribute(device, DeviceAttribute::COMPUTE_CAPABILITY_MAJOR);
            let minor = cuda.device_attribute(device, DeviceAttribute::COMPUTE_CAPABILITY_MINOR);
            if let (Ok(major), Ok(minor)) = (major, minor) {
                self.line("compute capability", format_args!("{major}.{minor}"));
            }
            for (name, attribute) in ATTRIBUTES {
                self.line(name, Value(cuda.device_attribute(device, attribute)));
            }
        }
    }

    fn host(&mut self, cuda: Option<&CudaBackend>) {
        self.heading("Host");
        let nodes: Vec<String> = host_numa_nodes().iter().map(ToString::to_string).collect();
        self.line("NUMA nodes", nodes.join(", "));
        if let Some(cuda) = cuda {
            let shown = cuda.capabilities().host_page_map;
            self.line("page table", if shown { "readable" } else { "not shown by this system" });
        }
        let cupti = Cupti::open().and_then(|cupti| {
            if cuda.is_some() {
                cupti.start()?;
                cupti.stop()?;
            }
            Ok(cupti)
        });
        match cupti {
            Ok(cupti) => {
                let (path, version) = (cupti.path(), cupti.version());
                self.line("records of what moves", format_args!("{path}, CUPTI API {version}"));
            }
            Err(reason) => self.line("records of what moves", format_args!("none: {reason}")),
        }
    }

    fn supported(&mut self, probed: &Probed, opened: &Result<CudaBackend>) {
        self.heading("Supported");
        match opened {
            Ok(cuda) => self.capabilities(&cuda.capabilities()),
            Err(_) if probed.is_err() => self.line("the driver", "no: see above"),
            Err(error) => self.line("the driver", format_args!("no: {error}")),
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
        let concurrent = match found.concurrent_managed_access {
            true => "yes, on every device",
            false => "no: the host may not touch managed memory while a device works",
        };
        self.line("host and device at once", concurrent);
    }
}

/// The attributes that decide how managed memory behaves.
const ATTRIBUTES: [(&str, DeviceAttribute); 9] = [
    ("managed memory", DeviceAttribute::MANAGED_MEMORY),
    ("concurrent managed access", DeviceAttribute::CONCURRENT_MANAGED_ACCESS),
    ("pageable memory access", DeviceAttribute::PAGEABLE_MEMORY_ACCESS),
    ("by the host's page tables", DeviceAttribute::PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    ("direct access from host", DeviceAttribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    ("memory pools", DeviceAttribute::MEMORY_POOLS_SUPPORTED),
    ("pools on NUMA nodes", DeviceAttribute::HOST_NUMA_MEMORY_POOLS_SUPPORTED),
    ("pools on the host", DeviceAttribute::HOST_MEMORY_POOLS_SUPPORTED),
    ("nearest host NUMA node", DeviceAttribute::HOST_NUMA_ID),
];

/// An attribute: a number, or why there is none.
struct Value(Result<i32>);

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(value) => write!(f, "{value}"),
            Err(error) if error.kind() == pagewise_hal::ErrorKind::InvalidValue => {
                f.write_str("unknown to this version of the driver")
            }
            Err(error) => write!(f, "{error}"),
        }
    }
}

/// Which form of the calls is used, and why.
struct Abi {
    by_location: bool,
    used: DriverVersion,
}

impl Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by_location, used } = self;
        if *by_location {
            return write!(f, "by location (CUDA 12.2), since CUDA {used} has that form");
        }
        let why = if *used < DriverVersion::CUDA_12_2 { "is older" } else { "lacks that form" };
        write!(f, "by device ordinal (CUDA 8.0): by location needs 12.2, and CUDA {used} {why}")
    }
}
