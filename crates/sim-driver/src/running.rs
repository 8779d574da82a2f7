//! Runs work of streams, or makes nodes of it where the stream captures.

use std::ffi::c_void;

use pagewise_hal::{Backend, Code, DevicePtr, Span, StreamHandle};

use crate::copy_params::{ARRAY, DEVICE, HOST, Memcpy3D, Memcpy3DSide, UNIFIED};
use crate::driver::{Driver, Outcome, answer, host_queue, stream};
use crate::entry::{span, span_is_live};
use crate::graphs::Task;
use crate::transfer::{self, Rows, Shape};
use crate::work::{HostNodeParams, MemsetParams, Range, Use, Work};

/// Submits work to a stream of the caller: it runs, or becomes a node of the capture.
///
/// # Safety
/// No other code may use the memory of the work, and its function must be sound to call.
pub(crate) unsafe fn submit(driver: &Driver, raw: *mut c_void, work: Work) -> Outcome {
    let handle = stream(raw);
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
    driver.wait_for_host(handle);
    // SAFETY: `run` asks what this function asks.
    unsafe { run(driver, &work, on) }
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
    if driver.host_work.submit(host_queue(handle), Box::new(work)) {
        Ok(())
    } else {
        Err(Code::OUT_OF_MEMORY)
    }
}

/// A capture refuses ranges that begin in an allocation and pass its end. It takes other addresses
/// as they are, as driver 580 does: memory of the host, and addresses of nothing.
fn check_capture(driver: &Driver, work: &Work) -> Outcome {
    let fits = |address: u64, bytes: usize| {
        !span_is_live(driver, address, 1) || span_is_live(driver, address, bytes as u64)
    };
    let fit = match work {
        Work::Copy(Range { to, from, bytes }) => fits(to.0, *bytes) && fits(from.0, *bytes),
        Work::Fill(fill) | Work::Rows(fill) => fits(fill.address, fill.extent()?),
        Work::Slices(_) | Work::Host(_) => true,
    };
    if fit { Ok(()) } else { Err(Code::INVALID_VALUE) }
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

/// Whether the rows of a side have room for a copy, in memory that copies know.
fn check_side(driver: &Driver, side: &Memcpy3DSide, copy: &Memcpy3D) -> Outcome {
    match side.kind {
        HOST | DEVICE | UNIFIED => {}
        ARRAY => return driver.refuse("copies of arrays"),
        _ => return Err(Code::INVALID_VALUE),
    }
    let room = side.x.checked_add(copy.width).ok_or(Code::INVALID_VALUE)?;
    let fits = side.pitch == 0 || copy.height == 1 || room <= side.pitch;
    if fits { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// The rows of both sides of one slice.
fn slice(driver: &Driver, copy: &Memcpy3D, index: usize) -> Outcome<(Rows, Rows)> {
    let shape = Shape { width: copy.width as u64, rows: copy.height as u64 };
    let rows = |side: &Memcpy3DSide, how| {
        let first = side.row(index, copy.width, copy.height).ok_or(Code::INVALID_VALUE)?;
        Rows::new(driver, first, shape, how)
    };
    Ok((rows(&copy.destination, Use::Write)?, rows(&copy.source, Use::Read)?))
}

/// Refuses a copy of slices if its memory cannot be used. `is_known` says that a range can, as it
/// will be there when the copy runs.
pub(crate) fn check_slices(
    driver: &Driver,
    copy: &Memcpy3D,
    is_known: impl Fn(u64, u64) -> bool,
) -> Outcome {
    check_side(driver, &copy.source, copy)?;
    check_side(driver, &copy.destination, copy)?;
    if copy.is_empty() {
        return Ok(());
    }
    let shape = Shape { width: copy.width as u64, rows: copy.height as u64 };
    // The last slice ends last.
    let last = copy.depth.saturating_sub(1);
    for (side, how) in [(&copy.destination, Use::Write), (&copy.source, Use::Read)] {
        let (start, pitch) = side.row(last, copy.width, copy.height).ok_or(Code::INVALID_VALUE)?;
        let before_last = shape.rows.saturating_sub(1).checked_mul(pitch);
        let extent = before_last.and_then(|bytes| bytes.checked_add(shape.width));
        if !extent.is_some_and(|extent| is_known(start, extent)) {
            Rows::new(driver, (start, pitch), shape, how)?;
        }
    }
    Ok(())
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

/// Refuses a fill of rows that are not within one allocation.
fn check_rows(driver: &Driver, fill: &MemsetParams) -> Outcome {
    let extent = fill.extent()?;
    if span_is_live(driver, fill.address, extent as u64) {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
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
