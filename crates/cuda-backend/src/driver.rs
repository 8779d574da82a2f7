//! A started driver: its table, its versions, and its numbers as errors.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagewise_hal::{Code, DriverVersion, Error, Result};

use crate::library::DriverLibrary;
use crate::load_error::LoadError;
use crate::pool_order::DriverPools;
use crate::table::Table;

/// A started driver with at least one device.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) table: Table,
    pub(crate) library: DriverLibrary,
    pub(crate) devices: u32,
    /// Common to all back ends over this library.
    pub(crate) pools: Arc<DriverPools>,
    /// Whether other code changes contexts on threads that call us.
    foreign_contexts: AtomicBool,
}

impl Driver {
    /// Starts the driver of a library. It shows no more than the first `most` devices.
    pub(crate) fn start(
        library: DriverLibrary,
        most: Option<NonZero<u32>>,
    ) -> Result<Self, LoadError> {
        let table = library.table()?;
        let devices = library.start(&table)?;
        let devices = most.map_or(devices, |most| devices.min(most.get()));
        Ok(Self {
            table,
            pools: DriverPools::of(library.id()),
            library,
            devices,
            foreign_contexts: AtomicBool::new(false),
        })
    }

    pub(crate) fn expect_foreign_contexts(&self) {
        self.foreign_contexts.store(true, Ordering::Relaxed);
    }

    pub(crate) fn expects_foreign_contexts(&self) -> bool {
        self.foreign_contexts.load(Ordering::Relaxed)
    }

    /// Whether the version in use is at least this one.
    pub(crate) fn has(&self, since: DriverVersion) -> bool {
        self.library.effective >= since
    }

    pub(crate) fn check(&self, operation: &'static str, code: i32) -> Result<()> {
        match code {
            Code::SUCCESS => Ok(()),
            code => Err(self.error(operation, code)),
        }
    }

    /// The error of a number, with what to do where the number alone does not say it.
    #[cold]
    pub(crate) fn error(&self, operation: &'static str, code: i32) -> Error {
        let error = Error::from_code(operation, code);
        match code {
            700 | 702 | 710 | 714..=719 => error.with_detail(
                "work on the device failed, this call's or earlier; its context is unusable from \
                 now on: end the process",
            ),
            46 | 214 | 220 => error.with_detail("the device is unusable: see the system's log"),
            201 | 709 => error.with_detail("somebody destroyed the device's primary context"),
            900..=908 => error.with_detail("a stream of this process is being captured"),
            _ => error,
        }
    }
}
