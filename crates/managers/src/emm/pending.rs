//! Pending deallocations. Freeing synchronises, so several are done at once.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use pagewise::refuse::{also, invalid};
use pagewise::{Error, ErrorKind, Machine, Result};

use crate::sync::{Mutex, MutexGuard, lock};

const OPERATION: &str = "deallocate";

/// The function that gives a piece of memory back. It runs once, on any thread, and never under a
/// lock.
pub type Destructor = Box<dyn FnOnce() -> Result<()> + Send>;

/// The limits of pending deallocations.
///
/// ```
/// use pagewise_managers::emm::PendingLimits;
/// let limits = PendingLimits::default();
/// assert_eq!((limits.count_max, limits.ratio_max), (10, 0.2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PendingLimits {
    /// The most deallocations that may be pending. With one more, all are carried out.
    pub count_max: usize,
    /// The most bytes that may be pending, as a part of the capacity. With more, all are carried
    /// out.
    pub ratio_max: f64,
}

impl PendingLimits {
    fn check(&self) -> Result<()> {
        if self.ratio_max.is_finite() && self.ratio_max >= 0.0 {
            return Ok(());
        }
        Err(invalid(OPERATION, "the ratio of pending bytes is a number, not negative"))
    }
}

impl Default for PendingLimits {
    fn default() -> Self {
        Self { count_max: 10, ratio_max: 0.2 }
    }
}

/// A queue of deallocations, which are carried out when they are too many or too large. Clones are
/// one queue, to be used from any thread.
///
/// Carrying them out tries every one. If a destructor fails or panics, the others still run, and it
/// is not tried again.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use pagewise_managers::emm::{PendingDeallocations, PendingLimits};
/// use pagewise::Machine;
///
/// let machine = Machine::from(pagewise::sim()?);
/// let queue = PendingDeallocations::new(&machine, PendingLimits::default())?;
/// let done = Arc::new(AtomicU32::new(0));
/// for n in 0..11 {
///     assert_eq!((queue.count(), done.load(Ordering::Relaxed)), (n, 0));
///     let done = Arc::clone(&done);
///     queue.add(None, Box::new(move || { done.fetch_add(1, Ordering::Relaxed); Ok(()) }))?;
/// }
/// assert_eq!((queue.count(), done.load(Ordering::Relaxed)), (0, 11), "ten wait, not eleven");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone)]
pub struct PendingDeallocations(Arc<Inner>);

struct Inner {
    machine: Machine,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    limits: PendingLimits,
    waiting: Vec<Destructor>,
    bytes: u64,
    deferrals: usize,
    /// Unknown until it is set: then the count alone decides.
    capacity_bytes: Option<u64>,
}

impl State {
    fn is_over(&self) -> bool {
        let PendingLimits { count_max, ratio_max } = self.limits;
        let limit = self.capacity_bytes.map(|all| (all as f64 * ratio_max) as u64);
        self.waiting.len() > count_max || limit.is_some_and(|limit| self.bytes > limit)
    }
}

