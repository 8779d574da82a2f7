//! The typed model of a `pagewise-trace`, version 1.
//!
//! A trace is JSON Lines in UTF-8. Line 1 is the [`Header`], `{"case": NAME}` starts a [`Case`],
//! every other line is an operation with the observations after it, a [`RecordedOp`]. Buffers and
//! pools are ids that the case chose, 0 to [`MAX_ID`]. An id that is not live stands for the null
//! address. Unknown fields are ignored, so that a newer recorder may add some.
//!
//! These operations have the following fields. The shipped recordings hold the first five, without
//! the fields that may be missing from `alloc_device` and `alloc_pinned`; they hold none of the
//! others.
//!
//! | operation | fields |
//! | --- | --- |
//! | `memcpy` | `dst_buf`, `dst_offset`, `src_buf`, `src_offset`, `bytes`, `stream` (optional) |
//! | `memset_d16`, `memset_d32` | as `memset`: `buf`, `offset`, `bytes`, `value`, `stream` (optional) |
//! | `memcpy_batch` | `copies`, `attribute_sets`, `attribute_starts`, `stream` |
//! | `stream_attach` | `buf`, `offset`, `bytes`, `flags`, `stream` (optional) |
//! | `alloc_device` | `buf`, `bytes`, `device` (0 if it is missing) |
//! | `alloc_pinned` | `buf`, `bytes`, `flags` (0 if they are missing) |
//! | `pool_destroy` | `pool` |
//! | `free_pinned` | `buf` |
//! | `pool_set_current` | `pool`, `location`, `alloc_type` |
//! | `host_memory` | `buf`, `bytes` |
//! | `host_register` | `buf`, `offset`, `bytes`, `flags` |
//! | `host_unregister` | `buf`, `offset` |
//! | `pool_export`, `pool_import` | `pool`, `share`, `handle_types` |
//! | `pool_export_pointer` | `buf`, `offset`, `share` |
//! | `pool_import_pointer` | `buf`, `pool`, `share` |
//! | `ipc_mem_handle` | `buf`, `offset`, `share` |
//! | `ipc_open_mem_handle` | `buf`, `device`, `share` |
//! | `ipc_close_mem_handle` | `buf`, `offset` |
//! | `kernel_accesses` | `device`, `blocks`, `threads`, `walks` |
//! | `launch` | `device`, `stream` (optional), `ranges`, `launch`, `accesses` |
//!
//! `share` is an id like those of buffers and pools. It names what a call made for other processes:
//! a handle of a pool, or a blob that stands for an allocation. An id that no call made stands for
//! the descriptor -1, or for a blob of zeros. An import has an id of its own, which the call names.
//!
//! `walks` is a list of objects, one for each walk of a kernel: `access` is `load`, `store`,
//! `update` or `atomic`, `ranges` a list of `[buf, offset, bytes, stride]`. Contents that such a
//! kernel writes are not in the trace, so a recorder marks the `sum` of a read of them as
//! `unstable`.
//!
//! A `launch` has no code. Its accesses are those that a machine observed: for each block the first
//! access of each kind to each page, and every access that waited for its page, warp by warp in their
//! order. `ranges` are the allocations that hold them. `launch` is an object: the name `kernel`,
//! `grid` and `block` (three numbers each), `registers` of a thread, `shared_bytes` of a block,
//! `multiprocessors` of the machine and `blocks_each` that one of them held, and `work`, the executed
//! instructions of warps by class ([`KernelWork`](pagewise_hal::KernelWork)). `accesses` is an object: `bytes`, at most 32 MiB, and
//! `packed`, these bytes as zstd in base64 without padding. [`RecordedBlocks`] says what they are.
//! Addresses are kept to 128 bytes, and a launch of more than three million steps has later ones only
//! for pages that it did not access before. Contents that it writes are not in the trace.
//! A reader from before there was this operation says that it does not know it.
//!
//! [`RecordedBlocks`]: pagewise_hal::RecordedBlocks
//!
//! `copies` is a list of `[dst_buf, dst_offset, src_buf, src_offset, bytes]`, `attribute_sets` a
//! list of objects: `order` is the number of the source's access order, `flags` (0 if they are
//! missing) and the locations `source_hint` and `destination_hint` (none if they are missing) are
//! hints.
//!
//! An operation without the field `stream` uses the non-blocking stream.

