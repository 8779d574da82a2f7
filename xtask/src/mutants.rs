//! Mutants: small changes planted in the code one at a time, each of which a test should notice.
//!
//! `cargo xtask mutants` runs cargo-mutants on the files named in `tests/mutants/*.toml`, one file
//! of settings for each set of tests, and compares with `tests/mutants/baseline.json`. It takes
//! hours: it is a scheduled job, not part of `cargo xtask ci`. A part can be run as a shard.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::command::{Outcome, cargo, output};

const FOLDER: &str = "tests/mutants";

/// Percent of the mutants that compile which tests have to catch.
const CAUGHT_MIN: u64 = 90;

/// What became of mutants.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    caught: u64,
    missed: u64,
    unviable: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.caught += other.caught;
        self.missed += other.missed;
        self.unviable += other.unviable;
    }

    fn percent_caught(self) -> f64 {
        100.0 * self.caught as f64 / (self.caught + self.missed).max(1) as f64
    }
}

/// Mutants by what they change. Lines are left out, since they move with every edit; a change that
/// a function allows twice counts twice.
type Mutants = BTreeMap<String, Counts>;

/// Runs the mutants, or those of a shard such as `3/20`; fails if too few are caught, or one lives
/// that the baseline caught. With `write` the baseline takes what was found.
pub(crate) fn run(shard: Option<&str>, write: bool) -> Outcome {
    let version = output(&mut cargo(&["mutants", "--version"]))
        .map_err(|_| "cargo-mutants is missing: cargo install cargo-mutants --locked".to_owned())?;
    let mut found = Mutants::new();
    for settings in settings()? {
        merge(&mut found, run_group(&settings, shard)?);
    }
    let path = Path::new(FOLDER).join("baseline.json");
    let mut baseline = read_baseline(&path)?;
    let verdict = judge(&found, &baseline);
    if write {
        baseline.extend(found);
        let text = serde_json::to_string_pretty(&document(&baseline, version.trim())?);
        let text = text.map_err(|error| error.to_string())? + "\n";
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    verdict
}

/// The files of settings, in the order of their names.
fn settings() -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(FOLDER).map_err(|error| format!("{FOLDER}: {error}"))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ends| ends == "toml")).collect();
    found.sort();
    Ok(found)
}

/// Runs one group and reads the lists that cargo-mutants leaves.
fn run_group(settings: &Path, shard: Option<&str>) -> Outcome<Mutants> {
    let name = settings.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = Path::new("target/mutants").join(&name);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut command = cargo(&["mutants", "--workspace", "--no-shuffle", "--colors", "never"]);
    command.arg("--config").arg(settings).arg("--output").arg(&folder);
    command.args(shard.into_iter().flat_map(|shard| ["--shard", shard]));
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    // 2 and 3: mutants lived, or tests did not end. All else is no result.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(format!("{command:?} failed ({status})"));
    }
    let lists = folder.join("mutants.out");
    let list = |file: &str| {
        let path = lists.join(file);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let one = |caught, missed, unviable| Counts { caught, missed, unviable };
    let mut found = Mutants::new();
    // A test that no longer ends notices the mutant as well as one that fails.
    for (file, counts) in [
        ("caught.txt", one(1, 0, 0)),
        ("timeout.txt", one(1, 0, 0)),
        ("missed.txt", one(0, 1, 0)),
        ("unviable.txt", one(0, 0, 1)),
    ] {
        for line in list(file)?.lines() {
            found.entry(without_place(line)).or_default().add(counts);
        }
    }
    if found.is_empty() && shard.is_none() {
        return Err(format!("{name}: no mutant was run, see {}", lists.display()));
    }
    Ok(found)
}

/// `crates/a.rs:12:30: replace > with >= in f` as `crates/a.rs: replace > with >= in f`.
fn without_place(line: &str) -> String {
    let Some((place, change)) = line.split_once(": ") else { return line.to_owned() };
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {change}")
}

fn merge(all: &mut Mutants, more: Mutants) {
    for (name, counts) in more {
        all.entry(name).or_default().add(counts);
    }
}

fn total(mutants: &Mutants) -> Counts {
    mutants.values().fold(Counts::default(), |mut sum, counts| {
        sum.add(*counts);
        sum
    })
}

