//! The builder that opens the back end.

use std::env;
use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::sync::{Arc, OnceLock};

use pagewise_hal::{DeviceId, DriverVersion, Result};

use crate::backend::CudaBackend;
use crate::cells::Cells;
use crate::context::Context;
use crate::device::Device;
use crate::driver::Driver;
use crate::host::{Host, Process};
use crate::library::{DriverLibrary, SYSTEM_LIBRARY};
use crate::live::{Kind, Live};
use crate::loaded::Modules;
use crate::mappings::Memories;
use crate::numa::NumaNodes;
use crate::observe::{Observer, ObserverLog};

/// How the driver is opened.
///
/// ```
/// use pagewise_cuda::CudaBackend;
/// use pagewise_hal::{Backend, DriverVersion};
///
/// // Behave as a driver of CUDA 12.2 does, whatever newer one is installed.
/// match CudaBackend::builder().max_version(DriverVersion::CUDA_12_2).open() {
///     Ok(cuda) => assert!(!cuda.capabilities().discard),
///     Err(error) => println!("no driver here: {error}"),
/// }
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct CudaBuilder {
    library: Option<OsString>,
    max_version: Option<DriverVersion>,
    max_devices: Option<NonZero<u32>>,
    foreign_contexts: bool,
    observer: Option<Box<dyn Observer>>,
    host: Option<Box<dyn Host>>,
}

impl CudaBuilder {
    /// The environment variable that names the driver library where the program does not.
    pub const LIBRARY_VARIABLE: &'static str = "PAGEWISE_LIBCUDA";

    /// The driver library, by file name or path. Without it the environment's
    /// ([`LIBRARY_VARIABLE`](Self::LIBRARY_VARIABLE)), without that `libcuda.so.1`.
    pub fn library(mut self, name: impl AsRef<OsStr>) -> Self {
        self.library = Some(name.as_ref().to_owned());
        self
    }

    /// Uses no entry point newer than this version: a newer driver then offers what one of this
    /// version does. 12.0 or later.
    pub fn max_version(mut self, ceiling: DriverVersion) -> Self {
        self.max_version = Some(ceiling);
        self
    }

    /// Shows no more than the first `most` of the driver's devices, as for a program that is written
    /// for fewer. The others are no devices of the back end. A driver call that takes a location
    /// still knows them, though; only `CUDA_VISIBLE_DEVICES` hides them from the driver too.
    pub fn max_devices(mut self, most: NonZero<u32>) -> Self {
        self.max_devices = Some(most);
        self
    }

    /// Says that other code changes the current CUDA context on threads that call the back end,
    /// to the context of another device or to one that it made itself. Each call then asks the
    /// driver which context is current, instead of remembering it per thread.
    ///
    /// It is not needed for libraries that use the primary context of the only device, as the
    /// runtime and cudarc do, nor for threads without a context. The functions for cudarc turn it
    /// on.
    pub fn foreign_contexts(mut self, yes: bool) -> Self {
        self.foreign_contexts = yes;
        self
    }

    /// Where [`take_events`](pagewise_hal::Backend::take_events) gets its records.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// How the host touches memory, reads its page table and tells the time; without it by volatile
    /// accesses, by Linux's page map of this process, and by the monotonic clock. For machines that
    /// are not real.
    pub fn host(mut self, host: impl Host) -> Self {
        self.host = Some(Box::new(host));
        self
    }

    /// Opens the driver and retains the primary context of device 0. Other devices' contexts are
    /// retained when they are first used; all are released when the back end is dropped.
    ///
    /// # Errors
    /// As [`LoadError`](crate::LoadError) says; or the driver's, if device 0 gives no context.
    pub fn open(self) -> Result<CudaBackend> {
        let library = DriverLibrary::open(&library_name(self.library), self.max_version)?;
        let driver = Arc::new(Driver::start(library, self.max_devices)?);
        if self.foreign_contexts {
            driver.expect_foreign_contexts();
        }
        let context = Context::retain(Arc::clone(&driver), DeviceId(0))?;
        Ok(CudaBackend {
            driver: Arc::clone(&driver),
            others: (1..driver.devices).map(|_| OnceLock::new()).collect(),
            home: Device::new(context),
            streams: Live::new(Kind::Stream),
            events: Live::new(Kind::Event),
            modules: Modules::default(),
            memories: Memories::default(),
            cells: Cells::default(),
            numa: NumaNodes::of_this_machine(),
            observer: self.observer.map(ObserverLog::new),
            host: self.host.unwrap_or_else(|| Box::new(Process::new())),
        })
    }
}

impl CudaBackend {
    /// Opens the system's driver.
    ///
    /// # Errors
    /// As [`CudaBuilder::open`].
    pub fn open() -> Result<Self> {
        Self::builder().open()
    }

    /// Chooses how to open it.
    pub fn builder() -> CudaBuilder {
        CudaBuilder::default()
    }
}

/// The library that was chosen, the environment's, or the system's.
pub(crate) fn library_name(chosen: Option<OsString>) -> OsString {
    chosen
        .or_else(|| env::var_os(CudaBuilder::LIBRARY_VARIABLE).filter(|name| !name.is_empty()))
        .unwrap_or_else(|| SYSTEM_LIBRARY.into())
}
