//! The hardware abstraction of CUDA managed memory.
//!
//! This crate holds one object-safe trait, [`Backend`], and the plain data that its calls take and
//! return. The driver back end, the simulator and every wrapper (recording, fault injection,
//! limits, statistics) implement the same trait, so a holder of an `Arc<dyn Backend>` cannot tell,
//! and need not know, which of them answers.
//!
//! # Design choices
//!
//! - **The trait is the driver's contract, not a nicer one.** Its arguments are the driver's,
//!   including values that the driver refuses: [`Location`], [`Advice`] and the other enumerations
//!   of CUDA are integers with named constants. A closed Rust enum could not express the refused
//!   calls that are part of the contract, and a newer driver may return a value that this crate has
//!   no name for. Types that exclude wrong values live in the `pagewise` crate.
//! - **Bytes and addresses are `u64`, times are nanoseconds, pages are 4 KiB** ([`PAGE_BYTES`]),
//!   va_blocks are 2 MiB ([`BLOCK_BYTES`]).
//! - **One concrete [`Error`]**, which keeps the raw `CUresult` number. The simulator fills in the
//!   number that the driver returns for the same call, so tests compare kind and number.
//! - **[`Capabilities`] are data.** A program can see before a call that a back end lacks it; the
//!   call itself fails with [`ErrorKind::Unsupported`].
//! - **No defaulted methods in the trait.** A wrapper that forgets one does not compile, instead of
//!   silently losing the inner back end's behaviour. Conveniences are in [`BackendExt`].
//! - **`unsafe` where a wrong argument can break memory safety**: freeing, writing, discarding.
//!   Asking the driver to move or to describe memory is safe: it checks the range itself.
//! - **`unsafe` where a wrong answer can break memory safety**: a back end promises that its
//!   addresses are the host's by implementing [`HostAddresses`], which no safe code can do.
//!
//! # What it does not do
//!
//! It has no CUDA, no I/O, no clock and no policy. It starts no thread, and tells threads apart only
//! for an observer that asks for its own calls ([`ThreadNumber`]). It never loads a library and
//! never reads the environment.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `serde` | `Serialize` and `Deserialize` on every data type |
//! | `mock` | `mock::MockBackend` and the parts of mockall needed to script it; exempt from semantic versioning |
#![deny(missing_docs)]
// Numbers come from callers.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod address;
mod advice;
mod attribute;
mod backend;
mod call_log;
mod calls;
mod capability;
mod code;
mod copy;
mod counters;
mod error;
mod event;
mod event_log;
mod ext;
mod function;
mod handle;
mod host;
mod kernel;
#[cfg(any(test, feature = "mock"))]
pub mod mock;
mod operation;
mod place;
mod pool;
mod recorded;
mod recorded_blocks;
mod sharing;
mod starts;
mod touch;
mod version;
mod virtual_memory;

pub use address::{BLOCK_BYTES, DevicePtr, PAGE_BYTES, PAGES_PER_BLOCK, Span};
pub use advice::{Advice, AttachFlags, HostAllocFlags};
pub use attribute::{DeviceAttribute, PointerAttribute, PoolAttribute, RangeAttribute};
pub use backend::Backend;
pub use call_log::{CallName, CallRecords, ThreadNumber};
pub use capability::{BatchSupport, Capabilities};
pub use code::{Code, code_name};
pub use copy::{CopyAttributes, CopyFlags, SourceOrder, SpanCopy};
pub use counters::{BytesByCause, Copies, Counters};
pub use error::{Error, ErrorKind, Result};
pub use event::{CopyCause, FaultAccess, MapCause, MemoryEvent, PageRun};
pub use event_log::{EventLog, EventsSince};
pub use ext::BackendExt;
pub use function::{BestBlock, FunctionAttribute, ParamInfo};
pub use handle::{
    EventFlags, EventHandle, FunctionHandle, MemoryHandle, ModuleHandle, PoolHandle, StreamFlags,
    StreamHandle,
};
pub use host::{HostAddresses, HostViews};
pub use kernel::{KernelAccess, KernelAccesses, KernelParam, KernelWalk, LaunchShape, StridedSpan};
pub use operation::Operation;
pub use place::{DeviceId, Location, LocationKind, Processor};
pub use pool::{AccessFlags, AllocationType, HandleTypes, MemoryInfo, PoolProps};
pub use recorded::{KernelWork, RecordedLaunch};
pub use recorded_blocks::{RecordedBlock, RecordedBlocks, RecordedBlocksWriter, RecordedStep};
pub use sharing::{
    ExportedPointer, HostRegisterFlags, IpcMemHandle, SHARED_BLOB_BYTES, ShareableHandle,
};
pub use starts::{locations_of_ranges, starts_are_valid};
pub use touch::{DeviceAccess, DeviceTouch, HostAccess, HostTouch};
pub use version::DriverVersion;
pub use virtual_memory::{Granularity, MemoryAccess, MemoryProps};
