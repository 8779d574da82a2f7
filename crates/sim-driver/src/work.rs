//! One piece of work of a stream, as a value: entry points make it, and it runs at once or becomes
//! a node of the graph that its stream captures.

use std::ffi::{c_uint, c_void};

use pagewise_hal::Code;

use crate::copy_params::{DEVICE, HOST, Memcpy3D, UNIFIED};
use crate::outcome::Outcome;

/// `CUhostFn`
pub type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// The use that a copy makes of a range of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Reads it.
    Read,
    /// Writes it.
    Write,
    /// The caller promised that the range can be used so.
    Promised,
}

/// A copy of one range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) to: (u64, Use),
    pub(crate) from: (u64, Use),
    pub(crate) bytes: usize,
}

impl From<Range> for Memcpy3D {
    /// Ranges that the caller promised are memory of the host: only those calls name a side of it.
    fn from(range: Range) -> Self {
        let side = |(address, how): (u64, Use), other: Use| match (how, other) {
            (Use::Promised, _) => (HOST, address),
            (_, Use::Promised) => (DEVICE, address),
            _ => (UNIFIED, address),
        };
        let (to, from) = (side(range.to, range.from.1), side(range.from, range.to.1));
        Self::range(to, from, range.bytes)
    }
}

/// A fill, as `CUDA_MEMSET_NODE_PARAMS` has it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemsetParams {
    /// The first byte.
    pub address: u64,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// The value, of which the low bytes count.
    pub value: c_uint,
    /// The size of an element in bytes: 1, 2 or 4.
    pub element_bytes: c_uint,
    /// Elements of a row.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
}

impl MemsetParams {
    /// The bytes from the first to the last that are filled.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the address or the pitch is not aligned to elements, if rows
    /// overlap, or if the numbers pass the end of the address space.
    pub(crate) fn extent(&self) -> Outcome<usize> {
        let element = self.element_bytes as usize;
        let row = self.width.checked_mul(element).ok_or(Code::INVALID_VALUE)?;
        let before_last = self.height.checked_sub(1).and_then(|rows| rows.checked_mul(self.pitch));
        let extent = before_last.and_then(|bytes| bytes.checked_add(row));
        let extent = extent.ok_or(Code::INVALID_VALUE)?;
        let has_rows = self.height > 1;
        let aligned = self.address.is_multiple_of(u64::from(self.element_bytes))
            && (!has_rows || self.pitch.is_multiple_of(element));
        let apart = !has_rows || self.pitch >= row;
        if aligned && apart { Ok(extent) } else { Err(Code::INVALID_VALUE) }
    }
}

/// A call of a function of the host, as `CUDA_HOST_NODE_PARAMS` has it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HostNodeParams {
    /// The function.
    pub function: HostFunction,
    /// The argument of the function.
    pub data: *mut c_void,
}

// SAFETY: the pointer is passed on and not used. The caller gave it for its function, which the
// driver may call from any thread.
unsafe impl Send for HostNodeParams {}

/// One piece of work of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Copies a range.
    Copy(Range),
    /// Copies rows and slices.
    Slices(Memcpy3D),
    /// Fills one range. Too many elements for an address space wrap (CONTRACT-107).
    Fill(MemsetParams),
    /// Fills rows of one allocation.
    Rows(MemsetParams),
    /// Calls a function of the host.
    Host(HostNodeParams),
}

impl Work {
    /// Whether the work does nothing, so that no node is made of it.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Copy(range) => range.bytes == 0,
            Self::Slices(slices) => slices.is_empty(),
            Self::Fill(fill) | Self::Rows(fill) => fill.width == 0 || fill.height == 0,
            Self::Host(_) => false,
        }
    }
}
