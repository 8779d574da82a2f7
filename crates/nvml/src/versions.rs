//! Versions of the driver and of this library.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::driver::driver;
use crate::library::started;
use crate::outcome::{Error, Outcome, api, write, write_text};

/// The first driver for Linux with each version of CUDA, from the release notes of the toolkits.
const DRIVERS: [(c_int, &CStr); 11] = [
    (13_000, c"580.65.06"),
    (12_090, c"575.51.03"),
    (12_080, c"570.86.10"),
    (12_060, c"560.28.03"),
    (12_050, c"555.42.02"),
    (12_040, c"550.54.14"),
    (12_030, c"545.23.06"),
    (12_020, c"535.54.03"),
    (12_010, c"530.30.02"),
    (12_000, c"525.60.13"),
    (0, c"520.61.05"),
];

/// Writes the version of the driver as text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) -> c_int {
    // SAFETY: the caller promises the room.
    api(|| unsafe { write_text(to, room, driver_version(started()?.version()?)) })
}

/// `nvmlSystemDriverBranchInfo_v1_t`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DriverBranchInfo {
    /// The size of this structure, with the number of its form in the highest byte.
    pub version: c_uint,
    /// The name of the branch.
    pub branch: [c_char; 80],
}

/// The version of [`DriverBranchInfo`], as `NVML_STRUCT_VERSION` makes it.
const BRANCH_INFO: c_uint = size_of::<DriverBranchInfo>() as c_uint | 1 << 24;

/// Writes the branch of the driver, such as `r580_00`: the first number of its version. The release
/// within the branch is a guess.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverBranch(
    info: *mut DriverBranchInfo,
    room: c_uint,
) -> c_int {
    api(|| {
        let driver = driver_version(started()?.version()?).to_string_lossy();
        if info.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises that the structure is there; it starts with its version.
        if unsafe { (&raw const (*info).version).read_unaligned() } != BRANCH_INFO {
            return Err(Error::ARGUMENT_VERSION_MISMATCH);
        }
        let first = driver.split('.').next().unwrap_or_default();
        let text = format!("r{first}_00\0");
        let text = CStr::from_bytes_with_nul(text.as_bytes()).map_err(|_| Error::UNKNOWN)?;
        let room = room.min(80);
        // SAFETY: the structure has room for 80 bytes.
        unsafe { write_text((&raw mut (*info).branch).cast(), room, text) }
    })
}

/// Writes the version of the library as text: the CUDA version's major number before the driver's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(to: *mut c_char, room: c_uint) -> c_int {
    api(|| {
        let version = started()?.version()?;
        let driver = driver_version(version).to_string_lossy().into_owned();
        let text = format!("{}.{driver}\0", version / 1000);
        let text = CStr::from_bytes_with_nul(text.as_bytes()).map_err(|_| Error::UNKNOWN)?;
        // SAFETY: the caller promises the room.
        unsafe { write_text(to, room, text) }
    })
}

/// Writes the version of CUDA that the driver has, as 1000 × major + 10 × minor. The library need
/// not be started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is writable.
    api(|| unsafe { cuda_version(to) })
}

/// Does what [`nvmlSystemGetCudaDriverVersion_v2`] does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(to: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is writable.
    api(|| unsafe { cuda_version(to) })
}

unsafe fn cuda_version(to: *mut c_int) -> Outcome {
    let version = driver()?.version()?;
    // SAFETY: the caller promises that the place is writable.
    unsafe { write(to, version) }
}

fn driver_version(cuda: c_int) -> &'static CStr {
    let known = DRIVERS.iter().find(|(first, _)| cuda >= *first);
    known.map_or(c"520.61.05", |(_, driver)| driver)
}
