//! The library: where it is, its functions, and the buffers that it fills.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::record::{CounterConfig, UNIFIED_MEMORY_COUNTER, UnifiedMemoryCounter};
use super::records::{RECORDS, locked};
use super::unavailable::CuptiUnavailable;

/// Newest first.
const NAMES: [&str; 2] = ["libcupti.so.13", "libcupti.so.12"];

/// Where toolkits put it, below `/usr/local/cuda*`.
const FOLDERS: [&str; 3] =
    ["extras/CUPTI/lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// The file, or a directory that holds it.
const VARIABLE: &str = "PAGEWISE_CUPTI";

const SUCCESS: u32 = 0;

type BufferRequested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type BufferCompleted = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type GetVersion = unsafe extern "C" fn(*mut u32) -> u32;
type RegisterCallbacks = unsafe extern "C" fn(BufferRequested, BufferCompleted) -> u32;
type Configure = unsafe extern "C" fn(*mut CounterConfig, u32) -> u32;
type SwitchKind = unsafe extern "C" fn(u32) -> u32;
type GetNextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut UnifiedMemoryCounter) -> u32;
type GetNumDropped = unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;

/// The functions. They stay valid for ever: CUPTI keeps threads and callbacks, so the library is
/// never closed.
#[derive(Debug)]
pub(super) struct Library {
    path: String,
    version: u32,
    register_callbacks: RegisterCallbacks,
    configure: Configure,
    enable: SwitchKind,
    disable: SwitchKind,
    flush_all: SwitchKind,
    get_next_record: GetNextRecord,
    get_num_dropped: GetNumDropped,
}

impl Library {
    pub(super) fn find() -> Result<Self, CuptiUnavailable> {
        Self::open_first(&candidates())
    }

    /// Opens the first that can be.
    fn open_first(candidates: &[PathBuf]) -> Result<Self, CuptiUnavailable> {
        let mut tried = Vec::new();
        for path in candidates {
            // SAFETY: opening a library runs its initialisers. CUPTI's have no preconditions, and
            // `path` is a name of CUPTI.
            match unsafe { libloading::Library::new(path) } {
                Ok(library) => return Self::of(&path.display().to_string(), library),
                Err(error) => tried.push(format!("{}: {error}", path.display())),
            }
        }
        Err(CuptiUnavailable::NotFound { tried: tried.join("; ") })
    }

