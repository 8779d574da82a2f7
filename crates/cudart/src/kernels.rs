//! Kernels: handles of the driver's for a program's functions, and for kernels in libraries.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::contexts::with_context;
use crate::driver::cu;
use crate::outcome::{Error, Outcome, write};
use crate::registry::{hold, kernel};
use crate::types::Handle;

/// Writes the driver's kernel for a function of the program.
pub unsafe extern "C" fn cudaGetKernel(to: *mut Handle, function: *const c_void) -> c_int {
    with_context(|| {
        if to.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let kernel = kernel(function)?;
        hold(kernel);
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, kernel) }
    })
}

/// Writes the driver's function, in the current context, for a function of the program.
pub unsafe extern "C" fn cudaGetFuncBySymbol(to: *mut Handle, symbol: *const c_void) -> c_int {
    with_context(|| {
        let kernel = kernel(symbol)?;
        // SAFETY: the driver refuses a null place; the caller promises that others are writable.
        unsafe { cu!("cuKernelGetFunction" @ 12000, to, kernel) }
    })
}

/// Writes the kernel of a name in a library. It can be launched like a function of the program.
pub unsafe extern "C" fn cudaLibraryGetKernel(
    to: *mut Handle,
    library: Handle,
    name: *const c_char,
) -> c_int {
    with_context(|| {
        let mut kernel: Handle = null_mut();
        // SAFETY: the place is writable; the driver checks the library; the caller promises a name.
        unsafe { cu!("cuLibraryGetKernel" @ 12000, &raw mut kernel, library, name) }?;
        hold(kernel);
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, kernel) }
    })
}

/// Writes up to `count` kernels of a library. They can be launched like functions of the program.
pub unsafe extern "C" fn cudaLibraryEnumerateKernels(
    to: *mut Handle,
    count: c_uint,
    library: Handle,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises room for that many handles; the driver checks the library.
        unsafe { cu!("cuLibraryEnumerateKernels" @ 12040, to, count, library) }?;
        let mut all: c_uint = 0;
        // SAFETY: the place is writable; the driver knows the library.
        unsafe { cu!("cuLibraryGetKernelCount" @ 12040, &raw mut all, library) }?;
        for index in 0..usize::try_from(count.min(all)).unwrap_or(0) {
            // SAFETY: the driver wrote that many handles.
            hold(unsafe { to.add(index).read_unaligned() });
        }
        Ok(())
    })
}

/// Sets an attribute of a kernel for one device.
pub extern "C" fn cudaKernelSetAttributeForDevice(
    kernel: Handle,
    attribute: c_int,
    value: c_int,
    device: c_int,
) -> c_int {
    // SAFETY: the driver checks the kernel.
    with_context(|| unsafe {
        cu!("cuKernelSetAttribute" @ 12000, attribute, value, kernel, device)
    })
}

/// Writes the name of a function as the compiler mangled it. The text lives as long as the kernel.
pub unsafe extern "C" fn cudaFuncGetName(to: *mut *const c_char, function: *const c_void) -> c_int {
    // SAFETY: the driver refuses a null place; the caller promises that others are writable.
    resolved(function, |kernel| unsafe { cu!("cuKernelGetName" @ 12030, to, kernel) })
}

/// Writes the offset and size in bytes of a parameter of a function. `bytes` may be null.
pub unsafe extern "C" fn cudaFuncGetParamInfo(
    function: *const c_void,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: the driver refuses null places; the caller promises that others are writable.
    resolved(function, |kernel| unsafe {
        cu!("cuKernelGetParamInfo" @ 12040, kernel, index, offset, bytes)
    })
}

/// Writes the number of parameters of a function.
pub unsafe extern "C" fn cudaFuncGetParamCount(function: *const c_void, to: *mut usize) -> c_int {
    // SAFETY: the driver refuses a null place; the caller promises that others are writable.
    resolved(function, |kernel| unsafe { cu!("cuKernelGetParamCount" @ 13020, kernel, to) })
}

/// Runs a call with the driver's kernel for a function of the program.
pub(crate) fn resolved(function: *const c_void, call: impl FnOnce(Handle) -> Outcome) -> c_int {
    with_context(|| call(kernel(function)?))
}
