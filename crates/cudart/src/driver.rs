//! The driver: its library, and its entry points as calls that return an outcome.

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::outcome::{Error, Outcome};

/// The variable that names the driver's library.
const LIBRARY: &str = "PAGEWISE_DRIVER_LIBRARY";

/// The driver's name on the loader's path.
const NAME: &str = "libcuda.so.1";

/// The oldest major version of the driver with the entry points that this crate needs.
const OLDEST_MAJOR: c_int = 12;

/// The version of CUDA that introduced the per-thread default stream, and with it a second form of
/// the entry points that were there.
const FIRST_PER_THREAD: c_int = 7000;

/// `cuGetProcAddress_v2`.
type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// Calls an entry point of the driver: its name without suffixes, the version of CUDA that
/// introduced the form that is meant, and arguments of the C types' sizes. The result is an
/// [`Outcome`]: `CALL_REQUIRES_NEWER_DRIVER` if the driver lacks the entry point.
macro_rules! cu {
    ($name:literal @ $since:literal $(, $argument:expr)* $(,)?) => {{
        static ENTRY: $crate::driver::Entry = $crate::driver::Entry::new($name, $since);
        ENTRY.call(($($argument,)*))
    }};
}
pub(crate) use cu;

/// An entry point of the driver, looked up at its first call.
pub(crate) struct Entry {
    name: &'static str,
    since: c_int,
    /// The forms with the legacy and with the per-thread default stream.
    found: [AtomicPtr<c_void>; 2],
}

impl Entry {
    pub(crate) const fn new(name: &'static str, since: c_int) -> Self {
        Self { name, since, found: [AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())] }
    }

    /// Calls the entry point.
    ///
    /// # Safety
    /// The arguments have the sizes and meanings of the entry point's parameters.
    pub(crate) unsafe fn call(&self, arguments: impl Arguments) -> Outcome {
        let per_thread = PER_THREAD.get();
        let slot = &self.found[usize::from(per_thread)];
        let mut address = slot.load(Ordering::Acquire);
        if address.is_null() {
            address = look_up(self.name, self.since, per_thread)?;
            slot.store(address, Ordering::Release);
        }
        // SAFETY: the caller promises that the arguments fit.
        match unsafe { arguments.call(address) } {
            0 => Ok(()),
            code => Err(Error::of_driver(code)),
        }
    }
}

/// Arguments of an entry point.
pub(crate) trait Arguments {
    /// Calls a function with the arguments.
    ///
    /// # Safety
    /// The function has parameters of these types and returns a C integer.
    unsafe fn call(self, address: *const c_void) -> c_int;
}

macro_rules! arguments {
    ($($type:ident)*) => {
        impl<$($type),*> Arguments for ($($type,)*) {
            #[allow(non_snake_case, reason = "a value is named like its type")]
            unsafe fn call(self, address: *const c_void) -> c_int {
                let ($($type,)*) = self;
                // SAFETY: the caller promises the type of the function.
                let function = unsafe {
                    std::mem::transmute::<
                        *const c_void,
                        unsafe extern "C" fn($($type),*) -> c_int,
                    >(address)
                };
                // SAFETY: the caller promises that the arguments are valid for the function.
                unsafe { function($($type),*) }
            }
        }
    };
}
arguments!();
arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);
arguments!(A B C D E F G H);
arguments!(A B C D E F G H I);
arguments!(A B C D E F G H I J);
arguments!(A B C D E F G H I J K);

