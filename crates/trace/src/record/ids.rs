//! The ids of a trace, by address and handle.

use std::collections::{BTreeMap, BTreeSet};

use pagewise_hal::{
    BLOCK_BYTES, DevicePtr, ExportedPointer, IpcMemHandle, PAGE_BYTES, PoolHandle, ShareableHandle,
    Span,
};

use crate::format::{MAX_ID, Op, Part};

/// The id of memory that no buffer of the case owns: its offset is the address.
const NO_BUFFER: u32 = MAX_ID;

/// Whether an operation names, by its address, memory that no buffer of the case owns. If it
/// succeeded, the memory is another owner's, which a replay does not have.
pub(super) fn is_about_unknown_memory(op: &Op) -> bool {
    let unknown = |part: &Part| part.buf == NO_BUFFER && part.offset != 0 && part.bytes != 0;
    match op {
        Op::Advise { part, .. }
        | Op::Prefetch { part, .. }
        | Op::HostTouch { part, .. }
        | Op::DeviceTouch { part, .. }
        | Op::StreamAttach { part, .. }
        | Op::RangeAttributes { part, .. } => unknown(part),
        Op::PrefetchBatch(batch) | Op::DiscardPrefetchBatch(batch) => {
            batch.ranges.iter().any(unknown)
        }
        Op::DiscardBatch { ranges, .. } => ranges.iter().any(unknown),
        Op::KernelAccesses { walks, .. } => {
            walks.iter().flat_map(|walk| &walk.ranges).any(|(part, _)| unknown(part))
        }
        Op::Launch(launch) => launch.ranges.iter().any(unknown),
        Op::PointerAttributes { buf, offset }
        | Op::PoolExportPointer { buf, offset, .. }
        | Op::IpcMemHandle { buf, offset, .. } => *buf == NO_BUFFER && *offset != 0,
        _ => false,
    }
}

/// The result of a call that gave something for other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GivenValue {
    Pool(ShareableHandle),
    Pointer(ExportedPointer),
    Memory(IpcMemHandle),
}

impl GivenValue {
    /// Whether it is a value that no call gives.
    fn is_none(&self) -> bool {
        match self {
            Self::Pool(handle) => handle.0 < 0,
            Self::Pointer(blob) => blob.0.iter().all(|byte| *byte == 0),
            Self::Memory(blob) => blob.0.iter().all(|byte| *byte == 0),
        }
    }
}

/// How a recorder knows host memory that a call registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostMemory {
    /// Under an id, or as no memory at all.
    Known,
    /// The pages have no id yet, and are to get one.
    New(Span),
    /// Pages of it have an id and are registered, others have none: a trace cannot express that.
    InPart,
}

/// The buffers and pools of a case. Ids count up and are never used again.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// Live buffers by address.
    live: BTreeMap<u64, (u32, u64)>,
    /// Buffers that were freed, by address: the latest at each.
    freed: BTreeMap<u64, (u32, u64)>,
    /// The process's own memory, whole pages, by address.
    host: BTreeMap<u64, (u32, u64)>,
    /// First bytes of what is registered.
    registered: BTreeSet<u64>,
    /// Imported and opened memory by address, which may be that of a live buffer.
    imports: BTreeMap<u64, u32>,
    pools: Vec<(u32, PoolHandle)>,
    /// The latest last: a descriptor comes again once it was closed.
    shares: Vec<(u32, GivenValue)>,
    next_buffer: u32,
    next_pool: u32,
    next_share: u32,
}

impl Ids {
    /// An id for a buffer that is about to be allocated.
    pub(super) fn next_buffer(&mut self) -> u32 {
        let id = self.next_buffer;
        self.next_buffer = self.next_buffer.saturating_add(1);
        id
    }

