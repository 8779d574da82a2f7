//! Programs that launch a kernel and do not wait for it before they touch its memory.
//!
//! Each claim holds with each mechanism for faults of the host that this host has.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod common;

use std::ffi::{CString, c_void};
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{function_of, module_of, start, with_options};
use pagewise_driver::*;
use pagewise_sim::{HostFaults, SimBackend, SimConfig};

const BLOCK: usize = 2 << 20;

const KERNELS: &str = r#"
.version 7.0
.target sm_52
.address_size 64
.visible .entry add(.param .u64 word, .param .u32 value)
{
    .reg .u64 %d;
    .reg .u32 %r<3>;
    ld.param.u64 %d, [word];
    ld.param.u32 %r1, [value];
    ld.global.u32 %r2, [%d];
    add.u32 %r2, %r2, %r1;
    st.global.u32 [%d], %r2;
    ret;
}
.visible .entry double_after_the_host(.param .u64 word, .param .u32 value)
{
    .reg .u64 %d;
    .reg .u32 %r;
    .reg .pred %p;
    ld.param.u64 %d, [word];
WAIT:
    ld.volatile.global.u32 %r, [%d+4];
    setp.eq.u32 %p, %r, 0;
    @%p bra WAIT;
    ld.global.u32 %r, [%d];
    add.u32 %r, %r, %r;
    st.global.u32 [%d], %r;
    ret;
}
.visible .entry double(.param .u64 word, .param .u32 value)
{
    .reg .u64 %d;
    .reg .u32 %r;
    ld.param.u64 %d, [word];
    ld.global.u32 %r, [%d];
    add.u32 %r, %r, %r;
    st.global.u32 [%d], %r;
    ret;
}
"#;

/// The options of a driver for each mechanism that this host has.
fn drivers() -> Vec<CString> {
    let known =
        [("userfaultfd", HostFaults::Userfaultfd), ("protection", HostFaults::PageProtection)];
    let has = |faults| SimBackend::new(SimConfig::h200().host_faults(faults)).is_ok();
    let found = known.into_iter().filter(|(_, faults)| has(*faults));
    let text = |(name, _)| CString::new(format!("log=off host_faults={name}")).expect("no NUL");
    found.map(text).collect()
}

/// Words of managed memory that the host wrote and has.
struct Words(*mut u32);

impl Words {
    fn new(bytes: usize) -> Self {
        let mut ptr = 0;
        // SAFETY: the place is a local.
        assert_eq!(unsafe { cuMemAllocManaged(&raw mut ptr, bytes, 1) }, 0);
        let words = Self(std::ptr::with_exposed_provenance_mut(ptr as usize));
        (0..bytes / 4096).for_each(|page| words.set(page * 1024, 1));
        words
    }

    fn get(&self, index: usize) -> u32 {
        // SAFETY: tests stay within the memory. A kernel that writes the word at the same time is
        // what they are about: the driver runs it on another thread only while this one waits.
        unsafe { self.0.add(index).read_volatile() }
    }

    fn set(&self, index: usize, value: u32) {
        // SAFETY: tests stay within the memory, and no kernel runs while this thread does, as for `get`.
        unsafe { self.0.add(index).write_volatile(value) }
    }
}

/// Launches a kernel of one thread on a word.
fn launch(kernel: *mut c_void, word: *mut u32, mut value: u32) -> i32 {
    let mut address = word.expose_provenance() as u64;
    let mut places = [(&raw mut address).cast(), (&raw mut value).cast::<c_void>()];
    let (places, none) = (places.as_mut_ptr(), null_mut());
    // SAFETY: the array has an item for each parameter.
    unsafe { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, none, places, null_mut()) }
}

/// Lets one test at a time have the driver of the process.
fn alone() -> MutexGuard<'static, ()> {
    static DRIVER: Mutex<()> = Mutex::new(());
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test with each mechanism: its kernels `add` and `double`.
fn with_each_mechanism(test: impl Fn(*mut c_void, *mut c_void)) {
    let _alone = alone();
    for driver in drivers() {
        with_options(&driver);
        start();
        let module = module_of(KERNELS);
        test(function_of(module, "add"), function_of(module, "double"));
        assert_eq!(cuCtxSynchronize(), 0, "{driver:?}");
    }
}

/// Takes processor time: some milliseconds for 10 million steps.
fn work(steps: u64) {
    let sum = (0..steps).fold(0, |sum, one| std::hint::black_box(sum ^ one));
    std::hint::black_box(sum);
}

#[test]
fn a_program_that_does_not_wait_reads_what_was_there_before() {
    with_each_mechanism(|add, double| {
        let words = Words::new(4096);
        assert_eq!(launch(add, words.0, 2), 0);
        assert_eq!(launch(double, words.0, 0), 0);
        assert_eq!(words.get(0), 1);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(words.get(0), 6, "in the order of their launches");
    });
}

#[test]
fn kernels_find_what_the_host_wrote_after_their_launch() {
    with_each_mechanism(|add, _| {
        let words = Words::new(4096);
        assert_eq!(launch(add, words.0, 2), 0);
        words.set(0, 10);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(words.get(0), 12);
    });
}

