//! Checks of work, before it runs or waits.

use pagewise_hal::Code;

use crate::copy_params::{ARRAY, DEVICE, HOST, Memcpy3D, Memcpy3DSide, UNIFIED};
use crate::driver::{Driver, Outcome};
use crate::entry::span_is_live;
use crate::transfer::{Rows, Shape};
use crate::work::{MemsetParams, Range, Use, Work};

/// A capture refuses ranges that begin in an allocation and pass its end. It takes other addresses
/// as they are, as driver 580 does: memory of the host, and addresses of nothing.
pub(crate) fn check_capture(driver: &Driver, work: &Work) -> Outcome {
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
pub(crate) fn slice(driver: &Driver, copy: &Memcpy3D, index: usize) -> Outcome<(Rows, Rows)> {
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

/// Refuses a fill of rows that are not within one allocation.
pub(crate) fn check_rows(driver: &Driver, fill: &MemsetParams) -> Outcome {
    let extent = fill.extent()?;
    if span_is_live(driver, fill.address, extent as u64) {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}
