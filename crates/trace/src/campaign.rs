//! Campaigns: many random programs on two back ends, with the first disagreement made small.

use std::sync::Arc;

use pagewise_hal::{Backend, Result};

use crate::compare::Tally;
use crate::differential::{Rules, compare_backends};
use crate::format::{Case, Header, Op};
use crate::program::{Family, Offers, RandomProgram};
use crate::report::{Divergence, TraceReport};
use crate::run::Session;

/// The programs of a comparison: those of one family, one after another.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The family.
    pub family: Family,
    /// The seed of all programs.
    pub seed: u64,
    /// How many operations at least, sleeps not counted.
    pub ops: u64,
    /// About how many steps a program has.
    pub steps: usize,
    /// The devices and entry points that the programs may use.
    pub offers: Offers,
    /// How they are compared.
    pub rules: Rules,
    /// Stops once so many programs disagree; 0 is never.
    pub max_disagreements: u64,
    /// How many smaller programs are tried to make the first that disagrees small.
    pub shrink_tries: usize,
}

/// The reason why a program is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// As it was drawn.
    Drawn,
    /// As a part of one that disagrees.
    Shrunk,
}

/// The two back ends. Each is opened for every program; a back end that a process can have only
/// once may be the same each time.
pub struct Sides<'a> {
    /// The reference.
    pub reference: &'a dyn Fn() -> Result<Arc<dyn Backend>>,
    /// The other.
    pub other: &'a dyn Fn() -> Result<Session>,
}

impl std::fmt::Debug for Sides<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sides")
    }
}

/// The outcome.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Everything compared.
    pub tally: Tally,
    /// Programs carried out.
    pub programs: u64,
    /// Their operations, sleeps not counted.
    pub ops: u64,
    /// Programs that disagree; if the reference is not deterministic, twice.
    pub disagreeing: u64,
    /// Programs that disagreed once: what thrashes is a matter of microseconds.
    pub by_chance: u64,
    /// The first that does.
    pub first: Option<Disagreement>,
}

/// A program on which the two disagree.
#[derive(Debug)]
pub struct Disagreement {
    /// The program as it was drawn: its name holds family, seed and number.
    pub drawn: Case,
    /// The smallest program found that disagrees.
    pub smallest: Case,
    /// Where that one disagrees.
    pub divergence: Divergence,
}

impl Outcome {
    /// As a line of a report, under the family's name.
    #[must_use]
    pub fn report(self, family: Family, header: &Header) -> TraceReport {
        let mut report = self.tally.report(family.name().to_owned(), Some(header), None, None);
        report.ops = self.ops;
        report
    }
}

/// Compares programs until there were operations enough. `before` is told of each program before it
/// is carried out, shrunk ones too, so that one that does not come back is known.
///
/// # Errors
/// If a back end cannot be opened.
pub fn carry_out(
    campaign: &Campaign,
    sides: &Sides<'_>,
    mut before: impl FnMut(&Case, Stage),
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    while outcome.ops < campaign.ops {
        let Campaign { family, seed, steps, offers, .. } = *campaign;
        let mut program = RandomProgram::new(family, seed, outcome.programs, steps, offers);
        let case = program.case();
        before(&case, Stage::Drawn);
        let mut tally = compare(campaign, sides, &case)?;
        if !tally.agrees() && campaign.rules.repeat > 1 {
            // The reference is not deterministic.
            tally = compare(campaign, sides, &case)?;
            outcome.by_chance = outcome.by_chance.saturating_add(tally.agrees().into());
        }
        outcome.programs = outcome.programs.saturating_add(1);
        let sleeps = |op: &Op| matches!(op, Op::Sleep { .. });
        let ops = case.ops.iter().filter(|line| !sleeps(&line.recorded.op)).count() as u64;
        outcome.ops = outcome.ops.saturating_add(ops);
        if let Some(divergence) = tally.first_divergence().cloned() {
            outcome.disagreeing = outcome.disagreeing.saturating_add(1);
            if outcome.first.is_none() {
                outcome.first =
                    Some(shrink(campaign, sides, &mut program, divergence, &mut before)?);
            }
        }
        outcome.tally.merge(tally);
        if outcome.disagreeing == campaign.max_disagreements && outcome.disagreeing > 0 {
            break;
        }
    }
    Ok(outcome)
}

fn compare(campaign: &Campaign, sides: &Sides<'_>, case: &Case) -> Result<Tally> {
    let (reference, other) = ((sides.reference)()?, (sides.other)()?);
    let compared = compare_backends(&*reference, &other, case, campaign.rules);
    Ok(compared.unwrap_or_else(|(line, reason)| {
        unreachable!("line {line} of a random program uses no id twice: {reason}")
    }))
}

fn shrink(
    campaign: &Campaign,
    sides: &Sides<'_>,
    program: &mut RandomProgram,
    mut divergence: Divergence,
    before: &mut impl FnMut(&Case, Stage),
) -> Result<Disagreement> {
    let drawn = program.case();
    let mut failed = None;
    let smallest = program.shrink(campaign.shrink_tries, |case| {
        if failed.is_some() {
            return false;
        }
        before(case, Stage::Shrunk);
        match compare(campaign, sides, case) {
            Err(error) => {
                failed = Some(error);
                false
            }
            Ok(tally) => match tally.first_divergence() {
                None => false,
                Some(found) => {
                    divergence = found.clone();
                    true
                }
            },
        }
    });
    failed.map_or(Ok(Disagreement { drawn, smallest, divergence }), Err)
}
