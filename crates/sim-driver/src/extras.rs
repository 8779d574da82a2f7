//! Functions beyond the driver's ABI: observations that a real driver cannot report.

use std::ffi::{CStr, c_char, c_int};

use pagewise_hal::{Backend, Code, HostAccess, HostTouch};

use crate::driver::{answer, beside, has_place, panics, replace, store};
use crate::entry::span;

/// Replaces the simulated driver by a new one with these [options](crate::Options); null gives
/// the driver up until the next call. Whatever came from the old one is invalid from now on.
/// Returns 0, or 1 if the text is no list of options or there is no room for its memory.
///
/// # Safety
/// `options` must be null or NUL-terminated. No thread may be inside a call, or use memory of the
/// old driver afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_reset(options: *const c_char) -> c_int {
    let text = if options.is_null() {
        Ok(None)
    } else {
        // SAFETY: `options` is not null, so the caller promises that it is NUL-terminated. The text
        // is used within this call only.
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

/// Waits until all work behind functions of the host is done, whatever its stream: a test that does
/// so before each call gets the same answers each time. Returns 0, or 800
/// (`CUDA_ERROR_NOT_PERMITTED`) if a function of the host calls it.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_wait() -> c_int {
    beside(|driver| driver.deferred.wait())
}

/// Gives a lost device back: calls are answered as before it was lost. A GPU's process has to end
/// for that; attacks and tests of errors that go on call this. Returns the code that the device was
/// lost with, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_recover() -> c_int {
    let mut code = Code::SUCCESS;
    beside(|driver| {
        code = driver.faults.recover();
        Ok(())
    });
    code
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
    beside(|driver| {
        has_place(pages)?;
        let mut next = pages;
        for run in answer(driver.sim.host_page_map(span(ptr, bytes)))? {
            let length = run.pages as usize;
            // SAFETY: the caller promises that `pages` has a byte for each page that the range
            // touches, and the runs together have as many pages.
            unsafe {
                next.write_bytes(u8::from(run.mapped), length);
                next = next.add(length);
            }
        }
        Ok(())
    })
}

/// Carries out a host access program: the byte at every `stride_bytes` is read and added to `sum`,
/// or set to `value` if that is not negative. The driver sees a program's plain accesses only with
/// `host_faults` other than `declared` (see [`Options`](crate::Options)); with `declared`, a program
/// that wants pages to move says so here. Returns a `CUresult`.
///
/// # Safety
/// `sum` must be valid for writing. No other thread, and no work of a device, may use the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_host_touch(
    ptr: u64,
    bytes: usize,
    stride_bytes: u64,
    value: c_int,
    sum: *mut u64,
) -> c_int {
    beside(|driver| {
        has_place(sum)?;
        let access = u8::try_from(value).map_or(HostAccess::Read, HostAccess::Write);
        let touch = HostTouch { span: span(ptr, bytes), stride_bytes, access };
        // SAFETY: `host_touch` asks that no other code uses the range; the caller of this function
        // promised that.
        let read = answer(unsafe { driver.sim.host_touch(touch) })?;
        // SAFETY: the caller promises that `sum` is null or valid for writing.
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
    beside(|driver| {
        let events = answer(driver.sim.take_events())?;
        let text = serde_json::to_string(&events).map_err(|_| Code::UNKNOWN)?;
        // SAFETY: the caller promises that `use_text` can be called with `context`. The text
        // outlives the call, and its length is passed with it.
        unsafe { use_text(context, text.as_ptr(), text.len()) };
        Ok(())
    })
}

/// No call has more faults: 16 TiB of pages.
const FAULTS_MAX: usize = 1 << 32;

/// Lets the next call take this many nanoseconds of virtual time, and its faults so many: each the
/// time until it is looked at, and the time from then on.
///
/// # Safety
/// `faults` must be null or point to `count` pairs; null counts as none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_pace(
    duration_ns: u64,
    faults: *const [u64; 2],
    count: usize,
) {
    let count = if faults.is_null() { 0 } else { count.min(FAULTS_MAX) };
    // SAFETY: unless `count` was set to 0, `faults` is not null, and the caller promises that it
    // points to `count` pairs of numbers.
    let fault = |at| <(u64, u64)>::from(unsafe { faults.wrapping_add(at).read_unaligned() });
    beside(|driver| {
        driver.machine.simulator.pace_next_op(duration_ns, (0..count).map(fault));
        Ok(())
    });
}

/// How often primary contexts are retained and not released, over all devices.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_retained() -> u64 {
    let mut count = 0;
    beside(|driver| {
        count = driver.retained();
        Ok(())
    });
    count
}

/// The simulator's clock in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_clock_ns() -> u64 {
    let mut now = 0;
    beside(|driver| {
        now = driver.sim.clock_ns();
        Ok(())
    });
    now
}

/// Lets virtual time pass.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_sleep_ns(duration_ns: u64) {
    beside(|driver| {
        driver.sim.sleep_ns(duration_ns);
        Ok(())
    });
}

/// How many calls ended in a panic since the library was loaded, and answered 999 for that. Each is
/// a bug of this library: tests expect 0.
#[unsafe(no_mangle)]
pub extern "C" fn pagewise_driver_panics() -> u64 {
    panics()
}

/// The whole state of the driver and its contexts as text, for `use_text` to copy: it gets
/// `context`, the text and its length in bytes. Two texts are equal if and only if the states are,
/// but for what [`SimBackend::state`](pagewise_sim::SimBackend::state) leaves out. Returns a
/// `CUresult`.
///
/// # Safety
/// `use_text` must be sound to call with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewise_driver_state(
    use_text: unsafe extern "C" fn(*mut std::ffi::c_void, *const u8, usize),
    context: *mut std::ffi::c_void,
) -> c_int {
    beside(|driver| {
        let text = driver.state();
        // SAFETY: the caller promises that `use_text` can be called with `context`. The text
        // outlives the call, and its length is passed with it.
        unsafe { use_text(context, text.as_ptr(), text.len()) };
        Ok(())
    })
}
