//! Copies of consecutive bytes.

use std::ffi::{c_int, c_void};

use crate::contexts::{primary_context, with_context};
use crate::driver::cu;
use crate::outcome::{Error, Outcome};
use crate::types::Handle;

/// Where a copy's memory is, `cudaMemcpyKind`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// The driver finds out from the addresses.
    Default,
}

impl Kind {
    /// # Errors
    /// `INVALID_MEMCPY_DIRECTION` if the number is no kind.
    pub(crate) fn new(number: c_int) -> Outcome<Self> {
        Ok(match number {
            0 => Self::HostToHost,
            1 => Self::HostToDevice,
            2 => Self::DeviceToHost,
            3 => Self::DeviceToDevice,
            4 => Self::Default,
            _ => return Err(Error::INVALID_MEMCPY_DIRECTION),
        })
    }
}

/// Copies bytes, and waits as the driver's copy of that kind waits. `kind` is one of
/// `cudaMemcpyKind`; 21 (`cudaErrorInvalidMemcpyDirection`) is returned for others, unless there are
/// no bytes to copy.
pub unsafe extern "C" fn cudaMemcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: the caller promises that both ranges are memory of that kind.
    with_context(|| unsafe {
        if bytes == 0 { Ok(()) } else { copy(to, from, bytes, Kind::new(kind)?) }
    })
}

/// Copies bytes in the order of a stream.
pub unsafe extern "C" fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: Handle,
) -> c_int {
    // SAFETY: the caller promises that both ranges are memory of that kind until the copy is done.
    with_context(|| unsafe {
        if bytes == 0 { Ok(()) } else { copy_async(to, from, bytes, Kind::new(kind)?, stream) }
    })
}

/// Copies bytes from one device's memory to another's.
pub unsafe extern "C" fn cudaMemcpyPeer(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    bytes: usize,
) -> c_int {
    with_context(|| {
        let (target, source) = (primary_context(to_device)?, primary_context(from_device)?);
        // SAFETY: the caller promises the ranges; the contexts are the driver's own.
        unsafe { cu!("cuMemcpyPeer" @ 4000, to, target, from, source, bytes) }
    })
}

/// Copies bytes from one device's memory to another's in the order of a stream.
pub unsafe extern "C" fn cudaMemcpyPeerAsync(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    bytes: usize,
    stream: Handle,
) -> c_int {
    with_context(|| {
        let (target, source) = (primary_context(to_device)?, primary_context(from_device)?);
        // SAFETY: the caller promises the ranges; the contexts are the driver's own.
        unsafe { cu!("cuMemcpyPeerAsync" @ 4000, to, target, from, source, bytes, stream) }
    })
}

/// Copies bytes.
///
/// # Safety
/// Both ranges are memory of the kind.
pub(crate) unsafe fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: Kind,
) -> Outcome {
    // SAFETY: the caller promises the ranges.
    unsafe {
        match kind {
            Kind::HostToDevice => cu!("cuMemcpyHtoD" @ 3020, to, from, bytes),
            Kind::DeviceToHost => cu!("cuMemcpyDtoH" @ 3020, to, from, bytes),
            Kind::DeviceToDevice => cu!("cuMemcpyDtoD" @ 3020, to, from, bytes),
            Kind::HostToHost | Kind::Default => cu!("cuMemcpy" @ 4000, to, from, bytes),
        }
    }
}

/// Copies bytes in the order of a stream.
///
/// # Safety
/// Both ranges are memory of the kind until the copy is done.
pub(crate) unsafe fn copy_async(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: Kind,
    stream: Handle,
) -> Outcome {
    // SAFETY: the caller promises the ranges; the driver checks the stream.
    unsafe {
        match kind {
            Kind::HostToDevice => cu!("cuMemcpyHtoDAsync" @ 3020, to, from, bytes, stream),
            Kind::DeviceToHost => cu!("cuMemcpyDtoHAsync" @ 3020, to, from, bytes, stream),
            Kind::DeviceToDevice => cu!("cuMemcpyDtoDAsync" @ 3020, to, from, bytes, stream),
            Kind::HostToHost | Kind::Default => {
                cu!("cuMemcpyAsync" @ 4000, to, from, bytes, stream)
            }
        }
    }
}