    /// Notes an allocation. The null address, which 0 bytes of a pool give, is no buffer.
    pub(super) fn allocated(&mut self, id: u32, span: Span) {
        if !span.ptr.is_null() {
            self.live.insert(span.ptr.0, (id, span.bytes));
            // Memory of the process that was there is gone.
            self.host.retain(|&start, &mut (_, bytes)| {
                !overlap(Span::new(DevicePtr(start), bytes), span)
            });
        }
    }

    /// The buffer that starts at an address; for the null address the id of no buffer. `None` for
    /// an address inside a buffer or one that was freed: a trace cannot express freeing that.
    pub(super) fn starting_at(&self, ptr: DevicePtr) -> Option<u32> {
        match ptr.is_null() {
            true => Some(NO_BUFFER),
            false => self.live.get(&ptr.0).map(|&(id, _)| id),
        }
    }

    /// Notes that a buffer was freed. An import of it that was not freed before ends with it.
    pub(super) fn forget(&mut self, ptr: DevicePtr) {
        if let Some(buffer) = self.live.remove(&ptr.0) {
            self.freed.insert(ptr.0, buffer);
        }
        self.imports.remove(&ptr.0);
    }

    /// Live buffers by id.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (u32, Span)> {
        self.live.iter().map(|(&address, &(id, bytes))| (id, Span::new(DevicePtr(address), bytes)))
    }

    /// Whether nothing of the case lives: no memory, no pool, nothing for other processes.
    pub(super) fn is_quiet(&self) -> bool {
        self.live.is_empty()
            && self.host.is_empty()
            && self.imports.is_empty()
            && self.pools.is_empty()
            && self.shares.is_empty()
    }

    /// Whether the range lies within one live buffer, or within known memory of the process.
    pub(super) fn is_within_buffer(&self, span: Span) -> bool {
        [&self.live, &self.host].into_iter().any(|buffers| {
            let below = buffers.range(..=span.ptr.0).next_back();
            let end = span.end();
            below.is_some_and(|(&start, &(_, bytes))| {
                end.is_some_and(|end| end.saturating_sub(start) <= bytes)
            })
        })
    }

    /// A range by the buffer that it starts in, or the memory of the process; else by one that was
    /// freed there; else by the live one that ends less than a block below; else by its address.
    pub(super) fn part(&self, span: Span) -> Part {
        let address = span.ptr.0;
        let below = |buffers: &BTreeMap<u64, (u32, u64)>, slack: u64| {
            let (&start, &(id, bytes)) = buffers.range(..=address).next_back()?;
            let offset = address.saturating_sub(start);
            (offset < bytes.saturating_add(slack)).then_some((id, offset))
        };
        let found = below(&self.live, 0)
            .or_else(|| below(&self.host, 0))
            .or_else(|| below(&self.freed, 0))
            .or_else(|| below(&self.live, BLOCK_BYTES));
        let (buf, offset) = found.unwrap_or((NO_BUFFER, address));
        Part { buf, offset, bytes: span.bytes }
    }

    // ---- memory of the process, and of other processes ----------------------------------------

    /// The data of host memory that is about to be registered. Forgets what was there before,
    /// if nothing of it is registered.
    pub(super) fn host_memory(&mut self, span: Span) -> HostMemory {
        let nothing = span.ptr.is_null() || span.bytes == 0 || span.end().is_none();
        if nothing || self.is_within_buffer(span) {
            return HostMemory::Known;
        }
        let pages = span.pages_outward();
        let start = pages.start.saturating_mul(PAGE_BYTES);
        let bytes = pages.end.saturating_mul(PAGE_BYTES).saturating_sub(start);
        let whole = Span::new(DevicePtr(start), bytes);
        let there = |(&start, &(_, bytes)): (&u64, &(u32, u64))| {
            overlap(Span::new(DevicePtr(start), bytes), whole)
        };
        let is_registered = |start: &u64| {
            let known = self.host.get(start).map_or(0, |&(_, bytes)| bytes);
            self.registered.range(*start..start.saturating_add(known)).next().is_some()
        };
        let others: Vec<u64> =
            self.host.iter().filter(|entry| there(*entry)).map(|(&start, _)| start).collect();
        if self.live.iter().any(there) || others.iter().any(is_registered) {
            return HostMemory::InPart;
        }
        others.iter().for_each(|start| _ = self.host.remove(start));
        HostMemory::New(whole)
    }

    /// Notes memory of the process.
    pub(super) fn host_found(&mut self, id: u32, span: Span) {
        self.host.insert(span.ptr.0, (id, span.bytes));
    }

    pub(super) fn registered(&mut self, ptr: DevicePtr) {
        self.registered.insert(ptr.0);
    }

    /// Whether the case had registered it.
    pub(super) fn unregistered(&mut self, ptr: DevicePtr) -> bool {
        self.registered.remove(&ptr.0)
    }

    /// Notes memory that was imported or opened.
    pub(super) fn imported(&mut self, id: u32, ptr: DevicePtr) {
        self.imports.insert(ptr.0, id);
    }

    /// The import at an address. It is freed or closed before what it is of.
    pub(super) fn import_at(&self, ptr: DevicePtr) -> Option<u32> {
        self.imports.get(&ptr.0).copied()
    }

    pub(super) fn forget_import(&mut self, ptr: DevicePtr) {
        self.imports.remove(&ptr.0);
    }

    /// An id for what a call is about to give for other processes.
    pub(super) fn next_share(&mut self) -> u32 {
        let id = self.next_share;
        self.next_share = self.next_share.saturating_add(1);
        id
    }

    pub(super) fn shared(&mut self, id: u32, share: GivenValue) {
        self.shares.retain(|(_, other)| *other != share);
        self.shares.push((id, share));
    }

    /// The id of what came from somewhere; for what no call gives the id of nothing. `None` if it
    /// is not of this case.
    pub(super) fn share(&self, share: GivenValue) -> Option<u32> {
        if share.is_none() {
            return Some(MAX_ID);
        }
        self.shares.iter().find(|(_, other)| *other == share).map(|&(id, _)| id)
    }

    // ---- pools --------------------------------------------------------------------------------

    pub(super) fn next_pool(&mut self) -> u32 {
        let id = self.next_pool;
        self.next_pool = self.next_pool.saturating_add(1);
        id
    }

    /// Notes a pool under a new id, and gives the ids that it is known by already.
    pub(super) fn pool_found(&mut self, id: u32, handle: PoolHandle) -> Vec<u32> {
        let alike = self.pools.iter().filter(|(_, other)| *other == handle);
        let same_as = alike.map(|&(id, _)| id).collect();
        self.pools.push((id, handle));
        same_as
    }

    /// The latest id of a pool; for the null handle the id of no pool. `None` for one that the case
    /// does not know.
    pub(super) fn pool(&self, handle: PoolHandle) -> Option<u32> {
        if handle == PoolHandle::NULL {
            return Some(MAX_ID);
        }
        let latest = self.pools.iter().rev().find(|(_, other)| *other == handle);
        latest.map(|&(id, _)| id)
    }

    pub(super) fn forget_pool(&mut self, handle: PoolHandle) {
        self.pools.retain(|&(_, other)| other != handle);
    }
}

