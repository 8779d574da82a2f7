//! Claims about the API, by topic.
//!
//! They are one program: a program for each topic takes longer to link than to run.

mod accessed_by;
mod batch;
mod buffer;
mod contents;
mod copies;
mod foundations;
mod giving_back;
mod ipc;
mod kernels;
mod launch;
mod leaks;
mod names;
mod observe;
mod places;
#[cfg(feature = "record")]
mod recording;
mod resources;
mod scopes;
mod soundness;
mod sweeps;
mod traced;
mod virtual_memory;
