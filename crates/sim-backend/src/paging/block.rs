//! The state of one va_block: who holds which page, who maps it, and the rare flags.
//!
//! Pages are numbered from the block's first page. A block never crosses a 2 MiB boundary; it is
//! shorter than 2 MiB at the end of a range or after a split. Invariants: a page mapped with more
//! permission is also mapped with less; the host's write and atomic mappings are equal; a page that
//! is mapped is resident somewhere; a page resident on two processors is duplicated (uvm_policy 0,
//! 2.6). Decides nothing: the modules that service faults, advice and migrations do.

use super::mask::{PAGES, PageMask, StoredMask};
use super::processor::{ProcId, ProcSet};
use super::thrash::Thrashing;

/// What a mapping allows. Each level includes the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protection {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To write and to update atomically.
    Atomic,
}

impl Protection {
    /// All levels, lowest first.
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Atomic];
}

/// What one processor has of a block.
#[derive(Debug, Clone)]
struct Presence {
    id: ProcId,
    resident: StoredMask,
    /// One mask per [`Protection`]. For the host the last two are equal, so only one is kept, and
    /// the last says which pages it wrote since it maps them to write.
    mapped: [StoredMask; 3],
    /// Pages with memory behind them, resident or not: memory stays when pages leave.
    populated: StoredMask,
}

impl Presence {
    fn new(id: ProcId) -> Self {
        let mapped = Default::default();
        let (resident, populated) = Default::default();
        Self { id, resident, mapped, populated }
    }

    fn level(&self, protection: Protection) -> usize {
        if self.id.is_host() { (protection as usize).min(1) } else { protection as usize }
    }
}

/// What devices' page tables of a block went through, in 16 bits. Decides nothing; takes time when
/// the block goes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceTables(u16);

impl DeviceTables {
    const SMALL: u16 = 1 << 15;
    /// Raised mappings that count.
    const RAISED_MAX: u16 = 512;

    fn raise(&mut self, whole: bool) {
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

/// One va_block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// First page, absolute.
    first_page: u64,
    /// Length in pages.
    len: u16,
    /// Who the last counted faults moved pages to, and how many there were (uvm_policy 3.1).
    pub(super) prefetch_history: Option<(ProcId, u32)>,
    /// Processor and time of the last event that thrashing detection saw.
    pub(super) last_event: Option<(ProcId, u64)>,
    /// What devices' page tables went through.
    pub(super) device_tables: DeviceTables,
    rare: Option<Box<Rare>>,
    /// Sorted by processor.
    presence: Vec<Presence>,
}

impl Block {
    /// A block without a resident page.
    pub(crate) fn new(first_page: u64, len: usize) -> Self {
        debug_assert!(len > 0 && first_page as usize % PAGES + len <= PAGES);
        Self {
            first_page,
            len: len as u16,
            prefetch_history: None,
            last_event: None,
            device_tables: DeviceTables::default(),
            rare: None,
            presence: Vec::new(),
        }
    }

    /// First page, absolute.
    pub(crate) fn first_page(&self) -> u64 {
        self.first_page
    }

    /// Length in pages.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether this is a full 2 MiB block.
    pub(crate) fn is_full_size(&self) -> bool {
        self.len() == PAGES
    }

    /// All pages.
    pub(crate) fn all(&self) -> PageMask {
        PageMask::range(0..self.len())
    }

    /// Address in bytes of a page of this block.
    pub(crate) fn address(&self, page: usize) -> u64 {
        (self.first_page + page as u64) * pagewise_hal::PAGE_BYTES
    }

    fn of(&self, id: ProcId) -> Option<&Presence> {
        self.presence.iter().find(|presence| presence.id == id)
    }

    fn of_mut(&mut self, id: ProcId) -> &mut Presence {
        let at = self.presence.partition_point(|presence| presence.id < id);
        if self.presence.get(at).is_none_or(|presence| presence.id != id) {
            self.presence.reserve_exact(1);
            self.presence.insert(at, Presence::new(id));
        }
        &mut self.presence[at]
    }

    /// Pages resident on a processor.
    pub(crate) fn resident(&self, id: ProcId) -> PageMask {
        self.of(id).map_or(PageMask::EMPTY, |presence| presence.resident.get())
    }