mod copies;
mod decode;
mod encode;
mod header;
mod launch;
mod observed;
mod part;
mod raw;

use pagewise_hal::{Advice, AllocationType, DeviceAccess, HostAccess, KernelAccess, Location};

pub use copies::{CopyBatch, CopyPart};
pub use header::{Header, RecordedOn};
pub use launch::{Launch, LaunchShape, PackedAccesses};
pub use observed::{
    AttributeRead, AttributeValue, Attributes, Detail, Label, MemoryRecord, Observed, PageMap,
    Timing,
};
pub use part::{Part, Stream};
pub(crate) use raw::{RawCopyAttributes, RawLine};

/// The field `format` of every header.
pub const FORMAT: &str = "pagewise-trace";

/// The version that this crate reads and writes.
pub const VERSION: u64 = 1;

/// The most bytes of one piece of the process's own memory (`host_memory`).
pub const MAX_HOST_MEMORY_BYTES: u64 = 1 << 30;

/// The largest id of a buffer, a pool or what was exported.
pub const MAX_ID: u32 = 1_000_000;

/// The longest accessed-by list that an operation reads.
pub const MAX_SLOTS: u32 = 1024;

/// Buffers up to this size have their host page table observed after each operation.
pub const MAX_MAPPED_BYTES: u64 = 16 << 20;

/// The location argument of a call: in its ordinal form (`abi` 1), or in its location form (2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocationArg {
    /// A device ordinal, -1 for the host.
    Ordinal(i32),
    /// A location.
    Location(Location),
}

/// Ranges and locations of a batch call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The ranges.
    pub ranges: Vec<Part>,
    /// The locations.
    pub locations: Vec<Location>,
    /// The index of the first range of each location.
    pub location_starts: Vec<u64>,
    /// Flags of the call.
    pub flags: u64,
    /// Its stream.
    pub stream: Stream,
}

/// Which pool of a location is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolQuery {
    /// The id that the answer is known by.
    pub pool: u32,
    /// The location of the pool.
    pub location: Location,
    /// The type of memory of the pool.
    pub kind: AllocationType,
}

/// The accesses of a kernel to one of its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// The access at each place.
    pub access: KernelAccess,
    /// Parts of buffers, each with the bytes from one place to the next.
    pub ranges: Vec<(Part, u64)>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are the driver's arguments, named as in the format")]
