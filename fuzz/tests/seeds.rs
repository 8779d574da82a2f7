//! Every target, for seconds: on the files of its corpus and a few fixed seeds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use pagewise_fuzz::campaign::{self, Plan, Turn};
use pagewise_fuzz::{Choices, TARGETS, Tally, Target};

/// Calls of one target in these tests.
const CALLS: u64 = 20_000;
const SEED: u64 = 13;

fn attacked_with_seeds(turn: &Turn, name: &str, calls: u64) -> Tally {
    let target: &'static Target = pagewise_fuzz::target(name).expect("the target exists");
    let call_limit = Duration::from_secs(60);
    let plan = Plan { calls, threads: 2, seed: SEED, call_limit, progress: None };
    let outcome = turn.run(target, plan);
    assert!(outcome.tally.calls() >= calls);
    assert_eq!(outcome.failure(), None, "{outcome}");
    outcome.tally
}

#[test]
fn hostile_calls_of_the_back_end_come_back_with_an_answer() {
    let turn = Turn::take();
    let tally = attacked_with_seeds(&turn, "hal", 8 * CALLS);
    for name in ["prefetch", "memset", "memcpy", "device_touch", "pool_alloc", "discard_batch"] {
        assert!(tally.count(name, 0) > 10, "some succeed: {tally}");
    }
}

/// The round imports memory of the pool that it exported, and frees it through both pointers.
#[test]
fn a_round_that_imports_its_own_memory_frees_it_all() {
    let target = pagewise_fuzz::target("hal").expect("the target exists");
    let tally = campaign::round(target, &Choices::bytes_of(2, 3133, target.round_bytes));
    assert!(tally.count("pool_import_pointer", 0) > 0, "{tally}");
}

#[test]
fn hostile_calls_of_the_c_entry_points_come_back_with_an_answer() {
    let turn = Turn::take();
    let tally = attacked_with_seeds(&turn, "c_abi", 2 * CALLS);
    for name in ["cuMemPrefetchAsync_v2", "cuMemsetD8Async", "cuLaunchKernel", "cuMemFree_v2"] {
        assert!(tally.count(name, 0) > 10, "some succeed: {tally}");
    }
}

#[test]
fn hostile_calls_of_every_symbol_come_back_with_an_answer() {
    attacked_with_seeds(&Turn::take(), "symbols", 2 * CALLS);
}

#[test]
fn hostile_recordings_are_refused_or_replayed() {
    let turn = Turn::take();
    let tally = attacked_with_seeds(&turn, "trace_reader", CALLS / 10);
    assert!(tally.calls_of("replay") > 100, "some are replayed: {tally}");
}

#[test]
fn hostile_profiles_are_refused_or_make_a_machine() {
    let turn = Turn::take();
    let tally = attacked_with_seeds(&turn, "profile_reader", CALLS / 20);
    assert!(tally.count("use", 0) > 10, "some are taken: {tally}");
}

#[test]
fn after_failures_of_the_back_end_contents_are_intact_and_nothing_is_lost() {
    let turn = Turn::take();
    let tally = attacked_with_seeds(&turn, "api", CALLS / 4);
    assert!(tally.count("write", 2) > 0, "some fail: {tally}");
}

/// Attacks with each file of the target's corpus. A panic names the file.
fn attacked_with_corpus(name: &str) {
    let target = pagewise_fuzz::target(name).expect("the target exists");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let files = fs::read_dir(&folder);
    let files = files.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut calls = 0;
    let turn = Turn::take();
    for file in files.flatten() {
        let bytes = fs::read(file.path()).expect("the file can be read");
        println!("{}", file.path().display());
        calls += turn.round(target, &bytes).calls();
    }
    assert!(calls > 0, "{name} has a corpus that calls something");
}

#[test]
fn the_corpus_of_the_back_end_is_answered() {
    attacked_with_corpus("hal");
}

#[test]
fn the_corpus_of_the_c_entry_points_is_answered() {
    attacked_with_corpus("c_abi");
}

#[test]
fn the_corpus_of_every_symbol_is_answered() {
    attacked_with_corpus("symbols");
}

#[test]
fn the_corpus_of_recordings_is_refused_or_replayed() {
    attacked_with_corpus("trace_reader");
}

#[test]
fn the_corpus_of_profiles_is_refused_or_makes_a_machine() {
    attacked_with_corpus("profile_reader");
}

#[test]
fn the_corpus_of_the_api_leaves_contents_intact() {
    attacked_with_corpus("api");
}

#[test]
fn every_target_has_a_corpus_of_small_files() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders: Vec<_> = fs::read_dir(&corpus).expect("the corpus").flatten().collect();
    assert_eq!(folders.len(), TARGETS.len(), "a folder for each target");
    let mut bytes = 0;
    for target in TARGETS {
        let files: Vec<_> = fs::read_dir(corpus.join(target.name)).expect("a folder").collect();
        assert!((1..=300).contains(&files.len()), "{} has {} files", target.name, files.len());
        let length = |file: std::io::Result<fs::DirEntry>| file.expect("a file").metadata();
        bytes += files.into_iter().map(|file| length(file).expect("a length").len()).sum::<u64>();
    }
    assert!(bytes < 1 << 20, "the corpus has {bytes} bytes");
}