/// Prints what was found and says what is wrong with it, if anything is.
fn judge(found: &Mutants, baseline: &Mutants) -> Outcome {
    let sum = total(found);
    println!(
        "\n{} mutants caught, {} missed, {} do not compile: {:.1} % caught",
        sum.caught,
        sum.missed,
        sum.unviable,
        sum.percent_caught()
    );
    let escaped: Vec<&String> = found
        .iter()
        .filter_map(|(name, now)| {
            let before = baseline.get(name)?;
            (before.caught > 0 && now.missed > before.missed).then_some(name)
        })
        .collect();
    escaped.iter().for_each(|name| println!("missed, and caught before: {name}"));
    if !escaped.is_empty() {
        return Err(format!("{} mutants live that the baseline caught", escaped.len()));
    }
    if sum.caught * 100 < (sum.caught + sum.missed) * CAUGHT_MIN {
        return Err(format!("fewer than {CAUGHT_MIN} % of the mutants were caught"));
    }
    Ok(())
}

fn read_baseline(path: &Path) -> Outcome<Mutants> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Mutants::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mutants = document["mutants"].as_object().cloned().unwrap_or_default();
    let counts = |value: &Value| {
        let [caught, missed, unviable] =
            ["caught", "missed", "unviable"].map(|what| value[what].as_u64().unwrap_or(0));
        Counts { caught, missed, unviable }
    };
    Ok(mutants.iter().map(|(name, value)| (name.clone(), counts(value))).collect())
}

fn document(mutants: &Mutants, version: &str) -> Outcome<Value> {
    let rustc = output(Command::new("rustc").arg("--version"))?;
    let date = output(Command::new("git").args(["show", "--no-patch", "--format=%cs", "HEAD"]))?;
    let sum = total(mutants);
    let entry = |(name, counts): (&String, &Counts)| {
        let &Counts { caught, missed, unviable } = counts;
        let numbers = [("caught", caught), ("missed", missed), ("unviable", unviable)];
        let shown = numbers.into_iter().filter(|(_, count)| *count > 0);
        let shown: Map<_, _> = shown.map(|(what, n)| (what.to_owned(), json!(n))).collect();
        (name.clone(), Value::Object(shown))
    };
    Ok(json!({
        "measured": { "commit_date": date.trim(), "cargo_mutants": version, "rustc": rustc.trim() },
        "total": sum.caught + sum.missed + sum.unviable,
        "caught": sum.caught,
        "missed": sum.missed,
        "unviable": sum.unviable,
        "mutants": Value::Object(mutants.iter().map(entry).collect()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(list: &[(&str, u64, u64)]) -> Mutants {
        let entry = |&(name, caught, missed): &(&str, u64, u64)| {
            (name.to_owned(), Counts { caught, missed, unviable: 0 })
        };
        list.iter().map(entry).collect()
    }

    #[test]
    fn a_mutant_keeps_its_name_when_lines_move() {
        let name = |line| without_place(&format!("a/b.rs:{line}:9: replace A::f -> u8 with 0"));
        assert_eq!(name(3), name(4));
        assert_eq!(name(3), "a/b.rs: replace A::f -> u8 with 0");
    }

    #[test]
    fn what_the_baseline_caught_has_to_be_caught_again() {
        let baseline = mutants(&[("a", 2, 0), ("b", 1, 1), ("c", 0, 1), ("d", 90, 0)]);
        assert!(judge(&baseline, &baseline).is_ok());
        let escaped = mutants(&[("a", 1, 1), ("d", 90, 0)]);
        assert!(judge(&escaped, &baseline).is_err());
        let part = mutants(&[("b", 1, 1), ("d", 90, 0), ("new", 0, 1)]);
        assert!(judge(&part, &baseline).is_ok(), "a part, with a new one that lives");
    }

    #[test]
    fn nine_of_ten_have_to_be_caught() {
        assert!(judge(&mutants(&[("a", 9, 1)]), &Mutants::new()).is_ok());
        assert!(judge(&mutants(&[("a", 89, 11)]), &Mutants::new()).is_err());
    }

    #[test]
    fn a_baseline_reads_as_it_was_written() {
        let all = mutants(&[("a: x", 2, 0), ("b: y", 0, 1)]);
        let text = document(&all, "cargo-mutants 1").expect("rustc and git").to_string();
        let file = std::env::temp_dir().join(format!("pagewise-mutants-{}", std::process::id()));
        fs::write(&file, text).expect("room");
        let read = read_baseline(&file);
        fs::remove_file(&file).expect("written above");
        assert_eq!(read, Ok(all));
    }
}
