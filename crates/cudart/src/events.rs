//! Streams and events with default flags; `data/forwards.tsv` has the others.

use std::ffi::c_int;

use crate::contexts::with_context;
use crate::driver::cu;
use crate::types::Handle;

/// Creates a stream that waits for the legacy default stream.
pub unsafe extern "C" fn cudaStreamCreate(to: *mut Handle) -> c_int {
    // SAFETY: the driver refuses a null place; the caller promises that others are writable.
    with_context(|| unsafe { cu!("cuStreamCreate" @ 2000, to, 0_u32) })
}

/// Creates an event that keeps its time.
pub unsafe extern "C" fn cudaEventCreate(to: *mut Handle) -> c_int {
    // SAFETY: the driver refuses a null place; the caller promises that others are writable.
    with_context(|| unsafe { cu!("cuEventCreate" @ 2000, to, 0_u32) })
}
