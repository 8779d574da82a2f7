//! Entry points that allocate memory of devices and managed memory, and that read memory figures
//! and attributes of ranges and addresses.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{
    AttachFlags, Backend, Code, DeviceId, DevicePtr, Location, PointerAttribute, RangeAttribute,
    Span,
};
use pagewise_sim::SimConfig;

use crate::contexts::Kind;
use crate::driver::{
    Driver, Outcome, answer, has_place, in_context, in_context_after, started, store,
};
use crate::entry::movement::gather;
use crate::entry::span;
use crate::graph_memory;

/// `cuMemGetInfo`: either figure may be left out.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    in_context("cuMemGetInfo_v2", |driver, device| {
        let info = answer(driver.sim.memory_info(device))?;
        let figures = [(free, info.free_bytes), (total, info.total_bytes)];
        for (place, bytes) in figures.into_iter().filter(|(place, _)| !place.is_null()) {
            // SAFETY: the caller promises that places that are not null are valid for writing.
            unsafe { store(place, bytes as usize) }?;
        }
        Ok(())
    })
}

/// `cuMemAllocManaged`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(ptr: *mut u64, bytes: usize, flags: c_uint) -> c_int {
    let flags = AttachFlags::from_bits_retain(flags);
    let usable = bytes > 0 && (flags == AttachFlags::GLOBAL || flags == AttachFlags::HOST);
    let arguments = if usable { has_place(ptr) } else { Err(Code::INVALID_VALUE) };
    in_context_after("cuMemAllocManaged", arguments, |driver, _| {
        driver.check_unsafe()?;
        let made = answer(driver.sim.alloc_managed(bytes as u64, flags))?;
        driver.own(made, Kind::Memory);
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(ptr, made.0) }
    })
}

/// `cuMemAlloc`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(ptr: *mut u64, bytes: usize) -> c_int {
    in_context("cuMemAlloc_v2", |driver, device| {
        driver.check_unsafe()?;
        has_place(ptr)?;
        let made = answer(driver.sim.alloc_device(device, bytes as u64))?;
        driver.own(made, Kind::Memory);
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(ptr, made.0) }
    })
}

/// `cuMemFree`
///
/// # Safety
/// No thread, and no work of a device, may use the allocation any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(ptr: u64) -> c_int {
    started("cuMemFree_v2", |driver| {
        driver.check_unsafe()?;
        // Memory of variables goes with its module.
        if driver.programs().owns(ptr) {
            return Err(Code::INVALID_VALUE);
        }
        driver.deferred.wait()?;
        if let Some(freed) = graph_memory::free(driver, ptr) {
            return freed;
        }
        // SAFETY: `free` asks that no code uses the allocation any more; the caller of this function
        // promised that.
        answer(unsafe { driver.sim.free(DevicePtr(ptr)) })?;
        driver.disown(DevicePtr(ptr));
        Ok(())
    })
}

/// The least distance between rows of pitched memory, and what it is a multiple of: as an H200
/// gives it for every width.
const PITCH_BYTES: usize = 512;

/// `cuMemAllocPitch`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocPitch_v2(
    ptr: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element_bytes: c_uint,
) -> c_int {
    in_context("cuMemAllocPitch_v2", |driver, device| {
        driver.check_unsafe()?;
        has_place(ptr)?;
        has_place(pitch)?;
        let known = [4, 8, 16].contains(&element_bytes);
        if width == 0 || height == 0 || !known {
            return Err(Code::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH_BYTES).ok_or(Code::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
        let made = answer(driver.sim.alloc_device(device, bytes as u64))?;
        driver.own(made, Kind::Memory);
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            store(pitch, row)?;
            store(ptr, made.0)
        }
    })
}

/// `cuMemGetAddressRange`: either place may be null.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut u64,
    size: *mut usize,
    ptr: u64,
) -> c_int {
    in_context("cuMemGetAddressRange_v2", |driver, _| {
        let ask =
            |attribute| pointer_attribute(driver, ptr, attribute).map_err(|_| Code::NOT_FOUND);
        let start = ask(PointerAttribute::RANGE_START_ADDR)?;
        let bytes = ask(PointerAttribute::RANGE_SIZE)?;
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            if !base.is_null() {
                store(base, start)?;
            }
            if size.is_null() { Ok(()) } else { store(size, bytes as usize) }
        }
    })
}

