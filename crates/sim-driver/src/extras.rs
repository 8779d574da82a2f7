//! What a simulated driver can say and a real one cannot: functions beyond the driver's ABI.

use std::ffi::{CStr, c_char, c_int};

use pagewise::{Backend, Code, HostAccess, HostTouch};

use crate::entry::span;
use crate::machine::{answer, any_time, has_place, replace, store};

/// Replaces the simulated machine by a new one with these [options](crate::Options); null gives
/// the machine up until the next call. Whatever came from the old one is invalid from now on.
/// Returns 0, or 1 if the text is no list of options or there is no room for a machine.
///
/// # Safety
/// `options` must be null or NUL-terminated. Nobody may be inside a call, or use memory of the old
/// machine afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_reset(options: *const c_char) -> c_int {
    let text = if options.is_null() {
        Ok(None)
    } else {
        // SAFETY: not null, and NUL-terminated by the caller's word.
        unsafe { CStr::from_ptr(options) }.to_str().map(Some)
    };
    match text.map_err(|error| error.to_string()).and_then(replace) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("simulated CUDA driver: {why}");
            1
        }
    }
}

/// Which pages of a range of one allocation the host has mapped: one byte per page, 0 or 1.
/// Returns a `CUresult`.
///
/// # Safety
/// `pages` must be valid for writing as many bytes as the range touches pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_host_pages(
    ptr: u64,
    bytes: usize,
    pages: *mut u8,
) -> c_int {
    any_time(|machine| {
        has_place(pages)?;
        let mut next = pages;
        for run in answer(machine.sim.host_page_map(span(ptr, bytes)))? {
            let length = run.pages as usize;
            // SAFETY: the runs cover the pages that the range touches, for which the caller
            // vouches.
            unsafe {
                next.write_bytes(u8::from(run.mapped), length);
                next = next.add(length);
            }
        }
        Ok(())
    })
}

/// Carries out a host access program: the byte at every `stride_bytes` is read and added to `sum`,
/// or set to `value` if that is not negative. Programs on a GPU machine simply access the memory; a
/// simulated driver takes part in no access, so whoever wants it to move pages says so here.
/// Returns a `CUresult`.
///
/// # Safety
/// `sum` must be valid for writing. Nobody else may use the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_host_touch(
    ptr: u64,
    bytes: usize,
    stride_bytes: u64,
    value: c_int,
    sum: *mut u64,
) -> c_int {
    any_time(|machine| {
        let access = u8::try_from(value).map_or(HostAccess::Read, HostAccess::Write);
        let touch = HostTouch { span: span(ptr, bytes), stride_bytes, access };
        // SAFETY: the caller's duty is the same.
        let read = answer(unsafe { machine.sim.host_touch(touch) })?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(sum, read) }
    })
}

/// The unified-memory records since the last call, as JSON, for `use_text` to copy: it gets
/// `context`, the text and its length in bytes. Returns a `CUresult`.
///
/// # Safety
/// `use_text` must be sound to call with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_take_events(
    use_text: unsafe extern "C" fn(*mut std::ffi::c_void, *const u8, usize),
    context: *mut std::ffi::c_void,
) -> c_int {
    any_time(|machine| {
        let events = answer(machine.sim.take_events())?;
        let text = serde_json::to_string(&events).map_err(|_| Code::UNKNOWN)?;
        // SAFETY: the caller vouches for the function.
        unsafe { use_text(context, text.as_ptr(), text.len()) };
        Ok(())
    })
}

/// Lets the next call take this many nanoseconds of virtual time, and its faults so many: each the
/// time until it is looked at, and the time from then on.
///
/// # Safety
/// `faults` must point to `count` pairs, or `count` be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_pace(
    duration_ns: u64,
    faults: *const [u64; 2],
    count: usize,
) {
    // SAFETY: the caller vouches for so many pairs.
    let fault = |at| <(u64, u64)>::from(unsafe { faults.add(at).read() });
    any_time(|machine| {
        machine.sim.pace_next_op(duration_ns, (0..count).map(fault));
        Ok(())
    });
}

/// How often primary contexts are retained and not released, over all devices.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_retained() -> u64 {
    let mut count = 0;
    any_time(|machine| {
        count = machine.retained();
        Ok(())
    });
    count
}

/// The simulator's clock in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_clock_ns() -> u64 {
    let mut now = 0;
    any_time(|machine| {
        now = machine.sim.clock_ns();
        Ok(())
    });
    now
}

/// Lets virtual time pass.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_sleep_ns(duration_ns: u64) {
    any_time(|machine| {
        machine.sim.sleep_ns(duration_ns);
        Ok(())
    });
}
