//! Entry points for libraries, which belong to no context, and for their kernels.
//!
//! A library reads its image when it is loaded, but reports what is wrong with the image only where
//! it is used, as driver 580 does.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use pagewise_hal::{Code, DeviceId};

use crate::driver::{
    Driver, Outcome, any_time, has_place, is_handle, started, started_after, store,
};
use crate::entry::functions::{name_of, parameter_of};
use crate::entry::images::{JitOptions, file, name, read_linked};
use crate::entry::modules::{store_variable, variable};
use crate::image::source::{self, Source};
use crate::programs::device::limits;
use crate::programs::variables::{free, of_library, of_module};

/// `cuLibraryLoadData`
///
/// # Safety
/// `image` must be null, a whole image, or NUL-terminated text. `options` and `values` must be null
/// or have `count` items, and the buffers of logs must be as long as the options say. `out` as the
/// module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryLoadData(
    out: *mut *mut c_void,
    image: *const c_void,
    options: *const c_int,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *const c_int,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> c_int {
    let arguments = has_place(out).and_then(|()| has_place(image));
    started_after("cuLibraryLoadData", arguments, |driver| {
        // SAFETY: the image is not null, so the caller promises that it is whole or NUL-terminated
        // text, and what `load_library` asks for.
        unsafe { load_library(driver, out, &source::read(image), (count, options, values)) }
    })
}

/// `cuLibraryLoadFromFile`
///
/// # Safety
/// `path` must be null or NUL-terminated; everything else as `cuLibraryLoadData`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryLoadFromFile(
    out: *mut *mut c_void,
    path: *const c_char,
    options: *const c_int,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *const c_int,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> c_int {
    let arguments = has_place(out).and_then(|()| has_place(path));
    started_after("cuLibraryLoadFromFile", arguments, |driver| {
        // SAFETY: the caller promises that the path is null or NUL-terminated, and what
        // `load_library` asks for.
        unsafe { load_library(driver, out, &file(path)?[..].into(), (count, options, values)) }
    })
}

/// Loads a library.
///
/// # Safety
/// `out` must be valid for writing; the options as [`JitOptions::read`] says.
unsafe fn load_library(
    driver: &Driver,
    out: *mut *mut c_void,
    source: &Source<'_>,
    (count, options, values): (c_uint, *const c_int, *mut *mut c_void),
) -> Outcome {
    // SAFETY: by this function's contract the options have `count` items.
    let options = unsafe { JitOptions::read(count, options, values) }?;
    let device = driver.device().unwrap_or(DeviceId(0));
    // SAFETY: by this function's contract the buffers are as long as the options say.
    let image = unsafe { read_linked(driver, device, source, &options) }?;
    let library = driver.programs().add_library(image);
    // SAFETY: by this function's contract the place is valid for writing.
    unsafe { store(out, std::ptr::without_provenance_mut(library)) }
}

/// `cuLibraryUnload`
#[unsafe(no_mangle)]
pub extern "C" fn cuLibraryUnload(library: *mut c_void) -> c_int {
    started_after("cuLibraryUnload", is_handle(library), |driver| {
        driver.programs().library(library.addr())?;
        driver.deferred.wait()?;
        let memory = driver.programs().remove_library(library.addr());
        free(driver, memory);
        Ok(())
    })
}

/// `cuLibraryGetKernel`
///
/// # Safety
/// `name` must be null or NUL-terminated; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetKernel(
    out: *mut *mut c_void,
    library: *mut c_void,
    wanted: *const c_char,
) -> c_int {
    any_time("cuLibraryGetKernel", |driver| {
        has_place(out)?;
        // SAFETY: the caller promises that the name is null or NUL-terminated.
        let wanted = unsafe { name(wanted) }?;
        let programs = driver.programs();
        let library = programs.library(library.addr())?;
        let index = library.image()?.kernel(wanted).ok_or(Code::NOT_FOUND)?;
        let kernel = library.kernels()?.get(index).ok_or(Code::NOT_FOUND)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(*kernel)) }
    })
}