    /// Pages resident anywhere.
    pub(crate) fn resident_anywhere(&self) -> PageMask {
        self.presence.iter().fold(PageMask::EMPTY, |set, p| set | p.resident.get())
    }

    /// Who holds a page.
    pub(crate) fn residents_of(&self, page: usize) -> ProcSet {
        self.procs_where(|presence| presence.resident.contains(page))
    }

    /// Who holds any page.
    pub(crate) fn residents(&self) -> ProcSet {
        self.procs_where(|presence| !presence.resident.is_empty())
    }

    /// Who maps any page.
    pub(crate) fn mappers(&self) -> ProcSet {
        self.procs_where(|presence| !presence.mapped[0].is_empty())
    }

    fn procs_where(&self, test: impl Fn(&Presence) -> bool) -> ProcSet {
        let found = self.presence.iter().filter(|presence| test(presence));
        found.fold(ProcSet::EMPTY, |set, presence| set.with(presence.id))
    }

    /// Makes pages resident on a processor.
    pub(crate) fn add_resident(&mut self, id: ProcId, pages: PageMask) {
        if !pages.is_empty() {
            self.of_mut(id).resident.insert(pages);
        }
    }

    /// Ends the residency of pages on a processor.
    pub(crate) fn remove_resident(&mut self, id: ProcId, pages: PageMask) {
        if let Some(presence) = self.presence.iter_mut().find(|presence| presence.id == id) {
            presence.resident.remove(pages);
        }
    }

    /// Pages that a processor maps with at least this permission.
    pub(crate) fn mapped(&self, id: ProcId, at_least: Protection) -> PageMask {
        self.of(id).map_or(PageMask::EMPTY, |p| p.mapped[p.level(at_least)].get())
    }

    /// Pages that any processor maps.
    pub(crate) fn mapped_anywhere(&self) -> PageMask {
        self.presence.iter().fold(PageMask::EMPTY, |set, p| set | p.mapped[0].get())
    }

    /// Raises a processor's mapping of pages to at least this permission.
    pub(crate) fn map(&mut self, id: ProcId, pages: PageMask, protection: Protection) {
        if pages.is_empty() {
            return;
        }
        let presence = self.of_mut(id);
        let level = presence.level(protection);
        presence.mapped[..=level].iter_mut().for_each(|mask| mask.insert(pages));
    }

    /// Lowers a processor's mapping of pages to at most this permission; `None` unmaps.
    pub(crate) fn lower(&mut self, id: ProcId, pages: PageMask, at_most: Option<Protection>) {
        if let Some(presence) = self.presence.iter_mut().find(|presence| presence.id == id) {
            let keep = at_most.map_or(0, |protection| presence.level(protection) + 1);
            presence.mapped[keep..].iter_mut().for_each(|mask| mask.remove(pages));
        }
    }

    /// Pages that have memory on a processor, resident or not.
    pub(crate) fn populated(&self, id: ProcId) -> PageMask {
        self.of(id).map_or(PageMask::EMPTY, |presence| presence.populated.get())
    }

    /// Notes that pages have memory on a processor.
    pub(crate) fn populate(&mut self, id: ProcId, pages: PageMask) {
        self.of_mut(id).populated.insert(pages);
    }

    /// Notes that pages no longer have memory on a processor.
    pub(crate) fn depopulate(&mut self, id: ProcId, pages: PageMask) {
        self.of_mut(id).populated.remove(pages);
    }

    /// The chunks of host memory that pages without any get: all of a full block that has none yet,
    /// else 64 KiB where they fit in and are free, else single pages.
    pub(super) fn host_chunks_for(&self, pages: PageMask) -> PageMask {
        const BIG: usize = 16;
        let taken = self.populated(ProcId::HOST);
        if self.is_full_size() && taken.is_empty() {
            return self.all();
        }
        let misaligned = (self.first_page % BIG as u64) as usize;
        let mut given = PageMask::EMPTY;
        for page in pages.pages() {
            let aligned = (page + misaligned) / BIG * BIG;
            let start = aligned.checked_sub(misaligned);
            let big = start.map(|start| start..start + BIG).filter(|big| big.end <= self.len());
            match big.map(PageMask::range) {
                Some(big) if !big.intersects(&taken) => given.insert_mask(big),
                _ => given.insert(page),
            }
        }
        given
    }

