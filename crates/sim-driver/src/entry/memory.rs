//! Allocation, figures, attributes of ranges and addresses.

use std::ffi::{c_int, c_uint, c_void};

use pagewise::{
    AttachFlags, Backend, Code, DeviceId, DevicePtr, HostAllocFlags, PointerAttribute,
    RangeAttribute,
};

use crate::entry::span;
use crate::machine::{Machine, Outcome, answer, has_place, in_context, started, store};

/// `cuMemGetInfo`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    in_context(|machine, device| {
        has_place(total)?;
        let info = answer(machine.sim.memory_info(device))?;
        // SAFETY: the caller vouches for the places.
        unsafe {
            store(free, info.free_bytes as usize)?;
            store(total, info.total_bytes as usize)
        }
    })
}

/// `cuMemAllocManaged`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(ptr: *mut u64, bytes: usize, flags: c_uint) -> c_int {
    in_context(|machine, _| {
        has_place(ptr)?;
        let flags = AttachFlags::from_bits_retain(flags);
        let made = answer(machine.sim.alloc_managed(bytes as u64, flags))?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(ptr, made.0) }
    })
}

/// `cuMemAlloc`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(ptr: *mut u64, bytes: usize) -> c_int {
    in_context(|machine, device| {
        has_place(ptr)?;
        let made = answer(machine.sim.alloc_device(device, bytes as u64))?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(ptr, made.0) }
    })
}

/// `cuMemFree`
///
/// # Safety
/// Nobody may use the allocation any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(ptr: u64) -> c_int {
    // SAFETY: the caller's duty is the same.
    started(|machine| answer(unsafe { machine.sim.free(DevicePtr(ptr)) }))
}

/// `cuMemHostAlloc`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    ptr: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    in_context(|machine, _| {
        has_place(ptr)?;
        let flags = HostAllocFlags::from_bits_retain(flags);
        let made = answer(machine.sim.alloc_pinned(bytes as u64, flags))?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(ptr, std::ptr::with_exposed_provenance_mut(made.0 as usize)) }
    })
}

/// `cuMemFreeHost`
///
/// # Safety
/// Nobody may use the allocation any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(ptr: *mut c_void) -> c_int {
    let ptr = DevicePtr(ptr.addr() as u64);
    // SAFETY: the caller's duty is the same.
    in_context(|machine, _| answer(unsafe { machine.sim.free_pinned(ptr) }))
}

/// `cuMemRangeGetAttribute`
///
/// # Safety
/// `data` must be null or valid for writing `data_bytes` bytes, aligned for `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRangeGetAttribute(
    data: *mut c_int,
    data_bytes: usize,
    attribute: c_int,
    ptr: u64,
    bytes: usize,
) -> c_int {
    in_context(|machine, _| {
        let attribute = RangeAttribute(attribute);
        let is_list = attribute == RangeAttribute::ACCESSED_BY;
        let fits =
            if is_list { data_bytes >= 4 && data_bytes.is_multiple_of(4) } else { data_bytes == 4 };
        if data.is_null() || !fits {
            return Err(Code::INVALID_VALUE);
        }
        if is_list {
            // SAFETY: not null, long enough, and the caller vouches for the rest.
            let out = unsafe { std::slice::from_raw_parts_mut(data, data_bytes / 4) };
            return answer(machine.sim.range_accessed_by(span(ptr, bytes), out));
        }
        let value = answer(machine.sim.range_attribute(span(ptr, bytes), attribute))?;
        // SAFETY: not null, and one int fits.
        unsafe { store(data, value) }
    })
}

/// Writes an attribute in the size that the driver gives it.
///
/// # Safety
/// `data` must be valid for writing that size, unaligned.
unsafe fn store_attribute(data: *mut c_void, attribute: PointerAttribute, value: u64) {
    let is_int = matches!(
        attribute,
        PointerAttribute::MEMORY_TYPE
            | PointerAttribute::IS_MANAGED
            | PointerAttribute::DEVICE_ORDINAL
            | PointerAttribute::MAPPED
    );
    // SAFETY: the caller vouches for the place.
    unsafe {
        if is_int {
            data.cast::<u32>().write_unaligned(value as u32);
        } else {
            data.cast::<u64>().write_unaligned(value);
        }
    }
}

fn pointer_attribute(machine: &Machine, ptr: u64, attribute: PointerAttribute) -> Outcome<u64> {
    answer(machine.sim.pointer_attribute(DevicePtr(ptr), attribute))
}

/// `cuPointerGetAttribute`
///
/// # Safety
/// `data` must be null or valid for writing what the attribute takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    attribute: c_int,
    ptr: u64,
) -> c_int {
    in_context(|machine, _| {
        has_place(data)?;
        let attribute = PointerAttribute(attribute);
        let value = pointer_attribute(machine, ptr, attribute)?;
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { store_attribute(data, attribute, value) };
        Ok(())
    })
}

/// What the plural form answers for an address of nothing, where the singular form fails.
fn default_of(attribute: PointerAttribute) -> u64 {
    match attribute {
        PointerAttribute::DEVICE_ORDINAL => u64::from(DeviceId(-2).0.cast_unsigned()),
        _ => 0,
    }
}

/// `cuPointerGetAttributes`
///
/// # Safety
/// Both arrays must have `count` items, and each place must be valid for writing what its
/// attribute takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut c_int,
    data: *mut *mut c_void,
    ptr: u64,
) -> c_int {
    in_context(|machine, _| {
        has_place(attributes)?;
        has_place(data)?;
        for index in 0..count as usize {
            // SAFETY: not null, and the caller vouches for the length.
            let (attribute, place) =
                unsafe { (PointerAttribute(*attributes.add(index)), *data.add(index)) };
            has_place(place)?;
            let known = pointer_attribute(machine, ptr, attribute);
            let value = known.unwrap_or_else(|_| default_of(attribute));
            // SAFETY: not null, and the caller vouches for the rest.
            unsafe { store_attribute(place, attribute, value) };
        }
        Ok(())
    })
}
