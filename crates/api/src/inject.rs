//! Failures on demand: a back end that fails at the calls that a test chooses.
//!
//! A [`Fault`] says which call fails and with which code: the n-th, by operation, by size, by
//! place, or at random from a seed. The call is not made, so it has no effect, as
//! [`Backend`] promises of failed calls. [`sweep()`] runs a program once for each call that it
//! makes, and lets that one fail: for claims such as "after an error, everything is as before". It
//! leaves out the calls of destructors, which can report no failure, unless a [`Sweep`] includes
//! them.
//!
//! ```
//! use std::sync::Arc;
//! use pagewise::inject::{Fault, FaultInjector};
//! use pagewise::intercept::Operation;
//! use pagewise::{Code, ErrorKind, Machine, ManagedBuffer};
//!
//! let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
//! let machine = Machine::from(&backend);
//! backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::AllocManaged).nth(1));
//! assert!(ManagedBuffer::<u8>::new(&machine, 100).is_ok());
//! let error = ManagedBuffer::<u8>::new(&machine, 100).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::OutOfMemory);
//! assert!(ManagedBuffer::<u8>::new(&machine, 100).is_ok(), "only that one");
//! # Ok::<(), pagewise::Error>(())
//! ```

mod sweep;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{Backend, Error, Location, Result};

pub use self::sweep::{Sweep, Swept, sweep};
use crate::intercept::{Call, Intercepted, Interceptor, Operation};

/// A rule for the call that fails, and its code. The first call that matches fails, unless
/// [`nth`](Self::nth), [`always`](Self::always) or [`seeded`](Self::seeded) says otherwise.
///
/// ```
/// use pagewise::inject::{Fault, FaultInjector};
/// use pagewise::intercept::Operation;
/// use pagewise::{Backend, BackendExt, Code, DeviceId, Location, StreamHandle};
///
/// let backend = FaultInjector::around(pagewise::sim()?);
/// let (large, small) = (backend.alloc(2 << 20)?, backend.alloc(4096)?);
/// // Every prefetch of 1 MiB or more to the host fails.
/// let fault = Fault::new(Code::NOT_SUPPORTED)
///     .on(Operation::Prefetch)
///     .at(Location::HOST)
///     .at_least(1 << 20)
///     .always();
/// backend.arm(fault);
/// let prefetch = |span, to| backend.prefetch(span, to, 0, StreamHandle::NULL);
/// assert!(prefetch(large, Location::HOST).is_err());
/// assert!(prefetch(large, Location::HOST).is_err(), "each time");
/// assert!(prefetch(large, Location::device(DeviceId(0))).is_ok());
/// assert!(prefetch(small, Location::HOST).is_ok());
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    code: i32,
    operation: Option<Operation>,
    location: Option<Location>,
    bytes_min: u64,
    bytes_max: u64,
    spares_destructors: bool,
    when: When,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Nth(u64),
    Always,
    Random { seed: u64, per_thousand: u32 },
}

