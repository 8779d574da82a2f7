//! The presence of one processor in one va_block: pages that it holds, maps, and has memory for.
//!
//! Knows no other processor, and decides nothing.

use std::ops::Range;

use super::mask::{PAGES, PageMask};
use super::processor::ProcId;
use super::protection::Protection;

/// The presence of one processor in a block: 80 bytes, unless its pages are in disorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Presence {
    pub(super) id: ProcId,
    maps: Maps,
    /// Pages with memory behind them, resident or not, as memory stays when pages leave: the first
    /// so many, unless `large` says which.
    populated_first: u16,
    resident: PageMask,
    /// Present if it says anything.
    large: Option<Box<Large>>,
}

/// The pages that a processor maps. There is one form for each state: states that mean the same
/// are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maps {
    /// A device: exactly what it holds, to every level.
    Held,
    /// These, to every level; of the host, none of them is written.
    Run(Run),
    /// Those that `large` names.
    Large,
}

/// The pages `start..end`, `0..0` if they are none, in bytes that need no alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run([[u8; 2]; 2]);

impl Run {
    const EMPTY: Self = Self([[0; 2]; 2]);

    /// The run of these pages, if they are one.
    fn of(pages: &PageMask) -> Option<Self> {
        let start = pages.next_set(0);
        let end = pages.next_clear(start);
        if start == end {
            return Some(Self::EMPTY);
        }
        let is_run = pages.next_set(end) == PAGES;
        is_run.then(|| Self([(start as u16).to_ne_bytes(), (end as u16).to_ne_bytes()]))
    }

    #[inline]
    fn pages(self) -> Range<usize> {
        // Not by `map`, which is a call.
        let [start, end] = self.0;
        u16::from_ne_bytes(start).into()..u16::from_ne_bytes(end).into()
    }

    #[inline]
    fn mask(self) -> PageMask {
        if self == Self::EMPTY { PageMask::EMPTY } else { PageMask::range(self.pages()) }
    }
}

/// Pages that take more memory to say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Large {
    populated: Option<Box<PageMask>>,
    maps: LargeMaps,
}

/// The pages that a processor maps, if that is said at large.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum LargeMaps {
    #[default]
    Nothing,
    /// These, to every level; of the host, none of them is written.
    Same(PageMask),
    /// One mask per [`Protection`]. For the host the last two are equal, so only one is kept, and
    /// the last says which pages it wrote since it maps them to write.
    Levels(Box<[PageMask; 3]>),
}

/// The pages that these levels say, if they say the same.
fn same_of([read, write, last]: &[PageMask; 3], is_host: bool) -> Option<PageMask> {
    let last_is_same = if is_host { last.is_empty() } else { write == last };
    (last_is_same && read == write).then_some(*read)
}

impl Presence {
    pub(super) fn new(id: ProcId) -> Self {
        let maps = if id.is_host() { Maps::Run(Run::EMPTY) } else { Maps::Held };
        Self { id, maps, populated_first: 0, resident: PageMask::EMPTY, large: None }
    }

    /// Pages that it holds.
    #[inline]
    pub(super) fn resident(&self) -> PageMask {
        self.resident
    }

    /// The same without a copy.
    #[inline]
    pub(super) fn held(&self) -> &PageMask {
        &self.resident
    }

    /// The pages that it holds, to change them. It must map exactly what it holds, or be the host.
    #[inline]
    pub(super) fn held_mut(&mut self) -> &mut PageMask {
        debug_assert!(self.id.is_host() || self.maps_what_it_holds());
        &mut self.resident
    }

    /// Whether it holds a page.
    #[inline]
    pub(super) fn holds(&self, page: usize) -> bool {
        self.resident.contains(page)
    }

    /// Whether it holds any page.
    #[inline]
    pub(super) fn holds_any(&self) -> bool {
        !self.resident.is_empty()
    }

    /// Lets it hold these pages and no others. It maps what it mapped before.
    #[inline]
    pub(super) fn hold(&mut self, pages: PageMask) {
        // Nothing about the host's mappings depends on it.
        let same = if self.id.is_host() { None } else { self.same() };
        self.resident = pages;
        if let Some(mapped) = same {
            self.set_same(mapped);
        }
    }

