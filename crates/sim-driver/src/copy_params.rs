//! The parameters of copies of rows and slices, as the driver takes them: `CUDA_MEMCPY2D` and
//! `CUDA_MEMCPY3D`.

use std::ffi::{c_int, c_void};

/// `CU_MEMORYTYPE_HOST`
pub(crate) const HOST: c_int = 1;
/// `CU_MEMORYTYPE_DEVICE`
pub(crate) const DEVICE: c_int = 2;
/// `CU_MEMORYTYPE_ARRAY`
pub(crate) const ARRAY: c_int = 3;
/// `CU_MEMORYTYPE_UNIFIED`
pub(crate) const UNIFIED: c_int = 4;

/// `CUDA_MEMCPY2D`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memcpy2D {
    /// Bytes before the first of the source, in its row.
    pub source_x: usize,
    /// Rows before the first of the source.
    pub source_y: usize,
    /// The kind of memory.
    pub source_kind: c_int,
    /// Where it is, if it is the host's.
    pub source_host: *const c_void,
    /// Where it is otherwise.
    pub source_device: u64,
    /// The array, if it is one.
    pub source_array: *mut c_void,
    /// Bytes from a row to the next.
    pub source_pitch: usize,
    /// The same of the destination.
    pub destination_x: usize,
    /// Rows before the first of the destination.
    pub destination_y: usize,
    /// The kind of memory.
    pub destination_kind: c_int,
    /// Where it is, if it is the host's.
    pub destination_host: *mut c_void,
    /// Where it is otherwise.
    pub destination_device: u64,
    /// The array, if it is one.
    pub destination_array: *mut c_void,
    /// Bytes from a row to the next.
    pub destination_pitch: usize,
    /// Bytes of each row that are copied.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
}

impl From<Memcpy2D> for Memcpy3D {
    fn from(rows: Memcpy2D) -> Self {
        let source = Memcpy3DSide {
            x: rows.source_x,
            y: rows.source_y,
            kind: rows.source_kind,
            host: rows.source_host.cast_mut(),
            device: rows.source_device,
            array: rows.source_array,
            pitch: rows.source_pitch,
            ..Memcpy3DSide::NOTHING
        };
        let destination = Memcpy3DSide {
            x: rows.destination_x,
            y: rows.destination_y,
            kind: rows.destination_kind,
            host: rows.destination_host,
            device: rows.destination_device,
            array: rows.destination_array,
            pitch: rows.destination_pitch,
            ..Memcpy3DSide::NOTHING
        };
        Self { source, destination, width: rows.width, height: rows.height, depth: 1 }
    }
}

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memcpy3DSide {
    /// Bytes before the first, in its row.
    pub x: usize,
    /// Rows before the first, in its slice.
    pub y: usize,
    /// Slices before the first.
    pub z: usize,
    /// The level of detail of an array.
    pub level: usize,
    /// The kind of memory.
    pub kind: c_int,
    /// Where it is, if it is the host's.
    pub host: *mut c_void,
    /// Where it is otherwise.
    pub device: u64,
    /// The array, if it is one.
    pub array: *mut c_void,
    /// Must be null, or is the context of a copy between devices.
    pub reserved: *mut c_void,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// Rows from a slice to the next.
    pub height: usize,
}

impl Memcpy3DSide {
    const NOTHING: Self = Self {
        x: 0,
        y: 0,
        z: 0,
        level: 0,
        kind: 0,
        host: std::ptr::null_mut(),
        device: 0,
        array: std::ptr::null_mut(),
        reserved: std::ptr::null_mut(),
        pitch: 0,
        height: 0,
    };

    /// A range at an address.
    fn range(kind: c_int, address: u64) -> Self {
        if kind == HOST {
            let host = std::ptr::with_exposed_provenance_mut(address as usize);
            return Self { kind, host, ..Self::NOTHING };
        }
        Self { kind, device: address, ..Self::NOTHING }
    }

    /// Where the memory is.
    pub(crate) fn base(&self) -> u64 {
        if self.kind == HOST { self.host.expose_provenance() as u64 } else { self.device }
    }

    /// The first row of a slice and the bytes from a row to the next, for a copy of `width` bytes
    /// and `rows` rows. `None` if the numbers pass the end of the address space.
    pub(crate) fn row(&self, slice: usize, width: usize, rows: usize) -> Option<(u64, u64)> {
        let pitch = if self.pitch == 0 { width.checked_add(self.x)? } else { self.pitch };
        let height = if self.height == 0 { rows } else { self.height };
        let before = self.z.checked_add(slice)?.checked_mul(height)?.checked_add(self.y)?;
        let offset = before.checked_mul(pitch)?.checked_add(self.x)?;
        Some((self.base().checked_add(offset as u64)?, pitch as u64))
    }
}

/// `CUDA_MEMCPY3D`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memcpy3D {
    /// From where.
    pub source: Memcpy3DSide,
    /// To where.
    pub destination: Memcpy3DSide,
    /// Bytes of each row that are copied.
    pub width: usize,
    /// Rows of each slice that are copied.
    pub height: usize,
    /// The number of slices.
    pub depth: usize,
}

// SAFETY: the pointers are addresses. Code that follows them says why it may.
unsafe impl Send for Memcpy3D {}

impl Memcpy3D {
    /// A copy of one range: kind and address of each side.
    pub(crate) fn range(to: (c_int, u64), from: (c_int, u64), bytes: usize) -> Self {
        Self {
            source: Memcpy3DSide::range(from.0, from.1),
            destination: Memcpy3DSide::range(to.0, to.1),
            width: bytes,
            height: 1,
            depth: 1,
        }
    }

    /// Whether the copy has no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
}