/// `cuLibraryGetKernelCount`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetKernelCount(
    count: *mut c_uint,
    library: *mut c_void,
) -> c_int {
    any_time("cuLibraryGetKernelCount", |driver| {
        has_place(count)?;
        let kernels = driver.programs().library(library.addr())?.kernels()?.len();
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(count, c_uint::try_from(kernels).unwrap_or(c_uint::MAX)) }
    })
}

/// `cuLibraryEnumerateKernels`: as many as there are, and as there is room for.
///
/// # Safety
/// `kernels` must be null or have room for `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryEnumerateKernels(
    kernels: *mut *mut c_void,
    count: c_uint,
    library: *mut c_void,
) -> c_int {
    any_time("cuLibraryEnumerateKernels", |driver| {
        has_place(kernels)?;
        let programs = driver.programs();
        let all = programs.library(library.addr())?.kernels()?;
        for (index, kernel) in all.iter().take(count as usize).enumerate() {
            let place = kernels.wrapping_add(index);
            // SAFETY: the caller promises that the array has room for `count` items.
            unsafe { store(place, std::ptr::without_provenance_mut(*kernel)) }?;
        }
        Ok(())
    })
}

/// The module of a library in the current context, which is made if there is none.
pub(super) fn module(driver: &Driver, library: usize) -> Outcome<usize> {
    let device = driver.device()?;
    let context = Driver::current();
    // Held until the module is there: of two threads, one makes it.
    let mut programs = driver.programs();
    let image = Arc::clone(programs.library(library)?.image()?);
    if let Some(known) = programs.module_of_library(library, context) {
        return Ok(known);
    }
    let managed = match programs.library(library)?.managed.clone() {
        Some(known) => known,
        None => {
            let made = of_library(driver, &image)?;
            programs.set_managed(library, made.clone());
            made
        }
    };
    let storage = of_module(driver, device, &image, Some(&managed))?;
    Ok(programs.add_module(context, image, storage, Some(library)))
}

/// `cuLibraryGetModule`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetModule(out: *mut *mut c_void, library: *mut c_void) -> c_int {
    any_time("cuLibraryGetModule", |driver| {
        has_place(out)?;
        driver.programs().library(library.addr())?;
        let module = module(driver, library.addr())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(module)) }
    })
}

/// `cuLibraryGetGlobal`: either place may be null, but not both.
///
/// # Safety
/// `name` must be null or NUL-terminated; the places as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetGlobal(
    ptr: *mut u64,
    bytes: *mut usize,
    library: *mut c_void,
    wanted: *const c_char,
) -> c_int {
    any_time("cuLibraryGetGlobal", |driver| {
        // SAFETY: the caller promises what `variable_of` asks for.
        unsafe { variable_of(driver, (ptr, bytes), library, wanted, |_| true) }
    })
}

/// `cuLibraryGetManaged`: either place may be null, but not both.
///
/// # Safety
/// As `cuLibraryGetGlobal`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetManaged(
    ptr: *mut u64,
    bytes: *mut usize,
    library: *mut c_void,
    wanted: *const c_char,
) -> c_int {
    any_time("cuLibraryGetManaged", |driver| {
        // SAFETY: the caller promises what `variable_of` asks for.
        unsafe { variable_of(driver, (ptr, bytes), library, wanted, |is_managed| is_managed) }
    })
}

/// Stores address and bytes of a variable of a library in the current context.
///
/// # Safety
/// `wanted` must be null or NUL-terminated, and the places null or valid for writing.
unsafe fn variable_of(
    driver: &Driver,
    (ptr, bytes): (*mut u64, *mut usize),
    library: *mut c_void,
    wanted: *const c_char,
    is_of_kind: impl FnOnce(bool) -> bool,
) -> Outcome {
    if ptr.is_null() && bytes.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: by this function's contract the name is null or NUL-terminated.
    let wanted = unsafe { name(wanted) }?;
    driver.programs().library(library.addr())?;
    let module = module(driver, library.addr())?;
    let found = variable(driver, module, || Ok(wanted), is_of_kind)?;
    // SAFETY: by this function's contract the places are null or valid for writing.
    unsafe { store_variable(ptr, bytes, found) }
}

