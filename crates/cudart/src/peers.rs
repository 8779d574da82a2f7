//! Access of one device to another's memory.

use std::ffi::{c_int, c_uint};

use crate::contexts::{primary_context, with_context};
use crate::driver::cu;

/// Lets the current device use memory of another. `flags` is 0.
pub extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int {
    with_context(|| {
        let context = primary_context(peer)?;
        // SAFETY: the context is the driver's own.
        unsafe { cu!("cuCtxEnablePeerAccess" @ 4000, context, flags) }
    })
}

/// Takes the access back.
pub extern "C" fn cudaDeviceDisablePeerAccess(peer: c_int) -> c_int {
    with_context(|| {
        let context = primary_context(peer)?;
        // SAFETY: the context is the driver's own.
        unsafe { cu!("cuCtxDisablePeerAccess" @ 4000, context) }
    })
}
