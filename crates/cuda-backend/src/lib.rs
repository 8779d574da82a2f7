//! The CUDA driver as a back end, found at run time.
//!
//! [`CudaBackend`] implements [`pagewise_hal::Backend`] over `libcuda.so.1`. Nothing is linked and
//! nothing panics: a missing library, the toolkit's stub, an old driver, an incomplete one and one
//! without a device are different [errors](LoadError), each saying what to do.
//!
//! # Versions
//!
//! CUDA 12 and 13 are told apart at run time. A signature belongs to a version, not to a name: the
//! driver hands out different functions for one name depending on the version asked for. So every
//! entry point is asked for at the version that introduced the signature meant, never at the
//! driver's own. [`CudaBuilder::max_version`] lets a new driver act as an old one.
//!
//! | version in use | advice and prefetch | batches | discard | pools |
//! | --- | --- | --- | --- | --- |
//! | 12.0, 12.1 | by device ordinal | loop | – | of devices |
//! | 12.2 to 12.9 | also by location, host NUMA nodes included | loop | – | also of NUMA nodes |
//! | 13.0 and later | the same | the driver's | yes | also managed, and by location |
//!
//! # Contexts and threads
//!
//! The primary context of device 0 is retained when the back end is opened, those of other devices
//! when they are first used; all are released when it is dropped. Each thread remembers which
//! context this crate made current last; see [`CudaBuilder::foreign_contexts`].
//!
//! # Observation
//!
//! The driver does not report what moves. [`CudaBuilder::observer`] takes a source of records, such
//! as [`Cupti`]; [`CudaBuilder::host`] another host than this process: its accesses to memory, its
//! page table and its clock.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `cudarc` | `interop`: buffers, streams and contexts shared with [cudarc](https://docs.rs/cudarc) |
#![deny(missing_docs)]

mod abi;
mod allocation;
mod backend;
mod barrier;
mod batches;
mod builder;
mod calls;
mod cells;
mod context;
mod copies;
mod cupti;
mod device;
mod driver;
mod forward;
mod functions;
mod host;
#[cfg(feature = "cudarc")]
pub mod interop;
mod kernels;
mod library;
mod lifetimes;
mod live;
mod load_error;
mod loaded;
mod mappings;
mod modules;
mod numa;
mod observe;
mod pool_end;
mod pool_order;
mod pools;
mod probe;
mod sharing;
mod sync;
mod table;
mod touching;
mod uses;
mod virtual_memory;

pub use backend::CudaBackend;
pub use builder::CudaBuilder;
pub use cupti::{Cupti, CuptiUnavailable};
pub use host::Host;
pub use load_error::LoadError;
pub use numa::host_numa_nodes;
pub use observe::Observer;
pub use probe::{EntryPoint, Probe, probe, probe_library};
