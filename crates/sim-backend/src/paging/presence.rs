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
    /// Pages with memory behind them, resident or not, as memory stays when pages leave: the first
    /// so many, unless `populated` says which.
    populated_first: u16,
    populated: Option<Box<PageMask>>,
    resident: PageMask,
    maps: Maps,
}

/// The pages that a processor maps. There is one form for each state: states that mean the same
/// are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Maps {
    /// A device: exactly what it holds, to every level.
    Held,
    /// These, to every level; of the host, none of them is written.
    Same(StoredMask),
    /// One mask per [`Protection`]. For the host the last two are equal, so only one is kept, and
    /// the last says which pages it wrote since it maps them to write.
    Levels(Box<[StoredMask; 3]>),
}

impl Presence {
    pub(super) fn new(id: ProcId) -> Self {
        let maps = if id.is_host() { Maps::Same(StoredMask::default()) } else { Maps::Held };
        Self { id, populated_first: 0, populated: None, resident: PageMask::EMPTY, maps }
    }

    /// Pages that it holds.
    pub(super) fn resident(&self) -> PageMask {
        self.resident
    }

    /// Whether it holds a page.
    #[inline]
    pub(super) fn holds(&self, page: usize) -> bool {
        self.resident.contains(page)
    }

    /// Whether it holds any page.
    pub(super) fn holds_any(&self) -> bool {
        !self.resident.is_empty()
    }

    /// Lets it hold these pages and no others. It maps what it mapped before.
    pub(super) fn hold(&mut self, pages: PageMask) {
        if let Maps::Held = self.maps
            && pages != self.resident
        {
            self.maps = Maps::Same(StoredMask::of(self.resident));
        }
        self.resident = pages;
        self.settle();
    }

    /// Lets a device hold these pages and map them to every level, and no others.
    pub(super) fn hold_and_map(&mut self, pages: PageMask) {
        debug_assert!(!self.id.is_host());
        self.resident = pages;
        self.maps = Maps::Held;
    }

    #[inline]
    fn level(&self, protection: Protection) -> usize {
        if self.id.is_host() { (protection as usize).min(1) } else { protection as usize }
    }

    /// Pages mapped with at least this permission.
    pub(super) fn mapped(&self, at_least: Protection) -> PageMask {
        match &self.maps {
            Maps::Held => self.resident,
            Maps::Same(pages) => pages.get(),
            Maps::Levels(levels) => levels[self.level(at_least)].get(),
        }
    }

    /// Whether a page is mapped with at least this permission.
    #[inline]
    pub(super) fn maps(&self, at_least: Protection, page: usize) -> bool {
        match &self.maps {
            Maps::Held => self.resident.contains(page),
            Maps::Same(pages) => pages.contains(page),
            Maps::Levels(levels) => levels[self.level(at_least)].contains(page),
        }
    }

    /// Whether any page is mapped.
    pub(super) fn maps_any(&self) -> bool {
        match &self.maps {
            Maps::Held => self.holds_any(),
            Maps::Same(pages) => !pages.is_empty(),
            Maps::Levels(levels) => !levels[0].is_empty(),
        }
    }

    /// Pages that the host has written since it mapped them for writing. Not for devices.
    pub(super) fn written(&self) -> PageMask {
        match &self.maps {
            Maps::Levels(levels) => levels[2].get(),
            _ => PageMask::EMPTY,
        }
    }

    /// Whether the host has written a page since it mapped it for writing. Not for devices.
    pub(super) fn has_written(&self, page: usize) -> bool {
        matches!(&self.maps, Maps::Levels(levels) if levels[2].contains(page))
    }

    /// Notes pages that the host wrote. Not for devices.
    pub(super) fn add_written(&mut self, pages: PageMask) {
        self.change_levels(|levels| levels[2].insert(pages));
    }

    /// Whether exactly the resident pages are mapped, to every level. Not for the host.
    pub(super) fn maps_what_it_holds(&self) -> bool {
        matches!(self.maps, Maps::Held)
    }

    /// Whether the processor neither holds nor maps a page.
    pub(super) fn takes_no_part(&self) -> bool {
        !self.holds_any() && !self.maps_any()
    }

