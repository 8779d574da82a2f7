//! The baseline: the fate of every mutant at the last run, and the check that none became worse.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::command::{Outcome, output};

/// Percent of the judged mutants that tests have to catch, in each crate.
const CAUGHT_MIN: u64 = 90;

/// The numbers of mutants by their fate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) caught: u64,
    pub(super) missed: u64,
    /// Does not compile.
    pub(super) unviable: u64,
    /// Mutants that could not be planted, so that no test was tried.
    pub(super) unjudged: u64,
}

impl Counts {
    pub(super) const CAUGHT: Self = Self { caught: 1, missed: 0, unviable: 0, unjudged: 0 };
    pub(super) const MISSED: Self = Self { caught: 0, missed: 1, unviable: 0, unjudged: 0 };
    pub(super) const UNVIABLE: Self = Self { caught: 0, missed: 0, unviable: 1, unjudged: 0 };
    pub(super) const UNJUDGED: Self = Self { caught: 0, missed: 0, unviable: 0, unjudged: 1 };
    const KEYS: [&str; 4] = ["caught", "missed", "unviable", "unjudged"];

    fn values(self) -> [u64; 4] {
        [self.caught, self.missed, self.unviable, self.unjudged]
    }

    fn from_values([caught, missed, unviable, unjudged]: [u64; 4]) -> Self {
        Self { caught, missed, unviable, unjudged }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.caught += other.caught;
        self.missed += other.missed;
        self.unviable += other.unviable;
        self.unjudged += other.unjudged;
    }

    fn percent_caught(self) -> f64 {
        100.0 * self.caught as f64 / (self.caught + self.missed).max(1) as f64
    }

    fn is_enough(self) -> bool {
        self.caught * 100 >= (self.caught + self.missed) * CAUGHT_MIN
    }
}

/// Mutants by what they change. Lines are left out, since they move with every edit; a change that
/// a function allows twice counts twice.
pub(super) type Mutants = BTreeMap<String, Counts>;

/// `crates/a.rs:12:30: replace > with >= in f` as `crates/a.rs: replace > with >= in f`.
pub(super) fn without_place(line: &str) -> String {
    let Some((place, change)) = line.split_once(": ") else { return line.to_owned() };
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {change}")
}

fn total<'c>(counts: impl Iterator<Item = &'c Counts>) -> Counts {
    counts.fold(Counts::default(), |mut sum, counts| {
        sum.add(*counts);
        sum
    })
}

/// Prints what was found and says what is wrong with it, if anything is.
pub(super) fn judge(found: &Mutants, baseline: &Mutants) -> Outcome {
    let mut poor = Vec::new();
    for folder in found.keys().map(|name| folder(name)).collect::<BTreeSet<_>>() {
        let mutants = found.iter().filter(|(name, _)| name.starts_with(folder));
        let sum = total(mutants.map(|(_, counts)| counts));
        println!("{folder}: {}", described(sum));
        if !sum.is_enough() {
            poor.push(folder);
        }
    }
    println!("all: {}", described(total(found.values())));
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
    if !poor.is_empty() {
        return Err(format!(
            "fewer than {CAUGHT_MIN} % of the mutants of {} were caught",
            poor.join(", ")
        ));
    }
    Ok(())
}

/// `crates/a/` of `crates/a/src/b.rs: replace ...`.
fn folder(name: &str) -> &str {
    name.find("src/").map_or(name, |end| &name[..end])
}

fn described(sum: Counts) -> String {
    format!(
        "{} mutants caught, {} missed, {} do not compile, {} not judged: {:.1} % caught",
        sum.caught,
        sum.missed,
        sum.unviable,
        sum.unjudged,
        sum.percent_caught()
    )
}

/// Reads a baseline; none is an empty one.
pub(super) fn read(path: &Path) -> Outcome<Mutants> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Mutants::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mutants = document["mutants"].as_object().cloned().unwrap_or_default();
    let counts = |value: &Value| {
        Counts::from_values(Counts::KEYS.map(|key| value[key].as_u64().unwrap_or(0)))
    };
    Ok(mutants.iter().map(|(name, value)| (name.clone(), counts(value))).collect())
}

/// Writes a baseline.
pub(super) fn write(path: &Path, mutants: &Mutants, version: &str) -> Outcome {
    let text = serde_json::to_string_pretty(&document(mutants, version)?);
    let text = text.map_err(|error| error.to_string())? + "\n";
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn document(mutants: &Mutants, version: &str) -> Outcome<Value> {
    let rustc = output(Command::new("rustc").arg("--version"))?;
    let date = output(Command::new("git").args(["show", "--no-patch", "--format=%cs", "HEAD"]))?;
    let sum = total(mutants.values());
    let entry = |(name, counts): (&String, &Counts)| {
        let shown = Counts::KEYS.into_iter().zip(counts.values()).filter(|(_, count)| *count > 0);
        let shown: Map<_, _> = shown.map(|(what, n)| (what.to_owned(), json!(n))).collect();
        (name.clone(), Value::Object(shown))
    };
    Ok(json!({
        "measured": { "commit_date": date.trim(), "cargo_mutants": version, "rustc": rustc.trim() },
        "total": sum.values().iter().sum::<u64>(),
        "caught": sum.caught,
        "missed": sum.missed,
        "unviable": sum.unviable,
        "unjudged": sum.unjudged,
        "mutants": Value::Object(mutants.iter().map(entry).collect()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants(list: &[(&str, u64, u64)]) -> Mutants {
        let entry = |&(name, caught, missed): &(&str, u64, u64)| {
            (name.to_owned(), Counts { caught, missed, ..Counts::default() })
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
        let baseline =
            mutants(&[("m/src/a", 2, 0), ("m/src/b", 1, 1), ("m/src/c", 0, 1), ("m/src/d", 90, 0)]);
        assert!(judge(&baseline, &baseline).is_ok());
        let escaped = mutants(&[("m/src/a", 1, 1), ("m/src/d", 90, 0)]);
        assert!(judge(&escaped, &baseline).is_err());
        let part = mutants(&[("m/src/b", 1, 1), ("m/src/d", 90, 0), ("m/src/new", 0, 1)]);
        assert!(judge(&part, &baseline).is_ok(), "a part, with a new one that lives");
    }

    #[test]
    fn nine_of_ten_have_to_be_caught_in_each_crate() {
        assert!(judge(&mutants(&[("m/src/a", 9, 1)]), &Mutants::new()).is_ok());
        assert!(judge(&mutants(&[("m/src/a", 89, 11)]), &Mutants::new()).is_err());
        let two = mutants(&[("crates/a/src/x", 90, 0), ("crates/b/src/x", 1, 1)]);
        let verdict = judge(&two, &Mutants::new()).expect_err("one of two, in b");
        assert!(verdict.contains("crates/b/") && !verdict.contains("crates/a/"), "{verdict}");
    }

    #[test]
    fn a_baseline_reads_as_it_was_written() {
        let mut all = mutants(&[("a: x", 2, 0), ("b: y", 0, 1)]);
        all.insert("c: z".to_owned(), Counts { unjudged: 3, unviable: 2, ..Counts::default() });
        let file = std::env::temp_dir().join(format!("pagewise-mutants-{}", std::process::id()));
        write(&file, &all, "cargo-mutants 1").expect("room");
        let read = read(&file);
        fs::remove_file(&file).expect("written above");
        assert_eq!(read, Ok(all));
    }
}
