//! Result cells of touch programs: 8 bytes of page-locked memory each, on a cache line of its own.
//!
//! Host memory, because reading the sum back then costs no call. Cells are kept for reuse and
//! freed with the back end.

use std::sync::{Mutex, PoisonError};

use pagewise_hal::Result;

use crate::context::Context;

/// Bytes of one allocation of cells, and of one cell.
const CHUNK_BYTES: usize = 4096;
const CELL_BYTES: usize = 64;

/// Visible in every context of the process, and mapped on devices.
const PORTABLE_AND_MAPPED: u32 = 0x3;

/// A cell in use.
#[derive(Debug)]
pub(crate) struct Cell(usize);

impl Cell {
    /// Its address, the same for host and device.
    pub(crate) fn address(&self) -> u64 {
        self.0 as u64
    }

    pub(crate) fn set(&self, value: u64) {
        // SAFETY: a cell is 8 aligned bytes of a chunk that is freed only when the back end is
        // dropped, and belongs to its holder alone. The write is volatile because a device writes
        // there too.
        unsafe { std::ptr::with_exposed_provenance_mut::<u64>(self.0).write_volatile(value) }
    }

    pub(crate) fn get(&self) -> u64 {
        // SAFETY: a cell is 8 aligned bytes of a chunk that is freed only when the back end is
        // dropped. It belongs to its holder alone, which has waited for the kernel that wrote it.
        unsafe { std::ptr::with_exposed_provenance::<u64>(self.0).read_volatile() }
    }
}

#[derive(Debug, Default)]
struct Inner {
    free: Vec<Cell>,
    chunks: Vec<usize>,
}

/// All cells.
#[derive(Debug, Default)]
pub(crate) struct Cells(Mutex<Inner>);

impl Cells {
    /// Takes a cell; allocates more if all are in use.
    pub(crate) fn take(&self, context: &Context) -> Result<Cell> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = inner.free.pop() {
            return Ok(cell);
        }
        let (table, mut chunk) = (context.table(), std::ptr::null_mut());
        // SAFETY: the driver writes the address to a local that outlives the call.
        context.call("device_touch", || unsafe {
            (table.mem_host_alloc)(&raw mut chunk, CHUNK_BYTES, PORTABLE_AND_MAPPED)
        })?;
        let start = chunk.expose_provenance();
        inner.chunks.push(start);
        inner.free.extend((start + CELL_BYTES..start + CHUNK_BYTES).step_by(CELL_BYTES).map(Cell));
        Ok(Cell(start))
    }

    /// Gives a cell back that no program uses any more.
    pub(crate) fn put(&self, cell: Cell) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).free.push(cell);
    }

    /// Frees all cells; none may be in use.
    pub(crate) fn free(&mut self, context: &Context) {
        let inner = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        let table = context.table();
        for chunk in inner.chunks {
            let chunk = std::ptr::with_exposed_provenance_mut(chunk);
            // SAFETY: `take` allocated the chunk, and the list that held it is gone, so it is freed
            // once. Only the drop of the back end calls this, and every launch was waited for, so
            // no kernel uses it.
            _ = context.number("free", || unsafe { (table.mem_free_host)(chunk) });
        }
    }
}
