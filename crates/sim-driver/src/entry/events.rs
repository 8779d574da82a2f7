//! Entry points of events.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{Backend, Code, EventFlags, EventHandle};

use crate::contexts;
use crate::deferred::NOT_READY;
use crate::deferring;
use crate::driver::{
    Driver, Outcome, answer, has_place, in_context, is_handle, started, started_after, store,
    stream,
};
use crate::entry::Blob;
use crate::graphs::Task;

/// `CU_EVENT_INTERPROCESS`
const INTERPROCESS: c_uint = 4;

/// An event of the caller. The simulator looks it up and refuses events that it did not make.
pub(super) fn event(raw: *mut c_void) -> EventHandle {
    // SAFETY: `from_raw` asks for a handle that the back end can take. The simulator looks every
    // handle up in its table of events and dereferences none, so any number is sound.
    unsafe { EventHandle::from_raw(raw.addr() as u64) }
}

/// `cuEventCreate`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(out: *mut *mut c_void, flags: c_uint) -> c_int {
    in_context("cuEventCreate", |driver, device| {
        has_place(out)?;
        let shared = flags & INTERPROCESS != 0;
        let flags = EventFlags::from_bits_retain(flags & !INTERPROCESS);
        if shared && !flags.contains(EventFlags::DISABLE_TIMING) {
            return Err(Code::INVALID_VALUE);
        }
        let made = answer(driver.sim.event_create(device, flags))?;
        let of = (contexts::current(), shared);
        driver.contexts().events.insert(made.as_raw() as usize, of);
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
        answer(unsafe { driver.sim.event_destroy(event(handle)) })?;
        driver.deferred.forget_event(event(handle).as_raw());
        driver.graphs().captures.forget_event(event(handle).as_raw());
        driver.contexts().events.remove(&handle.addr());
        Ok(())
    })
}

/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`
pub(super) const EXTERNAL: c_uint = 1;

/// Refuses what is no event.
pub(super) fn check_event(driver: &Driver, raw: *mut c_void) -> Outcome {
    let exists = driver.contexts().events.contains_key(&raw.addr());
    if exists { Ok(()) } else { Err(Code::INVALID_HANDLE) }
}

/// Records an event. A stream that captures notes where it stands, or gets a node if the event is
/// external to the graph.
fn record(driver: &Driver, raw: *mut c_void, on: *mut c_void, is_external: bool) -> Outcome {
    let (handle, on) = (event(raw), stream(on));
    driver.device_of_stream(on)?;
    let capturing = driver.capturing(on);
    if let Some(key) = capturing {
        check_event(driver, raw)?;
        let mut graphs = driver.graphs();
        if is_external {
            return graphs.capture(key, Task::Record(handle)).map(drop);
        }
        return graphs.captures.record(handle.as_raw(), capturing);
    }
    driver.check_legacy(on)?;
    deferring::record(driver, handle, on)?;
    driver.graphs().captures.record(handle.as_raw(), None)
}

/// Refuses to look at an event of a capture, and beside captures.
fn look(driver: &Driver, handle: EventHandle) -> Outcome {
    let mut graphs = driver.graphs();
    graphs.captures.check_event(handle.as_raw(), true)?;
    graphs.captures.check_unsafe()
}

/// `cuEventRecord`
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(handle: *mut c_void, on: *mut c_void) -> c_int {
    started("cuEventRecord", |driver| record(driver, handle, on, false))
}

/// `cuEventQuery`
#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(handle: *mut c_void) -> c_int {
    started_after("cuEventQuery", is_handle(handle), |driver| {
        look(driver, event(handle))?;
        if driver.deferred.is_event_pending(event(handle).as_raw()) {
            return Err(NOT_READY);
        }
        answer(driver.sim.event_query(event(handle))).map(|_| ())
    })
}

/// `cuEventSynchronize`
#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(handle: *mut c_void) -> c_int {
    started_after("cuEventSynchronize", is_handle(handle), |driver| {
        look(driver, event(handle))?;
        driver.deferred.wait_event(event(handle).as_raw())?;
        driver.output.flush();
        driver.faults.of_work()?;
        answer(driver.sim.event_synchronize(event(handle)))
    })
}

/// `cuEventRecordWithFlags`: a stream that captures gets a node for an external event. Without a
/// capture the flag changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecordWithFlags(
    handle: *mut c_void,
    on: *mut c_void,
    flags: c_uint,
) -> c_int {
    started("cuEventRecordWithFlags", |driver| {
        driver.device_of_stream(stream(on))?;
        if flags > EXTERNAL {
            return Err(Code::INVALID_VALUE);
        }
        record(driver, handle, on, flags == EXTERNAL)
    })
}

/// Stores the milliseconds between two events.
///
/// # Safety
/// `milliseconds` must be null or valid for writing.
unsafe fn elapsed(
    symbol: &str,
    milliseconds: *mut f32,
    start: *mut c_void,
    end: *mut c_void,
) -> c_int {
    let events = is_handle(start).and_then(|()| is_handle(end));
    started_after(symbol, events, |driver| {
        has_place(milliseconds)?;
        for one in [start, end] {
            driver.graphs().captures.check_event(event(one).as_raw(), false)?;
        }
        if [start, end].iter().any(|one| driver.deferred.is_event_pending(event(*one).as_raw())) {
            check_event(driver, start)?;
            check_event(driver, end)?;
            return Err(NOT_READY);
        }
        let ns = answer(driver.sim.event_elapsed_ns(event(start), event(end)))?;
        // SAFETY: by this function's contract the place is null or valid for writing.
        unsafe { store(milliseconds, (ns as f64 / 1e6) as f32) }
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
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { elapsed("cuEventElapsedTime", milliseconds, start, end) }
}

/// `cuEventElapsedTime`, in its form of CUDA 12.8
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(
    milliseconds: *mut f32,
    start: *mut c_void,
    end: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { elapsed("cuEventElapsedTime_v2", milliseconds, start, end) }
}

/// `cuIpcGetEventHandle`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcGetEventHandle(out: *mut Blob, handle: *mut c_void) -> c_int {
    started("cuIpcGetEventHandle", |driver| {
        has_place(out)?;
        let of = driver.contexts().events.get(&handle.addr()).copied();
        let Some((_, true)) = of else { return Err(Code::INVALID_HANDLE) };
        let made = answer(driver.machine.simulator.ipc_event_handle(event(handle)))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, Blob(made)) }
    })
}

/// `cuIpcOpenEventHandle`: a process does not open its own events, as driver 580 says too. Work is
/// complete when its call returns, in every process. So an event of this process, which is never
/// busy, stands for that of another one, and has no handle of its own.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcOpenEventHandle(out: *mut *mut c_void, blob: Blob) -> c_int {
    in_context("cuIpcOpenEventHandle", |driver, device| {
        has_place(out)?;
        answer(driver.machine.simulator.check_ipc_event_handle(&blob.0))?;
        let made = answer(driver.sim.event_create(device, EventFlags::DISABLE_TIMING))?;
        driver.contexts().events.insert(made.as_raw() as usize, (contexts::current(), false));
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(made.as_raw() as usize)) }
    })
}
