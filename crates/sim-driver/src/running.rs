//! Runs work of streams, or makes nodes of it where the stream captures.

use std::ffi::c_void;

use pagewise_hal::{Backend, Code, DevicePtr, Span, StreamHandle};

use crate::copy_params::Memcpy3D;
use crate::deferred::{self, Entry};
use crate::deferring::later;
use crate::driver::{Driver, Outcome, answer, stream};
use crate::entry::span;
use crate::graphs::Task;
use crate::staging::{self, Prepared};
use crate::transfer::{self, Rows, Shape};
use crate::work::{HostNodeParams, MemsetParams, Range, Use, Work};
use crate::work_checks::{check_capture, check_rows, check_slices, slice};

/// Submits work to a stream of the caller: it runs, becomes a node of the capture, or waits behind a
/// function of the host. A call without a stream is of the legacy default stream, and is complete
/// when it returns.
///
/// # Safety
/// No other code may use the memory of the work, and its function must be sound to call.
pub(crate) unsafe fn submit(driver: &Driver, raw: Option<*mut c_void>, work: Work) -> Outcome {
    let handle = stream(raw.unwrap_or_default());
    let device = driver.device_of_stream(handle)?;
    if let Some(key) = driver.capturing(handle) {
        if work.is_empty() {
            return driver.graphs().captures.check(key);
        }
        check_capture(driver, &work)?;
        return driver.graphs().capture(key, Task::from(work)).map(drop);
    }
    driver.check_legacy(handle)?;
    let on = driver.working(handle, device)?;
    if let Work::Host(call) = work {
        answer(driver.sim.stream_synchronize(on))?;
        return submit_host(driver, handle, call);
    }
    let lane = driver.lane(handle);
    if raw.is_none() || !driver.deferred.is_behind(lane) {
        driver.deferred.wait_ahead(lane)?;
        driver.faults.of_work()?;
        // SAFETY: `run` asks what this function asks.
        return unsafe { run(driver, &work, on) };
    }
    // SAFETY: `prepare` asks what this function asks.
    match unsafe { staging::prepare(driver, work, on) }? {
        Prepared::Nothing => Ok(()),
        // SAFETY: `run` asks what this function asks, until the stream reaches the work.
        Prepared::Work => later(driver, lane, move |driver| unsafe { run(driver, &work, on) }),
        Prepared::Staged(copy) => later(driver, lane, move |driver| {
            // SAFETY: `copy` asks what this function asks, until the stream reaches the work.
            unsafe { copy.copy(driver, on) }
        }),
        Prepared::Host => {
            driver.deferred.wait_ahead(lane)?;
            // SAFETY: `run` asks what this function asks.
            unsafe { run(driver, &work, on) }
        }
    }
}

/// Lets the thread of functions of the host make a call, in the order of a stream.
pub(crate) fn submit_host(
    driver: &Driver,
    handle: StreamHandle,
    HostNodeParams { function, data }: HostNodeParams,
) -> Outcome {
    let function = function.ok_or(Code::INVALID_VALUE)?;
    let call = HostNodeParams { function: Some(function), data };
    let work = move || {
        let call = call;
        // SAFETY: the program promised that the function can be called with its data, from any
        // thread.
        unsafe { function(call.data) };
    };
    let work = deferred::Work::Function(Box::new(work));
    let lane = driver.lane(handle);
    driver.deferred.submit(Entry { lane, work, records: None, waits_for: None })
}

/// Carries work out.
///
/// # Safety
/// As [`submit`].
pub(crate) unsafe fn run(driver: &Driver, work: &Work, on: StreamHandle) -> Outcome {
    // SAFETY: each function asks that no other code uses the memory, as this function does.
    unsafe {
        match work {
            Work::Copy(range) => copy_range(driver, *range, on),
            Work::Slices(slices) => copy_slices(driver, slices, on),
            Work::Fill(fill) => {
                let bytes = fill.width.wrapping_mul(fill.element_bytes as usize);
                fill_range(driver, span(fill.address, bytes), fill, on)
            }
            Work::Rows(fill) => fill_rows(driver, fill, on),
            Work::Host(call) => submit_host(driver, on, *call),
        }
    }
}