thread_local! {
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call in which the null stream is the thread's own default stream.
pub fn per_thread<T>(call: impl FnOnce() -> T) -> T {
    let before = PER_THREAD.replace(true);
    let result = call();
    PER_THREAD.set(before);
    result
}

/// Whether the null stream is the thread's own default stream in this call.
pub(crate) fn is_per_thread() -> bool {
    PER_THREAD.get()
}

/// Initialises the driver once, as every call of the runtime does.
///
/// # Errors
/// `INSUFFICIENT_DRIVER` without a driver or with one that is too old; the driver's error if it
/// cannot start, such as 100 (`cudaErrorNoDevice`).
pub(crate) fn initialise() -> Outcome {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    if version()? / 1000 < OLDEST_MAJOR {
        return Err(Error::INSUFFICIENT_DRIVER);
    }
    // SAFETY: the entry point takes flags, which have to be 0.
    unsafe { cu!("cuInit" @ 2000, 0_u32) }?;
    DONE.store(true, Ordering::Release);
    Ok(())
}

/// The version of CUDA that the driver has, as 1000 × major + 10 × minor.
///
/// # Errors
/// `INSUFFICIENT_DRIVER` without a driver.
pub(crate) fn version() -> Outcome<c_int> {
    let mut version: c_int = 0;
    // SAFETY: the place is writable.
    unsafe { cu!("cuDriverGetVersion" @ 2020, &raw mut version) }?;
    Ok(version)
}

/// Asks the driver for an entry point by name, version and default stream.
///
/// # Errors
/// `INSUFFICIENT_DRIVER` without a driver.
///
/// # Safety
/// The name ends in a null byte.
pub(crate) unsafe fn proc_address(
    name: *const c_char,
    version: c_int,
    flags: u64,
) -> Outcome<(*mut c_void, c_int)> {
    let get = driver()?;
    let (mut address, mut status) = (null_mut(), 0);
    // SAFETY: the driver's own function; the name is the caller's, the places are writable.
    match unsafe { get(name, &raw mut address, version, flags, &raw mut status) } {
        0 => Ok((address, status)),
        code => Err(Error::of_driver(code)),
    }
}

fn look_up(name: &str, since: c_int, per_thread: bool) -> Outcome<*mut c_void> {
    // CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
    let flags = if per_thread { 2 } else { 1 };
    let since = if per_thread { since.max(FIRST_PER_THREAD) } else { since };
    let name = CString::new(name).map_err(|_| Error::UNKNOWN)?;
    // SAFETY: the name is a C string.
    match unsafe { proc_address(name.as_ptr(), since, flags) } {
        Ok((address, _)) if !address.is_null() => Ok(address),
        Err(Error::INSUFFICIENT_DRIVER) => Err(Error::INSUFFICIENT_DRIVER),
        _ => Err(Error::CALL_REQUIRES_NEWER_DRIVER),
    }
}

/// The driver's look-up function. The library stays open: its addresses are kept.
fn driver() -> Outcome<GetProcAddress> {
    static DRIVER: OnceLock<Option<GetProcAddress>> = OnceLock::new();
    let found = DRIVER.get_or_init(|| {
        candidates().iter().find_map(|path| {
            // SAFETY: the file is the CUDA driver by its name or by the user's word.
            let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
            // SAFETY: the driver's header declares the function with this type.
            let get = unsafe { library.get::<GetProcAddress>(b"cuGetProcAddress_v2\0") }.ok()?;
            let get = *get;
            let _open = library.into_raw();
            Some(get)
        })
    });
    found.ok_or(Error::INSUFFICIENT_DRIVER)
}

/// Where the driver may be, in the order in which the places are tried.
fn candidates() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os(LIBRARY).filter(|path| !path.is_empty()) {
        return vec![path.into()];
    }
    let beside = own_folder().map(|folder| folder.join(NAME));
    std::iter::once(PathBuf::from(NAME)).chain(beside).collect()
}

/// The folder of the file that holds this code.
fn own_folder() -> Option<PathBuf> {
    let mut about = libc::Dl_info {
        dli_fname: null(),
        dli_fbase: null_mut(),
        dli_sname: null(),
        dli_saddr: null_mut(),
    };
    let own: fn() -> Option<PathBuf> = own_folder;
    // SAFETY: the address is this function's, and the place is writable.
    if unsafe { libc::dladdr(own as *const c_void, &raw mut about) } == 0
        || about.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: the loader's name of the file is a C string that lives as long as the file is loaded.
    let name = unsafe { CStr::from_ptr(about.dli_fname) };
    Path::new(OsStr::from_bytes(name.to_bytes())).parent().map(Path::to_path_buf)
}
