//! Copies between any two places: memory of the simulator, and memory of the program that the
//! simulator does not know.
//!
//! Memory of the program goes through a page-locked allocation of the simulator, so that the other
//! side pays and moves as it does for any copy. The driver reads and writes that allocation through
//! the engine's view, where it takes no fault of the host. A call that may get any address for host memory
//! looks first whether the process has it mapped: a wrong address is an error and not a crash.

use pagewise_hal::{Backend, Code, DevicePtr, PointerAttribute, Processor, Span, StreamHandle};

use crate::bounce::BounceBuffer;
use crate::driver::{Driver, Outcome, answer};
use crate::entry::span_is_live;
use crate::work::Use;

/// Rows of bytes: the first address, the distance between rows, and whether the memory is the simulator's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    start: u64,
    pitch: u64,
    is_simulated: bool,
}

/// Width of rows in bytes, and their number; neither is 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) width: u64,
    pub(crate) rows: u64,
}

/// Whether a range is the simulator's: in its address space, allocated or not, or registered.
fn is_simulated(driver: &Driver, range: Span) -> bool {
    let start = PointerAttribute::RANGE_START_ADDR;
    driver.machine.simulator.reserves(range)
        || driver.sim.pointer_attribute(range.ptr, start).is_ok()
}

impl Rows {
    /// Rows of a shape, if all of them can be used so.
    pub(crate) fn new(
        driver: &Driver,
        (start, pitch): (u64, u64),
        shape: Shape,
        how: Use,
    ) -> Outcome<Self> {
        let before_last = shape.rows.checked_sub(1).and_then(|rows| rows.checked_mul(pitch));
        let extent = before_last.and_then(|bytes| bytes.checked_add(shape.width));
        let extent = extent.ok_or(Code::INVALID_VALUE)?;
        let is_simulated = is_simulated(driver, Span::new(DevicePtr(start), extent));
        let usable = if is_simulated {
            span_is_live(driver, start, extent)
        } else {
            start != 0 && (how == Use::Promised || is_mapped(start, extent, how == Use::Write))
        };
        if usable { Ok(Self { start, pitch, is_simulated }) } else { Err(Code::INVALID_VALUE) }
    }

    /// Rows of the host that the caller knows to be there.
    pub(crate) fn of_host((start, pitch): (u64, u64)) -> Self {
        Self { start, pitch, is_simulated: false }
    }

    /// Whether the memory is the simulator's.
    pub(crate) fn is_simulated(self) -> bool {
        self.is_simulated
    }

    /// Appends the bytes of rows of the program.
    ///
    /// # Safety
    /// The rows must be mapped for reading, and no other code may write them.
    pub(crate) unsafe fn read(self, shape: Shape, into: &mut Vec<u8>) {
        for row in 0..shape.rows {
            let source = place(self.row(row)).cast_const();
            // SAFETY: by this function's contract the row can be read, and nothing writes it.
            into.extend_from_slice(unsafe {
                std::slice::from_raw_parts(source, shape.width as usize)
            });
        }
    }

    fn row(self, index: u64) -> u64 {
        self.start.wrapping_add(index.wrapping_mul(self.pitch))
    }

    /// Whether the rows are one range without gaps.
    fn is_tight(self, shape: Shape) -> bool {
        self.pitch == shape.width || shape.rows == 1
    }
}

/// Whether the process has a range mapped for reading, or for writing.
fn is_mapped(start: u64, bytes: u64, to_write: bool) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    let Some(end) = start.checked_add(bytes) else { return false };
    let mut reached = start;
    for line in maps.lines() {
        let mut fields = line.split([' ', '-']);
        let mut number = || u64::from_str_radix(fields.next()?, 16).ok();
        let Some((first, past)) = number().zip(number()) else { return false };
        let rights = fields.next().unwrap_or_default();
        if past <= reached {
            continue;
        }
        let allowed = rights.starts_with('r') && (!to_write || rights[1..].starts_with('w'));
        if first > reached || !allowed {
            return false;
        }
        reached = past;
        if reached >= end {
            return true;
        }
    }
    false
}

