//! The random programs of a comparison in its answer, family by family.

use std::fmt::Write as _;

use pagewise_trace::campaign::{Disagreement, Outcome};
use pagewise_trace::format::{Case, Header};
use pagewise_trace::program::Family;
use pagewise_trace::report::Divergence;
use pagewise_trace::writer::TraceWriter;
use serde::Serialize;

use crate::args::Compare;
use crate::divergence;

/// The programs of one family.
#[derive(Debug, Serialize)]
pub(crate) struct Programs {
    family: &'static str,
    seed: u64,
    programs: u64,
    disagreeing: u64,
    /// Programs that disagreed once, and not when they were carried out again.
    by_chance: u64,
    pub(crate) first: Option<First>,
}

/// The first program that disagrees, shrunk.
#[derive(Debug, Serialize)]
pub(crate) struct First {
    /// The program's name.
    case: String,
    /// Operations before it was shrunk.
    operations: usize,
    /// The operation of the shrunk program that disagrees, from 1.
    operation: usize,
    divergence: Divergence,
    /// The shrunk program, as `pagewise record` reads it.
    pub(crate) program: String,
    #[serde(skip)]
    shrunk_operations: usize,
}

impl Programs {
    pub(crate) fn of(args: &Compare, family: Family, outcome: &Outcome, header: &Header) -> Self {
        let Outcome { programs, disagreeing, by_chance, .. } = *outcome;
        let first = outcome.first.as_ref().map(|first| First::of(first, header));
        Self { family: family.name(), seed: args.seed, programs, disagreeing, by_chance, first }
    }

    /// Tells people of them.
    pub(crate) fn describe(&self, text: &mut String, args: &Compare) {
        let Self { family, seed, programs, disagreeing, by_chance, first } = self;
        _ = write!(text, "{family}, seed {seed}: {programs} programs, {disagreeing} disagree");
        if *by_chance > 0 {
            _ = write!(text, "; {by_chance} more did once and not again");
        }
        if *disagreeing > 0 && *disagreeing == args.max_disagreements {
            text.push_str("; stopped there");
        }
        text.push('\n');
        if let Some(first) = first {
            first.describe(text);
        }
    }
}

impl First {
    fn of(first: &Disagreement, header: &Header) -> Self {
        let Disagreement { drawn, smallest, divergence } = first;
        let at = smallest.ops.iter().position(|op| op.line == divergence.line);
        Self {
            case: drawn.name.clone(),
            operations: drawn.ops.len(),
            operation: at.map_or(0, |at| at.saturating_add(1)),
            divergence: divergence.clone(),
            program: program_text(smallest, header),
            shrunk_operations: smallest.ops.len(),
        }
    }

    fn describe(&self, text: &mut String) {
        let Self { case, operations, operation, shrunk_operations, .. } = self;
        _ = writeln!(
            text,
            "  {case}: {operations} operations, shrunk to {shrunk_operations}; operation \
             {operation} of those disagrees"
        );
        for line in divergence::words(&self.divergence).lines() {
            _ = writeln!(text, "  {line}");
        }
        text.push_str("  The program:\n");
        for line in self.program.lines() {
            _ = writeln!(text, "    {line}");
        }
    }
}

/// The text of a program, as `pagewise record` reads it.
pub(crate) fn program_text(case: &Case, header: &Header) -> String {
    let written = TraceWriter::plain(Vec::new(), header).and_then(|mut writer| {
        writer.program(case)?;
        writer.finish()
    });
    // Writing to memory cannot fail.
    String::from_utf8_lossy(&written.unwrap_or_default()).into_owned()
}
