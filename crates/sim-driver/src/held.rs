//! Kernels that were launched and have not begun.
//!
//! A launch returns before its kernel begins, and a program that does not wait for the kernel reads
//! what was there before. On an H200 the first page left the host some 170 us after the launch had
//! returned (`docs/measurements.md`, "A host that does not wait"). So kernels wait here, in order,
//! until the program does what takes such a time:
//!
//! - a call of the driver that is no launch and asks something of a device;
//! - an access to a managed page that the host has to get first;
//! - accesses to managed memory in more than 8 blocks of 2 MiB;
//! - a launch, or the first access to such a block, after a millisecond of the program's own work.
//!
//! A program may also wait for a kernel in memory, without any of these. So kernels begin in any case
//! after 10 ms of the program's work, or a second, without a launch and without such accesses. From
//! then on the host's accesses to managed memory wait until they have run.
//!
//! The host's accesses are watched for in the first 16 times that kernels wait, and as long as there
//! are any: it costs a program time.
//!
//! Clocks decide only for programs that touch the memory of a kernel without having waited for it.
//! They count the time of the processor, so that a busy machine changes nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pagewise_hal::BLOCK_BYTES;
use pagewise_sim::start_own_thread;

use crate::cpu_time;

/// The beginning of a kernel of a driver. It returns when the kernel has run.
pub(crate) type Begin<D> = Box<dyn FnOnce(&D) + Send>;

/// The most kernels that wait.
const KERNELS_MAX: usize = 1024;
/// The most blocks of managed memory, of 2 MiB each, that the host accesses before kernels begin.
const BLOCKS_MAX: usize = 8;
/// The most time of the program, from one call or access to the next, before kernels begin.
const WORK_MAX: Duration = Duration::from_millis(1);
/// The time for which a look at the clocks holds.
const RECENT: Duration = Duration::from_micros(100);
/// The processor time, and the real time, after which kernels begin in any case.
const WORK_IN_ALL: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(1);
/// The real time from one look at the time to the next.
const TICK: Duration = Duration::from_millis(10);
/// How often kernels wait, in turn, without accesses of the host until these are not watched any more.
const QUIET_MAX: u32 = 16;
/// How often the thread that looks at the time finds nothing until it ends.
const IDLE_MAX: u32 = 100;

/// Calls that let kernels wait: launches, and what programs and runtimes ask between them without
/// asking a device.
const PATIENT: [&str; 20] = [
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDriverGetVersion",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuKernelGetAttribute",
    "cuKernelGetFunction",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuLibraryGetKernel",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cuStreamIsCapturing",
];

/// Whether a call lets kernels wait.
pub(crate) fn is_patient(symbol: &str) -> bool {
    PATIENT.contains(&symbol)
}

/// A moment, on the clocks of the world and of the processor.
#[derive(Clone, Copy)]
struct Moment(Instant, Duration);

impl Moment {
    fn now() -> Self {
        Self(Instant::now(), cpu_time::of_process())
    }

    /// The processor time of this process since then.
    fn work(self) -> Duration {
        cpu_time::of_process().saturating_sub(self.1)
    }

    /// Whether the program worked long since then. On a busy machine time passes without work.
    fn is_work_ago(self) -> bool {
        self.0.elapsed() > WORK_MAX && self.work() > WORK_MAX
    }

    /// Whether kernels begin in any case if the program did nothing else since then.
    fn is_long_ago(self) -> bool {
        self.0.elapsed() >= PATIENCE || self.work() >= WORK_IN_ALL
    }
}

struct State<T> {
    waiting: Vec<T>,
    /// Whether they begin because of the time.
    are_late: bool,
    /// When the program last went on after a launch or an access, while kernels wait.
    went_on_at: Option<Moment>,
    /// The last look at the clocks.
    looked_at: Option<Moment>,
    /// The blocks of memory that the host accessed since they came.
    blocks: BTreeSet<u64>,
    /// How often kernels waited, in turn, without accesses of the host.
    quiet: u32,
    /// Whether a thread looks at the time.
    is_timed: bool,
    has_ended: bool,
}

impl<T> State<T> {
    /// This moment, or one just before: a look at the processor's clock takes as long as a launch.
    fn now(&mut self) -> Moment {
        match self.looked_at {
            Some(looked_at) if looked_at.0.elapsed() < RECENT => looked_at,
            _ => *self.looked_at.insert(Moment::now()),
        }
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Kernels that wait or run.
    pending: AtomicUsize,
    /// Threads that are in a call of the driver.
    calls: AtomicUsize,
    /// Held while kernels that waited run, so that calls behind them wait.
    turn: Mutex<()>,
    ended: Condvar,
    when_late: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets kernels begin that waited too long. Returns when none waited for a while.
    fn look_at_the_time(&self) {
        let mut state = self.state();
        let mut idle = 0_u32;
        while !state.has_ended && idle < IDLE_MAX {
            if state.went_on_at.is_some_and(Moment::is_long_ago) {
                (state.went_on_at, state.are_late) = (None, true);
                drop(state);
                self.when_late.get().into_iter().for_each(|begin| begin());
                state = self.state();
                continue;
            }
            idle = if state.went_on_at.is_none() { idle.saturating_add(1) } else { 0 };
            let waited = self.ended.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_timed = false;
    }
}

/// The kernels of a driver that have not begun.
pub(crate) struct Held<T>(Arc<Shared<T>>);

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                waiting: Vec::new(),
                are_late: false,
                went_on_at: None,
                looked_at: None,
                blocks: BTreeSet::new(),
                quiet: 0,
                is_timed: false,
                has_ended: false,
            }),
            pending: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            turn: Mutex::new(()),
            ended: Condvar::new(),
            when_late: OnceLock::new(),
        }))
    }
}

