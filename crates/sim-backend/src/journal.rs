//! The allocations that appeared and went, for a caller that follows them.

use std::fmt;

/// An allocation that appeared or went.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<A> {
    Made(A),
    Gone(A),
}

/// The steps since they were last asked for, if a caller asks. Not part of the state of a machine.
pub(crate) struct Journal<A>(Option<Vec<Step<A>>>);

impl<A> Default for Journal<A> {
    fn default() -> Self {
        Self(None)
    }
}

impl<A> Journal<A> {
    /// Notes steps from now on.
    pub(crate) fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    #[inline]
    pub(crate) fn note(&mut self, step: Step<A>) {
        if let Some(steps) = &mut self.0 {
            steps.push(step);
        }
    }

    /// The steps since this was last called, in their order.
    pub(crate) fn take(&mut self) -> Vec<Step<A>> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<A> fmt::Debug for Journal<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Journal")
    }
}
