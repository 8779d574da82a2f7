//! The needs of functions, and how many of their blocks fit on a device.

use std::ffi::{c_int, c_uint, c_void};

use crate::contexts::device;
use crate::driver::cu;
use crate::kernels::resolved;
use crate::launch::{LaunchConfiguration, driver_configuration};
use crate::outcome::{Error, Outcome, write};
use crate::types::Handle;

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionAttributes {
    /// Bytes of static shared memory in a block.
    pub shared_bytes: usize,
    /// Bytes of constant memory.
    pub constant_bytes: usize,
    /// Bytes of local memory in a thread.
    pub local_bytes: usize,
    /// The numbers from `maxThreadsPerBlock` on, in the order of the driver's attributes: threads
    /// of a block, registers of a thread, versions of PTX and of the binary, and so on.
    pub numbers: [c_int; 13],
    /// Zeros.
    pub reserved: [c_int; 16],
}

/// `CU_FUNC_ATTRIBUTE_` SHARED_SIZE_BYTES, CONST_SIZE_BYTES, LOCAL_SIZE_BYTES.
const SIZES: [c_int; 3] = [1, 2, 3];

/// The driver's attributes in the order of [`FunctionAttributes::numbers`].
const NUMBERS: [c_int; 13] = [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14];

/// The first attribute that drivers may be too old to have.
const NEWER: c_int = 10;

/// Writes what a function needs.
pub unsafe extern "C" fn cudaFuncGetAttributes(
    to: *mut FunctionAttributes,
    function: *const c_void,
) -> c_int {
    resolved(function, |kernel| {
        let device = device()?;
        let mut sizes = [0_usize; SIZES.len()];
        for (size, attribute) in sizes.iter_mut().zip(SIZES) {
            *size = usize::try_from(attribute_of(kernel, attribute, device)?).unwrap_or(0);
        }
        let mut numbers = [0; NUMBERS.len()];
        for (number, attribute) in numbers.iter_mut().zip(NUMBERS) {
            *number = match attribute_of(kernel, attribute, device) {
                Err(_) if attribute >= NEWER => 0,
                value => value?,
            };
        }
        let [shared_bytes, constant_bytes, local_bytes] = sizes;
        let reserved = [0; 16];
        // SAFETY: the caller promises that the place is writable.
        unsafe {
            write(
                to,
                FunctionAttributes { shared_bytes, constant_bytes, local_bytes, numbers, reserved },
            )
        }
    })
}

/// Sets an attribute of a function for the thread's device, such as its dynamic shared memory.
pub unsafe extern "C" fn cudaFuncSetAttribute(
    function: *const c_void,
    attribute: c_int,
    value: c_int,
) -> c_int {
    resolved(function, |kernel| {
        let device = device()?;
        // SAFETY: the kernel is the driver's own.
        unsafe { cu!("cuKernelSetAttribute" @ 12000, attribute, value, kernel, device) }
    })
}

/// Prefers shared memory or cache for a function on the thread's device.
pub unsafe extern "C" fn cudaFuncSetCacheConfig(function: *const c_void, config: c_int) -> c_int {
    resolved(function, |kernel| {
        let device = device()?;
        // SAFETY: the kernel is the driver's own.
        unsafe { cu!("cuKernelSetCacheConfig" @ 12000, kernel, config, device) }
    })
}

/// Chooses the width of shared memory's banks, which devices since compute capability 5.0 do not
/// let programs choose: known values succeed and change nothing.
pub unsafe extern "C" fn cudaFuncSetSharedMemConfig(
    function: *const c_void,
    config: c_int,
) -> c_int {
    resolved(
        function,
        |_| if (0..=2).contains(&config) { Ok(()) } else { Err(Error::INVALID_VALUE) },
    )
}

/// Writes how many blocks of a function one multiprocessor holds at a time.
pub unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    to: *mut c_int,
    function: *const c_void,
    threads: c_int,
    shared_bytes: usize,
) -> c_int {
    // SAFETY: the driver refuses a null place; the caller promises that others are writable.
    resolved(function, |kernel| unsafe {
        cu!("cuOccupancyMaxActiveBlocksPerMultiprocessor" @ 6050, to, kernel, threads, shared_bytes)
    })
}

/// The same with flags: 1 does not count on caching that the device turns off.
pub unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    to: *mut c_int,
    function: *const c_void,
    threads: c_int,
    shared_bytes: usize,
    flags: c_uint,
) -> c_int {
    // SAFETY: the driver refuses a null place; the caller promises that others are writable.
    resolved(function, |kernel| unsafe {
        cu!(
            "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" @ 7000,
            to, kernel, threads, shared_bytes, flags
        )
    })
}

/// Writes how many bytes of dynamic shared memory each of several blocks can have.
pub unsafe extern "C" fn cudaOccupancyAvailableDynamicSMemPerBlock(
    to: *mut usize,
    function: *const c_void,
    blocks: c_int,
    threads: c_int,
) -> c_int {
    // SAFETY: the driver refuses a null place; the caller promises that others are writable.
    resolved(function, |kernel| unsafe {
        cu!("cuOccupancyAvailableDynamicSMemPerBlock" @ 10020, to, kernel, blocks, threads)
    })
}

/// Writes the largest cluster that a launch can have.
pub unsafe extern "C" fn cudaOccupancyMaxPotentialClusterSize(
    to: *mut c_int,
    function: *const c_void,
    configuration: *const LaunchConfiguration,
) -> c_int {
    resolved(function, |kernel| {
        // SAFETY: the caller promises that the structure is readable.
        let launch = unsafe { driver_configuration(configuration) }?;
        // SAFETY: the driver refuses a null place; the caller promises that others are writable.
        unsafe { cu!("cuOccupancyMaxPotentialClusterSize" @ 11070, to, kernel, &raw const launch) }
    })
}

/// Writes how many clusters of a launch the device holds at a time.
pub unsafe extern "C" fn cudaOccupancyMaxActiveClusters(
    to: *mut c_int,
    function: *const c_void,
    configuration: *const LaunchConfiguration,
) -> c_int {
    resolved(function, |kernel| {
        // SAFETY: the caller promises that the structure is readable.
        let launch = unsafe { driver_configuration(configuration) }?;
        // SAFETY: the driver refuses a null place; the caller promises that others are writable.
        unsafe { cu!("cuOccupancyMaxActiveClusters" @ 11070, to, kernel, &raw const launch) }
    })
}

fn attribute_of(kernel: Handle, attribute: c_int, device: c_int) -> Outcome<c_int> {
    let mut value: c_int = 0;
    // SAFETY: the place is writable, and the kernel is the driver's own.
    unsafe { cu!("cuKernelGetAttribute" @ 12000, &raw mut value, attribute, kernel, device) }?;
    Ok(value)
}
