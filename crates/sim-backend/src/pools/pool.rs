//! One memory pool: its attributes, its access, and the memory that it holds.
//!
//! It does not know which other pools there are: [`Pools`](super::Pools) decides which can be made,
//! and which addresses each gets.

use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::{AccessFlags, AllocationType, PoolAttribute, PoolProps, Processor};

use crate::cost::PoolMemory;
use crate::pool_chunks::{POOL_CHUNK_BYTES, PoolChunks};
use crate::refusal::{Checked, invalid};

/// A pool.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) props: PoolProps,
    /// The processor that has the memory (pinned) or that it prefers (managed), if any.
    pub(super) home: Option<Processor>,
    pub(super) is_default: bool,
    pub(super) destroyed: bool,
    /// Whether it belongs to another process: then it only gives imported memory.
    pub(super) imported: bool,
    /// How many allocations of another process are mapped.
    pub(super) foreign: u64,
    /// Attributes 1 to 3.
    pub(super) reuse: [bool; 3],
    pub(super) release_threshold: u64,
    pub(super) used: u64,
    pub(super) used_high: u64,
    pub(super) chunks: PoolChunks,
    /// Its addresses, from the first allocation on.
    pub(super) region: Option<Range<u64>>,
    pub(super) access: BTreeMap<Processor, AccessFlags>,
}

impl Pool {
    pub(super) fn new(props: PoolProps, home: Option<Processor>, is_default: bool) -> Self {
        Self {
            props,
            home,
            is_default,
            destroyed: false,
            imported: false,
            foreign: 0,
            reuse: [true; 3],
            release_threshold: 0,
            used: 0,
            used_high: 0,
            chunks: PoolChunks::default(),
            region: None,
            access: BTreeMap::new(),
        }
    }

    pub(crate) fn is_managed(&self) -> bool {
        self.props.allocation_type == AllocationType::MANAGED
    }

    /// The memory behind it, as far as calls take their time for it.
    pub(crate) fn memory(&self) -> PoolMemory {
        match (self.is_managed(), self.home) {
            (false, Some(Processor::HOST) | None) => PoolMemory::Host,
            (false, Some(_)) => PoolMemory::Device,
            (true, Some(Processor::HOST)) => PoolMemory::ManagedHost,
            (true, Some(_)) => PoolMemory::ManagedDevice,
            (true, None) => PoolMemory::ManagedAnywhere,
        }
    }

    /// Where the memory is (pinned) or prefers to be (managed), if anywhere.
    pub(crate) fn home(&self) -> Option<Processor> {
        self.home
    }

    /// Whether a processor may access the pool's memory.
    pub(crate) fn admits(&self, processor: Processor) -> bool {
        self.access_of(processor) == AccessFlags::READ_WRITE
    }

    /// Every processor that was given access.
    pub(crate) fn admitted(&self) -> impl Iterator<Item = Processor> {
        let given = self.access.iter().filter(|(_, access)| **access == AccessFlags::READ_WRITE);
        given.map(|(&processor, _)| processor)
    }

    /// Its addresses, if it has any.
    pub(crate) fn region(&self) -> Option<Range<u64>> {
        self.region.clone()
    }

    /// Bytes that the pool holds.
    pub(crate) fn reserved(&self) -> u64 {
        self.chunks.reserved()
    }

    pub(super) fn limit(&self) -> u64 {
        match self.props.max_bytes {
            0 => u64::MAX,
            max => max.checked_next_multiple_of(POOL_CHUNK_BYTES).unwrap_or(u64::MAX),
        }
    }

    pub(super) fn access_of(&self, processor: Processor) -> AccessFlags {
        if let Some(&set) = self.access.get(&processor) {
            return set;
        }
        // A managed pool reports no access until some is set, not even at its own location.
        let own = !self.is_managed() && self.home() == Some(processor);
        if own { AccessFlags::READ_WRITE } else { AccessFlags::NONE }
    }

    /// The addresses of all chunks that it ever had, if it had any.
    pub(super) fn used_addresses(&self) -> Option<Range<u64>> {
        let start = self.region.as_ref()?.start;
        Some(start..start + self.chunks.held_end()).filter(|used| !used.is_empty())
    }

    /// Which of the address spaces for pools is its.
    pub(super) fn zone(&self) -> usize {
        usize::from(self.is_managed())
    }

    /// The answer of `cuMemPoolGetAttribute`. Drivers of pools that describe themselves know
    /// attributes 9 to 13.
    pub(super) fn attribute(
        &self,
        attribute: PoolAttribute,
        describes_itself: bool,
    ) -> Checked<u64> {
        Ok(match attribute {
            PoolAttribute(n @ 1..=3) => u64::from(self.reuse[n as usize - 1]),
            PoolAttribute::RELEASE_THRESHOLD => self.release_threshold,
            PoolAttribute::RESERVED_MEM_CURRENT => self.reserved(),
            PoolAttribute::RESERVED_MEM_HIGH => self.chunks.reserved_high,
            PoolAttribute::USED_MEM_CURRENT => self.used,
            PoolAttribute::USED_MEM_HIGH => self.used_high,
            PoolAttribute(9..=13) if describes_itself => self.describe(attribute),
            _ => return invalid("this driver does not know the pool attribute"),
        })
    }

    /// Sets an attribute (`cuMemPoolSetAttribute`).
    pub(super) fn set_attribute(&mut self, attribute: PoolAttribute, value: u64) -> Checked<()> {
        match (attribute, value) {
            // The driver reads an int: the low half decides (CONTRACT-84).
            (PoolAttribute(n @ 1..=3), _) => self.reuse[n as usize - 1] = value as u32 != 0,
            (PoolAttribute::RELEASE_THRESHOLD, _) => self.release_threshold = value,
            (PoolAttribute::RESERVED_MEM_HIGH, 0) => self.chunks.reset_high(),
            (PoolAttribute::USED_MEM_HIGH, 0) => self.used_high = self.used,
            (PoolAttribute::RESERVED_MEM_HIGH | PoolAttribute::USED_MEM_HIGH, _) => {
                return invalid("a high-water mark can be set to 0 only");
            }
            _ => return invalid("the pool attribute is read-only or unknown"),
        }
        Ok(())
    }

    /// Attributes 9 to 13.
    fn describe(&self, attribute: PoolAttribute) -> u64 {
        match attribute {
            PoolAttribute::ALLOCATION_TYPE => self.props.allocation_type.0 as u64,
            PoolAttribute::EXPORT_HANDLE_TYPES => u64::from(self.props.handle_types.bits()),
            PoolAttribute::LOCATION_ID => self.props.location.id as u64,
            PoolAttribute::LOCATION_TYPE => self.props.location.kind.0 as u64,
            _ if self.props.max_bytes == 0 => 0,
            _ => self.limit(),
        }
    }
}
