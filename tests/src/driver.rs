//! The simulated driver library, loaded as a program loads `libcuda.so.1`.
//!
//! So the CUDA back end runs without a GPU: its table, its conversions, its contexts and its
//! kernels' launches, over the C ABI. Each [`SimulatedDriver`] is a copy of the library's file,
//! because a process loads a file once, and one library holds one machine. A process cannot unload
//! a copy, so a test takes one that another test has done with.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;
use pagewise::{Error, HostAccess, HostTouch, MemoryEvent, PageRun, Result, Span};
use pagewise_cuda::{CudaBackend, CudaBuilder, Host, Observer};

// The library is built because this crate depends on it.
use pagewise_driver as _;

/// A module with the touch kernel that writes. The simulated driver knows the kernel by its name.
pub const WRITE_KERNEL: &str = "\
.version 6.0
.target sm_60
.address_size 64
.visible .entry pagewise_write(
    .param .u64 address, .param .u64 places, .param .u64 stride,
    .param .u32 value, .param .u64 result)
{ ret; }
";

type UseText = unsafe extern "C" fn(*mut c_void, *const u8, usize);

/// A simulated driver library of its own.
pub struct SimulatedDriver(ManuallyDrop<Loaded>);

/// Copies that tests have done with. They have no machine.
static IDLE: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

impl Deref for SimulatedDriver {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        &self.0
    }
}

/// A copy of the library, with the functions that tests call.
#[derive(Debug)]
pub struct Loaded {
    path: PathBuf,
    reset: unsafe extern "C" fn(*const c_char) -> c_int,
    host_pages: unsafe extern "C" fn(u64, usize, *mut u8) -> c_int,
    host_touch: unsafe extern "C" fn(u64, usize, u64, c_int, *mut u64) -> c_int,
    take_events: unsafe extern "C" fn(UseText, *mut c_void) -> c_int,
    pace: unsafe extern "C" fn(u64, *const [u64; 2], usize),
    clock_ns: unsafe extern "C" fn() -> u64,
    sleep_ns: unsafe extern "C" fn(u64),
    retained: unsafe extern "C" fn() -> u64,
    panics: unsafe extern "C" fn() -> u64,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    release: unsafe extern "C" fn(c_int) -> c_int,
    set_current: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Keeps the functions valid.
    _library: Library,
    /// Keeps the path valid.
    _file: File,
}

impl fmt::Debug for SimulatedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedDriver({})", self.path.display())
    }
}

/// Where cargo put the library: beside the tests.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let name = "libpagewise_driver.so";
    let folders = test.ancestors().skip(1).take(3);
    let found = folders
        .flat_map(|folder| [folder.join(name), folder.join("deps").join(name)])
        .find(|path| path.exists());
    found.expect("cargo builds the simulated driver beside the tests")
}

impl SimulatedDriver {
    /// Takes a copy that is idle, or loads one.
    ///
    /// # Panics
    /// If the library was not built or cannot be loaded.
    #[must_use]
    pub fn load() -> Arc<Self> {
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Arc::new(Self(ManuallyDrop::new(idle.unwrap_or_else(Loaded::new))))
    }
}

impl Loaded {
    fn new() -> Self {
        // The file has no name, so nothing of it stays behind, however the process ends.
        let mut file = tempfile::tempfile().expect("a temporary file");
        let mut library = File::open(built()).expect("the library was found");
        io::copy(&mut library, &mut file).expect("room for a copy");
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // SAFETY: opening a library runs its initialisers. Those of the simulated driver have no
        // preconditions.
        let library = unsafe { Library::new(path.as_os_str()) }.expect("a library that loads");
        // SAFETY: each type is that of `pagewise_driver`'s function of this name.
        unsafe {
            Self {
                reset: *library.get(b"pagewise_driver_reset\0").expect("exported"),
                host_pages: *library.get(b"pagewise_driver_host_pages\0").expect("exported"),
                host_touch: *library.get(b"pagewise_driver_host_touch\0").expect("exported"),
                take_events: *library.get(b"pagewise_driver_take_events\0").expect("exported"),
                pace: *library.get(b"pagewise_driver_pace\0").expect("exported"),
                clock_ns: *library.get(b"pagewise_driver_clock_ns\0").expect("exported"),
                sleep_ns: *library.get(b"pagewise_driver_sleep_ns\0").expect("exported"),
                retained: *library.get(b"pagewise_driver_retained\0").expect("exported"),
                panics: *library.get(b"pagewise_driver_panics\0").expect("exported"),
                retain: *library.get(b"cuDevicePrimaryCtxRetain\0").expect("exported"),
                release: *library.get(b"cuDevicePrimaryCtxRelease_v2\0").expect("exported"),
                set_current: *library.get(b"cuCtxSetCurrent\0").expect("exported"),
                path,
                _library: library,
                _file: file,
            }
        }
    }
}

