//! Reserved addresses, physical memory, and the mappings that join them.
//!
//! The module owns the addresses that calls reserve, the physical memory that calls create, and the
//! access of processors to what is mapped. It knows no location and no refusal: `virtual_memory`
//! has the calls.
//!
//! The bytes of physical memory lie at its latest mapping, so that the host can reach them there.
//! Its other mappings are redirected to that one, and memory that is mapped nowhere keeps its bytes
//! aside. Memory that was exported or imported has its bytes in a shared file, and all mappings have
//! that.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use pagewise_hal::{
    AccessFlags, BLOCK_BYTES, DeviceId, DevicePtr, MemoryProps, PAGE_BYTES, Processor, Span,
};

use crate::arena::{Arena, Kept, Zone};
use crate::floor::at_or_before;
use crate::locate::processor_of;
use crate::shared_memory::SharedFile;
use crate::shared_words::MEMORY_AT;
use crate::slots::Slots;

/// The address space that is reserved at once: more than most devices have.
const SEGMENT_BYTES: u64 = 256 << 30;

/// Physical memory.
#[derive(Debug, Clone)]
pub(crate) struct Physical {
    pub(crate) bytes: u64,
    pub(crate) props: MemoryProps,
    /// The processor that has the memory.
    pub(crate) home: Processor,
    /// How often the program has yet to release the handle.
    references: u64,
    /// Where it is mapped, the latest last: that one has the bytes.
    mapped_at: Vec<u64>,
    kept: Contents,
    /// The file that has the bytes, of memory that was exported or imported.
    pub(crate) file: Option<Arc<SharedFile>>,
    /// Whether another process, or another handle, counts the memory as used.
    is_imported: bool,
}

/// The bytes of memory that is mapped nowhere. Not part of the state of a machine, as all contents.
#[derive(Clone, Default)]
struct Contents(Kept);

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contents")
    }
}

/// Physical memory at an address.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) memory: u64,
    pub(crate) bytes: u64,
    /// Processors that are not here have no access.
    access: BTreeMap<Processor, AccessFlags>,
}

/// The virtual memory management of a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mappings {
    slots: Slots,
    /// Reserved ranges: first address to bytes.
    reserved: BTreeMap<u64, u64>,
    /// By handle.
    physical: BTreeMap<u64, Physical>,
    /// By address.
    mapped: BTreeMap<u64, Mapping>,
    last_handle: u64,
}

impl Mappings {
    // ---- addresses ----------------------------------------------------------------------------

    /// Reserves a range, a multiple of 2 MiB long, that starts at a multiple of `align`, at `hint`
    /// if it is free there.
    pub(crate) fn reserve(
        &mut self,
        arena: &mut Arena,
        bytes: u64,
        align: u64,
        hint: u64,
    ) -> Option<u64> {
        let align = align.max(BLOCK_BYTES);
        let at_hint = hint != 0 && hint.is_multiple_of(align) && self.slots.take_at(hint, bytes);
        let start = if at_hint { hint } else { self.take_aligned(arena, bytes, align)? };
        self.reserved.insert(start, bytes);
        Some(start)
    }

    fn take_aligned(&mut self, arena: &mut Arena, bytes: u64, align: u64) -> Option<u64> {
        let with_slack = bytes.checked_add(align - BLOCK_BYTES)?;
        let first = self.slots.take(with_slack).or_else(|| {
            self.slots.add(arena.grow(Zone::Virtual, SEGMENT_BYTES, with_slack)?);
            self.slots.take(with_slack)
        })?;
        let start = first.next_multiple_of(align);
        let (before, after) = (start - first, first + with_slack - (start + bytes));
        if before > 0 {
            self.slots.give(first, before);
        }
        if after > 0 {
            self.slots.give(start + bytes, after);
        }
        Some(start)
    }

    /// Gives a reserved range back. `false` unless it is one whole reservation without mappings.
    pub(crate) fn unreserve(&mut self, span: Span) -> bool {
        let Range { start, end } = addresses(span);
        if self.reserved.get(&start) != Some(&span.bytes)
            || self.mapped.range(start..end).next().is_some()
        {
            return false;
        }
        self.reserved.remove(&start);
        self.slots.give(start, span.bytes);
        true
    }

    /// The reservation that holds all of a range.
    pub(crate) fn reservation_of(&self, span: Span) -> Option<Span> {
        let (first, &bytes) = at_or_before(&self.reserved, span.ptr.0)?;
        (span.end()? <= first + bytes).then_some(Span::new(DevicePtr(first), bytes))
    }

    /// Whether the range lies in one reservation and has no memory yet.
    pub(crate) fn is_vacant(&self, span: Span) -> bool {
        let Range { start, end } = addresses(span);
        self.reservation_of(span).is_some()
            && self.mapped.range(..end).next_back().is_none_or(|(at, map)| at + map.bytes <= start)
    }

