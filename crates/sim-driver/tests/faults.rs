//! Fault plans: which calls of the C entry points fail or take longer.

use std::ffi::{CString, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_driver::*;

const MIB: usize = 1 << 20;
const OUT_OF_MEMORY: c_int = 2;
const LAUNCH_FAILED: c_int = 719;

/// The tests share the driver of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// A driver with these options, on a machine with a current context.
fn driver(options: &str) -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(reset(options), 0, "{options}");
    assert_eq!(cuInit(0), 0);
    let mut context = null_mut();
    // SAFETY: the result goes to a local that outlives the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
    guard
}

fn reset(options: &str) -> c_int {
    let text = CString::new(options).expect("no NUL");
    // SAFETY: the text is NUL-terminated; the tests use nothing of an older machine.
    unsafe { pagewise_driver_reset(text.as_ptr()) }
}

/// A driver with a plan of faults.
fn with_plan(plan: &str) -> MutexGuard<'static, ()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, plan).expect("the plan is written");
    driver(&format!("faults=\"{}\"", path.display()))
}

fn alloc(bytes: usize) -> (c_int, u64) {
    let mut ptr = 0;
    // SAFETY: the result goes to a local that outlives the call.
    (unsafe { cuMemAllocManaged(&raw mut ptr, bytes, 1) }, ptr)
}

fn free(ptr: u64) -> c_int {
    // SAFETY: the tests use the memory no more.
    unsafe { cuMemFree_v2(ptr) }
}

/// A prefetch in the form of CUDA 8.0, to a device or the host (-1).
fn prefetch(ptr: u64, bytes: usize, device: c_int) -> c_int {
    cuMemPrefetchAsync(ptr, bytes, device, null_mut())
}

/// The machine's state as text.
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
fn the_nth_call_of_a_function_fails_and_changes_nothing() {
    let _alone = with_plan(
        "[[fault]]\ncall = 'cuMemAllocManaged'\nnth = 1\ncode = 'CUDA_ERROR_OUT_OF_MEMORY'\n",
    );
    assert_eq!(alloc(MIB).0, 0);
    let before = state();
    assert_eq!(alloc(MIB).0, OUT_OF_MEMORY);
    assert_eq!(state(), before);
    assert_eq!(alloc(MIB).0, 0, "only that one");
}

#[test]
fn a_name_stands_for_all_forms_and_a_symbol_for_one() {
    let on_device = MemLocation { kind: 1, id: 0 };
    let v2 = |ptr| cuMemPrefetchAsync_v2(ptr, MIB, on_device, 0, null_mut());
    let always = |call: &str| format!("[[fault]]\ncall = '{call}'\nalways = true\ncode = 999\n");
    let alone = with_plan(&always("cuMemPrefetchAsync"));
    let ptr = alloc(MIB).1;
    assert_eq!((prefetch(ptr, MIB, 0), v2(ptr)), (999, 999));
    drop(alone);
    let _alone = with_plan(&always("cuMemPrefetchAsync_v2"));
    let ptr = alloc(MIB).1;
    assert_eq!((prefetch(ptr, MIB, 0), v2(ptr)), (0, 999));
}

#[test]
fn a_fault_may_ask_for_a_size_and_a_place() {
    let _alone = with_plan(
        "[[fault]]\nplace = 'host'\nat_least_bytes = 1048576\nalways = true\ncode = 801\n",
    );
    let (large, small) = (alloc(2 * MIB).1, alloc(4096).1);
    assert_eq!(prefetch(large, 2 * MIB, 0), 0);
    let before = state();
    assert_eq!(prefetch(large, 2 * MIB, -1), 801);
    assert_eq!(state(), before);
    assert_eq!(prefetch(small, 4096, -1), 0);
}

#[test]
fn a_copy_of_host_memory_counts_once_by_its_size() {
    let _alone =
        with_plan("[[fault]]\ncall = 'cuMemcpyHtoD'\nat_least_bytes = 4096\nnth = 1\ncode = 700\n");
    let (ptr, bytes) = (alloc(MIB).1, vec![7_u8; 8192]);
    // SAFETY: the source has as many bytes as are copied.
    let copy = |count| unsafe { cuMemcpyHtoD_v2(ptr, bytes.as_ptr().cast(), count) };
    assert_eq!([copy(8192), copy(100), copy(8192), copy(8192)], [0, 0, 700, 0]);
}

