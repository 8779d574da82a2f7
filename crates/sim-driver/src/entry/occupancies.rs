//! Entry points for occupancy.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{Code, DeviceId};

use crate::attributes::RECORDED;
use crate::driver::{Driver, Outcome, has_place, in_context, in_context_after, load, store};
use crate::entry::functions::function;
use crate::entry::launches::{LaunchConfig, requested};
use crate::launch::{CLUSTER_MAX, CLUSTER_PORTABLE, INVALID_CLUSTER_SIZE, Request};
use crate::occupancy::{active_blocks, active_clusters, available_shared, best_block};
use crate::programs::device::{limits, multiprocessor};
use crate::programs::limits::{CLUSTER_GROUPS, Limits, Multiprocessor};
use crate::programs::tables::Function;

/// `CUoccupancyB2DSize`: the dynamic shared memory of a block of so many threads.
pub type BlockToDynamicShared = Option<unsafe extern "C" fn(c_int) -> usize>;

/// The only flag: `CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE`.
fn check_flags(flags: c_uint) -> Outcome {
    if flags <= 1 { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// The limits that occupancy depends on.
fn both_limits(driver: &Driver, device: DeviceId) -> Outcome<(Limits, Multiprocessor)> {
    Ok((limits(driver, device)?, multiprocessor(driver, device)?))
}

/// A count of a caller that is at least 1.
fn count(number: c_int) -> Outcome<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0).ok_or(Code::INVALID_VALUE)
}

/// `cuOccupancyMaxActiveBlocksPerMultiprocessor`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    handle: *mut c_void,
    threads: c_int,
    dynamic_bytes: usize,
) -> c_int {
    in_context("cuOccupancyMaxActiveBlocksPerMultiprocessor", |driver, device| {
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { active(driver, device, blocks, handle, (threads, dynamic_bytes)) }
    })
}

/// `cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    handle: *mut c_void,
    threads: c_int,
    dynamic_bytes: usize,
    flags: c_uint,
) -> c_int {
    in_context("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", |driver, device| {
        has_place(blocks)?;
        check_flags(flags)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { active(driver, device, blocks, handle, (threads, dynamic_bytes)) }
    })
}

/// Stores how many blocks a multiprocessor holds.
///
/// # Safety
/// `blocks` must be null or valid for writing.
unsafe fn active(
    driver: &Driver,
    device: DeviceId,
    blocks: *mut c_int,
    handle: *mut c_void,
    (threads, dynamic_bytes): (c_int, usize),
) -> Outcome {
    has_place(blocks)?;
    let function = function(driver, handle)?;
    let (limits, processor) = both_limits(driver, device)?;
    let threads = count(threads)?;
    let found = active_blocks(&function, &limits, &processor, threads, dynamic_bytes as u64)?;
    // SAFETY: by this function's contract the place is null or valid for writing.
    unsafe { store(blocks, found.cast_signed()) }
}

/// `cuOccupancyMaxPotentialBlockSize`
///
/// # Safety
/// `dynamic` must be null or a function that may be called with any size of a block; the places as
/// the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut c_int,
    block: *mut c_int,
    handle: *mut c_void,
    dynamic: BlockToDynamicShared,
    dynamic_bytes: usize,
    most: c_int,
) -> c_int {
    in_context("cuOccupancyMaxPotentialBlockSize", |driver, device| {
        // SAFETY: the caller promises what `best` asks for.
        unsafe { best(driver, device, (grid, block), handle, (dynamic, dynamic_bytes, most)) }
    })
}

/// `cuOccupancyMaxPotentialBlockSizeWithFlags`
///
/// # Safety
/// As `cuOccupancyMaxPotentialBlockSize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: *mut c_int,
    block: *mut c_int,
    handle: *mut c_void,
    dynamic: BlockToDynamicShared,
    dynamic_bytes: usize,
    most: c_int,
    flags: c_uint,
) -> c_int {
    in_context("cuOccupancyMaxPotentialBlockSizeWithFlags", |driver, device| {
        check_flags(flags)?;
        // SAFETY: the caller promises what `best` asks for.
        unsafe { best(driver, device, (grid, block), handle, (dynamic, dynamic_bytes, most)) }
    })
}

