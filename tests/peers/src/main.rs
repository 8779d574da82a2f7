//! Carries out scenarios that another project's manager has carried out, and compares.
//!
//! `pagewise-peers PEER` reads scenarios from its standard input, one JSON line for each, as
//! `tests/peers/PEER/scenarios.py` writes them. It fails if something differs that
//! `differences.toml` does not list for that peer, or if it lists a difference that never occurs.

mod around;
mod cubie;
mod device;
mod differences;
mod numba;

use std::io::{BufRead, stdin};
use std::process::ExitCode;

use differences::{Compared, Tally};

/// The comparison of one scenario: a line of a peer's program.
type Compare = fn(&str) -> Result<Compared, String>;

/// The peers by name, each a folder beside this crate's manifest.
const PEERS: &[(&str, Compare)] = &[("cubie", cubie::compare), ("numba", numba::compare)];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match run(&name) {
        Ok(summary) => {
            println!("{name}: {summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str) -> Result<String, String> {
    let known = PEERS.iter().find(|(peer, _)| *peer == name);
    let Some((_, compare)) = known else {
        let names: Vec<_> = PEERS.iter().map(|(peer, _)| *peer).collect();
        return Err(format!("name one of the peers: {}", names.join(", ")));
    };
    let mut tally = Tally::new(differences::listed(name)?);
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| format!("the scenarios end: {error}"))?;
        tally.add(compare(&line)?);
    }
    tally.finish()
}
