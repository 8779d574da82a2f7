//! Shared parts of loading calls: options of the compiler with their logs, images from files, and the
//! text of names.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use pagewise_hal::{Code, DeviceId};

use crate::driver::{Driver, Outcome, has_place, load};
use crate::image::source::Source;
use crate::image::{Image, Machine, Refusal};
use crate::programs::device::capability;
use crate::programs::links::of_objects;

/// `CUDA_ERROR_FILE_NOT_FOUND`
const FILE_NOT_FOUND: c_int = 301;

/// The largest file that is read as an image.
const FILE_BYTES_MAX: u64 = 1 << 32;

/// `CU_JIT_INFO_LOG_BUFFER`, then its size
const INFO_LOG: c_int = 3;
/// `CU_JIT_ERROR_LOG_BUFFER`, then its size
const ERROR_LOG: c_int = 5;

/// A log of the compiler: a buffer of the program, and the option that holds its size.
#[derive(Debug, Clone, Copy, Default)]
struct Log {
    buffer: Option<*mut u8>,
    size: Option<*mut *mut c_void>,
    /// Bytes of the buffer. Later the option says how many are used.
    room: usize,
}

/// The options of a loading call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JitOptions {
    info: Log,
    error: Log,
}

impl JitOptions {
    /// Reads options. Those that direct the compiler change nothing here.
    ///
    /// # Safety
    /// Unless they are null, `options` and `values` must have `count` items. The buffers of logs must
    /// be as long as the options say, as long as the value is used.
    pub(crate) unsafe fn read(
        count: c_uint,
        options: *const c_int,
        values: *mut *mut c_void,
    ) -> Outcome<Self> {
        let mut found = Self::default();
        for index in 0..count as usize {
            // SAFETY: by this function's contract the array has an item of this index, or is null.
            let option = unsafe { load(options.wrapping_add(index)) };
            has_place(options)?;
            has_place(values)?;
            let (option, slot) = (option?, values.wrapping_add(index));
            let log = match option {
                INFO_LOG | 4 => &mut found.info,
                ERROR_LOG | 6 => &mut found.error,
                0.. => continue,
                _ => return Err(Code::INVALID_VALUE),
            };
            if [INFO_LOG, ERROR_LOG].contains(&option) {
                // SAFETY: by this function's contract the array has an item of this index.
                let buffer = unsafe { load(slot) }?.cast::<u8>();
                log.buffer = (!buffer.is_null()).then_some(buffer);
            } else {
                log.size = Some(slot);
                // SAFETY: by this function's contract the array has an item of this index. Its value is a
                // number of 32 bits, in the place of a pointer.
                log.room = unsafe { slot.cast::<c_uint>().read_unaligned() } as usize;
            }
        }
        Ok(found)
    }

    /// Writes the logs, and how many bytes of each there are.
    ///
    /// # Safety
    /// As [`read`](Self::read) says.
    pub(crate) unsafe fn report(&self, errors: &str) {
        for (log, text) in [(self.info, ""), (self.error, errors)] {
            // SAFETY: by this function's contract the buffers are as long as the options say.
            unsafe { log.write(text) };
        }
    }
}

impl Log {
    /// Writes text, cut where the buffer ends, with its NUL.
    ///
    /// # Safety
    /// The buffer must be as long as the option says, which must be valid for writing.
    unsafe fn write(self, text: &str) {
        let Some(size) = self.size else { return };
        let room = self.room;
        let kept = text.len().min(room.saturating_sub(1));
        if let (Some(buffer), 1..) = (self.buffer, room) {
            // SAFETY: by this function's contract `room` bytes can be written at the buffer, and
            // `kept` is less.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, kept);
                buffer.wrapping_add(kept).write(0);
            }
        }
        // SAFETY: by this function's contract the option can be written.
        unsafe { size.write_unaligned(std::ptr::without_provenance_mut(kept)) };
    }
}

/// The machine of a device that images are read for.
pub(crate) fn machine(driver: &Driver, device: DeviceId) -> Outcome<Machine> {
    Ok(Machine { capability: capability(driver, device)?, driver: driver.options.version() })
}

/// Reads an image that is loaded, and reports errors to the logs.
///
/// # Safety
/// As [`JitOptions::read`] says.
pub(crate) unsafe fn read(
    driver: &Driver,
    device: DeviceId,
    bytes: &[u8],
    options: &JitOptions,
) -> Outcome<Result<Image, Refusal>> {
    let image = Image::read(bytes, machine(driver, device)?).and_then(Image::whole);
    // SAFETY: by this function's contract the buffers are as long as the options say.
    unsafe { reported(driver, image, options) }
}

/// Reads an image that is loaded, as [`read`] does. One that nvcc linked of objects is linked again
/// if it has no text: the text of its objects can be executed.
///
/// # Safety
/// As [`JitOptions::read`] says.
pub(crate) unsafe fn read_linked(
    driver: &Driver,
    device: DeviceId,
    source: &Source<'_>,
    options: &JitOptions,
) -> Outcome<Result<Image, Refusal>> {
    let machine = machine(driver, device)?;
    let mut image = Image::read(source.bytes, machine).and_then(Image::whole);
    if image.as_ref().map_or(true, |image| image.text.is_empty()) {
        let objects = source.objects.as_deref().unwrap_or_default();
        image = of_objects(objects, machine).unwrap_or(image);
    }
    // SAFETY: by this function's contract the buffers are as long as the options say.
    unsafe { reported(driver, image, options) }
}

/// Reads an image that is linked with others, and reports errors to the logs.
///
/// # Safety
/// As [`JitOptions::read`] says.
pub(crate) unsafe fn read_part(
    driver: &Driver,
    device: DeviceId,
    bytes: &[u8],
    options: &JitOptions,
) -> Outcome<Result<Image, Refusal>> {
    let image = Image::read(bytes, machine(driver, device)?);
    // SAFETY: by this function's contract the buffers are as long as the options say.
    unsafe { reported(driver, image, options) }
}

/// Reports the reason of a refusal to the log of errors. Programs that nvcc built have no log, so the most
/// frequent reason goes to standard error, too.
///
/// # Safety
/// As [`JitOptions::read`] says.
unsafe fn reported(
    driver: &Driver,
    image: Result<Image, Refusal>,
    options: &JitOptions,
) -> Outcome<Result<Image, Refusal>> {
    let log = image.as_ref().err().map_or("", |refusal| &refusal.log);
    if image.as_ref().is_err_and(Refusal::is_newer_ptx) {
        driver.note_newer_ptx(log);
    }
    // SAFETY: by this function's contract the buffers are as long as the options say.
    unsafe { options.report(log) };
    Ok(image)
}

/// The bytes of a file.
///
/// # Safety
/// `path` must be null or NUL-terminated.
pub(crate) unsafe fn file(path: *const c_char) -> Outcome<Vec<u8>> {
    has_place(path)?;
    // SAFETY: `path` is not null, so the caller promises that it is NUL-terminated. The text is used
    // within this call only.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let file = File::open(Path::new(std::ffi::OsStr::from_bytes(path)));
    let mut bytes = Vec::new();
    let read = file.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|_| FILE_NOT_FOUND)?;
    Ok(bytes)
}

/// A name of the caller. A name that is no UTF-8 names nothing.
///
/// # Safety
/// `name` must be null or NUL-terminated, and stay as it is while the answer is used.
pub(crate) unsafe fn name<'a>(name: *const c_char) -> Outcome<&'a str> {
    has_place(name)?;
    // SAFETY: `name` is not null, so by this function's contract it is NUL-terminated.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Code::NOT_FOUND)
}
