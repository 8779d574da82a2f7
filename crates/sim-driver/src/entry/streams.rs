//! Entry points of streams.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

use pagewise_hal::{AttachFlags, Backend, Code, StreamFlags};
use pagewise_sim::Submission;

use crate::contexts::{self, Stream};
use crate::deferred::NOT_READY;
use crate::deferring;
use crate::driver::{
    Driver, Outcome, answer, has_place, in_context_after, is_handle, load, started, started_after,
    store, stream,
};
use crate::entry::events::{EXTERNAL, check_event, event};
use crate::entry::span;
use crate::graphs::{Key, Task};

/// The least priority of a stream, which is the default.
pub(super) const PRIORITY_LEAST: c_int = 0;
/// The greatest priority of a stream, as a GPU since Volta has it.
pub(super) const PRIORITY_GREATEST: c_int = -5;

/// `cuStreamCreate`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(out: *mut *mut c_void, flags: c_uint) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { create("cuStreamCreate", out, flags, PRIORITY_LEAST) }
}

/// `cuStreamCreateWithPriority`: priorities outside of the range are brought into it.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    out: *mut *mut c_void,
    flags: c_uint,
    priority: c_int,
) -> c_int {
    let priority = priority.clamp(PRIORITY_GREATEST, PRIORITY_LEAST);
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { create("cuStreamCreateWithPriority", out, flags, priority) }
}

/// Creates a stream.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn create(symbol: &str, out: *mut *mut c_void, flags: c_uint, priority: c_int) -> c_int {
    let flags = StreamFlags::from_bits_retain(flags);
    let known = StreamFlags::NON_BLOCKING.contains(flags);
    let arguments = if known { has_place(out) } else { Err(Code::INVALID_VALUE) };
    in_context_after(symbol, arguments, |driver, device| {
        let made = answer(driver.sim.stream_create(device, flags))?;
        driver.add_stream(made, device, (flags.bits(), priority));
        // SAFETY: by this function's contract `out` is null or valid for writing.
        unsafe { store(out, without_provenance_mut(made.as_raw() as usize)) }
    })
}

/// `cuStreamDestroy`
///
/// # Safety
/// The handle may not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(on: *mut c_void) -> c_int {
    in_context_after("cuStreamDestroy_v2", is_handle(on), |driver, _| {
        let key = driver.key_of(stream(on));
        // SAFETY: the caller promises that the handle is not used again.
        unsafe { deferring::destroy_stream(driver, on) }?;
        if let Some(key) = key {
            driver.graphs().forget_stream(key);
        }
        driver.remove_stream(stream(on));
        Ok(())
    })
}

/// Refuses to wait for a stream, or to ask whether it is idle: of a capture, and beside captures.
fn check_wait(driver: &Driver, on: *mut c_void) -> Outcome {
    driver.device_of_stream(stream(on))?;
    driver.submittable(stream(on))?;
    driver.check_unsafe()
}

/// `cuStreamSynchronize`
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(on: *mut c_void) -> c_int {
    started("cuStreamSynchronize", |driver| {
        check_wait(driver, on)?;
        let on = driver.stream(on)?;
        let lane = driver.lane(on);
        if on.is_legacy() {
            driver.deferred.wait_ahead(lane)?;
        } else {
            driver.deferred.wait_lane(lane)?;
        }
        driver.output.flush();
        driver.faults.of_work()?;
        answer(driver.sim.stream_synchronize(on))
    })
}

/// `cuStreamQuery`: a stream is idle, because calls are complete when they return, unless a
/// function of the host has yet to return, and the work behind it.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(on: *mut c_void) -> c_int {
    started("cuStreamQuery", |driver| {
        check_wait(driver, on)?;
        let on = driver.stream(on)?;
        if driver.deferred.is_pending(driver.lane(on)) {
            return Err(NOT_READY);
        }
        answer(driver.sim.stream_synchronize(on))
    })
}

/// `cuStreamWaitEvent`
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(on: *mut c_void, for_: *mut c_void, flags: c_uint) -> c_int {
    started("cuStreamWaitEvent", |driver| {
        let (handle, on) = (event(for_), stream(on));
        driver.device_of_stream(on)?;
        if flags & !EXTERNAL != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if let Some(key) = driver.capturing(on) {
            check_event(driver, for_)?;
            if flags & EXTERNAL != 0 {
                return driver.graphs().capture(key, Task::Wait(handle)).map(drop);
            }
        }
        let key = driver.key_of(on).unwrap_or(Key::LEGACY);
        if driver.graphs().captures.wait(key, on.is_legacy(), handle.as_raw())? {
            return Ok(());
        }
        driver.check_legacy(on)?;
        deferring::wait(driver, handle, on)
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
        unsafe {
            deferring::call(driver, driver.stream(on)?, Submission::Attach(span(ptr, bytes), flags))
        }
    })
}

