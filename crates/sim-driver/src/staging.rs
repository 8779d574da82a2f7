//! Work that has to wait: its checks, and the memory of the host that a copy reads at once.
//!
//! The driver stages memory of the program that is not page-locked: an asynchronous copy from it
//! returns when its bytes were read, so the program may change them. A copy to such memory is
//! complete when its call returns, as the driver's documentation allows and driver 580 does: it waits.

use pagewise_hal::{DevicePtr, Span, SpanCopy, StreamHandle};
use pagewise_sim::Submission;

use crate::copy_params::Memcpy3D;
use crate::driver::{Driver, Outcome, answer};
use crate::entry::span;
use crate::transfer::{self, Rows, Shape};
use crate::work::{MemsetParams, Range, Work};
use crate::work_checks::{check_rows, check_slices, slice};

/// The way of work that cannot run yet.
pub(crate) enum Prepared {
    /// It does nothing.
    Nothing,
    /// It runs as it is when its turn comes.
    Work,
    /// A copy that read its source.
    Staged(Staged),
    /// A copy to memory of the host that is not page-locked: the call waits.
    Host,
}

/// A copy that read its source.
pub(crate) struct Staged {
    /// The rows of all slices, without gaps.
    bytes: Vec<u8>,
    shape: Shape,
    /// The destination of each slice.
    to: Vec<Rows>,
}

impl Staged {
    /// Reads the source of a copy.
    ///
    /// # Safety
    /// The sources must be mapped for reading, and no other code may write them.
    unsafe fn read(shape: Shape, sides: Vec<(Rows, Rows)>) -> Self {
        let mut bytes = Vec::new();
        for (_, from) in &sides {
            // SAFETY: by this function's contract the rows are mapped for reading.
            unsafe { from.read(shape, &mut bytes) };
        }
        Self { bytes, shape, to: sides.into_iter().map(|(to, _)| to).collect() }
    }

    /// Writes the destination.
    ///
    /// # Safety
    /// No other code may use the destination.
    pub(crate) unsafe fn copy(&self, driver: &Driver, on: StreamHandle) -> Outcome {
        let each = self.shape.width.saturating_mul(self.shape.rows) as usize;
        for (to, slice) in self.to.iter().zip(self.bytes.chunks(each.max(1))) {
            let start = slice.as_ptr().expose_provenance() as u64;
            let from = Rows::of_host((start, self.shape.width));
            // SAFETY: this function's contract; the source is this value's.
            unsafe { transfer::copy(driver, *to, from, self.shape, on) }?;
        }
        Ok(())
    }
}

/// Checks work, and reads its source if the driver would stage it.
///
/// # Safety
/// As [`running::submit`](crate::running::submit).
pub(crate) unsafe fn prepare(driver: &Driver, work: Work, on: StreamHandle) -> Outcome<Prepared> {
    let check = |submission| answer(driver.machine.simulator.check_submission(&submission, on));
    match work {
        // SAFETY: `prepare_range` asks what this function asks.
        Work::Copy(range) => unsafe { prepare_range(driver, range, on) },
        // SAFETY: `prepare_slices` asks what this function asks.
        Work::Slices(copy) => unsafe { prepare_slices(driver, &copy) },
        Work::Fill(fill) => {
            let bytes = fill.width.wrapping_mul(fill.element_bytes as usize);
            check(fill_of(span(fill.address, bytes), &fill))?;
            Ok(Prepared::Work)
        }
        Work::Rows(fill) if fill.width == 0 || fill.height == 0 => Ok(Prepared::Nothing),
        Work::Rows(fill) => {
            check_rows(driver, &fill)?;
            let row = fill.width.wrapping_mul(fill.element_bytes as usize);
            check(fill_of(span(fill.address, row), &fill))?;
            Ok(Prepared::Work)
        }
        Work::Host(_) => Ok(Prepared::Work),
    }
}

fn fill_of(range: Span, fill: &MemsetParams) -> Submission {
    match fill.element_bytes {
        1 => Submission::Fill8(range, fill.value as u8),
        2 => Submission::Fill16(range, fill.value as u16),
        _ => Submission::Fill32(range, fill.value),
    }
}

/// # Safety
/// As [`prepare`].
unsafe fn prepare_range(
    driver: &Driver,
    Range { to: (destination, writing), from: (source, reading), bytes }: Range,
    on: StreamHandle,
) -> Outcome<Prepared> {
    if bytes == 0 {
        return Ok(Prepared::Nothing);
    }
    let bytes = bytes as u64;
    let (to, from) = (DevicePtr(destination), DevicePtr(source));
    let known = |ptr| driver.machine.simulator.reserves(Span::new(ptr, bytes));
    if known(to) && known(from) {
        let copy = Submission::Copy(SpanCopy::new(to, from, bytes));
        answer(driver.machine.simulator.check_submission(&copy, on))?;
        return Ok(Prepared::Work);
    }
    let shape = Shape { width: bytes, rows: 1 };
    let to = Rows::new(driver, (destination, 0), shape, writing)?;
    let from = Rows::new(driver, (source, 0), shape, reading)?;
    // SAFETY: this function's contract, and `Rows` looked at what was not promised.
    Ok(unsafe { stage(shape, vec![(to, from)]) })
}

/// # Safety
/// As [`prepare`].
unsafe fn prepare_slices(driver: &Driver, copy: &Memcpy3D) -> Outcome<Prepared> {
    check_slices(driver, copy, |_, _| false)?;
    if copy.is_empty() {
        return Ok(Prepared::Nothing);
    }
    let shape = Shape { width: copy.width as u64, rows: copy.height as u64 };
    let sides: Outcome<Vec<_>> = (0..copy.depth).map(|index| slice(driver, copy, index)).collect();
    // SAFETY: this function's contract, and `Rows` looked at the memory of the host.
    Ok(unsafe { stage(shape, sides?) })
}

/// Reads the source of a copy if it is memory of the host that is not page-locked.
///
/// # Safety
/// As [`Staged::read`].
unsafe fn stage(shape: Shape, sides: Vec<(Rows, Rows)>) -> Prepared {
    match sides.first() {
        None => Prepared::Nothing,
        Some((to, _)) if !to.is_simulated() => Prepared::Host,
        Some((_, from)) if from.is_simulated() => Prepared::Work,
        // SAFETY: `read` asks what this function asks.
        Some(_) => Prepared::Staged(unsafe { Staged::read(shape, sides) }),
    }
}
