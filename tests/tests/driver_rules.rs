//! Rules of the driver: `docs/driver` holds them, comments cite them, recordings show them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The documents, each with what its ids begin with.
const DOCUMENTS: [(&str, &str); 4] = [
    ("docs/driver/paging.md", "PAGING"),
    (EVICTION, "EVICTION"),
    ("docs/driver/contract.md", "CONTRACT"),
    ("docs/driver/timing.md", "TIMING"),
];

/// The document of rules that nothing recorded shows. Each names the tests that hold the simulator
/// to it, or says how the simulator differs.
const EVICTION: &str = "docs/driver/eviction.md";

/// The words of a rule that no recording can tell from its opposite.
const UNRECORDED: &str = "nothing recorded";

/// A line of a recording that shows a rule.
#[derive(Debug, PartialEq, Eq)]
struct Evidence {
    recording: String,
    line: usize,
    op: String,
    quoted: Vec<String>,
}

/// A rule of a document.
#[derive(Debug)]
struct Rule {
    id: String,
    shown_by: Vec<String>,
    /// Lines that name a function of the published driver, or any other source.
    sources: usize,
    /// Lines that say how the simulator does it.
    simulator: Vec<String>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rules of a document, in its order.
fn rules_of(text: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            let id = heading.split(' ').next().unwrap_or_default().to_owned();
            let (shown_by, simulator) = (Vec::new(), Vec::new());
            rules.push(Rule { id, shown_by, sources: 0, simulator });
        } else if line.starts_with("## ") {
            continue;
        } else if let Some(rule) = rules.last_mut() {
            if let Some(shown_by) = line.strip_prefix("- Shown by: ") {
                rule.shown_by.push(shown_by.to_owned());
            }
            if let Some(simulator) = line.strip_prefix("- Simulator: ") {
                rule.simulator.push(simulator.to_owned());
            }
            rule.sources += usize::from(line.starts_with("- Driver: "));
            rule.sources += usize::from(line.starts_with("- Source: "));
        }
    }
    rules
}

fn all_rules() -> Vec<Rule> {
    let texts = DOCUMENTS.iter().map(|(path, _)| read(&repository().join(path)));
    texts.flat_map(|text| rules_of(&text)).collect()
}

/// The texts between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Reads "`recording:line` `operation` `quoted`; …".
fn evidence_of(shown_by: &str) -> Result<Vec<Evidence>, String> {
    if shown_by == UNRECORDED {
        return Ok(Vec::new());
    }
    let items = shown_by.split("; ").map(|item| {
        let mut parts = quoted(item).into_iter();
        let (place, op) = (parts.next(), parts.next());
        let (Some(place), Some(op)) = (place, op) else {
            return Err(format!("`{item}` names no line and operation"));
        };
        let (recording, line) =
            place.split_once(':').ok_or(format!("`{place}` is no line of a recording"))?;
        let line = line.parse().map_err(|_| format!("`{place}` is no line of a recording"))?;
        Ok(Evidence { recording: recording.to_owned(), line, op, quoted: parts.collect() })
    });
    items.collect()
}

/// The lines of the recordings, read when they are asked for.
#[derive(Default)]
struct Recordings(BTreeMap<String, Option<Vec<String>>>);

impl Recordings {
    fn lines(&mut self, name: &str) -> Option<&[String]> {
        let read = || {
            let path = recording_path(name);
            let bytes = zstd::decode_all(fs::File::open(path).ok()?).ok()?;
            Some(String::from_utf8(bytes).ok()?.lines().map(str::to_owned).collect())
        };
        self.0.entry(name.to_owned()).or_insert_with(read).as_deref()
    }

    /// The reason why a line does not show what a rule says it shows, if there is one.
    fn objection(&mut self, evidence: &Evidence) -> Option<String> {
        let Evidence { recording, line, op, quoted } = evidence;
        let Some(lines) = self.lines(recording) else {
            return Some(format!("there is no recording `{recording}`"));
        };
        let Some(text) = line.checked_sub(1).and_then(|index| lines.get(index)) else {
            return Some(format!("`{recording}` has no line {line}"));
        };
        let operation: Value = serde_json::from_str(text).unwrap_or_default();
        if operation["op"] != **op {
            return Some(format!("`{recording}:{line}` is no `{op}`"));
        }
        let missing = quoted.iter().find(|quoted| !text.contains(quoted.as_str()))?;
        Some(format!("`{recording}:{line}` does not contain `{missing}`"))
    }
}

