//! Two processes with a driver each share pools, memory with handles, physical memory and events,
//! and either may be killed before any of its calls.
//!
//! The program runs itself as the other process, on the other end of a Unix socket. Both do the same
//! work (`session`), so each exports and imports. The driver belongs to the process, and descriptors
//! are counted: this program has one test.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod peer;
mod session;
mod socket;

use std::os::unix::process::ExitStatusExt;

use pagewise_driver::pagewise_driver_panics;

use peer::{left_over, socket_of_parent, spawn};
use session::Session;

const NAME: &str = "two_processes_share_memory_and_either_may_be_killed_before_any_call";

fn child(dies_before: u64) {
    let mut session = Session::new(socket_of_parent(), 1, dies_before);
    session.run();
    session.tell_calls();
}

#[test]
fn two_processes_share_memory_and_either_may_be_killed_before_any_call() {
    if let Some(dies_before) = peer::told() {
        return child(dies_before);
    }
    let (mut peer, socket) = spawn(NAME, 0);
    let mut session = Session::new(socket, 2, 0);
    let seen = session.run();
    assert!(seen.all(), "{seen:?}");
    let calls = session.heard_calls();
    assert!(calls > 30, "{calls}");
    drop(session);
    assert!(peer.wait().expect("a process").success());
    assert_eq!(left_over(), (0, 0));

    let mut with_memory = 0;
    for dies_before in 1..=calls {
        let (mut peer, socket) = spawn(NAME, dies_before);
        let mut session = Session::new(socket, 2, 0);
        let seen = session.run();
        drop(session);
        let status = peer.wait().expect("a process");
        assert_eq!(status.signal(), Some(libc::SIGKILL), "call {dies_before}: {status}");
        assert_eq!(left_over(), (0, 0), "call {dies_before}");
        with_memory += u64::from(seen.contents);
    }
    assert!((1..calls).contains(&with_memory), "{with_memory} of {calls}");
    assert_eq!(pagewise_driver_panics(), 0);
}
