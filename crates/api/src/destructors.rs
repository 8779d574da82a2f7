//! Destructors, and clean-ups behind an error: their calls can fail without a caller to tell.
//!
//! A thread knows whether it is in one, so that interceptors can tell such calls from others.

use std::cell::Cell;

use pagewise_hal::Result;

use crate::Machine;

thread_local! {
    /// How many of them, one in the other, the thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Leaves a destructor when it goes, also by a panic.
struct Inside;

impl Inside {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get().saturating_add(1));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

/// Whether the thread is in a destructor of this crate, or of a user's that says so.
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

impl Machine {
    /// Runs the calls of a destructor, or of a clean-up behind an error: code with no caller that
    /// a failure could be reported to. A failure counts in
    /// [`failures_on_drop`](Self::failures_on_drop), and interceptors see where the calls come from
    /// ([`Call::is_in_destructor`](crate::intercept::Call::is_in_destructor)), so that a
    /// [sweep](crate::inject::sweep) can leave them out.
    ///
    /// ```
    /// use pagewise::{Machine, refuse::invalid};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// machine.on_drop(|| Err(invalid("free", "the pool is gone")));
    /// assert_eq!(machine.failures_on_drop(), 1);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn on_drop(&self, run: impl FnOnce() -> Result<()>) {
        let _inside = Inside::enter();
        if run().is_err() {
            self.count_failure();
        }
    }
}
