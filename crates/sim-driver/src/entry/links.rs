//! Entry points that link modules of PTX.

use std::ffi::{c_char, c_int, c_uint, c_void};

use pagewise_hal::{Code, DeviceId};

use crate::driver::{Driver, Outcome, any_time, has_place, in_context, store};
use crate::entry::images::{JitOptions, file, machine, read};
use crate::image::Image;
use crate::programs::device::capability;

/// `CU_JIT_INPUT_PTX`
const PTX: c_int = 1;
/// `CU_JIT_INPUT_FATBINARY`
const FAT_BINARY: c_int = 2;
/// `CU_JIT_INPUT_NVVM`, the last kind
const LAST_KIND: c_int = 5;

/// `cuLinkCreate`
///
/// # Safety
/// `options` and `values` must be null or have `count` items; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate_v2(
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    in_context("cuLinkCreate_v2", |driver, _| {
        has_place(out)?;
        // SAFETY: the caller promises that the options are null or have `count` items. Their logs are
        // not kept: errors of a module go to the logs of the call that adds it.
        unsafe { JitOptions::read(count, options, values)?.report("") };
        let link = driver.programs().add_link();
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(link)) }
    })
}

/// `cuLinkAddData`
///
/// # Safety
/// `data` must be null or have `bytes` bytes. `options` and `values` must be null or have `count`
/// items, and the buffers of logs must be as long as the options say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkAddData_v2(
    link: *mut c_void,
    kind: c_int,
    data: *mut c_void,
    bytes: usize,
    _name: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
) -> c_int {
    any_time("cuLinkAddData_v2", |driver| {
        driver.programs().link(link.addr())?;
        has_place(data)?;
        if isize::try_from(bytes).is_err() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: `data` is not null, so the caller promises that it has `bytes` bytes, and that the
        // options have `count` items.
        unsafe {
            let options = JitOptions::read(count, options, values)?;
            let data = std::slice::from_raw_parts(data.cast::<u8>(), bytes);
            add(driver, link, kind, data, &options)
        }
    })
}

/// `cuLinkAddFile`
///
/// # Safety
/// `path` must be null or NUL-terminated; everything else as `cuLinkAddData`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkAddFile_v2(
    link: *mut c_void,
    kind: c_int,
    path: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
) -> c_int {
    any_time("cuLinkAddFile_v2", |driver| {
        driver.programs().link(link.addr())?;
        // SAFETY: the caller promises that the path is null or NUL-terminated, and that the options
        // have `count` items.
        unsafe {
            let data = file(path)?;
            let options = JitOptions::read(count, options, values)?;
            add(driver, link, kind, &data, &options)
        }
    })
}

/// Adds a module to a link.
///
/// # Safety
/// The options as [`JitOptions::read`] says.
unsafe fn add(
    driver: &Driver,
    link: *mut c_void,
    kind: c_int,
    data: &[u8],
    options: &JitOptions,
) -> Outcome {
    match kind {
        PTX | FAT_BINARY => {}
        0..=LAST_KIND => return driver.refuse("linking of machine code or NVVM (cuLinkAddData)"),
        _ => return Err(Code::INVALID_VALUE),
    }
    let device = driver.device().unwrap_or(DeviceId(0));
    // SAFETY: by this function's contract the buffers are as long as the options say.
    let image = unsafe { read(driver, device, data, options) }?;
    let image = image.map_err(|refusal| refusal.code)?;
    driver.programs().link_mut(link.addr())?.add(image);
    Ok(())
}

/// `cuLinkComplete`: the image stays until the link is destroyed.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkComplete(
    link: *mut c_void,
    out: *mut *mut c_void,
    bytes: *mut usize,
) -> c_int {
    any_time("cuLinkComplete", |driver| {
        driver.programs().link(link.addr())?;
        has_place(out)?;
        let device = driver.device().unwrap_or(DeviceId(0));
        let (capability, machine) = (capability(driver, device)?, machine(driver, device)?);
        let mut programs = driver.programs();
        let image = programs.link_mut(link.addr())?.complete(capability);
        // Modules that do not fit together are found here.
        Image::read(image, machine).map_err(|refusal| refusal.code)?;
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            store(out, image.as_ptr().cast_mut().cast())?;
            if bytes.is_null() { Ok(()) } else { store(bytes, image.len()) }
        }
    })
}

/// `cuLinkDestroy`
#[unsafe(no_mangle)]
pub extern "C" fn cuLinkDestroy(link: *mut c_void) -> c_int {
    any_time("cuLinkDestroy", |driver| driver.programs().remove_link(link.addr()))
}
