//! Memory pools and stream-ordered allocation.

use std::ffi::{c_int, c_uint, c_void};

use pagewise::{
    AccessFlags, AllocationType, Backend, Code, DeviceId, DevicePtr, HandleTypes, Location,
    PoolAttribute, PoolHandle, PoolProps, Result, SimBackend,
};

use crate::entry::MemLocation;
use crate::machine::{Machine, Outcome, answer, has_place, started, store};

/// `CUmemPoolProps` as of CUDA 12.2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemPoolProps {
    /// What it allocates.
    pub allocation_type: c_int,
    /// How it can be exported.
    pub handle_types: c_uint,
    /// Where.
    pub location: MemLocation,
    /// Windows only.
    pub win32_security_attributes: *mut c_void,
    /// Size limit in bytes, 0 for none.
    pub max_bytes: usize,
    /// Must be zero.
    pub reserved: [u8; 56],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemAccessDesc {
    /// Whose access.
    pub location: MemLocation,
    /// Which access.
    pub flags: c_int,
}

/// A pool of the caller: the simulator looks it up and refuses what it did not make.
pub(super) fn pool(raw: *mut c_void) -> PoolHandle {
    // SAFETY: the simulator dereferences no handle.
    unsafe { PoolHandle::from_raw(raw.addr() as u64) }
}

/// Runs a call that answers with a pool, and stores it.
///
/// # Safety
/// `out` must be null or valid for writing.
pub(super) unsafe fn give(
    out: *mut *mut c_void,
    find: impl FnOnce(&Machine) -> Result<PoolHandle>,
) -> c_int {
    started(|machine| {
        has_place(out)?;
        let found = answer(find(machine))?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(out, std::ptr::without_provenance_mut(found.as_raw() as usize)) }
    })
}

/// `cuMemPoolCreate`
///
/// # Safety
/// `props` must be null or valid for reading; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolCreate(
    out: *mut *mut c_void,
    props: *const MemPoolProps,
) -> c_int {
    if props.is_null() {
        return Code::INVALID_VALUE;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    let props = unsafe { *props };
    if props.reserved != [0; 56] {
        return Code::INVALID_VALUE;
    }
    let props = PoolProps {
        allocation_type: AllocationType(props.allocation_type),
        location: props.location.into(),
        handle_types: HandleTypes::from_bits_retain(props.handle_types),
        max_bytes: props.max_bytes as u64,
    };
    // SAFETY: the caller's duty is the same.
    unsafe { give(out, |machine| machine.sim.pool_create(props)) }
}

/// `cuMemPoolDestroy`
///
/// # Safety
/// The handle may not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolDestroy(handle: *mut c_void) -> c_int {
    // SAFETY: the caller's duty is the same.
    started(|machine| answer(unsafe { machine.sim.pool_destroy(pool(handle)) }))
}

/// Whether the driver takes the attribute as an `int`, not as 64 bits.
fn is_int(attribute: PoolAttribute) -> bool {
    matches!(attribute.0, 1..=3 | 9..=12)
}

/// `cuMemPoolGetAttribute`
///
/// # Safety
/// `value` must be null or valid for writing what the attribute takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolGetAttribute(
    handle: *mut c_void,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    started(|machine| {
        has_place(value)?;
        let attribute = PoolAttribute(attribute);
        let read = answer(machine.sim.pool_attribute(pool(handle), attribute))?;
        // SAFETY: not null, and the caller vouches for the size.
        unsafe {
            if is_int(attribute) {
                value.cast::<u32>().write_unaligned(read as u32);
            } else {
                value.cast::<u64>().write_unaligned(read);
            }
        }
        Ok(())
    })
}

/// `cuMemPoolSetAttribute`
///
/// # Safety
/// `value` must be null or valid for reading what the attribute takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolSetAttribute(
    handle: *mut c_void,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    started(|machine| {
        has_place(value)?;
        let attribute = PoolAttribute(attribute);
        // SAFETY: not null, and the caller vouches for the size.
        let value = unsafe {
            if is_int(attribute) {
                u64::from(value.cast::<u32>().read_unaligned())
            } else {
                value.cast::<u64>().read_unaligned()
            }
        };
        answer(machine.sim.pool_set_attribute(pool(handle), attribute, value))
    })
}

/// `cuMemPoolTrimTo`
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolTrimTo(handle: *mut c_void, min_bytes_to_keep: usize) -> c_int {
    started(|machine| answer(machine.sim.pool_trim(pool(handle), min_bytes_to_keep as u64)))
}

