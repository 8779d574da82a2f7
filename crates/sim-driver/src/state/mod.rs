//! The state of a simulated driver: the simulator, and all that a driver keeps beside it.

mod contexts;
pub(crate) mod streams;

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_hal::{Backend, Code, DeviceId, Result, StreamFlags, StreamHandle};
use pagewise_sim::{PendingFault, SimBackend};

use crate::contexts::Contexts;
use crate::deferred::Deferred;
use crate::faults::plan::Plan;
use crate::faults::{Faults, FaultyBackend};
use crate::forms::missing;
use crate::graphs::Graphs;
use crate::held::{Begin, Held};
use crate::image::NO_BINARY_FOR_GPU;
use crate::kept_buffer::KeptBuffer;
use crate::kernels::{Instances, Output};
use crate::machine::Machine;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::programs::limits::Figures;
use crate::programs::tables::Programs;
use crate::simulator;
use crate::summary::SummaryFile;

/// Behind the name of something that the driver does not have.
const NOT_IMPLEMENTED: &str = " is not implemented";

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
    pub(crate) faults: Arc<Faults>,
    /// Makes handles of contexts unique among all drivers of the process.
    number: usize,
    /// Symbols of the library that a driver of this version and these options does not have.
    missing: BTreeSet<&'static str>,
    /// The default stream of each device; the simulator's own belong to device 0.
    defaults: Vec<StreamHandle>,
    /// Functions that programs asked for and that are not implemented.
    refused: Mutex<BTreeSet<String>>,
    /// Attributes that are not known of the profile, and that programs asked for.
    guessed: Mutex<BTreeSet<c_int>>,
    /// The file that says what moved, if there is one.
    summary: Option<Mutex<SummaryFile>>,
    contexts: Mutex<Contexts>,
    /// Work of streams that waits.
    pub(crate) deferred: Deferred<Self>,
    /// Kernels that were launched and have not begun.
    pub(crate) held: Held<Begin<Self>>,
    /// Whether kernels wait at all.
    pub(crate) holds_kernels: bool,
    /// The buffer that the next copy of memory of the program goes through.
    pub(crate) kept_buffer: KeptBuffer,
    /// Addresses that work which waits is going to free.
    freeing: Mutex<BTreeSet<u64>>,
    /// Handles of compressible memory.
    compressible: Mutex<BTreeSet<u64>>,
    programs: Mutex<Programs>,
    graphs: Mutex<Graphs>,
    /// Modules that kernels were launched from.
    pub(crate) instances: Instances,
    /// Text of kernels that waits to be written.
    pub(crate) output: Output,
    pub(crate) figures: Figures,
}