impl SimulatedDriver {
    /// Starts over with a machine as [`pagewise_driver::Options`] describe it. No back end over
    /// the old one may be used any more. The host's accesses are those that `Watch` declares,
    /// unless the options say otherwise.
    ///
    /// # Panics
    /// If the text is no list of options.
    pub fn reset(&self, options: &str) {
        let text = CString::new(format!("host_faults=declared {options}")).expect("no NUL");
        // SAFETY: the text is NUL-terminated. Tests have dropped what used the old machine.
        assert_eq!(unsafe { (self.reset)(text.as_ptr()) }, 0, "{options}");
    }

    /// A CUDA back end over this library, observed.
    pub fn builder(self: &Arc<Self>) -> CudaBuilder {
        self.builder_with(Accesses::Declared)
    }

    /// The same, with accesses of the host of this kind. Plain ones are seen by a driver with host
    /// faults, for which the options say `host_faults=real`.
    pub fn builder_with(self: &Arc<Self>, accesses: Accesses) -> CudaBuilder {
        let watch = Watch(Arc::clone(self), accesses);
        CudaBackend::builder().library(self.path.as_os_str()).observer(watch.clone()).host(watch)
    }

    /// The same over a new machine.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[must_use]
    pub fn fresh(self: &Arc<Self>, options: &str) -> CudaBackend {
        self.reset(options);
        self.builder().open().expect("a simulated driver opens")
    }

    /// The library's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How often primary contexts are retained, over all devices.
    #[must_use]
    pub fn retained(&self) -> u64 {
        // SAFETY: the function takes nothing and only counts.
        unsafe { (self.retained)() }
    }

    /// Makes a device's primary context current on this thread, as other code may.
    ///
    /// # Panics
    /// If the device has none.
    pub fn make_current(&self, device: i32) {
        let mut context = std::ptr::null_mut();
        // SAFETY: the result goes to a local that outlives the call. The context is live, because
        // the back end keeps it retained.
        unsafe {
            assert_eq!((self.retain)(&raw mut context, device), 0);
            assert_eq!((self.set_current)(context), 0);
            assert_eq!((self.release)(device), 0);
        }
    }

    /// Leaves this thread without a context, as other code may.
    ///
    /// # Panics
    /// If the driver refuses.
    pub fn make_none_current(&self) {
        // SAFETY: the function takes null as "no context".
        assert_eq!(unsafe { (self.set_current)(std::ptr::null_mut()) }, 0);
    }

    /// Lets the next call take this long, and its faults: see `SimBackend::pace_next_op`.
    pub fn pace(&self, duration_ns: u64, faults: &[(u64, u64)]) {
        let faults: Vec<[u64; 2]> = faults.iter().map(|&fault| fault.into()).collect();
        // SAFETY: the function reads as many pairs as it is told, which is the list's length.
        unsafe { (self.pace)(duration_ns, faults.as_ptr(), faults.len()) };
    }
}

impl Drop for SimulatedDriver {
    /// # Panics
    /// If a call of the library ended in a panic, which it caught.
    fn drop(&mut self) {
        // SAFETY: the function takes nothing and only counts.
        let panics = unsafe { (self.panics)() };
        assert!(panics == 0 || std::thread::panicking(), "{panics} calls ended in a panic");
        // The library stays loaded; its machine need not keep address space from others.
        // SAFETY: no code may use the machine that ends here. Back ends hold a reference to this
        // driver, so none is left.
        unsafe { (self.reset)(std::ptr::null()) };
        // A test that failed may have left anything behind.
        if !std::thread::panicking() {
            // SAFETY: the copy is taken once, here, and not used through `self` again.
            let loaded = unsafe { ManuallyDrop::take(&mut self.0) };
            IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(loaded);
        }
    }
}

