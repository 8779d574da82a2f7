//! Two processes with a driver each share pools, memory with handles, physical memory and events,
//! and either may be killed before any of its calls.
//!
//! The program runs itself as the other process, on the other end of a Unix socket. Both do the same
//! work (`session`), so each exports and imports. The driver belongs to the process, and descriptors
//! are counted: this program has one test.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod session;
mod socket;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use pagewise_driver::pagewise_driver_panics;

use session::Session;

/// Set for the other process: before which call it kills itself, or 0.
const PEER: &str = "PAGEWISE_TEST_PEER";
const NAME: &str = "two_processes_share_memory_and_either_may_be_killed_before_any_call";

fn spawn(dies_before: u64) -> (Child, UnixStream) {
    let (own, other) = UnixStream::pair().expect("sockets");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", NAME, "--nocapture"])
        .env(PEER, dies_before.to_string())
        .stdin(Stdio::from(OwnedFd::from(other)))
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    (child, own)
}

/// Descriptors and mappings of shared files that the process has.
fn left_over() -> (usize, usize) {
    let links = std::fs::read_dir("/proc/self/fd").expect("a folder").flatten();
    let names = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let is_shared = |name: &str| name.contains("pagewise-shared");
    let open = names.filter(|name| is_shared(&name.to_string_lossy())).count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a file");
    (open, maps.lines().filter(|line| is_shared(line)).count())
}

fn child(dies_before: u64) {
    use std::os::fd::AsFd;
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("a socket");
    let mut session = Session::new(UnixStream::from(stdin), 1, dies_before);
    session.run();
    session.tell_calls();
}

#[test]
fn two_processes_share_memory_and_either_may_be_killed_before_any_call() {
    if let Some(dies_before) = std::env::var_os(PEER) {
        let dies_before = dies_before.to_str().and_then(|text| text.parse().ok());
        return child(dies_before.expect("a number"));
    }
    let (mut peer, socket) = spawn(0);
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
        let (mut peer, socket) = spawn(dies_before);
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
