//! Steps: operations that name buffers by a number, before it is known which buffers live.

use pagewise_hal::{Advice, AllocationType, CopyAttributes, DeviceAccess, HostAccess, Location};

use crate::format::{LocationArg, Stream};

/// One operation of a random program. Fields named `nth` choose among the live ones, modulo their
/// number.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the operations that they become")]
pub enum Step {
    AllocManaged { bytes: u64, attach_flags: u32 },
    AllocDevice { bytes: u64 },
    AllocPinned { bytes: u64 },
    Free { nth: u16 },
    Advise { range: Range, advice: Advice, location: LocationArg },
    Prefetch { range: Range, location: LocationArg, flags: Option<u32> },
    PrefetchBatch(BatchStep),
    DiscardPrefetchBatch(BatchStep),
    DiscardBatch { ranges: Vec<Range>, flags: u64, stream: Stream },
    HostTouch { range: Range, stride: u64, access: HostAccess },
    DeviceTouch { device: i32, range: Range, stride: u64, access: DeviceAccess, grid: Grid },
    Memset { range: Range, value: u8 },
    MemsetD16 { range: Range, value: u16, start: FillStart },
    MemsetD32 { range: Range, value: u32, start: FillStart },
    Memcpy { to: Range, from: Range },
    MemcpyBatch(CopyBatchStep),
    StreamAttach { nth: u16, part: AttachPart, flags: u32, stream: Stream },
    RangeAttributes { range: Range },
    PointerAttributes { range: Range },
    PoolCreate { kind: AllocationType, location: Location, handle_types: u32, max_bytes: u64 },
    PoolAttributes { nth: u16 },
    PoolSetAttribute { nth: u16, attribute: i32, value: u64 },
    PoolTrimTo { nth: u16, bytes: u64 },
    PoolSetAccess { nth: u16, location: Location, access: i32 },
    PoolGetAccess { nth: u16, location: Location },
    PoolAlloc { nth: u16, bytes: u64 },
    PoolFree { nth: u16 },
}

/// Arguments of a batch call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchStep {
    /// The ranges.
    pub ranges: Vec<Range>,
    /// A location for each group of ranges.
    pub locations: Vec<Location>,
    /// Whether the list of starts is right, or how it is wrong.
    pub starts: Starts,
    /// Flags of the call.
    pub flags: u64,
    /// Its stream.
    pub stream: Stream,
}

/// Arguments of a batch of copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyBatchStep {
    /// Destination and source of each copy. An empty one makes a copy of 0 bytes.
    pub copies: Vec<(Range, Range)>,
    /// A set of attributes for each group of copies.
    pub attributes: Vec<CopyAttributes>,
    /// Whether the list of starts is right, or how it is wrong.
    pub starts: Starts,
    /// The stream of the call.
    pub stream: Stream,
}

/// Where a fill with values of several bytes begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillStart {
    /// At a multiple of the value's size.
    Aligned,
    /// A byte later, which is refused.
    Misaligned,
}

/// The list of starts of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starts {
    /// Right: the ranges are dealt out evenly.
    Even,
    /// The first is not 0.
    NotFromZero,
    /// Two are the same.
    Repeated,
    /// The last is past the ranges.
    Past,
}

/// Which memory: the nth live buffer that is of use, and which part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Which buffer.
    pub nth: u16,
    /// Which part.
    pub part: Stretch,
}

/// A part of a buffer; fractions are of 65,536.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// All of it.
    Whole,
    /// Whole pages.
    Pages {
        /// Where it starts.
        start: u16,
        /// How long it is.
        length: u16,
    },
    /// From 1 byte on, anywhere.
    Bytes {
        /// Where it starts.
        start: u16,
        /// How long it is.
        length: u16,
    },
    /// An empty range at some offset.
    Empty,
    /// One byte too long.
    Past,
    /// All of a buffer that was freed.
    Freed,
    /// A range of memory that was never allocated.
    Wild,
}

/// How much of a buffer a stream is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachPart {
    /// 0 bytes from the start: all of it.
    Zero,
    /// Its size.
    Whole,
    /// Its first page.
    FirstPage,
    /// 0 bytes from its second page.
    SecondPage,
}

/// Blocks and threads of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// One thread.
    Serial,
    /// Several.
    Parallel {
        /// Blocks.
        blocks: u32,
        /// Threads of a block.
        threads: u32,
    },
}
