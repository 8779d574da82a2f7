//! Observed calls, kept so that their time can be computed again with other figures.
//!
//! An observation holds what the meter was told and what it remembered, and nothing that depends
//! on figures: its time is the same fold over the same functions that the meter uses.

use super::account::{Account, Input};
use super::calls;
use super::params::CostParams;

/// One call, or one sleep: all that its time depends on, except the figures.
#[derive(Debug, Clone)]
pub struct CostObservation(Observed);

#[derive(Debug, Clone)]
enum Observed {
    Call { before: Box<Account>, inputs: Box<[Input]> },
    Sleep { duration_ns: u64 },
}

impl CostObservation {
    /// The nanoseconds that the model gives the call with these figures.
    ///
    /// Every figure but three is a price: the time is the sum of prices times counts. The three
    /// that are not, `fault_gap`, `gap_read` and `gap_write` of
    /// [`DeviceTouchCosts`](super::DeviceTouchCosts), decide how much of a wake-up is counted.
    #[must_use]
    pub fn ns(&self, params: &CostParams) -> f64 {
        match &self.0 {
            Observed::Call { before, inputs } => {
                let mut account = Account::clone(before);
                let at_once: f64 = inputs.iter().map(|input| account.count(params, input)).sum();
                at_once + account.rest(params)
            }
            &Observed::Sleep { duration_ns } => calls::sleep(&params.fixed, duration_ns),
        }
    }
}

/// The observations that have not been taken yet.
#[derive(Debug, Default)]
pub(super) struct Observations {
    /// The number of pages of recycled memory in the current call.
    recycled_pages: u64,
    inputs: Vec<Input>,
    done: Vec<CostObservation>,
}

impl Observations {
    pub(super) fn begin(&mut self, account: &Account) {
        self.recycled_pages = account.recycled_pages;
        self.inputs.clear();
    }

    pub(super) fn input(&mut self, input: &Input) {
        self.inputs.push(*input);
    }

    /// The call has ended, and this is its account.
    pub(super) fn end(&mut self, account: &Account) {
        let inputs = std::mem::take(&mut self.inputs).into_boxed_slice();
        self.done.push(CostObservation(Observed::Call {
            before: Box::new(account.emptied(self.recycled_pages)),
            inputs,
        }));
    }

    pub(super) fn slept(&mut self, duration_ns: u64) {
        self.done.push(CostObservation(Observed::Sleep { duration_ns }));
    }

    pub(super) fn take(&mut self) -> Vec<CostObservation> {
        std::mem::take(&mut self.done)
    }
}
