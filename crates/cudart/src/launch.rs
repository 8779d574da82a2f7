//! Launches of functions.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::contexts::{device, with_context};
use crate::driver::cu;
use crate::outcome::{Error, Outcome, read};
use crate::registry::{is_held, kernel};
use crate::types::{Dim3, Handle};

/// The largest extent of a block along x, y and z, and of a grid: `CU_DEVICE_ATTRIBUTE_MAX_…`.
const BLOCK_LIMITS: [c_int; 3] = [2, 3, 4];
const GRID_LIMITS: [c_int; 3] = [5, 6, 7];

/// The most threads of a block, `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK`.
const THREADS_LIMIT: c_int = 1;

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfiguration {
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Bytes of dynamic shared memory in a block.
    pub shared_bytes: usize,
    /// The stream.
    pub stream: Handle,
    /// The driver's launch attributes.
    pub attributes: *mut c_void,
    /// How many attributes there are.
    pub count: c_uint,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverConfiguration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *mut c_void,
    count: c_uint,
}

/// Launches a function: `arguments` points to an address for each argument. Returns 9
/// (`cudaErrorInvalidConfiguration`) for grids and blocks that no device, or this one, can have; a
/// kernel that the program got from the driver returns the driver's 1 (`cudaErrorInvalidValue`).
/// Returns 98 (`cudaErrorInvalidDeviceFunction`) for null, and 400 (`cudaErrorInvalidResourceHandle`)
/// for other addresses.
pub unsafe extern "C" fn cudaLaunchKernel(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: Handle,
) -> c_int {
    // SAFETY: the caller promises the arguments of the function.
    with_context(|| unsafe { launch(function, grid, block, arguments, shared_bytes, stream) })
}

/// Launches what `__cudaGetKernel` wrote.
pub unsafe extern "C" fn __cudaLaunchKernel(
    function: Handle,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: Handle,
) -> c_int {
    // SAFETY: the caller promises the arguments of the function.
    with_context(|| unsafe { launch(function, grid, block, arguments, shared_bytes, stream) })
}

/// Launches a function with attributes.
pub unsafe extern "C" fn cudaLaunchKernelExC(
    configuration: *const LaunchConfiguration,
    function: *const c_void,
    arguments: *mut *mut c_void,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let launch = unsafe { driver_configuration(configuration) }?;
        let (kernel, none) = (kernel(function)?, null_mut::<*mut c_void>());
        // SAFETY: the caller promises the arguments of the function and the attributes.
        let launched =
            unsafe { cu!("cuLaunchKernelEx" @ 11060, &raw const launch, kernel, arguments, none) };
        launched.or_else(|error| explained(error, function, launch.grid, launch.block))
    })
}

/// Launches a function with blocks that may wait for each other.
pub unsafe extern "C" fn cudaLaunchCooperativeKernel(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: Handle,
) -> c_int {
    with_context(|| {
        let (kernel, shared) = (kernel(function)?, narrow(shared_bytes)?);
        // SAFETY: the caller promises the arguments of the function.
        let launched = unsafe {
            cu!(
                "cuLaunchCooperativeKernel" @ 9000,
                kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments
            )
        };
        launched.or_else(|error| explained(error, function, grid, block))
    })
}

/// The runtime's description of a launch as the driver's.
///
/// # Errors
/// `INVALID_VALUE` without a description.
///
/// # Safety
/// A pointer that is not null is readable.
pub(crate) unsafe fn driver_configuration(
    configuration: *const LaunchConfiguration,
) -> Outcome<DriverConfiguration> {
    // SAFETY: the caller promises that the structure is readable.
    let LaunchConfiguration { grid, block, shared_bytes, stream, attributes, count } =
        unsafe { read(configuration) }?;
    let shared_bytes = narrow(shared_bytes)?;
    Ok(DriverConfiguration { grid, block, shared_bytes, stream, attributes, count })
}

/// # Safety
/// The arguments are those of the function.
unsafe fn launch(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: Handle,
) -> Outcome {
    let (kernel, shared) = (kernel(function)?, narrow(shared_bytes)?);
    let none = null_mut::<*mut c_void>();
    // SAFETY: the caller promises the arguments of the function; the kernel is the driver's own,
    // which takes kernels for functions.
    let launched = unsafe {
        cu!(
            "cuLaunchKernel" @ 4000,
            kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, none
        )
    };
    launched.or_else(|error| explained(error, function, grid, block))
}

/// The runtime's word for a launch that the driver refused: the grid or the block, if the device
/// cannot have them.
fn explained(error: Error, function: *const c_void, grid: Dim3, block: Dim3) -> Outcome {
    if error != Error::INVALID_VALUE || is_held(function) {
        return Err(error);
    }
    let device = device()?;
    let threads = [block.x, block.y, block.z].map(u64::from);
    let threads = threads.iter().fold(1_u64, |all, one| all.saturating_mul(*one));
    let mut fits = threads <= limit(device, THREADS_LIMIT)?;
    let extents = [block.x, block.y, block.z, grid.x, grid.y, grid.z];
    fits &= !extents.contains(&0);
    for (extent, attribute) in extents.into_iter().zip(BLOCK_LIMITS.into_iter().chain(GRID_LIMITS))
    {
        fits &= u64::from(extent) <= limit(device, attribute)?;
    }
    Err(if fits { error } else { Error::INVALID_CONFIGURATION })
}

fn limit(device: c_int, attribute: c_int) -> Outcome<u64> {
    let mut value: c_int = 0;
    // SAFETY: the place is writable.
    unsafe { cu!("cuDeviceGetAttribute" @ 2000, &raw mut value, attribute, device) }?;
    Ok(u64::try_from(value).unwrap_or(0))
}

fn narrow(bytes: usize) -> Outcome<c_uint> {
    c_uint::try_from(bytes).map_err(|_| Error::INVALID_VALUE)
}