/// Copies rows. They may not overlap.
///
/// # Safety
/// No other code may use the rows. Rows of the program must be mapped for what is done with them.
pub(crate) unsafe fn copy(
    driver: &Driver,
    to: Rows,
    from: Rows,
    shape: Shape,
    on: StreamHandle,
) -> Outcome {
    match (to.is_simulated, from.is_simulated) {
        (true, true) => {
            // SAFETY: `copy_simulated` asks that no other code uses the rows, as this function does.
            unsafe { copy_simulated(driver, to, from, shape, on) }
        }
        (false, false) => {
            for row in 0..shape.rows {
                // SAFETY: by this function's contract both rows are mapped, and no other code uses
                // them. `copy` allows an overlap.
                unsafe { place(from.row(row)).copy_to(place(to.row(row)), shape.width as usize) };
            }
            Ok(())
        }
        (true, false) => {
            let (buffer, rows, bytes) = bounce(driver, shape)?;
            for row in 0..shape.rows {
                let (into, source) = (buffer.place(rows.row(row)), place(from.row(row)));
                // SAFETY: by this function's contract the row can be read. The buffer has room for
                // as many rows and is this copy's alone, so the two do not overlap.
                unsafe { into.copy_from_nonoverlapping(source, shape.width as usize) };
            }
            // SAFETY: by this function's contract no other code uses the destination, and only this
            // function uses the buffer.
            unsafe { copy_simulated(driver, to, rows, shape, on) }?;
            driver.machine.simulator.host_copied(bytes, Processor::device(0));
            buffer.keep();
            Ok(())
        }
        (false, true) => {
            let (buffer, rows, bytes) = bounce(driver, shape)?;
            // SAFETY: by this function's contract no other code uses the source, and only this
            // function uses the buffer.
            unsafe { copy_simulated(driver, rows, from, shape, on) }?;
            for row in 0..shape.rows {
                let (into, source) = (place(to.row(row)), buffer.place(rows.row(row)));
                // SAFETY: by this function's contract the row can be written. Only this function
                // uses the buffer, so the two do not overlap.
                unsafe { into.copy_from_nonoverlapping(source, shape.width as usize) };
            }
            driver.machine.simulator.host_copied(bytes, Processor::HOST);
            buffer.keep();
            Ok(())
        }
    }
}

/// Memory at an address of this process.
fn place(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Copies rows of the simulator.
///
/// # Safety
/// No other code may use the rows.
unsafe fn copy_simulated(
    driver: &Driver,
    to: Rows,
    from: Rows,
    shape: Shape,
    on: StreamHandle,
) -> Outcome {
    let (rows, bytes) = match shape.width.checked_mul(shape.rows) {
        Some(bytes) if to.is_tight(shape) && from.is_tight(shape) => (1, bytes),
        _ => (shape.rows, shape.width),
    };
    for row in 0..rows {
        let (to, from) = (DevicePtr(to.row(row)), DevicePtr(from.row(row)));
        // SAFETY: `memcpy` asks that no other code uses the ranges; this function's contract says
        // so. The simulator refuses ranges outside of live allocations.
        answer(unsafe { driver.sim.memcpy(to, from, bytes, on) })?;
    }
    Ok(())
}

/// A buffer for all rows of a shape, without gaps, those rows, and how many bytes they have.
fn bounce(driver: &Driver, shape: Shape) -> Outcome<(BounceBuffer<'_>, Rows, u64)> {
    let bytes = shape.width.checked_mul(shape.rows).ok_or(Code::INVALID_VALUE)?;
    let buffer = BounceBuffer::new(driver, bytes)?;
    let rows = Rows { start: buffer.start(), pitch: shape.width, is_simulated: true };
    Ok((buffer, rows, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_has_mapped_is_known_with_its_rights() {
        let text = "constant".as_ptr().addr() as u64;
        let mut byte = 0_u8;
        let local = (&raw mut byte).addr() as u64;
        assert!(is_mapped(local, 1, true) && is_mapped(text, 8, false));
        assert!(!is_mapped(text, 8, true), "constants are not written");
        assert!(!is_mapped(8, 8, false) && !is_mapped(local, u64::MAX, false));
    }
}
