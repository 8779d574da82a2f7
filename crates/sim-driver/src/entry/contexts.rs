//! Entry points of contexts: the primary ones, those of programs, and the stack of each thread.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

use pagewise_hal::{Backend, Code, DeviceId};

use crate::contexts::{self, Context, MAP_HOST};
use crate::driver::{
    Driver, Outcome, answer, has_place, in_context, in_context_after, load, started, store,
};

/// `cuDevicePrimaryCtxRetain`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    device: c_int,
) -> c_int {
    started("cuDevicePrimaryCtxRetain", |driver| {
        driver.handle_of(device)?;
        has_place(context)?;
        let handle = driver.retain(device)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(context, std::ptr::without_provenance_mut(handle)) }
    })
}

/// `cuDevicePrimaryCtxRelease`
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    started("cuDevicePrimaryCtxRelease_v2", |driver| driver.release(device))
}

/// `cuDevicePrimaryCtxGetState`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> c_int {
    started("cuDevicePrimaryCtxGetState", |driver| {
        has_place(flags)?;
        has_place(active)?;
        let is_active = driver.is_retained(device)?;
        let set = driver.contexts().primary_flags.get(&device).copied().unwrap_or_default();
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            store(flags, set)?;
            store(active, c_int::from(is_active))
        }
    })
}

/// `cuCtxSetCurrent`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    started("cuCtxSetCurrent", |driver| driver.set_current(context.addr()))
}

/// `cuCtxGetCurrent`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_int {
    let current = std::ptr::without_provenance_mut(Driver::current());
    // SAFETY: the caller promises that the place is null or valid for writing.
    started("cuCtxGetCurrent", |_| unsafe { store(context, current) })
}

/// `cuCtxGetDevice`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(out: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    in_context_after("cuCtxGetDevice", has_place(out), |_, device| unsafe { store(out, device.0) })
}

/// Flags of contexts that exist: one way to wait (0, 1, 2 or 4), mapped host memory, local memory
/// that stays, core dumps, and synchronous copies.
fn check_flags(flags: c_uint) -> Outcome {
    const OTHERS: c_uint = 0x08 | 0x10 | 0x20 | 0x40 | 0x80;
    let known = [0, 1, 2, 4].contains(&(flags & !OTHERS));
    if known { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// The flags that a context reports: a core dump that the user asks for is a core dump.
const fn reported(flags: c_uint) -> c_uint {
    if flags & 0x40 == 0 { flags } else { flags & !0x40 | 0x20 }
}

/// `cuDevicePrimaryCtxSetFlags`
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) -> c_int {
    started("cuDevicePrimaryCtxSetFlags_v2", |driver| {
        driver.handle_of(device)?;
        check_flags(flags)?;
        driver.contexts().primary_flags.insert(device, reported(flags));
        Ok(())
    })
}

/// `cuDevicePrimaryCtxReset`
///
/// # Safety
/// No thread, and no work of a device, may use memory of the context any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> c_int {
    started("cuDevicePrimaryCtxReset_v2", |driver| driver.reset_primary(device))
}

/// Creates a context and makes it current.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn create(driver: &Driver, out: *mut *mut c_void, flags: c_uint, device: c_int) -> Outcome {
    has_place(out)?;
    driver.handle_of(device)?;
    check_flags(flags)?;
    let handle = driver.create_context(device, reported(flags));
    contexts::push(handle);
    // SAFETY: by this function's contract `out` is null or valid for writing.
    unsafe { store(out, without_provenance_mut(handle)) }
}

/// `cuCtxCreate`, the form of CUDA 3.2
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v2(
    out: *mut *mut c_void,
    flags: c_uint,
    device: c_int,
) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    started("cuCtxCreate_v2", |driver| unsafe { create(driver, out, flags, device) })
}

/// `cuCtxCreate`, the form of CUDA 11.4. Contexts with a part of the multiprocessors are not
/// implemented.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v3(
    out: *mut *mut c_void,
    affinities: *mut c_void,
    count: c_int,
    flags: c_uint,
    device: c_int,
) -> c_int {
    started("cuCtxCreate_v3", |driver| match (affinities.is_null(), count) {
        // SAFETY: the caller promises that the place is null or valid for writing.
        (true, 0) => unsafe { create(driver, out, flags, device) },
        (_, 1..) => driver.refuse("cuCtxCreate_v3 with affinities"),
        _ => Err(Code::INVALID_VALUE),
    })
}