#[test]
fn a_call_that_asks_a_device_lets_kernels_begin_and_others_do_not() {
    with_each_mechanism(|add, _| {
        let (words, mut number) = (Words::new(4096), 0);
        let (mut free, mut total) = (0, 0);
        assert_eq!(launch(add, words.0, 2), 0);
        // SAFETY: the place is a local.
        assert_eq!(unsafe { cuDeviceGetAttribute(&raw mut number, 16, 0) }, 0);
        assert_eq!(words.get(0), 1);
        // SAFETY: the places are locals.
        assert_eq!(unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) }, 0);
        assert_eq!(words.get(0), 3);
    });
}

#[test]
fn an_access_that_gets_pages_comes_behind_the_kernels_before_it() {
    with_each_mechanism(|add, _| {
        let (words, other) = (Words::new(4096), Words::new(4 << 20));
        assert_eq!(launch(add, other.0, 1), 0);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(launch(add, words.0, 2), 0);
        assert_eq!(words.get(0), 1);
        assert_eq!(other.get(0), 2, "this page was the device's");
        assert_eq!(words.get(0), 3);
    });
}

#[test]
fn kernels_begin_when_the_host_accessed_more_than_eight_blocks() {
    with_each_mechanism(|add, _| {
        let (words, other) = (Words::new(4096), Words::new(8 * BLOCK));
        let read = |blocks: usize| {
            let each = 0..blocks * BLOCK / 4096;
            each.for_each(|page| assert_eq!(other.get(page * 1024), 1));
        };
        assert_eq!(launch(add, words.0, 2), 0);
        read(7);
        read(7);
        assert_eq!(words.get(0), 1);
        read(8);
        assert_eq!(words.get(0), 3);
    });
}

#[test]
fn kernels_begin_before_an_access_that_comes_after_much_work() {
    with_each_mechanism(|add, _| {
        let words = Words::new(4096);
        assert_eq!(launch(add, words.0, 2), 0);
        work(40_000_000);
        assert_eq!(words.get(0), 3);
    });
}

#[test]
fn a_program_may_wait_for_a_kernel_in_memory() {
    with_each_mechanism(|add, _| {
        let words = Words::new(4096);
        for (round, pause) in [(0, None), (1, None), (2, Some(Duration::from_millis(20)))] {
            assert_eq!(launch(add, words.0, 1), 0);
            let began = Instant::now();
            while words.get(0) == round + 1 {
                assert!(began.elapsed() < Duration::from_secs(60), "the kernel never begins");
                pause.into_iter().for_each(std::thread::sleep);
            }
            assert_eq!(words.get(0), round + 2);
        }
    });
}

#[test]
fn a_program_may_wait_for_a_kernel_in_memory_that_does_not_migrate() {
    with_each_mechanism(|add, _| {
        let mut place = null_mut();
        // SAFETY: the place is a local.
        assert_eq!(unsafe { cuMemHostAlloc(&raw mut place, 4096, 0) }, 0);
        let words = Words(place.cast());
        words.set(0, 1);
        assert_eq!(launch(add, words.0, 1), 0);
        let began = Instant::now();
        while words.get(0) == 1 {
            assert!(began.elapsed() < Duration::from_secs(60), "the kernel never begins");
        }
        assert_eq!(words.get(0), 2);
    });
}

#[test]
fn a_kernel_that_fails_loses_the_device_at_the_next_call_and_the_kernels_behind_it() {
    with_each_mechanism(|add, _| {
        let words = Words::new(4096);
        assert_eq!(launch(add, words.0, 2), 0);
        assert_eq!(launch(add, std::ptr::without_provenance_mut(0x10), 1), 0);
        assert_eq!(launch(add, words.0, 4), 0, "nothing is known of it yet");
        assert_eq!(cuCtxSynchronize(), 700);
        assert_eq!(pagewise_driver_recover(), 700);
        assert_eq!(words.get(0), 3);
    });
}

#[test]
fn more_launches_than_can_wait_run_in_order() {
    with_each_mechanism(|add, double| {
        let words = Words::new(4096);
        for round in 0..1030 {
            (0..round % 3).for_each(|_| assert_eq!(launch(add, words.0, 1), 0));
            assert_eq!(launch(double, words.0, 0), 0);
        }
        assert_eq!(cuCtxSynchronize(), 0);
        let expected = (0..1030).fold(1_u32, |word, round| word.wrapping_add(round % 3) << 1);
        assert_eq!(words.get(0), expected);
        (0..1024).for_each(|_| assert_eq!(launch(add, words.0, 1), 0));
        assert_eq!(launch(double, words.0, 0), 0);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(words.get(0), expected.wrapping_add(1024) << 1);
    });
}

#[test]
fn a_kernel_waits_for_one_before_it_that_waits_for_the_host() {
    with_each_mechanism(|add, _| {
        let words = Words::new(4096);
        words.set(1, 0);
        let latch = function_of(module_of(KERNELS), "double_after_the_host");
        let (mut free, mut total) = (0, 0);
        assert_eq!(launch(latch, words.0, 0), 0);
        assert_eq!(launch(add, words.0, 1), 0);
        // SAFETY: the places are locals.
        assert_eq!(unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) }, 0);
        words.set(1, 1);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(words.get(0), 3);
    });
}