/// `cuLibraryGetUnifiedFunction`: images have no unified functions here.
///
/// # Safety
/// As `cuLibraryGetGlobal`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetUnifiedFunction(
    out: *mut *mut c_void,
    library: *mut c_void,
    wanted: *const c_char,
) -> c_int {
    started("cuLibraryGetUnifiedFunction", |driver| {
        has_place(out)?;
        let image = driver.programs().library(library.addr())?.image().cloned();
        // SAFETY: the caller promises that the name is null or NUL-terminated.
        let wanted = unsafe { name(wanted) }?;
        // A kernel is no unified function.
        let is_known = image?.kernel(wanted).is_some();
        Err(if is_known { Code::INVALID_VALUE } else { Code::NOT_FOUND })
    })
}

/// `cuKernelGetFunction`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetFunction(out: *mut *mut c_void, kernel: *mut c_void) -> c_int {
    any_time("cuKernelGetFunction", |driver| {
        has_place(out)?;
        let function = function_of_kernel(driver, kernel.addr())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(function)) }
    })
}

/// The function that a kernel of a library is in the current context.
pub(super) fn function_of_kernel(driver: &Driver, kernel: usize) -> Outcome<usize> {
    let (library, index) = driver.programs().kernel(kernel)?;
    let module = module(driver, library)?;
    driver.programs().function_of(module, index)
}

/// `cuKernelGetLibrary`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetLibrary(out: *mut *mut c_void, kernel: *mut c_void) -> c_int {
    any_time("cuKernelGetLibrary", |driver| {
        has_place(out)?;
        let (library, _) = driver.programs().kernel(kernel.addr())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(library)) }
    })
}

/// `cuKernelGetAttribute`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    kernel: *mut c_void,
    device: c_int,
) -> c_int {
    any_time("cuKernelGetAttribute", |driver| {
        driver.programs().kernel(kernel.addr())?;
        has_place(value)?;
        let limits = limits(driver, DeviceId(device))?;
        let found = driver.programs().function(kernel.addr(), device)?;
        let of = (&*found.image, found.kernel()?);
        let answer = found.settings.get(attribute, of, &limits)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(value, answer) }
    })
}

/// `cuKernelSetAttribute`
#[unsafe(no_mangle)]
pub extern "C" fn cuKernelSetAttribute(
    attribute: c_int,
    value: c_int,
    kernel: *mut c_void,
    device: c_int,
) -> c_int {
    any_time("cuKernelSetAttribute", |driver| {
        driver.programs().kernel(kernel.addr())?;
        let limits = limits(driver, DeviceId(device))?;
        let mut found = driver.programs().function(kernel.addr(), device)?;
        let of = found.kernel()?.clone();
        found.settings.set(attribute, value, &of, &limits)?;
        driver.programs().set(kernel.addr(), device, found.settings);
        Ok(())
    })
}

/// `cuKernelSetCacheConfig`: a preference, which changes nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn cuKernelSetCacheConfig(
    kernel: *mut c_void,
    config: c_int,
    device: c_int,
) -> c_int {
    any_time("cuKernelSetCacheConfig", |driver| {
        driver.programs().kernel(kernel.addr())?;
        driver.handle_of(device)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    })
}

/// `cuKernelGetName`: the text stays as long as the library.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetName(name: *mut *const c_char, kernel: *mut c_void) -> c_int {
    any_time("cuKernelGetName", |driver| {
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { name_of(driver, name, kernel) }
    })
}

/// `cuKernelGetParamInfo`: the place for the size may be null.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetParamInfo(
    kernel: *mut c_void,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> c_int {
    any_time("cuKernelGetParamInfo", |driver| {
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe { parameter_of(driver, kernel, index, (offset, size)) }
    })
}

/// `cuKernelGetParamCount`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetParamCount(kernel: *mut c_void, count: *mut usize) -> c_int {
    any_time("cuKernelGetParamCount", |driver| {
        has_place(count)?;
        driver.programs().kernel(kernel.addr())?;
        let parameters = driver.programs().function(kernel.addr(), 0)?.kernel()?.parameters.len();
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(count, parameters) }
    })
}
