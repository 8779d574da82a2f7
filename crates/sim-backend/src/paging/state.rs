//! The state of a va_block's pages: holders, mappings, and the rare flags.
//!
//! Pages are numbered from the block's first page. Invariants: a page mapped with more permission
//! is also mapped with less; the host's write and atomic mappings are equal; a page that is mapped
//! is resident somewhere; a page resident on two processors is duplicated (PAGING-7).
//! Decides nothing, and does not know where the block is.
#![allow(clippy::arithmetic_side_effects, reason = "at most 64 processors; a cut within the pages")]

use std::num::NonZeroU8;
use std::ops::Range;

use super::mask::{PageMask, Taken};
use super::presence::Presence;
use super::processor::{ProcId, ProcSet};
use super::protection::Protection;
use super::stored_mask::StoredMask;
use super::thrash::pages::Thrashing;

/// The history of devices' page tables of a block, in 16 bits. Decides nothing; takes time when
/// the block goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DeviceTables(u16);

impl DeviceTables {
    const SMALL: u16 = 1 << 15;
    /// Raised mappings that count.
    const RAISED_MAX: u16 = 512;

    pub(super) fn raise(&mut self, whole: bool) {
        let raised = self.raised().saturating_add(1).min(Self::RAISED_MAX);
        let small = self.has_small() || !whole;
        self.0 = raised | if small { Self::SMALL } else { 0 };
    }

    /// Times that a mapping was raised, at most 512.
    pub(super) fn raised(self) -> u16 {
        self.0 & !Self::SMALL
    }

    /// Whether parts of the block were ever mapped on their own.
    pub(super) fn has_small(self) -> bool {
        self.0 & Self::SMALL != 0
    }
}

/// Flags that most blocks never need.
#[derive(Debug, Clone, Default)]
struct Rare {
    duplicated: StoredMask,
    discarded: StoredMask,
    thrashing: Option<Thrashing>,
}

impl Rare {
    #[inline]
    fn is_idle(&self) -> bool {
        self.duplicated.is_empty() && self.discarded.is_empty() && self.thrashing.is_none()
    }
}

/// The pages of the host and one device in a block in which nothing is special.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    pub(super) host: PageMask,
    pub(super) device: PageMask,
}

/// The state of the pages of one va_block.
#[derive(Debug, Clone)]
pub(crate) struct BlockState {
    last_event_ns: u64,
    rare: Option<Box<Rare>>,
    /// Sorted by processor.
    presence: Box<[Presence]>,
    /// Length in pages.
    pub(super) len: u16,
    /// Faults in a row, at most 65,535.
    history_faults: u16,
    history_of: ProcId,
    /// The number of the processor, from 1 on.
    last_event_by: Option<NonZeroU8>,
    /// The history of devices' page tables.
    pub(super) device_tables: DeviceTables,
}

impl BlockState {
    /// So many pages, none of them resident.
    pub(super) fn new(len: u16) -> Self {
        Self {
            len,
            last_event_ns: 0,
            rare: None,
            presence: Box::default(),
            history_faults: 0,
            history_of: ProcId::HOST,
            last_event_by: None,
            device_tables: DeviceTables::default(),
        }
    }

    /// Counts faults that moved pages to a processor; returns how many there were in a row
    /// (PAGING-100).
    #[inline]
    pub(super) fn count_faults(&mut self, to: ProcId, faults: u32) -> u32 {
        let before = if self.history_of == to { self.history_faults } else { 0 };
        self.history_of = to;
        let faults = u16::try_from(faults).unwrap_or(u16::MAX);
        self.history_faults = before.saturating_add(faults);
        self.history_faults.into()
    }

    /// Notes a thrashing event.
    #[inline]
    pub(super) fn note_thrashing_event(&mut self, id: ProcId, now_ns: u64) {
        (self.last_event_ns, self.last_event_by) = (now_ns, NonZeroU8::new(id.0 + 1));
    }

    /// The processor and the time of the last thrashing event.
    #[inline]
    pub(super) fn last_thrashing_event(&self) -> Option<(ProcId, u64)> {
        self.last_event_by.map(|by| (ProcId(by.get() - 1), self.last_event_ns))
    }