/// The kind of the host's accesses to memory of a simulated driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accesses {
    /// A call of the library declares each access program.
    Declared,
    /// Plain reads and writes, which fault.
    Plain,
}

/// The events, page tables and clock that the simulated driver shows of itself.
#[derive(Debug, Clone)]
struct Watch(Arc<SimulatedDriver>, Accesses);

impl Observer for Watch {
    fn take_events(&self) -> Result<Vec<MemoryEvent>> {
        unsafe extern "C" fn copy(context: *mut c_void, text: *const u8, bytes: usize) {
            // SAFETY: `take_events` passes its vector as the context, and the library passes a text
            // of `bytes` bytes.
            unsafe {
                let text = std::slice::from_raw_parts(text, bytes);
                (*context.cast::<Vec<u8>>()).extend_from_slice(text);
            }
        }
        let mut text = Vec::new();
        // SAFETY: `copy` asks for a vector as its context, and this one outlives the call.
        let code = unsafe { (self.0.take_events)(copy, (&raw mut text).cast()) };
        if code != 0 {
            return Err(Error::from_code("take_events", code));
        }
        Ok(serde_json::from_slice(&text).expect("records as text"))
    }
}

impl Host for Watch {
    unsafe fn touch(&self, touch: HostTouch) -> Result<u64> {
        let HostTouch { span, stride_bytes, access } = touch;
        if self.1 == Accesses::Plain {
            // SAFETY: the caller promised that the range is live memory that the host may access
            // and that no other code uses.
            return Ok(unsafe { touch_plainly(touch) });
        }
        let value = match access {
            HostAccess::Read => -1,
            HostAccess::Write(value) => c_int::from(value),
        };
        let (mut sum, bytes) = (0, span.bytes as usize);
        // SAFETY: the sum goes to a local that outlives the call. The caller promised that no other
        // code uses the range.
        let code =
            unsafe { (self.0.host_touch)(span.ptr.0, bytes, stride_bytes, value, &raw mut sum) };
        if code == 0 { Ok(sum) } else { Err(Error::from_code("host_touch", code)) }
    }

    fn shows_pages(&self) -> bool {
        true
    }

    fn page_map(&self, span: Span) -> io::Result<Vec<PageRun>> {
        let range = span.pages_outward();
        let mut pages = vec![0_u8; (range.end - range.start) as usize];
        // SAFETY: the function writes a byte for each page that the range touches, and `pages` has
        // as many.
        let code =
            unsafe { (self.0.host_pages)(span.ptr.0, span.bytes as usize, pages.as_mut_ptr()) };
        if code != 0 {
            return Err(io::Error::other(format!("CUresult {code}")));
        }
        let runs = pages.chunk_by(|a, b| a == b);
        Ok(runs.map(|run| PageRun { pages: run.len() as u64, mapped: run[0] != 0 }).collect())
    }

    fn clock_ns(&self) -> u64 {
        // SAFETY: the function takes nothing and reads the clock.
        unsafe { (self.0.clock_ns)() }
    }

    fn sleep_ns(&self, duration_ns: u64) {
        // SAFETY: the function takes a number and checks it.
        unsafe { (self.0.sleep_ns)(duration_ns) };
    }
}

/// Makes each access of a program by itself, in their order.
///
/// # Safety
/// The range must be live memory that the host may access and that no other code uses.
unsafe fn touch_plainly(HostTouch { span, stride_bytes, access }: HostTouch) -> u64 {
    let first = std::ptr::with_exposed_provenance_mut::<u8>(span.ptr.0 as usize);
    let places = (0..span.bytes).step_by(stride_bytes as usize);
    let one = |place: u64| {
        // SAFETY: the place lies in the range, of which the caller promised what is needed.
        unsafe {
            let place = first.add(place as usize);
            match access {
                HostAccess::Read => return u64::from(place.read_volatile()),
                HostAccess::Write(value) => place.write_volatile(value),
            }
        }
        0
    };
    places.map(one).sum()
}