impl Fault {
    /// The first call of all fails with this `CUresult`.
    ///
    /// ```
    /// use pagewise::inject::{Fault, FaultInjector};
    /// use pagewise::{Backend, Code};
    ///
    /// let backend = FaultInjector::around(pagewise::sim()?);
    /// backend.arm(Fault::new(Code::NOT_PERMITTED));
    /// assert_eq!(backend.device_count().unwrap_err().code(), Some(Code::NOT_PERMITTED));
    /// assert!(backend.device_count().is_ok());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub const fn new(code: i32) -> Self {
        Self {
            code,
            operation: None,
            location: None,
            bytes_min: 0,
            bytes_max: u64::MAX,
            spares_destructors: false,
            when: When::Nth(0),
        }
    }

    /// Only calls of this operation count.
    #[must_use]
    pub const fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only calls that name this place count.
    #[must_use]
    pub const fn at(mut self, location: Location) -> Self {
        self.location = Some(location);
        self
    }

    /// Only calls about so many bytes or more count.
    #[must_use]
    pub const fn at_least(mut self, bytes: u64) -> Self {
        self.bytes_min = bytes;
        self
    }

    /// Only calls about so many bytes or fewer count.
    #[must_use]
    pub const fn at_most(mut self, bytes: u64) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// Only calls that no destructor and no clean-up makes count
    /// ([`Call::is_in_destructor`]).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pagewise::inject::{Fault, FaultInjector};
    /// use pagewise::{Code, Machine, ManagedBuffer};
    ///
    /// let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    /// let machine = Machine::from(&backend);
    /// let buffers = [(); 2].map(|()| ManagedBuffer::<u8>::new(&machine, 4096));
    /// backend.arm(Fault::new(Code::NOT_READY).outside_destructors());
    /// let [first, second] = buffers;
    /// drop(first?);
    /// assert_eq!(machine.failures_on_drop(), 0);
    /// assert!(second?.free().is_err(), "this one is reported");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub const fn outside_destructors(mut self) -> Self {
        self.spares_destructors = true;
        self
    }

    /// The n-th call that matches fails, counted from 0 when the fault is armed; no other does.
    ///
    /// ```
    /// use pagewise::inject::{Fault, FaultInjector};
    /// use pagewise::{Backend, Code};
    ///
    /// let backend = FaultInjector::around(pagewise::sim()?);
    /// backend.arm(Fault::new(Code::NOT_READY).nth(1));
    /// let answers = [(); 3].map(|()| backend.device_count().is_ok());
    /// assert_eq!(answers, [true, false, true]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub const fn nth(mut self, n: u64) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// Every call that matches fails.
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.when = When::Always;
        self
    }

    /// Calls that match fail at random, `per_thousand` of a thousand. The seed and the number of
    /// earlier matches decide which calls fail.
    ///
    /// ```
    /// use pagewise::inject::{Fault, FaultInjector};
    /// use pagewise::{Backend, Code};
    ///
    /// let failures = |seed| {
    ///     let backend = FaultInjector::around(pagewise::sim()?);
    ///     backend.arm(Fault::new(Code::NOT_READY).seeded(seed, 200));
    ///     let answers: Vec<bool> = (0..100).map(|_| backend.device_count().is_err()).collect();
    ///     Ok::<_, pagewise::Error>(answers)
    /// };
    /// assert_eq!(failures(1)?, failures(1)?);
    /// assert_ne!(failures(1)?, failures(2)?);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub const fn seeded(mut self, seed: u64, per_thousand: u32) -> Self {
        self.when = When::Random { seed, per_thousand };
        self
    }

    fn matches(&self, call: &Call) -> bool {
        self.operation.is_none_or(|operation| operation == call.operation())
            && self.location.is_none_or(|location| Some(location) == call.location())
            && (self.bytes_min..=self.bytes_max).contains(&call.size_bytes())
            && !(self.spares_destructors && call.is_in_destructor())
    }

    fn strikes(&self, nth: u64) -> bool {
        match self.when {
            When::Nth(n) => n == nth,
            When::Always => true,
            When::Random { seed, per_thousand } => mix(seed, nth) % 1000 < u64::from(per_thousand),
        }
    }
}

