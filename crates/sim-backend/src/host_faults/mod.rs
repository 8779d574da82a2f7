//! Host faults for real: memory that the host does not map is not accessible to the program.
//!
//! Each segment of the arena has two views, of memory that both share; of a device's memory, which the
//! host never accesses, the engine's is private. The *program's view* has the
//! addresses that calls hand out, and its pages are accessible as far as the engine maps them for
//! the host. The *engine's view* is always accessible, and only the simulator knows it. An access of
//! the program to another page takes a genuine fault, and the kernel reports it here.
//!
//! Pages of the program's view are never more accessible than the engine says, and may be less: the
//! next access then faults, and no page moves for it. So a permission is taken away at once, and
//! given when the program needs it.
//!
//! | module | concept |
//! | --- | --- |
//! | `choice` | which mechanism a machine gets, and why |
//! | `fault` | a fault, and the answers to it |
//! | `gate` | what both mechanisms do: show, hide, write-protect, report faults |
//! | `userfaultfd` over `uffd_abi` | the mechanism of the kernel |
//! | `protection` over `handler`, `registry` | page protection with a signal handler |
//! | `double_map` over `sys` | the two views |
//! | `service` | the threads that service faults |
//!
//! The mechanisms need Linux on x86-64 or aarch64, with host pages of 4 KiB.

mod choice;
pub(crate) mod double_map;
pub(crate) mod fault;
pub(crate) mod gate;
mod handler;
mod protection;
mod registry;
pub(crate) mod service;
mod sys;
mod uffd_abi;
mod userfaultfd;

pub(crate) use choice::open;
pub use choice::support;