/// `CUctxCreateParams`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CtxCreateParams {
    /// The parts of the multiprocessors.
    pub affinities: *mut c_void,
    /// How many.
    pub count: c_int,
    /// The graphics context to share with.
    pub graphics: *mut c_void,
}

/// `cuCtxCreate`, the form of CUDA 12.5. Contexts with parameters are not implemented.
///
/// # Safety
/// `parameters` must be null or valid for reading; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v4(
    out: *mut *mut c_void,
    parameters: *mut CtxCreateParams,
    flags: c_uint,
    device: c_int,
) -> c_int {
    started("cuCtxCreate_v4", |driver| {
        // SAFETY: the caller promises that `parameters` is null or valid for reading. Every bit
        // pattern is a value of its integer and its pointers, which are not dereferenced.
        let given = unsafe { load(parameters.cast_const()) }.ok();
        let plain = |given: CtxCreateParams| {
            given.affinities.is_null() && given.count == 0 && given.graphics.is_null()
        };
        if !given.is_none_or(plain) {
            return driver.refuse("cuCtxCreate_v4 with parameters");
        }
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { create(driver, out, flags, device) }
    })
}

/// `cuCtxDestroy`: with all streams, events and memory of the context. Primary contexts are
/// released instead.
///
/// # Safety
/// No thread, and no work of a device, may use what belongs to the context any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxDestroy_v2(context: *mut c_void) -> c_int {
    started("cuCtxDestroy_v2", |driver| {
        has_place(context)?;
        driver.destroy_context(context.addr())?;
        if contexts::current() == context.addr() {
            contexts::pop()?;
        }
        Ok(())
    })
}

/// `cuCtxPushCurrent`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> c_int {
    started("cuCtxPushCurrent_v2", |driver| {
        has_place(context)?;
        driver.live(context.addr())?;
        contexts::push(context.addr());
        Ok(())
    })
}

/// `cuCtxPopCurrent`: the place may be null.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(out: *mut *mut c_void) -> c_int {
    started("cuCtxPopCurrent_v2", |_| {
        let popped = contexts::pop()?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store_if_wanted(out, without_provenance_mut(popped)) }
    })
}

/// Stores a result that the caller may leave out.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn store_if_wanted<T: Copy>(out: *mut T, value: T) -> Outcome {
    // SAFETY: by this function's contract `out` is null or valid for writing.
    if out.is_null() { Ok(()) } else { unsafe { store(out, value) } }
}

/// `cuCtxGetDevice`, the form of CUDA 13.0: of any context, or of the current one.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice_v2(out: *mut c_int, context: *mut c_void) -> c_int {
    started("cuCtxGetDevice_v2", |driver| {
        has_place(out)?;
        let handle = driver.context_or_current(context.addr())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, driver.live(handle)?.0) }
    })
}

/// Waits for the work of a context: calls are complete when they return, but for functions of the
/// host and the work behind them.
fn finish(driver: &Driver, context: usize) -> Outcome {
    driver.check_captures(context)?;
    driver.deferred.wait_context(context)?;
    driver.output.flush();
    driver.faults.of_work()
}

/// `cuCtxSynchronize`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    in_context("cuCtxSynchronize", |driver, _| finish(driver, Driver::current()))
}

/// `cuCtxSynchronize`, the form of CUDA 13.0: of any context, or of the current one.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize_v2(context: *mut c_void) -> c_int {
    started("cuCtxSynchronize_v2", |driver| {
        let context = driver.context_or_current(context.addr())?;
        finish(driver, context)
    })
}

/// Runs a call that reads a figure of the current context, and stores it.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn give<T: Copy>(
    symbol: &str,
    out: *mut T,
    figure: impl FnOnce(&Context) -> Outcome<T>,
) -> c_int {
    in_context(symbol, |driver, _| {
        has_place(out)?;
        let read = figure(driver.contexts().get(contexts::current())?)?;
        // SAFETY: by this function's contract `out` is null or valid for writing.
        unsafe { store(out, read) }
    })
}

/// `cuCtxGetFlags`. A primary context has mapped host memory.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetFlags(out: *mut c_uint) -> c_int {
    in_context("cuCtxGetFlags", |driver, device| {
        has_place(out)?;
        let of_primary = driver.handle_of(device.0) == Ok(contexts::current());
        let flags = driver.contexts().get(contexts::current())?.flags;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, if of_primary { flags | MAP_HOST } else { flags }) }
    })
}