/// A number that looks random (the finalizer of SplitMix64: Steele, Lea and Flood, 2014).
const fn mix(seed: u64, nth: u64) -> u64 {
    let mut z = seed.wrapping_add(nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A fault, and how many calls matched it since it was armed.
#[derive(Debug)]
struct Armed {
    fault: Fault,
    matched: u64,
}

#[derive(Debug, Default)]
struct State {
    ignores: bool,
    made: u64,
    /// Of these, the calls of destructors.
    made_in_destructors: u64,
    calls: Vec<Call>,
    failed: Vec<Call>,
    armed: Vec<Armed>,
}

/// The [`Interceptor`] that fails calls.
///
/// ```
/// use pagewise::inject::Injector;
/// assert_eq!(Injector::default().calls(), 0);
/// ```
#[derive(Debug, Default)]
pub struct Injector {
    state: Mutex<State>,
}

impl Injector {
    /// The number of calls that it was asked about.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.locked().made
    }

    pub(crate) fn arm(&self, fault: Fault) {
        self.locked().armed.push(Armed { fault, matched: 0 });
    }

    pub(crate) fn disarm(&self) {
        self.locked().armed.clear();
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The code to fail with, if a fault strikes. The first that does is the answer; all count.
    fn ask(&self, call: &Call) -> Option<i32> {
        let mut state = self.locked();
        if state.ignores {
            return None;
        }
        state.made += 1;
        state.made_in_destructors += u64::from(call.is_in_destructor());
        state.calls.push(*call);
        let mut code = None;
        for Armed { fault, matched } in state.armed.iter_mut().filter(|a| a.fault.matches(call)) {
            if fault.strikes(*matched) {
                code = code.or(Some(fault.code));
            }
            *matched += 1;
        }
        if code.is_some() {
            state.failed.push(*call);
        }
        code
    }
}

impl Interceptor for Injector {
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(code) = self.ask(call) else { return make() };
        let error = Error::from_code(call.operation().name(), code).with_detail("injected");
        Err(match call.span() {
            Some(span) => error.with_span(span),
            None => error,
        })
    }
}

/// A back end that fails at the calls that a test chooses. See the [module](self).
pub type FaultInjector<B> = Intercepted<B, Injector>;

impl<B: Backend> FaultInjector<B> {
    /// Puts one around a back end. No fault is armed.
    #[must_use]
    pub fn around(inner: B) -> Self {
        Self::new(inner, Injector::default())
    }

    /// Adds a fault. It counts calls from now on.
    pub fn arm(&self, fault: Fault) {
        self.interceptor().arm(fault);
    }

    /// Takes all faults away.
    pub fn disarm(&self) {
        self.interceptor().disarm();
    }

    /// The calls since this was last asked, failed ones included. They are kept until then.
    ///
    /// ```
    /// use pagewise::inject::{Fault, FaultInjector};
    /// use pagewise::intercept::Operation;
    /// use pagewise::{Backend, Code};
    ///
    /// let backend = FaultInjector::around(pagewise::sim()?);
    /// backend.arm(Fault::new(Code::NOT_READY).always());
    /// assert!(backend.device_count().is_err());
    /// backend.disarm();
    /// assert!(backend.device_count().is_ok());
    /// let (all, failed) = (backend.take_calls(), backend.failed());
    /// assert_eq!((all.len(), failed.len()), (2, 1), "failed calls are calls, too");
    /// assert_eq!(failed[0].operation(), Operation::DeviceCount);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.interceptor().locked().calls)
    }

    /// The calls that faults failed, in order.
    #[must_use]
    pub fn failed(&self) -> Vec<Call> {
        self.interceptor().locked().failed.clone()
    }

    /// Counts the calls of a closure in a program of [`sweep()`], and lets them fail. Calls outside
    /// of the closure are not counted and do not fail.
    ///
    /// ```
    /// use pagewise::{Backend, Code};
    /// use pagewise::inject::sweep;
    ///
    /// let sites = sweep(Code::NOT_READY, pagewise::sim, |backend, _| {
    ///     backend.device_count()?;
    ///     let _ = backend.watch(|| backend.device_count());
    ///     Ok(())
    /// })?;
    /// assert_eq!(sites, 1);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn watch<T>(&self, run: impl FnOnce() -> T) -> T {
        let set = |ignores| std::mem::replace(&mut self.interceptor().locked().ignores, ignores);
        let before = set(false);
        let answer = run();
        set(before);
        answer
    }
}