impl PendingDeallocations {
    /// An empty queue without a capacity. Failures that no call can report count in
    /// [`Machine::failures_on_drop`].
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for a ratio that is negative or no number.
    ///
    /// ```
    /// use pagewise_managers::emm::{PendingDeallocations, PendingLimits};
    /// let limits = PendingLimits { ratio_max: -0.1, ..PendingLimits::default() };
    /// assert!(PendingDeallocations::new(pagewise::sim()?, limits).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new(machine: impl Into<Machine>, limits: PendingLimits) -> Result<Self> {
        limits.check()?;
        let state = Mutex::new(State { limits, ..State::default() });
        Ok(Self(Arc::new(Inner { machine: machine.into(), state })))
    }

    /// The limits, as they are now.
    #[must_use]
    pub fn limits(&self) -> PendingLimits {
        self.locked().limits
    }

    /// Changes the limits. The next deallocation, and the end of the last deferral, go by the new
    /// ones; those that are pending stay so until then.
    ///
    /// # Errors
    /// As [`new`](Self::new). The limits are as before then.
    ///
    /// ```
    /// use pagewise_managers::emm::{PendingDeallocations, PendingLimits};
    ///
    /// let queue = PendingDeallocations::new(pagewise::sim()?, PendingLimits::default())?;
    /// for _ in 0..5 {
    ///     queue.add(None, Box::new(|| Ok(())))?;
    /// }
    /// queue.set_limits(PendingLimits { count_max: 2, ..PendingLimits::default() })?;
    /// assert_eq!(queue.count(), 5, "nothing is carried out yet");
    /// queue.add(None, Box::new(|| Ok(())))?;
    /// assert_eq!(queue.count(), 0, "six are more than two");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_limits(&self, limits: PendingLimits) -> Result<()> {
        limits.check()?;
        self.locked().limits = limits;
        Ok(())
    }

    /// Sets the capacity that the ratio is of, unless it is set. As a rule it is the total memory
    /// of the device.
    pub fn set_capacity(&self, bytes: u64) {
        self.locked().capacity_bytes.get_or_insert(bytes);
    }

    /// The capacity that the ratio is of, if it is set.
    #[must_use]
    pub fn capacity_bytes(&self) -> Option<u64> {
        self.locked().capacity_bytes
    }

    /// The number of pending deallocations.
    #[must_use]
    pub fn count(&self) -> usize {
        self.locked().waiting.len()
    }

    /// The bytes of pending deallocations, as far as they are known.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.locked().bytes
    }

    /// Whether deallocation is deferred now.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.locked().deferrals > 0
    }

    /// Adds a deallocation, with its bytes if they count. If the limits are passed and deallocation
    /// is not deferred, all are carried out.
    ///
    /// # Errors
    /// Errors of destructors, of this one or of others: see [`flush`](Self::flush).
    pub fn add(&self, bytes: Option<u64>, destructor: Destructor) -> Result<()> {
        let mut state = self.locked();
        state.waiting.push(destructor);
        state.bytes = state.bytes.saturating_add(bytes.unwrap_or(0));
        let due = Self::take_if(&mut state, State::is_over);
        drop(state);
        carry_out(due)
    }

    /// Carries all deallocations out now, unless deallocation is deferred.
    ///
    /// # Errors
    /// The error of the first destructor that failed, with the number of failures. All destructors
    /// ran, and none is pending any more.
    ///
    /// ```
    /// use pagewise_managers::emm::{PendingDeallocations, PendingLimits};
    /// use pagewise::{Error, ErrorKind};
    ///
    /// let queue = PendingDeallocations::new(pagewise::sim()?, PendingLimits::default())?;
    /// queue.add(Some(50), Box::new(|| Err(Error::new("free", ErrorKind::InvalidValue))))?;
    /// queue.add(Some(50), Box::new(|| panic!("on purpose")))?;
    /// assert!(queue.flush().unwrap_err().to_string().contains("2 of 2"));
    /// assert_eq!((queue.count(), queue.bytes()), (0, 0));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn flush(&self) -> Result<()> {
        let due = Self::take_if(&mut self.locked(), |_| true);
        carry_out(due)
    }

    /// Defers deallocation until the returned value is dropped: no deallocation is carried out
    /// before, however many are pending. Deferrals nest. When the last one is dropped, all are
    /// carried out if the limits are passed. Deallocations that another thread has begun to carry
    /// out go on.
    ///
    /// ```
    /// use pagewise_managers::emm::{PendingDeallocations, PendingLimits};
    ///
    /// let queue = PendingDeallocations::new(pagewise::sim()?, PendingLimits::default())?;
    /// let outer = queue.defer();
    /// let inner = queue.defer();
    /// for _ in 0..50 {
    ///     queue.add(None, Box::new(|| Ok(())))?;
    /// }
    /// inner.end()?;
    /// assert_eq!(queue.count(), 50, "the outer one lasts");
    /// outer.end()?;
    /// assert_eq!(queue.count(), 0, "50 are too many");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn defer(&self) -> DeferCleanup {
        self.locked().deferrals += 1;
        DeferCleanup { queue: Some(self.clone()) }
    }

    /// A destructor runs outside the lock, so a panic leaves the queue as good as it was.
    fn locked(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    fn take_if(state: &mut State, due: impl FnOnce(&State) -> bool) -> Vec<Destructor> {
        if state.deferrals > 0 || !due(state) {
            return Vec::new();
        }
        state.bytes = 0;
        mem::take(&mut state.waiting)
    }

    fn end_deferral(&self) -> Result<()> {
        let mut state = self.locked();
        state.deferrals -= 1;
        let due = Self::take_if(&mut state, State::is_over);
        drop(state);
        carry_out(due)
    }
}

fn carry_out(due: Vec<Destructor>) -> Result<()> {
    let count = due.len();
    let mut failures = 0;
    let mut first = None;
    for destructor in due {
        if let Err(error) = run(destructor) {
            failures += 1;
            first.get_or_insert(error);
        }
    }
    match first {
        None => Ok(()),
        Some(error) => Err(also(error, &format!("{failures} of {count} deallocations failed"))),
    }
}

/// Runs foreign code that gives memory back; a panic of it is an error.
pub(super) fn run(destructor: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(destructor)).unwrap_or_else(|_| {
        Err(Error::new(OPERATION, ErrorKind::Driver).with_detail("a destructor panicked"))
    })
}

impl Drop for Inner {
    /// No deferral is left, and no caller can be told of failures.
    fn drop(&mut self) {
        let state = mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.machine.on_drop(|| carry_out(state.waiting));
    }
}

impl fmt::Debug for PendingDeallocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.locked();
        let (count, bytes, deferrals) = (state.waiting.len(), state.bytes, state.deferrals);
        write!(f, "PendingDeallocations({count} of {bytes} bytes, deferred {deferrals} times)")
    }
}

/// A deferral of deallocation, which lasts until it is dropped.
///
/// ```
/// let nothing = pagewise_managers::emm::DeferCleanup::nothing();
/// nothing.end()?;
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "deallocation is deferred only while this lives"]
pub struct DeferCleanup {
    queue: Option<PendingDeallocations>,
}

impl DeferCleanup {
    /// A deferral without effect, for managers with deallocations that are never pending.
    pub fn nothing() -> Self {
        Self { queue: None }
    }

    /// Ends the deferral now and reports failures of the deallocations that it carried out. Going
    /// out of scope does the same without a report.
    ///
    /// # Errors
    /// As [`PendingDeallocations::flush`].
    pub fn end(mut self) -> Result<()> {
        self.queue.take().map_or(Ok(()), |queue| queue.end_deferral())
    }
}

impl Drop for DeferCleanup {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.0.machine.on_drop(|| queue.end_deferral());
        }
    }
}
