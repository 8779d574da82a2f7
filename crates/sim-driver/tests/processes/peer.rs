//! The other process: this program again, on the other end of a Unix socket.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// Set for the other process: a number for it.
const PEER: &str = "PAGEWISE_TEST_PEER";

/// Starts the test of this name in another process, and tells it a number.
pub(crate) fn spawn(test: &str, number: u64) -> (Child, UnixStream) {
    let (own, other) = UnixStream::pair().expect("sockets");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(PEER, number.to_string())
        .stdin(Stdio::from(OwnedFd::from(other)))
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    (child, own)
}

/// The number that this process was told, if it is the other process.
pub(crate) fn told() -> Option<u64> {
    let number = std::env::var_os(PEER)?;
    Some(number.to_str().and_then(|text| text.parse().ok()).expect("a number"))
}

/// The socket to the process that started this one.
pub(crate) fn socket_of_parent() -> UnixStream {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("a socket");
    UnixStream::from(stdin)
}

/// Descriptors and mappings of shared files that the process has.
pub(crate) fn left_over() -> (usize, usize) {
    let links = std::fs::read_dir("/proc/self/fd").expect("a folder").flatten();
    let names = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let is_shared = |name: &str| name.contains("pagewise-shared");
    let open = names.filter(|name| is_shared(&name.to_string_lossy())).count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a file");
    (open, maps.lines().filter(|line| is_shared(line)).count())
}
