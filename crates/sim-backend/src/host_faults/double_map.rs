//! Shared memory with two views: the program's, and the engine's.
//!
//! A child of the process has neither: memory of a driver is of no use in a child.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::gate::Gate;
use super::sys::{self, PageAdvice};

/// A stretch of memory in two views.
#[derive(Debug)]
pub(crate) struct DoubleMap {
    gate: Arc<Gate>,
    memory: OwnedFd,
    bytes: usize,
    program: usize,
    engine: usize,
    /// The reservation around the program's view: first address and bytes.
    reserved: (usize, usize),
}

impl DoubleMap {
    /// Maps memory, the program's view at a multiple of `align` with as much reserved room on both
    /// sides. No page of it is accessible yet.
    pub(crate) fn new(gate: &Arc<Gate>, bytes: u64, align: u64) -> io::Result<Self> {
        let as_length = |bytes: u64| usize::try_from(bytes).map_err(io::Error::other);
        let memory = sys::shared_memory(bytes)?;
        let with_guards = as_length(bytes.saturating_add(align.saturating_mul(2)))?;
        let length = as_length(bytes)?;
        let first = sys::reserve(with_guards)?;
        let program = (first as u64).saturating_add(1).next_multiple_of(align) as usize;
        // An incomplete one gives back what it has.
        let mut map = Self {
            gate: gate.clone(),
            memory,
            bytes: length,
            program,
            engine: 0,
            reserved: (first, with_guards),
        };
        // SAFETY: the range lies in the reservation that was just made, which no code uses.
        unsafe {
            sys::map_at(program, (map.memory.as_fd(), 0), length, gate.protection_at_first())?;
        }
        map.engine = sys::map(&map.memory, length)?;
        for view in [map.view(), map.engine_view()] {
            sys::advise(&view, PageAdvice::NotInChildren)?;
        }
        gate.admit(map.view())?;
        Ok(map)
    }

    /// The addresses of the program's view.
    pub(crate) fn view(&self) -> Range<u64> {
        self.program as u64..self.program.saturating_add(self.bytes) as u64
    }

    fn engine_view(&self) -> Range<u64> {
        self.engine as u64..self.engine.saturating_add(self.bytes) as u64
    }

    /// The engine's address of a byte.
    pub(crate) fn engine_address(&self, address: u64) -> u64 {
        address.wrapping_sub(self.program as u64).wrapping_add(self.engine as u64)
    }

    /// Drops the contents of whole pages, and hides them.
    pub(crate) fn clear(&self, pages: &Range<u64>) -> io::Result<()> {
        self.gate.hide(pages);
        let bytes = pages.end.saturating_sub(pages.start);
        sys::punch_hole(&self.memory, pages.start.wrapping_sub(self.program as u64), bytes)
    }

    /// Puts other shared memory, from an offset on, at whole pages of both views, and hides them.
    pub(crate) fn share(
        &self,
        pages: &Range<u64>,
        memory: BorrowedFd<'_>,
        offset: u64,
    ) -> io::Result<()> {
        self.gate.hide(pages);
        let length = pages.end.saturating_sub(pages.start) as usize;
        let engine = self.engine_address(pages.start) as usize;
        let (program, from) = (pages.start as usize, (memory, offset));
        // SAFETY: both ranges are parts of the views, which are this value's. The program waits for
        // the service of its faults, and the engine is behind the machine's lock.
        unsafe {
            sys::map_at(engine, from, length, sys::READ_WRITE)?;
            sys::map_at(program, from, length, self.gate.protection_at_first())?;
        }
        let engine_pages = self.engine_address(pages.start)..self.engine_address(pages.end);
        for view in [pages, &engine_pages] {
            sys::advise(view, PageAdvice::NotInChildren)?;
        }
        self.gate.admit_again(pages)
    }

    /// Puts the memory of this value back at pages, as zeros.
    pub(crate) fn reclaim(&self, pages: &Range<u64>) -> io::Result<()> {
        self.clear(pages)?;
        self.share(pages, self.memory.as_fd(), pages.start.wrapping_sub(self.program as u64))
    }

    /// Has memory behind pages.
    pub(crate) fn populate(&self, pages: &Range<u64>) -> io::Result<()> {
        let here = self.engine_address(pages.start)..self.engine_address(pages.end);
        sys::advise(&here, PageAdvice::Populate)
    }
}

impl Drop for DoubleMap {
    fn drop(&mut self) {
        if self.gate.is_in_child() {
            return; // Other memory may be at these addresses.
        }
        self.gate.dismiss(&self.view());
        // SAFETY: the reservation with the program's view in it is this value's. Callers of the
        // machine's `unsafe` calls promised to use no memory after the machine is gone.
        unsafe { sys::unmap(self.reserved.0, self.reserved.1) };
        if self.engine != 0 {
            // SAFETY: the engine's view is this value's, and the arena that uses it is gone.
            unsafe { sys::unmap(self.engine, self.bytes) };
        }
    }
}