/// `cuMemPoolSetAccess`
///
/// # Safety
/// `access` must be null or have `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolSetAccess(
    handle: *mut c_void,
    access: *const MemAccessDesc,
    count: usize,
) -> c_int {
    started(|machine| {
        if access.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        for index in 0..count {
            // SAFETY: not null, and the caller vouches for the length.
            let MemAccessDesc { location, flags } = unsafe { *access.add(index) };
            let (location, flags) = (location.into(), AccessFlags(flags));
            answer(machine.sim.pool_set_access(pool(handle), location, flags))?;
        }
        Ok(())
    })
}

/// `cuMemPoolGetAccess`
///
/// # Safety
/// `location` must be null or valid for reading; `flags` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolGetAccess(
    flags: *mut c_int,
    handle: *mut c_void,
    location: *const MemLocation,
) -> c_int {
    started(|machine| {
        // SAFETY: the caller vouches for the place.
        let location = unsafe { read(location) }?;
        let access = answer(machine.sim.pool_access(pool(handle), location))?;
        // SAFETY: likewise.
        unsafe { store(flags, access.0) }
    })
}

/// # Safety
/// `location` must be null or valid for reading.
unsafe fn read(location: *const MemLocation) -> Outcome<Location> {
    if location.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(unsafe { *location }.into())
}

/// `cuDeviceGetDefaultMemPool`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(out: *mut *mut c_void, device: c_int) -> c_int {
    let location = Location::device(DeviceId(device));
    // SAFETY: the caller's duty is the same.
    unsafe { give(out, |machine| machine.sim.pool_default(location, AllocationType::PINNED)) }
}

/// `cuDeviceGetMemPool`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetMemPool(out: *mut *mut c_void, device: c_int) -> c_int {
    let location = Location::device(DeviceId(device));
    // SAFETY: the caller's duty is the same.
    unsafe { give(out, |machine| machine.sim.pool_current(location, AllocationType::PINNED)) }
}

/// `cuDeviceSetMemPool`
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceSetMemPool(device: c_int, handle: *mut c_void) -> c_int {
    let location = Location::device(DeviceId(device));
    started(|machine| {
        let kind = AllocationType::PINNED;
        answer(machine.sim.pool_set_current(location, kind, pool(handle)))
    })
}

/// Runs a call that answers with the pool of a place, and stores it.
///
/// # Safety
/// As [`cuMemPoolGetAccess`].
unsafe fn give_at(
    out: *mut *mut c_void,
    location: *const MemLocation,
    kind: c_int,
    find: impl FnOnce(&SimBackend, Location, AllocationType) -> Result<PoolHandle>,
) -> c_int {
    // SAFETY: the caller vouches for the place.
    match unsafe { read(location) } {
        // SAFETY: likewise.
        Ok(place) => unsafe {
            give(out, |machine| find(&machine.sim, place, AllocationType(kind)))
        },
        Err(code) => code,
    }
}

/// `cuMemGetDefaultMemPool`
///
/// # Safety
/// As [`cuMemPoolGetAccess`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetDefaultMemPool(
    out: *mut *mut c_void,
    location: *const MemLocation,
    kind: c_int,
) -> c_int {
    // SAFETY: the caller vouches for both places.
    unsafe { give_at(out, location, kind, |sim, place, kind| sim.pool_default(place, kind)) }
}

/// `cuMemGetMemPool`
///
/// # Safety
/// As [`cuMemPoolGetAccess`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetMemPool(
    out: *mut *mut c_void,
    location: *const MemLocation,
    kind: c_int,
) -> c_int {
    // SAFETY: the caller vouches for both places.
    unsafe { give_at(out, location, kind, |sim, place, kind| sim.pool_current(place, kind)) }
}

/// `cuMemSetMemPool`
///
/// # Safety
/// `location` must be null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetMemPool(
    location: *const MemLocation,
    kind: c_int,
    handle: *mut c_void,
) -> c_int {
    started(|machine| {
        // SAFETY: the caller vouches for the place.
        let location = unsafe { read(location) }?;
        answer(machine.sim.pool_set_current(location, AllocationType(kind), pool(handle)))
    })
}

/// `cuMemAllocFromPoolAsync`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocFromPoolAsync(
    ptr: *mut u64,
    bytes: usize,
    handle: *mut c_void,
    on: *mut c_void,
) -> c_int {
    started(|machine| {
        has_place(ptr)?;
        let made = answer(machine.sim.pool_alloc(pool(handle), bytes as u64, machine.stream(on)?))?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(ptr, made.0) }
    })
}

/// `cuMemFreeAsync`
///
/// # Safety
/// No work submitted later may use the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(ptr: u64, on: *mut c_void) -> c_int {
    started(|machine| {
        let on = machine.stream(on)?;
        // SAFETY: the caller's duty is the same.
        answer(unsafe { machine.sim.free_async(DevicePtr(ptr), on) })
    })
}