/// `cuStreamGetCtx`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(on: *mut c_void, context: *mut *mut c_void) -> c_int {
    started_after("cuStreamGetCtx", has_place(context), |driver| {
        let handle = driver.context_of_stream(stream(on))?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(context, without_provenance_mut(handle)) }
    })
}

/// The properties of a stream: default streams have the flags and the priority of 0.
pub(super) fn known(driver: &Driver, on: *mut c_void) -> Outcome<Stream> {
    let handle = stream(on);
    if !handle.is_default() {
        return driver.created_stream(handle);
    }
    let device = driver.device()?.0;
    let context = contexts::current();
    let contexts = driver.contexts();
    let owner = contexts.get(context)?;
    let index = usize::from(!handle.is_legacy());
    let (id, attributes) = (owner.default_ids[index], owner.default_attributes[index]);
    Ok(Stream { context, device, flags: 0, priority: PRIORITY_LEAST, id, attributes })
}

/// Runs a call that reads a figure of a stream, and stores it.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn give<T: Copy>(
    symbol: &str,
    on: *mut c_void,
    out: *mut T,
    figure: impl FnOnce(Stream) -> T,
) -> c_int {
    started(symbol, |driver| {
        has_place(out)?;
        let figure = figure(known(driver, on)?);
        // SAFETY: by this function's contract `out` is null or valid for writing.
        unsafe { store(out, figure) }
    })
}

/// `cuStreamGetFlags`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetFlags(on: *mut c_void, out: *mut c_uint) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuStreamGetFlags", on, out, |stream| stream.flags) }
}

/// `cuStreamGetPriority`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetPriority(on: *mut c_void, out: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuStreamGetPriority", on, out, |stream| stream.priority) }
}

/// `cuStreamGetId`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetId(on: *mut c_void, out: *mut u64) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuStreamGetId", on, out, |stream| stream.id) }
}

/// `cuStreamGetDevice`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetDevice(on: *mut c_void, out: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuStreamGetDevice", on, out, |stream| stream.device) }
}

/// `cuStreamGetCtx`, the form of CUDA 12.5: there are no green contexts.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx_v2(
    on: *mut c_void,
    context: *mut *mut c_void,
    green: *mut *mut c_void,
) -> c_int {
    started_after("cuStreamGetCtx_v2", has_place(context), |driver| {
        has_place(green)?;
        let handle = driver.context_of_stream(stream(on))?;
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            store(green, std::ptr::null_mut())?;
            store(context, without_provenance_mut(handle))
        }
    })
}

/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`
const PRIORITY: c_int = 8;

/// `cuStreamGetAttribute`: the priority, the policy of waiting, the window of the L2 cache, and domains
/// of memory.
///
/// # Safety
/// `value` must be null or valid for writing the attribute's member of `CUlaunchAttributeValue`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetAttribute(
    on: *mut c_void,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    started("cuStreamGetAttribute", |driver| {
        has_place(value)?;
        let stream = known(driver, on)?;
        // SAFETY: the caller promises that the place is null or valid for writing the value.
        unsafe {
            match attribute {
                PRIORITY => store(value.cast(), stream.priority),
                other => stream.attributes.get(other, value),
            }
        }
    })
}

/// `cuStreamSetAttribute`: as `cuStreamGetAttribute`. Default streams keep their priority and their
/// policy of waiting.
///
/// # Safety
/// `value` must be null or valid for reading the attribute's member of `CUlaunchAttributeValue`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSetAttribute(
    on: *mut c_void,
    attribute: c_int,
    value: *const c_void,
) -> c_int {
    started("cuStreamSetAttribute", |driver| {
        has_place(value.cast_mut())?;
        known(driver, on)?;
        let mut contexts = driver.contexts();
        let Some(stream) = contexts.streams.get_mut(&on.addr()) else {
            let index = usize::from(!stream(on).is_legacy());
            let owner = contexts.get_mut(contexts::current())?;
            // SAFETY: the caller promises that the place is null or valid for reading the value.
            return unsafe { owner.default_attributes[index].set_of_default(attribute, value) };
        };
        // SAFETY: as for default streams, by the caller's promise.
        unsafe {
            if attribute == PRIORITY {
                let wanted = load(value.cast::<c_int>())?;
                stream.priority = wanted.clamp(PRIORITY_GREATEST, PRIORITY_LEAST);
                return Ok(());
            }
            stream.attributes.set(attribute, value)
        }
    })
}

/// `cuStreamCopyAttributes`
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCopyAttributes(to: *mut c_void, from: *mut c_void) -> c_int {
    started("cuStreamCopyAttributes", |driver| {
        let source = known(driver, from)?;
        known(driver, to)?;
        let mut contexts = driver.contexts();
        let stream = contexts.streams.get_mut(&to.addr()).ok_or(Code::INVALID_VALUE)?;
        (stream.attributes, stream.priority) = (source.attributes, source.priority);
        Ok(())
    })
}
