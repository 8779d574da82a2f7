//! A probe of what a driver offers for managed memory, without using it.

use std::ffi::{OsStr, OsString};

use pagewise_hal::{DriverVersion, Result};

use crate::builder::library_name;
use crate::library::DriverLibrary;
use crate::load_error::LoadError;
use crate::table::{ROWS, Row};

/// An entry point of the driver, at the version of its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPoint {
    /// Its base name, without suffix.
    pub name: &'static str,
    /// The version that introduced the signature.
    pub since: DriverVersion,
    /// Whether there is no back end without it.
    pub required: bool,
    /// Whether the driver has it.
    pub present: bool,
}

/// The offers of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The library's file name or path.
    pub library: String,
    /// The driver's own version.
    pub driver_version: DriverVersion,
    /// The entry points that this crate knows, required ones first.
    pub entry_points: Vec<EntryPoint>,
    /// How many devices it sees, or why it cannot be used.
    pub devices: Result<u32, LoadError>,
}

/// Probes the driver that [`CudaBackend::open`](crate::CudaBackend::open) would use.
///
/// # Errors
/// If there is no library, or it is no driver of CUDA 12.0 or later.
pub fn probe() -> Result<Probe, LoadError> {
    probe_named(&library_name(None))
}

/// Probes the driver with this file name or path.
///
/// # Errors
/// As [`probe`].
pub fn probe_library(name: impl Into<OsString>) -> Result<Probe, LoadError> {
    probe_named(&library_name(Some(name.into())))
}

fn probe_named(name: &OsStr) -> Result<Probe, LoadError> {
    let library = DriverLibrary::open(name, None)?;
    let entry_point = |&row: &Row| EntryPoint {
        name: row.name(),
        since: row.since,
        required: row.required,
        present: library.find(row).is_some(),
    };
    let entry_points = ROWS.iter().map(entry_point).collect();
    let devices = library.table().and_then(|table| library.start(&table));
    Ok(Probe {
        library: library.name.clone(),
        driver_version: library.version,
        entry_points,
        devices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_so_and_what_to_do() {
        let error = probe_library("libcuda-that-does-not-exist.so.1").unwrap_err();
        assert!(matches!(error, LoadError::NoLibrary { .. }), "{error:?}");
        assert!(error.to_string().contains("install the NVIDIA driver"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_that_is_no_driver_is_told_apart_from_a_missing_one() {
        let error = probe_library("libc.so.6").unwrap_err();
        let LoadError::NotADriver { symbol, .. } = error else { panic!("{error:?}") };
        assert_eq!(symbol, "cuDriverGetVersion");
    }

    #[test]
    fn the_systems_driver_is_described_or_its_absence_is() {
        match probe() {
            Ok(probe) => assert!(probe.entry_points.iter().any(|entry| entry.present)),
            Err(error) => assert!(matches!(error, LoadError::NoLibrary { .. }), "{error:?}"),
        }
    }
}
