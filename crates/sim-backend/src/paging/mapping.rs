//! Mappings of pages with their permissions, and the records of remote mappings.
//!
//! Nothing moves here. PAGING-81 to PAGING-86 are the driver's rules.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "runs of one block, at most 512 pages, are counted and measured"
)]

use pagewise_hal::{MapCause, MemoryEvent, PAGE_BYTES};

use super::block::Block;
use super::chunks::List;
use super::context::Context;
use super::mask::PageMask;
use super::processor::{ProcId, ProcSet};
use super::protection::Protection;

impl Context<'_> {
    /// Whether a processor is only ever mapped to its own memory here.
    fn maps_own_memory_only(&self, id: ProcId) -> bool {
        self.policy.read_mostly || self.policy.preferred == Some(id)
    }

    /// Raises `id`'s mapping of pages to at least `protection`, where it may map them at all, and
    /// reports the runs in other memory than its own: pages that it maps anew, and pages that it
    /// may do more with than before.
    pub(super) fn map(
        &mut self,
        block: &mut Block,
        id: ProcId,
        pages: PageMask,
        protection: Protection,
        cause: Option<MapCause>,
    ) {
        if pages.is_empty() {
            return;
        }
        let mut left = pages.minus(block.mapped(id, protection));
        if left.is_empty() {
            return;
        }
        let reach = if self.maps_own_memory_only(id) {
            ProcSet::single(id)
        } else {
            self.relations.common_access(ProcSet::single(id))
        };
        for at in self.relations.by_closeness(id, block.residents().and(reach)) {
            let here = left & block.resident(at);
            block.map(id, here, protection);
            block.note_device_mapping(id, &here);
            self.count_mapped(id, here.count());
            if here.intersects(&block.discarded()) {
                self.mark(block, id, List::Discarded);
            }
            if let Some(cause) = cause.filter(|_| at != id) {
                self.report_remote(block, id, at, here, cause);
            }
            left = left.minus(here);
            if left.is_empty() {
                break;
            }
        }
    }

    fn report_remote(
        &mut self,
        block: &Block,
        id: ProcId,
        at: ProcId,
        pages: PageMask,
        cause: MapCause,
    ) {
        for run in pages.runs() {
            self.work.remote_maps += 1;
            self.emit(MemoryEvent::RemoteMap {
                address: block.address(run.start),
                bytes: run.len() as u64 * PAGE_BYTES,
                by: id.into(),
                at: at.into(),
                cause,
            });
        }
    }

    /// The pages of a block that some processor without native atomics at `residency` maps for
    /// atomics.
    pub(super) fn foreign_atomics(&self, block: &Block, residency: ProcId) -> PageMask {
        let native = self.relations.native_atomics_on(residency);
        let foreign = block.mappers().iter().filter(|id| !native.contains(*id));
        foreign.fold(PageMask::EMPTY, |set, id| set | block.mapped(id, Protection::Atomic))
    }

    /// The mappings that a fault of `by` makes on pages that are now at `residency`, if it asked
    /// for `requested`: one mask per level, lowest first (PAGING-81).
    pub(super) fn promoted(
        &self,
        block: &Block,
        by: ProcId,
        residency: ProcId,
        pages: PageMask,
        requested: Protection,
    ) -> [PageMask; 3] {
        let mut levels = [PageMask::EMPTY; 3];
        if pages.is_empty() {
            return levels;
        }
        levels[requested as usize] = pages;
        if requested == Protection::Read && !self.policy.read_mostly {
            let stays = block.discarded() | self.foreign_atomics(block, residency);
            levels[1] = pages.minus(stays);
            levels[0] = pages & stays;
        }
        if self.relations.native_atomics_on(residency).contains(by) {
            levels[2] |= levels[1];
            levels[1] = PageMask::EMPTY;
        }
        levels
    }

    /// Takes permissions from others that conflict with what `by` is about to map. Only for pages
    /// that stayed where they were (PAGING-82).
    pub(super) fn revoke_conflicting(
        &mut self,
        block: &mut Block,
        by: ProcId,
        residency: ProcId,
        pages: PageMask,
        new: Protection,
    ) {
        if new == Protection::Read || pages.is_empty() {
            return;
        }
        let native = self.relations.native_atomics_on(residency);
        let at_most = if new == Protection::Atomic && !by.is_host() {
            Protection::Read
        } else {
            Protection::Write
        };
        let exempts_native = new == Protection::Write || native.contains(by);
        for id in block.mappers().without(by).iter() {
            if !(exempts_native && native.contains(id)) {
                self.revoke(block, id, pages, at_most);
            }
        }
    }

    /// Maps pages that a fault of `by` brought to `residency` for the accessed-by processors and
    /// for `thrashing`, if `by` maps them with `new` (PAGING-83).
    pub(super) fn map_others(
        &mut self,
        block: &mut Block,
        (by, residency): (ProcId, ProcId),
        pages: PageMask,
        new: Protection,
        thrashing: ProcSet,
    ) {
        if self.policy.read_mostly || pages.is_empty() {
            return;
        }
        let native = self.relations.native_atomics_on(residency);
        for id in self.policy.accessed_by.or(thrashing).without(by).iter() {
            let elsewhere = self.policy.preferred == Some(id) && id != residency;
            if elsewhere || !self.relations.can_access(id, residency) {
                continue;
            }
            let protection = if new != Protection::Atomic {
                new
            } else if native.contains(by) && native.contains(id) {
                Protection::Atomic
            } else if native.contains(by) || by.is_host() {
                Protection::Write
            } else {
                Protection::Read
            };
            let cause = if thrashing.contains(id) { MapCause::Thrashing } else { MapCause::Policy };
            self.map(block, id, pages, protection, Some(cause));
        }
    }

    /// Maps pages for `id` with the highest permission that needs no revocation (PAGING-85).
    pub(super) fn map_highest(
        &mut self,
        block: &mut Block,
        id: ProcId,
        pages: PageMask,
        cause: Option<MapCause>,
    ) {
        let duplicated = block.duplicated();
        let own = block.resident(id);
        let reach = self.relations.common_access(ProcSet::single(id));
        let residents = block.residents().and(reach);
        let mut levels = [pages & duplicated & own, PageMask::EMPTY, PageMask::EMPTY];
        let mapped = block.mapped_anywhere();
        for at in residents.iter() {
            let here = (pages & block.resident(at)).minus(duplicated);
            let foreign = self.foreign_atomics_but(block, at, id) & here;
            let native = self.relations.native_atomics_on(at).contains(id);
            let written = self.writers_but(block, id);
            let free = here.minus(foreign);
            let atomic = if native { free } else { free.minus(written & mapped) };
            levels[0] |= foreign;
            levels[1] |= free.minus(atomic);
            levels[2] |= atomic;
        }
        for (level, protection) in levels.into_iter().zip(Protection::ALL) {
            self.map(block, id, level, protection, cause);
        }
    }

    fn foreign_atomics_but(&self, block: &Block, residency: ProcId, but: ProcId) -> PageMask {
        let native = self.relations.native_atomics_on(residency);
        let foreign = block.mappers().without(but).iter().filter(|id| !native.contains(*id));
        foreign.fold(PageMask::EMPTY, |set, id| set | block.mapped(id, Protection::Atomic))
    }

    fn writers_but(&self, block: &Block, but: ProcId) -> PageMask {
        let others = block.mappers().without(but);
        others.iter().fold(PageMask::EMPTY, |set, id| set | block.mapped(id, Protection::Write))
    }
}
