//! The simulated driver of the process: the simulator, start-up, and contexts.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use pagewise_hal::{
    Backend, Code, DeviceId, DevicePtr, EventHandle, Result, StreamFlags, StreamHandle,
};

use pagewise_sim::{HostFault, SimBackend};

use crate::contexts::{self, Contexts, INVALID_CONTEXT, Kind, Remains};
use crate::faults::{Faults, FaultyBackend};
use crate::forms::missing;
use crate::graphs::{Graphs, Key, this_thread};
use crate::host_room::warn_if_short;
use crate::host_work::HostWork;
use crate::machine::Machine;
use crate::options::Options;
pub(crate) use crate::outcome::{Outcome, answer, has_place, is_handle, load, store};
use crate::process::{Inherited, PerProcess, Place};
use crate::programs::tables::Programs;
use crate::simulator;
use crate::summary::SummaryFile;

/// A simulated driver: the simulator with start-up, contexts, and streams of contexts.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The machine that calls go to.
    pub(crate) sim: Arc<dyn Backend>,
    /// The same, with what is no call of a driver.
    pub(crate) machine: Machine,
    pub(crate) options: Options,
    started: AtomicBool,
    /// Calls that fail or take longer because a plan says so.
    faults: Arc<Faults>,
    /// Makes handles of contexts unique among all drivers of the process.
    number: usize,
    /// Symbols of the library that a driver of this version and these options does not have.
    missing: BTreeSet<&'static str>,
    /// The default stream of each device; the simulator's own belong to device 0.
    defaults: Vec<StreamHandle>,
    /// Functions and attributes that programs asked for and that are not implemented.
    refused: Mutex<BTreeSet<String>>,
    /// The file that says what moved, if there is one.
    summary: Option<Mutex<SummaryFile>>,
    contexts: Mutex<Contexts>,
    pub(crate) host_work: HostWork,
    programs: Mutex<Programs>,
    graphs: Mutex<Graphs>,
}