#[test]
fn memory_beyond_the_limit_is_out_of_memory_until_some_is_freed() {
    let _alone = with_plan("memory_limit_bytes = 4194304\n");
    let (first, ptr) = alloc(3 * MIB);
    let before = state();
    assert_eq!((first, alloc(2 * MIB).0), (0, OUT_OF_MEMORY));
    assert_eq!(state(), before);
    assert_eq!(alloc(MIB).0, 0);
    assert_eq!(free(ptr), 0);
    assert_eq!(alloc(3 * MIB).0, 0);
}

#[test]
fn all_calls_after_the_loss_of_the_device_fail_the_same() {
    let _alone = with_plan("[[fault]]\ncall = 'cuCtxSynchronize'\nlost = true\n");
    let ptr = alloc(MIB).1;
    assert_eq!(cuCtxSynchronize(), LAUNCH_FAILED);
    let answers = [cuCtxSynchronize(), alloc(MIB).0, free(ptr), prefetch(ptr, MIB, 0)];
    assert_eq!(answers, [LAUNCH_FAILED; 4]);
    let mut version = 0;
    // SAFETY: the result goes to a local that outlives the call.
    assert_eq!(unsafe { cuDriverGetVersion(&raw mut version) }, 0);
}

#[test]
fn a_delay_takes_simulated_time_and_changes_no_result() {
    let _alone = with_plan("[[fault]]\ncall = 'cuMemcpyHtoD'\ndelay_ns = 1000000000\n");
    let ptr = alloc(MIB).1;
    let before = pagewise_driver_clock_ns();
    let bytes = [3_u8; 64];
    // SAFETY: the source has as many bytes as are copied.
    assert_eq!(unsafe { cuMemcpyHtoD_v2(ptr, bytes.as_ptr().cast(), 64) }, 0);
    let took = pagewise_driver_clock_ns() - before;
    assert!((1_000_000_000..1_100_000_000).contains(&took), "{took}");
}

#[test]
fn random_faults_of_a_seed_are_the_same_each_time() {
    let answers = |seed| {
        let _alone = with_plan(&format!(
            "[[fault]]\ncall = 'cuMemAllocManaged'\nrandom = {{ seed = {seed}, per_thousand = 300 }}\n\
             code = 2\n"
        ));
        (0..100).map(|_| alloc(4096).0).collect::<Vec<_>>()
    };
    let first = answers(1);
    assert!(first.contains(&0) && first.contains(&OUT_OF_MEMORY));
    assert_eq!(answers(1), first);
    assert_ne!(answers(2), first);
}

#[test]
fn a_fault_of_a_function_that_does_not_exist_is_refused_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.toml");
    std::fs::write(&path, "\n[[fault]]\ncall = 'cuFly'\ncode = 2\n").expect("written");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(reset(&format!("faults=\"{}\"", path.display())), 1);
    assert_eq!(reset("faults=/no/such/plan"), 1);
}

/// The number of calls of a function that a process has in its file.
fn counted(folder: &Path, function: &str) -> Option<u64> {
    let path = folder.join(format!("calls-{}.txt", std::process::id()));
    let text = std::fs::read_to_string(path).expect("a file of calls");
    let line = text.lines().find_map(|line| line.strip_prefix(function)?.strip_prefix(' '));
    line.map(|count| count.parse().expect("a number"))
}

#[test]
fn calls_are_counted_by_function_whether_they_succeed_or_fail() {
    let folder = tempfile::tempdir().expect("a folder");
    let _alone = driver(&format!("calls=\"{}\"", folder.path().display()));
    let ptr = alloc(MIB).1;
    assert_eq!((alloc(0).0, prefetch(ptr, MIB, 0), prefetch(ptr, MIB, 77)), (1, 0, 101));
    let counts = ["cuMemAllocManaged", "cuMemPrefetchAsync", "cuMemFree", "cuFly"];
    let counts = counts.map(|function| counted(folder.path(), function));
    assert_eq!(counts, [Some(2), Some(2), Some(0), None]);
}
