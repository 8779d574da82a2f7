//! The driver, the devices and the host as they are found, ready for JSON.

use pagewise_cuda::{
    CudaBackend, Cupti, CuptiUnavailable, EntryPoint, LoadError, Probe, host_numa_nodes, probe,
};
use pagewise_hal::{
    Backend, BatchSupport, Capabilities, DeviceAttribute, DeviceId, DriverVersion, Error,
    ErrorKind, Granularity, Location, MemoryProps,
};
use pagewise_sim::{HostFaultSupport, host_fault_support};
use serde::{Serialize, Serializer};

/// All findings. In JSON they are the same, with `{"error": …}` where something failed.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    #[serde(serialize_with = "found_or_error")]
    pub(super) driver: Result<Driver, LoadError>,
    pub(super) devices: Vec<Device>,
    pub(super) host: Host,
    pub(super) supported: Supported,
}

/// A driver that could be loaded.
#[derive(Debug, Serialize)]
pub(super) struct Driver {
    pub(super) library: String,
    #[serde(serialize_with = "as_text")]
    pub(super) version: DriverVersion,
    /// The version as which it is used.
    #[serde(serialize_with = "as_text")]
    pub(super) used_as: DriverVersion,
    pub(super) advise_and_prefetch: CallForm,
    pub(super) entry_points: Vec<Entry>,
    #[serde(serialize_with = "found_or_error")]
    pub(super) devices: Result<u32, LoadError>,
}

/// The form of the calls that name a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallForm {
    /// That of CUDA 12.2.
    ByLocation,
    /// That of CUDA 8.0.
    ByDeviceOrdinal,
}

/// An entry point of the driver.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    #[serde(serialize_with = "as_text")]
    pub(super) since: DriverVersion,
    pub(super) required: bool,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Found,
    /// Newer than the ceiling.
    NotUsed,
    Missing,
}

/// A device that the driver shows.
#[derive(Debug, Serialize)]
pub(super) struct Device {
    pub(super) ordinal: i32,
    #[serde(serialize_with = "found_or_error")]
    pub(super) name: Result<String, Error>,
    #[serde(serialize_with = "found_or_error")]
    pub(super) memory: Result<Memory, Error>,
    pub(super) compute_capability: Option<String>,
    pub(super) attributes: Vec<Attribute>,
    #[serde(serialize_with = "found_or_error")]
    pub(super) virtual_memory: Result<Units, Error>,
}

/// The units in which physical memory of a device is created and mapped.
#[derive(Debug, Serialize)]
pub(super) struct Units {
    pub(super) granularity_bytes: u64,
    pub(super) recommended_granularity_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
}

/// An attribute of a device, under the name that people read.
#[derive(Debug, Serialize)]
pub(super) struct Attribute {
    pub(super) name: &'static str,
    #[serde(serialize_with = "found_or_error")]
    pub(super) value: Result<i32, Error>,
}

#[derive(Debug, Serialize)]
pub(super) struct Host {
    pub(super) numa_nodes: Vec<i32>,
    /// Whether the host's page table can be read; `None` without a driver.
    pub(super) page_table: Option<bool>,
    #[serde(serialize_with = "found_or_error")]
    pub(super) records: Result<Records, CuptiUnavailable>,
    /// The genuine faults of the host that a simulated machine can have here.
    pub(super) faults: HostFaultSupport,
}

