//! The driver's data types as this crate passes them: own layouts, checked at compile time.
//!
//! Handles are opaque pointers, enumerations are integers. Layouts: `cuda.h` of toolkits 12.0 to
//! 13.5; sizes have not changed since 12.0, fields were only carved out of reserved bytes, which
//! must be zero.

use std::ffi::c_void;
use std::mem::offset_of;

use pagewise_hal::{Location, MemoryProps, PoolProps, SHARED_BLOB_BYTES};

/// A context, stream, event, pool, module or function.
pub(crate) type Handle = *mut c_void;

/// The handle with this number.
pub(crate) const fn handle(raw: u64) -> Handle {
    std::ptr::without_provenance_mut(raw as usize)
}

/// `CUmemLocation`, passed by value.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemLocation {
    kind: i32,
    id: i32,
}

impl From<Location> for MemLocation {
    fn from(location: Location) -> Self {
        Self { kind: location.kind.0, id: location.id }
    }
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessDesc {
    pub(crate) location: MemLocation,
    pub(crate) flags: i32,
}

/// `CUmemcpyAttributes`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyAttributes {
    source_order: i32,
    source_hint: MemLocation,
    destination_hint: MemLocation,
    flags: u32,
}

impl From<pagewise_hal::CopyAttributes> for CopyAttributes {
    fn from(attributes: pagewise_hal::CopyAttributes) -> Self {
        Self {
            source_order: attributes.source_order.0,
            source_hint: attributes.source_hint.into(),
            destination_hint: attributes.destination_hint.into(),
            flags: attributes.flags.bits(),
        }
    }
}

/// `CUmemPoolProps` as of CUDA 12.2; in 12.0 the size limit is a reserved byte that must be zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawPoolProps {
    allocation_type: i32,
    handle_types: i32,
    location: MemLocation,
    win32_security_attributes: Handle,
    max_bytes: usize,
    reserved: [u8; 56],
}

impl From<PoolProps> for RawPoolProps {
    fn from(props: PoolProps) -> Self {
        Self {
            allocation_type: props.allocation_type.0,
            handle_types: props.handle_types.bits().cast_signed(),
            location: props.location.into(),
            win32_security_attributes: std::ptr::null_mut(),
            max_bytes: props.max_bytes as usize,
            reserved: [0; 56],
        }
    }
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawAllocationProp {
    allocation_type: i32,
    handle_types: i32,
    location: MemLocation,
    win32_handle_meta_data: Handle,
    /// Compression, RDMA and usage: none.
    alloc_flags: [u8; 8],
}

impl From<MemoryProps> for RawAllocationProp {
    fn from(props: MemoryProps) -> Self {
        Self {
            allocation_type: props.allocation_type.0,
            handle_types: props.handle_types.bits().cast_signed(),
            location: props.location.into(),
            win32_handle_meta_data: std::ptr::null_mut(),
            alloc_flags: [0; 8],
        }
    }
}

/// `CUmemPoolPtrExportData` and `CUipcMemHandle`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blob(pub(crate) [u8; SHARED_BLOB_BYTES]);

const _: () = {
    assert!(size_of::<Blob>() == 64 && align_of::<Blob>() == 1);
    assert!(size_of::<usize>() == 8, "CUDA 12 and later exist for 64-bit systems only");
    assert!(size_of::<MemLocation>() == 8 && offset_of!(MemLocation, id) == 4);
    assert!(size_of::<AccessDesc>() == 12 && offset_of!(AccessDesc, flags) == 8);
    assert!(size_of::<CopyAttributes>() == 24 && offset_of!(CopyAttributes, source_hint) == 4);
    assert!(offset_of!(CopyAttributes, destination_hint) == 12);
    assert!(offset_of!(CopyAttributes, flags) == 20);
    assert!(size_of::<RawPoolProps>() == 88 && align_of::<RawPoolProps>() == 8);
    assert!(size_of::<RawAllocationProp>() == 32 && align_of::<RawAllocationProp>() == 8);
    assert!(offset_of!(RawAllocationProp, location) == 8);
    assert!(offset_of!(RawAllocationProp, alloc_flags) == 24);
    assert!(offset_of!(RawPoolProps, location) == 8);
    assert!(offset_of!(RawPoolProps, win32_security_attributes) == 16);
    assert!(offset_of!(RawPoolProps, max_bytes) == 24);
};