    /// Whether another block's pages are in the same state. Never for blocks with pages that
    /// thrashing detection watches.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let rare_like = match (&self.rare, &other.rare) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                one.thrashing.is_none()
                    && other.thrashing.is_none()
                    && one.duplicated == other.duplicated
                    && one.discarded == other.discarded
            }
            _ => false,
        };
        rare_like
            && self.len == other.len
            && (self.last_event_ns, self.last_event_by)
                == (other.last_event_ns, other.last_event_by)
            && (self.history_faults, self.history_of) == (other.history_faults, other.history_of)
            && self.device_tables == other.device_tables
            && self.presence == other.presence
    }

    #[inline]
    pub(super) fn of(&self, id: ProcId) -> Option<&Presence> {
        self.presence.iter().find(|presence| presence.id == id)
    }

    #[inline]
    fn of_mut(&mut self, id: ProcId) -> &mut Presence {
        let known = self.presence.iter().position(|presence| presence.id == id);
        let at = known.unwrap_or_else(|| self.add(id));
        &mut self.presence[at]
    }

    /// Adds a processor; returns its place.
    #[cold]
    fn add(&mut self, id: ProcId) -> usize {
        let at = self.presence.partition_point(|presence| presence.id < id);
        let mut presence = std::mem::take(&mut self.presence).into_vec();
        presence.reserve_exact(1);
        presence.insert(at, Presence::new(id));
        self.presence = presence.into_boxed_slice();
        at
    }

    /// Pages resident on a processor.
    #[inline]
    pub(crate) fn resident(&self, id: ProcId) -> PageMask {
        self.of(id).map_or(PageMask::EMPTY, |presence| presence.resident())
    }

    /// Pages resident anywhere.
    #[inline]
    pub(crate) fn resident_anywhere(&self) -> PageMask {
        self.presence.iter().fold(PageMask::EMPTY, |set, p| set | p.resident())
    }

    /// The holders of a page.
    pub(crate) fn residents_of(&self, page: usize) -> ProcSet {
        self.procs_where(|presence| presence.holds(page))
    }

    /// The holders of any page.
    pub(crate) fn residents(&self) -> ProcSet {
        self.procs_where(Presence::holds_any)
    }

    /// The processors that map any page.
    pub(crate) fn mappers(&self) -> ProcSet {
        self.procs_where(Presence::maps_any)
    }

    fn procs_where(&self, test: impl Fn(&Presence) -> bool) -> ProcSet {
        let found = self.presence.iter().filter(|presence| test(presence));
        found.fold(ProcSet::EMPTY, |set, presence| set.with(presence.id))
    }

    /// Makes pages resident on a processor.
    pub(crate) fn add_resident(&mut self, id: ProcId, pages: PageMask) {
        if !pages.is_empty() {
            let presence = self.of_mut(id);
            presence.hold(presence.resident() | pages);
        }
    }

    /// Ends the residency of pages on a processor.
    pub(crate) fn remove_resident(&mut self, id: ProcId, pages: PageMask) {
        if let Some(presence) = self.presence.iter_mut().find(|presence| presence.id == id) {
            presence.hold(presence.resident().minus(pages));
        }
    }

    /// Pages that a processor maps with at least this permission.
    #[inline]
    pub(crate) fn mapped(&self, id: ProcId, at_least: Protection) -> PageMask {
        self.of(id).map_or(PageMask::EMPTY, |presence| presence.mapped(at_least))
    }

    /// Whether a processor maps a page with at least this permission.
    #[inline]
    pub(super) fn maps(&self, id: ProcId, at_least: Protection, page: usize) -> bool {
        self.of(id).is_some_and(|presence| presence.maps(at_least, page))
    }

    /// Whether a processor maps any page.
    #[inline]
    pub(super) fn maps_any(&self, id: ProcId) -> bool {
        self.of(id).is_some_and(Presence::maps_any)
    }

    /// Pages that any processor maps.
    pub(crate) fn mapped_anywhere(&self) -> PageMask {
        self.presence.iter().fold(PageMask::EMPTY, |set, p| set | p.mapped(Protection::Read))
    }

    /// Raises a processor's mapping of pages to at least this permission.
    pub(crate) fn map(&mut self, id: ProcId, pages: PageMask, protection: Protection) {
        if !pages.is_empty() {
            self.of_mut(id).map(pages, protection);
        }
    }

    /// Lowers a processor's mapping of pages to at most this permission; `None` unmaps.
    pub(crate) fn lower(&mut self, id: ProcId, pages: PageMask, at_most: Option<Protection>) {
        if let Some(presence) = self.presence.iter_mut().find(|presence| presence.id == id) {
            presence.lower(pages, at_most);
        }
    }

    /// Pages that have memory on a processor, resident or not.
    #[inline]
    pub(crate) fn populated(&self, id: ProcId) -> PageMask {
        self.of(id).map_or(PageMask::EMPTY, |presence| presence.populated())
    }

    /// Whether a processor holds any page.
    pub(super) fn holds_any(&self, id: ProcId) -> bool {
        self.of(id).is_some_and(|presence| presence.holds_any())
    }

    /// Notes that pages have memory on a processor.
    pub(crate) fn populate(&mut self, id: ProcId, pages: PageMask) {
        let presence = self.of_mut(id);
        presence.set_populated(presence.populated() | pages);
    }

    /// Notes that all pages have memory on a processor.
    pub(super) fn populate_all(&mut self, id: ProcId) {
        let len = self.len;
        self.of_mut(id).populate_first(len);
    }

    /// Notes that pages no longer have memory on a processor.
    pub(crate) fn depopulate(&mut self, id: ProcId, pages: &PageMask) {
        let presence = self.of_mut(id);
        if pages.is_full() {
            presence.populate_first(0);
        } else {
            presence.set_populated(presence.populated().minus(*pages));
        }
    }

    /// Pages that the host wrote since it maps them to write.
    pub(super) fn host_written(&self) -> PageMask {
        self.of(ProcId::HOST).map_or(PageMask::EMPTY, |host| host.written())
    }

    /// Notes pages that the host wrote.
    pub(super) fn add_host_written(&mut self, pages: PageMask) {
        self.of_mut(ProcId::HOST).add_written(pages);
    }

    /// Pages that entered read duplication.
    pub(crate) fn duplicated(&self) -> PageMask {
        self.rare.as_ref().map_or(PageMask::EMPTY, |rare| rare.duplicated.get())
    }

    /// Marks pages as duplicated.
    pub(crate) fn add_duplicated(&mut self, pages: PageMask) {
        if !pages.is_empty() {
            self.rare().duplicated.insert(pages);
        }
    }

    /// Marks pages as not duplicated.
    pub(crate) fn remove_duplicated(&mut self, pages: PageMask) {
        if let Some(rare) = &mut self.rare {
            rare.duplicated.remove(pages);
        }
    }

    /// Pages with discarded contents.
    #[inline]
    pub(crate) fn discarded(&self) -> PageMask {
        self.rare.as_ref().map_or(PageMask::EMPTY, |rare| rare.discarded.get())
    }

    /// Marks pages as discarded.
    pub(crate) fn add_discarded(&mut self, pages: PageMask) {
        if !pages.is_empty() {
            self.rare().discarded.insert(pages);
        }
    }

    /// Marks pages as not discarded.
    pub(crate) fn remove_discarded(&mut self, pages: PageMask) {
        if let Some(rare) = &mut self.rare {
            rare.discarded.remove(pages);
        }
    }

    /// Whether there is nothing to know but the pages of the host and a device: no page has a flag,
    /// no other processor takes part, and the device maps exactly what it holds, to every level.
    #[inline]
    pub(super) fn is_plain(&self, device: ProcId) -> bool {
        let is_plain = |presence: &Presence| match presence.id {
            ProcId::HOST => true,
            id if id == device => presence.maps_what_it_holds(),
            _ => presence.takes_no_part(),
        };
        self.is_unflagged() && self.presence.iter().all(is_plain)
    }

    /// The pages of the host and a device in a [plain](Self::is_plain) block.
    #[inline]
    pub(super) fn plain(&self, device: ProcId) -> Option<Plain> {
        let plain = || Plain { host: self.resident(ProcId::HOST), device: self.resident(device) };
        self.is_plain(device).then(plain)
    }

    /// Moves pages of a plain block to its device, which maps them.
    #[inline]
    pub(super) fn take_plainly(&mut self, device: ProcId, pages: &PageMask) -> Taken {
        let [mut host, mut own] = [PageMask::EMPTY; 2];
        let [held, taking] = self.plain_sets(device, [&mut host, &mut own]);
        taking.take_from(held, pages)
    }

    /// The same for a range of pages.
    #[inline]
    pub(super) fn take_range_plainly(&mut self, device: ProcId, pages: Range<usize>) -> Taken {
        let [mut host, mut own] = [PageMask::EMPTY; 2];
        let [held, taking] = self.plain_sets(device, [&mut host, &mut own]);
        taking.take_range_from(held, pages)
    }

    /// Moves what the device of a plain block holds of some pages to the host, which has memory for
    /// them and does not map them.
    #[inline]
    pub(super) fn give_plainly(&mut self, device: ProcId, pages: &PageMask) -> Taken {
        let [mut host, mut own] = [PageMask::EMPTY; 2];
        let [taking, held] = self.plain_sets(device, [&mut host, &mut own]);
        let leaving = *held & *pages;
        taking.take_from(held, &leaving)
    }

    /// The pages of the host and a device, to change them; others for a processor that was never here.
    #[inline]
    fn plain_sets<'a>(
        &'a mut self,
        device: ProcId,
        [mut host, mut own]: [&'a mut PageMask; 2],
    ) -> [&'a mut PageMask; 2] {
        for presence in &mut self.presence {
            match presence.id {
                ProcId::HOST => host = presence.held_mut(),
                id if id == device => own = presence.held_mut(),
                _ => {}
            }
        }
        [host, own]
    }

    /// Whether no page is duplicated, discarded or known to thrashing detection.
    #[inline]
    pub(super) fn is_unflagged(&self) -> bool {
        self.rare.as_ref().is_none_or(|rare| rare.is_idle())
    }

    /// The device that holds or maps pages, if there is exactly one.
    pub(super) fn only_device(&self) -> Option<ProcId> {
        let takes_part = |presence: &&Presence| !presence.id.is_host() && !presence.takes_no_part();
        let mut devices = self.presence.iter().filter(takes_part).map(|presence| presence.id);
        let device = devices.next()?;
        devices.next().is_none().then_some(device)
    }

    /// Whether a processor but this one maps any of these pages.
    pub(super) fn others_map(&self, id: ProcId, pages: PageMask) -> bool {
        let mut others = self.presence.iter().filter(|presence| presence.id != id);
        others.any(|presence| presence.mapped(Protection::Read).intersects(&pages))
    }

    /// Lets the host and a device hold this of a plain block. They map what they mapped before.
    pub(super) fn set_plain_unmapped(&mut self, device: ProcId, plain: &Plain) {
        self.of_mut(device).hold(plain.device);
        if !plain.host.is_empty() {
            self.of_mut(ProcId::HOST).hold(plain.host);
        } else if let Some(host) = self.presence.iter_mut().find(|p| p.id.is_host()) {
            host.hold(plain.host);
        }
    }

    /// Thrashing detection's data of single pages, if there are any.
    #[inline]
    pub(crate) fn thrashing(&self) -> Option<&Thrashing> {
        self.rare.as_ref()?.thrashing.as_ref()
    }

    /// Like [`thrashing`](Self::thrashing), to change it.
    pub(crate) fn thrashing_mut(&mut self) -> Option<&mut Thrashing> {
        self.rare.as_mut()?.thrashing.as_mut()
    }

    /// Like [`thrashing_mut`](Self::thrashing_mut); begins the data if there are none.
    pub(crate) fn thrashing_or_new(&mut self) -> &mut Thrashing {
        self.rare().thrashing.get_or_insert_default()
    }

    /// Pages found to thrash.
    pub(crate) fn thrashing_pages(&self) -> PageMask {
        self.thrashing().map_or(PageMask::EMPTY, Thrashing::marked)
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether all pages have memory on a processor.
    #[inline]
    pub(super) fn is_populated(&self, id: ProcId) -> bool {
        self.of(id).is_some_and(|presence| presence.populates_first(self.len))
    }

    /// Whether all pages are discarded.
    pub(super) fn is_discarded(&self) -> bool {
        let whole = StoredMask::Run(0, self.len);
        self.rare.as_ref().is_some_and(|rare| rare.discarded == whole)
    }

    /// Cuts the state at a page: keeps what is below it, returns the rest. What thrashing
    /// detection knew is dropped on both sides (PAGING-5).
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut upper = Self::new(self.len - at as u16);
        self.len = at as u16;
        self.last_event_by = None;
        upper.device_tables = self.device_tables;
        upper.presence = self.presence.iter_mut().map(|p| p.split_off(at)).collect();
        if let Some(rare) = &mut self.rare {
            rare.thrashing = None;
            let upper_rare = upper.rare();
            upper_rare.duplicated = rare.duplicated.split_off(at);
            upper_rare.discarded = rare.discarded.split_off(at);
        }
        upper
    }
}

/// Bytes of a state with this many processors, one run of pages each.
#[cfg(test)]
pub(super) fn bytes_of_state(processors: usize) -> usize {
    size_of::<BlockState>() + processors * size_of::<Presence>()
}
