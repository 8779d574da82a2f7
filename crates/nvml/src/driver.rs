//! The CUDA driver: the entry points that this library needs.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use libloading::Library;

use crate::outcome::{Error, Outcome};

/// The variable that names the driver's library.
const LIBRARY: &str = "PAGEWISE_DRIVER_LIBRARY";

/// The driver's name on the loader's path.
const NAME: &str = "libcuda.so.1";

/// The driver's entry points, as its header declares them.
pub(crate) struct Driver {
    init: unsafe extern "C" fn(c_uint) -> c_int,
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    count: unsafe extern "C" fn(*mut c_int) -> c_int,
    name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    uuid: unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int,
    attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    release: unsafe extern "C" fn(c_int) -> c_int,
    push: unsafe extern "C" fn(*mut c_void) -> c_int,
    pop: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    memory: unsafe extern "C" fn(*mut usize, *mut usize) -> c_int,
}

/// The driver, started.
///
/// # Errors
/// `DRIVER_NOT_LOADED` if there is none, or if it does not start.
pub(crate) fn driver() -> Outcome<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER.get_or_init(open).as_ref().ok_or(Error::DRIVER_NOT_LOADED)
}

fn open() -> Option<Driver> {
    let path = std::env::var_os(LIBRARY).filter(|path| !path.is_empty());
    // SAFETY: the file is the CUDA driver by its name or by the user's word. It stays open.
    let library = unsafe { Library::new(path.unwrap_or_else(|| NAME.into())) }.ok()?;
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: the driver's header declares the functions with these types.
    let driver = unsafe {
        Driver {
            init: *library.get(b"cuInit\0").ok()?,
            version: *library.get(b"cuDriverGetVersion\0").ok()?,
            count: *library.get(b"cuDeviceGetCount\0").ok()?,
            name: *library.get(b"cuDeviceGetName\0").ok()?,
            uuid: *library.get(b"cuDeviceGetUuid\0").ok()?,
            attribute: *library.get(b"cuDeviceGetAttribute\0").ok()?,
            retain: *library.get(b"cuDevicePrimaryCtxRetain\0").ok()?,
            release: *library.get(b"cuDevicePrimaryCtxRelease_v2\0").ok()?,
            push: *library.get(b"cuCtxPushCurrent_v2\0").ok()?,
            pop: *library.get(b"cuCtxPopCurrent_v2\0").ok()?,
            memory: *library.get(b"cuMemGetInfo_v2\0").ok()?,
        }
    };
    // SAFETY: the entry point takes flags, which have to be 0.
    (unsafe { (driver.init)(0) } == 0).then_some(driver)
}

impl Driver {
    /// The version of CUDA, as 1000 × major + 10 × minor.
    pub(crate) fn version(&self) -> Outcome<c_int> {
        let mut version = 0;
        // SAFETY: the place is writable.
        done(unsafe { (self.version)(&raw mut version) })?;
        Ok(version)
    }

    /// The number of devices.
    pub(crate) fn count(&self) -> Outcome<c_uint> {
        let mut count = 0;
        // SAFETY: the place is writable.
        done(unsafe { (self.count)(&raw mut count) })?;
        c_uint::try_from(count).map_err(|_| Error::UNKNOWN)
    }

    /// The name of a device, which ends in a null byte.
    pub(crate) fn name(&self, device: c_int) -> Outcome<[u8; 96]> {
        let mut name = [0_u8; 96];
        // SAFETY: the place has room for the length that is passed.
        done(unsafe { (self.name)(name.as_mut_ptr().cast(), 96, device) })?;
        name[95] = 0;
        Ok(name)
    }

    /// The id of a device.
    pub(crate) fn uuid(&self, device: c_int) -> Outcome<[u8; 16]> {
        let mut uuid = [0; 16];
        // SAFETY: the place is writable.
        done(unsafe { (self.uuid)(&raw mut uuid, device) })?;
        Ok(uuid)
    }

    /// An attribute of a device.
    pub(crate) fn attribute(&self, attribute: c_int, device: c_int) -> Outcome<c_int> {
        let mut value = 0;
        // SAFETY: the place is writable.
        done(unsafe { (self.attribute)(&raw mut value, attribute, device) })?;
        Ok(value)
    }

    /// The free and the total memory of a device in bytes. Its primary context is held meanwhile.
    pub(crate) fn memory(&self, device: c_int) -> Outcome<(u64, u64)> {
        let (mut context, mut popped) = (null_mut(), null_mut());
        let (mut free, mut total) = (0, 0);
        // SAFETY: the places are writable, and the context is held until it is released.
        let found = unsafe {
            done((self.retain)(&raw mut context, device))?;
            let found = done((self.push)(context)).and_then(|()| {
                let found = done((self.memory)(&raw mut free, &raw mut total));
                done((self.pop)(&raw mut popped)).and(found)
            });
            done((self.release)(device)).and(found)
        };
        found.map(|()| (free as u64, total as u64))
    }
}

fn done(code: c_int) -> Outcome {
    match code {
        0 => Ok(()),
        // CUDA_ERROR_INVALID_DEVICE.
        101 => Err(Error::INVALID_ARGUMENT),
        _ => Err(Error::UNKNOWN),
    }
}
