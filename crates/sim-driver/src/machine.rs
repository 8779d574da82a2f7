//! The simulated machine of the process, and the contexts on it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pagewise::{Backend, Code, DeviceId, Result, SimBackend, StreamFlags, StreamHandle};

use crate::options::Options;

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

/// A simulated machine, with what a driver adds to it: start-up and contexts.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) sim: SimBackend,
    pub(crate) options: Options,
    started: AtomicBool,
    /// Single prefetches so far.
    prefetches: AtomicU64,
    /// Makes handles of contexts unique among all machines of the process.
    number: usize,
    contexts: Mutex<Contexts>,
}

#[derive(Debug, Default)]
struct Contexts {
    /// How often each device's primary context is retained.
    retained: BTreeMap<c_int, u64>,
    /// The device of each stream that was created.
    streams: BTreeMap<usize, c_int>,
    /// What stands for the default stream of devices other than 0.
    defaults: BTreeMap<c_int, StreamHandle>,
}

impl Machine {
    fn new(options: Options) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Ok(Self {
            sim: SimBackend::new(options.machine())?,
            options,
            started: AtomicBool::new(false),
            prefetches: AtomicU64::new(0),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            contexts: Mutex::default(),
        })
    }

    fn contexts(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a device's primary context: never null, never a valid address.
    fn handle_of(&self, device: c_int) -> usize {
        (self.number << 16 | (device as usize + 1)) << 4
    }

    fn device_of(&self, handle: usize) -> Option<c_int> {
        let devices = 0..c_int::try_from(self.options.devices).unwrap_or(0);
        devices.into_iter().find(|&device| self.handle_of(device) == handle)
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

    /// Counts a single prefetch, and fails it if it is the one that is to fail.
    pub(crate) fn count_prefetch(&self) -> Outcome {
        let number = self.prefetches.fetch_add(1, Ordering::Relaxed) + 1;
        match self.options.fail_prefetch {
            Some((which, code)) if which == number => Err(code),
            _ => Ok(()),
        }
    }

    pub(crate) fn retain(&self, device: c_int) -> Outcome<usize> {
        let handle = self.handle_of(device);
        self.device_of(handle).ok_or(Code::INVALID_DEVICE)?;
        *self.contexts().retained.entry(device).or_default() += 1;
        Ok(handle)
    }

    pub(crate) fn release(&self, device: c_int) -> Outcome {
        self.device_of(self.handle_of(device)).ok_or(Code::INVALID_DEVICE)?;
        let mut contexts = self.contexts();
        let count = contexts.retained.get_mut(&device).filter(|count| **count > 0);
        *count.ok_or(INVALID_CONTEXT)? -= 1;
        Ok(())
    }

    /// How often contexts are retained, over all devices.
    pub(crate) fn retained(&self) -> u64 {
        self.contexts().retained.values().sum()
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
        if is_default(stream) {
            return self.device();
        }
        let device = self.contexts().streams.get(&(stream.as_raw() as usize)).copied();
        device.map(DeviceId).ok_or(Code::INVALID_HANDLE)
    }

    /// A stream of the caller, if it has a context: default streams belong to the current one, of
    /// which there must be one; other streams bring theirs.
    pub(crate) fn stream(&self, raw: *mut c_void) -> Outcome<StreamHandle> {
        let on = stream(raw);
        if is_default(on) {
            self.device()?;
        }
        Ok(on)
    }

    pub(crate) fn context_of_stream(&self, stream: StreamHandle) -> Outcome<usize> {
        self.device_of_stream(stream).map(|device| self.handle_of(device.0))
    }

    /// The stream on which the simulator does the work of a default stream: its own default
    /// streams belong to device 0.
    pub(crate) fn working_stream(&self, stream: StreamHandle) -> Outcome<StreamHandle> {
        let device = self.device_of_stream(stream)?;
        if !is_default(stream) || device == DeviceId(0) {
            return Ok(stream);
        }
        if let Some(&stands_in) = self.contexts().defaults.get(&device.0) {
            return Ok(stands_in);
        }
        let made =
            self.sim.stream_create(device, StreamFlags::NON_BLOCKING).map_err(|_| Code::UNKNOWN)?;
        self.contexts().defaults.insert(device.0, made);
        Ok(made)
    }
}

fn is_default(stream: StreamHandle) -> bool {
    stream.as_raw() <= StreamHandle::PER_THREAD.as_raw()
}

/// A stream of the caller: the simulator looks it up and refuses what it did not make.
pub(crate) fn stream(raw: *mut c_void) -> StreamHandle {
    // SAFETY: the simulator dereferences no handle.
    unsafe { StreamHandle::from_raw(raw.addr() as u64) }
}

static MACHINE: RwLock<Option<Arc<Machine>>> = RwLock::new(None);

/// The machine of the process, made at the first call as the environment says.
pub(crate) fn machine() -> std::result::Result<Arc<Machine>, String> {
    if let Some(machine) = &*MACHINE.read().unwrap_or_else(PoisonError::into_inner) {
        return Ok(Arc::clone(machine));
    }
    let mut slot = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(machine) = &*slot {
        return Ok(Arc::clone(machine));
    }
    let text = std::env::var(Options::VARIABLE).unwrap_or_default();
    Ok(Arc::clone(slot.insert(make(&text)?)))
}

/// Gives the machine up, and makes a new one if options are given. Whatever came from the old one
/// is invalid from now on.
pub(crate) fn replace(text: Option<&str>) -> std::result::Result<(), String> {
    let mut slot = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    *slot = None;
    *slot = text.map(make).transpose()?;
    Ok(())
}

fn make(text: &str) -> std::result::Result<Arc<Machine>, String> {
    let options = text.parse::<Options>()?;
    Machine::new(options).map(Arc::new).map_err(|error| error.to_string())
}

/// Runs a call that needs no start-up.
pub(crate) fn any_time(call: impl FnOnce(&Machine) -> Outcome) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(|| match machine() {
        Ok(machine) => call(&machine),
        Err(why) => {
            eprintln!("simulated CUDA driver: {why}");
            Err(Code::UNKNOWN)
        }
    }));
    match outcome {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::UNKNOWN,
    }
}

/// Runs a call that needs `cuInit` first.
pub(crate) fn started(call: impl FnOnce(&Machine) -> Outcome) -> c_int {
    any_time(|machine| {
        if !machine.started.load(Ordering::Relaxed) {
            return Err(Code::NOT_INITIALIZED);
        }
        call(machine)
    })
}

/// Runs a call that also needs a current context.
pub(crate) fn in_context(call: impl FnOnce(&Machine, DeviceId) -> Outcome) -> c_int {
    started(|machine| {
        let device = machine.device()?;
        call(machine, device)
    })
}

/// The simulator's answer as the driver gives it.
pub(crate) fn answer<T>(answer: Result<T>) -> Outcome<T> {
    answer.map_err(|error| error.code().unwrap_or(Code::NOT_SUPPORTED))
}

/// Stores a result.
///
/// # Safety
/// `out` must be null or valid for writing.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) -> Outcome {
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { out.write(value) };
    Ok(())
}

/// Refuses a missing place for a result before anything is done.
pub(crate) fn has_place<T>(out: *mut T) -> Outcome {
    if out.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
}
