//! Surveys of pages and blocks, for the cost model. They change only the note of the pages that the
//! host wrote.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "accesses and pages of live memory are counted; a page lies in its block"
)]

use std::ops::Range;

use pagewise_hal::PAGE_BYTES;

use super::access::Access;
use super::block::Block;
use super::engine::Paging;
use super::mask::PageMask;
use super::presence::Presence;
use super::processor::{ProcId, ProcSet};
use super::protection::Protection;
use super::walk::Walk;

/// The pages that a walk went over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Covered {
    /// Pages with an access.
    pub(crate) pages: u64,
    /// Pages that the walking device accesses in memory of another processor.
    pub(crate) remote_pages: u64,
    /// Pages that the host writes for the first time since it mapped them.
    pub(crate) first_written: u64,
    /// Pages that the host writes and has written before since it mapped them.
    pub(crate) written_before: u64,
}

impl Covered {
    /// For an access of a device to one page of a block, of which it has this.
    #[inline(always)]
    pub(super) fn of_device(by: Option<&Presence>, block: &Block, page: usize) -> Self {
        let is_here = by.is_some_and(|presence| presence.holds(page));
        let is_elsewhere = !is_here && block.residents_of(page) != ProcSet::EMPTY;
        Self { pages: 1, remote_pages: u64::from(is_elsewhere), ..Self::default() }
    }

    /// For a walk over memory that does not migrate.
    pub(crate) fn of_plain(walk: &Walk) -> Self {
        let pages = walk.accesses().min(walk.bytes.div_ceil(PAGE_BYTES));
        Self { pages, ..Self::default() }
    }
}

/// Blocks of a range that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HeldBlocks {
    /// With memory on a device.
    pub(crate) on_device: u64,
    /// Mapped by the host.
    pub(crate) mapped_by_host: u64,
    /// Mapped by a device.
    pub(crate) mapped_by_device: u64,
    /// That a device ever mapped piecemeal.
    pub(crate) with_small_tables: u64,
    /// Times that a device's mapping was raised, at most 512 a block.
    pub(crate) device_mappings: u64,
    /// Pages of host memory.
    pub(crate) host_pages: u64,
}

impl HeldBlocks {
    pub(crate) fn add(&mut self, other: &Self) {
        self.on_device += other.on_device;
        self.mapped_by_host += other.mapped_by_host;
        self.mapped_by_device += other.mapped_by_device;
        self.with_small_tables += other.with_small_tables;
        self.device_mappings += other.device_mappings;
        self.host_pages += other.host_pages;
    }

    fn note(&mut self, block: &Block, devices: u8) {
        let devices = || (1..=devices).map(ProcId);
        let maps = |id| !block.mapped(id, Protection::Read).is_empty();
        self.on_device += u64::from(devices().any(|id| !block.populated(id).is_empty()));
        self.mapped_by_host += u64::from(maps(ProcId::HOST));
        self.mapped_by_device += u64::from(devices().any(maps));
        self.with_small_tables += u64::from(block.device_tables.has_small());
        self.device_mappings += u64::from(block.device_tables.raised());
        self.host_pages += block.populated(ProcId::HOST).count() as u64;
    }
}

impl Walk {
    /// How many accesses it makes.
    #[inline]
    pub(crate) fn accesses(&self) -> u64 {
        let stride = self.stride_bytes.max(1);
        // Most walks of calls that follow each other are one access: no division.
        if self.bytes <= stride { self.bytes.min(1) } else { self.bytes.div_ceil(stride) }
    }

    /// The page of its access, if it makes one.
    #[inline]
    pub(crate) fn only_page(&self) -> Option<u64> {
        let is_single = self.bytes.wrapping_sub(1) < self.stride_bytes.max(1);
        is_single.then_some(self.first_byte / PAGE_BYTES)
    }

    /// How many of them are in one page.
    pub(super) fn accesses_in(&self, page: u64) -> u64 {
        let stride = self.stride_bytes.max(1);
        let before = |byte: u64| byte.saturating_sub(self.first_byte).div_ceil(stride);
        let end = before((page + 1) * PAGE_BYTES).min(self.accesses());
        end.saturating_sub(before(page * PAGE_BYTES))
    }

    /// The pages from the first access to the last; `None` without any. A walk beyond the end of the
    /// address space ends there.
    pub(super) fn pages(&self) -> Option<Range<u64>> {
        let further = self.accesses().checked_sub(1)?.saturating_mul(self.stride_bytes.max(1));
        let last_byte = self.first_byte.saturating_add(further);
        Some(self.first_byte / PAGE_BYTES..(last_byte / PAGE_BYTES).saturating_add(1))
    }

    /// The pages of a piece of one block with an access, by their place in the block.
    pub(super) fn pages_within(&self, piece: &Range<u64>, first_page: u64) -> PageMask {
        let stride = self.stride_bytes.max(1);
        let place = |page: u64| (page - first_page) as usize;
        if stride <= PAGE_BYTES {
            return PageMask::range(place(piece.start)..place(piece.end));
        }
        let mut mask = PageMask::EMPTY;
        let before = (piece.start * PAGE_BYTES).saturating_sub(self.first_byte).div_ceil(stride);
        for access in before..self.accesses() {
            let page = (self.first_byte + access * stride) / PAGE_BYTES;
            if page >= piece.end {
                break;
            }
            mask.insert(place(page));
        }
        mask
    }
}