    fn of(path: &str, library: libloading::Library) -> Result<Self, CuptiUnavailable> {
        // SAFETY: each type is the one that CUPTI's headers 12.0 to 13.5 declare for this exported
        // name, which has no versions. Their `size_t` is `usize` on every system that CUDA
        // supports.
        let library = unsafe {
            let get_version: GetVersion = symbol(path, &library, c"cuptiGetVersion")?;
            let mut version = 0;
            check("cuptiGetVersion", get_version(&raw mut version))?;
            let found = Self {
                path: path.to_owned(),
                version,
                register_callbacks: symbol(path, &library, c"cuptiActivityRegisterCallbacks")?,
                configure: symbol(path, &library, c"cuptiActivityConfigureUnifiedMemoryCounter")?,
                enable: symbol(path, &library, c"cuptiActivityEnable")?,
                disable: symbol(path, &library, c"cuptiActivityDisable")?,
                flush_all: symbol(path, &library, c"cuptiActivityFlushAll")?,
                get_next_record: symbol(path, &library, c"cuptiActivityGetNextRecord")?,
                get_num_dropped: symbol(path, &library, c"cuptiActivityGetNumDroppedRecords")?,
            };
            std::mem::forget(library);
            found
        };
        Ok(library)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Gives CUPTI the functions below. Once in a process.
    pub(super) fn register(&self) -> Result<(), CuptiUnavailable> {
        NEXT_RECORD.store(self.get_next_record as *mut c_void, Ordering::Release);
        // SAFETY: CUPTI calls the functions later, from threads of its own. Both are functions of
        // this library that may run on any thread and at any time.
        check("cuptiActivityRegisterCallbacks", unsafe {
            (self.register_callbacks)(request_buffer, take_buffer)
        })
    }

    pub(super) fn configure(&self, kind: u32, enable: bool) -> Result<(), CuptiUnavailable> {
        let mut config = CounterConfig::new(kind, enable);
        // SAFETY: CUPTI reads as many configurations as it is told, and `config` is one, alive
        // until the call returns.
        check("cuptiActivityConfigureUnifiedMemoryCounter", unsafe {
            (self.configure)(&raw mut config, 1)
        })
    }

    pub(super) fn enable(&self) -> Result<(), CuptiUnavailable> {
        // SAFETY: the function takes a number by value, and CUPTI checks it.
        check("cuptiActivityEnable", unsafe { (self.enable)(UNIFIED_MEMORY_COUNTER) })
    }

    pub(super) fn disable(&self) -> Result<(), CuptiUnavailable> {
        // SAFETY: the function takes a number by value, and CUPTI checks it.
        check("cuptiActivityDisable", unsafe { (self.disable)(UNIFIED_MEMORY_COUNTER) })
    }

    /// Has CUPTI deliver all records, those of buffers that are not full too.
    pub(super) fn flush(&self) -> Result<(), CuptiUnavailable> {
        /// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
        const FORCED: u32 = 1;
        // SAFETY: the function takes a number by value. CUPTI runs the callbacks within it, and no
        // lock that they take is held here.
        check("cuptiActivityFlushAll", unsafe { (self.flush_all)(FORCED) })
    }

    /// How many records were lost since the last call for want of a buffer.
    pub(super) fn dropped(&self) -> Result<usize, CuptiUnavailable> {
        let mut dropped = 0;
        // SAFETY: CUPTI takes a null context with stream 0 as the queue of the whole process, and
        // writes the count to a local that outlives the call.
        check("cuptiActivityGetNumDroppedRecords", unsafe {
            (self.get_num_dropped)(std::ptr::null_mut(), 0, &raw mut dropped)
        })?;
        Ok(dropped)
    }
}

/// Looks a function up.
///
/// # Safety
/// `T` must be the type of the function with this name.
unsafe fn symbol<T: Copy>(
    path: &str,
    library: &libloading::Library,
    name: &'static CStr,
) -> Result<T, CuptiUnavailable> {
    // SAFETY: the symbol is read as a `T`; the caller promised that `T` is the type of the function
    // with this name.
    let found = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    found.map(|function| *function).map_err(|_| CuptiUnavailable::NoSymbol {
        library: path.to_owned(),
        symbol: name.to_str().unwrap_or_default(),
    })
}

// ---- where it is ------------------------------------------------------------------------------

fn candidates() -> Vec<PathBuf> {
    match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(chosen) => chosen_files(Path::new(&chosen)),
        None => NAMES.iter().map(PathBuf::from).chain(toolkits(Path::new("/usr/local"))).collect(),
    }
}

fn chosen_files(chosen: &Path) -> Vec<PathBuf> {
    if chosen.is_dir() {
        NAMES.iter().map(|name| chosen.join(name)).collect()
    } else {
        vec![chosen.to_owned()]
    }
}

/// The libraries that are there in toolkits below `root`, those of newer toolkits first.
fn toolkits(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = root.read_dir() else { return Vec::new() };
    let mut toolkits: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cuda"))
        })
        .collect();
    toolkits.sort_by(|a, b| b.cmp(a));
    let mut found = Vec::new();
    for name in NAMES {
        for toolkit in &toolkits {
            let files = FOLDERS.iter().map(|folder| toolkit.join(folder).join(name));
            found.extend(files.filter(|file| file.is_file()));
        }
    }
    found
}

// ---- buffers ----------------------------------------------------------------------------------

const BUFFER_BYTES: usize = 8 << 20;

const fn buffer_layout() -> Layout {
    match Layout::from_size_align(BUFFER_BYTES, 8) {
        Ok(layout) => layout,
        Err(_) => panic!("8 MiB at 8 bytes is a layout"),
    }
}

/// CUPTI's function that steps through a buffer; the callbacks have no other way to reach it.
static NEXT_RECORD: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// CUPTI wants a buffer. A size of 0 makes it count what it drops.
extern "C" fn request_buffer(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    // SAFETY: `alloc` asks for a layout that is not empty, and this one has `BUFFER_BYTES`.
    let memory = unsafe { alloc(buffer_layout()) };
    // SAFETY: CUPTI gives its callback three places that are valid for writing. 0 records at most
    // means as many as fit.
    unsafe {
        *buffer = memory;
        *size = if memory.is_null() { 0 } else { BUFFER_BYTES };
        *max_records = 0;
    }
}

/// CUPTI gives a buffer back with `valid` bytes of records.
extern "C" fn take_buffer(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    let next = NEXT_RECORD.load(Ordering::Acquire);
    if !next.is_null() {
        // SAFETY: `next` is the address of a `GetNextRecord`: `register` stored it before it gave
        // CUPTI this callback.
        let next = unsafe { std::mem::transmute::<*mut c_void, GetNextRecord>(next) };
        // SAFETY: CUPTI gives its callback a buffer with `valid` bytes of records, and `next` is
        // CUPTI's function that steps through them.
        unsafe { read_buffer(next, buffer, valid) };
    }
    // SAFETY: `request_buffer` allocated the buffer with this layout, and CUPTI uses it no more
    // once it gave it to this callback.
    unsafe { dealloc(buffer, buffer_layout()) };
}

