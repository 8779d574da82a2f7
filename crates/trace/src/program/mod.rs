//! Random programs: questions to two back ends, to see whether they agree.
//!
//! A program is made in two steps. A [`Family`] draws [`Step`]s, which name buffers by "the nth of
//! those that live" and ranges by fractions; [`lower`] turns any sequence of steps into operations
//! that are safe on a real GPU. So any part of a program is a program, and shrinking one is leaving
//! steps out.
//!
//! Safe means, whatever the steps:
//!
//! - at most [`MAX_LIVE_BYTES`] of managed memory live at a time, in at most [`MAX_LIVE_BUFFERS`]
//!   buffers: nothing is ever oversubscribed;
//! - programs touch only memory that lives and that the processor can reach: anything else ends the
//!   process or the GPU's context;
//! - no atomics in a case once something was discarded (one such run on an H200 did not come back);
//! - `stream_attach` only with flags 1, 2 and 4 on live memory (flags 0 end the process in driver
//!   580);
//! - one thread makes at most [`MAX_SERIAL_ACCESSES`] accesses in one operation, so that no operation
//!   takes long.

mod bounds;
mod draw;
mod family;
mod lower;
mod step;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

pub use bounds::{MAX_LIVE_BUFFERS, MAX_LIVE_BYTES, MAX_SERIAL_ACCESSES};
pub use family::Family;
pub use lower::{Offers, lower};
pub use step::Step;

use crate::format::{Case, Observed, Op, OpLine, RecordedOp};

/// A random program that can be shrunk.
pub struct RandomProgram {
    name: String,
    offers: Offers,
    tree: Box<dyn ValueTree<Value = Vec<Step>>>,
}

impl std::fmt::Debug for RandomProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RandomProgram").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RandomProgram {
    /// The program with this number among those of a seed: the same on every machine.
    ///
    /// `steps` is about how many steps it has; it has up to twice as many.
    #[must_use]
    pub fn new(family: Family, seed: u64, number: u64, steps: usize, offers: Offers) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..24].copy_from_slice(&(family as u64).to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let steps = 1..=steps.max(1).saturating_mul(2);
        let tree = proptest::collection::vec(family.step(offers.devices), steps)
            .new_tree(&mut runner)
            .unwrap_or_else(|reason| unreachable!("no step is ever rejected: {reason}"));
        let name = format!("{}-{seed}-{number}", family.name());
        Self { name, offers, tree: Box::new(tree) }
    }

    /// The program as it is now.
    #[must_use]
    pub fn case(&self) -> Case {
        program(&self.name, lower(&self.tree.current(), self.offers))
    }

    /// Makes the program as small as it can be while `fails` holds of it, in at most `most` tries,
    /// and gives the smallest that fails. The program must fail now.
    pub fn shrink(&mut self, most: usize, mut fails: impl FnMut(&Case) -> bool) -> Case {
        let mut smallest = self.case();
        let mut tries = 0;
        let mut changed = self.tree.simplify();
        while changed && tries < most {
            tries += 1;
            let case = self.case();
            changed = if fails(&case) {
                smallest = case;
                self.tree.simplify()
            } else {
                self.tree.complicate()
            };
        }
        smallest
    }
}

/// Operations as a case without results.
#[must_use]
pub fn program(name: &str, ops: Vec<Op>) -> Case {
    let line =
        |(line, op)| OpLine { line, recorded: RecordedOp { op, observed: Observed::default() } };
    Case { name: name.to_owned(), line: 2, ops: (3..).zip(ops).map(line).collect(), text_bytes: 0 }
}