/// The library that reports what moves.
#[derive(Debug, Serialize)]
pub(super) struct Records {
    pub(super) library: String,
    pub(super) api: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Supported {
    /// Whether there is a back end over the driver.
    #[serde(serialize_with = "yes_or_error")]
    pub(super) driver: Result<(), Error>,
    pub(super) simulator: bool,
    /// The capabilities of the back end over the driver.
    #[serde(serialize_with = "known_capabilities")]
    pub(super) capabilities: Option<Capabilities>,
}

impl Findings {
    pub(super) fn look(ceiling: Option<DriverVersion>) -> Self {
        let probed = probe();
        let opened = match (&probed, ceiling) {
            (Err(error), _) => Err(error.clone().into()),
            (Ok(_), Some(ceiling)) => CudaBackend::builder().max_version(ceiling).open(),
            (Ok(_), None) => CudaBackend::open(),
        };
        let cuda = opened.as_ref().ok();
        let ordinals = 0..cuda.and_then(|cuda| cuda.device_count().ok()).unwrap_or(0).cast_signed();
        Self {
            driver: probed.map(|probe| Driver::of(probe, ceiling)),
            devices: cuda.map_or(Vec::new(), |cuda| {
                ordinals.map(|ordinal| Device::of(cuda, DeviceId(ordinal))).collect()
            }),
            host: Host::look(cuda),
            supported: Supported {
                capabilities: cuda.map(CudaBackend::capabilities),
                driver: opened.map(drop),
                simulator: true,
            },
        }
    }
}

impl Driver {
    fn of(probe: Probe, ceiling: Option<DriverVersion>) -> Self {
        let version = probe.driver_version;
        let used_as = ceiling.map_or(version, |ceiling| ceiling.min(version));
        let state = |entry: &EntryPoint| match (entry.present, entry.since <= used_as) {
            (true, true) => State::Found,
            (true, false) => State::NotUsed,
            (false, _) => State::Missing,
        };
        let entry = |entry: &EntryPoint| {
            let EntryPoint { name, since, required, .. } = *entry;
            Entry { name, since, required, state: state(entry) }
        };
        let entry_points: Vec<Entry> = probe.entry_points.iter().map(entry).collect();
        let has = |name: &str| {
            let since = DriverVersion::CUDA_12_2;
            let mut entries = entry_points.iter().filter(|entry| entry.state == State::Found);
            entries.any(|entry| entry.name == name && entry.since == since)
        };
        let by_location = ["cuMemAdvise", "cuMemPrefetchAsync"].into_iter().all(has);
        Self {
            library: probe.library,
            version,
            used_as,
            advise_and_prefetch: match by_location {
                true => CallForm::ByLocation,
                false => CallForm::ByDeviceOrdinal,
            },
            entry_points,
            devices: probe.devices,
        }
    }
}

impl Entry {
    /// Whether virtual memory management needs it.
    pub(super) fn serves_virtual_memory(&self) -> bool {
        VIRTUAL_MEMORY.contains(&self.name)
    }
}

impl Device {
    fn of(cuda: &CudaBackend, device: DeviceId) -> Self {
        let attribute = |attribute| cuda.device_attribute(device, attribute);
        let major = attribute(DeviceAttribute::COMPUTE_CAPABILITY_MAJOR);
        let minor = attribute(DeviceAttribute::COMPUTE_CAPABILITY_MINOR);
        Self {
            ordinal: device.0,
            name: cuda.device_name(device),
            memory: cuda
                .memory_info(device)
                .map(|info| Memory { total_bytes: info.total_bytes, free_bytes: info.free_bytes }),
            compute_capability: major.and_then(|major| Ok(format!("{major}.{}", minor?))).ok(),
            attributes: ATTRIBUTES
                .map(|(name, asked)| Attribute { name, value: attribute(asked) })
                .into(),
            virtual_memory: Units::of(cuda, device),
        }
    }
}

impl Units {
    fn of(cuda: &CudaBackend, device: DeviceId) -> Result<Self, Error> {
        let props = MemoryProps::at(Location::device(device));
        Ok(Self {
            granularity_bytes: cuda.memory_granularity(props, Granularity::MINIMUM)?,
            recommended_granularity_bytes: cuda
                .memory_granularity(props, Granularity::RECOMMENDED)?,
        })
    }
}

impl Host {
    fn look(cuda: Option<&CudaBackend>) -> Self {
        let cupti = Cupti::open().and_then(|cupti| {
            if cuda.is_some() {
                cupti.start()?;
                cupti.stop()?;
            }
            Ok(cupti)
        });
        Self {
            numa_nodes: host_numa_nodes(),
            page_table: cuda.map(|cuda| cuda.capabilities().host_page_map),
            records: cupti
                .map(|cupti| Records { library: cupti.path().to_string(), api: cupti.version() }),
            faults: host_fault_support(),
        }
    }
}

/// The attributes that decide how managed memory behaves, and whether there is virtual memory
/// management.
const ATTRIBUTES: [(&str, DeviceAttribute); 10] = [
    ("managed memory", DeviceAttribute::MANAGED_MEMORY),
    ("concurrent managed access", DeviceAttribute::CONCURRENT_MANAGED_ACCESS),
    ("pageable memory access", DeviceAttribute::PAGEABLE_MEMORY_ACCESS),
    ("by the host's page tables", DeviceAttribute::PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    ("direct access from host", DeviceAttribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    ("memory pools", DeviceAttribute::MEMORY_POOLS_SUPPORTED),
    ("pools on NUMA nodes", DeviceAttribute::HOST_NUMA_MEMORY_POOLS_SUPPORTED),
    ("pools on the host", DeviceAttribute::HOST_MEMORY_POOLS_SUPPORTED),
    ("nearest host NUMA node", DeviceAttribute::HOST_NUMA_ID),
    ("virtual memory", DeviceAttribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
];

/// The entry points of virtual memory management, which serve together.
const VIRTUAL_MEMORY: [&str; 9] = [
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemGetAccess",
    "cuMemGetAllocationGranularity",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
];

// ---- JSON -------------------------------------------------------------------------------------

/// An object with nothing but the reason.
#[derive(Serialize)]
struct Failed {
    error: String,
}

fn found_or_error<T: Serialize, E: ToString, S: Serializer>(
    found: &Result<T, E>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match found {
        Ok(found) => found.serialize(serializer),
        Err(error) => Failed { error: error.to_string() }.serialize(serializer),
    }
}

fn yes_or_error<S: Serializer>(
    found: &Result<(), Error>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    found_or_error(&found.as_ref().map(|()| true), serializer)
}

/// A version as `12.2`.
fn as_text<S: Serializer>(version: &DriverVersion, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}

fn known_capabilities<S: Serializer>(
    capabilities: &Option<Capabilities>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Known {
        locations: bool,
        prefetch_batch: &'static str,
        discard: bool,
        location_pools: bool,
        virtual_memory: bool,
        concurrent_managed_access: bool,
    }
    let known = capabilities.as_ref().map(|found| Known {
        locations: found.locations,
        prefetch_batch: match found.prefetch_batch {
            BatchSupport::Native => "native",
            BatchSupport::Loop => "loop",
            _ => "none",
        },
        discard: found.discard,
        location_pools: found.location_pools,
        virtual_memory: found.virtual_memory,
        concurrent_managed_access: found.concurrent_managed_access,
    });
    known.serialize(serializer)
}

/// Whether an attribute has no value because the driver is older than it.
pub(super) fn is_unknown(error: &Error) -> bool {
    error.kind() == ErrorKind::InvalidValue
}
