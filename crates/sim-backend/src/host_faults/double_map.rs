//! Memory with two views: the program's, and the engine's.
//!
//! Memory that the program may access is shared by both. The program's view of other memory, such as
//! a device's, is of shared memory that stays empty, so that its faults are refused as others are;
//! the engine has private memory, which huge pages can back.
//!
//! A child of the process has neither: memory of a driver is of no use in a child.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::gate::Gate;
use super::sys::{self, Backing, PageAdvice};

/// The sides that access a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accessed {
    /// The program and the engine.
    ByBoth,
    /// The engine alone.
    ByEngine,
}

/// A stretch of memory in two views.
#[derive(Debug)]
pub(crate) struct DoubleMap {
    gate: Arc<Gate>,
    /// The memory of the program's view, and of the engine's, if both access it.
    memory: OwnedFd,
    accessed: Accessed,
    bytes: usize,
    program: usize,
    engine: usize,
    /// The reservation around the program's view: first address and bytes.
    reserved: (usize, usize),
}

impl DoubleMap {
    /// Maps memory, the program's view at a multiple of `align` with as much reserved room on both
    /// sides. No page of it is accessible yet.
    pub(crate) fn new(
        gate: &Arc<Gate>,
        bytes: u64,
        align: u64,
        accessed: Accessed,
    ) -> io::Result<Self> {
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
            accessed,
            bytes: length,
            program,
            engine: 0,
            reserved: (first, with_guards),
        };
        // SAFETY: the range lies in the reservation that was just made, which no code uses.
        unsafe { sys::map_at(program, map.own(0), length, gate.protection_at_first())? };
        map.engine = sys::map(map.engines(0), length, sys::READ_WRITE)?;
        for view in [map.view(), map.engine_view()] {
            sys::advise(&view, PageAdvice::NotInChildren)?;
        }
        gate.admit(map.view())?;
        Ok(map)
    }

    /// The shared memory of this value, from an offset on.
    fn own(&self, offset: u64) -> Backing<'_> {
        Backing::Shared(self.memory.as_fd(), offset)
    }

    /// The memory of the engine's view, from an offset on.
    fn engines(&self, offset: u64) -> Backing<'_> {
        match self.accessed {
            Accessed::ByBoth => self.own(offset),
            Accessed::ByEngine => Backing::Private,
        }
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

    fn offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.program as u64)
    }

    fn in_engine_view(&self, pages: &Range<u64>) -> Range<u64> {
        self.engine_address(pages.start)..self.engine_address(pages.end)
    }

    /// Drops the contents of whole pages, and hides them.
    pub(crate) fn clear(&self, pages: &Range<u64>) -> io::Result<()> {
        self.gate.hide(pages);
        match self.accessed {
            Accessed::ByBoth => {
                let bytes = pages.end.saturating_sub(pages.start);
                sys::punch_hole(&self.memory, self.offset_of(pages.start), bytes)
            }
            // SAFETY: the range is a part of the engine's view, which is this value's. Callers give
            // up the contents.
            Accessed::ByEngine => unsafe { sys::drop_contents(&self.in_engine_view(pages)) },
        }
    }

    /// Puts other shared memory, from an offset on, at whole pages of both views, and hides them.
    pub(crate) fn share(
        &self,
        pages: &Range<u64>,
        memory: BorrowedFd<'_>,
        offset: u64,
    ) -> io::Result<()> {
        let other = Backing::Shared(memory, offset);
        self.put(pages, other, other)
    }

    /// Puts the memory of this value back at pages, as zeros.
    pub(crate) fn reclaim(&self, pages: &Range<u64>) -> io::Result<()> {
        self.clear(pages)?;
        let offset = self.offset_of(pages.start);
        self.put(pages, self.own(offset), self.engines(offset))
    }

    /// Puts memory at whole pages of the program's view and of the engine's, and hides them.
    fn put(
        &self,
        pages: &Range<u64>,
        programs: Backing<'_>,
        engines: Backing<'_>,
    ) -> io::Result<()> {
        self.gate.hide(pages);
        let length = pages.end.saturating_sub(pages.start) as usize;
        let engine_pages = self.in_engine_view(pages);
        let (program, engine) = (pages.start as usize, engine_pages.start as usize);
        // SAFETY: both ranges are parts of the views, which are this value's. The program waits for
        // the service of its faults, and the engine is behind the machine's lock.
        unsafe {
            sys::map_at(engine, engines, length, sys::READ_WRITE)?;
            sys::map_at(program, programs, length, self.gate.protection_at_first())?;
        }
        for view in [pages, &engine_pages] {
            sys::advise(view, PageAdvice::NotInChildren)?;
        }
        self.gate.admit_again(pages)
    }

    /// Asks for huge pages behind pages of memory that the engine alone accesses.
    pub(crate) fn prefer_huge_pages(&self, pages: &Range<u64>) {
        if self.accessed == Accessed::ByEngine {
            // Without huge pages everything works, only slower.
            let _ = sys::advise(&self.in_engine_view(pages), PageAdvice::HugePages);
        }
    }

    /// Has memory behind pages.
    pub(crate) fn populate(&self, pages: &Range<u64>) -> io::Result<()> {
        sys::advise(&self.in_engine_view(pages), PageAdvice::Populate)
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

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use pagewise_hal::PAGE_BYTES;

    use super::super::fault::Shown;
    use super::*;

    /// Two pages, of which the program sees all.
    fn shown(accessed: Accessed) -> DoubleMap {
        let gate = Arc::new(Gate::by_protection().expect("a gate"));
        let map = DoubleMap::new(&gate, 2 * PAGE_BYTES, PAGE_BYTES, accessed).expect("memory");
        map.gate.show(&map.view(), Shown::Write).expect("accessible pages");
        map
    }

    /// The bytes that the program and the engine read at an address.
    fn read(map: &DoubleMap, address: u64) -> [u8; 2] {
        map.gate.show(&map.view(), Shown::Write).expect("accessible pages");
        [address, map.engine_address(address)].map(|address| {
            let place: *const u8 = std::ptr::with_exposed_provenance(address as usize);
            // SAFETY: both views have the page, and the program's was just shown.
            unsafe { place.read_volatile() }
        })
    }

    fn write(map: &DoubleMap, address: u64, value: u8) {
        let place = map.engine_address(address) as usize;
        // SAFETY: the engine's view has the page for as long as the map lives.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(place).write_volatile(value) };
    }

    #[test]
    fn the_program_sees_writes_of_the_engine_only_in_memory_that_both_access() {
        for (accessed, seen) in [(Accessed::ByBoth, 7), (Accessed::ByEngine, 0)] {
            let map = shown(accessed);
            let second = map.view().start + PAGE_BYTES;
            map.prefer_huge_pages(&map.view());
            write(&map, second, 7);
            assert_eq!(read(&map, second), [seen, 7], "{accessed:?}");
            map.clear(&(second..second + PAGE_BYTES)).expect("empty pages");
            assert_eq!(read(&map, second), [0, 0], "{accessed:?}");
        }
    }

    #[test]
    fn a_page_that_was_shared_and_is_taken_back_is_empty_and_as_it_was_before() {
        for (accessed, seen) in [(Accessed::ByBoth, 7), (Accessed::ByEngine, 0)] {
            let map = shown(accessed);
            let (first, second) = (map.view().start, map.view().start + PAGE_BYTES);
            let pages = second..second + PAGE_BYTES;
            write(&map, first, 5);
            write(&map, second, 6);
            let other = sys::shared_memory(PAGE_BYTES).expect("a file");
            map.share(&pages, other.as_fd(), 0).expect("a mapping");
            assert_eq!(read(&map, second), [0, 0], "{accessed:?}");
            write(&map, second, 9);
            assert_eq!(read(&map, second), [9, 9], "{accessed:?}");
            map.reclaim(&pages).expect("a mapping");
            assert_eq!(read(&map, second), [0, 0], "{accessed:?}");
            write(&map, second, 7);
            assert_eq!(read(&map, second), [seen, 7], "{accessed:?}");
            assert_eq!(read(&map, first)[1], 5, "{accessed:?}");
        }
    }
}