pub enum Op {
    /// `cuMemAllocManaged`
    AllocManaged { buf: u32, bytes: u64, attach_flags: u32 },
    /// `cuMemAlloc`
    AllocDevice { buf: u32, bytes: u64, device: i32 },
    /// `cuMemHostAlloc`
    AllocPinned { buf: u32, bytes: u64, flags: u32 },
    /// `cuMemFree`
    Free { buf: u32 },
    /// `cuMemFreeHost`
    FreePinned { buf: u32 },
    /// `cuMemAdvise`
    Advise { part: Part, advice: Advice, location: LocationArg },
    /// `cuMemPrefetchAsync`; `flags` only in the location form
    Prefetch { part: Part, location: LocationArg, flags: Option<u32> },
    /// `cuMemPrefetchBatchAsync`
    PrefetchBatch(Batch),
    /// `cuMemDiscardAndPrefetchBatchAsync`
    DiscardPrefetchBatch(Batch),
    /// `cuMemDiscardBatchAsync`
    DiscardBatch { ranges: Vec<Part>, flags: u64, stream: Stream },
    /// A host access program; a recorder may note a `value` that reads do not use
    HostTouch { part: Part, stride: u64, access: HostAccess, value: Option<u8> },
    /// A device access program; `value` as for the host
    DeviceTouch {
        device: i32,
        part: Part,
        stride: u64,
        access: DeviceAccess,
        value: Option<u8>,
        blocks: u32,
        threads: u32,
    },
    /// The declared accesses of a kernel
    KernelAccesses { device: i32, blocks: u32, threads: u32, walks: Vec<Walk> },
    /// A launch of a kernel, by the accesses that it made
    Launch(Box<Launch>),
    /// `cuMemsetD8Async`
    Memset { part: Part, value: u8, stream: Option<Stream> },
    /// `cuMemsetD16Async`
    MemsetD16 { part: Part, value: u16, stream: Option<Stream> },
    /// `cuMemsetD32Async`
    MemsetD32 { part: Part, value: u32, stream: Option<Stream> },
    /// `cuMemcpyBatchAsync`
    MemcpyBatch(CopyBatch),
    /// `cuMemcpyAsync`
    Memcpy { to: (u32, u64), from: (u32, u64), bytes: u64, stream: Option<Stream> },
    /// `cuStreamAttachMemAsync`
    StreamAttach { part: Part, flags: u32, stream: Option<Stream> },
    /// `cuMemRangeGetAttribute`, once per attribute
    RangeAttributes {
        part: Part,
        /// The length of the accessed-by list, which the driver truncates; if not given, one more
        /// than there are devices
        slots: Option<u32>,
    },
    /// `cuPointerGetAttribute`, once per attribute
    PointerAttributes { buf: u32, offset: u64 },
    /// `cuMemPoolCreate`
    PoolCreate {
        pool: u32,
        kind: AllocationType,
        location: Location,
        handle_types: u32,
        max_bytes: u64,
    },
    /// `cuMemGetDefaultMemPool`
    PoolGetDefault(PoolQuery),
    /// `cuMemGetMemPool`
    PoolGetCurrent(PoolQuery),
    /// `cuMemSetMemPool`
    PoolSetCurrent(PoolQuery),
    /// `cuMemPoolDestroy`
    PoolDestroy { pool: u32 },
    /// `cuMemPoolGetAttribute`, once per attribute
    PoolAttributes { pool: u32 },
    /// `cuMemPoolSetAttribute`
    PoolSetAttribute { pool: u32, attribute: i32, value: u64 },
    /// `cuMemPoolTrimTo`
    PoolTrimTo { pool: u32, bytes: u64 },
    /// `cuMemPoolSetAccess`
    PoolSetAccess { pool: u32, location: Location, access: i32 },
    /// `cuMemPoolGetAccess`
    PoolGetAccess { pool: u32, location: Location },
    /// `cuMemAllocFromPoolAsync`
    PoolAlloc { buf: u32, pool: u32, bytes: u64 },
    /// `cuMemFreeAsync`
    PoolFree { buf: u32 },
    /// Not a call: the process has memory of its own, whole pages of zeros, that no driver gave
    HostMemory { buf: u32, bytes: u64 },
    /// `cuMemHostRegister`
    HostRegister { part: Part, flags: u32 },
    /// `cuMemHostUnregister`
    HostUnregister { buf: u32, offset: u64 },
    /// `cuMemPoolExportToShareableHandle`
    PoolExport { pool: u32, share: u32, handle_types: u32 },
    /// `cuMemPoolImportFromShareableHandle`
    PoolImport { pool: u32, share: u32, handle_types: u32 },
    /// `cuMemPoolExportPointer`
    PoolExportPointer { buf: u32, offset: u64, share: u32 },
    /// `cuMemPoolImportPointer`
    PoolImportPointer { buf: u32, pool: u32, share: u32 },
    /// `cuIpcGetMemHandle`
    IpcMemHandle { buf: u32, offset: u64, share: u32 },
    /// `cuIpcOpenMemHandle`
    IpcOpenMemHandle { buf: u32, device: i32, share: u32 },
    /// `cuIpcCloseMemHandle`
    IpcCloseMemHandle { buf: u32, offset: u64 },
    /// The host sleeps
    Sleep { ms: u64 },
}

