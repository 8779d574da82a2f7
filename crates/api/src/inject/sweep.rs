//! Sweeps: a program runs once for each call that it makes, with that call failing.

use std::fmt;
use std::sync::Arc;

use pagewise_hal::{Backend, Error, Result};

use super::{Fault, FaultInjector};
use crate::refuse::invalid;

/// A sweep with options: see [`sweep`].
///
/// ```
/// use pagewise::inject::Sweep;
/// use pagewise::{Code, Machine, ManagedBuffer};
///
/// let swept = Sweep::new(Code::OUT_OF_MEMORY).with_destructors().run(
///     pagewise::sim,
///     |backend, failing| {
///         let machine = Machine::from(backend);
///         let made = backend.watch(|| ManagedBuffer::<u8>::new(&machine, 4096).map(drop));
///         let reported = u64::from(made.is_err()) + machine.failures_on_drop();
///         assert_eq!(reported, u64::from(failing.is_some()));
///         Ok(())
///     },
/// )?;
/// assert_eq!((swept.calls, swept.left_out), (2, 0), "allocate, free");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it does nothing until it runs"]
pub struct Sweep {
    code: i32,
    destructors: bool,
}

/// The numbers of calls of a [`Sweep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// The calls that failed, one in each run.
    pub calls: u64,
    /// The calls of destructors and clean-ups, which did not fail.
    pub left_out: u64,
}

impl fmt::Display for Swept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, left_out } = self;
        write!(f, "{calls} calls failed, one at a time; {left_out} of destructors were left out")
    }
}

impl Sweep {
    /// A sweep in which calls fail with this `CUresult`, without those of destructors.
    pub const fn new(code: i32) -> Self {
        Self { code, destructors: false }
    }

    /// The same sweep with the calls of destructors and clean-ups, too. No error can report their
    /// failures: [`Machine::failures_on_drop`](crate::Machine::failures_on_drop) counts them.
    pub const fn with_destructors(mut self) -> Self {
        self.destructors = true;
        self
    }

    /// Runs a program on fresh back ends, as [`sweep`] does.
    ///
    /// # Errors
    /// As [`sweep`].
    pub fn run<B: Backend>(
        self,
        mut fresh: impl FnMut() -> Result<B>,
        mut program: impl FnMut(&Arc<FaultInjector<B>>, Option<u64>) -> Result<()>,
    ) -> Result<Swept> {
        let mut run = |failing: Option<u64>| {
            let backend = Arc::new(FaultInjector::around(fresh()?));
            backend.interceptor().locked().ignores = true;
            if let Some(n) = failing {
                backend.arm(self.fault(n));
            }
            program(&backend, failing)?;
            Ok::<_, Error>((self.count(&backend), backend.failed().len()))
        };
        let (swept, _) = run(None)?;
        for n in 0..swept.calls {
            let (_, failed) = run(Some(n))?;
            if failed == 0 {
                let why = format!(
                    "call {n} of {} was not made again: is the program the same?",
                    swept.calls
                );
                return Err(invalid("sweep", why));
            }
        }
        Ok(swept)
    }

    fn fault(self, nth: u64) -> Fault {
        let fault = Fault::new(self.code).nth(nth);
        if self.destructors { fault } else { fault.outside_destructors() }
    }

    /// The calls that the program made in [`FaultInjector::watch`].
    fn count<B>(self, backend: &FaultInjector<B>) -> Swept
    where
        B: Backend,
    {
        let state = backend.interceptor().locked();
        let left_out = if self.destructors { 0 } else { state.made_in_destructors };
        Swept { calls: state.made.saturating_sub(left_out), left_out }
    }
}

/// Runs a program on fresh back ends: once as it is, then once for each call that it made in
/// [`FaultInjector::watch`], with that call failing with `code`. Returns the number of such calls.
///
/// It leaves out the calls of destructors and of clean-ups behind an error
/// ([`Call::is_in_destructor`](crate::intercept::Call::is_in_destructor)): these have no caller
/// that a failure could be reported to, so "the answer is an error if and only if a call failed"
/// holds also for a program that frees memory inside. [`Sweep::with_destructors`] includes them.
///
/// The program gets the call that will fail, `None` the first time. If a claim of the program does
/// not hold, it returns an error or panics.
///
/// # Errors
/// Errors of the program, and of making back ends. `InvalidValue` (no CUDA code) if a run did not
/// reach the call that should fail, because the program does not make the same calls each time.
///
/// ```
/// use pagewise::inject::sweep;
/// use pagewise::{Code, Device, Machine, ManagedBuffer, Place};
///
/// let sites = sweep(Code::OUT_OF_MEMORY, pagewise::sim, |backend, failing| {
///     let buffer = ManagedBuffer::<u8>::zeroed(backend, 4096)?;
///     let accessed_by = buffer.accessed_by();
///     accessed_by.insert(Place::HOST)?;
///     let before = accessed_by.to_set()?;
///     let answer = backend.watch(|| accessed_by.assign([Device::FIRST]));
///     assert_eq!(answer.is_err(), failing.is_some());
///     assert_eq!(accessed_by.to_set()? == before, answer.is_err());
///     Ok(())
/// })?;
/// assert_eq!(sites, 3, "read the members, one out, one in");
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn sweep<B: Backend>(
    code: i32,
    fresh: impl FnMut() -> Result<B>,
    program: impl FnMut(&Arc<FaultInjector<B>>, Option<u64>) -> Result<()>,
) -> Result<u64> {
    Sweep::new(code).run(fresh, program).map(|swept| swept.calls)
}
