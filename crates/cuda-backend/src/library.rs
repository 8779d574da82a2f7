//! The driver library: opened, with its table filled.
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
    /// Entry points of this version are used: its own, or a ceiling below it.
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
        // SAFETY: opening a library runs its initialisers. The caller named a CUDA driver, and the
        // initialisers of one have no preconditions.
        let library = unsafe { Library::new(name) }.map_err(|error| LoadError::NoLibrary {
            library: text.clone(),
            reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        })?;
        // SAFETY: the type is the one that `cuda.h` of every version declares for this exported
        // name.
        let get_version = unsafe { symbol::<GetVersion>(&library, c"cuDriverGetVersion") };
        let Some(get_version) = get_version else {
            return Err(LoadError::NotADriver { library: text, symbol: "cuDriverGetVersion" });
        };
        let mut version = 0;
        // SAFETY: the function may be called before `cuInit`, and writes one `int` to a local that
        // outlives the call.
        let code = unsafe { get_version(&raw mut version) };
        if code != Code::SUCCESS {
            return Err(LoadError::of_code(&text, "cuDriverGetVersion", code));
        }
        let version = DriverVersion(version);
        // SAFETY: the type is the one that `cuda.h` declares for this exported name, which carries
        // the version of its signature. A library with `cuDriverGetVersion` is a CUDA driver.
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

    /// Tells loaded libraries apart, by whatever name each was opened: the address of a function,
    /// which stays as the library does.
    pub(crate) fn id(&self) -> usize {
        self.get_proc_address as usize
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

    /// The driver's answer. "Not found" is a success with a null pointer, and asking for more
    /// than the driver's own version an error: both mean no.
    fn look_up(&self, row: Row) -> Option<NonNull<c_void>> {
        let (mut function, mut status) = (std::ptr::null_mut(), 0);
        let (name, version) = (row.name.as_ptr(), row.since.0);
        // SAFETY: the driver reads `name` up to its NUL, and writes both results to locals that
        // outlive the call.
        let code = unsafe {
            (self.get_proc_address)(name, &raw mut function, version, 0, &raw mut status)
        };
        NonNull::new(function).filter(|_| code == Code::SUCCESS)
    }

    /// Fills the table.
    pub(crate) fn table(&self) -> Result<Table, LoadError> {
        // SAFETY: `fill` asks that each address is a function of its row's signature.
        // `cuGetProcAddress_v2` returns the function that the header of that version declares by
        // that name, and the library is never closed.
        unsafe { Table::fill(|row| self.find(row)) }.map_err(|missing| {
            let names = missing.iter().map(|row| row.name().to_owned()).collect();
            LoadError::MissingEntryPoints { version: self.version, names }
        })
    }

    /// Starts the driver and counts its devices, at least one.
    pub(crate) fn start(&self, table: &Table) -> Result<u32, LoadError> {
        let refused = |operation, code| LoadError::of_code(&self.name, operation, code);
        // SAFETY: `cuInit` takes a number, which must be 0.
        let code = unsafe { (table.init)(0) };
        if code != Code::SUCCESS {
            return Err(refused("cuInit", code));
        }
        let mut count = 0;
        // SAFETY: the driver writes one `int` to a local that outlives the call.
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
    // SAFETY: the symbol is read as a `T`; the caller promised that `T` is the type of the function
    // with this name.
    unsafe { library.get::<T>(name.to_bytes_with_nul()) }.ok().map(|function| *function)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Names under which the driver exports forms that are not the first of their name.
    const SUFFIXED: [(&CStr, i32, &CStr); 8] = [
        (c"cuDevicePrimaryCtxRelease", 11000, c"cuDevicePrimaryCtxRelease_v2"),
        (c"cuMemGetInfo", 3020, c"cuMemGetInfo_v2"),
        (c"cuMemAlloc", 3020, c"cuMemAlloc_v2"),
        (c"cuMemFree", 3020, c"cuMemFree_v2"),
        (c"cuStreamDestroy", 4000, c"cuStreamDestroy_v2"),
        (c"cuEventDestroy", 4000, c"cuEventDestroy_v2"),
        (c"cuMemAdvise", 12020, c"cuMemAdvise_v2"),
        (c"cuMemPrefetchAsync", 12020, c"cuMemPrefetchAsync_v2"),
    ];

    /// Real drivers on this machine: the system's, those that Debian's packages put beside each
    /// other, and those named in `PAGEWISE_TEST_DRIVERS`, separated by colons.
    fn real_drivers() -> Vec<PathBuf> {
        let named = std::env::var_os("PAGEWISE_TEST_DRIVERS").unwrap_or_default();
        let folders = std::fs::read_dir("/usr/lib/x86_64-linux-gnu/nvidia");
        let packaged = folders.into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = std::env::split_paths(&named).collect();
        found.extend(packaged.map(|folder| folder.path().join(SYSTEM_LIBRARY)));
        found.extend(
            ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"]
                .map(|folder| PathBuf::from(folder).join(SYSTEM_LIBRARY)),
        );
        found.retain(|path| path.exists());
        found
    }

    /// Needs no device: drivers answer these questions before they are started.
    #[test]
    fn real_drivers_have_every_function_of_their_version_under_the_name_that_it_is_exported_by() {
        let drivers = real_drivers();
        if drivers.is_empty() {
            let required = std::env::var_os("REQUIRE_CUDA").is_some_and(|value| value == "1");
            assert!(!required, "REQUIRE_CUDA=1, and no driver library is installed");
            println!("skipped: no driver library is installed (Debian: libcuda1)");
        }
        for path in drivers {
            let library = match DriverLibrary::open(path.as_os_str(), None) {
                Ok(library) => library,
                Err(LoadError::TooOld { found, .. }) => {
                    println!("{}: CUDA {found} is refused as too old", path.display());
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            println!("{}: CUDA {}", path.display(), library.version);
            library.table().expect("every required function");
            for &row in ROWS {
                let found = library.find(row);
                assert_eq!(found.is_some(), row.since <= library.version, "{row:?}");
                let suffixed =
                    |&&(name, since, _): &&(_, i32, _)| name == row.name && since == row.since.0;
                let exported = SUFFIXED.iter().find(suffixed).map_or(row.name, |&(_, _, as_)| as_);
                // SAFETY: the symbol is read as a pointer, and the test compares its address only.
                let direct = unsafe { symbol::<*mut c_void>(&library._library, exported) };
                assert_eq!(found, direct.and_then(NonNull::new), "{row:?}");
            }
            let newest = library.version;
            for ceiling in [12000, 12020, 12080, 12090, 13000].map(DriverVersion) {
                let capped = DriverLibrary::open(path.as_os_str(), Some(ceiling));
                let capped = capped.expect("it opened before");
                assert_eq!(capped.effective, ceiling.min(newest));
                let newer = |row: &&Row| row.since > ceiling && capped.find(**row).is_some();
                assert_eq!(ROWS.iter().find(newer), None, "{ceiling}");
            }
        }
    }
}
