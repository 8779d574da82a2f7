//! The driver library and the few functions that a probe needs. The only `unsafe` of the crate.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;
use pagewise_hal::{Code, Error, ErrorKind, Result};

const OPERATION: &str = "open CUDA driver";

type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
type Init = unsafe extern "C" fn(c_uint) -> c_int;
type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// An open driver library.
#[derive(Debug)]
pub(crate) struct Driver {
    /// Keeps the functions below valid.
    _library: Library,
    driver_get_version: GetVersion,
    init: Init,
    device_get_count: GetVersion,
    get_proc_address: GetProcAddress,
}

impl Driver {
    /// Opens the library with this file name or path.
    pub(crate) fn open(name: &str) -> Result<Self> {
        // SAFETY: opening runs the library's initialisers; the caller named a CUDA driver, whose
        // initialisers have no preconditions.
        let library = unsafe { Library::new(name) }.map_err(|error| {
            Error::new(OPERATION, ErrorKind::LibraryMissing).with_detail(format!(
                "{name} could not be opened: install the NVIDIA driver, or use the simulator \
                 ({error})"
            ))
        })?;
        // SAFETY: the types are those that `cuda.h` of CUDA 12 and 13 gives to these exported
        // names, which are never versioned.
        unsafe {
            Ok(Self {
                driver_get_version: symbol(&library, c"cuDriverGetVersion")?,
                init: symbol(&library, c"cuInit")?,
                device_get_count: symbol(&library, c"cuDeviceGetCount")?,
                get_proc_address: symbol(&library, c"cuGetProcAddress_v2")?,
                _library: library,
            })
        }
    }

    pub(crate) fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the function writes one int, before or after `cuInit`.
        check("cuDriverGetVersion", unsafe { (self.driver_get_version)(&raw mut version) })?;
        Ok(version)
    }

    pub(crate) fn init(&self) -> Result<()> {
        // SAFETY: the flags must be 0.
        check("cuInit", unsafe { (self.init)(0) })
    }

    pub(crate) fn device_count(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: the function writes one int; `init` has succeeded.
        check("cuDeviceGetCount", unsafe { (self.device_get_count)(&raw mut count) })?;
        Ok(count)
    }

    /// Whether the driver has `name` with the signature of `version`. "Not found" is a success
    /// with a null pointer, and asking for more than the driver's own version an error: both mean
    /// no.
    pub(crate) fn has(&self, name: &CStr, version: i32) -> bool {
        let mut function = std::ptr::null_mut();
        let mut status = 0;
        // SAFETY: the name is NUL-terminated, and both results are written to live places.
        let code = unsafe {
            (self.get_proc_address)(name.as_ptr(), &raw mut function, version, 0, &raw mut status)
        };
        code == Code::SUCCESS && !function.is_null()
    }
}

/// Looks a function up.
///
/// # Safety
/// `T` must be the type of the function with this name.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T> {
    // SAFETY: the caller vouches for the type.
    match unsafe { library.get::<T>(name.to_bytes_with_nul()) } {
        Ok(function) => Ok(*function),
        Err(_) => Err(Error::new(OPERATION, ErrorKind::LibraryMissing).with_detail(format!(
            "the library has no {}: it is no CUDA driver of version 12.0 or later; update the \
             driver",
            name.to_string_lossy()
        ))),
    }
}

fn check(operation: &'static str, code: i32) -> Result<()> {
    match code {
        Code::SUCCESS => Ok(()),
        34 => Err(Error::from_code(operation, code).with_detail(
            "this is the toolkit's stub library: put the driver's own first in the search path",
        )),
        100 => Err(Error::from_code(operation, code)
            .with_detail("the driver is there but sees no GPU: check the device and its module")),
        _ => Err(Error::from_code(operation, code)),
    }
}