/// Notes the unified-memory records of a buffer.
///
/// # Safety
/// `next` must step through the `valid` bytes of records at `buffer`.
unsafe fn read_buffer(next: GetNextRecord, buffer: *mut u8, valid: usize) {
    let mut record: *mut UnifiedMemoryCounter = std::ptr::null_mut();
    let mut records = locked(&RECORDS);
    // SAFETY: the caller promised that `next` steps through the `valid` bytes of records at
    // `buffer`. It asks for a `record` that is null at first and later the one that it gave before.
    while unsafe { next(buffer, valid, &raw mut record) } == SUCCESS {
        // SAFETY: `next` succeeded, so `record` points at a record in the buffer. Every record is
        // aligned to 8 bytes and starts with its kind, a `u32`.
        let kind = unsafe { record.cast::<u32>().read() };
        if kind == UNIFIED_MEMORY_COUNTER {
            // SAFETY: `next` succeeded and the kind is the counters'. Every layout of such a record
            // since CUDA 7.0 starts with a `UnifiedMemoryCounter`.
            records.add(unsafe { record.read() });
        }
    }
}

// ---- results ----------------------------------------------------------------------------------

fn check(function: &'static str, code: u32) -> Result<(), CuptiUnavailable> {
    if code == SUCCESS {
        return Ok(());
    }
    let (name, hint) = RESULTS
        .iter()
        .find(|(number, ..)| *number == code)
        .map_or(("an error without a name here", ""), |&(_, name, hint)| (name, hint));
    Err(CuptiUnavailable::Refused { function, code, name, hint })
}

/// Numbers, names and what to do: `cupti_result.h` of 12.0 to 13.5.
const RESULTS: &[(u32, &str, &str)] = &[
    (1, "CUPTI_ERROR_INVALID_PARAMETER", ""),
    (7, "CUPTI_ERROR_INVALID_OPERATION", ""),
    (8, "CUPTI_ERROR_OUT_OF_MEMORY", ""),
    (14, "CUPTI_ERROR_NOT_COMPATIBLE", ": another profiler is attached to this process"),
    (15, "CUPTI_ERROR_NOT_INITIALIZED", ": the driver is not there or too old for this CUPTI"),
    (27, "CUPTI_ERROR_NOT_SUPPORTED", ""),
    (28, "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED", ": this system records no unified memory"),
    (29, "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE", ""),
    (31, "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS", ": leave MPS off"),
    (33, "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED", ""),
    (
        35,
        "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        ": run as root, or load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", ": another profiler is attached"),
    (40, "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES", ""),
    (43, "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED", ": leave MIG off"),
    (45, "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED", ""),
    (999, "CUPTI_ERROR_UNKNOWN", ": CUPTI 13 says so where no driver is installed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_a_reason_that_says_what_to_do_and_what_was_tried() {
        let missing = [PathBuf::from("libcupti-none.so.1"), PathBuf::from("/none/libcupti.so")];
        let reason = Library::open_first(&missing).expect_err("no such library").to_string();
        for part in ["PAGEWISE_CUPTI", "nvidia-cuda-cupti", "libcupti-none.so.1", "/none/"] {
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_that_is_no_cupti_is_a_reason_that_names_what_it_lacks() {
        let reason = Library::open_first(&[PathBuf::from("libc.so.6")]).expect_err("no CUPTI");
        let symbol = "cuptiGetVersion";
        let expected = CuptiUnavailable::NoSymbol { library: "libc.so.6".to_owned(), symbol };
        assert_eq!(reason, expected);
    }

    #[test]
    fn a_directory_stands_for_the_libraries_in_it_and_a_file_for_itself() {
        let folder = std::env::temp_dir();
        assert_eq!(chosen_files(&folder), NAMES.map(|name| folder.join(name)));
        let file = folder.join("libcupti.so.none");
        assert_eq!(chosen_files(&file), [file]);
    }

    #[test]
    fn a_refusal_names_the_function_the_number_and_what_to_do() {
        assert_eq!(check("cuptiActivityEnable", 0), Ok(()));
        let text = |code| check("cuptiActivityEnable", code).expect_err("refused").to_string();
        assert!(text(35).contains("35 (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES): run as root"));
        assert!(text(12345).contains("failed with 12345 (an error without"));
    }
}
