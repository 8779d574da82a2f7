//! Hostile C programs: nothing panics, and a refused call changes nothing.

use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_driver::{
    pagewise_driver_panics, pagewise_driver_reset, pagewise_driver_state, pagewise_driver_wait,
};
use pagewise_fuzz::c_abi::{Caller, entry_points};
use pagewise_fuzz::unchanged::Snapshot;
use pagewise_fuzz::{Choices, Log};
use pagewise_hal::{DevicePtr, Span};

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

/// Starts over, with all memory accessible to the tests.
fn reset(options: &str) {
    let text = CString::new(format!("host_faults=declared {options}")).expect("no NUL");
    // SAFETY: the text is NUL-terminated. The machine that is replaced is not used any more.
    assert_eq!(unsafe { pagewise_driver_reset(text.as_ptr()) }, 0);
}

fn snapshot(caller: &Caller<'_, '_>) -> Snapshot {
    let live = caller.world().live().iter();
    let spans = live.map(|memory| Span::new(DevicePtr(memory.ptr), memory.bytes as u64));
    // SAFETY: the spans are live memory at addresses of this process, and only this thread uses
    // them.
    unsafe { Snapshot::new(state(), spans) }
}

fn refusals_change_nothing(options: &str, seed: u64, rounds: u64, log: &mut Log) {
    reset(options);
    for round in 0..rounds {
        let bytes = Choices::bytes_of(seed, round, 4096);
        let mut choices = Choices::new(&bytes);
        let mut caller = Caller::new(&mut choices);
        while !caller.is_done() {
            caller.prepare();
            // Functions of the host run on a thread of their own, and work waits behind them.
            assert_eq!(pagewise_driver_wait(), 0);
            let (before, places) = (snapshot(&caller), caller.world().places().to_vec());
            let (symbol, code) = caller.call(log);
            if code == 0 {
                continue;
            }
            let what = || format!("{symbol} answered {code} in round {round} of {options:?}");
            before.assert_same(&snapshot(&caller), symbol, what);
            // A look-up that finds nothing stores a null pointer, and a text that does not fit is cut.
            let stores =
                ["cuGetProcAddress", "cuGetErrorName", "cuGetErrorString", "cuDeviceGetPCIBusId"];
            if !stores.contains(&symbol) {
                assert_eq!(places, caller.world().places(), "{}", what());
            }
        }
    }
}

/// The tests of this file share the machine of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Takes the machine, also after a test that failed.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn hostile_calls_of_every_entry_point_are_answered_and_refusals_change_nothing() {
    let _alone = alone();
    let called: BTreeSet<&str> = entry_points().collect();
    let all: BTreeSet<&str> =
        pagewise_driver::entry_points().map(|(_, _, symbol)| symbol).collect();
    assert!(called.is_subset(&all), "attacks are of entry points that are implemented");
    let mut log = Log::default();
    refusals_change_nothing("", 7, 32, &mut log);
    refusals_change_nothing("", 11, 8, &mut log);
    refusals_change_nothing("devices=2", 2, 2, &mut log);
    refusals_change_nothing("profile=wsl", 3, 2, &mut log);
    refusals_change_nothing("version=12.0", 4, 2, &mut log);
    println!("{}", log.tally());
    for symbol in called {
        let succeeded = log.tally().count(symbol, 0) > 0;
        match symbol {
            // Processes share memory, and there is one: handles of device memory open nowhere.
            "cuIpcOpenMemHandle_v2" | "cuIpcCloseMemHandle" | "cuIpcOpenEventHandle" => {
                assert!(!succeeded, "{symbol}");
            }
            // Take a context of each of two devices.
            "cuCtxEnablePeerAccess" | "cuCtxDisablePeerAccess" | "cuDeviceGetP2PAttribute" => {}
            // Take three and four calls that fit together, which few rounds happen to make.
            "cuMemPoolExportPointer" | "cuMemPoolImportPointer" => {}
            _ => assert!(succeeded, "{symbol} was always refused"),
        }
    }
    assert_eq!(pagewise_driver_panics(), 0);
}

/// Entry points that answer without a machine, or find one that answers.
const ALWAYS_THERE: [&str; 4] =
    ["cuGetErrorName", "cuGetErrorString", "cuGetProcAddress", "cuGetProcAddress_v2"];

/// Entry points that check some arguments before anything else, as driver 580 does: see
/// `tests/order.rs` of the simulated driver.
const LOOKS_FIRST: [&str; 21] = [
    "cuDriverGetVersion",
    "cuCtxGetDevice",
    "cuDeviceGetAttribute",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuMemAllocManaged",
    "cuMemDiscardAndPrefetchBatchAsync",
    "cuMemDiscardBatchAsync",
    "cuMemPrefetchBatchAsync",
    "cuMemcpyBatchAsync",
    "cuMemcpyBatchAsync_v2",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamGetCtx",
    "cuStreamGetCtx_v2",
];

#[test]
fn before_cu_init_every_entry_point_says_so_unless_it_looks_at_arguments_first() {
    let _alone = alone();
    reset("");
    let mut log = Log::default();
    for round in 0..20 {
        let bytes = Choices::bytes_of(5, round, 8192);
        let mut choices = Choices::new(&bytes);
        for (symbol, code) in Caller::without_start(&mut choices).call_each(&mut log) {
            if ALWAYS_THERE.contains(&symbol) {
                continue;
            }
            let refused_first = [1, 400].contains(&code) && LOOKS_FIRST.contains(&symbol);
            let answered = code == 0 && symbol == "cuDriverGetVersion";
            assert!(code == 3 || refused_first || answered, "{symbol} answered {code}");
        }
    }
}

#[test]
fn an_entry_point_that_the_driver_lacks_is_not_supported_whatever_its_arguments() {
    let _alone = alone();
    let bytes = Choices::bytes_of(6, 0, 8192);
    for (name, since, hidden) in pagewise_driver::entry_points() {
        let is_written = entry_points().any(|symbol| symbol == hidden);
        if ALWAYS_THERE.contains(&hidden) || hidden == "cuInit" || !is_written {
            continue;
        }
        reset(&format!("hide={name}@{since}"));
        let mut choices = Choices::new(&bytes);
        let answers = Caller::new(&mut choices).call_each(&mut Log::default());
        let code = answers.iter().find(|(symbol, _)| *symbol == hidden).expect("called").1;
        assert_eq!(code, 801, "{hidden}");
    }
}