fn recording_path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/traces/h200-580");
    folder.join(format!("{name}.jsonl.zst"))
}

/// Every source and document of the repository, build outputs excepted.
fn texts() -> Vec<(PathBuf, String)> {
    const FOLDERS: [&str; 7] = ["crates", "tests", "xtask", "fuzz", "benches", "examples", "docs"];
    const FILES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let mut found = FILES.map(|file| repository().join(file)).to_vec();
    let mut folders = FOLDERS.map(|folder| repository().join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry"))
        {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|end| ["rs", "toml", "md"].iter().any(|e| end == *e))
            {
                found.push(path);
            }
        }
    }
    found.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// Ids of rules that a text names.
fn ids_in(text: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for (_, prefix) in DOCUMENTS {
        let prefix = format!("{prefix}-");
        for (at, _) in text.match_indices(&prefix) {
            let digits: String =
                text[at + prefix.len()..].chars().take_while(char::is_ascii_digit).collect();
            if !digits.is_empty() {
                ids.insert(format!("{prefix}{digits}"));
            }
        }
    }
    ids
}

/// The text without line ends and the marks of comments, so that a phrase is found across lines.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches(['/', '!', '#']).trim());
    lines.collect::<Vec<_>>().join(" ")
}

/// Names after "recording" or "recordings": "`a`", or "`a`, `b` and `c`".
fn recordings_in(text: &str) -> BTreeSet<String> {
    let text = joined(text);
    let mut names = BTreeSet::new();
    for introduction in ["recording `", "recordings `"] {
        for (at, _) in text.match_indices(introduction) {
            let mut rest = &text[at + introduction.len() - 1..];
            while let Some((name, after)) = rest.strip_prefix('`').and_then(|r| r.split_once('`')) {
                // A block of code after the word begins with three of them, and names none.
                if !name.is_empty() {
                    names.insert(name.to_owned());
                }
                rest = [", ", " and "].iter().find_map(|s| after.strip_prefix(s)).unwrap_or("");
            }
        }
    }
    names
}

/// The anchor of a heading, as Markdown viewers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[test]
fn every_rule_has_an_id_of_its_own_that_names_its_document() {
    let mut seen = BTreeSet::new();
    for (path, prefix) in DOCUMENTS {
        let rules = rules_of(&read(&repository().join(path)));
        assert!(rules.len() > 10, "{path}: {} rules were found", rules.len());
        for Rule { id, .. } in rules {
            let number = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
            let number = number.and_then(|number| number.parse::<u32>().ok());
            assert!(number.is_some(), "{path}: `{id}` is no id of this document");
            assert!(seen.insert(id.clone()), "{path}: {id} stands twice");
        }
    }
}

#[test]
fn every_rule_says_what_shows_it_or_names_a_source() {
    for Rule { id, shown_by, sources, .. } in all_rules() {
        let [shown_by] = &shown_by[..] else {
            panic!("{id} has {} lines `Shown by`", shown_by.len());
        };
        assert!(shown_by != UNRECORDED || sources > 0, "{id} has no evidence and no source");
    }
}

#[test]
fn every_rule_of_eviction_names_a_test_or_says_how_the_simulator_differs() {
    let is_rust = |path: &Path| path.extension().is_some_and(|end| end == "rs");
    let sources = texts().into_iter().filter(|(path, _)| is_rust(path));
    let sources: Vec<String> = sources.map(|(_, text)| text.replace("\n    ", "\n")).collect();
    let is_test = |name: &str| {
        let test = format!("#[test]\nfn {name}()");
        sources.iter().any(|text| text.contains(&test))
    };
    let mut tests = 0;
    for Rule { id, simulator, .. } in rules_of(&read(&repository().join(EVICTION))) {
        let [line] = &simulator[..] else { panic!("{id}: {} lines `Simulator`", simulator.len()) };
        for name in quoted(line) {
            assert!(is_test(&name), "{id}: there is no test `{name}`");
            tests += 1;
        }
        assert!(line.contains("differs: ") || line.contains('`'), "{id} names no test");
    }
    assert!(tests > 30, "{tests} tests are named");
}

