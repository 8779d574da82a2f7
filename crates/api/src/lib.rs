//! CUDA managed (unified) memory for Rust, with or without a GPU.
//!
//! The same program runs on the driver of a GPU and on a simulator. The simulator's answers, page
//! movements and records are checked, call by call, against recordings of a real H200.
//!
//! ```
//! use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Stream};
//! use pagewise::{assert_faults, assert_migrated_bytes};
//!
//! let machine = Machine::from(pagewise::sim()?);    // or `Machine::open()`: what the environment says
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let mut numbers = ManagedBuffer::from_slice(&machine, &[1_u32; 1 << 19])?;
//! let read = DeviceProgram::read(Device::FIRST).stride(4096);
//! assert_faults!(machine, 6, numbers.run_on_device(read, &stream)?);
//! assert_migrated_bytes!(machine, 2 << 20, numbers.write()?[0] = 7);
//! numbers.prefetch(Device::FIRST, &stream)?;
//! assert_faults!(machine, 0, numbers.run_on_device(read, &stream)?);
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! | you want | look at |
//! | --- | --- |
//! | memory | [`ManagedBuffer`], its ranges ([`ManagedRange`], [`ManagedRangeMut`]), [`resource`] |
//! | places | [`Device`], [`Host`], [`Place`] |
//! | advice | `set_read_mostly`, `set_preferred_location`, [`AccessedBy`], [`MemoryAdvice`] |
//! | movement | `prefetch`, `discard`, `discard_prefetch`, for many at once [`prefetch()`] and its kin |
//! | copies and fills | [`copy`](mod@copy): between managed, device and pinned memory and slices; [`DeviceBuffer`], [`PinnedBuffer`] |
//! | to know what moved | [`observe()`], [`Budget`], [`assert_faults!`], [`assert_migrated_bytes!`] |
//! | kernels | [`Launch`]: several buffers, each with its accesses; [`DeviceProgram`] for one |
//! | kernels of cudarc on managed memory | `interop::lend`, with the feature `cudarc` |
//! | to record a program and replay it | `record()`, with the feature `record` |
//! | failures | [`inject`]: by number, operation, size, place; a sweep over all calls |
//! | the driver's own calls | [`Backend`], as `machine.backend()` |
//! | tensors, contexts, one device for many | the crate `pagewise-managers` |
//! | to write a manager of memory | the checks of [`Machine`], its calls on byte ranges ([`Machine::prefetch_spans`] and its kin), [`use_on()`], [`Rounding::apply`], [`refuse`] |
//!
//! All arguments are checked before the first call. If the driver fails midway, changes are taken
//! back, or the error says exactly which were made. Wrong places, double frees, views that outlive
//! their buffer and reads of discarded memory do not compile or are refused. Nothing panics on bad
//! input.
//!
//! Kernels run on a driver. The simulator compiles and runs none: a [`Launch`] declares what a
//! kernel accesses, and a closure computes what it would. The crate does not capture graphs or
//! manage virtual memory.
//!
//! # Choosing a back end
//!
//! [`Builder::backend`] chooses the back end, else the environment variable `PAGEWISE_BACKEND`
//! (`sim` or `cuda`), else the only back end that is compiled in, else it is the driver. Nothing
//! falls back to the simulator silently: if there is no driver, [`open`] returns an error that names
//! the ways out. [`Machine::backend_kind`] says which back end it is.
//!
//! A library takes a [`Machine`] from its caller and enables neither feature (`default-features =
//! false`): the program chooses. A program for GPUs enables `cuda`, and `sim` beside it if its users
//! may run it without a GPU. Tests take `sim()` and need the default feature only.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `sim` (default) | the simulator |
//! | `jit` | with `sim`: pieces of kernels that run often become machine code |
//! | `cuda` | the driver, found at run time; CUDA 12 and 13 are told apart at run time, not here |
//! | `cudarc` | `interop`: memory lent to cudarc, and back; turns `cuda` on |
//! | `mock` | `mock`: a mock of [`Backend`]; exempt from semantic versioning |
//! | `tracing` | `traced`: spans around the calls of a back end that is wrapped in it, and events of migrations and faults |
//! | `record` | `record()`: a trace of a program, which the command `pagewise` replays |
//! | `serde` | `Serialize` and `Deserialize` on data types |
#![deny(missing_docs)]