    /// The pages that it maps, if it maps all of them alike: a device to every level, the host to
    /// every level and without a write since.
    #[inline]
    fn same(&self) -> Option<PageMask> {
        match self.maps {
            Maps::Held => Some(self.resident),
            Maps::Run(run) => Some(run.mask()),
            Maps::Large => match self.large_maps() {
                LargeMaps::Same(pages) => Some(*pages),
                _ => None,
            },
        }
    }

    /// Lets it map these pages alike, and no others.
    #[inline]
    fn set_same(&mut self, pages: PageMask) {
        if !self.id.is_host() && pages == self.resident {
            self.set_maps(Maps::Held, LargeMaps::Nothing);
        } else if let Some(run) = Run::of(&pages) {
            self.set_maps(Maps::Run(run), LargeMaps::Nothing);
        } else {
            self.set_maps(Maps::Large, LargeMaps::Same(pages));
        }
    }

    #[inline]
    fn set_maps(&mut self, maps: Maps, at_large: LargeMaps) {
        self.maps = maps;
        if self.large.is_some() || !matches!(at_large, LargeMaps::Nothing) {
            self.large.get_or_insert_default().maps = at_large;
            self.drop_empty();
        }
    }

    #[inline]
    fn drop_empty(&mut self) {
        let says_nothing =
            |large: &Large| large.populated.is_none() && matches!(large.maps, LargeMaps::Nothing);
        if self.large.as_deref().is_some_and(says_nothing) {
            self.large = None;
        }
    }

    #[inline]
    fn large_maps(&self) -> &LargeMaps {
        self.large.as_ref().map_or(&LargeMaps::Nothing, |large| &large.maps)
    }

    #[inline]
    fn level(&self, protection: Protection) -> usize {
        if self.id.is_host() { (protection as usize).min(1) } else { protection as usize }
    }

    /// Pages mapped with at least this permission.
    #[inline]
    pub(super) fn mapped(&self, at_least: Protection) -> PageMask {
        match self.maps {
            Maps::Held => self.resident,
            Maps::Run(run) => run.mask(),
            Maps::Large => match self.large_maps() {
                LargeMaps::Nothing => PageMask::EMPTY,
                LargeMaps::Same(pages) => *pages,
                LargeMaps::Levels(levels) => levels[self.level(at_least)],
            },
        }
    }

    /// Whether a page is mapped with at least this permission.
    #[inline]
    pub(super) fn maps(&self, at_least: Protection, page: usize) -> bool {
        match self.maps {
            Maps::Held => self.resident.contains(page),
            Maps::Run(run) => run.pages().contains(&page),
            Maps::Large => match self.large_maps() {
                LargeMaps::Nothing => false,
                LargeMaps::Same(pages) => pages.contains(page),
                LargeMaps::Levels(levels) => levels[self.level(at_least)].contains(page),
            },
        }
    }

    /// Whether any page is mapped.
    #[inline]
    pub(super) fn maps_any(&self) -> bool {
        match self.maps {
            Maps::Held => self.holds_any(),
            Maps::Run(run) => run != Run::EMPTY,
            Maps::Large => match self.large_maps() {
                LargeMaps::Nothing => false,
                LargeMaps::Same(pages) => !pages.is_empty(),
                LargeMaps::Levels(levels) => !levels[0].is_empty(),
            },
        }
    }

    /// Pages that the host has written since it mapped them for writing. Not for devices.
    pub(super) fn written(&self) -> PageMask {
        match self.large_maps() {
            LargeMaps::Levels(levels) => levels[2],
            _ => PageMask::EMPTY,
        }
    }

    /// Whether the host has written a page since it mapped it for writing. Not for devices.
    #[inline]
    pub(super) fn has_written(&self, page: usize) -> bool {
        self.maps == Maps::Large
            && matches!(self.large_maps(), LargeMaps::Levels(levels) if levels[2].contains(page))
    }

    /// Notes pages that the host wrote. Not for devices.
    pub(super) fn add_written(&mut self, pages: PageMask) {
        self.change_levels(|levels| levels[2] |= pages);
    }

    /// Whether exactly the resident pages are mapped, to every level. Not for the host.
    #[inline]
    pub(super) fn maps_what_it_holds(&self) -> bool {
        matches!(self.maps, Maps::Held)
    }

    /// Whether the processor neither holds nor maps a page.
    #[inline]
    pub(super) fn takes_no_part(&self) -> bool {
        !self.holds_any() && !self.maps_any()
    }

