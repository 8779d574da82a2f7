//! Mutants: small changes of the code, each of which a test should notice.
//!
//! `cargo xtask mutants` asks cargo-mutants for the mutants of the files that `tests/mutants/*.toml`
//! name, plants all of them at once in a copy of the workspace (`target/mutants/tree`), builds the
//! tests once, and runs, for each mutant, the tests that reach it. It compares the results with
//! `tests/mutants/baseline.json`. It is a scheduled job, not part of `cargo xtask ci`.

mod baseline;
mod group;
mod list;
mod plant;
mod survivors;
mod text;
mod tree;
mod trial;
mod viable;

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use baseline::{Counts, Mutants, judge, without_place};
use group::{FOLDER, Group};
use list::{Mutant, Number};
use tree::Refused;
use trial::Tests;

use crate::command::{Outcome, cargo, output};

/// Which mutants are tried, and what becomes of the answers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Tries this group only: a file of tests/mutants without its end. Can be given several times.
    #[arg(long)]
    group: Vec<String>,
    /// Tries those only that the baseline does not say were caught.
    #[arg(long)]
    missed: bool,
    /// Writes the baseline; mutants that were not tried keep their result.
    #[arg(long)]
    write: bool,
}

/// Where the list of the mutants that no test noticed is written, with their lines.
const MISSED: &str = "target/mutants/missed.txt";

/// Tries the mutants; fails if too few are caught, or one lives that the baseline caught.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let version = output(&mut cargo(&["mutants", "--version"]))
        .map_err(|_| "cargo-mutants is missing: cargo install cargo-mutants --locked".to_owned())?;
    let path = Path::new(FOLDER).join("baseline.json");
    let baseline = baseline::read(&path)?;
    let groups = group::read()?;
    let lists = groups.iter().map(list::of_group).collect::<Outcome<Vec<_>>>()?;
    let is_caught =
        |mutant: &Mutant| baseline.get(&name_of(mutant)).is_some_and(|before| before.missed == 0);
    let wanted = |group: &Group, mutant: &Mutant| {
        (arguments.group.is_empty() || arguments.group.contains(&group.name))
            && !(arguments.missed && is_caught(mutant))
    };
    let mut mutants = Vec::new();
    let mut parts = Vec::new();
    for (group, list) in groups.iter().zip(&lists) {
        let first = mutants.len() + 1;
        mutants.extend(list.iter().filter(|mutant| wanted(group, mutant)).cloned());
        parts.push((group, first..mutants.len() + 1));
    }
    if mutants.is_empty() {
        return Err("no mutant to try: all were caught, or no such group".to_owned());
    }
    tree::copy(&mutants)?;
    let begin = Instant::now();
    let refused = viable::plant_what_compiles(&mutants)?;
    println!("planted {} mutants in {:.0?}", mutants.len() - refused.len(), begin.elapsed());
    let mut found = Found::new(&mutants, &refused);
    // Mutants that were not tried keep their result; those that no longer exist are left out.
    let names = lists.iter().flatten().map(name_of);
    let mut all: Mutants =
        names.filter_map(|name| baseline.get(&name).map(|counts| (name, *counts))).collect();
    for (group, numbers) in parts {
        found.try_all(group, numbers)?;
        all.extend(found.counts.clone());
        fs::write(MISSED, &found.missed).map_err(|error| format!("{MISSED}: {error}"))?;
        // After each group: the next one may take long, or fail.
        if arguments.write {
            baseline::write(&path, &all, version.trim())?;
        }
    }
    println!("{} mutants that no test noticed: {MISSED}", found.missed.lines().count());
    survivors::check(&all, Path::new(FOLDER))?;
    judge(&all, &baseline)
}

/// A mutant's name without its line.
fn name_of(mutant: &Mutant) -> String {
    without_place(&mutant.name)
}

/// The results of the mutants tried so far.
struct Found<'m> {
    mutants: &'m [Mutant],
    refused: &'m Refused,
    counts: Mutants,
    /// The names of those that no test noticed, one a line.
    missed: String,
}

impl<'m> Found<'m> {
    fn new(mutants: &'m [Mutant], refused: &'m Refused) -> Self {
        Self { mutants, refused, counts: Mutants::new(), missed: String::new() }
    }

    /// Tries mutants of one group.
    fn try_all(&mut self, group: &Group, numbers: Range<Number>) -> Outcome {
        let (refused, planted): (Vec<_>, Vec<_>) =
            numbers.partition(|number| self.refused.contains(*number));
        for number in refused {
            let left_out = self.refused.left_out.contains(&number);
            self.add(number, if left_out { Counts::UNJUDGED } else { Counts::UNVIABLE });
        }
        if planted.is_empty() {
            return Ok(());
        }
        let name = |number: Number| self.mutants[number - 1].name.as_str();
        let noticed = Tests::of(group)?.notice(&planted, name);
        for (number, noticed) in planted.into_iter().zip(noticed) {
            self.add(number, if noticed { Counts::CAUGHT } else { Counts::MISSED });
        }
        Ok(())
    }

    fn add(&mut self, number: Number, what: Counts) {
        let mutant = &self.mutants[number - 1];
        self.counts.entry(name_of(mutant)).or_default().add(what);
        if what.missed > 0 {
            self.missed += &format!("{}\n", mutant.name);
        }
    }
}
