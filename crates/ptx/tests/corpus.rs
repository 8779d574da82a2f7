//! The kernels of `tests/corpus`, against what an H200 made of them.

mod harness;

use std::collections::BTreeMap;

use harness::case::{self, Buffer, Case, Expected};
use harness::outcome::{self, Outcome};
use pagewise_ptx::execute::Config;

type Results = BTreeMap<String, Vec<u8>>;

/// Runs every case and panics with all that differ.
fn compare_all(config: &Config, waits: bool, choose: impl Fn(&Case) -> bool) {
    let mut wrong = Vec::new();
    for (case, expected, results) in case::all().into_iter().filter(|(case, ..)| choose(case)) {
        let difference = match outcome::run(&case, config, waits) {
            Ok(outcome) => compare(&case, &expected, &results, &outcome),
            Err(error) => Some(error),
        };
        wrong.extend(difference.map(|text| format!("{}: {text}", case.name)));
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The first difference from the H200.
fn compare(
    case: &Case,
    expected: &Expected,
    results: &Results,
    outcome: &Outcome,
) -> Option<String> {
    if outcome.status != expected.status {
        let report = outcome.report.as_ref().map(ToString::to_string).unwrap_or_default();
        return Some(format!("status {}, not {}: {report}", outcome.status, expected.status));
    }
    for buffer in case.buffers.iter().filter(|buffer| buffer.result && !case.fails) {
        let (mine, theirs) = (&outcome.results[&buffer.name], &results[&buffer.name]);
        if let Some(text) = compare_buffer(buffer, mine, theirs) {
            return Some(format!("{} of {}", text, buffer.name));
        }
    }
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if case.stdout.as_deref() == Some("sorted") {
            lines.sort_unstable();
        }
        lines
    };
    let (mine, theirs) = (lines(&outcome.printed), lines(&expected.stdout));
    let differ = case.stdout.is_some() && mine != theirs;
    differ.then(|| format!("prints {mine:#?}, not {theirs:#?}"))
}

/// The first elements that differ, and how many do.
fn compare_buffer(buffer: &Buffer, mine: &[u8], theirs: &[u8]) -> Option<String> {
    let size = case::element_bytes(&buffer.kind);
    let pairs = mine.chunks_exact(size).zip(theirs.chunks_exact(size)).enumerate();
    let wrong: Vec<_> = pairs.filter(|(_, (a, b))| !agree(buffer, a, b)).collect();
    let (index, (a, b)) = wrong.first()?;
    let text = |bytes: &[u8]| bytes.iter().rev().map(|b| format!("{b:02x}")).collect::<String>();
    Some(format!(
        "{} of {} elements differ; {index} is {}, not {}",
        wrong.len(),
        theirs.len() / size,
        text(a),
        text(b)
    ))
}

/// Whether an element is the H200's, or near enough where approximate instructions made it.
fn agree(buffer: &Buffer, mine: &[u8], theirs: &[u8]) -> bool {
    let Some(bound) = buffer.near else { return mine == theirs };
    let number = |bytes: &[u8]| match bytes.len() {
        4 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        _ => f64::from_le_bytes(bytes.try_into().unwrap()),
    };
    let (mine, theirs) = (number(mine), number(theirs));
    mine == theirs || (mine - theirs).abs() <= bound * theirs.abs().max(1.0)
}

#[test]
fn kernels_leave_the_bytes_that_an_h200_leaves() {
    compare_all(&Config::default(), false, |_| true);
}

#[test]
fn accesses_that_wait_for_pages_change_no_result() {
    compare_all(&Config::default(), true, |case| !case.name.ends_with("@nvrtc"));
}

#[test]
fn the_order_of_blocks_and_warps_changes_no_result() {
    for (seed, quantum, sms) in [(1, 1, 2), (2, 7, 1), (3, 64, 132)] {
        let config = Config { seed, quantum, sms, ..Config::default() };
        compare_all(&config, false, |case| !case.name.ends_with("@nvrtc"));
    }
}

/// The fields that the corpus is from, each with its files.
const FIELDS: [(&str, &[&str]); 18] = [
    ("reductions", &["reduce", "linear"]),
    ("scans", &["scan", "compact"]),
    ("sorts", &["sort"]),
    ("hash tables", &["hash"]),
    ("stencils and images", &["stencil", "image", "life"]),
    ("products of matrices", &["gemm", "matrix_80", "sparse", "transpose"]),
    ("graphs", &["graph"]),
    ("histograms with atomics", &["histogram", "atomics"]),
    ("cooperative groups", &["groups"]),
    ("locks", &["locks"]),
    ("printf and failures", &["print", "failures"]),
    ("calls and recursion", &["calls", "functions", "dynamic"]),
    ("CUB and Thrust", &["cub", "thrust"]),
    ("random numbers and simulations", &["random", "simulate", "fractal", "transform"]),
    ("number formats", &["bits", "doubles", "floats", "halves", "bfloats_80", "standard"]),
    ("text and cryptography", &["text", "crypto"]),
    ("warps and asynchronous copies", &["votes", "votes_80", "async_80"]),
    ("memory", &["variables", "vector", "heap"]),
];

#[test]
fn the_corpus_has_kernels_of_every_field() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/ptx");
    let kernels = |file: &str| {
        let text = std::fs::read_to_string(folder.join(file).with_extension("ptx")).unwrap();
        text.lines().filter(|line| line.contains(".entry ")).count()
    };
    let mut files = 0;
    for (field, names) in FIELDS {
        let count: usize = names.iter().map(|name| kernels(name)).sum();
        assert!(count >= 2, "{field}: {count} kernels");
        println!("| {field} | {count} |");
        files += names.len();
    }
    let entries = std::fs::read_dir(&folder).unwrap();
    let is_ptx = |path: &std::path::Path| path.extension().is_some_and(|one| one == "ptx");
    let all = entries.filter(|entry| is_ptx(&entry.as_ref().unwrap().path())).count();
    assert_eq!(files, all, "each file is in one field");
}
