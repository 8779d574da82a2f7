//! Entry points for modules: images in a context.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use pagewise_hal::{Code, DeviceId};

use crate::driver::{Driver, Outcome, any_time, has_place, in_context, started, store};
use crate::entry::images::{JitOptions, file, name, read};
use crate::image::source;
use crate::image::{INVALID_IMAGE, Image};
use crate::programs::variables::{free, of_module};

/// `CU_MODULE_LAZY_LOADING`, the default since CUDA 12.2.
const LAZY: c_int = 2;

/// Makes a module of an image in the current context.
fn add(driver: &Driver, device: DeviceId, image: Image) -> Outcome<usize> {
    let storage = of_module(driver, device, &image, None)?;
    Ok(driver.programs().add_module(Driver::current(), Arc::new(image), storage, None))
}

/// Loads an image into the current context.
///
/// # Safety
/// `out` must be null or valid for writing; `options` as [`JitOptions::read`] says.
unsafe fn load_module(
    driver: &Driver,
    device: DeviceId,
    out: *mut *mut c_void,
    bytes: &[u8],
    options: &JitOptions,
) -> Outcome {
    // SAFETY: the caller promises that the buffers are as long as the options say.
    let image = unsafe { read(driver, device, bytes, options) }?;
    let module = add(driver, device, image.map_err(|refusal| refusal.code)?)?;
    // SAFETY: the caller promises that `out` is null or valid for writing.
    unsafe { store(out, std::ptr::without_provenance_mut(module)) }
}

/// `cuModuleLoad`
///
/// # Safety
/// `path` must be null or NUL-terminated; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoad(out: *mut *mut c_void, path: *const c_char) -> c_int {
    in_context("cuModuleLoad", |driver, device| {
        has_place(out)?;
        // SAFETY: the caller promises that `path` is null or NUL-terminated.
        let bytes = unsafe { file(path) }?;
        // SAFETY: the caller promises that `out` is null or valid for writing. There are no logs.
        unsafe { load_module(driver, device, out, &bytes, &JitOptions::default()) }
    })
}

/// `cuModuleLoadData`
///
/// # Safety
/// `image` must be null, a whole image, or NUL-terminated text; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(out: *mut *mut c_void, image: *const c_void) -> c_int {
    // SAFETY: the caller promises what the other form asks for. There are no options.
    let load = |driver: &Driver, device| unsafe {
        load_data(driver, device, out, image, (0, std::ptr::null(), std::ptr::null_mut()))
    };
    in_context("cuModuleLoadData", load)
}

/// `cuModuleLoadFatBinary`: as `cuModuleLoadData`, which takes fat binaries too.
///
/// # Safety
/// As `cuModuleLoadData`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadFatBinary(
    out: *mut *mut c_void,
    image: *const c_void,
) -> c_int {
    // SAFETY: the caller promises what the other form asks for. There are no options.
    let load = |driver: &Driver, device| unsafe {
        load_data(driver, device, out, image, (0, std::ptr::null(), std::ptr::null_mut()))
    };
    in_context("cuModuleLoadFatBinary", load)
}

/// `cuModuleLoadDataEx`
///
/// # Safety
/// As `cuModuleLoadData`. `options` and `values` must be null or have `count` items, and the buffers
/// of logs must be as long as the options say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    out: *mut *mut c_void,
    image: *const c_void,
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller promises what the function asks for.
    let load = |driver: &Driver, device| unsafe {
        load_data(driver, device, out, image, (count, options, values))
    };
    in_context("cuModuleLoadDataEx", load)
}

/// Loads an image at an address.
///
/// # Safety
/// As `cuModuleLoadDataEx`.
unsafe fn load_data(
    driver: &Driver,
    device: DeviceId,
    out: *mut *mut c_void,
    image: *const c_void,
    (count, options, values): (c_uint, *const c_int, *mut *mut c_void),
) -> Outcome {
    has_place(out)?;
    has_place(image)?;
    // SAFETY: by this function's contract the options are null or have `count` items, the image,
    // which is not null, is whole or NUL-terminated text, and `out` can be written.
    unsafe {
        let options = JitOptions::read(count, options, values)?;
        let source = source::read(image);
        // Only libraries take what was linked of objects.
        if source.objects.is_some() {
            return Err(INVALID_IMAGE);
        }
        load_module(driver, device, out, source.bytes, &options)
    }
}

