//! The units of a kernel: where they are held, and where they wait.
//!
//! A batch brings pages to few places. Only the units that wait there are looked at, so a round costs
//! what its faults cost, however many units wait elsewhere.
#![allow(clippy::arithmetic_side_effects, reason = "units are counted")]

use super::faults::RaisedFault;
use super::missing::Missing;
use super::multiprocessor::{Multiprocessor, OnGrid};
use super::rounds::Rounds;
use super::waiters::{Then, Waiter, Waiters};

/// The units of a kernel.
#[derive(Debug)]
pub(super) struct Units {
    multiprocessors: Vec<Multiprocessor>,
    /// Some may stand for a unit that has another number now, or waits for another page.
    waiters: Waiters,
}

/// Waiters of which most may stand for no unit any more.
const WAITERS: usize = 256;

impl Units {
    pub(super) fn new(multiprocessors: usize) -> Self {
        let multiprocessors = vec![Multiprocessor::default(); multiprocessors];
        Self { multiprocessors, waiters: Waiters::default() }
    }

    /// The multiprocessors that hold them.
    pub(super) fn multiprocessors(&self) -> &[Multiprocessor] {
        &self.multiprocessors
    }

    /// The same, to raise faults.
    pub(super) fn multiprocessors_mut(&mut self) -> &mut [Multiprocessor] {
        &mut self.multiprocessors
    }

    /// A multiprocessor takes a thread block. Returns whether that faults anywhere; if not, it is
    /// through.
    pub(super) fn take(
        &mut self,
        at: usize,
        block: u64,
        around: &OnGrid<'_, impl Missing>,
        rounds: &mut Rounds<'_>,
    ) -> bool {
        let before = self.multiprocessors[at].next_unit();
        let faults = self.multiprocessors[at].take(block, around, |limit| rounds.below(limit));
        self.wait(at, before);
        faults
    }

    /// Units of a multiprocessor, from this one on, wait where they are.
    fn wait(&mut self, at: usize, from: usize) {
        for (RaisedFault { page, walk }, unit) in self.multiprocessors[at].misses(from) {
            let (walk, multiprocessor) = (walk as u32, at as u32);
            self.waiters.insert(Waiter { page, walk, multiprocessor, unit });
        }
    }

    /// Lets units go on to their next access that faults, if their pages came. Returns whether one did.
    pub(super) fn run(&mut self, around: &OnGrid<'_, impl Missing>) -> bool {
        let Self { multiprocessors, waiters } = self;
        let (mut progress, mut any_left) = (false, false);
        let mut then = |&Waiter { page, walk, multiprocessor, unit }: &Waiter| {
            let fault = RaisedFault { page, walk: walk as usize };
            if around.missing.contains(fault.walk, page) {
                return Then::Stays;
            }
            let then = multiprocessors[multiprocessor as usize].run(unit, fault, around);
            progress |= then.is_some();
            any_left |= then == Some(Then::Leaves);
            then.unwrap_or(Then::Leaves)
        };
        match around.missing.came() {
            Some(pages) => pages.iter().for_each(|page| waiters.visit(*page, &mut then)),
            None => waiters.visit_all(then),
        }
        if any_left {
            self.close_up();
        }
        progress
    }

    /// Drops the units that are through where they are most, and waiters that stand for none.
    fn close_up(&mut self) {
        let mut units = 0;
        for at in 0..self.multiprocessors.len() {
            if self.multiprocessors[at].drop_those_through() {
                self.wait(at, 0);
            }
            units += self.multiprocessors[at].count();
        }
        if self.waiters.count() > 2 * units + WAITERS {
            self.waiters.clear();
            (0..self.multiprocessors.len()).for_each(|at| self.wait(at, 0));
        }
    }

    /// How many units wait, how many are kept, and how many waiters.
    #[cfg(test)]
    pub(super) fn counts(&self) -> [usize; 3] {
        let sum =
            |count: fn(&Multiprocessor) -> usize| self.multiprocessors.iter().map(count).sum();
        [sum(Multiprocessor::count), sum(Multiprocessor::next_unit), self.waiters.count()]
    }
}