/// `cuCtxSetFlags`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetFlags(flags: c_uint) -> c_int {
    in_context("cuCtxSetFlags", |driver, _| {
        check_flags(flags)?;
        driver.contexts().get_mut(contexts::current())?.flags = reported(flags);
        Ok(())
    })
}

/// `cuCtxGetId`: of a context, or of the current one.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetId(context: *mut c_void, out: *mut u64) -> c_int {
    started("cuCtxGetId", |driver| {
        has_place(out)?;
        let handle = driver.context_or_current(context.addr())?;
        let id = driver.contexts().get(handle)?.id;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, id) }
    })
}

/// `cuCtxGetApiVersion`: 3020, as driver 580 answers for every context.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetApiVersion(context: *mut c_void, out: *mut c_uint) -> c_int {
    started("cuCtxGetApiVersion", |driver| {
        has_place(out)?;
        driver.context_or_current(context.addr())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, 3020) }
    })
}

/// `cuCtxGetLimit`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetLimit(out: *mut usize, limit: c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuCtxGetLimit", out, |context| context.limit(limit)) }
}

/// `cuCtxSetLimit`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetLimit(limit: c_int, value: usize) -> c_int {
    in_context("cuCtxSetLimit", |driver, _| {
        driver.contexts().get_mut(contexts::current())?.set_limit(limit, value)
    })
}

/// `cuCtxGetCacheConfig`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCacheConfig(out: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuCtxGetCacheConfig", out, |context| Ok(context.cache_config)) }
}

/// `cuCtxSetCacheConfig`: noted, without an effect.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCacheConfig(config: c_int) -> c_int {
    in_context("cuCtxSetCacheConfig", |driver, _| {
        if !(0..=3).contains(&config) {
            return Err(Code::INVALID_VALUE);
        }
        driver.contexts().get_mut(contexts::current())?.cache_config = config;
        Ok(())
    })
}

/// `cuCtxGetSharedMemConfig`: banks of four bytes.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetSharedMemConfig(out: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuCtxGetSharedMemConfig", out, |_| Ok(1)) }
}

/// `cuCtxSetSharedMemConfig`: the banks stay as they are.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetSharedMemConfig(config: c_int) -> c_int {
    let known = (0..=2).contains(&config);
    in_context(
        "cuCtxSetSharedMemConfig",
        |_, _| {
            if known { Ok(()) } else { Err(Code::INVALID_VALUE) }
        },
    )
}

/// `cuCtxGetStreamPriorityRange`: either place may be null.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> c_int {
    in_context("cuCtxGetStreamPriorityRange", |_, _| {
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            store_if_wanted(least, super::streams::PRIORITY_LEAST)?;
            store_if_wanted(greatest, super::streams::PRIORITY_GREATEST)
        }
    })
}

/// `cuCtxResetPersistingL2Cache`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxResetPersistingL2Cache() -> c_int {
    in_context("cuCtxResetPersistingL2Cache", |_, _| Ok(()))
}

/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`
const PEER_ACCESS_UNSUPPORTED: c_int = 217;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`
const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`
const PEER_ACCESS_NOT_ENABLED: c_int = 705;

/// `cuCtxEnablePeerAccess`: the device of the context reaches the memory of the other one, present
/// and future (CONTRACT-125).
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxEnablePeerAccess(peer: *mut c_void, flags: c_uint) -> c_int {
    in_context("cuCtxEnablePeerAccess", |driver, device| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let DeviceId(other) = driver.live(peer.addr())?;
        if !answer(driver.sim.can_access_peer(device, DeviceId(other)))? {
            return Err(PEER_ACCESS_UNSUPPORTED);
        }
        let mut contexts = driver.contexts();
        let is_new = contexts.get_mut(contexts::current())?.peers.insert(peer.addr());
        driver.grant_peers(&contexts, peer.addr());
        if is_new { Ok(()) } else { Err(PEER_ACCESS_ALREADY_ENABLED) }
    })
}

/// `cuCtxDisablePeerAccess`
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDisablePeerAccess(peer: *mut c_void) -> c_int {
    in_context("cuCtxDisablePeerAccess", |driver, _| {
        driver.live(peer.addr())?;
        let mut contexts = driver.contexts();
        let was_there = contexts.get_mut(contexts::current())?.peers.remove(&peer.addr());
        driver.grant_peers(&contexts, peer.addr());
        if was_there { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) }
    })
}
