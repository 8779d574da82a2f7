//! Devices and their primary contexts: which one a thread's calls work in.
//!
//! The runtime works in the context that is current in the driver. If there is none, it makes the
//! primary context of the thread's device current, which is device 0 until `cudaSetDevice`.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{cu, initialise};
use crate::outcome::{Error, Outcome, api};
use crate::types::Handle;

/// The primary context of a device, as far as this library holds it.
#[derive(Clone, Copy, Default)]
struct Primary {
    /// The context's handle as a number; 0 if this library does not hold it.
    context: usize,
    /// Counts the resets of the device by this library.
    resets: u64,
}

static PRIMARIES: Mutex<Vec<Primary>> = Mutex::new(Vec::new());

thread_local! {
    /// The device that `cudaSetDevice` chose.
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    /// The context that this library made current, its device, and the device's resets until then.
    static BOUND: Cell<(usize, c_int, u64)> = const { Cell::new((0, 0, 0)) };
}

/// Runs a call of the API in a context.
pub(crate) fn with_context(call: impl FnOnce() -> Outcome) -> c_int {
    api(|| {
        enter()?;
        call()
    })
}

/// Sees to it that a context is current in the driver.
pub(crate) fn enter() -> Outcome {
    let current = current()? as usize;
    let (bound, device, resets) = BOUND.get();
    let stale = || current == bound && primary(&mut primaries(), device).resets != resets;
    if current == 0 || stale() {
        return bind(if current == 0 { DEVICE.get() } else { device });
    }
    Ok(())
}

/// The context that is current in the driver, or null.
pub(crate) fn current() -> Outcome<Handle> {
    initialise()?;
    let mut context: Handle = null_mut();
    // SAFETY: the place is writable.
    unsafe { cu!("cuCtxGetCurrent" @ 4000, &raw mut context) }?;
    Ok(context)
}

/// The device of the current context, or the one that the thread chose if there is none.
pub(crate) fn device() -> Outcome<c_int> {
    if current()?.is_null() {
        return Ok(DEVICE.get());
    }
    let mut device: c_int = 0;
    // SAFETY: the place is writable.
    unsafe { cu!("cuCtxGetDevice" @ 2000, &raw mut device) }?;
    Ok(device)
}

/// How many devices there are.
pub(crate) fn count() -> Outcome<c_int> {
    initialise()?;
    let mut count: c_int = 0;
    // SAFETY: the place is writable.
    unsafe { cu!("cuDeviceGetCount" @ 2000, &raw mut count) }?;
    Ok(count)
}

/// Checks an ordinal.
///
/// # Errors
/// `INVALID_DEVICE` if there is no such device.
pub(crate) fn check(device: c_int) -> Outcome {
    if (0..count()?).contains(&device) { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// Makes a device the thread's, and its primary context current.
pub(crate) fn choose(device: c_int) -> Outcome {
    check(device)?;
    bind(device)?;
    DEVICE.set(device);
    Ok(())
}

/// The primary context of a device, which this library holds from now on.
pub(crate) fn primary_context(device: c_int) -> Outcome<Handle> {
    check(device)?;
    hold(&mut primaries(), device).map(|held| held.context as Handle)
}

/// Destroys what the device's primary context owns. The next call makes it anew.
pub(crate) fn reset(device: c_int) -> Outcome {
    check(device)?;
    let mut primaries = primaries();
    let held = primary(&mut primaries, device);
    if held.context != 0 {
        // SAFETY: the entry point takes a device; this library holds the context once.
        unsafe { cu!("cuDevicePrimaryCtxRelease" @ 11000, device) }?;
        held.context = 0;
    }
    held.resets = held.resets.wrapping_add(1);
    // SAFETY: the entry point takes a device.
    unsafe { cu!("cuDevicePrimaryCtxReset" @ 11000, device) }
}

fn bind(device: c_int) -> Outcome {
    let held = hold(&mut primaries(), device)?;
    // SAFETY: the context is the driver's own and held.
    unsafe { cu!("cuCtxSetCurrent" @ 4000, held.context as Handle) }?;
    BOUND.set((held.context, device, held.resets));
    Ok(())
}

fn hold(primaries: &mut Vec<Primary>, device: c_int) -> Outcome<Primary> {
    let held = primary(primaries, device);
    if held.context == 0 {
        let mut context: Handle = null_mut();
        // SAFETY: the place is writable.
        unsafe { cu!("cuDevicePrimaryCtxRetain" @ 7000, &raw mut context, device) }?;
        held.context = context as usize;
    }
    Ok(*held)
}

/// The entry of a device, which callers have checked.
fn primary(primaries: &mut Vec<Primary>, device: c_int) -> &mut Primary {
    let index = usize::try_from(device).unwrap_or(0);
    if primaries.len() <= index {
        primaries.resize(index.saturating_add(1), Primary::default());
    }
    &mut primaries[index]
}

fn primaries() -> MutexGuard<'static, Vec<Primary>> {
    PRIMARIES.lock().unwrap_or_else(PoisonError::into_inner)
}