impl Op {
    /// Whether the operation belongs to the memory pools. Their state outlives a case.
    #[must_use]
    pub fn is_pool(&self) -> bool {
        self.name().starts_with("pool_")
    }

    /// Whether more than one thread of a device accesses memory, so that the order of faults is
    /// not determined: a kernel of several threads, or a memset.
    #[must_use]
    pub fn is_parallel(&self) -> bool {
        match *self {
            Self::DeviceTouch { blocks, threads, .. }
            | Self::KernelAccesses { blocks, threads, .. } => {
                u64::from(blocks).saturating_mul(threads.into()) > 1
            }
            Self::Memset { .. }
            | Self::MemsetD16 { .. }
            | Self::MemsetD32 { .. }
            | Self::Launch(_) => true,
            _ => false,
        }
    }

    /// Whether the operation is carried out in stream order.
    #[must_use]
    pub fn is_asynchronous(&self) -> bool {
        matches!(
            self,
            Self::Prefetch { .. }
                | Self::PrefetchBatch(_)
                | Self::DiscardPrefetchBatch(_)
                | Self::DiscardBatch { .. }
                | Self::DeviceTouch { .. }
                | Self::KernelAccesses { .. }
                | Self::Launch(_)
                | Self::Memset { .. }
                | Self::MemsetD16 { .. }
                | Self::MemsetD32 { .. }
                | Self::Memcpy { .. }
                | Self::MemcpyBatch(_)
                | Self::StreamAttach { .. }
                | Self::PoolAlloc { .. }
                | Self::PoolFree { .. }
        )
    }

    /// The buffer that the operation allocates, imports, or says to be there.
    #[must_use]
    pub fn allocates(&self) -> Option<u32> {
        match *self {
            Self::AllocManaged { buf, .. }
            | Self::AllocDevice { buf, .. }
            | Self::AllocPinned { buf, .. }
            | Self::PoolAlloc { buf, .. }
            | Self::HostMemory { buf, .. }
            | Self::PoolImportPointer { buf, .. }
            | Self::IpcOpenMemHandle { buf, .. } => Some(buf),
            _ => None,
        }
    }

    /// The buffer that the operation frees or closes.
    #[must_use]
    pub fn frees(&self) -> Option<u32> {
        match *self {
            Self::Free { buf }
            | Self::FreePinned { buf }
            | Self::PoolFree { buf }
            | Self::IpcCloseMemHandle { buf, offset: 0 } => Some(buf),
            _ => None,
        }
    }
}

/// One operation with what was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOp {
    /// The operation.
    pub op: Op,
    /// The observations.
    pub observed: Observed,
}

impl RecordedOp {
    /// Whether several threads of a device accessed memory: [`Op::is_parallel`], or a copy in which
    /// a device faulted. Devices copy what faults with kernels, hosts with one thread.
    #[must_use]
    pub fn is_parallel(&self) -> bool {
        let faulted =
            || self.observed.events.iter().any(|event| event.kind.as_str() == "gpu_fault");
        let copies = matches!(self.op, Op::Memcpy { .. } | Op::MemcpyBatch(_));
        self.op.is_parallel() || (copies && faulted())
    }
}

/// A recorded operation and the line that it stands on, from 1 on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpLine {
    /// The line.
    pub line: u64,
    /// The recorded operation.
    pub recorded: RecordedOp,
}

/// A case: a name and its operations in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The name.
    pub name: String,
    /// The line of `{"case": NAME}`.
    pub line: u64,
    /// The operations.
    pub ops: Vec<OpLine>,
    /// Bytes of text that it was read from, 0 if it was not.
    pub text_bytes: u64,
}

impl Case {
    /// Whether it uses memory pools, and so depends on the cases before it.
    #[must_use]
    pub fn uses_pools(&self) -> bool {
        self.ops.iter().any(|line| line.recorded.op.is_pool())
    }
}
