//! A simulated CUDA driver library.
//!
//! The library has the C entry points of managed memory, over simulated H200s in the process.
//! Programs that were written against the driver load it in place of `libcuda.so.1`. It has the
//! calls that a program needs to allocate, advise, prefetch, query, fill and copy, with contexts,
//! streams, events, pools and graphs. All other functions of CUDA 13.5 are exported too: they return
//! 801 (`CUDA_ERROR_NOT_SUPPORTED`), and stderr names each once.
//!
//! Modules and libraries are read: PTX text, also in fat binaries. Their variables lie in memory, and
//! their kernels are executed (`pagewise-ptx`) on the simulated pages. A kernel begins after its launch
//! has returned: the README has the rules.
//!
//! Work of a stream that captures becomes nodes of a graph. [`cuGraphLaunch`] runs the nodes one after
//! the other before it returns: by the edges, and by age where these leave a choice. Nodes copy,
//! fill, allocate and free memory, call functions of the host, record and wait for events, and run
//! child graphs. Memory of a graph has the same addresses at every launch. It gets physical memory
//! in blocks of 32 MiB, which the graphs of a device share and keep until they are trimmed.
//!
//! The environment variable `PAGEWISE_DRIVER` chooses the driver that is simulated; see
//! [`Options`]. Functions with names that begin with `pagewise_driver_` are not part of the
//! driver's ABI. They report what a real driver cannot, such as events and page tables, and replace
//! the driver by another one.
//!
//! Checks come in the driver's order (CONTRACT-4): a call returns 3 (`CUDA_ERROR_NOT_INITIALIZED`)
//! before `cuInit`, and 201 (`CUDA_ERROR_INVALID_CONTEXT`) without a context. Then it checks its
//! arguments. Some arguments of some calls are checked earlier; `tests/order.rs` has them all. If
//! the simulated driver lacks an entry point (its version is too old, or the options hide it), the
//! look-ups do not find it. Its symbol still exists, and returns 801 (`CUDA_ERROR_NOT_SUPPORTED`).
//! A refused call changes nothing.
//!
//! No panic unwinds into the caller: the call returns `CUDA_ERROR_UNKNOWN`, and
//! [`pagewise_driver_panics`] counts the panic. Each would be a bug of this library.
#![allow(non_snake_case, reason = "the names are the driver's")]
#![warn(clippy::arithmetic_side_effects, reason = "every number comes from a caller")]

mod attributes;
mod bounce;
mod contexts;
mod copy_params;
mod cpu_time;
mod deferred;
mod deferring;
mod driver;
mod entry;
mod extras;
mod faults;
mod followed;
mod forms;
mod graph_memory;
mod graphs;
mod held;
mod holding;
mod host_room;
mod image;
mod kept_buffer;
mod kernel_launch;
mod kernels;
mod launch;
mod launching;
mod lookup;
mod machine;
mod occupancy;
mod options;
mod outcome;
mod per_thread;
mod process;
mod programs;
mod refused;
mod running;
mod simulator;
mod staging;
mod state;
mod stream_attributes;
mod summary;
mod touch_kernels;
mod transfer;
mod work;
mod work_checks;

pub use entry::*;
pub use extras::*;
pub use forms::{addresses, entry_points, symbols};
pub use lookup::*;
pub use options::Options;