/// Copies a range between any two places.
///
/// # Safety
/// No other code may use the ranges; a range of the host that is `Promised` must be mapped.
unsafe fn copy_range(
    driver: &Driver,
    Range { to: (destination, writing), from: (source, reading), bytes }: Range,
    on: StreamHandle,
) -> Outcome {
    let is_of_host = |how| how == Use::Promised;
    if bytes == 0 && (is_of_host(writing) || is_of_host(reading)) {
        return Ok(());
    }
    let (to, from) = (DevicePtr(destination), DevicePtr(source));
    let known = |ptr| driver.machine.simulator.reserves(Span::new(ptr, bytes as u64));
    if bytes == 0 || (known(to) && known(from)) {
        // SAFETY: `memcpy` asks that no other code uses the ranges; this function's contract says
        // so. The simulator refuses ranges outside of live allocations.
        return answer(unsafe { driver.sim.memcpy(to, from, bytes as u64, on) });
    }
    let shape = Shape { width: bytes as u64, rows: 1 };
    let to = Rows::new(driver, (destination, 0), shape, writing)?;
    let from = Rows::new(driver, (source, 0), shape, reading)?;
    // SAFETY: this function's contract, and `Rows` looked at what was not promised.
    unsafe { transfer::copy(driver, to, from, shape, on) }
}

/// Copies slices of rows.
///
/// # Safety
/// No other code may use the rows.
unsafe fn copy_slices(driver: &Driver, copy: &Memcpy3D, on: StreamHandle) -> Outcome {
    // A refused call copies nothing: the last slice is looked at first.
    check_slices(driver, copy, |_, _| false)?;
    if copy.is_empty() {
        return Ok(());
    }
    let shape = Shape { width: copy.width as u64, rows: copy.height as u64 };
    for index in 0..copy.depth {
        let (to, from) = slice(driver, copy, index)?;
        // SAFETY: this function's contract, and `Rows` looked at the memory of the host.
        unsafe { transfer::copy(driver, to, from, shape, on) }?;
    }
    Ok(())
}

/// Fills a range with the elements of a fill.
///
/// # Safety
/// No other code may use the range.
unsafe fn fill_range(
    driver: &Driver,
    range: Span,
    fill: &MemsetParams,
    on: StreamHandle,
) -> Outcome {
    // SAFETY: the fills ask that no other code uses the range; this function's contract says so. The
    // simulator refuses ranges outside of live allocations.
    answer(unsafe {
        match fill.element_bytes {
            1 => driver.sim.memset(range, fill.value as u8, on),
            2 => driver.sim.memset_d16(range, fill.value as u16, on),
            _ => driver.sim.memset_d32(range, fill.value, on),
        }
    })
}

/// Fills rows.
///
/// # Safety
/// No other code may use the rows.
unsafe fn fill_rows(driver: &Driver, fill: &MemsetParams, on: StreamHandle) -> Outcome {
    if fill.width == 0 || fill.height == 0 {
        return Ok(());
    }
    check_rows(driver, fill)?;
    let (row, extent) = (fill.width.wrapping_mul(fill.element_bytes as usize), fill.extent()?);
    if fill.height == 1 || fill.pitch == row {
        // SAFETY: `fill_range` asks that no other code uses the range, as this function does.
        return unsafe { fill_range(driver, span(fill.address, extent), fill, on) };
    }
    for index in 0..fill.height {
        let start = fill.address.wrapping_add(index.wrapping_mul(fill.pitch) as u64);
        // SAFETY: `fill_range` asks that no other code uses the range, as this function does.
        unsafe { fill_range(driver, span(start, row), fill, on) }?;
    }
    Ok(())
}