/// `cuMemRangeGetAttribute`
///
/// # Safety
/// `data` must be null or valid for writing `data_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRangeGetAttribute(
    data: *mut c_int,
    data_bytes: usize,
    attribute: c_int,
    ptr: u64,
    bytes: usize,
) -> c_int {
    in_context("cuMemRangeGetAttribute", |driver, _| {
        // SAFETY: the caller promises that `data` is null or has `data_bytes` bytes.
        unsafe { read_range(driver, data, data_bytes, RangeAttribute(attribute), span(ptr, bytes)) }
    })
}

/// Reads one attribute of a range.
///
/// # Safety
/// `data` must be null or valid for writing `data_bytes` bytes.
unsafe fn read_range(
    driver: &Driver,
    data: *mut c_int,
    data_bytes: usize,
    attribute: RangeAttribute,
    range: Span,
) -> Outcome {
    let is_list = attribute == RangeAttribute::ACCESSED_BY;
    let fits =
        if is_list { data_bytes >= 4 && data_bytes.is_multiple_of(4) } else { data_bytes == 4 };
    has_place(data)?;
    if !fits {
        return Err(Code::INVALID_VALUE);
    }
    if !is_list {
        let value = answer(driver.sim.range_attribute(range, attribute))?;
        // SAFETY: by this function's contract the `data_bytes` bytes, which are one `int`, can be
        // written.
        return unsafe { store(data, value) };
    }
    // One place for each processor that the machine can have; the rest is padding.
    let mut known = [Location::ORDINAL_INVALID; SimConfig::DEVICES_MAX as usize + 1];
    answer(driver.sim.range_accessed_by(range, &mut known))?;
    let padded = known.into_iter().chain(std::iter::repeat(Location::ORDINAL_INVALID));
    for (index, processor) in (0..data_bytes / 4).zip(padded) {
        // SAFETY: by this function's contract `data_bytes` bytes can be written, and these four lie
        // within them.
        unsafe { data.wrapping_add(index).write_unaligned(processor) };
    }
    Ok(())
}

/// `cuMemRangeGetAttributes`
///
/// # Safety
/// The arrays must be null or have `count` items, and each place must be null or have as many bytes
/// as its size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRangeGetAttributes(
    data: *mut *mut c_void,
    sizes: *mut usize,
    attributes: *mut c_int,
    count: usize,
    ptr: u64,
    bytes: usize,
) -> c_int {
    in_context("cuMemRangeGetAttributes", |driver, _| {
        has_place(data)?;
        has_place(sizes)?;
        has_place(attributes)?;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let items = gather(count, |index| {
            // SAFETY: no array is null, so the caller promises that each has `count` items, and
            // `index` is below `count`. They hold integers and pointers, of which every bit pattern
            // is a value.
            unsafe {
                (
                    data.wrapping_add(index).read_unaligned(),
                    sizes.wrapping_add(index).read_unaligned(),
                    RangeAttribute(attributes.wrapping_add(index).read_unaligned()),
                )
            }
        })?;
        let range = span(ptr, bytes);
        for (place, size, attribute) in items {
            // SAFETY: the caller promises that each place is null or has as many bytes as its size
            // says.
            unsafe { read_range(driver, place.cast(), size, attribute, range) }?;
        }
        Ok(())
    })
}

