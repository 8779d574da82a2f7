//! Entry points for functions of modules. Most take a kernel of a library as a function too, as the
//! driver does.

use std::ffi::{c_char, c_int, c_void};

use pagewise_hal::Code;

use crate::driver::{
    Driver, Outcome, any_time, has_place, is_handle, started, started_after, store,
};
use crate::image::parts::Parameter;
use crate::programs::device::limits;
use crate::programs::limits::Limits;
use crate::programs::tables::Function;

/// A function, or a kernel as it is on the device of the current context.
pub(super) fn function(driver: &Driver, handle: *mut c_void) -> Outcome<Function> {
    let device = driver.device().map_or(0, |device| device.0);
    driver.programs().function(handle.addr(), device)
}

/// The limits of the current device, or of the first one without a context.
fn limits_here(driver: &Driver) -> Outcome<Limits> {
    limits(driver, driver.device().unwrap_or(pagewise_hal::DeviceId(0)))
}

/// `cuFuncGetAttribute`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    handle: *mut c_void,
) -> c_int {
    any_time("cuFuncGetAttribute", |driver| {
        has_place(value)?;
        let found = function(driver, handle)?;
        let of = (&*found.image, found.kernel()?);
        let answer = found.settings.get(attribute, of, &limits_here(driver)?)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(value, answer) }
    })
}

/// `cuFuncSetAttribute`
#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(handle: *mut c_void, attribute: c_int, value: c_int) -> c_int {
    started("cuFuncSetAttribute", |driver| {
        let mut found = function(driver, handle)?;
        let (limits, kernel) = (limits_here(driver)?, found.kernel()?.clone());
        found.settings.set(attribute, value, &kernel, &limits)?;
        let device = driver.device().map_or(0, |device| device.0);
        driver.programs().set(handle.addr(), device, found.settings);
        Ok(())
    })
}

/// `cuFuncSetCacheConfig`: a preference, which changes nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetCacheConfig(handle: *mut c_void, config: c_int) -> c_int {
    started("cuFuncSetCacheConfig", |driver| {
        function(driver, handle)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}

/// `cuFuncSetSharedMemConfig`: a preference, which changes nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetSharedMemConfig(handle: *mut c_void, config: c_int) -> c_int {
    started("cuFuncSetSharedMemConfig", |driver| {
        function(driver, handle)?;
        if (0..=2).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}

/// `cuFuncGetModule`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetModule(module: *mut *mut c_void, handle: *mut c_void) -> c_int {
    started("cuFuncGetModule", |driver| {
        has_place(module)?;
        if handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let found = driver.programs().module_of(handle.addr())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(module, std::ptr::without_provenance_mut(found)) }
    })
}

/// `cuFuncGetName`: the text stays as long as the module.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetName(name: *mut *const c_char, handle: *mut c_void) -> c_int {
    any_time("cuFuncGetName", |driver| {
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { name_of(driver, name, handle) }
    })
}

/// Stores the name of a function or kernel.
///
/// # Safety
/// `name` must be null or valid for writing.
pub(super) unsafe fn name_of(
    driver: &Driver,
    name: *mut *const c_char,
    handle: *mut c_void,
) -> Outcome {
    has_place(name)?;
    if handle.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let found = function(driver, handle)?;
    // The text is that of the image, which the module or library keeps.
    let text = found.kernel()?.c_name().as_ptr();
    // SAFETY: by this function's contract the place is null or valid for writing.
    unsafe { store(name, text) }
}

/// `cuFuncGetParamInfo`: the place for the size may be null.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetParamInfo(
    handle: *mut c_void,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> c_int {
    any_time("cuFuncGetParamInfo", |driver| {
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe { parameter_of(driver, handle, index, (offset, size)) }
    })
}

/// Stores the place of a parameter of a function or kernel.
///
/// # Safety
/// The places must be null or valid for writing.
pub(super) unsafe fn parameter_of(
    driver: &Driver,
    handle: *mut c_void,
    index: usize,
    (offset, size): (*mut usize, *mut usize),
) -> Outcome {
    has_place(offset)?;
    let found = function(driver, handle)?;
    let parameters = &found.kernel()?.parameters;
    let &Parameter { offset: start, bytes } = parameters.get(index).ok_or(Code::INVALID_VALUE)?;
    // SAFETY: by this function's contract the places are null or valid for writing.
    unsafe {
        store(offset, start as usize)?;
        if size.is_null() { Ok(()) } else { store(size, bytes as usize) }
    }
}

/// `cuFuncGetParamCount`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetParamCount(handle: *mut c_void, count: *mut usize) -> c_int {
    any_time("cuFuncGetParamCount", |driver| {
        has_place(count)?;
        let parameters = function(driver, handle)?.kernel()?.parameters.len();
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(count, parameters) }
    })
}

/// `cuFuncIsLoaded`: all functions of a module are.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncIsLoaded(state: *mut c_int, handle: *mut c_void) -> c_int {
    any_time("cuFuncIsLoaded", |driver| {
        has_place(state)?;
        function(driver, handle)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(state, 1) }
    })
}

/// `cuFuncLoad`
#[unsafe(no_mangle)]
pub extern "C" fn cuFuncLoad(handle: *mut c_void) -> c_int {
    started_after("cuFuncLoad", is_handle(handle), |driver| function(driver, handle).map(drop))
}
