//! Entry points for start-up, devices, contexts and names of errors.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use pagewise_hal::{Backend, Code, DeviceAttribute, DeviceId, code_name};

use crate::driver::{
    Driver, answer, any_time, has_place, in_context, in_context_after, started, started_after,
    store, stream,
};

/// `cuInit`
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> c_int {
    any_time("cuInit", |driver| match (flags, driver.start()) {
        (0, Code::SUCCESS) => Ok(()),
        (0, code) => Err(code),
        _ => Err(Code::INVALID_VALUE),
    })
}

/// `cuDriverGetVersion`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    any_time("cuDriverGetVersion", |driver| unsafe { store(version, driver.options.version().0) })
}

/// `cuDeviceGetCount`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    started("cuDeviceGetCount", |driver| {
        let devices = answer(driver.sim.device_count())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(count, devices.cast_signed()) }
    })
}

fn check(driver: &Driver, device: c_int) -> Result<(), c_int> {
    // Any attribute tells whether the device exists.
    let attribute = DeviceAttribute::UNIFIED_ADDRESSING;
    answer(driver.sim.device_attribute(DeviceId(device), attribute)).map(|_| ())
}

/// `cuDeviceGet`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    started("cuDeviceGet", |driver| {
        has_place(device)?;
        check(driver, ordinal)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(device, ordinal) }
    })
}

/// `cuDeviceGetName`: cut, if there is too little room.
///
/// # Safety
/// `name` must be null or valid for writing `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) -> c_int {
    started("cuDeviceGetName", |driver| {
        has_place(name)?;
        check(driver, device)?;
        let room = usize::try_from(bytes).ok().and_then(|room| room.checked_sub(1));
        let text = format!("simulated {}", driver.options.gpu_name());
        let kept = text.len().min(room.ok_or(Code::INVALID_VALUE)?);
        let text: Vec<u8> = text.bytes().take(kept).chain([0]).collect();
        // SAFETY: the caller promises that `bytes` bytes can be written at `name`, which is not
        // null, and the text is at most so long. The text is a string of its own, so the two do not
        // overlap.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
        Ok(())
    })
}

/// `cuDeviceTotalMem`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    started("cuDeviceTotalMem_v2", |driver| {
        has_place(bytes)?;
        let info = answer(driver.sim.memory_info(DeviceId(device)))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(bytes, info.total_bytes as usize) }
    })
}

/// `cuDeviceGetAttribute`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> c_int {
    started_after("cuDeviceGetAttribute", has_place(value), |driver| {
        let attribute = DeviceAttribute(attribute);
        let answered = answer(driver.sim.device_attribute(DeviceId(device), attribute))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(value, answered) }
    })
}

/// `cuDeviceCanAccessPeer`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(
    can: *mut c_int,
    device: c_int,
    peer: c_int,
) -> c_int {
    started("cuDeviceCanAccessPeer", |driver| {
        has_place(can)?;
        let answered = answer(driver.sim.can_access_peer(DeviceId(device), DeviceId(peer)))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(can, c_int::from(answered)) }
    })
}

/// `cuDevicePrimaryCtxRetain`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    device: c_int,
) -> c_int {
    started("cuDevicePrimaryCtxRetain", |driver| {
        driver.handle_of(device)?;
        has_place(context)?;
        let handle = driver.retain(device)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(context, std::ptr::without_provenance_mut(handle)) }
    })
}

/// `cuDevicePrimaryCtxRelease`
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    started("cuDevicePrimaryCtxRelease_v2", |driver| driver.release(device))
}

/// `cuDevicePrimaryCtxGetState`: contexts have no flags.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> c_int {
    started("cuDevicePrimaryCtxGetState", |driver| {
        has_place(flags)?;
        has_place(active)?;
        let is_active = driver.is_retained(device)?;
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            store(flags, 0)?;
            store(active, c_int::from(is_active))
        }
    })
}

/// `cuCtxSetCurrent`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    started("cuCtxSetCurrent", |driver| driver.set_current(context.addr()))
}

/// `cuCtxGetCurrent`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_int {
    let current = std::ptr::without_provenance_mut(Driver::current());
    // SAFETY: the caller promises that the place is null or valid for writing.
    started("cuCtxGetCurrent", |_| unsafe { store(context, current) })
}

/// `cuCtxGetDevice`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(out: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    in_context_after("cuCtxGetDevice", has_place(out), |_, device| unsafe { store(out, device.0) })
}

/// `cuCtxSynchronize`: calls are complete when they return.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    in_context("cuCtxSynchronize", |_, _| Ok(()))
}

/// `cuStreamGetCtx`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(on: *mut c_void, context: *mut *mut c_void) -> c_int {
    started_after("cuStreamGetCtx", has_place(context), |driver| {
        let handle = driver.context_of_stream(stream(on))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(context, std::ptr::without_provenance_mut(handle)) }
    })
}

/// Stores a `CUresult`'s name. C keeps the pointer, so every name is made once, with its NUL.
///
/// # Safety
/// `text` must be null or valid for writing.
unsafe fn name_of(code: c_int, text: *mut *const c_char) -> c_int {
    static NAMES: OnceLock<Vec<Option<CString>>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let terminated = |code| CString::new(code_name(code)?).ok();
        (0..=Code::UNKNOWN).map(terminated).collect()
    });
    let found = usize::try_from(code).ok().and_then(|index| names.get(index)?.as_ref());
    match found {
        // SAFETY: by this function's contract `text` is null or valid for writing. The name that is
        // stored is static, so C code may keep it.
        Some(name) => unsafe { store(text, name.as_ptr()) }.err().unwrap_or(Code::SUCCESS),
        None => Code::INVALID_VALUE,
    }
}

/// `cuGetErrorName`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { name_of(code, name) }
}

/// `cuGetErrorString`: the name, which says as much.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { name_of(code, text) }
}
