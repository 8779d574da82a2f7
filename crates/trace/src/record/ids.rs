//! From addresses and handles to the ids of a trace.

use std::collections::BTreeMap;

use pagewise_hal::{BLOCK_BYTES, DevicePtr, PoolHandle, Span};

use crate::format::{MAX_ID, Part};

/// The id of memory that no buffer of the case owns: its offset is the address.
const NO_BUFFER: u32 = MAX_ID;

/// The buffers and pools of a case. Ids count up and are never used again.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// Live buffers by address.
    live: BTreeMap<u64, (u32, u64)>,
    /// Buffers that were freed, by address: the latest at each.
    freed: BTreeMap<u64, (u32, u64)>,
    pools: Vec<(u32, PoolHandle)>,
    next_buffer: u32,
    next_pool: u32,
}

impl Ids {
    /// An id for a buffer that is about to be allocated.
    pub(super) fn next_buffer(&mut self) -> u32 {
        let id = self.next_buffer;
        self.next_buffer += 1;
        id
    }

    /// Notes an allocation. The null address, which 0 bytes of a pool give, is no buffer.
    pub(super) fn allocated(&mut self, id: u32, span: Span) {
        if !span.ptr.is_null() {
            self.live.insert(span.ptr.0, (id, span.bytes));
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

    pub(super) fn forget(&mut self, ptr: DevicePtr) {
        if let Some(buffer) = self.live.remove(&ptr.0) {
            self.freed.insert(ptr.0, buffer);
        }
    }

    /// Live buffers by id.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (u32, Span)> {
        self.live.iter().map(|(&address, &(id, bytes))| (id, Span::new(DevicePtr(address), bytes)))
    }

    /// Whether the range lies within one live buffer.
    pub(super) fn is_within_buffer(&self, span: Span) -> bool {
        let below = self.live.range(..=span.ptr.0).next_back();
        below
            .is_some_and(|(&start, &(_, bytes))| span.end().is_some_and(|end| end - start <= bytes))
    }

    /// A range by the buffer that it starts in; else by one that was freed there; else by the live
    /// one that ends less than a block below; else by its address.
    pub(super) fn part(&self, span: Span) -> Part {
        let address = span.ptr.0;
        let below = |buffers: &BTreeMap<u64, (u32, u64)>, slack: u64| {
            let (&start, &(id, bytes)) = buffers.range(..=address).next_back()?;
            let offset = address - start;
            (offset < bytes.saturating_add(slack)).then_some((id, offset))
        };
        let found = below(&self.live, 0)
            .or_else(|| below(&self.freed, 0))
            .or_else(|| below(&self.live, BLOCK_BYTES));
        let (buf, offset) = found.unwrap_or((NO_BUFFER, address));
        Part { buf, offset, bytes: span.bytes }
    }

    // ---- pools --------------------------------------------------------------------------------

    pub(super) fn next_pool(&mut self) -> u32 {
        let id = self.next_pool;
        self.next_pool += 1;
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
