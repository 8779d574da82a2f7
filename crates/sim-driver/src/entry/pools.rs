//! Entry points of memory pools and stream-ordered allocation.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{
    AccessFlags, AllocationType, Backend, Code, DeviceId, HandleTypes, Location, PoolAttribute,
    PoolHandle, PoolProps, Result,
};

use crate::deferring;
use crate::driver::{Driver, Outcome, answer, has_place, load, started, store, stream};
use crate::entry::MemLocation;
use crate::graph_memory::{self, Wanted};
use crate::graphs::Key;

/// `CUmemPoolProps` as of CUDA 12.2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemPoolProps {
    /// The kind of memory that it allocates.
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
    /// The place that has the access.
    pub location: MemLocation,
    /// Which access.
    pub flags: c_int,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
pub(in crate::entry) const PINNED: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_NONE`
pub(in crate::entry) const NOWHERE: c_int = 0;
/// `CU_MEM_LOCATION_TYPE_DEVICE`
pub(in crate::entry) const DEVICE: c_int = 1;

/// A pool of the caller: the simulator looks it up and refuses what it did not make.
pub(super) fn pool(raw: *mut c_void) -> PoolHandle {
    // SAFETY: `from_raw` asks for a handle that the back end can take. The simulator looks every
    // handle up in its table of pools and dereferences none, so any number is sound.
    unsafe { PoolHandle::from_raw(raw.addr() as u64) }
}

/// Runs an entry point that answers with a pool, and stores it.
///
/// # Safety
/// `out` must be null or valid for writing.
pub(super) unsafe fn give(
    symbol: &str,
    out: *mut *mut c_void,
    find: impl FnOnce(&Driver) -> Outcome<Result<PoolHandle>>,
) -> c_int {
    started(symbol, |driver| {
        has_place(out)?;
        let found = answer(find(driver)?)?;
        // SAFETY: by this function's contract `out` is null or valid for writing.
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
    let create = |driver: &Driver| {
        driver.check_unsafe()?;
        // SAFETY: the caller promises that `props` is null or valid for reading. Every bit pattern
        // is a value of its integers and of its pointer, which is not dereferenced.
        let props = unsafe { load(props) }?;
        if props.reserved != [0; 56] {
            return Err(Code::INVALID_VALUE);
        }
        let location = props.location.into();
        let made = driver.sim.pool_create(PoolProps {
            allocation_type: AllocationType(props.allocation_type),
            location,
            handle_types: HandleTypes::from_bits_retain(props.handle_types),
            max_bytes: props.max_bytes as u64,
        });
        Ok(made.inspect(|pool| driver.graphs().memory.note_pool(*pool, location)))
    };
    // SAFETY: `give` asks for a place that is null or valid for writing; the caller promises that
    // of `out`.
    unsafe { give("cuMemPoolCreate", out, create) }
}

/// `cuMemPoolDestroy`
///
/// # Safety
/// The handle may not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolDestroy(handle: *mut c_void) -> c_int {
    started("cuMemPoolDestroy", |driver| {
        // SAFETY: `pool_destroy` asks that the handle is not used again; the caller of this function
        // promised that. The simulator refuses a handle of a destroyed pool, so even a broken
        // promise does no harm.
        answer(unsafe { driver.sim.pool_destroy(pool(handle)) })?;
        driver.graphs().memory.forget_pool(pool(handle));
        Ok(())
    })
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
    started("cuMemPoolGetAttribute", |driver| {
        has_place(value)?;
        let attribute = PoolAttribute(attribute);
        let read = answer(driver.sim.pool_attribute(pool(handle), attribute))?;
        // SAFETY: the caller promises that `value` is null or valid for writing the attribute's
        // type, and exactly that type is written.
        unsafe {
            if is_int(attribute) {
                store(value.cast::<u32>(), read as u32)
            } else {
                store(value.cast::<u64>(), read)
            }
        }
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
    started("cuMemPoolSetAttribute", |driver| {
        has_place(value)?;
        let attribute = PoolAttribute(attribute);
        // SAFETY: the caller promises that `value` is null or valid for reading the attribute's
        // type, and exactly that type is read.
        let value = unsafe {
            if is_int(attribute) {
                u64::from(load(value.cast::<u32>())?)
            } else {
                load(value.cast::<u64>())?
            }
        };
        answer(driver.sim.pool_set_attribute(pool(handle), attribute, value))
    })
}

/// `cuMemPoolTrimTo`
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolTrimTo(handle: *mut c_void, min_bytes_to_keep: usize) -> c_int {
    started("cuMemPoolTrimTo", |driver| {
        driver.check_unsafe()?;
        answer(driver.sim.pool_trim(pool(handle), min_bytes_to_keep as u64))
    })
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
    started("cuMemPoolSetAccess", |driver| {
        has_place(access)?;
        let wanted = (0..count).map(|index| {
            // SAFETY: `access` is not null, so the caller promises that it has `count` items, and
            // `index` is below `count`. Items are integers, of which every bit pattern is a value.
            let MemAccessDesc { location, flags } =
                unsafe { access.wrapping_add(index).read_unaligned() };
            (location.into(), AccessFlags(flags))
        });
        let mut one = wanted.clone();
        match (one.next(), one.next()) {
            (Some((location, flags)), None) => {
                answer(driver.sim.pool_set_access(pool(handle), location, flags))
            }
            // No call of a back end takes several places at once, so no trace holds this one.
            _ => answer(driver.machine.simulator.pool_set_accesses(pool(handle), wanted)),
        }
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
    started("cuMemPoolGetAccess", |driver| {
        has_place(flags)?;
        // SAFETY: the caller promises that `location` is null or valid for reading.
        let location = unsafe { read(location) }?;
        let access = answer(driver.sim.pool_access(pool(handle), location))?;
        // SAFETY: the caller promises that `flags` is null or valid for writing.
        unsafe { store(flags, access.0) }
    })
}

/// # Safety
/// `location` must be null or valid for reading.
unsafe fn read(location: *const MemLocation) -> Outcome<Location> {
    // SAFETY: `load` asks for a place that is null or valid for reading, and so does this function.
    // A location is two integers, of which every bit pattern is a value.
    unsafe { load(location) }.map(Location::from)
}

/// `cuDeviceGetDefaultMemPool`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(out: *mut *mut c_void, device: c_int) -> c_int {
    let location = Location::device(DeviceId(device));
    let find = |driver: &Driver| {
        driver.handle_of(device)?;
        Ok(driver.sim.pool_default(location, AllocationType::PINNED))
    };
    // SAFETY: `give` asks for a place that is null or valid for writing; the caller promises that
    // of `out`.
    unsafe { give("cuDeviceGetDefaultMemPool", out, find) }
}

/// `cuDeviceGetMemPool`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetMemPool(out: *mut *mut c_void, device: c_int) -> c_int {
    let location = Location::device(DeviceId(device));
    let find = |driver: &Driver| Ok(driver.sim.pool_current(location, AllocationType::PINNED));
    // SAFETY: `give` asks for a place that is null or valid for writing; the caller promises that
    // of `out`.
    unsafe { give("cuDeviceGetMemPool", out, find) }
}

/// `cuDeviceSetMemPool`
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceSetMemPool(device: c_int, handle: *mut c_void) -> c_int {
    let location = Location::device(DeviceId(device));
    started("cuDeviceSetMemPool", |driver| {
        let kind = AllocationType::PINNED;
        answer(driver.sim.pool_set_current(location, kind, pool(handle)))
    })
}

/// Runs a call that answers with the pool of a place, and stores it.
///
/// # Safety
/// As [`cuMemPoolGetAccess`].
unsafe fn give_at(
    symbol: &str,
    out: *mut *mut c_void,
    location: *const MemLocation,
    kind: c_int,
    find: impl FnOnce(&dyn Backend, Location, AllocationType) -> Result<PoolHandle>,
) -> c_int {
    let find = |driver: &Driver| {
        // SAFETY: by this function's contract `location` is null or valid for reading.
        let place = unsafe { read(location) }?;
        Ok(find(&*driver.sim, place, AllocationType(kind)))
    };
    // SAFETY: by this function's contract `out` is null or valid for writing.
    unsafe { give(symbol, out, find) }
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
    let find = |sim: &dyn Backend, place, kind| sim.pool_default(place, kind);
    // SAFETY: `give_at` asks for an `out` that is null or valid for writing and a `location` that
    // is null or valid for reading; the caller promises both.
    unsafe { give_at("cuMemGetDefaultMemPool", out, location, kind, find) }
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
    let find = |sim: &dyn Backend, place, kind| sim.pool_current(place, kind);
    // SAFETY: `give_at` asks for an `out` that is null or valid for writing and a `location` that
    // is null or valid for reading; the caller promises both.
    unsafe { give_at("cuMemGetMemPool", out, location, kind, find) }
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
    started("cuMemSetMemPool", |driver| {
        // SAFETY: the caller promises that `location` is null or valid for reading.
        let location = unsafe { read(location) }?;
        answer(driver.sim.pool_set_current(location, AllocationType(kind), pool(handle)))
    })
}

/// The capture of a stream, if it captures.
fn capturing(driver: &Driver, on: *mut c_void) -> Outcome<Option<Key>> {
    driver.device_of_stream(stream(on))?;
    Ok(driver.capturing(stream(on)))
}

/// The device of memory that a captured allocation takes of a pool. The pool is on a device: others
/// are refused, with the capture as it was.
fn device_of_pool(driver: &Driver, pool: PoolHandle, on: *mut c_void) -> Outcome<DeviceId> {
    answer(driver.sim.pool_attribute(pool, PoolAttribute::RELEASE_THRESHOLD))?;
    let place = driver.graphs().memory.place_of_pool(pool);
    let is_default = |device: &DeviceId| {
        let default = driver.sim.pool_default(Location::device(*device), AllocationType::PINNED);
        default == Ok(pool)
    };
    match place.map(|place| (place.kind.0, place.id)) {
        Some((DEVICE, device)) => Ok(DeviceId(device)),
        Some((NOWHERE, _)) => Err(Code::INVALID_VALUE),
        Some(_) => Err(Code::NOT_SUPPORTED),
        None => match driver.options.ordinals().map(DeviceId).find(is_default) {
            Some(device) => Ok(device),
            // A pool of another process.
            None => driver.device_of_stream(stream(on)),
        },
    }
}

/// Makes a node that allocates memory of a device: a graph has its own memory, and none of a pool.
/// An allocation of nothing is null, without a node.
fn capture_alloc(driver: &Driver, key: Key, device: DeviceId, bytes: usize) -> Outcome<u64> {
    let mut graphs = driver.graphs();
    graphs.captures.check(key)?;
    if bytes == 0 {
        return Ok(0);
    }
    let (graph, tips) = graphs.captures.place(key)?;
    let wanted = Wanted { device, kind: PINNED, peers: Vec::new(), bytes: bytes as u64 };
    let (node, address) =
        graph_memory::add_allocation(driver, &mut graphs, (graph, &tips), wanted)?;
    graphs.captures.advance(key, node);
    Ok(address)
}

/// Makes a node that frees memory of a graph. The driver refuses other memory, and frees null
/// without a node.
fn capture_free(driver: &Driver, key: Key, ptr: u64) -> Outcome {
    let mut graphs = driver.graphs();
    graphs.captures.check(key)?;
    if ptr == 0 {
        return Ok(());
    }
    let (graph, tips) = graphs.captures.place(key)?;
    let node = graph_memory::add_free(&mut graphs, (graph, &tips), ptr)?;
    graphs.captures.advance(key, node);
    Ok(())
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
    started("cuMemAllocFromPoolAsync", |driver| {
        if let Some(key) = capturing(driver, on)? {
            has_place(ptr)?;
            let device = device_of_pool(driver, pool(handle), on)?;
            // SAFETY: the caller promises that `ptr` is null or valid for writing.
            return unsafe { store(ptr, capture_alloc(driver, key, device, bytes)?) };
        }
        driver.check_unsafe()?;
        let on = driver.stream(on)?;
        has_place(ptr)?;
        let made = answer(driver.sim.pool_alloc(pool(handle), bytes as u64, on))?;
        // SAFETY: the caller promises that `ptr` is null or valid for writing.
        unsafe { store(ptr, made.0) }
    })
}

/// `cuMemAllocAsync`: from the current pool of the stream's device.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(ptr: *mut u64, bytes: usize, on: *mut c_void) -> c_int {
    started("cuMemAllocAsync", |driver| {
        if let Some(key) = capturing(driver, on)? {
            has_place(ptr)?;
            let device = driver.device_of_stream(stream(on))?;
            // SAFETY: the caller promises that `ptr` is null or valid for writing.
            return unsafe { store(ptr, capture_alloc(driver, key, device, bytes)?) };
        }
        driver.check_unsafe()?;
        let on = driver.stream(on)?;
        has_place(ptr)?;
        let location = Location::device(driver.device_of_stream(on)?);
        let pool = answer(driver.sim.pool_current(location, AllocationType::PINNED))?;
        let made = answer(driver.sim.pool_alloc(pool, bytes as u64, on))?;
        // SAFETY: the caller promises that `ptr` is null or valid for writing.
        unsafe { store(ptr, made.0) }
    })
}

/// `cuMemFreeAsync`
///
/// # Safety
/// No work submitted later may use the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(ptr: u64, on: *mut c_void) -> c_int {
    started("cuMemFreeAsync", |driver| {
        if let Some(key) = capturing(driver, on)? {
            return capture_free(driver, key, ptr);
        }
        driver.check_unsafe()?;
        // SAFETY: the caller promises that no work submitted later uses the memory.
        unsafe { deferring::free(driver, on, ptr) }
    })
}