impl<T> std::fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.0.pending).finish()
    }
}

/// A thread in a call of the driver.
pub(crate) struct InCall<'a>(&'a AtomicUsize);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Send + 'static> Held<T> {
    /// Names what begins the kernels that waited too long.
    pub(crate) fn when_late(&self, begin: impl Fn() + Send + Sync + 'static) {
        // A driver is made once.
        _ = self.0.when_late.set(Box::new(begin));
    }

    /// Counts a call of the driver until the answer is dropped.
    pub(crate) fn enter(&self) -> InCall<'_> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        InCall(&self.0.calls)
    }

    /// Whether some thread is in a call, and may hold a lock that a kernel's begin needs.
    pub(crate) fn is_in_call(&self) -> bool {
        self.0.calls.load(Ordering::Relaxed) > 0
    }

    /// Whether kernels wait, or run after they waited.
    pub(crate) fn are_pending(&self) -> bool {
        self.0.pending.load(Ordering::Acquire) > 0
    }

    /// Whether a kernel may wait: there is room, and a thread looks at the time.
    pub(crate) fn has_room(&self) -> bool {
        let mut state = self.0.state();
        if !state.is_timed {
            let shared = Arc::clone(&self.0);
            let started = start_own_thread("cuda-launches", move || shared.look_at_the_time());
            state.is_timed = started.is_ok();
        }
        state.is_timed && state.waiting.len() < KERNELS_MAX
    }

    /// Lets a kernel wait. Returns whether accesses of the host have to be watched from now on.
    pub(crate) fn push(&self, kernel: T) -> bool {
        let mut state = self.0.state();
        let is_first = state.waiting.is_empty();
        if is_first {
            state.are_late = false;
            state.blocks.clear();
        }
        state.waiting.push(kernel);
        self.0.pending.fetch_add(1, Ordering::Release);
        is_first && state.quiet < QUIET_MAX
    }

    /// Whether kernels begin since the program worked long before it came to this call or access.
    pub(crate) fn has_worked(&self) -> bool {
        let state = self.0.state();
        state.are_late || state.went_on_at.is_some_and(Moment::is_work_ago)
    }

    /// Notes that the program goes on after a call or an access.
    pub(crate) fn goes_on(&self) {
        if self.are_pending() {
            let mut state = self.0.state();
            state.went_on_at = if state.waiting.is_empty() { None } else { Some(state.now()) };
        }
    }

    /// Notes an access of the host to managed memory. Returns whether it has accessed so many blocks
    /// that kernels begin.
    pub(crate) fn note_access(&self, address: u64) -> bool {
        let mut state = self.0.state();
        state.blocks.insert(address / BLOCK_BYTES);
        state.blocks.len() > BLOCKS_MAX
    }

    /// Lets one thread begin kernels until the answer is dropped; others wait.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the kernels that wait, in order.
    pub(crate) fn take(&self) -> Vec<T> {
        let mut state = self.0.state();
        if !state.waiting.is_empty() {
            state.quiet = if state.blocks.is_empty() { state.quiet.saturating_add(1) } else { 0 };
        }
        state.went_on_at = None;
        std::mem::take(&mut state.waiting)
    }

    /// Notes that a kernel which waited has run.
    pub(crate) fn has_run(&self) {
        self.0.pending.fetch_sub(1, Ordering::Release);
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.state().has_ended = true;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::forms::FORMS;

    /// Lets a kernel wait and begins it. Returns whether accesses were watched for.
    fn waits_once(held: &Held<u32>) -> bool {
        let is_watched = held.push(7);
        assert!(!held.push(8), "they are watched for once");
        assert_eq!(held.take(), [7, 8]);
        (0..2).for_each(|_| held.has_run());
        assert!(!held.are_pending());
        is_watched
    }

    #[test]
    fn accesses_are_watched_for_until_there_were_none_16_times() {
        let held = Held::default();
        assert!((0..16).all(|_| waits_once(&held)));
        assert!(!waits_once(&held));
        held.push(9);
        held.note_access(0);
        held.take();
        held.has_run();
        assert!((0..16).all(|_| waits_once(&held)));
        assert!(!waits_once(&held));
    }

    #[test]
    fn kernels_begin_at_the_ninth_block() {
        let held = Held::default();
        held.push(1);
        let accesses = (0..8).chain([7]).map(|block| held.note_access(block * BLOCK_BYTES + 5));
        assert!(!accesses.into_iter().any(|begins| begins));
        assert!(held.note_access(9 * BLOCK_BYTES));
        held.take();
        held.push(2);
        assert!(!held.note_access(0), "of the next kernels anew");
    }

    #[test]
    fn kernels_that_nothing_begins_are_late_after_a_second_and_accesses_know_it() {
        let held = Held::default();
        let (late, is_late) = mpsc::channel();
        held.when_late(move || late.send(()).expect("the test waits"));
        assert!(held.has_room());
        held.push(1);
        held.goes_on();
        assert!(!held.has_worked());
        is_late.recv_timeout(Duration::from_secs(60)).expect("the time is looked at");
        assert!(held.has_worked());
        held.take();
        held.push(2);
        assert!(!held.has_worked(), "the next kernels are not late");
    }

    #[test]
    fn calls_that_let_kernels_wait_are_entry_points() {
        let is_there = |symbol: &&str| FORMS.iter().any(|form| form.symbol == *symbol);
        let missing: Vec<&&str> = PATIENT.iter().filter(|symbol| !is_there(symbol)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
