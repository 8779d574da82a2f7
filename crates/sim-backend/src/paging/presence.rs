//! The presence of one processor in one va_block: pages that it holds, maps, and has memory for.
//!
//! Knows no other processor, and decides nothing.

use super::mask::{PageMask, StoredMask};
use super::processor::ProcId;
use super::protection::Protection;

/// The presence of one processor in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Presence {
    pub(super) id: ProcId,
    /// Whether the pages that a device maps are all mapped to the highest level. Then the first
    /// mask stands for all three and the others are empty.
    uniform: bool,
    pub(super) resident: StoredMask,
    /// One mask per [`Protection`]. For the host the last two are equal, so only one is kept, and
    /// the last says which pages it wrote since it maps them to write.
    mapped: [StoredMask; 3],
    /// Pages with memory behind them, resident or not: memory stays when pages leave.
    pub(super) populated: StoredMask,
}

impl Presence {
    pub(super) fn new(id: ProcId) -> Self {
        let mapped = Default::default();
        let (resident, populated) = Default::default();
        Self { id, uniform: !id.is_host(), resident, mapped, populated }
    }

    fn level(&self, protection: Protection) -> usize {
        if self.id.is_host() { (protection as usize).min(1) } else { protection as usize }
    }

    /// Pages mapped with at least this permission.
    pub(super) fn mapped(&self, at_least: Protection) -> &StoredMask {
        let level = if self.uniform { 0 } else { self.level(at_least) };
        &self.mapped[level]
    }

    /// Pages mapped with any permission.
    pub(super) fn mapped_at_all(&self) -> &StoredMask {
        &self.mapped[0]
    }

    /// Pages that the host has written since it mapped them for writing. Not for devices.
    pub(super) fn written(&self) -> &StoredMask {
        &self.mapped[2]
    }

    /// Like [`written`](Self::written), to change it.
    pub(super) fn written_mut(&mut self) -> &mut StoredMask {
        &mut self.mapped[2]
    }

    /// Whether exactly the resident pages are mapped, to every level.
    pub(super) fn maps_what_it_holds(&self) -> bool {
        self.uniform && self.mapped[0] == self.resident
    }

    /// Whether the processor neither holds nor maps a page.
    pub(super) fn takes_no_part(&self) -> bool {
        self.resident.is_empty() && self.mapped[0].is_empty()
    }

    /// Lets a device hold these pages and map them to every level, and no others.
    pub(super) fn hold_and_map(&mut self, pages: PageMask) {
        debug_assert!(self.uniform);
        self.resident.set(pages);
        self.mapped[0].copy_from(&self.resident);
    }

    /// Raises the mapping of pages to at least this permission.
    pub(super) fn map(&mut self, pages: PageMask, protection: Protection) {
        let level = self.level(protection);
        if self.uniform && level == 2 {
            self.mapped[0].insert(pages);
            return;
        }
        self.tell_levels_apart();
        self.mapped[..=level].iter_mut().for_each(|mask| mask.insert(pages));
        self.note_uniform();
    }

    /// Lowers the mapping of pages to at most this permission; `None` unmaps.
    pub(super) fn lower(&mut self, pages: PageMask, at_most: Option<Protection>) {
        let keep = at_most.map_or(0, |protection| self.level(protection).saturating_add(1));
        if keep == 3 {
            return;
        }
        if self.uniform && keep == 0 {
            self.mapped[0].remove(pages);
            return;
        }
        self.tell_levels_apart();
        self.mapped[keep..].iter_mut().for_each(|mask| mask.remove(pages));
        self.note_uniform();
    }

    /// Gives each level a mask of its own.
    fn tell_levels_apart(&mut self) {
        if std::mem::take(&mut self.uniform) {
            let [all, others @ ..] = &mut self.mapped;
            others.iter_mut().for_each(|mask| mask.clone_from(all));
        }
    }

    /// Lets one mask stand for all three where they are equal: always, so that states that mean
    /// the same are equal.
    fn note_uniform(&mut self) {
        let [all, others @ ..] = &mut self.mapped;
        if !self.id.is_host() && others.iter().all(|mask| mask == all) {
            self.uniform = true;
            others.iter_mut().for_each(|mask| *mask = StoredMask::default());
        }
    }

    /// Cuts the pages in two: keeps those below, returns the others, renumbered.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        self.tell_levels_apart();
        let mut upper = Self {
            id: self.id,
            uniform: false,
            resident: self.resident.split_off(at),
            mapped: self.mapped.each_mut().map(|mask| mask.split_off(at)),
            populated: self.populated.split_off(at),
        };
        self.note_uniform();
        upper.note_uniform();
        upper
    }
}
