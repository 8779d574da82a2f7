//! Execution: a grid of blocks of warps over the caller's memory.

mod access;
mod ahead;
mod atomic;
mod block;
mod bounds;
mod bulk;
mod cluster;
mod collective;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod compiled;
#[cfg(not(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "interpreted.rs"]
mod compiled;
mod control;
mod count;
mod engine;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod entrance;
#[cfg(not(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "no_entrance.rs"]
mod entrance;
#[cfg(test)]
mod footprint;
mod format;
mod grid;
mod host;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod laps;
mod launch;
mod matrix;
mod matrix_access;
mod mbarrier;
mod meeting;
mod memory;
mod modify;
mod moves;
mod offsets;
mod pair;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod parts;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod phases;
mod pieces;
mod places;
mod quads;
mod registers;
mod remote;
mod report;
mod rows;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod samples;
mod service;
mod slots;
mod spin;
mod start;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tally;
mod transfer;
mod turns;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod vectors;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod visit;
mod warp;
mod windows;

pub use count::InstructionCounts;
pub use grid::Run;
pub use host::{AssertFailure, Host};
pub use launch::{Config, Launch, SmLimits, StartError};
pub use memory::{
    FUNCTION_WINDOW, Kind, LOCAL_WINDOW, Memory, Outstanding, PARAMETER_WINDOW, SHARED_WINDOW,
    Stop, Turn, Window,
};
pub use report::{Cause, Report, Stats, Step};
pub use start::{blocks_by_registers, blocks_per_sm};
