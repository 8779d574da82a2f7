//! Threads of the simulator in a program's process.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread on which no signal handler of the program runs, but for faults of the thread
/// itself: signals are for the program's threads.
///
/// # Errors
/// If the system refuses a thread.
pub fn start_own_thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        block_signals();
        work();
    })
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn block_signals() {
    // SAFETY: `sigfillset` initialises the set, which `pthread_sigmask` reads.
    unsafe {
        let mut all = std::mem::MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::sigdelset(all.as_mut_ptr(), own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn block_signals() {}

#[cfg(all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn an_own_thread_takes_no_signals_but_its_own_faults() {
        let (send, blocked) = mpsc::channel();
        let ask = move || {
            let mut mask = std::mem::MaybeUninit::uninit();
            // SAFETY: the first call writes the mask of this thread, which the others read.
            let is_blocked = |signal| unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
                libc::sigismember(mask.as_ptr(), signal)
            };
            let signals = [libc::SIGTERM, libc::SIGUSR1, libc::SIGALRM, libc::SIGSEGV];
            send.send(signals.map(is_blocked)).expect("the test waits");
        };
        start_own_thread("asks", ask).expect("a thread").join().expect("no panic");
        assert_eq!(blocked.recv(), Ok([1, 1, 1, 0]));
    }
}