#[test]
fn every_line_that_a_rule_names_holds_the_operation_and_what_is_quoted() {
    let mut recordings = Recordings::default();
    let mut lines = 0;
    for Rule { id, shown_by, .. } in all_rules() {
        for shown_by in &shown_by {
            let evidence = evidence_of(shown_by).unwrap_or_else(|why| panic!("{id}: {why}"));
            for evidence in &evidence {
                assert_eq!(recordings.objection(evidence), None, "{id}");
            }
            lines += evidence.len();
        }
    }
    assert!(lines > 150, "{lines} lines were found");
}

#[test]
fn every_id_that_is_cited_is_a_rule() {
    let rules: BTreeSet<String> = all_rules().into_iter().map(|rule| rule.id).collect();
    let mut cited = BTreeSet::new();
    for (path, text) in texts() {
        for id in ids_in(&text) {
            assert!(rules.contains(&id), "{}: there is no rule {id}", path.display());
            if path.extension().is_some_and(|end| end == "rs") {
                cited.insert(id);
            }
        }
    }
    assert!(cited.len() > 80, "code cites {} rules", cited.len());
}

#[test]
fn every_recording_that_a_comment_names_exists() {
    for (path, text) in texts() {
        if path.ends_with(Path::new(file!()).file_name().expect("a name")) {
            continue;
        }
        for name in recordings_in(&text) {
            assert!(recording_path(&name).exists(), "{}: recording `{name}`", path.display());
        }
    }
}

#[test]
fn links_between_rules_lead_to_a_heading() {
    for (path, _) in DOCUMENTS {
        let text = read(&repository().join(path));
        let headings = text.lines().filter_map(|line| line.split_once("# ")).map(|(_, rest)| rest);
        let anchors: BTreeSet<String> = headings.map(anchor).collect();
        for (at, _) in text.match_indices("](#") {
            let link = text[at + 3..].split(')').next().unwrap_or_default();
            assert!(anchors.contains(link), "{path}: #{link}");
        }
    }
}

#[test]
fn evidence_that_does_not_hold_is_found() {
    let mut recordings = Recordings::default();
    let mut why = |shown_by: &str| match evidence_of(shown_by) {
        Ok(evidence) => evidence.iter().find_map(|evidence| recordings.objection(evidence)),
        Err(why) => Some(why),
    };
    assert_eq!(why("`rules:3` `alloc_managed` `\"buf\":0`"), None);
    assert_eq!(why(UNRECORDED), None);
    assert!(why("`rules:3` `free`").expect("a wrong operation").contains("no `free`"));
    assert!(why("`rules:2` `free`").expect("a case is no operation").contains("no `free`"));
    assert!(why("`rules:3` `alloc_managed` `\"buf\":7`").expect("a quotation").contains("contain"));
    assert!(why("`rules:100000` `free`").expect("a line").contains("no line"));
    assert!(why("`rules:0` `free`").expect("a line").contains("no line"));
    assert!(why("`none:3` `free`").expect("a recording").contains("no recording"));
    assert!(why("`rules` `free`").is_some() && why("`rules:3`").is_some());
    assert!(why("`rules:3` `alloc_managed`; `rules:3` `free`").is_some());
}

#[test]
fn ids_and_recordings_are_found_across_lines_of_comments() {
    let text =
        "//! see recordings `small`,\n//! `advise` and `thrash`, `1`: recording\n/// `rules`.";
    let names: Vec<String> = recordings_in(text).into_iter().collect();
    assert_eq!(names, ["1", "advise", "rules", "small", "thrash"]);
    let text = ["PAGING", "-7 to ", "TIMING", "-12, ", "PAGING", "-x"].concat();
    let expected = [("PAGING", 7), ("TIMING", 12)].map(|(prefix, n)| format!("{prefix}-{n}"));
    assert_eq!(ids_in(&text), BTreeSet::from(expected));
}