    /// Notes that a processor's mapping of pages was raised.
    pub(super) fn note_device_mapping(&mut self, id: ProcId, pages: PageMask) {
        if !id.is_host() && !pages.is_empty() {
            self.device_tables.raise(pages == self.all());
        }
    }

    /// Pages that the host wrote since it maps them to write.
    pub(super) fn host_written(&self) -> PageMask {
        self.of(ProcId::HOST).map_or(PageMask::EMPTY, |host| host.mapped[2].get())
    }

    /// Notes pages that the host wrote.
    pub(super) fn add_host_written(&mut self, pages: PageMask) {
        self.of_mut(ProcId::HOST).mapped[2].insert(pages);
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

    /// Pages whose contents were discarded.
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

    /// What thrashing detection knows about single pages, if anything.
    pub(crate) fn thrashing(&self) -> Option<&Thrashing> {
        self.rare.as_ref()?.thrashing.as_ref()
    }

    /// Like [`thrashing`](Self::thrashing), to change it.
    pub(crate) fn thrashing_mut(&mut self) -> Option<&mut Thrashing> {
        self.rare.as_mut()?.thrashing.as_mut()
    }

    /// Starts or drops what thrashing detection knows about single pages.
    pub(crate) fn set_thrashing(&mut self, thrashing: Option<Thrashing>) {
        if thrashing.is_some() || self.rare.is_some() {
            self.rare().thrashing = thrashing;
        }
    }

    /// Pages found to thrash.
    pub(crate) fn thrashing_pages(&self) -> PageMask {
        self.thrashing().map_or(PageMask::EMPTY, Thrashing::marked)
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Cuts the block at a page: keeps what is below it, returns the rest as a block of its own.
    /// What thrashing detection knew is dropped on both sides (rules_paging 2, detail 4).
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        debug_assert!(at > 0 && at < self.len());
        let mut upper = Self::new(self.first_page + at as u64, self.len() - at);
        self.len = at as u16;
        self.last_event = None;
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

impl Presence {
    fn split_off(&mut self, at: usize) -> Self {
        Self {
            id: self.id,
            resident: self.resident.split_off(at),
            mapped: self.mapped.each_mut().map(|mask| mask.split_off(at)),
            populated: self.populated.split_off(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU0: ProcId = ProcId(1);

    #[test]
    fn a_quiet_block_stays_within_256_bytes() {
        let bytes = size_of::<Block>() + 2 * size_of::<Presence>();
        assert!(bytes <= 256, "{bytes} bytes");
    }

    #[test]
    fn more_permission_includes_less_and_lowering_keeps_the_rest() {
        let mut block = Block::new(0, 512);
        block.map(GPU0, PageMask::range(0..8), Protection::Atomic);
        block.lower(GPU0, PageMask::range(0..4), Some(Protection::Read));
        assert_eq!(block.mapped(GPU0, Protection::Read), PageMask::range(0..8));
        assert_eq!(block.mapped(GPU0, Protection::Write), PageMask::range(4..8));
        block.lower(GPU0, PageMask::range(0..6), None);
        assert_eq!(block.mapped_anywhere(), PageMask::range(6..8));
    }

    #[test]
    fn for_the_host_write_is_atomic() {
        let mut block = Block::new(0, 512);
        block.map(ProcId::HOST, PageMask::single(3), Protection::Write);
        assert!(block.mapped(ProcId::HOST, Protection::Atomic).contains(3));
    }

    #[test]
    fn a_split_cuts_every_mask_at_the_page() {
        let mut block = Block::new(512, 512);
        block.add_resident(GPU0, PageMask::range(90..110));
        block.map(GPU0, PageMask::range(95..105), Protection::Write);
        block.add_discarded(PageMask::range(99..101));
        let upper = block.split_off(100);
        assert_eq!((block.len(), upper.len(), upper.first_page()), (100, 412, 612));
        assert_eq!(block.resident(GPU0), PageMask::range(90..100));
        assert_eq!(upper.resident(GPU0), PageMask::range(0..10));
        assert_eq!(upper.mapped(GPU0, Protection::Write), PageMask::range(0..5));
        assert_eq!(block.discarded(), PageMask::single(99));
        assert_eq!(upper.discarded(), PageMask::single(0));
    }
}