    /// Raises the mapping of pages to at least this permission.
    pub(super) fn map(&mut self, pages: PageMask, protection: Protection) {
        let level = self.level(protection);
        let is_highest = level == self.level(Protection::Atomic);
        match self.same() {
            Some(same) if is_highest => self.set_same(same | pages),
            _ => self.change_levels(|levels| {
                levels[..=level].iter_mut().for_each(|mask| *mask |= pages);
            }),
        }
    }

    /// Lowers the mapping of pages to at most this permission; `None` unmaps.
    pub(super) fn lower(&mut self, pages: PageMask, at_most: Option<Protection>) {
        let keep = at_most.map_or(0, |protection| self.level(protection).saturating_add(1));
        match self.same() {
            _ if keep == 3 || self.maps == Maps::Run(Run::EMPTY) => {}
            Some(same) if keep == 0 => self.set_same(same.minus(pages)),
            _ => self.change_levels(|levels| {
                levels[keep..].iter_mut().for_each(|mask| *mask = mask.minus(pages));
            }),
        }
    }

    /// Changes the masks of the levels, where they differ or will.
    fn change_levels(&mut self, change: impl FnOnce(&mut [PageMask; 3])) {
        let is_host = self.id.is_host();
        if let Some(LargeMaps::Levels(levels)) = self.large.as_mut().map(|large| &mut large.maps) {
            change(levels);
            if let Some(same) = same_of(levels, is_host) {
                self.set_same(same);
            }
            return;
        }
        let pages = self.same().unwrap_or_default();
        let mut levels = [pages, pages, if is_host { PageMask::EMPTY } else { pages }];
        change(&mut levels);
        self.set_levels(levels);
    }

    /// Lets it map these pages by level, in the form that such pages have.
    fn set_levels(&mut self, levels: [PageMask; 3]) {
        match same_of(&levels, self.id.is_host()) {
            Some(same) => self.set_same(same),
            None => self.set_maps(Maps::Large, LargeMaps::Levels(Box::new(levels))),
        }
    }

    /// Pages with memory behind them, resident or not.
    #[inline]
    pub(super) fn populated(&self) -> PageMask {
        let first = || PageMask::range(0..usize::from(self.populated_first));
        let pages = self.large.as_ref().and_then(|large| large.populated.as_deref());
        pages.copied().unwrap_or_else(first)
    }

    /// Whether exactly the first so many pages have memory behind them.
    #[inline]
    pub(super) fn populates_first(&self, pages: u16) -> bool {
        let is_first = self.large.as_ref().is_none_or(|large| large.populated.is_none());
        is_first && self.populated_first == pages
    }

    /// Lets the first so many pages have memory behind them, and no others.
    #[inline]
    pub(super) fn populate_first(&mut self, pages: u16) {
        self.populated_first = pages;
        if let Some(large) = &mut self.large {
            large.populated = None;
            self.drop_empty();
        }
    }

    /// Lets these pages have memory behind them, and no others.
    pub(super) fn set_populated(&mut self, pages: PageMask) {
        let first = pages.next_clear(0);
        if pages == PageMask::range(0..first) {
            self.populate_first(first as u16);
        } else {
            self.populated_first = 0;
            self.large.get_or_insert_default().populated = Some(Box::new(pages));
        }
    }

    /// Cuts the pages in two: keeps those below, returns the others, renumbered.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let below = PageMask::range(0..at);
        let mut upper = Self::new(self.id);
        let same = self.same();
        upper.resident = self.resident.shifted_down(at);
        self.resident &= below;
        if let Some(mapped) = same {
            upper.set_same(mapped.shifted_down(at));
            self.set_same(mapped & below);
        } else {
            self.change_levels(|levels| {
                upper.set_levels(levels.map(|mask| mask.shifted_down(at)));
                levels.iter_mut().for_each(|mask| *mask &= below);
            });
        }
        let populated = self.populated();
        upper.set_populated(populated.shifted_down(at));
        self.set_populated(populated & below);
        upper
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_processor_in_order_takes_80_bytes() {
        assert_eq!(size_of::<Presence>(), 80);
    }

    /// The pages of a presence, kept plainly: a mask for each level.
    #[derive(Debug, Clone, Default, PartialEq)]
    struct Model {
        resident: PageMask,
        populated: PageMask,
        levels: [PageMask; 3],
        written: PageMask,
    }

