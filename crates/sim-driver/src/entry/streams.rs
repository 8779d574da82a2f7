//! Entry points of streams and events.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{AttachFlags, Backend, Code, EventFlags, EventHandle, StreamFlags};

use crate::driver::{
    answer, has_place, in_context, in_context_after, is_handle, started, started_after, store,
    stream,
};
use crate::entry::span;

/// An event of the caller. The simulator looks it up and refuses events that it did not make.
fn event(raw: *mut c_void) -> EventHandle {
    // SAFETY: `from_raw` asks for a handle that the back end can take. The simulator looks every
    // handle up in its table of events and dereferences none, so any number is sound.
    unsafe { EventHandle::from_raw(raw.addr() as u64) }
}

/// `cuStreamCreate`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(out: *mut *mut c_void, flags: c_uint) -> c_int {
    let flags = StreamFlags::from_bits_retain(flags);
    let known = StreamFlags::NON_BLOCKING.contains(flags);
    let arguments = if known { has_place(out) } else { Err(Code::INVALID_VALUE) };
    in_context_after("cuStreamCreate", arguments, |driver, device| {
        let made = answer(driver.sim.stream_create(device, flags))?;
        driver.add_stream(made, device);
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(made.as_raw() as usize)) }
    })
}

/// `cuStreamDestroy`
///
/// # Safety
/// The handle may not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(on: *mut c_void) -> c_int {
    in_context_after("cuStreamDestroy_v2", is_handle(on), |driver, _| {
        // SAFETY: `stream_destroy` asks that the handle is not used again; the caller of this
        // function promised that. The simulator refuses a handle of a destroyed stream, so even a
        // broken promise does no harm.
        answer(unsafe { driver.sim.stream_destroy(stream(on)) })?;
        driver.remove_stream(stream(on));
        Ok(())
    })
}

/// `cuStreamSynchronize`
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(on: *mut c_void) -> c_int {
    synchronize("cuStreamSynchronize", on)
}

/// Waits for a stream. Two entry points do this.
fn synchronize(symbol: &str, on: *mut c_void) -> c_int {
    started(symbol, |driver| answer(driver.sim.stream_synchronize(driver.stream(on)?)))
}

/// `cuStreamQuery`: a stream is always idle, because calls are complete when they return.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(on: *mut c_void) -> c_int {
    synchronize("cuStreamQuery", on)
}

/// `cuStreamWaitEvent`
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(on: *mut c_void, for_: *mut c_void, flags: c_uint) -> c_int {
    _ = flags;
    started("cuStreamWaitEvent", |driver| {
        answer(driver.sim.stream_wait_event(driver.stream(on)?, event(for_)))
    })
}

/// `cuStreamAttachMemAsync`
///
/// # Safety
/// From then on the memory may be accessed only as the attachment allows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamAttachMemAsync(
    on: *mut c_void,
    ptr: u64,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    let flags = AttachFlags::from_bits_retain(flags);
    started("cuStreamAttachMemAsync", |driver| {
        // SAFETY: `stream_attach` asks that the memory is accessed only as the attachment allows;
        // the caller of this function promised that.
        answer(unsafe { driver.sim.stream_attach(driver.stream(on)?, span(ptr, bytes), flags) })
    })
}

/// `cuEventCreate`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(out: *mut *mut c_void, flags: c_uint) -> c_int {
    in_context("cuEventCreate", |driver, device| {
        has_place(out)?;
        let flags = EventFlags::from_bits_retain(flags);
        let made = answer(driver.sim.event_create(device, flags))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(made.as_raw() as usize)) }
    })
}

/// `cuEventDestroy`
///
/// # Safety
/// The handle may not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(handle: *mut c_void) -> c_int {
    started_after("cuEventDestroy_v2", is_handle(handle), |driver| {
        // SAFETY: `event_destroy` asks that the handle is not used again; the caller of this
        // function promised that. The simulator refuses a handle of a destroyed event, so even a
        // broken promise does no harm.
        answer(unsafe { driver.sim.event_destroy(event(handle)) })
    })
}

/// `cuEventRecord`
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(handle: *mut c_void, on: *mut c_void) -> c_int {
    started("cuEventRecord", |driver| {
        answer(driver.sim.event_record(event(handle), driver.stream(on)?))
    })
}

/// `cuEventQuery`
#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(handle: *mut c_void) -> c_int {
    started_after("cuEventQuery", is_handle(handle), |driver| {
        answer(driver.sim.event_query(event(handle))).map(|_| ())
    })
}

/// `cuEventSynchronize`
#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(handle: *mut c_void) -> c_int {
    started_after("cuEventSynchronize", is_handle(handle), |driver| {
        answer(driver.sim.event_synchronize(event(handle)))
    })
}

/// `cuEventElapsedTime`, in its form of CUDA 2.0
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: *mut c_void,
    end: *mut c_void,
) -> c_int {
    let events = is_handle(start).and_then(|()| is_handle(end));
    started_after("cuEventElapsedTime", events, |driver| {
        has_place(milliseconds)?;
        let ns = answer(driver.sim.event_elapsed_ns(event(start), event(end)))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(milliseconds, (ns as f64 / 1e6) as f32) }
    })
}
