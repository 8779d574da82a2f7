//! Programs in PTX: `pagewise-ptx` executes their kernels over the machine's memory.
//!
//! The calls of the trait and the C entry points of a driver launch by the same functions. A caller
//! gives variables their memory, and says where text of kernels and messages about them go.

mod begun;
mod calls;
mod code;
mod fault;
mod heap;
mod launch;
mod limits;
mod modules;
mod occupancy;
mod output;
mod place;
mod program;
mod text;
mod workspace;

pub use begun::{BegunKernel, Progress};
pub use fault::KernelFault;
pub(crate) use heap::Heaps;
pub use launch::ProgramLaunch;
pub use limits::GridLimits;
pub(crate) use modules::Modules;
pub use output::KernelOutput;
pub use program::{LoweredProgram, Program, ProgramError, ProgramKernel, ProgramVariable};