impl Driver {
    pub(crate) fn new(options: Options) -> std::result::Result<Self, String> {
        // Odd, and not 1: no handle is a power of two or next to one, which programs guess.
        static NEXT: AtomicUsize = AtomicUsize::new(3);
        let warn = |why: String| warn(&options, &why);
        let simulator = simulator::open(options.config(), options.host_faults.is_none(), warn)?;
        let (sim, machine) = Machine::new(simulator, options.recording.as_ref())?;
        let faults = Arc::new(Faults::new(&options.faults, options.calls.as_deref())?);
        let sim = with_faults(sim, &machine, &faults);
        let holds_kernels = machine.simulator.host_faults().is_some()
            && sim.capabilities().concurrent_managed_access
            && options.faults == Plan::default();
        let summary = options.summary.as_deref().map(|folder| {
            machine.simulator.follow_managed();
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
            guessed: Mutex::default(),
            contexts: Mutex::default(),
            deferred: Deferred::default(),
            held: Held::default(),
            holds_kernels,
            kept_buffer: KeptBuffer::default(),
            freeing: Mutex::default(),
            compressible: Mutex::default(),
            programs: Mutex::default(),
            graphs: Mutex::default(),
            instances: Instances::default(),
            output: Output::default(),
            figures: Figures::default(),
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

    /// Addresses that work which waits is going to free. No other lock is taken while this one is held.
    pub(crate) fn freeing(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.freeing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles of compressible memory, of which some may be gone. Its lock is taken before that of the
    /// simulator.
    pub(crate) fn compressible(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.compressible.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the driver, if its options let it.
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

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Brings the file of the summary up to date, if there is one.
    pub(crate) fn update_summary(
        &self,
        update: impl Fn(&mut SummaryFile, &SimBackend, &BTreeSet<String>),
    ) {
        if let Some(summary) = &self.summary {
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            update(&mut summary, &self.machine.simulator, &refused);
        }
    }

    /// Brings the file of the summary up to date after work that no call waited for.
    pub(crate) fn note_work(&self) {
        self.update_summary(SummaryFile::update);
    }

    /// Begins the kernels that wait, in the order of their launches. Returns once they have run.
    pub(crate) fn begin_held(&self) {
        if !self.held.are_pending() {
            return;
        }
        let _turn = self.held.turn();
        let kernels = self.held.take();
        for begin in kernels {
            begin(self);
            self.held.has_run();
        }
    }

    /// Services a fault of the host, and notes it before the program goes on. Kernels that wait begin
    /// before it if it moves pages, or if the host did much since they were launched.
    pub(crate) fn serve(&self, mut fault: PendingFault<'_>) {
        let takes_time = || {
            self.held.note_access(fault.address()) || self.held.has_worked() || fault.moves_pages()
        };
        // A thread that is in a call may hold a lock that a kernel needs.
        if self.held.are_pending() && !self.held.is_in_call() && takes_time() {
            self.begin_held();
        }
        self.machine.serve(&mut || fault.service());
        self.update_summary(SummaryFile::update_counts);
        self.held.goes_on();
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
            guessed: _,
            summary: _,
            contexts,
            deferred: _,
            held: _,
            holds_kernels: _,
            kept_buffer: _,
            freeing: _,
            compressible,
            programs,
            graphs: _,
            instances: _,
            output: _,
            figures: _,
        } = self;
        let simulator = machine.simulator.state();
        format!("{number} {started:?} {contexts:?}\n{compressible:?}{programs:?}\n{simulator}")
    }

    /// A shared library cannot take a symbol back: an entry point that the driver does not
    /// have, called by its symbol nevertheless, is not supported.
    pub(crate) fn check_exists(&self, symbol: &str) -> Outcome {
        if self.missing.contains(symbol) { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Writes a message to standard error, if the options want any.
    pub(crate) fn warn(&self, message: &str) {
        warn(&self.options, message);
    }

    /// Refuses a function that is not implemented, and says so the first time.
    pub(crate) fn refuse(&self, symbol: &str) -> Outcome {
        self.refuse_once(symbol.to_owned(), NOT_IMPLEMENTED)
    }

    /// Refuses what a sentence says, and says it the first time.
    pub(crate) fn refuse_why<T>(&self, why: &str) -> Outcome<T> {
        self.refuse_once(why.to_owned(), "")
    }

    /// Says the first time that an attribute is not known of the profile.
    pub(crate) fn note_guess(&self, number: c_int) {
        let mut guessed = self.guessed.lock().unwrap_or_else(PoisonError::into_inner);
        if guessed.insert(number) {
            let name = self.options.gpu_name();
            self.warn(&format!(
                "device attribute {number} of profile {name} is not known: the answer is the H200's"
            ));
        }
    }

    /// Refuses the launch of a kernel that the image has as machine code only, and says so the first
    /// time.
    pub(crate) fn refuse_machine_code<T>(&self) -> Outcome<T> {
        const WHAT: &str = "a kernel in machine code: build with PTX \
                            (-gencode arch=compute_75,code=compute_75)";
        if self.is_first_refusal(WHAT) {
            self.warn(&format!("the simulator executes PTX, not {WHAT}"));
        }
        Err(NO_BINARY_FOR_GPU)
    }

    /// Says the first time that the driver is too old for text of PTX. `log` has both versions of PTX.
    pub(crate) fn note_newer_ptx(&self, log: &str) {
        if self.is_first_refusal("newer PTX") {
            let version = self.options.version();
            self.warn(&format!(
                "{log}: it needs a newer driver than CUDA {version}, such as that of the compiler \
                 (`pagewise run --driver VERSION`, or the option version=VERSION)"
            ));
        }
    }

    fn refuse_once<T>(&self, what: String, why: &str) -> Outcome<T> {
        if self.is_first_refusal(&what) {
            self.warn(&format!("{what}{why} (CUDA_ERROR_NOT_SUPPORTED)"));
        }
        Err(Code::NOT_SUPPORTED)
    }

    fn is_first_refusal(&self, what: &str) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.insert(what.to_owned())
    }
}

/// Writes a message to standard error, if the options want any.
fn warn(options: &Options, message: &str) {
    if options.warns {
        eprintln!("simulated CUDA driver: {message}");
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
