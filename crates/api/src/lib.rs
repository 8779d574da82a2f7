//! CUDA managed (unified) memory for Rust, with or without a GPU.
//!
//! The same program runs on the driver of a GPU and on a simulator whose answers, page movements
//! and records are checked, call by call, against recordings of a real H200.
//!
//! ```
//! use pagewise::{Backend, BackendExt, DeviceId, DeviceAccess, DeviceTouch, Location};
//! use pagewise::{MemoryEvent, StreamHandle};
//!
//! let sim = pagewise::sim()?;
//! let span = sim.alloc(2 << 20)?;
//! let touch = DeviceTouch {
//!     device: DeviceId(0),
//!     span,
//!     stride_bytes: 4096,
//!     access: DeviceAccess::Write(1),
//!     blocks: 1,
//!     threads: 1,
//! };
//! // SAFETY: nothing else uses the memory.
//! unsafe { sim.device_touch(touch, StreamHandle::NULL)? };
//! let faults = sim.take_events()?;
//! assert_eq!(faults.len(), 6, "one thread faults six times on 2 MiB: the prefetcher does the rest");
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! # Choosing a back end
//!
//! By [`Builder::backend`], else by the environment variable `PAGEWISE_BACKEND` (`sim` or `cuda`),
//! else the driver. Nothing ever falls back to the simulator silently: if the driver is asked for
//! and is not there, [`open`] says so.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `sim` (default) | the simulator |
//! | `cuda` | the driver, found at run time; CUDA 12 and 13 are told apart at run time, not here |
//! | `cudarc` | `interop`: buffers, streams and contexts shared with cudarc; turns `cuda` on |
//! | `mock` | [`mock`]: a mock of [`Backend`]; exempt from semantic versioning |
//! | `serde` | `Serialize` and `Deserialize` on data types |
#![deny(missing_docs)]

mod accessed_by;
mod advice;
mod batch;
mod buffer;
mod choose;
mod contents;
mod discarded;
#[cfg(feature = "sim")]
pub mod guide;
pub mod inject;
pub mod intercept;
mod machine;
mod memory;
mod observe;
mod place;
mod program;
mod range;
mod refuse;
mod region;
pub mod resource;
mod rounding;
mod stream;
#[cfg(feature = "tracing")]
pub mod traced;

pub use accessed_by::AccessedBy;
pub use advice::MemoryAdvice;
pub use batch::{Destinations, Regions, RegionsMut, advise, discard, discard_prefetch, prefetch};
pub use buffer::ManagedBuffer;
/// Which types may be read from any bytes: [`bytemuck::Pod`].
pub use bytemuck;
pub use choose::{BackendKind, Builder, open};
pub use discarded::Discarded;
pub use machine::Machine;
pub use observe::{Amount, Budget, Observation, OverBudget, Watch, observe};
#[cfg(feature = "cudarc")]
pub use pagewise_cuda::interop;
#[cfg(feature = "cuda")]
pub use pagewise_cuda::{CudaBackend, CudaBuilder, LoadError};
#[cfg(feature = "mock")]
pub use pagewise_hal::mock;
pub use pagewise_hal::{
    AccessFlags, Advice, AllocationType, AttachFlags, BLOCK_BYTES, Backend, BackendExt,
    BatchSupport, Capabilities, Code, Copies, CopyCause, Counters, DeviceAccess, DeviceAttribute,
    DeviceId, DevicePtr, DeviceTouch, DriverVersion, Error, ErrorKind, EventFlags, EventHandle,
    FaultAccess, HandleTypes, HostAccess, HostAllocFlags, HostTouch, HostViews, Location,
    LocationKind, MapCause, MemoryEvent, MemoryInfo, PAGE_BYTES, PAGES_PER_BLOCK, PageRun,
    PointerAttribute, PoolAttribute, PoolHandle, PoolProps, Processor, RangeAttribute, Result,
    Span, StreamFlags, StreamHandle, code_name,
};
#[cfg(feature = "sim")]
pub use pagewise_sim::{
    DiscardedContents, EventCapture, GpuProfile, MemoryContents, RangeReads, SimBackend, SimConfig,
};
pub use place::{Device, Host, NumaNode, Place};
pub use program::DeviceProgram;
pub use range::{ManagedRange, ManagedRangeMut};
pub use region::{Region, RegionMut};
pub use rounding::Rounding;
pub use stream::Stream;

/// A simulated machine with one H200: the one line that a test needs.
///
/// # Errors
/// `OutOfMemory` if the process may not reserve 1 GiB of address space.
#[cfg(feature = "sim")]
pub fn sim() -> Result<std::sync::Arc<SimBackend>> {
    SimBackend::new(SimConfig::h200()).map(std::sync::Arc::new)
}
