//! Entry points of virtual memory management. They need no context, as an H200 answered. That they
//! look for places before anything else is a guess.

use std::ffi::{c_int, c_void};

use pagewise_hal::{
    AccessFlags, AllocationType, Backend, Code, DevicePtr, Granularity, HandleTypes, LocationKind,
    MemoryAccess, MemoryHandle, MemoryProps,
};

use crate::driver::{Outcome, answer, has_place, load, started, store};
use crate::entry::pools::MemAccessDesc;
use crate::entry::{MemLocation, span};

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemAllocationProp {
    /// The kind of memory.
    pub allocation_type: c_int,
    /// How it can be exported.
    pub handle_types: c_int,
    /// Where.
    pub location: MemLocation,
    /// Windows only.
    pub win32_handle_meta_data: *mut c_void,
    /// Compression, which is noted, RDMA and, in two bytes, usage, which change nothing here; four
    /// reserved bytes, which are zero.
    pub alloc_flags: [u8; 8],
}

/// `CU_MEM_ALLOCATION_COMP_GENERIC`
const COMPRESSION_GENERIC: u8 = 1;

/// The most places that one call gives access: all devices, the host and its nodes.
const PLACES_MAX: usize = 1024;

fn memory(raw: u64) -> MemoryHandle {
    MemoryHandle::checked(raw)
}

/// The properties that an argument points to, and its flags.
///
/// # Safety
/// `props` must be null or valid for reading.
unsafe fn properties(props: *const MemAllocationProp) -> Outcome<(MemoryProps, [u8; 8])> {
    // SAFETY: by this function's contract `props` is null or valid for reading. Every bit pattern
    // is a value of its integers and of its pointer, which is not dereferenced.
    let props = unsafe { load(props) }?;
    let known = MemoryProps {
        allocation_type: AllocationType(props.allocation_type),
        location: props.location.into(),
        handle_types: HandleTypes::from_bits_retain(props.handle_types.cast_unsigned()),
    };
    Ok((known, props.alloc_flags))
}

fn no_flags(flags: u64) -> Outcome {
    if flags == 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// `cuMemGetAllocationGranularity`
///
/// # Safety
/// `props` must be null or valid for reading; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    out: *mut usize,
    props: *const MemAllocationProp,
    which: c_int,
) -> c_int {
    started("cuMemGetAllocationGranularity", |driver| {
        has_place(out)?;
        // SAFETY: the caller promises that `props` is null or valid for reading.
        let (props, _) = unsafe { properties(props) }?;
        let bytes = answer(driver.sim.memory_granularity(props, Granularity(which)))?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, bytes as usize) }
    })
}

/// `cuMemAddressReserve`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    out: *mut u64,
    bytes: usize,
    alignment: usize,
    hint: u64,
    flags: u64,
) -> c_int {
    started("cuMemAddressReserve", |driver| {
        has_place(out)?;
        no_flags(flags)?;
        let (bytes, alignment) = (bytes as u64, alignment as u64);
        let made = answer(driver.sim.address_reserve(bytes, alignment, DevicePtr(hint)))?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, made.0) }
    })
}

/// `cuMemAddressFree`
///
/// # Safety
/// No code may use the addresses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressFree(ptr: u64, bytes: usize) -> c_int {
    started("cuMemAddressFree", |driver| {
        // SAFETY: `address_free` asks that no code uses the addresses from now on; the caller of
        // this function promised that.
        answer(unsafe { driver.sim.address_free(span(ptr, bytes)) })
    })
}

/// `cuMemCreate`
///
/// # Safety
/// `props` must be null or valid for reading; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    out: *mut u64,
    bytes: usize,
    props: *const MemAllocationProp,
    flags: u64,
) -> c_int {
    started("cuMemCreate", |driver| {
        has_place(out)?;
        no_flags(flags)?;
        // SAFETY: the caller promises that `props` is null or valid for reading.
        let (props, alloc_flags) = unsafe { properties(props) }?;
        let [compression, _, _, _, reserved @ ..] = alloc_flags;
        let takes_compression = match compression {
            0 => true,
            // Memory of the host is never compressible on an H200.
            COMPRESSION_GENERIC => props.location.kind == LocationKind::DEVICE,
            _ => false,
        };
        if reserved != [0; 4] || !takes_compression {
            return Err(Code::INVALID_VALUE);
        }
        let made = answer(driver.sim.memory_create(bytes as u64, props))?;
        if compression == COMPRESSION_GENERIC {
            let exists =
                |handle: &u64| driver.machine.simulator.memory_props(memory(*handle)).is_ok();
            let mut compressible = driver.compressible();
            compressible.retain(exists);
            compressible.insert(made.as_raw());
        }
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, made.as_raw()) }
    })
}

