//! Entry points that link modules of PTX.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use pagewise_hal::{Code, DeviceId};

use crate::driver::{Driver, Outcome, any_time, has_place, in_context, store};
use crate::entry::images::{JitOptions, file, machine, read_part};
use crate::image::Image;
use crate::programs::device::capability;
use crate::programs::links::Link;

/// `CU_JIT_INPUT_PTX`
const PTX: c_int = 1;
/// `CU_JIT_INPUT_FATBINARY`
const FAT_BINARY: c_int = 2;
/// `CU_JIT_INPUT_CUBIN`
const CUBIN: c_int = 0;
/// `CU_JIT_INPUT_OBJECT`
const OBJECT: c_int = 3;
/// `CU_JIT_INPUT_LIBRARY`
const LIBRARY: c_int = 4;
/// `CU_JIT_INPUT_NVVM`, the last kind
const NVVM: c_int = 5;

/// `CUDA_ERROR_INVALID_IMAGE`
const INVALID_IMAGE: c_int = 200;
/// `CUDA_ERROR_NO_BINARY_FOR_GPU`
const NO_BINARY: c_int = 209;
/// `CUDA_ERROR_JIT_COMPILER_NOT_FOUND`
const NO_COMPILER: c_int = 221;

/// The first bytes of an archive of objects, such as `libcudadevrt.a`.
const ARCHIVE: &[u8] = b"!<arch>\n";

/// The logs of a link, which the driver writes until it is destroyed.
struct Logs(JitOptions);

// SAFETY: `cuLinkCreate` asks its caller for buffers that are there until the link is destroyed,
// whichever thread goes on with it, and the driver writes them under the lock of its programs.
unsafe impl Send for Logs {}

impl Logs {
    fn report(&self, errors: &str) {
        // SAFETY: `cuLinkCreate` asks its caller for buffers that are there until the link is destroyed.
        unsafe { self.0.report(errors) };
    }
}

/// `cuLinkCreate`
///
/// # Safety
/// `options` and `values` must be null or have `count` items; `out` as the module says. Buffers of
/// logs, and the values that hold their sizes, must be there until the link is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate_v2(
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    in_context("cuLinkCreate_v2", |driver, _| {
        has_place(out)?;
        // SAFETY: the caller promises that the options are null or have `count` items.
        let logs = unsafe { JitOptions::read(count, options, values)? };
        // SAFETY: the caller promises that the buffers are as long as the options say.
        unsafe { logs.report("") };
        let logs = Logs(logs);
        let report = move |errors: &str| logs.report(errors);
        let link = driver.programs().add_link(Link::new(Box::new(report)));
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(link)) }
    })
}

/// `cuLinkAddData`
///
/// # Safety
/// `data` must be null or have `bytes` bytes, and `name` null or NUL-terminated. `options` and `values` must be null or have `count`
/// items, and the buffers of logs must be as long as the options say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkAddData_v2(
    link: *mut c_void,
    kind: c_int,
    data: *mut c_void,
    bytes: usize,
    name: *const c_char,
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
            // SAFETY: the caller promises that the name is null or NUL-terminated.
            let name = if name.is_null() { None } else { Some(CStr::from_ptr(name)) };
            add(driver, link, kind, (name, data), &options)
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
            // SAFETY: `path` is not null, so the caller promises that it is NUL-terminated.
            add(driver, link, kind, (Some(CStr::from_ptr(path)), &data), &options)
        }
    })
}

/// `cuLinkCreate`, the form of CUDA 5.5: the parameters are the same.
///
/// # Safety
/// As [`cuLinkCreate_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate(
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller promises what the other form asks for.
    unsafe { cuLinkCreate_v2(count, options, values, out) }
}

/// `cuLinkAddData`, the form of CUDA 5.5: the parameters are the same.
///
/// # Safety
/// As [`cuLinkAddData_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkAddData(
    link: *mut c_void,
    kind: c_int,
    data: *mut c_void,
    bytes: usize,
    name: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller promises what the other form asks for.
    unsafe { cuLinkAddData_v2(link, kind, data, bytes, name, count, options, values) }
}

/// `cuLinkAddFile`, the form of CUDA 5.5: the parameters are the same.
///
/// # Safety
/// As [`cuLinkAddFile_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkAddFile(
    link: *mut c_void,
    kind: c_int,
    path: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller promises what the other form asks for.
    unsafe { cuLinkAddFile_v2(link, kind, path, count, options, values) }
}

/// The answer for a module that is no PTX, as driver 580 answered: its code, and whether the link
/// fails with it too. Machine code is not linked.
fn refusal(kind: c_int, data: &[u8]) -> Outcome<Option<(c_int, bool)>> {
    let is_machine_code = data.starts_with(b"\x7fELF");
    Ok(match kind {
        LIBRARY if data == ARCHIVE => Some((INVALID_IMAGE, false)),
        LIBRARY if data.starts_with(ARCHIVE) => None,
        CUBIN | PTX | FAT_BINARY if is_machine_code => Some((NO_BINARY, true)),
        CUBIN => Some((INVALID_IMAGE, true)),
        PTX | FAT_BINARY => None,
        OBJECT if is_machine_code => Some((INVALID_IMAGE, false)),
        OBJECT | LIBRARY => Some((Code::UNKNOWN, false)),
        NVVM => Some((NO_COMPILER, true)),
        _ => return Err(Code::INVALID_VALUE),
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
    (name, data): (Option<&CStr>, &[u8]),
    options: &JitOptions,
) -> Outcome {
    if let Some((code, spoils)) = refusal(kind, data)? {
        // The driver's own code for machine code that it cannot link; the reason is on stderr.
        _ = driver.refuse("linking of machine code or NVVM (cuLinkAddData)");
        if spoils {
            driver.programs().link_mut(link.addr())?.failed = Some(code);
        }
        return Err(code);
    }
    if kind == LIBRARY {
        let mut programs = driver.programs();
        let link = programs.link_mut(link.addr())?;
        link.add_archive();
        return link.failed.map_or(Ok(()), Err);
    }
    let device = driver.device().unwrap_or(DeviceId(0));
    // SAFETY: by this function's contract the buffers are as long as the options say.
    let image = unsafe { read_part(driver, device, data, options) }?;
    let mut programs = driver.programs();
    let link = programs.link_mut(link.addr())?;
    match image {
        // A fat binary of machine code only.
        Ok(image) if image.text.is_empty() => {
            link.failed = Some(NO_BINARY);
            Err(NO_BINARY)
        }
        Ok(image) => {
            let name = name.map_or("<input>".into(), CStr::to_string_lossy);
            link.add(name.into_owned(), image);
            link.failed.map_or(Ok(()), Err)
        }
        Err(refusal) => {
            link.refused = true;
            link.report(&refusal.log);
            Err(refusal.code)
        }
    }
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
        let link = programs.link_mut(link.addr())?;
        link.complete(capability)?;
        let image = link.image();
        Image::read(image, machine).and_then(Image::whole).map_err(|refusal| refusal.code)?;
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