/// Stores the best block and the grid that fills the device.
///
/// # Safety
/// The places must be null or valid for writing, and `dynamic` null or a function that may be
/// called.
unsafe fn best(
    driver: &Driver,
    device: DeviceId,
    (grid, block): (*mut c_int, *mut c_int),
    handle: *mut c_void,
    (dynamic, dynamic_bytes, most): (BlockToDynamicShared, usize, c_int),
) -> Outcome {
    has_place(grid)?;
    has_place(block)?;
    let function = function(driver, handle)?;
    let most = u32::try_from(most).map_err(|_| Code::INVALID_VALUE)?;
    let (limits, processor) = both_limits(driver, device)?;
    let bytes = |threads: u32| match dynamic {
        None => dynamic_bytes as u64,
        // SAFETY: by this function's contract the function may be called with any size of a block.
        Some(dynamic) => unsafe { dynamic(threads.cast_signed()) as u64 },
    };
    let (blocks, threads) = best_block(&function, &limits, &processor, bytes, most)?;
    // SAFETY: by this function's contract the places are null or valid for writing.
    unsafe {
        store(grid, blocks.cast_signed())?;
        store(block, threads.cast_signed())
    }
}

/// `cuOccupancyAvailableDynamicSMemPerBlock`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    handle: *mut c_void,
    blocks: c_int,
    threads: c_int,
) -> c_int {
    in_context("cuOccupancyAvailableDynamicSMemPerBlock", |driver, device| {
        has_place(bytes)?;
        let sizes = (count(blocks)?, count(threads)?);
        let function = function(driver, handle)?;
        let (limits, processor) = both_limits(driver, device)?;
        let found = available_shared(&function, &limits, &processor, sizes)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(bytes, found as usize) }
    })
}

/// The cluster of a launch: its blocks in each dimension, none without a cluster, and the most that
/// the kernel may have.
fn cluster(
    driver: &Driver,
    device: DeviceId,
    function: &Function,
    request: &Request,
) -> Outcome<(Option<[u32; 3]>, u32)> {
    if !limits(driver, device)?.has_clusters {
        return Err(INVALID_CLUSTER_SIZE);
    }
    let is_non_portable = function.settings.is_non_portable;
    let most = if is_non_portable { CLUSTER_MAX } else { CLUSTER_PORTABLE };
    let set = function.settings.cluster(function.kernel()?);
    let Some(cluster) = request.cluster.filter(|cluster| *cluster != [0; 3]).or(set) else {
        return Ok((None, most));
    };
    let mut pairs = cluster.iter().zip(request.shape.grid);
    let fits = pairs.all(|(cluster, grid)| *cluster > 0 && grid.is_multiple_of(*cluster));
    // A kernel that may have more than is portable is not refused for its size.
    if !fits || (product(cluster) > most && !is_non_portable) {
        return Err(INVALID_CLUSTER_SIZE);
    }
    Ok((Some(cluster), most))
}

/// How many there are of what three dimensions measure.
fn product(of: [u32; 3]) -> u32 {
    of.iter().fold(1, |all, one| all.saturating_mul(*one))
}

/// `cuOccupancyMaxPotentialClusterSize`
///
/// # Safety
/// `config` must be null or point to a configuration with as many attributes as it says; `size` as
/// the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxPotentialClusterSize(
    size: *mut c_int,
    handle: *mut c_void,
    config: *const LaunchConfig,
) -> c_int {
    let arguments = has_place(size).and_then(|()| has_place(config));
    in_context_after("cuOccupancyMaxPotentialClusterSize", arguments, |driver, device| {
        // SAFETY: the caller promises that the configuration is valid for reading, with as many
        // attributes as it says.
        let request = unsafe { requested(driver, handle, &load(config)?) }?;
        let (_, most) = cluster(driver, device, &function(driver, handle)?, &request)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(size, most.cast_signed()) }
    })
}

/// `cuOccupancyMaxActiveClusters`: of an H200. Without a cluster in the configuration there are
/// none.
///
/// # Safety
/// As [`cuOccupancyMaxPotentialClusterSize`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    handle: *mut c_void,
    config: *const LaunchConfig,
) -> c_int {
    let arguments = has_place(clusters)
        .and_then(|()| if handle.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) })
        .and_then(|()| has_place(config));
    in_context_after("cuOccupancyMaxActiveClusters", arguments, |driver, device| {
        // SAFETY: the caller promises that the configuration is valid for reading, with as many
        // attributes as it says.
        let request = unsafe { requested(driver, handle, &load(config)?) }?;
        let function = function(driver, handle)?;
        let shape = request.shape;
        if shape.grid.contains(&0) || shape.block.contains(&0) {
            return Err(Code::INVALID_VALUE);
        }
        let found = match cluster(driver, device, &function, &request)? {
            (None, _) => 0,
            (Some(_), _) if driver.options.gpu_name() != RECORDED => {
                return driver.refuse("cuOccupancyMaxActiveClusters of this profile");
            }
            (Some(cluster), _) => {
                let (limits, processor) = both_limits(driver, device)?;
                let of = (product(cluster), product(shape.block), shape.shared_bytes.into());
                active_clusters(&function, &limits, &processor, &CLUSTER_GROUPS, of)?
            }
        };
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(clusters, found.cast_signed()) }
    })
}