    // ---- physical memory ----------------------------------------------------------------------

    /// Makes physical memory.
    pub(crate) fn create(&mut self, bytes: u64, props: MemoryProps, home: Processor) -> u64 {
        self.insert(bytes, props, home, None)
    }

    /// Notes physical memory that was exported: its bytes are in a file.
    pub(crate) fn import(
        &mut self,
        bytes: u64,
        props: MemoryProps,
        home: Processor,
        file: SharedFile,
    ) -> u64 {
        self.insert(bytes, props, home, Some(file))
    }

    fn insert(
        &mut self,
        bytes: u64,
        props: MemoryProps,
        home: Processor,
        file: Option<SharedFile>,
    ) -> u64 {
        self.last_handle += 1;
        let (mapped_at, kept, is_imported) = (Vec::new(), Contents::default(), file.is_some());
        let file = file.map(Arc::new);
        let memory =
            Physical { bytes, props, home, references: 1, mapped_at, kept, file, is_imported };
        self.physical.insert(self.last_handle, memory);
        self.last_handle
    }

    /// Moves the bytes of physical memory into a file that has room for them.
    ///
    /// # Errors
    /// If the host has no memory or no mapping left; nothing has changed then.
    pub(crate) fn export(
        &mut self,
        arena: &mut Arena,
        handle: u64,
        file: SharedFile,
    ) -> io::Result<()> {
        let Some(memory) = self.physical.get_mut(&handle) else { return Ok(()) };
        for (page, bytes) in &memory.kept.0 {
            file.write(MEMORY_AT + page * PAGE_BYTES, &bytes.bytes())?;
        }
        let bytes = memory.bytes;
        if let Some((&holder, others)) = memory.mapped_at.split_last() {
            let range = |start: u64| start..start + bytes;
            arena.copy_to_file(&range(holder), &file, MEMORY_AT)?;
            let shared = memory.mapped_at.iter();
            let failed = shared
                .map(|&at| arena.share(&range(at), &file, MEMORY_AT))
                .position(|done| done.is_err());
            if let Some(done) = failed {
                // The holder is the last, and has its bytes still.
                others.iter().take(done).for_each(|&other| arena.reclaim(&range(other)));
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            others.iter().for_each(|&other| arena.direct(other));
        }
        memory.kept = Contents::default();
        memory.file = Some(Arc::new(file));
        Ok(())
    }

    /// Memory with a handle that the program still has.
    pub(crate) fn held(&self, handle: u64) -> Option<&Physical> {
        self.physical.get(&handle).filter(|memory| memory.references > 0)
    }

    /// Memory that is mapped or that the program has the handle of.
    pub(crate) fn physical(&self, handle: u64) -> Option<&Physical> {
        self.physical.get(&handle)
    }

    /// The processor that has some physical memory.
    pub(crate) fn home_of(&self, handle: u64) -> Processor {
        self.physical(handle).map_or(Processor::HOST, |memory| memory.home)
    }

    /// The program gets the handle of memory once more, and has to release it once more.
    pub(crate) fn retain(&mut self, handle: u64) {
        if let Some(memory) = self.physical.get_mut(&handle) {
            memory.references = memory.references.saturating_add(1);
        }
    }

    /// The program gives the handle back, which it may have got more than once.
    pub(crate) fn release(&mut self, handle: u64) {
        if let Some(memory) = self.physical.get_mut(&handle) {
            memory.references = memory.references.saturating_sub(1);
            self.forget_if_unused(handle);
        }
    }

    fn forget_if_unused(&mut self, handle: u64) {
        let is_unused = |memory: &Physical| memory.references == 0 && memory.mapped_at.is_empty();
        if self.physical.get(&handle).is_some_and(is_unused) {
            self.physical.remove(&handle);
        }
    }

    /// Bytes of physical memory on a device.
    pub(crate) fn bytes_on(&self, device: DeviceId) -> u64 {
        let home = processor_of(device);
        let counts = |memory: &&Physical| memory.home == home && !memory.is_imported;
        let there = self.physical.values().filter(counts);
        there.map(|memory| memory.bytes).sum()
    }

    // ---- mappings -----------------------------------------------------------------------------

    /// Maps memory at a vacant range of its length.
    ///
    /// # Errors
    /// If the memory is in a file and the host has no mapping left; nothing has changed then.
    pub(crate) fn map(&mut self, arena: &mut Arena, start: u64, handle: u64) -> io::Result<()> {
        let Some(memory) = self.physical.get_mut(&handle) else { return Ok(()) };
        let bytes = memory.bytes;
        match &memory.file {
            Some(file) => arena.share(&(start..start + bytes), file, MEMORY_AT)?,
            None => memory.give_bytes_to(arena, start),
        }
        memory.mapped_at.push(start);
        let access = BTreeMap::new();
        self.mapped.insert(start, Mapping { memory: handle, bytes, access });
        Ok(())
    }

    /// Takes memory away from an address at which it is mapped.
    pub(crate) fn unmap(&mut self, arena: &mut Arena, start: u64) {
        let Some(Mapping { memory: handle, bytes, .. }) = self.mapped.remove(&start) else {
            return;
        };
        let Some(memory) = self.physical.get_mut(&handle) else { return };
        let held_bytes = memory.mapped_at.last() == Some(&start);
        memory.mapped_at.retain(|&at| at != start);
        match (&memory.file, held_bytes) {
            (Some(_), _) => arena.reclaim(&(start..start + bytes)),
            (None, true) => memory.take_bytes_from(arena, start),
            (None, false) => arena.direct(start),
        }
        self.forget_if_unused(handle);
    }

    /// The first addresses of the mappings that a range is made of; `None` unless it is made of one
    /// or more whole ones without a gap.
    pub(crate) fn whole(&self, span: Span) -> Option<Vec<u64>> {
        let Range { start, end } = addresses(span);
        let mut next = start;
        let mut found = Vec::new();
        while next < end {
            found.push(next);
            next += self.mapped.get(&next)?.bytes;
        }
        (next == end && start < end).then_some(found)
    }

    /// The first addresses of the mappings in a part of one reservation; `None` if the range is not
    /// such a part, is empty, or holds a mapping in part.
    pub(crate) fn uncut(&self, span: Span) -> Option<Vec<u64>> {
        let Range { start, end } = addresses(span);
        self.reservation_of(span).filter(|_| start < end)?;
        let ends_before = |at: u64, mapping: &Mapping| at + mapping.bytes <= start;
        let mut found: Vec<u64> = Vec::new();
        for (&at, mapping) in self.mapped.range(..end).rev() {
            if ends_before(at, mapping) {
                break;
            }
            if at < start || end < at + mapping.bytes {
                return None;
            }
            found.push(at);
        }
        Some(found)
    }

    /// The mapping that holds an address.
    pub(crate) fn at(&self, address: u64) -> Option<&Mapping> {
        let (start, mapping) = at_or_before(&self.mapped, address)?;
        (address - start < mapping.bytes).then_some(mapping)
    }

    /// Sets the access of a processor to the mapping that starts at an address.
    pub(crate) fn set_access(&mut self, start: u64, by: Processor, access: AccessFlags) {
        if let Some(mapping) = self.mapped.get_mut(&start) {
            if access == AccessFlags::NONE {
                mapping.access.remove(&by);
            } else {
                mapping.access.insert(by, access);
            }
        }
    }

    /// Whether a processor may access all mappings that a range of mapped addresses touches.
    pub(crate) fn admits(&self, by: Processor, span: Span, writes: bool) -> bool {
        let Range { start, end } = addresses(span);
        let first = at_or_before(&self.mapped, start).map_or(start, |(first, _)| first);
        let mut touched = self.mapped.range(first..end.max(start + 1));
        touched.all(|(_, mapping)| match mapping.access(by) {
            AccessFlags::READ_WRITE => true,
            AccessFlags::READ => !writes,
            _ => false,
        })
    }
}

impl Physical {
    /// The bytes go to a mapping that becomes the latest.
    fn give_bytes_to(&mut self, arena: &mut Arena, start: u64) {
        let bytes = self.bytes;
        let kept = match self.mapped_at.last() {
            Some(&holder) => arena.take_contents(holder, bytes),
            None => std::mem::take(&mut self.kept.0),
        };
        arena.put_contents(start, kept);
        self.mapped_at.iter().for_each(|&other| arena.redirect(other, bytes, start));
    }

    /// The bytes leave the latest mapping, which is gone, for the one before.
    fn take_bytes_from(&mut self, arena: &mut Arena, start: u64) {
        let bytes = self.bytes;
        let kept = arena.take_contents(start, bytes);
        match self.mapped_at.split_last() {
            Some((&holder, others)) => {
                arena.direct(holder);
                arena.put_contents(holder, kept);
                others.iter().for_each(|&other| arena.redirect(other, bytes, holder));
            }
            None => self.kept.0 = kept,
        }
    }
}

impl Mapping {
    /// The access that a processor has.
    pub(crate) fn access(&self, by: Processor) -> AccessFlags {
        self.access.get(&by).copied().unwrap_or(AccessFlags::NONE)
    }
}

/// The addresses of a range; none for one that passes the end of the address space.
fn addresses(span: Span) -> Range<u64> {
    span.ptr.0..span.end().unwrap_or(span.ptr.0)
}
