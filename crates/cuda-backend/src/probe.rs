//! What a driver offers for managed memory.

use std::ffi::CStr;

use pagewise_hal::{DriverVersion, Error, ErrorKind, Result};

use crate::library::Driver;

/// An entry point of managed memory, at the version whose signature is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPoint {
    /// Its base name, without suffix.
    pub name: &'static str,
    /// The version that introduced the signature.
    pub since: DriverVersion,
    /// Whether the driver has it.
    pub present: bool,
}

/// What a driver offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The driver's own version.
    pub driver_version: DriverVersion,
    /// How many devices it sees, or why it sees none.
    pub devices: Result<u32>,
    /// The entry points of managed memory.
    pub entry_points: Vec<EntryPoint>,
}

/// Names and versions: `cudaTypedefs.h` of toolkits 12.9 and 13.5.
const ENTRY_POINTS: &[(&CStr, i32)] = &[
    (c"cuMemAllocManaged", 6000),
    (c"cuMemAdvise", 8000),
    (c"cuMemAdvise", 12020),
    (c"cuMemPrefetchAsync", 8000),
    (c"cuMemPrefetchAsync", 12020),
    (c"cuMemRangeGetAttribute", 8000),
    (c"cuMemPoolCreate", 11020),
    (c"cuMemPrefetchBatchAsync", 13000),
    (c"cuMemDiscardBatchAsync", 13000),
    (c"cuMemDiscardAndPrefetchBatchAsync", 13000),
    (c"cuMemGetDefaultMemPool", 13000),
    (c"cuMemGetMemPool", 13000),
    (c"cuMemSetMemPool", 13000),
    (c"cuMemGetLocationInfo", 13040),
];

/// Probes the system's driver, `libcuda.so.1`.
///
/// # Errors
/// `LibraryMissing` if there is no library or it is no driver of CUDA 12.0 or later.
pub fn probe() -> Result<Probe> {
    probe_library("libcuda.so.1")
}

/// Probes the driver with this file name or path.
///
/// # Errors
/// As [`probe`].
pub fn probe_library(name: &str) -> Result<Probe> {
    let driver = Driver::open(name)?;
    let driver_version = DriverVersion(driver.version()?);
    if driver_version < DriverVersion::CUDA_12_0 {
        return Err(Error::new("open CUDA driver", ErrorKind::LibraryMissing).with_detail(
            format!("the driver is of CUDA {driver_version}; 12.0 or later is needed: update it"),
        ));
    }
    let entry_points = ENTRY_POINTS
        .iter()
        .map(|&(name, since)| EntryPoint {
            name: name.to_str().unwrap_or_default(),
            since: DriverVersion(since),
            present: driver.has(name, since),
        })
        .collect();
    let devices = driver
        .init()
        .and_then(|()| driver.device_count())
        .map(|count| count.max(0).cast_unsigned());
    Ok(Probe { driver_version, devices, entry_points })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_says_what_to_do() {
        let error = probe_library("libcuda-that-does-not-exist.so.1").unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::LibraryMissing, None));
        assert!(error.to_string().contains("install the NVIDIA driver"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_that_is_no_driver_is_an_error_that_names_what_it_lacks() {
        let error = probe_library("libc.so.6").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LibraryMissing);
        assert!(error.to_string().contains("cuDriverGetVersion"), "{error}");
    }

    #[test]
    fn the_systems_driver_is_described_or_its_absence_is() {
        match probe() {
            Ok(probe) => assert!(probe.entry_points.iter().any(|entry| entry.present)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::LibraryMissing, "{error}"),
        }
    }
}
