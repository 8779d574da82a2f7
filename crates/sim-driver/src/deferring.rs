//! Work of streams that is carried out now or, behind a function of the host that has not returned,
//! later: see `deferred`.
//!
//! Arguments are checked when the call is made, as the driver checks them. Work that fails later
//! loses the device, as an asynchronous error of a GPU does: every call after it has the code.

use std::ffi::{c_int, c_void};

use pagewise_hal::{Code, EventHandle, StreamHandle};
use pagewise_sim::Submission;

use crate::contexts;
use crate::deferred::{Entry, Lane, PAUSE, Rest, Work};
use crate::driver::{Driver, Outcome, answer, guarded, stream};
use crate::graph_memory;

/// The first code that the driver reports for work that failed on a device.
const ILLEGAL_ADDRESS: c_int = 700;

/// The asynchronous error of work that was refused when its turn came.
fn asynchronous(code: c_int) -> c_int {
    if code >= ILLEGAL_ADDRESS || code == Code::OUT_OF_MEMORY { code } else { ILLEGAL_ADDRESS }
}

/// The rest of a kernel that waits for memory to change: `None` while it does.
pub(crate) type KernelRest = Box<dyn FnMut(&Driver) -> Option<Outcome> + Send>;

/// Carries something out in a context that no call is about. A failure loses the device, and the log
/// says why.
pub(crate) fn settle<T>(
    driver: &Driver,
    (context, why): (usize, &str),
    operation: impl FnOnce(&Driver) -> Outcome<T>,
) -> Option<T> {
    contexts::push(context);
    let outcome = guarded(|| operation(driver));
    // The stack of this thread has what was just pushed.
    _ = contexts::pop();
    let answer = outcome.inspect_err(|code| {
        driver.warn(&format!("{why} (error {code})"));
        driver.faults.lose(asynchronous(*code));
    });
    answer.ok()
}

/// The line of the log about work that waited and failed.
const WORK_FAILED: &str = "work behind a function of the host failed when its turn came";

/// The rest of a kernel as work.
fn rest_of(context: usize, mut rest: KernelRest) -> Rest<Driver> {
    Box::new(move |driver| {
        let look = |driver: &Driver| rest(driver).transpose();
        // A kernel that failed has ended.
        let has_ended = !matches!(settle(driver, (context, WORK_FAILED), look), Some(None));
        if has_ended {
            driver.note_work();
        }
        has_ended
    })
}

/// Keeps an operation until its stream reaches it. The context is the caller's.
fn keep(
    driver: &Driver,
    lane: Lane,
    (records, waits_for): (Option<u64>, Option<u64>),
    operation: impl FnOnce(&Driver) -> Outcome<Option<KernelRest>> + Send + 'static,
) -> Outcome {
    let context = contexts::current();
    let work = move |driver: &Driver| {
        let rest = settle(driver, (context, WORK_FAILED), operation).flatten();
        driver.note_work();
        rest.map(|rest| rest_of(context, rest))
    };
    let work = Work::Operation(Box::new(work));
    driver.deferred.submit(Entry { lane, work, records, waits_for })
}

/// Keeps an operation until its stream reaches it.
pub(crate) fn later(
    driver: &Driver,
    lane: Lane,
    operation: impl FnOnce(&Driver) -> Outcome + Send + 'static,
) -> Outcome {
    kernel_later(driver, lane, move |driver| operation(driver).map(|()| None))
}

/// Keeps the launch of a kernel until its stream reaches it.
pub(crate) fn kernel_later(
    driver: &Driver,
    lane: Lane,
    launch: impl FnOnce(&Driver) -> Outcome<Option<KernelRest>> + Send + 'static,
) -> Outcome {
    keep(driver, lane, (None, None), launch)
}

/// Lets a stream wait for the rest of a kernel, if there is one.
pub(crate) fn go_on_later(driver: &Driver, lane: Lane, rest: Option<KernelRest>) -> Outcome {
    let Some(rest) = rest else { return Ok(()) };
    let work = Work::Rest(rest_of(contexts::current(), rest));
    driver.deferred.submit(Entry { lane, work, records: None, waits_for: None })
}