    /// Raises the mapping of pages to at least this permission.
    pub(super) fn map(&mut self, pages: PageMask, protection: Protection) {
        let level = self.level(protection);
        let is_highest = level == self.level(Protection::Atomic);
        match &mut self.maps {
            Maps::Held if is_highest => {
                let all = self.resident | pages;
                if all != self.resident {
                    self.maps = Maps::Same(StoredMask::of(all));
                }
            }
            Maps::Same(same) if is_highest => {
                same.insert(pages);
                self.settle();
            }
            _ => self.change_levels(|levels| {
                levels[..=level].iter_mut().for_each(|mask| mask.insert(pages));
            }),
        }
    }

    /// Lowers the mapping of pages to at most this permission; `None` unmaps.
    pub(super) fn lower(&mut self, pages: PageMask, at_most: Option<Protection>) {
        let keep = at_most.map_or(0, |protection| self.level(protection).saturating_add(1));
        if keep == 3 {
            return;
        }
        match &mut self.maps {
            Maps::Held if keep == 0 => {
                let rest = self.resident.minus(pages);
                if rest != self.resident {
                    self.maps = Maps::Same(StoredMask::of(rest));
                }
            }
            Maps::Same(same) if keep == 0 => {
                same.remove(pages);
                self.settle();
            }
            _ => self.change_levels(|levels| {
                levels[keep..].iter_mut().for_each(|mask| mask.remove(pages));
            }),
        }
    }

    /// Changes the masks of the levels, where they differ or will.
    fn change_levels(&mut self, change: impl FnOnce(&mut [StoredMask; 3])) {
        let same = |all: StoredMask| {
            let last = if self.id.is_host() { StoredMask::default() } else { all.clone() };
            Box::new([all.clone(), all, last])
        };
        let mut levels = match std::mem::replace(&mut self.maps, Maps::Held) {
            Maps::Held => same(StoredMask::of(self.resident)),
            Maps::Same(pages) => same(pages),
            Maps::Levels(levels) => levels,
        };
        change(&mut levels);
        self.maps = Maps::Levels(levels);
        self.settle();
    }

    /// Finds the form of what is mapped.
    fn settle(&mut self) {
        if let Maps::Levels(levels) = &mut self.maps {
            let [read, write, last] = &mut **levels;
            let is_same = if self.id.is_host() { last.is_empty() } else { write == last };
            if read != write || !is_same {
                return;
            }
            self.maps = Maps::Same(std::mem::take(read));
        }
        if let Maps::Same(pages) = &self.maps
            && !self.id.is_host()
            && pages.get() == self.resident
        {
            self.maps = Maps::Held;
        }
    }

    /// Pages with memory behind them, resident or not.
    pub(super) fn populated(&self) -> PageMask {
        let first = || PageMask::range(0..usize::from(self.populated_first));
        self.populated.as_deref().copied().unwrap_or_else(first)
    }

    /// Whether exactly the first so many pages have memory behind them.
    pub(super) fn populates_first(&self, pages: u16) -> bool {
        self.populated.is_none() && self.populated_first == pages
    }

    /// Lets these pages have memory behind them, and no others.
    pub(super) fn set_populated(&mut self, pages: PageMask) {
        let first = pages.next_clear(0);
        if pages == PageMask::range(0..first) {
            (self.populated_first, self.populated) = (first as u16, None);
        } else {
            (self.populated_first, self.populated) = (0, Some(Box::new(pages)));
        }
    }

    /// Cuts the pages in two: keeps those below, returns the others, renumbered.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let below = PageMask::range(0..at);
        let mut upper = Self::new(self.id);
        upper.maps = match &mut self.maps {
            Maps::Held => Maps::Held,
            Maps::Same(pages) => Maps::Same(pages.split_off(at)),
            Maps::Levels(levels) => {
                Maps::Levels(Box::new(levels.each_mut().map(|mask| mask.split_off(at))))
            }
        };
        upper.resident = self.resident.shifted_down(at);
        self.resident &= below;
        let populated = self.populated();
        upper.set_populated(populated.shifted_down(at));
        self.set_populated(populated & below);
        self.settle();
        upper.settle();
        upper
    }
}