/// `cuMemRelease`
///
/// # Safety
/// The handle may not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRelease(handle: u64) -> c_int {
    started("cuMemRelease", |driver| {
        // SAFETY: `memory_release` asks that the handle is not used again; the caller of this
        // function promised that. The simulator refuses a handle that was released, so even a
        // broken promise does no harm.
        answer(unsafe { driver.sim.memory_release(memory(handle)) })
    })
}

/// `cuMemRetainAllocationHandle`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRetainAllocationHandle(out: *mut u64, address: *mut c_void) -> c_int {
    started("cuMemRetainAllocationHandle", |driver| {
        has_place(out)?;
        let ptr = DevicePtr(address.addr() as u64);
        let memory = answer(driver.machine.simulator.memory_retain(ptr))?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, memory.as_raw()) }
    })
}

/// `cuMemGetAllocationPropertiesFromHandle`. Of its flags compression is as the memory was asked for;
/// the others are 0.
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationPropertiesFromHandle(
    out: *mut MemAllocationProp,
    handle: u64,
) -> c_int {
    started("cuMemGetAllocationPropertiesFromHandle", |driver| {
        has_place(out)?;
        let props = answer(driver.machine.simulator.memory_props(memory(handle)))?;
        let props = MemAllocationProp {
            allocation_type: props.allocation_type.0,
            handle_types: props.handle_types.bits().cast_signed(),
            location: props.location.into(),
            win32_handle_meta_data: std::ptr::null_mut(),
            alloc_flags: [u8::from(driver.compressible().contains(&handle)), 0, 0, 0, 0, 0, 0, 0],
        };
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, props) }
    })
}

/// `cuMemMap`
///
/// # Safety
/// If the memory is mapped elsewhere, no code may count on having its bytes alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemMap(
    ptr: u64,
    bytes: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> c_int {
    started("cuMemMap", |driver| {
        no_flags(flags)?;
        // SAFETY: `memory_map` asks that no code counts on having the memory alone if it is mapped
        // elsewhere; the caller of this function promised that.
        let call =
            unsafe { driver.sim.memory_map(span(ptr, bytes), offset as u64, memory(handle)) };
        answer(call)
    })
}

/// `cuMemUnmap`
///
/// # Safety
/// No thread, and no work of a device, may use the range any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemUnmap(ptr: u64, bytes: usize) -> c_int {
    started("cuMemUnmap", |driver| {
        // SAFETY: `memory_unmap` asks that no code uses the range any more; the caller of this
        // function promised that.
        answer(unsafe { driver.sim.memory_unmap(span(ptr, bytes)) })
    })
}

/// `cuMemSetAccess`
///
/// # Safety
/// `wanted` must be null or valid for reading `count` descriptors. No thread, and no work of a
/// device, may lose access to memory that it uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(
    ptr: u64,
    bytes: usize,
    wanted: *const MemAccessDesc,
    count: usize,
) -> c_int {
    started("cuMemSetAccess", |driver| {
        has_place(wanted)?;
        if count > PLACES_MAX {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: `wanted` is not null, so the caller promises that it points to `count`
        // descriptors. They are integers, of which every bit pattern is a value.
        let one = |at: usize| unsafe { wanted.add(at).read_unaligned() };
        let wanted: Vec<MemoryAccess> = (0..count)
            .map(one)
            .map(|MemAccessDesc { location, flags }| MemoryAccess {
                location: location.into(),
                access: AccessFlags(flags),
            })
            .collect();
        // SAFETY: `memory_set_access` asks that no code loses access to memory that it uses; the
        // caller of this function promised that.
        answer(unsafe { driver.sim.memory_set_access(span(ptr, bytes), &wanted) })
    })
}

/// `cuMemGetAccess`
///
/// # Safety
/// `location` must be null or valid for reading; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAccess(
    out: *mut u64,
    location: *const MemLocation,
    ptr: u64,
) -> c_int {
    started("cuMemGetAccess", |driver| {
        has_place(out)?;
        // SAFETY: the caller promises that `location` is null or valid for reading. It is two
        // integers, of which every bit pattern is a value.
        let location = unsafe { load(location) }?;
        let found = answer(driver.sim.memory_access(DevicePtr(ptr), location.into()))?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, found.0 as u64) }
    })
}