impl Driver {
    fn new(options: Options) -> std::result::Result<Self, String> {
        // Odd, and not 1: no handle is a power of two or next to one, which programs guess.
        static NEXT: AtomicUsize = AtomicUsize::new(3);
        let warn = |why| {
            if options.warns {
                eprintln!("simulated CUDA driver: {why}");
            }
        };
        let simulator = simulator::open(options.config(), options.host_faults.is_none(), warn)?;
        let (sim, machine) = Machine::new(simulator, options.recording.as_ref())?;
        let faults = Arc::new(Faults::new(&options.faults, options.calls.as_deref())?);
        let sim = with_faults(sim, &machine, &faults);
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
            machine,
            options,
            started: AtomicBool::new(false),
            faults,
            number: NEXT.fetch_add(2, Ordering::Relaxed),
            refused: Mutex::default(),
            contexts: Mutex::default(),
            host_work: HostWork::default(),
            programs: Mutex::default(),
            graphs: Mutex::default(),
        })
    }

    pub(crate) fn contexts(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Graphs and captures. The lock is taken before that of the contexts, never after.
    pub(crate) fn graphs(&self) -> MutexGuard<'_, Graphs> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a device's primary context: never null, never a valid address.
    pub(crate) fn handle_of(&self, device: c_int) -> Outcome<usize> {
        let mut devices = self.options.ordinals();
        devices.find(|&known| known == device).ok_or(Code::INVALID_DEVICE)?;
        // The simulator has at most 32 devices.
        Ok((self.number << 16 | device.cast_unsigned() as usize) << 4 | 1)
    }

    /// `cuInit`
    pub(crate) fn start(&self) -> c_int {
        match (self.options.init, self.options.devices) {
            (Code::SUCCESS, 0) => 100,
            (Code::SUCCESS, _) => {
                self.started.store(true, Ordering::Relaxed);
                DRIVER.own().into_iter().for_each(Place::is_used);
                Code::SUCCESS
            }
            (code, _) => code,
        }
    }

    /// Brings the file of the summary up to date, if there is one.
    fn update_summary(&self, update: impl Fn(&mut SummaryFile, &SimBackend, &BTreeSet<String>)) {
        if let Some(summary) = &self.summary {
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            update(&mut summary, &self.machine.simulator, &refused);
        }
    }

    /// Services a fault of the host, and notes it before the program goes on.
    fn serve(&self, service: &mut dyn FnMut() -> Option<HostFault>) {
        self.machine.serve(service);
        self.update_summary(SummaryFile::update_counts);
    }

    /// The state as text. Every field is named, so that a new one does not compile until it is
    /// decided whether it belongs here: these do not change, count calls for a test, or hold captures,
    /// which refused calls invalidate.
    pub(crate) fn state(&self) -> String {
        let Self {
            sim: _,
            machine,
            options: _,
            started,
            faults: _,
            number,
            missing: _,
            defaults: _,
            refused: _,
            summary: _,
            contexts,
            host_work: _,
            programs,
            graphs: _,
        } = self;
        let simulator = machine.simulator.state();
        format!("{number} {started:?} {contexts:#?}\n{programs:?}\n{simulator}")
    }

    /// A shared library cannot take a symbol back: an entry point that the driver does not
    /// have, called by its symbol nevertheless, is not supported.
    fn check_exists(&self, symbol: &str) -> Outcome {
        if self.missing.contains(symbol) { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Refuses a function that is not implemented, and says so the first time.
    pub(crate) fn refuse(&self, symbol: &str) -> Outcome {
        self.refuse_once(symbol.to_owned())
    }

    /// Refuses an attribute that is not known of the profile, and says so the first time.
    pub(crate) fn refuse_attribute<T>(&self, number: c_int) -> Outcome<T> {
        self.refuse_once(format!(
            "device attribute {number} of profile {}",
            self.options.gpu_name()
        ))
    }

    fn refuse_once<T>(&self, what: String) -> Outcome<T> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if !refused.contains(&what) {
            if self.options.warns {
                eprintln!(
                    "simulated CUDA driver: {what} is not implemented (CUDA_ERROR_NOT_SUPPORTED)"
                );
            }
            refused.insert(what);
        }
        Err(Code::NOT_SUPPORTED)
    }

    pub(crate) fn retain(&self, device: c_int) -> Outcome<usize> {
        let handle = self.handle_of(device)?;
        let mut contexts = self.contexts();
        let count = contexts.retained.entry(device).or_default();
        let first = *count == 0;
        *count = count.saturating_add(1);
        if first {
            let flags = contexts.primary_flags.get(&device).copied().unwrap_or_default();
            contexts.open(handle, device, flags);
        }
        Ok(handle)
    }

    pub(crate) fn release(&self, device: c_int) -> Outcome {
        let handle = self.handle_of(device)?;
        let mut contexts = self.contexts();
        let count = contexts.retained.get_mut(&device).ok_or(INVALID_CONTEXT)?;
        *count = count.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if *count == 0 {
            let remains = contexts.close(handle);
            drop(contexts);
            self.end(remains);
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxReset`: all that belongs to the context is gone, and it stays
    /// retained as often.
    pub(crate) fn reset_primary(&self, device: c_int) -> Outcome {
        let handle = self.handle_of(device)?;
        let mut contexts = self.contexts();
        if contexts.get(handle).is_err() {
            return Ok(());
        }
        let remains = contexts.close(handle);
        let flags = contexts.primary_flags.get(&device).copied().unwrap_or_default();
        contexts.open(handle, device, flags);
        drop(contexts);
        self.end(remains);
        Ok(())
    }

    /// A context of a program comes to be.
    pub(crate) fn create_context(&self, device: c_int, flags: c_uint) -> usize {
        let mut contexts = self.contexts();
        let handle = self.number << 40 | contexts.count() << 4 | 2;
        contexts.open(handle, device, flags);
        handle
    }

    /// A context of a program is gone, with all that belongs to it.
    pub(crate) fn destroy_context(&self, handle: usize) -> Outcome {
        let device = self.contexts().get(handle)?.device;
        if self.handle_of(device) == Ok(handle) {
            return Err(INVALID_CONTEXT);
        }
        let remains = self.contexts().close(handle);
        self.end(remains);
        Ok(())
    }

    /// Ends what a destroyed context left behind. The program gave all of it up with the context.
    fn end(&self, Remains { context, streams, events, memory }: Remains) {
        self.graphs().forget_context(context);
        let variables = self.programs().remove_context(context);
        for handle in streams {
            // SAFETY: `stream_destroy` asks that the handle is not used again; the simulator
            // refuses a handle of a destroyed stream.
            _ = unsafe { self.sim.stream_destroy(StreamHandle::from_raw(handle as u64)) };
        }
        for handle in events {
            // SAFETY: `event_destroy` asks that the handle is not used again; the simulator refuses
            // a handle of a destroyed event.
            _ = unsafe { self.sim.event_destroy(EventHandle::from_raw(handle as u64)) };
        }
        let variables = variables.into_iter().map(|ptr| (ptr, Kind::Memory));
        for (ptr, kind) in memory.into_iter().chain(variables) {
            // SAFETY: `free` and `free_pinned` ask that no code uses the memory any more: the
            // program destroyed the context that it belonged to.
            _ = unsafe {
                match kind {
                    Kind::Memory => self.sim.free(DevicePtr(ptr)),
                    Kind::Pinned(_) => self.sim.free_pinned(DevicePtr(ptr)),
                }
            };
        }
    }

    /// Memory was allocated in the current context.
    pub(crate) fn own(&self, ptr: DevicePtr, kind: Kind) {
        self.contexts().memory.insert(ptr.0, (contexts::current(), kind));
    }

    /// Memory was freed.
    pub(crate) fn disown(&self, ptr: DevicePtr) {
        self.contexts().memory.remove(&ptr.0);
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
        contexts::set_current(handle);
        Ok(())
    }

    pub(crate) fn current() -> usize {
        contexts::current()
    }

    pub(crate) fn live(&self, handle: usize) -> Outcome<DeviceId> {
        self.contexts().get(handle).map(|context| DeviceId(context.device))
    }

    /// The device of the current context; calls that need one start with this.
    pub(crate) fn device(&self) -> Outcome<DeviceId> {
        self.live(contexts::current())
    }

    /// A context of the caller, or the current one if it names none.
    pub(crate) fn context_or_current(&self, handle: usize) -> Outcome<usize> {
        let handle = if handle == 0 { contexts::current() } else { handle };
        self.live(handle).map(|_| handle)
    }

    pub(crate) fn add_stream(&self, stream: StreamHandle, device: DeviceId, how: (c_uint, c_int)) {
        let of = (contexts::current(), device.0);
        self.contexts().add_stream(stream.as_raw() as usize, of, how);
    }

    pub(crate) fn remove_stream(&self, stream: StreamHandle) {
        self.contexts().streams.remove(&(stream.as_raw() as usize));
    }

    /// The properties of a stream that was created.
    pub(crate) fn created_stream(&self, stream: StreamHandle) -> Outcome<contexts::Stream> {
        let stream = self.contexts().streams.get(&(stream.as_raw() as usize)).copied();
        stream.ok_or(Code::INVALID_HANDLE)
    }

    /// The device that a stream belongs to; default streams belong to the current context.
    pub(crate) fn device_of_stream(&self, stream: StreamHandle) -> Outcome<DeviceId> {
        if stream.is_default() {
            return self.device();
        }
        self.created_stream(stream).map(|stream| DeviceId(stream.device))
    }

    /// A stream of the caller, if it has a context: default streams belong to the current one, of
    /// which there must be one; other streams bring theirs.
    pub(crate) fn stream(&self, raw: *mut c_void) -> Outcome<StreamHandle> {
        let on = stream(raw);
        if on.is_default() {
            self.device()?;
        }
        self.submittable(on)?;
        self.wait_for_host(on);
        Ok(on)
    }

    /// Calls the functions of user objects without references, on the thread of functions of the
    /// host.
    pub(crate) fn drop_objects(&self) {
        let due = self.graphs().objects.take_due();
        for call in due {
            let work = move || {
                let call = call;
                if let Some(function) = call.function {
                    // SAFETY: the program promised that the function can be called with its data.
                    unsafe { function(call.data) };
                }
            };
            // Without a thread the function is not called; the driver promises no time for it.
            self.host_work.submit(OBJECTS, Box::new(work));
        }
    }

    /// A stream as captures know it; the legacy default stream never captures.
    pub(crate) fn key_of(&self, stream: StreamHandle) -> Option<Key> {
        let handle = stream.as_raw();
        if stream.is_legacy() {
            return None;
        }
        if stream.is_default() {
            let context = contexts::current();
            return Some(Key { handle, context, thread: this_thread(), blocks: true });
        }
        let contexts::Stream { context, flags, .. } = self.created_stream(stream).ok()?;
        let blocks = flags & StreamFlags::NON_BLOCKING.bits() == 0;
        Some(Key { handle, context, thread: 0, blocks })
    }

    /// A stream that captures, as captures know it.
    pub(crate) fn capturing(&self, stream: StreamHandle) -> Option<Key> {
        let key = self.key_of(stream)?;
        self.graphs().captures.of(key).map(|_| key)
    }

    /// Refuses work of the legacy default stream while a stream that it waits for captures.
    pub(crate) fn check_legacy(&self, stream: StreamHandle) -> Outcome {
        if !stream.is_legacy() {
            return Ok(());
        }
        self.graphs().captures.check_legacy(contexts::current())
    }

    /// Refuses work that no node can be made of in a stream that captures.
    pub(crate) fn submittable(&self, stream: StreamHandle) -> Outcome {
        match self.key_of(stream) {
            Some(key) => self.graphs().captures.refuse(key),
            None => self.check_legacy(stream),
        }
    }

    /// Refuses to wait for a context while a stream of it captures, or beside captures.
    pub(crate) fn check_captures(&self, context: usize) -> Outcome {
        let mut graphs = self.graphs();
        graphs.captures.check_context(context)?;
        graphs.captures.check_unsafe()
    }

    /// Refuses a call that is unsafe beside the captures that run.
    pub(crate) fn check_unsafe(&self) -> Outcome {
        self.graphs().captures.check_unsafe()
    }

    /// Waits for the functions of the host that come before new work of a stream. Work of the
    /// legacy default stream waits for all streams, and they wait for it.
    pub(crate) fn wait_for_host(&self, stream: StreamHandle) {
        if stream.is_legacy() {
            return self.host_work.wait();
        }
        self.host_work.wait_for(host_queue(StreamHandle::LEGACY));
        self.host_work.wait_for(host_queue(stream));
    }

    pub(crate) fn context_of_stream(&self, stream: StreamHandle) -> Outcome<usize> {
        if stream.is_default() {
            return self.device().map(|_| contexts::current());
        }
        self.created_stream(stream).map(|stream| stream.context)
    }

    /// The stream on which the simulator does the work of a stream, once the functions of the host
    /// before it have returned.
    pub(crate) fn working_stream(&self, stream: StreamHandle) -> Outcome<StreamHandle> {
        let device = self.device_of_stream(stream)?;
        self.submittable(stream)?;
        self.wait_for_host(stream);
        self.working(stream, device)
    }

    /// The same at once.
    pub(crate) fn working(&self, stream: StreamHandle, device: DeviceId) -> Outcome<StreamHandle> {
        if !stream.is_default() || device == DeviceId(0) {
            return Ok(stream);
        }
        let stands_in = usize::try_from(device.0).ok().and_then(|at| self.defaults.get(at));
        stands_in.copied().ok_or(Code::INVALID_DEVICE)
    }
}

/// The back end, with a look at the size and the place of each call if some rule asks for them.
fn with_faults(sim: Arc<dyn Backend>, machine: &Machine, faults: &Arc<Faults>) -> Arc<dyn Backend> {
    if !faults.look_inside() {
        return sim;
    }
    let (faults, simulator) = (Arc::clone(faults), Arc::clone(&machine.simulator));
    Arc::new(FaultyBackend { inner: sim, faults, simulator })
}

/// The key of functions of user objects, which belong to no stream.
const OBJECTS: usize = usize::MAX;

/// The key of a stream's functions of the host: both names of the legacy stream are one.
pub(crate) fn host_queue(stream: StreamHandle) -> usize {
    if stream.is_legacy() { 0 } else { stream.as_raw() as usize }
}

/// A stream of the caller: the simulator looks it up and refuses what it did not make.
pub(crate) fn stream(raw: *mut c_void) -> StreamHandle {
    // SAFETY: `from_raw` asks for a handle that the back end can take. The simulator looks every
    // handle up in its table of live streams and dereferences none, so any number is sound.
    unsafe { StreamHandle::from_raw(raw.addr() as u64) }
}

static DRIVER: PerProcess<Driver> = PerProcess::new();

/// The driver of the process, made at the first call as the environment says. A child of a process
/// that has initialised its driver has none.
fn driver() -> Outcome<Arc<Driver>> {
    let place = DRIVER.place().map_err(|Inherited| Code::NOT_INITIALIZED)?;
    if let Some(driver) = &*place.value.read().unwrap_or_else(PoisonError::into_inner) {
        return Ok(Arc::clone(driver));
    }
    let mut slot = place.value.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = &*slot {
        return Ok(Arc::clone(driver));
    }
    let text = std::env::var(Options::VARIABLE).unwrap_or_default();
    let made = make(&text).map_err(|why| {
        eprintln!("simulated CUDA driver: {why}");
        Code::UNKNOWN
    })?;
    Ok(Arc::clone(slot.insert(made)))
}

/// Gives the driver up, and makes a new one if options are given. Whatever came from the old one
/// is invalid from now on.
pub(crate) fn replace(text: Option<&str>) -> std::result::Result<(), String> {
    let mut slot = DRIVER.fresh().value.write().unwrap_or_else(PoisonError::into_inner);
    *slot = None;
    *slot = text.map(make).transpose()?;
    Ok(())
}

fn make(text: &str) -> std::result::Result<Arc<Driver>, String> {
    let options = text.parse::<Options>()?;
    warn_if_short(&options);
    if options.recording.is_some() {
        at_exit();
    }
    let driver = Driver::new(options).map(Arc::new)?;
    let noting = Arc::downgrade(&driver);
    driver.machine.simulator.observe_host_faults(move |service| match noting.upgrade() {
        Some(driver) => driver.serve(service),
        None => _ = service(),
    });
    Ok(driver)
}

/// Lets the recording of the driver end when the process does.
fn at_exit() {
    static ONCE: Once = Once::new();
    unsafe extern "C" {
        fn atexit(call: extern "C" fn()) -> c_int;
    }
    extern "C" fn end() {
        // Nothing may unwind into the C library. A driver that another thread is about to replace
        // has no end here; its journal stays.
        _ = catch_unwind(|| {
            if let Some(place) = DRIVER.own()
                && let Ok(slot) = place.value.try_read()
                && let Some(driver) = &*slot
            {
                driver.machine.end();
            }
        });
    }
    // SAFETY: `atexit` is the C library's; `end` is a function of this library, which stays loaded
    // until it was called: the C library calls it when the library is unloaded, or at exit.
    ONCE.call_once(|| _ = unsafe { atexit(end) });
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
            driver.update_summary(SummaryFile::update);
            outcome
        }
        Err(code) => Err(code),
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
        driver.faults.around(symbol, || call(driver), |ns| driver.sim.sleep_ns(ns))
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
