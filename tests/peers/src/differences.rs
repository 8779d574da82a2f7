//! The list of documented differences, and the count of those that occur.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The comparison of one scenario with its peer.
pub(crate) struct Compared {
    /// The steps that were compared.
    pub(crate) steps: u64,
    /// The ids of the documented differences that occurred.
    pub(crate) listed: Vec<&'static str>,
    /// The difference that no rule explains, if there is one.
    pub(crate) unexplained: Option<String>,
}

/// A difference that is on purpose.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    peer: String,
    id: String,
    /// The reason of the difference.
    reason: String,
    /// The document that compares the two.
    document: String,
    /// The first cell of the row there that says so.
    row: String,
}

#[derive(Deserialize)]
struct List {
    difference: Vec<Difference>,
}

/// The differences of one peer, by id. Each has a reason, and a row in a document.
pub(crate) fn listed(peer: &str) -> Result<Vec<String>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let text = read(&folder.join("differences.toml"))?;
    let all = parsed(&text)?;
    for one in &all {
        let document = read(&folder.join("../..").join(&one.document))?;
        check(one, &document)?;
    }
    Ok(all.into_iter().filter(|one| one.peer == peer).map(|one| one.id).collect())
}

fn parsed(text: &str) -> Result<Vec<Difference>, String> {
    let list: List = toml::from_str(text).map_err(|error| format!("differences.toml: {error}"))?;
    Ok(list.difference)
}

/// A listed difference has a reason, and the document has its row.
fn check(one: &Difference, document: &str) -> Result<(), String> {
    if one.reason.trim().is_empty() {
        return Err(format!("differences.toml: {} has no reason", one.id));
    }
    let start = format!("| {} |", one.row);
    if !document.lines().any(|line| line.starts_with(&start)) {
        return Err(format!(
            "differences.toml: {} names the row {:?}, which {} lacks",
            one.id, one.row, one.document
        ));
    }
    Ok(())
}

/// The count of all scenarios of a peer.
pub(crate) struct Tally {
    /// The ids that are listed, each with the number of scenarios that it occurred in.
    listed: BTreeMap<String, u64>,
    scenarios: u64,
    steps: u64,
    failures: Vec<String>,
}

/// The most failures that are reported.
const REPORTED: usize = 5;

impl Tally {
    pub(crate) fn new(listed: Vec<String>) -> Self {
        let listed = listed.into_iter().map(|id| (id, 0)).collect();
        Self { listed, scenarios: 0, steps: 0, failures: Vec::new() }
    }

    pub(crate) fn add(&mut self, compared: Compared) {
        self.scenarios += 1;
        self.steps += compared.steps;
        for id in compared.listed {
            match self.listed.get_mut(id) {
                Some(count) => *count += 1,
                None => self.failures.push(format!("difference {id:?} is not listed")),
            }
        }
        self.failures.extend(compared.unexplained);
    }

    /// The numbers for people; an error for differences that are not listed, and for those that are
    /// and did not occur.
    pub(crate) fn finish(mut self) -> Result<String, String> {
        if self.scenarios == 0 {
            return Err("there were no scenarios".to_owned());
        }
        let idle = self.listed.iter().filter(|(_, count)| **count == 0);
        let idle = idle.map(|(id, _)| format!("difference {id:?} is listed and never occurs"));
        self.failures.extend(idle.collect::<Vec<_>>());
        if !self.failures.is_empty() {
            let more = self.failures.len().saturating_sub(REPORTED);
            self.failures.truncate(REPORTED);
            let failures = self.failures.join("\n");
            return Err(format!("{failures}\nand {more} more of {} scenarios", self.scenarios));
        }
        let listed: Vec<_> =
            self.listed.iter().map(|(id, count)| format!("{id} in {count}")).collect();
        Ok(format!(
            "{} scenarios of {} steps agree; documented differences: {}",
            self.scenarios,
            self.steps,
            listed.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(listed: &[&'static str], unexplained: Option<&str>) -> Compared {
        let unexplained = unexplained.map(str::to_owned);
        Compared { steps: 1, listed: listed.to_vec(), unexplained }
    }

    fn outcome(listed: &[&str], one: Compared) -> Result<String, String> {
        let mut tally = Tally::new(listed.iter().map(|&id| id.to_owned()).collect());
        tally.add(one);
        tally.finish()
    }

    #[test]
    fn a_difference_passes_only_under_a_listed_id() {
        assert!(outcome(&["a"], compared(&["a"], None)).is_ok());
        assert!(outcome(&[], compared(&["a"], None)).unwrap_err().contains("not listed"));
        assert!(outcome(&[], compared(&[], Some("5 for 6"))).unwrap_err().contains("5 for 6"));
    }

    #[test]
    fn a_listed_difference_that_never_occurs_fails() {
        let failure = outcome(&["a", "b"], compared(&["a"], None)).unwrap_err();
        assert!(failure.contains("\"b\" is listed and never occurs"), "{failure}");
    }

    #[test]
    fn no_scenarios_fail() {
        assert!(Tally::new(Vec::new()).finish().is_err());
    }

    #[test]
    fn the_list_names_rows_that_exist() {
        assert!(!listed("cubie").unwrap().is_empty());
        let one = |row: &str, reason: &str| Difference {
            peer: "p".into(),
            id: "i".into(),
            reason: reason.into(),
            document: "d".into(),
            row: row.into(),
        };
        let document = "| their way | our way | test |";
        assert!(check(&one("their way", "better"), document).is_ok());
        assert!(check(&one("their", "better"), document).is_err());
        assert!(check(&one("their way", " "), document).is_err());
    }
}
