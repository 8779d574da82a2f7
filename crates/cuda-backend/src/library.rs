//! Opening the driver library and filling the table.
//!
//! The library stays open for the life of the process: unloading a driver that has started is not
//! something drivers support.

use std::error::Error as _;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use libloading::Library;
use pagewise_hal::{Code, DriverVersion};

use crate::load_error::LoadError;
use crate::table::{ROWS, Row, Table};

/// The system's driver. Not plain `libcuda.so`: that name may be the toolkit's stub.
#[cfg(not(windows))]
pub(crate) const SYSTEM_LIBRARY: &str = "libcuda.so.1";
/// The system's driver.
#[cfg(windows)]
pub(crate) const SYSTEM_LIBRARY: &str = "nvcuda.dll";

type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// An open driver library, before anything of it was started.
#[derive(Debug)]
pub(crate) struct DriverLibrary {
    /// File name or path.
    pub(crate) name: String,
    /// The driver's own version.
    pub(crate) version: DriverVersion,
    /// The version whose entry points are used: its own, or a ceiling below it.
    pub(crate) effective: DriverVersion,
    get_proc_address: GetProcAddress,
    _library: ManuallyDrop<Library>,
}

impl DriverLibrary {
    /// Opens the library with this file name or path.
    pub(crate) fn open(name: &OsStr, ceiling: Option<DriverVersion>) -> Result<Self, LoadError> {
        let needed = DriverVersion::CUDA_12_0;
        if let Some(ceiling) = ceiling.filter(|&ceiling| ceiling < needed) {
            return Err(LoadError::CeilingTooLow { ceiling });
        }
        let text = name.to_string_lossy().into_owned();
        // SAFETY: opening runs the library's initialisers; the caller named a CUDA driver, whose
        // initialisers have no preconditions.
        let library = unsafe { Library::new(name) }.map_err(|error| LoadError::NoLibrary {
            library: text.clone(),
            reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        })?;
        // SAFETY: the type is the one that `cuda.h` gives to this exported name in all versions.
        let get_version = unsafe { symbol::<GetVersion>(&library, c"cuDriverGetVersion") };
        let Some(get_version) = get_version else {
            return Err(LoadError::NotADriver { library: text, symbol: "cuDriverGetVersion" });
        };
        let mut version = 0;
        // SAFETY: the function writes one int, before or after `cuInit`.
        let code = unsafe { get_version(&raw mut version) };
        if code != Code::SUCCESS {
            return Err(LoadError::of_code(&text, "cuDriverGetVersion", code));
        }
        let version = DriverVersion(version);
        // SAFETY: as above; the suffix is part of the exported name and pins the signature.
        let lookup = unsafe { symbol::<GetProcAddress>(&library, c"cuGetProcAddress_v2") };
        let Some(get_proc_address) = lookup.filter(|_| version >= needed) else {
            return Err(if version < needed {
                LoadError::TooOld { found: version, needed }
            } else {
                let names = vec!["cuGetProcAddress_v2".to_owned()];
                LoadError::MissingEntryPoints { version, names }
            });
        };
        Ok(Self {
            name: text,
            version,
            effective: ceiling.map_or(version, |ceiling| ceiling.min(version)),
            get_proc_address,
            _library: ManuallyDrop::new(library),
        })
    }

    /// The function of a row, if the driver has it and the ceiling allows it.
    ///
    /// A driver without the newer form of a function answers with the older one, which has
    /// another signature: that is no.
    pub(crate) fn find(&self, row: Row) -> Option<NonNull<c_void>> {
        if row.since > self.effective {
            return None;
        }
        let found = self.look_up(row)?;
        let older = |other: &&Row| other.name == row.name && other.since < row.since;
        let is_older = ROWS.iter().filter(older).any(|&row| self.look_up(row) == Some(found));
        (!is_older).then_some(found)
    }

    /// What the driver answers. "Not found" is a success with a null pointer, and asking for more
    /// than the driver's own version an error: both mean no.
    fn look_up(&self, row: Row) -> Option<NonNull<c_void>> {
        let (mut function, mut status) = (std::ptr::null_mut(), 0);
        let (name, version) = (row.name.as_ptr(), row.since.0);
        // SAFETY: the name is NUL-terminated, and both results go to live places.
        let code = unsafe {
            (self.get_proc_address)(name, &raw mut function, version, 0, &raw mut status)
        };
        NonNull::new(function).filter(|_| code == Code::SUCCESS)
    }

    /// Fills the table.
    pub(crate) fn table(&self) -> Result<Table, LoadError> {
        // SAFETY: `cuGetProcAddress_v2` returns the function that the header of that version
        // declares by that name, and the library is never closed.
        unsafe { Table::fill(|row| self.find(row)) }.map_err(|missing| {
            let names = missing.iter().map(|row| row.name().to_owned()).collect();
            LoadError::MissingEntryPoints { version: self.version, names }
        })
    }

    /// Starts the driver and counts its devices, at least one.
    pub(crate) fn start(&self, table: &Table) -> Result<u32, LoadError> {
        let refused = |operation, code| LoadError::of_code(&self.name, operation, code);
        // SAFETY: the flags must be 0.
        let code = unsafe { (table.init)(0) };
        if code != Code::SUCCESS {
            return Err(refused("cuInit", code));
        }
        let mut count = 0;
        // SAFETY: the function writes one int.
        let code = unsafe { (table.device_get_count)(&raw mut count) };
        match (code, u32::try_from(count)) {
            (Code::SUCCESS, Ok(0) | Err(_)) => Err(LoadError::NoDevice),
            (Code::SUCCESS, Ok(count)) => Ok(count),
            (code, _) => Err(refused("cuDeviceGetCount", code)),
        }
    }
}

/// Looks a function up by its exported name.
///
/// # Safety
/// `T` must be the type of the function with this name.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Option<T> {
    // SAFETY: the caller vouches for the type.
    unsafe { library.get::<T>(name.to_bytes_with_nul()) }.ok().map(|function| *function)
}
