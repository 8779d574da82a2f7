//! The target that a command was told to run on: the simulator, or the CUDA driver here.

use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pagewise_cuda::{CudaBackend, Cupti, host_numa_nodes};
use pagewise_hal::{
    Backend as _, BackendExt as _, DriverVersion, Error, ErrorKind, PAGE_BYTES, Result,
};
use pagewise_sim::RangeReads;
use pagewise_trace::format::{Header, RecordedOn};
use pagewise_trace::run::{Session, Target};

use crate::args;
use crate::sim_target::SimTarget;
use crate::status::Failure;

/// The target that `--backend` chose.
#[derive(Debug)]
pub(crate) enum ChosenTarget {
    Sim(Box<SimTarget>),
    Cuda(CudaTarget),
}

impl ChosenTarget {
    /// A target that is not opened yet. `observe` asks for the driver's records.
    pub(crate) fn new(
        backend: args::BackendArg,
        profile: Option<&str>,
        reads: Option<RangeReads>,
        observe: bool,
    ) -> std::result::Result<Self, Failure> {
        match backend {
            args::BackendArg::Sim => {
                let target = SimTarget::new(profile, reads).map_err(Failure::Usage)?;
                Ok(Self::Sim(Box::new(target)))
            }
            args::BackendArg::Cuda if profile.is_some() => {
                Err(Failure::Usage("--profile is for --backend sim".to_owned()))
            }
            args::BackendArg::Cuda => {
                let found = pagewise_cuda::probe().map_err(Error::from);
                let devices = found.and_then(|found| Ok(found.devices?));
                devices.map_err(|error| Failure::Input(format!("--backend cuda: {error}")))?;
                Ok(Self::Cuda(CudaTarget::new(observe)))
            }
        }
    }

    /// The same target with this seed, if it is simulated and there is a seed.
    pub(crate) fn seeded(self, seed: Option<u64>) -> Self {
        match self {
            Self::Sim(sim) => Self::Sim(Box::new(sim.seeded(seed))),
            Self::Cuda(_) => self,
        }
    }

    /// The machine that a recording of the program would be made on.
    pub(crate) fn describe(&self, program: &RecordedOn) -> RecordedOn {
        match self {
            Self::Sim(sim) => sim.describe(program),
            Self::Cuda(_) => RecordedOn {
                gpu: nvidia::gpu_name(),
                driver: nvidia::driver_version(),
                host_page_bytes: Some(PAGE_BYTES),
                host_numa_nodes: u32::try_from(host_numa_nodes().len())
                    .ok()
                    .filter(|&nodes| nodes > 0),
                system: Some(std::env::consts::ARCH.to_owned()),
                ..RecordedOn::new(program.gpus, program.cuda_driver_version)
            },
        }
    }
}

impl Target for ChosenTarget {
    fn open(&self, header: &Header) -> Result<Session> {
        match self {
            Self::Sim(sim) => sim.open(header),
            Self::Cuda(cuda) => cuda.open(header),
        }
    }

    fn is_concurrent(&self) -> bool {
        matches!(self, Self::Sim(_))
    }
}

/// The driver of this machine: one back end for all cases, because the process has one set of
/// contexts. Of more devices than a program is for, it uses the first.
#[derive(Debug)]
pub(crate) struct CudaTarget {
    observe: bool,
    opened: Mutex<Option<Opened>>,
}

/// The back end that was opened last.
#[derive(Debug)]
struct Opened {
    ceiling: DriverVersion,
    /// How many of the first devices it has.
    devices: u32,
    backend: Arc<CudaBackend>,
}

impl CudaTarget {
    fn new(observe: bool) -> Self {
        Self { observe, opened: Mutex::new(None) }
    }

    /// The driver up to this version, with the first `wanted` of its devices.
    fn backend(&self, ceiling: DriverVersion, wanted: u32) -> Result<Arc<CudaBackend>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Opened { backend, .. }) =
            opened.as_ref().filter(|last| (last.ceiling, last.devices) == (ceiling, wanted))
        {
            return Ok(Arc::clone(backend));
        }
        let too_few = |found: u32| {
            let detail = format!(
                "the program is for {wanted} devices and the driver shows {found}: let \
                 CUDA_VISIBLE_DEVICES show as many, or give `compare` or `record` --devices"
            );
            Error::new("open CUDA driver", ErrorKind::InvalidDevice).with_detail(detail)
        };
        // A driver shows at least one device.
        let most = NonZero::new(wanted).ok_or_else(|| too_few(1))?;
        let backend = self.open_driver(ceiling, most)?;
        let devices = backend.devices()?;
        if devices.len() < wanted as usize {
            return Err(too_few(backend.device_count()?));
        }
        for device in devices {
            // The preparation takes time, which would otherwise count for the first operation.
            backend.prepare_device(device)?;
        }
        let backend = Arc::new(backend);
        *opened = Some(Opened { ceiling, devices: wanted, backend: Arc::clone(&backend) });
        Ok(backend)
    }

    fn open_driver(&self, ceiling: DriverVersion, most: NonZero<u32>) -> Result<CudaBackend> {
        let plain = || CudaBackend::builder().max_version(ceiling).max_devices(most);
        let backend = plain().open()?;
        if !self.observe {
            return Ok(backend);
        }
        // CUPTI wants an initialised driver, and now it is one.
        let started = Cupti::open().and_then(|cupti| cupti.start().map(|()| cupti));
        match started {
            Ok(cupti) => plain().observer(cupti).open(),
            Err(reason) => {
                // If this fails too, there is no other place to report it.
                _ = writeln!(io::stderr(), "pagewise: no unified-memory records: {reason}");
                Ok(backend)
            }
        }
    }
}

impl Target for CudaTarget {
    fn open(&self, header: &Header) -> Result<Session> {
        let machine = &header.recorded_on;
        let ceiling = DriverVersion(machine.cuda_driver_version);
        let backend = self.backend(ceiling, machine.gpus)?;
        Ok(Session { backend, pace: None })
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

/// The kernel module's description of itself; empty if there is none.
mod nvidia {
    use super::Path;

    /// The first GPU's model.
    pub(super) fn gpu_name() -> Option<String> {
        let mut gpus: Vec<_> =
            Path::new("/proc/driver/nvidia/gpus").read_dir().ok()?.flatten().collect();
        gpus.sort_by_key(std::fs::DirEntry::file_name);
        let text = std::fs::read_to_string(gpus.first()?.path().join("information")).ok()?;
        text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned()))
    }

    /// The package version, the first word of the module's first line that is made of numbers.
    pub(super) fn driver_version() -> Option<String> {
        let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
        version_in(text.lines().next()?)
    }

    pub(super) fn version_in(line: &str) -> Option<String> {
        let is_version = |word: &&str| {
            word.contains('.') && word.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit())
        };
        line.split_whitespace().find(is_version).map(str::to_owned)
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn the_drivers_version_is_found_in_the_modules_line() {
            let of = |line| super::version_in(line);
            let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  \
                        Release Build  (root@host)  Fri Oct 31";
            assert_eq!(of(open).as_deref(), Some("580.159.04"));
            assert_eq!(of("NVRM version: none"), None);
        }
    }
}