mod accessed_by;
mod advice;
mod batch;
mod buffer;
mod choose;
mod construct;
mod contents;
pub mod copy;
mod destructors;
mod discarded;
#[cfg(feature = "sim")]
pub mod guide;
mod in_flight;
pub mod inject;
pub mod intercept;
#[cfg(feature = "cudarc")]
pub mod interop;
pub mod launch;
mod lists;
mod machine;
mod memory;
mod names;
mod observe;
mod place;
mod plain;
mod program;
mod range;
#[cfg(feature = "record")]
pub mod recording;
pub mod refuse;
mod region;
pub mod resource;
mod rounding;
mod spans;
mod stream;
#[cfg(feature = "tracing")]
pub mod traced;

pub use accessed_by::AccessedBy;
pub use advice::MemoryAdvice;
pub use batch::{advise, discard, discard_prefetch, prefetch, use_on};
pub use buffer::ManagedBuffer;
/// The crate with [`bytemuck::Pod`], the trait of types that may be read from any bytes.
pub use bytemuck;
pub use choose::{BackendKind, Builder, open};
pub use copy::{copy, copy_batch, fill};
pub use discarded::Discarded;
pub use launch::Launch;
pub use lists::{Destinations, Regions, RegionsMut};
pub use machine::Machine;
pub use observe::{Amount, Budget, NamedSpan, Observation, OverBudget, Scope, Watch, observe};
#[cfg(feature = "cuda")]
pub use pagewise_cuda::{CudaBackend, CudaBuilder, LoadError};
#[cfg(feature = "mock")]
pub use pagewise_hal::mock;
pub use pagewise_hal::{
    AccessFlags, Advice, AllocationType, AttachFlags, BLOCK_BYTES, Backend, BackendExt,
    BatchSupport, BestBlock, BytesByCause, CallName, CallRecords, Capabilities, Code, Copies,
    CopyAttributes, CopyCause, CopyFlags, Counters, DeviceAccess, DeviceAttribute, DeviceId,
    DevicePtr, DeviceTouch, DriverVersion, Error, ErrorKind, EventFlags, EventHandle, EventLog,
    EventsSince, ExportedPointer, FaultAccess, FunctionAttribute, FunctionHandle, Granularity,
    HandleTypes, HostAccess, HostAddresses, HostAllocFlags, HostRegisterFlags, HostTouch,
    HostViews, IpcMemHandle, KernelAccess, KernelAccesses, KernelParam, KernelWalk, KernelWork,
    LaunchShape, Location, LocationKind, MapCause, MemoryAccess, MemoryEvent, MemoryHandle,
    MemoryInfo, MemoryProps, ModuleHandle, PAGE_BYTES, PAGES_PER_BLOCK, PageRun, ParamInfo,
    PointerAttribute, PoolAttribute, PoolHandle, PoolProps, Processor, RangeAttribute,
    RecordedBlock, RecordedBlocks, RecordedBlocksWriter, RecordedLaunch, RecordedStep, Result,
    SHARED_BLOB_BYTES, ShareableHandle, SourceOrder, Span, SpanCopy, StreamFlags, StreamHandle,
    StridedSpan, ThreadNumber, code_name,
};
#[cfg(feature = "sim")]
pub use pagewise_sim::{
    DiscardedContents, EventCapture, GpuProfile, HostFaultMechanism, HostFaultSupport, HostFaults,
    MemoryContents, RangeReads, SimBackend, SimConfig, host_fault_support,
};
pub use place::{Device, Host, NumaNode, Place};
pub use plain::{
    DeviceBuffer, DeviceMemory, OnDrop, PinnedBuffer, PinnedMemory, PlainBuffer, PlainKind,
};
pub use program::DeviceProgram;
pub use range::{ManagedRange, ManagedRangeMut};
#[cfg(feature = "record")]
pub use recording::{Recording, record};
pub use region::{Region, RegionMut};
pub use rounding::Rounding;
pub use stream::Stream;

/// A simulated machine with one H200: the one line that a test needs.
///
/// # Errors
/// As [`SimBackend::new`]; none for this machine unless the process has no address space left.
#[cfg(feature = "sim")]
pub fn sim() -> Result<std::sync::Arc<SimBackend>> {
    SimBackend::new(SimConfig::h200()).map(std::sync::Arc::new)
}
