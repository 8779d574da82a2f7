//! Devices: handles, names and ids.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};

use crate::driver::Driver;
use crate::library::started;
use crate::outcome::{Error, Outcome, api, write, write_text};

/// A device: its index and 1, so that no handle is null.
pub type Device = *mut std::ffi::c_void;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];

/// Writes the number of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> c_int {
    // SAFETY: the caller promises that the place is writable.
    api(|| unsafe { write(to, started()?.count()?) })
}

/// Does what [`nvmlDeviceGetCount_v2`] does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount(to: *mut c_uint) -> c_int {
    // SAFETY: the caller promises that the place is writable.
    unsafe { nvmlDeviceGetCount_v2(to) }
}

/// Writes the handle of a device by its index. Returns 2 (`NVML_ERROR_INVALID_ARGUMENT`) if there
/// is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) -> c_int {
    api(|| {
        if index >= started()?.count()? {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, handle(index)) }
    })
}

/// Does what [`nvmlDeviceGetHandleByIndex_v2`] does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, to: *mut Device) -> c_int {
    // SAFETY: the caller promises that the place is writable.
    unsafe { nvmlDeviceGetHandleByIndex_v2(index, to) }
}

/// Writes the handle of a device by its id, `GPU-…`, also without these four letters: a test of
/// NVIDIA's cuda.core gives it so (`Device.to_system_device`). Returns 6 (`NVML_ERROR_NOT_FOUND`) if
/// there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut Device) -> c_int {
    api(|| {
        let driver = started()?;
        if uuid.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises a C string.
        let wanted = unsafe { CStr::from_ptr(uuid) }.to_bytes();
        let found = find(driver, |device| {
            let uuid = uuid_of(driver, device)?;
            let bare = uuid.as_bytes().strip_prefix(b"GPU-");
            Ok(uuid.as_bytes() == wanted || bare == Some(wanted))
        })?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, handle(found)) }
    })
}

/// Writes the index of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetIndex(device: Device, to: *mut c_uint) -> c_int {
    api(|| {
        let index = c_uint::try_from(ordinal(started()?, device)?).map_err(|_| Error::UNKNOWN)?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, index) }
    })
}

/// Writes the name of a device. Returns 7 (`NVML_ERROR_INSUFFICIENT_SIZE`) if there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: Device, to: *mut c_char, room: c_uint) -> c_int {
    api(|| {
        let driver = started()?;
        let name = driver.name(ordinal(driver, device)?)?;
        let name = CStr::from_bytes_until_nul(&name).map_err(|_| Error::UNKNOWN)?;
        // SAFETY: the caller promises the room.
        unsafe { write_text(to, room, name) }
    })
}

/// Writes the id of a device, `GPU-…`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: Device, to: *mut c_char, room: c_uint) -> c_int {
    api(|| {
        let driver = started()?;
        let uuid = uuid_of(driver, ordinal(driver, device)?)?;
        // SAFETY: the caller promises the room.
        unsafe { write_text(to, room, &uuid) }
    })
}

/// Writes the compute capability of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Device,
    major: *mut c_int,
    minor: *mut c_int,
) -> c_int {
    api(|| {
        let driver = started()?;
        let device = ordinal(driver, device)?;
        if major.is_null() || minor.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        let [first, second] = CAPABILITY.map(|attribute| driver.attribute(attribute, device));
        let (first, second) = (first?, second?);
        // SAFETY: the caller promises that the places are writable.
        unsafe {
            write(major, first)?;
            write(minor, second)
        }
    })
}

/// The ordinal of a handle's device.
///
/// # Errors
/// `INVALID_ARGUMENT` if the handle is none.
pub(crate) fn ordinal(driver: &Driver, device: Device) -> Outcome<c_int> {
    let index = (device as usize).checked_sub(1).and_then(|index| c_uint::try_from(index).ok());
    let index = index.ok_or(Error::INVALID_ARGUMENT)?;
    if index >= driver.count()? {
        return Err(Error::INVALID_ARGUMENT);
    }
    c_int::try_from(index).map_err(|_| Error::INVALID_ARGUMENT)
}

/// The first device that fits.
///
/// # Errors
/// `NOT_FOUND` if none does.
pub(crate) fn find(driver: &Driver, fits: impl Fn(c_int) -> Outcome<bool>) -> Outcome<c_uint> {
    for index in 0..driver.count()? {
        if fits(c_int::try_from(index).map_err(|_| Error::UNKNOWN)?)? {
            return Ok(index);
        }
    }
    Err(Error::NOT_FOUND)
}

/// The handle of an index.
pub(crate) fn handle(index: c_uint) -> Device {
    (index as usize).saturating_add(1) as Device
}

fn uuid_of(driver: &Driver, device: c_int) -> Outcome<CString> {
    let mut text = String::from("GPU");
    for (place, byte) in driver.uuid(device)?.iter().enumerate() {
        if matches!(place, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    CString::new(text).map_err(|_| Error::UNKNOWN)
}
