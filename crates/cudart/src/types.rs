//! The runtime's structures that functions take or return by value, and its handles.

use std::ffi::{c_int, c_uint, c_void};

/// A handle of the runtime or the driver: a stream, an event, a graph, a pool.
pub type Handle = *mut c_void;

/// The extent of a grid or a block, `dim3`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim3 {
    /// Blocks or threads along x.
    pub x: c_uint,
    /// Blocks or threads along y.
    pub y: c_uint,
    /// Blocks or threads along z.
    pub z: c_uint,
}

/// The extent of memory in three dimensions, `cudaExtent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of a row; elements if the memory is an array.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// A position in memory of three dimensions, `cudaPos`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Bytes from the start of the row; elements if the memory is an array.
    pub x: usize,
    /// Rows.
    pub y: usize,
    /// Slices.
    pub z: usize,
}

/// Memory with padded rows, `cudaPitchedPtr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PitchedPtr {
    /// The first byte.
    pub ptr: *mut c_void,
    /// Bytes from one row to the next.
    pub pitch: usize,
    /// Bytes of a row that hold data.
    pub xsize: usize,
    /// Rows of a slice.
    pub ysize: usize,
}

/// A place of memory, `cudaMemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemLocation {
    /// The kind of place: 1 a device, 2 the host, 3 a NUMA node of the host.
    pub kind: c_int,
    /// The ordinal of the device or node.
    pub id: c_int,
}

/// A handle that another process can open, `cudaIpcMemHandle_t` or `cudaIpcEventHandle_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpcHandle {
    /// The driver's bytes.
    pub reserved: [u8; 64],
}

/// The layout of an array's elements, `cudaChannelFormatDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelFormat {
    /// Bits of the first channel.
    pub x: c_int,
    /// Bits of the second channel.
    pub y: c_int,
    /// Bits of the third channel.
    pub z: c_int,
    /// Bits of the fourth channel.
    pub w: c_int,
    /// The kind of numbers.
    pub kind: c_int,
}

/// The layout of elements with channels of so many bits.
pub extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_int,
) -> ChannelFormat {
    ChannelFormat { x, y, z, w, kind }
}