    impl Model {
        fn of(presence: &Presence) -> Self {
            Self {
                resident: presence.resident(),
                populated: presence.populated(),
                levels: Protection::ALL.map(|level| presence.mapped(level)),
                written: match presence.id.is_host() {
                    true => presence.written(),
                    false => PageMask::EMPTY,
                },
            }
        }

        /// Does a step to both. The last one cuts, keeps one part and returns the other.
        fn step(&mut self, presence: &mut Presence, (what, level, start, end): Step) {
            let pages = PageMask::range(start.min(end)..start.max(end));
            let host = presence.id.is_host();
            let protection = Protection::ALL[level];
            let level = if host && level == 1 { 2 } else { level };
            match what {
                0 => {
                    self.resident |= pages;
                    presence.hold(self.resident);
                }
                1 => {
                    self.resident = self.resident.minus(pages);
                    presence.hold(self.resident);
                }
                2 => {
                    self.levels[..=level].iter_mut().for_each(|mask| *mask |= pages);
                    presence.map(pages, protection);
                }
                3 => {
                    self.levels.iter_mut().for_each(|mask| *mask = mask.minus(pages));
                    presence.lower(pages, None);
                    self.written = self.written.minus(pages);
                }
                4 => {
                    self.levels[level + 1..].iter_mut().for_each(|m| *m = m.minus(pages));
                    presence.lower(pages, Some(protection));
                    // At each level: the host is to fault again when it writes.
                    self.written = self.written.minus(pages);
                }
                5 => {
                    self.populated |= pages;
                    presence.set_populated(self.populated);
                }
                6 => {
                    self.populated = self.populated.minus(pages);
                    presence.set_populated(self.populated);
                }
                7 if host => {
                    let pages = pages & self.levels[2];
                    self.written |= pages;
                    presence.add_written(pages);
                }
                7 => {
                    presence.hold(PageMask::EMPTY);
                    presence.lower(!PageMask::EMPTY, None);
                    (self.resident, self.levels) = (pages, [pages; 3]);
                    *presence.held_mut() = pages;
                }
                _ => {
                    let upper = presence.split_off(start);
                    let down = |mask: &PageMask| mask.shifted_down(start);
                    assert_eq!(
                        Self::of(&upper),
                        Self {
                            resident: down(&self.resident),
                            populated: down(&self.populated),
                            levels: self.levels.each_ref().map(down),
                            written: down(&self.written),
                        }
                    );
                    let below = PageMask::range(0..start);
                    self.resident &= below;
                    self.populated &= below;
                    self.written &= below;
                    self.levels.iter_mut().for_each(|mask| *mask &= below);
                }
            }
        }
    }

    type Step = (u8, usize, usize, usize);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let page = || (0..=8_usize).prop_map(|eighth| eighth * 64);
        prop::collection::vec((0..9u8, 0..3usize, page(), page()), 0..40)
    }

    proptest! {
        #[test]
        fn a_presence_says_what_was_done_to_it_and_has_one_form_for_it(
            device in any::<bool>(),
            steps in steps(),
        ) {
            let id = ProcId(device.into());
            let (mut presence, mut model) = (Presence::new(id), Model::default());
            for step in steps {
                model.step(&mut presence, step);
                prop_assert_eq!(Model::of(&presence), model.clone(), "{:?}", step);
                for page in [0, 63, 64, 200, 511] {
                    for (level, protection) in Protection::ALL.into_iter().enumerate() {
                        let maps = presence.maps(protection, page);
                        prop_assert_eq!(maps, model.levels[level].contains(page));
                    }
                    let has_written = !device && presence.has_written(page);
                    prop_assert_eq!(has_written, model.written.contains(page));
                }
                prop_assert_eq!(presence.maps_any(), !model.levels[0].is_empty());
                let Model { resident, populated, levels, written } = model.clone();
                let mut other = Presence::new(id);
                other.hold(resident);
                for (pages, protection) in levels.into_iter().zip(Protection::ALL) {
                    other.map(pages, protection);
                }
                if !written.is_empty() {
                    other.add_written(written);
                }
                other.set_populated(populated);
                prop_assert_eq!(&presence, &other, "the same pages, said otherwise");
            }
        }
    }
}
