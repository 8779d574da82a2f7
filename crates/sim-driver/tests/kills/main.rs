//! Of two processes that share memory, one is killed in the middle of its calls.
//!
//! A thread of the other process kills it after a random time, wherever its calls are then. The calls
//! of this process still succeed, none waits for the dead process, and nothing of its memory stays.
//! The driver belongs to the process, and descriptors are counted: this program has one test.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[path = "../processes/peer.rs"]
mod peer;
#[path = "../processes/session.rs"]
mod session;
#[path = "../processes/socket.rs"]
mod socket;

use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use pagewise_driver::pagewise_driver_panics;

use peer::{left_over, socket_of_parent, spawn};
use session::Session;

const NAME: &str =
    "the_calls_of_a_process_succeed_when_the_other_one_is_killed_in_the_middle_of_a_call";
/// Set to the number of kills: a few by default.
const KILLS: &str = "PAGEWISE_TEST_KILLS";
const KILLS_BY_DEFAULT: u64 = 24;
/// The delay of a process that is not killed.
const NEVER: u64 = u64::MAX;
/// No session takes as long, whatever else the machine does.
const HANGS: Duration = Duration::from_secs(300);

/// Lets a session run; ends this process if it hangs, so that the test fails.
fn watched<T>(session: impl FnOnce() -> T) -> T {
    let (ended, watch) = mpsc::channel::<()>();
    thread::spawn(move || {
        if watch.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a session takes more than {HANGS:?}");
            std::process::abort();
        }
    });
    let done = session();
    drop(ended);
    done
}

/// The other process: it works, and is killed after `delay_us` unless that is [`NEVER`].
fn child(delay_us: u64) {
    if delay_us != NEVER {
        thread::spawn(move || {
            thread::sleep(Duration::from_micros(delay_us));
            // SAFETY: the call ends this process.
            unsafe { libc::kill(std::process::id().cast_signed(), libc::SIGKILL) };
        });
    }
    let mut session = Session::new(socket_of_parent(), 1, 0);
    session.run();
    if delay_us == NEVER {
        session.tell_calls();
    }
}

/// A session of this process with one that lives.
fn undisturbed() {
    let (mut peer, socket) = spawn(NAME, NEVER);
    let mut session = Session::new(socket, 2, 0);
    assert!(session.run().all());
    assert!(session.heard_calls() > 0);
    assert!(peer.wait().expect("a process").success());
}

/// A session of this process with one that is killed after `delay_us`. Returns whether it was
/// killed before it ended.
fn killed_after(delay_us: u64) -> bool {
    let (mut peer, socket) = spawn(NAME, delay_us);
    let mut session = Session::new(socket, 2, 0);
    session.run();
    drop(session);
    let status = peer.wait().expect("a process");
    let was_killed = status.signal() == Some(libc::SIGKILL);
    assert!(was_killed || status.success(), "after {delay_us} us: {status}");
    assert_eq!(left_over(), (0, 0), "after {delay_us} us");
    was_killed
}

#[test]
fn the_calls_of_a_process_succeed_when_the_other_one_is_killed_in_the_middle_of_a_call() {
    if let Some(delay_us) = peer::told() {
        return child(delay_us);
    }
    let kills = std::env::var(KILLS).ok().map(|text| text.parse().expect("a number"));
    let kills: u64 = kills.unwrap_or(KILLS_BY_DEFAULT);
    let start = Instant::now();
    watched(undisturbed);
    let whole_us = start.elapsed().as_micros() as u64;
    // Delays of one part of a session each, in an order that a generator of Weyl gives.
    let mut killed = 0_u64;
    for round in 0..kills {
        let part = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let delay_us = (part * whole_us) >> 32;
        killed += u64::from(watched(|| killed_after(delay_us)));
    }
    // The delay of the first is 0.
    assert!(killed > 0);
    println!("{killed} of {kills} were killed before they ended");
    assert_eq!(pagewise_driver_panics(), 0);
}
