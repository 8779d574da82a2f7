//! The simulated driver of the process: the simulator, start-up, and contexts.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pagewise_hal::{Backend, Code, DeviceId, Result, StreamFlags, StreamHandle};
use pagewise_sim::SimBackend;

use crate::forms::missing;
use crate::options::Options;
use crate::summary::SummaryFile;

/// `CUDA_ERROR_INVALID_CONTEXT`
const INVALID_CONTEXT: c_int = 201;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`
const CONTEXT_IS_DESTROYED: c_int = 709;

thread_local! {
    /// The context that is current on this thread, as its handle; 0 for none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// A call's outcome: a value, or the `CUresult` to return.
pub(crate) type Outcome<T = ()> = std::result::Result<T, c_int>;

/// A simulated driver: the simulator with start-up, contexts, and streams of contexts.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) sim: SimBackend,
    pub(crate) options: Options,
    started: AtomicBool,
    /// Single prefetches so far, if one of them is to fail.
    prefetches: AtomicU64,
    /// Makes handles of contexts unique among all drivers of the process.
    number: usize,
    /// Symbols of the library that a driver of this version and these options does not have.
    missing: BTreeSet<&'static str>,
    /// The default stream of each device; the simulator's own belong to device 0.
    defaults: Vec<StreamHandle>,
    /// Functions that were called and are not implemented.
    refused: Mutex<BTreeSet<&'static str>>,
    /// The file that says what moved, if there is one.
    summary: Option<Mutex<SummaryFile>>,
    contexts: Mutex<Contexts>,
}

#[derive(Debug, Default)]
struct Contexts {
    /// How often each device's primary context is retained.
    retained: BTreeMap<c_int, u64>,
    /// The device of each stream that was created.
    streams: BTreeMap<usize, c_int>,
}

impl Driver {
    fn new(options: Options) -> std::result::Result<Self, String> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let sim = SimBackend::new(options.config()).map_err(|error| error.to_string())?;
        let summary = options.summary.as_deref().map(|folder| {
            let file = SummaryFile::create(folder);
            file.map(Mutex::new).map_err(|error| format!("{}: {error}", folder.display()))
        });
        let default = |device| match device {
            0 => Ok(StreamHandle::NULL),
            other => sim.stream_create(DeviceId(other), StreamFlags::NON_BLOCKING),
        };
        Ok(Self {
            defaults: options
                .ordinals()
                .map(default)
                .collect::<Result<_>>()
                .map_err(|error| error.to_string())?,
            summary: summary.transpose()?,
            missing: missing(&options),
            sim,
            options,
            started: AtomicBool::new(false),
            prefetches: AtomicU64::new(0),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            refused: Mutex::default(),
            contexts: Mutex::default(),
        })
    }

    fn contexts(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a device's primary context: never null, never a valid address.
    pub(crate) fn handle_of(&self, device: c_int) -> Outcome<usize> {
        let mut devices = self.options.ordinals();
        devices.find(|&known| known == device).ok_or(Code::INVALID_DEVICE)?;
        // The simulator has at most 32 devices.
        Ok((self.number << 16 | device.cast_unsigned() as usize) << 4 | 1)
    }

    fn device_of(&self, handle: usize) -> Option<c_int> {
        self.options.ordinals().find(|&device| self.handle_of(device) == Ok(handle))
    }

    /// `cuInit`
    pub(crate) fn start(&self) -> c_int {
        match (self.options.init, self.options.devices) {
            (Code::SUCCESS, 0) => 100,
            (Code::SUCCESS, _) => {
                self.started.store(true, Ordering::Relaxed);
                Code::SUCCESS
            }
            (code, _) => code,
        }
    }

    /// Brings the file of the summary up to date, if there is one.
    fn update_summary(&self) {
        if let Some(summary) = &self.summary {
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            summary.update(&self.sim, &refused);
        }
    }

    /// The state as text. Every field is named, so that a new one does not compile until it is
    /// decided whether it belongs here: these do not change, or count calls for a test.
    pub(crate) fn state(&self) -> String {
        let Self {
            sim,
            options: _,
            started,
            prefetches: _,
            number,
            missing: _,
            defaults: _,
            refused: _,
            summary: _,
            contexts,
        } = self;
        format!("{number} {started:?} {contexts:#?}\n{}", sim.state())
    }

    /// A shared library cannot take a symbol back: an entry point that the driver does not
    /// have, called by its symbol nevertheless, is not supported.
    fn check_exists(&self, symbol: &str) -> Outcome {
        if self.missing.contains(symbol) { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Refuses a function that is not implemented, and says so the first time.
    pub(crate) fn refuse(&self, symbol: &'static str) -> Outcome {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.insert(symbol) && self.options.warns {
            eprintln!(
                "simulated CUDA driver: {symbol} is not implemented (CUDA_ERROR_NOT_SUPPORTED)"
            );
        }
        Err(Code::NOT_SUPPORTED)
    }

    /// Counts a single prefetch, and fails it if it is the one that is to fail.
    pub(crate) fn count_prefetch(&self) -> Outcome {
        let Some((which, code)) = self.options.fail_prefetch else { return Ok(()) };
        let before = self.prefetches.fetch_add(1, Ordering::Relaxed);
        if which.checked_sub(1) == Some(before) { Err(code) } else { Ok(()) }
    }

    pub(crate) fn retain(&self, device: c_int) -> Outcome<usize> {
        let handle = self.handle_of(device)?;
        let mut contexts = self.contexts();
        let count = contexts.retained.entry(device).or_default();
        *count = count.saturating_add(1);
        Ok(handle)
    }

    pub(crate) fn release(&self, device: c_int) -> Outcome {
        self.handle_of(device)?;
        let mut contexts = self.contexts();
        let count = contexts.retained.get_mut(&device).ok_or(INVALID_CONTEXT)?;
        *count = count.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        Ok(())
    }

    /// Whether a device has a primary context.
    pub(crate) fn is_retained(&self, device: c_int) -> Outcome<bool> {
        self.handle_of(device)?;
        Ok(self.contexts().retained.get(&device).is_some_and(|count| *count > 0))
    }

    /// How often contexts are retained, over all devices.
    pub(crate) fn retained(&self) -> u64 {
        self.contexts().retained.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub(crate) fn set_current(&self, handle: usize) -> Outcome {
        if handle != 0 {
            self.live(handle)?;
        }
        CURRENT.set(handle);
        Ok(())
    }

    pub(crate) fn current() -> usize {
        CURRENT.get()
    }

    fn live(&self, handle: usize) -> Outcome<DeviceId> {
        let device = self.device_of(handle).ok_or(INVALID_CONTEXT)?;
        match self.contexts().retained.get(&device) {
            Some(1..) => Ok(DeviceId(device)),
            _ => Err(CONTEXT_IS_DESTROYED),
        }
    }

    /// The device of the current context; calls that need one start with this.
    pub(crate) fn device(&self) -> Outcome<DeviceId> {
        self.live(CURRENT.get())
    }

    pub(crate) fn add_stream(&self, stream: StreamHandle, device: DeviceId) {
        self.contexts().streams.insert(stream.as_raw() as usize, device.0);
    }

    pub(crate) fn remove_stream(&self, stream: StreamHandle) {
        self.contexts().streams.remove(&(stream.as_raw() as usize));
    }

    /// The device that a stream belongs to; default streams belong to the current context.
    pub(crate) fn device_of_stream(&self, stream: StreamHandle) -> Outcome<DeviceId> {
        if stream.is_default() {
            return self.device();
        }
        let device = self.contexts().streams.get(&(stream.as_raw() as usize)).copied();
        device.map(DeviceId).ok_or(Code::INVALID_HANDLE)
    }

    /// A stream of the caller, if it has a context: default streams belong to the current one, of
    /// which there must be one; other streams bring theirs.
    pub(crate) fn stream(&self, raw: *mut c_void) -> Outcome<StreamHandle> {
        let on = stream(raw);
        if on.is_default() {
            self.device()?;
        }
        Ok(on)
    }

    pub(crate) fn context_of_stream(&self, stream: StreamHandle) -> Outcome<usize> {
        self.handle_of(self.device_of_stream(stream)?.0)
    }

    /// The stream on which the simulator does the work of a default stream.
    pub(crate) fn working_stream(&self, stream: StreamHandle) -> Outcome<StreamHandle> {
        let device = self.device_of_stream(stream)?;
        if !stream.is_default() || device == DeviceId(0) {
            return Ok(stream);
        }
        let stands_in = usize::try_from(device.0).ok().and_then(|at| self.defaults.get(at));
        stands_in.copied().ok_or(Code::INVALID_DEVICE)
    }
}

/// A stream of the caller: the simulator looks it up and refuses what it did not make.
pub(crate) fn stream(raw: *mut c_void) -> StreamHandle {
    // SAFETY: `from_raw` asks for a handle that the back end can take. The simulator looks every
    // handle up in its table of live streams and dereferences none, so any number is sound.
    unsafe { StreamHandle::from_raw(raw.addr() as u64) }
}

static DRIVER: RwLock<Option<Arc<Driver>>> = RwLock::new(None);

/// The driver of the process, made at the first call as the environment says.
pub(crate) fn driver() -> std::result::Result<Arc<Driver>, String> {
    if let Some(driver) = &*DRIVER.read().unwrap_or_else(PoisonError::into_inner) {
        return Ok(Arc::clone(driver));
    }
    let mut slot = DRIVER.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = &*slot {
        return Ok(Arc::clone(driver));
    }
    let text = std::env::var(Options::VARIABLE).unwrap_or_default();
    Ok(Arc::clone(slot.insert(make(&text)?)))
}

/// Gives the driver up, and makes a new one if options are given. Whatever came from the old one
/// is invalid from now on.
pub(crate) fn replace(text: Option<&str>) -> std::result::Result<(), String> {
    let mut slot = DRIVER.write().unwrap_or_else(PoisonError::into_inner);
    *slot = None;
    *slot = text.map(make).transpose()?;
    Ok(())
}

fn make(text: &str) -> std::result::Result<Arc<Driver>, String> {
    let options = text.parse::<Options>()?;
    Driver::new(options).map(Arc::new)
}

/// Panics that were caught, of which each is a bug: a missing check.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// How many calls ended in a panic since the library was loaded.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs a function that is no part of the driver's ABI, or one that finds the others.
pub(crate) fn beside(call: impl FnOnce(&Driver) -> Outcome) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(|| match driver() {
        Ok(driver) => {
            let outcome = call(&driver);
            driver.update_summary();
            outcome
        }
        Err(why) => {
            eprintln!("simulated CUDA driver: {why}");
            Err(Code::UNKNOWN)
        }
    }));
    match outcome {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => {
            PANICS.fetch_add(1, Ordering::Relaxed);
            Code::UNKNOWN
        }
    }
}

/// Runs an entry point that needs no start-up. `symbol` is its name in this library.
pub(crate) fn any_time(symbol: &str, call: impl FnOnce(&Driver) -> Outcome) -> c_int {
    beside(|driver| {
        driver.check_exists(symbol)?;
        call(driver)
    })
}

/// Runs an entry point that needs `cuInit` first, which is checked before any argument.
pub(crate) fn started(symbol: &str, call: impl FnOnce(&Driver) -> Outcome) -> c_int {
    started_after(symbol, Ok(()), call)
}

/// Runs an entry point that needs `cuInit`, with arguments that the driver checks even before.
pub(crate) fn started_after(
    symbol: &str,
    arguments: Outcome,
    call: impl FnOnce(&Driver) -> Outcome,
) -> c_int {
    any_time(symbol, |driver| {
        arguments?;
        if !driver.started.load(Ordering::Relaxed) {
            return Err(Code::NOT_INITIALIZED);
        }
        call(driver)
    })
}

/// Runs an entry point that also needs a current context, which is checked before any argument.
pub(crate) fn in_context(symbol: &str, call: impl FnOnce(&Driver, DeviceId) -> Outcome) -> c_int {
    in_context_after(symbol, Ok(()), call)
}

/// Runs an entry point that needs a current context, with arguments that the driver checks even
/// before `cuInit`.
pub(crate) fn in_context_after(
    symbol: &str,
    arguments: Outcome,
    call: impl FnOnce(&Driver, DeviceId) -> Outcome,
) -> c_int {
    started_after(symbol, arguments, |driver| {
        let device = driver.device()?;
        call(driver, device)
    })
}

/// The simulator's answer as the driver gives it.
pub(crate) fn answer<T>(answer: Result<T>) -> Outcome<T> {
    answer.map_err(|error| error.code().unwrap_or(Code::NOT_SUPPORTED))
}

/// Stores a result. C programs give aligned places; nothing depends on that.
///
/// # Safety
/// `out` must be null or valid for writing, in any alignment.
pub(crate) unsafe fn store<T: Copy>(out: *mut T, value: T) -> Outcome {
    has_place(out)?;
    // SAFETY: `out` is not null, so by this function's contract it is valid for writing a `T`. A
    // `T: Copy` has no destructor, so the overwritten value needs none.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Reads an argument that the caller passes by its address.
///
/// # Safety
/// `place` must be null or valid for reading, in any alignment.
pub(crate) unsafe fn load<T: Copy>(place: *const T) -> Outcome<T> {
    has_place(place)?;
    // SAFETY: `place` is not null, so by this function's contract it is valid for reading a `T`.
    // The types read are plain C data, of which every bit pattern is a value.
    Ok(unsafe { place.read_unaligned() })
}

/// Refuses a missing place for a result before anything is done.
pub(crate) fn has_place<T>(out: *const T) -> Outcome {
    if out.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
}

/// Refuses the null handle.
pub(crate) fn is_handle(raw: *const c_void) -> Outcome {
    if raw.is_null() { Err(Code::INVALID_HANDLE) } else { Ok(()) }
}
