//! Genuine faults of the host: the program's own accesses move pages.
//!
//! A binary of its own, because it has a handler of `SIGSEGV`, forks, and ends processes by faults.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod access;
mod common;
mod contents;
mod endings;
mod equality;
mod repeats;
mod threads;