/// How many bytes the driver writes for an attribute, by its type in `cuda.h` and as driver 580 was
/// seen to do; refuses what CUDA 13.0 does not know, and the tokens of `nv-p2p.h`, which the
/// simulator has not.
fn attribute_bytes(attribute: PointerAttribute) -> Outcome<usize> {
    match attribute.0 {
        2 | 6 | 8 | 9 | 10 | 13 | 15 | 16 | 21 => Ok(4),
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17..=20 => Ok(8),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Writes an attribute in the size that the driver gives it: the low bytes of the value.
///
/// # Safety
/// `data` must be valid for writing that size, in any alignment.
unsafe fn store_attribute(data: *mut c_void, attribute: PointerAttribute, value: u64) -> Outcome {
    let bytes = attribute_bytes(attribute)?;
    // SAFETY: the source has 8 bytes, and `bytes` is at most 8. By this function's contract the
    // destination has room for `bytes`, and it is not a local of this function, so the two do not
    // overlap.
    unsafe { data.cast::<u8>().copy_from_nonoverlapping(value.to_le_bytes().as_ptr(), bytes) };
    Ok(())
}

/// `CU_POINTER_ATTRIBUTE_CONTEXT`
const CONTEXT: PointerAttribute = PointerAttribute(1);
/// `CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE`
const IS_LEGACY_IPC_CAPABLE: PointerAttribute = PointerAttribute(10);

fn start_of(driver: &Driver, ptr: u64) -> Outcome<u64> {
    let start = PointerAttribute::RANGE_START_ADDR;
    answer(driver.sim.pointer_attribute(DevicePtr(ptr), start))
}

/// The context that memory was allocated, registered or opened in, or that a variable's module was
/// loaded in. Memory of pools and mapped memory have none that is known.
fn context_of(driver: &Driver, ptr: u64) -> Outcome<u64> {
    let start = start_of(driver, ptr)?;
    let variable = driver.programs().context_of(start);
    let owner = variable.or_else(|| Some(driver.contexts().memory.get(&start)?.0));
    owner.map(|context| context as u64).ok_or(Code::INVALID_VALUE)
}

/// Whether `cuIpcGetMemHandle` takes the memory: that of `cuMemAlloc`. An H200 says no of variables
/// and of memory that was imported.
fn is_legacy_ipc_capable(driver: &Driver, ptr: u64) -> Outcome<u64> {
    let start = start_of(driver, ptr)?;
    let owned = driver.contexts().memory.get(&start).copied();
    let managed = driver.sim.pointer_attribute(DevicePtr(ptr), PointerAttribute::IS_MANAGED);
    Ok(u64::from(matches!(owned, Some((_, Kind::Memory))) && managed == Ok(0)))
}

fn pointer_attribute(driver: &Driver, ptr: u64, attribute: PointerAttribute) -> Outcome<u64> {
    let of_graph = driver.graphs().memory.around(ptr);
    match (attribute, of_graph) {
        (PointerAttribute::RANGE_START_ADDR, Some((start, _))) => return Ok(start),
        (PointerAttribute::RANGE_SIZE, Some((_, bytes))) => return Ok(bytes),
        (CONTEXT, None) => return context_of(driver, ptr),
        (IS_LEGACY_IPC_CAPABLE, None) => return is_legacy_ipc_capable(driver, ptr),
        _ => {}
    }
    answer(driver.sim.pointer_attribute(DevicePtr(ptr), attribute))
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
    started("cuPointerGetAttribute", |driver| {
        has_place(data)?;
        let attribute = PointerAttribute(attribute);
        attribute_bytes(attribute)?;
        driver.device()?;
        let value = pointer_attribute(driver, ptr, attribute)?;
        // SAFETY: `data` is not null, so the caller promises that it has room for a value of the
        // attribute.
        unsafe { store_attribute(data, attribute, value) }
    })
}

/// The answer of the plural form for an address of nothing, where the singular form fails; `None`
/// where it leaves the place as it is (CONTRACT-71).
fn default_of(attribute: PointerAttribute, ptr: u64) -> Option<u64> {
    match attribute {
        PointerAttribute::DEVICE_ORDINAL => Some(u64::from(DeviceId(-2).0.cast_unsigned())),
        PointerAttribute::RANGE_START_ADDR | PointerAttribute::RANGE_SIZE => None,
        // The host's address
        PointerAttribute(4) => Some(ptr),
        _ => Some(0),
    }
}

/// `cuPointerGetAttributes`. Before an attribute that does not exist, those before it are written:
/// so does driver 580.
///
/// # Safety
/// Both arrays must be null or have `count` items, and each place must be null or valid for
/// writing what its attribute takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut c_int,
    data: *mut *mut c_void,
    ptr: u64,
) -> c_int {
    started("cuPointerGetAttributes", |driver| {
        has_place(attributes)?;
        has_place(data)?;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        driver.device()?;
        let items = || {
            (0..count as usize).map(|index| {
                // SAFETY: neither array is null, so the caller promises that each has `count`
                // items, and `index` is below `count`. Both hold integers and pointers, of which
                // every bit pattern is a value.
                unsafe {
                    let attribute = attributes.wrapping_add(index).read_unaligned();
                    (PointerAttribute(attribute), data.wrapping_add(index).read_unaligned())
                }
            })
        };
        items().try_for_each(|(_, place)| has_place(place))?;
        for (attribute, place) in items() {
            attribute_bytes(attribute)?;
            let known = pointer_attribute(driver, ptr, attribute).ok();
            let Some(value) = known.or_else(|| default_of(attribute, ptr)) else { continue };
            // SAFETY: `place` is not null, so the caller promises that it has room for a value of
            // the attribute.
            unsafe { store_attribute(place, attribute, value) }?;
        }
        Ok(())
    })
}