fn overlap(one: Span, other: Span) -> bool {
    let end = |span: Span| span.end().unwrap_or(u64::MAX);
    one.ptr.0 < end(other) && other.ptr.0 < end(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(address: u64, bytes: u64) -> Span {
        Span::new(DevicePtr(address), bytes)
    }

    #[test]
    fn a_range_is_named_after_the_buffer_that_it_starts_in() {
        let mut ids = Ids::default();
        for (address, bytes) in [(0x100_0000, 4096), (0x200_0000, 8192)] {
            let id = ids.next_buffer();
            ids.allocated(id, span(address, bytes));
        }
        let part = |address, bytes| {
            let part = ids.part(span(address, bytes));
            (part.buf, part.offset, part.bytes)
        };
        assert_eq!(part(0x100_0000, 1), (0, 0, 1));
        assert_eq!(part(0x200_0fff, 9000), (1, 0xfff, 9000), "past the end");
        assert_eq!(part(0x100_2000, 1), (0, 0x2000, 1), "behind it");
        assert_eq!(part(0x180_0000, 1), (NO_BUFFER, 0x180_0000, 1));
        assert_eq!(part(0, 7), (NO_BUFFER, 0, 7));
        assert!(ids.is_within_buffer(span(0x200_0000, 8192)));
        assert!(!ids.is_within_buffer(span(0x200_0000, 8193)));
        assert!(!ids.is_within_buffer(span(0x100_2000, 1)));
    }

    #[test]
    fn an_import_ends_with_the_memory_that_it_is_of() {
        let mut ids = Ids::default();
        let [exporter, import, next] = [(); 3].map(|()| ids.next_buffer());
        let start = DevicePtr(0x100_0000);
        ids.allocated(exporter, span(start.0, 4096));
        ids.imported(import, start);
        ids.forget(start);
        ids.allocated(next, span(start.0, 4096));
        assert_eq!((ids.import_at(start), ids.starting_at(start)), (None, Some(next)));
    }

    #[test]
    fn memory_of_the_process_is_known_by_its_pages_from_its_first_registration_on() {
        let mut ids = Ids::default();
        let pages = span(0x100_0000, 0x2000);
        assert_eq!(ids.host_memory(span(0x100_0010, 0x1800)), HostMemory::New(pages));
        ids.host_found(0, pages);
        ids.registered(DevicePtr(0x100_0010));
        assert_eq!(
            ids.part(span(0x100_0010, 0x1800)),
            Part { buf: 0, offset: 0x10, bytes: 0x1800 }
        );
        assert_eq!(ids.host_memory(span(0x100_1f00, 0x10)), HostMemory::Known);
        assert_eq!(ids.host_memory(span(0x100_1f00, 0x1000)), HostMemory::InPart);
        assert!(ids.unregistered(DevicePtr(0x100_0010)));
        let larger = span(0x100_1000, 0x2000);
        assert_eq!(ids.host_memory(span(0x100_1f00, 0x1000)), HostMemory::New(larger));
        assert_eq!(ids.part(span(0x100_0010, 1)).buf, NO_BUFFER, "what was there is forgotten");
        for nothing in [span(0, 7), span(0x100_0000, 0), span(u64::MAX, 7)] {
            assert_eq!(ids.host_memory(nothing), HostMemory::Known);
        }
    }

    #[test]
    fn a_buffer_that_was_freed_keeps_its_id_until_another_lives_there() {
        let mut ids = Ids::default();
        let first = ids.next_buffer();
        ids.allocated(first, span(0x100_0000, 8192));
        ids.forget(DevicePtr(0x100_0000));
        assert_eq!(ids.part(span(0x100_1000, 1)).buf, first);
        assert_eq!(ids.starting_at(DevicePtr(0x100_0000)), None, "a second free");
        let second = ids.next_buffer();
        ids.allocated(second, span(0x100_0000, 4096));
        assert_eq!(ids.part(span(0x100_0000, 1)).buf, second);
        assert_eq!(ids.part(span(0x100_1000, 1)).buf, first, "behind the new one");
        assert_eq!(ids.starting_at(DevicePtr(0x100_0000)), Some(second));
        assert_eq!(ids.starting_at(DevicePtr(0x100_0001)), None, "inside");
        assert_eq!(ids.starting_at(DevicePtr::NULL), Some(NO_BUFFER));
        assert_eq!(ids.buffers().collect::<Vec<_>>(), [(second, span(0x100_0000, 4096))]);
    }
}