/// Waits for the rest of a kernel, if there is one.
pub(crate) fn wait_for_rest(driver: &Driver, rest: Option<KernelRest>) -> Outcome {
    let Some(mut rest) = rest else { return Ok(()) };
    loop {
        match rest(driver) {
            Some(outcome) => return outcome,
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Makes a call of the back end in a stream of the caller.
///
/// # Errors
/// As the call. The outer outcome is that of the stream.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn call_on(
    driver: &Driver,
    on: StreamHandle,
    work: Submission,
) -> Outcome<pagewise_hal::Result<()>> {
    let lane = driver.lane(on);
    if !driver.deferred.is_behind(lane) {
        // SAFETY: this function's contract is that of the call.
        return Ok(unsafe { work.submit(&*driver.sim, on) });
    }
    if let Err(error) = driver.machine.simulator.check_submission(&work, on) {
        return Ok(Err(error));
    }
    // SAFETY: this function's contract is that of the call, until the stream reaches it.
    later(driver, lane, move |driver| answer(unsafe { work.submit(&*driver.sim, on) })).map(Ok)
}

/// The same, with one outcome.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn call(driver: &Driver, on: StreamHandle, work: Submission) -> Outcome {
    // SAFETY: this function's contract is that of the call.
    answer(unsafe { call_on(driver, on, work) }?)
}

/// Frees memory in the order of a stream. Memory that waits to be freed is not freed twice.
///
/// # Safety
/// No work submitted later may use the memory.
pub(crate) unsafe fn free(driver: &Driver, raw: *mut c_void, ptr: u64) -> Outcome {
    let on = driver.stream(raw)?;
    let lane = driver.lane(on);
    // Memory of variables goes with its module.
    if driver.programs().owns(ptr) || driver.freeing().contains(&ptr) {
        return Err(Code::INVALID_VALUE);
    }
    let work = Submission::Free(pagewise_hal::DevicePtr(ptr));
    if !driver.deferred.is_behind(lane) {
        if let Some(freed) = graph_memory::free(driver, ptr) {
            return freed;
        }
        // SAFETY: this function's contract is that of the call.
        return answer(unsafe { work.submit(&*driver.sim, on) });
    }
    if !driver.graphs().memory.owns(ptr) {
        answer(driver.machine.simulator.check_submission(&work, on))?;
    }
    if ptr == 0 {
        return Ok(());
    }
    driver.freeing().insert(ptr);
    let operation = move |driver: &Driver| {
        driver.freeing().remove(&ptr);
        match graph_memory::free(driver, ptr) {
            Some(freed) => freed,
            // SAFETY: this function's contract is that of the call, until the stream reaches it.
            None => answer(unsafe { work.submit(&*driver.sim, on) }),
        }
    };
    later(driver, lane, operation).inspect_err(|_| _ = driver.freeing().remove(&ptr))
}

/// Records an event that exists, in the order of a stream that exists.
pub(crate) fn record(driver: &Driver, event: EventHandle, on: StreamHandle) -> Outcome {
    let (lane, raw) = (driver.lane(on), event.as_raw());
    if !driver.deferred.is_behind(lane) {
        answer(driver.sim.event_record(event, on))?;
        driver.deferred.forget_event(raw);
        return Ok(());
    }
    check_event(driver, event)?;
    keep(driver, lane, (Some(raw), None), move |driver| {
        match answer(driver.sim.event_record(event, on)) {
            // It was destroyed just now. The stream lives until its work is done.
            Err(Code::INVALID_HANDLE) => Ok(None),
            recorded => recorded.map(|()| None),
        }
    })
}

/// Lets a stream wait for the last record of an event.
pub(crate) fn wait(driver: &Driver, event: EventHandle, on: StreamHandle) -> Outcome {
    let (lane, raw) = (driver.lane(on), event.as_raw());
    if !driver.deferred.is_behind(lane) && !driver.deferred.is_event_pending(raw) {
        return answer(driver.sim.stream_wait_event(on, event));
    }
    check_event(driver, event)?;
    keep(driver, lane, (None, Some(raw)), move |driver| {
        // The event may be gone by now. The order holds all the same.
        _ = driver.sim.stream_wait_event(on, event);
        Ok(None)
    })
}

/// Refuses what is no event.
fn check_event(driver: &Driver, event: EventHandle) -> Outcome {
    let exists = driver.contexts().events.contains_key(&(event.as_raw() as usize));
    if exists { Ok(()) } else { Err(Code::INVALID_HANDLE) }
}

/// Destroys a stream. Its handle is invalid at once; work that it has yet to do is done first.
///
/// # Errors
/// As the call.
///
/// # Safety
/// The handle may not be used again.
pub(crate) unsafe fn destroy_stream(driver: &Driver, raw: *mut c_void) -> Outcome {
    let on = stream(raw);
    let lane = driver.lane(on);
    // SAFETY: `stream_destroy` asks that the handle is not used again, as this function does. The
    // simulator refuses a handle of a destroyed stream, so even a broken promise does no harm.
    let destroy = move |driver: &Driver| answer(unsafe { driver.sim.stream_destroy(on) });
    // A default stream is refused at once.
    if on.is_default() || !driver.deferred.is_stream_pending(on.as_raw()) {
        return destroy(driver);
    }
    driver.created_stream(on)?;
    later(driver, lane, destroy)
}