#[test]
fn a_launch_after_much_work_lets_the_kernels_before_it_begin() {
    with_each_mechanism(|add, _| {
        let (words, other) = (Words::new(BLOCK), Words::new(BLOCK));
        assert_eq!(launch(add, words.0, 2), 0);
        work(8_000_000);
        assert_eq!(launch(add, other.0, 2), 0);
        assert_eq!((other.get(0), words.get(0)), (1, 3));
    });
}

#[test]
fn calls_of_other_threads_wait_until_the_kernels_have_run() {
    with_each_mechanism(|add, _| {
        let words = Words::new(4096);
        for round in 0..50 {
            assert_eq!(launch(add, words.0, 1), 0);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    // The place is sent as a number: all threads wait for this one.
                    let word = words.0.expose_provenance();
                    scope.spawn(move || {
                        start();
                        assert_eq!(cuCtxSynchronize(), 0);
                        let word = std::ptr::with_exposed_provenance::<u32>(word);
                        // SAFETY: the memory lives, and the kernel has run.
                        assert_eq!(unsafe { word.read_volatile() }, round + 2);
                    });
                }
            });
        }
    });
}

#[test]
fn kernels_begin_at_once_where_accesses_of_the_host_are_not_seen() {
    let _alone = alone();
    with_options(c"log=off host_faults=declared");
    start();
    let (add, words) = (function_of(module_of(KERNELS), "add"), Words::new(4096));
    assert_eq!(launch(add, words.0, 2), 0);
    assert_eq!(words.get(0), 3);
}

#[test]
#[ignore = "a process that another test starts"]
fn child_that_ends_without_waiting() {
    start();
    let (add, words) = (function_of(module_of(KERNELS), "add"), Words::new(2 << 20));
    assert_eq!(launch(add, words.0, 2), 0);
}

#[test]
#[ignore = "a process that another test starts"]
fn child_that_writes_from_a_page_of_the_device() {
    const PRINTS: &str = r#"
.version 7.0
.target sm_52
.address_size 64
.extern .func (.param .b32 written) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[13] = {102, 114, 111, 109, 32, 107, 101, 114, 110, 101, 108, 10, 0};
.visible .entry prints(.param .u64 word, .param .u32 value)
{
    .reg .u64 %d<3>;
    mov.u64 %d1, text;
    cvta.global.u64 %d2, %d1;
    {
        .param .b64 p0;
        st.param.b64 [p0], %d2;
        .param .b64 p1;
        st.param.b64 [p1], 0;
        .param .b32 r;
        call.uni (r), vprintf, (p0, p1);
    }
    trap;
}
"#;
    start();
    let add = function_of(module_of(KERNELS), "add");
    let prints = function_of(module_of(PRINTS), "prints");
    let words = Words::new(4096);
    assert_eq!(launch(add, words.0, u32::from_le_bytes(*b"ost\n") - 1), 0);
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(launch(prints, words.0, 0), 0);
    // SAFETY: the text of the first format ends, and the second takes so many bytes of a word that
    // the device has: the C library holds its lock while it reads them.
    unsafe {
        libc::printf(c"from h".as_ptr());
        libc::printf(c"%.4s".as_ptr(), words.0);
    }
    assert_eq!(cuCtxSynchronize(), 719);
}

#[test]
fn output_of_a_kernel_that_fails_waits_for_a_thread_of_the_program() {
    for driver in drivers() {
        let child = child("child_that_writes_from_a_page_of_the_device", &driver, "");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{child:?}");
        let (host, kernel) = (said.find("from host\n"), said.find("from kernel\n"));
        assert!(host.is_some() && host < kernel, "{said}");
    }
}

/// Runs a test of this file in a process of its own, for so long as none of them takes.
fn child(test: &str, driver: &CString, options: &str) -> Output {
    let options = format!("{} {options}", driver.to_str().expect("text"));
    let mut child = Command::new("timeout");
    child.arg("60").arg(std::env::current_exe().expect("a test knows its path"));
    child.args(["--exact", test, "--ignored", "--nocapture"]);
    child.env("PAGEWISE_DRIVER", options).output().expect("a process")
}

#[test]
fn kernels_run_before_a_process_ends() {
    for driver in drivers() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path().display();
        let options = format!("summary=\"{here}\"");
        let done = child("child_that_ends_without_waiting", &driver, &options);
        assert!(done.status.success(), "{done:?}");
        let files = std::fs::read_dir(folder.path()).expect("the folder is there");
        let texts: Vec<String> = files
            .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a summary"))
            .collect();
        let summaries: Vec<serde_json::Value> =
            texts.iter().map(|text| serde_json::from_str(text).expect("JSON")).collect();
        assert_eq!(summaries.len(), 1);
        assert_eq!(summaries[0]["gpu_faults"], 1, "{options}");
    }
}
