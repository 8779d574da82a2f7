//! Hostile calls of every symbol that the simulated driver exports, by signature.

use std::collections::BTreeSet;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pagewise_driver::{
    pagewise_driver_panics, pagewise_driver_reset, pagewise_driver_state, pagewise_driver_wait,
};
use pagewise_fuzz::c_abi::{Caller, entry_points, unwritten};
use pagewise_fuzz::campaign::{Plan, Turn};
use pagewise_fuzz::{Choices, Log};

/// The tests of this file share the machine of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Takes the machine, also after a test that failed, and makes a new one.
fn alone(options: &str) -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    reset(options);
    guard
}

fn reset(options: &str) {
    let text = CString::new(format!("log=off {options}")).expect("no NUL");
    // SAFETY: the text is NUL-terminated. The machine that is replaced is not used any more.
    assert_eq!(unsafe { pagewise_driver_reset(text.as_ptr()) }, 0);
}

/// The machine's state: see `SimBackend::state`.
fn state() -> String {
    unsafe extern "C" fn copy(context: *mut c_void, text: *const u8, bytes: usize) {
        // SAFETY: the driver calls this with the vector that `state` passes it, and with a text of
        // `bytes` bytes.
        unsafe {
            let text = std::slice::from_raw_parts(text, bytes);
            (*context.cast::<Vec<u8>>()).extend_from_slice(text);
        }
    }
    let mut text = Vec::new();
    // SAFETY: `copy` asks for a vector as its context, and this one outlives the call.
    assert_eq!(unsafe { pagewise_driver_state(copy, (&raw mut text).cast()) }, 0);
    String::from_utf8(text).expect("text")
}

#[test]
fn every_exported_symbol_is_called() {
    let called: BTreeSet<&str> = entry_points().chain(unwritten()).collect();
    assert_eq!(called, pagewise_driver::symbols().collect());
}

#[test]
fn eight_threads_call_every_symbol_and_resident_memory_stays_flat() {
    let _alone = alone("");
    let target = pagewise_fuzz::target("symbols").expect("the target exists");
    let call_limit = Duration::from_secs(60);
    let plan = Plan { calls: 60_000, threads: 8, seed: 17, call_limit, progress: None };
    let turn = Turn::take();
    let outcome = turn.run(target, plan);
    assert_eq!(outcome.failure(), None, "{outcome}");
    for symbol in unwritten() {
        assert!(outcome.tally.calls_of(symbol) > 0, "{symbol} was never called");
    }
}

/// The answers of all calls of a seed.
fn answers(seed: u64, rounds: u64) -> Vec<(&'static str, c_int)> {
    reset("devices=2");
    let (mut answers, mut log) = (Vec::new(), Log::default());
    for round in 0..rounds {
        let bytes = Choices::bytes_of(seed, round, 8192);
        let mut choices = Choices::new(&bytes);
        let mut caller = Caller::new(&mut choices);
        while !caller.is_done() {
            caller.prepare();
            // Functions of the host run on a thread of their own.
            assert_eq!(pagewise_driver_wait(), 0);
            answers.push(caller.call_any(&mut log));
        }
    }
    answers
}

#[test]
fn a_seed_gives_the_same_results_each_time_on_one_thread() {
    let _alone = alone("");
    let first = answers(23, 12);
    assert!(first.len() > 1000, "{} calls", first.len());
    let second = answers(23, 12);
    let differs = (0..first.len()).find(|&at| second.get(at) != Some(&first[at]));
    assert_eq!(differs.map(|at| (at, first[at], second.get(at))), None);
    assert_eq!(second.len(), first.len());
    assert_eq!(pagewise_driver_panics(), 0);
}

#[test]
fn a_refused_call_of_any_symbol_changes_nothing() {
    // A call reads its lists first: with real faults of the host, lists in managed memory move.
    let _alone = alone("host_faults=declared");
    let mut log = Log::default();
    for round in 0..12 {
        let bytes = Choices::bytes_of(29, round, 4096);
        let mut choices = Choices::new(&bytes);
        let mut caller = Caller::new(&mut choices);
        while !caller.is_done() {
            caller.prepare();
            assert_eq!(pagewise_driver_wait(), 0);
            let before = state();
            let (symbol, code) = caller.call_any(&mut log);
            // A batch of copies ends at the first bad one (CONTRACT-105).
            let may_change = code == 0 || symbol.starts_with("cuMemcpyBatchAsync");
            assert!(
                may_change || state() == before,
                "{symbol} answered {code} and changed something"
            );
        }
    }
}

#[test]
fn before_cu_init_no_symbol_succeeds_that_is_called_by_its_signature() {
    let _alone = alone("");
    let mut log = Log::default();
    for round in 0..4 {
        let bytes = Choices::bytes_of(31, round, 65536);
        let mut choices = Choices::new(&bytes);
        for (symbol, code) in Caller::without_start(&mut choices).call_each_symbol(&mut log) {
            assert_ne!(code, 0, "{symbol}");
        }
    }
}