/// `cuModuleUnload`
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: *mut c_void) -> c_int {
    started("cuModuleUnload", |driver| {
        // Checked before the context, as in driver 580.
        let of_library = driver.programs().module(module.addr())?.library.is_some();
        driver.device()?;
        if of_library {
            return Err(Code::INVALID_HANDLE);
        }
        driver.deferred.wait()?;
        let memory = driver.programs().remove_module(module.addr());
        driver.instances.forget(module.addr());
        free(driver, memory);
        Ok(())
    })
}

/// `cuModuleGetFunction`
///
/// # Safety
/// `name` must be null or NUL-terminated; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    out: *mut *mut c_void,
    module: *mut c_void,
    wanted: *const c_char,
) -> c_int {
    started("cuModuleGetFunction", |driver| {
        driver.programs().module(module.addr())?;
        driver.device()?;
        has_place(out)?;
        // SAFETY: the caller promises that the name is null or NUL-terminated.
        let wanted = unsafe { name(wanted) }?;
        let mut programs = driver.programs();
        let index = programs.module(module.addr())?.image.kernel(wanted);
        let handle = programs.function_of(module.addr(), index.ok_or(Code::NOT_FOUND)?)?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(handle)) }
    })
}

/// `cuModuleGetGlobal`: either place may be null, but not both.
///
/// # Safety
/// `name` must be null or NUL-terminated; the places as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetGlobal_v2(
    ptr: *mut u64,
    bytes: *mut usize,
    module: *mut c_void,
    wanted: *const c_char,
) -> c_int {
    started("cuModuleGetGlobal_v2", |driver| {
        driver.programs().module(module.addr())?;
        driver.device()?;
        if ptr.is_null() && bytes.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises that the name is null or NUL-terminated.
        let (address, size) =
            variable(driver, module.addr(), || unsafe { name(wanted) }, |_| true)?;
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe { store_variable(ptr, bytes, (address, size)) }
    })
}

/// Address and bytes of a variable of a module that is of a kind.
pub(super) fn variable<'a>(
    driver: &Driver,
    module: usize,
    wanted: impl FnOnce() -> Outcome<&'a str>,
    is_of_kind: impl FnOnce(bool) -> bool,
) -> Outcome<(u64, u64)> {
    let wanted = wanted()?;
    // The empty name is none.
    if wanted.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    let programs = driver.programs();
    let module = programs.module(module)?;
    let index = module.image.variable(wanted);
    if index.is_none() && module.image.kernel(wanted).is_some() {
        return Err(Code::INVALID_VALUE);
    }
    let index = index.ok_or(Code::NOT_FOUND)?;
    let variable = module.image.variables.get(index).ok_or(Code::NOT_FOUND)?;
    let address = module.storage.address(index).filter(|_| is_of_kind(variable.is_managed));
    Ok((address.ok_or(Code::NOT_FOUND)?, variable.bytes))
}

/// Stores address and bytes of a variable. The places may be null.
///
/// # Safety
/// The places must be null or valid for writing.
pub(super) unsafe fn store_variable(
    ptr: *mut u64,
    bytes: *mut usize,
    (address, size): (u64, u64),
) -> Outcome {
    // SAFETY: by this function's contract places that are not null are valid for writing.
    unsafe {
        if !ptr.is_null() {
            store(ptr, address)?;
        }
        if bytes.is_null() { Ok(()) } else { store(bytes, size as usize) }
    }
}

/// `cuModuleGetLoadingMode`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetLoadingMode(mode: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    started("cuModuleGetLoadingMode", |_| unsafe { store(mode, LAZY) })
}

/// `cuModuleGetFunctionCount`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunctionCount(
    count: *mut c_uint,
    module: *mut c_void,
) -> c_int {
    any_time("cuModuleGetFunctionCount", |driver| {
        has_place(count)?;
        let kernels = driver.programs().module(module.addr())?.image.kernels.len();
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(count, c_uint::try_from(kernels).unwrap_or(c_uint::MAX)) }
    })
}

/// `cuModuleEnumerateFunctions`: as many as there are, and as there is room for.
///
/// # Safety
/// `functions` must be null or have room for `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleEnumerateFunctions(
    functions: *mut *mut c_void,
    count: c_uint,
    module: *mut c_void,
) -> c_int {
    any_time("cuModuleEnumerateFunctions", |driver| {
        has_place(functions)?;
        let mut programs = driver.programs();
        let kernels = programs.module(module.addr())?.image.kernels.len();
        for index in 0..kernels.min(count as usize) {
            let function = programs.function_of(module.addr(), index)?;
            let place = functions.wrapping_add(index);
            // SAFETY: the caller promises that the array has room for `count` items.
            unsafe { store(place, std::ptr::without_provenance_mut(function)) }?;
        }
        Ok(())
    })
}