impl Paging {
    /// The pages that a walk which has just ended went over. Notes the host's writes.
    #[inline]
    pub(crate) fn covered(&mut self, walk: Walk) -> Covered {
        let by = ProcId::from(walk.by);
        let page = walk.only_page().filter(|_| !by.is_host());
        let Some(page) = page else { return self.covered_far(walk) };
        let Some(block) = self.block(page) else { return Covered::default() };
        Covered::of_device(block.of(by), block, (page - block.first_page()) as usize)
    }

    /// The same of a walk of any number of accesses.
    fn covered_far(&mut self, walk: Walk) -> Covered {
        let mut covered = Covered::default();
        let by = ProcId::from(walk.by);
        let Some(mut left) = walk.pages() else { return covered };
        let writes = by.is_host() && walk.access != Access::Read;
        while let Some(piece) = self.ranges.first_piece(&left) {
            left.start = piece.end;
            let Some(range) = self.ranges.containing_mut(piece.start) else { continue };
            let Some(block) = range.slot_mut(piece.start) else { continue };
            let touched = walk.pages_within(&piece, block.first_page());
            covered.pages += touched.count() as u64;
            if !by.is_host() {
                let elsewhere = block.resident_anywhere().minus(block.resident(by));
                covered.remote_pages += (touched & elsewhere).count() as u64;
            }
            if by.is_host() {
                covered.written_before += (touched & block.host_written()).count() as u64;
            }
            if writes {
                covered.first_written += touched.minus(block.host_written()).count() as u64;
                block.add_host_written(touched);
            }
        }
        covered
    }

    /// The blocks of these pages that are held and mapped.
    pub(crate) fn held_blocks(&self, pages: &Range<u64>) -> HeldBlocks {
        let mut held = HeldBlocks::default();
        for block in self.ranges.overlapping(pages).flat_map(|range| range.blocks_in(pages.clone()))
        {
            held.note(block, self.chunks.len() as u8);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GpuMemory, Relations};
    use super::*;
    use crate::GpuProfile;
    use pagewise_hal::{MemoryEvent, Processor};

    fn host_write(first_byte: u64, bytes: u64, stride_bytes: u64) -> Walk {
        Walk { by: Processor::HOST, first_byte, bytes, stride_bytes, access: Access::Write }
    }

    #[test]
    fn a_walk_has_the_pages_from_its_first_access_to_its_last() {
        let pages = |first_byte, bytes, stride| host_write(first_byte, bytes, stride).pages();
        assert_eq!(pages(0x1000, 0, 1), None);
        assert_eq!(pages(0x1fff, 1, 4096), Some(1..2));
        assert_eq!(pages(0x1fff, 2, 1), Some(1..3));
        assert_eq!(pages(0x1000, 0x2001, 0x1000), Some(1..4), "the last byte is an access");
        assert_eq!(pages(0x1000, 1 << 20, u64::MAX), Some(1..2), "one access");
        let last = u64::MAX / PAGE_BYTES;
        assert_eq!(pages(u64::MAX - 10, u64::MAX, 1), Some(last..last + 1), "no page is behind");
    }

    #[test]
    fn a_page_is_written_first_once_until_the_host_loses_it() {
        let gpus = [GpuMemory { capacity_bytes: 1 << 30 }];
        let mut paging =
            Paging::new(GpuProfile::h200().paging, &gpus, Relations::pcie_with_nvlink(1));
        paging.create_range(512, 1024);
        let mut records: Vec<MemoryEvent> = Vec::new();
        let walk = host_write(512 * PAGE_BYTES, 16 * PAGE_BYTES, 2 * PAGE_BYTES);
        let again = |paging: &mut Paging, records: &mut Vec<MemoryEvent>| {
            paging.walk(walk, 0, records);
            paging.covered(walk)
        };
        let first = again(&mut paging, &mut records);
        assert_eq!((first.pages, first.first_written, first.written_before), (8, 8, 0));
        let second = again(&mut paging, &mut records);
        assert_eq!((second.first_written, second.written_before), (0, 8));
        paging.migrate(512..513, Processor::device(0), 0, &mut records);
        assert_eq!(again(&mut paging, &mut records).first_written, 1);
    }

    #[test]
    fn a_range_that_goes_had_what_its_blocks_had() {
        let gpus = [GpuMemory { capacity_bytes: 1 << 30 }];
        let mut paging =
            Paging::new(GpuProfile::h200().paging, &gpus, Relations::pcie_with_nvlink(1));
        paging.create_range(512, 1536);
        let mut records: Vec<MemoryEvent> = Vec::new();
        paging.migrate(512..1024, Processor::device(0), 0, &mut records);
        paging.migrate(1024..1025, Processor::HOST, 0, &mut records);
        let held = paging.held_blocks(&(512..2048));
        assert_eq!((held.on_device, held.mapped_by_device, held.mapped_by_host), (1, 1, 1));
        assert_eq!((held.with_small_tables, held.device_mappings), (0, 1));
        assert_eq!(held.host_pages, 512, "host memory of a whole block comes at once");
    }
}
