//! Attributes of managed pages, as reads report them: advice and last prefetch location.
//!
//! Two descriptions stand side by side: the truth per page, and what driver 580 believes. Every
//! change goes to both; the configuration says which one answers. Where pages *move* is the paging
//! engine's business and follows neither.
//!
//! # What driver 580 believes
//!
//! The driver keeps all attributes of a page together, in maximal runs of pages with equal
//! attributes, and both reading and writing walk the runs with a cursor that advances by the
//! length of the *whole* run it stands in, not by what is left of it. So a read may jump over
//! pages that differ, and a write or an unset may leave its tail as it was (CONTRACT-61,
//! CONTRACT-62).

use std::ops::Range;

use pagewise_hal::{Location, Processor};

use crate::config::RangeReads;
use crate::runs::Runs;

/// A set of processors: bit 0 the host, bit n + 1 GPU n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProcessorBits(u64);

impl ProcessorBits {
    fn bit(processor: Processor) -> u64 {
        1 << processor.device_ordinal().map_or(0, |ordinal| ordinal + 1)
    }

    fn contains(self, processor: Processor) -> bool {
        self.0 & Self::bit(processor) != 0
    }

    fn set(&mut self, processor: Processor, on: bool) {
        if on {
            self.0 |= Self::bit(processor);
        } else {
            self.0 &= !Self::bit(processor);
        }
    }
}

/// All attributes of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PageAttributes {
    read_mostly: bool,
    preferred: Option<Location>,
    last_prefetch: Option<Location>,
    accessed_by: ProcessorBits,
}

/// A change to one attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeChange {
    ReadMostly(bool),
    Preferred(Option<Location>),
    LastPrefetch(Location),
    AccessedBy(Processor, bool),
}

impl AttributeChange {
    fn apply(self, page: &mut PageAttributes) {
        match self {
            Self::ReadMostly(on) => page.read_mostly = on,
            Self::Preferred(location) => page.preferred = location,
            Self::LastPrefetch(location) => page.last_prefetch = Some(location),
            Self::AccessedBy(processor, on) => page.accessed_by.set(processor, on),
        }
    }
}

/// All attributes of all managed pages. Ranges are page numbers, never empty, inside one region.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attributes {
    truth: Runs<PageAttributes>,
    /// The beliefs of the driver, in regions where they may differ from the truth.
    driver: Runs<PageAttributes>,
}

impl Attributes {
    /// A managed allocation, a slab or the region of a pool appeared: nothing is set.
    pub(crate) fn add_region(&mut self, pages: Range<u64>) {
        self.truth.add_region(pages, PageAttributes::default());
    }

    /// It went.
    pub(crate) fn remove_region(&mut self, pages: Range<u64>) {
        self.truth.remove_region(pages.clone());
        self.driver.remove_region(pages);
    }

    /// Memory of a pool appeared in its region, where some may have been before: the driver keeps
    /// where that was last asked to go (CONTRACT-64).
    pub(crate) fn add_pool_memory(&mut self, pages: &Range<u64>) {
        let keep = |page: &mut PageAttributes| {
            let last_prefetch = page.last_prefetch;
            *page = PageAttributes { last_prefetch, ..PageAttributes::default() };
        };
        self.truth.update(pages.clone(), keep);
        if self.driver.containing(pages.start).is_some() {
            self.driver.update(pages.clone(), keep);
        }
    }

    /// Changes one attribute of a range.
    pub(crate) fn change(&mut self, pages: Range<u64>, change: AttributeChange) {
        self.write(pages, |page| change.apply(page));
    }

    /// An allocation of a slab was freed: all attributes of all pages that it touched are gone, also
    /// for a neighbour on the same page, as far as the driver's cursor comes (CONTRACT-63).
    pub(crate) fn forget(&mut self, pages: Range<u64>) {
        self.write(pages, |page| *page = PageAttributes::default());
    }

    fn write(&mut self, pages: Range<u64>, change: impl Fn(&mut PageAttributes)) {
        if self.driver.containing(pages.start).is_none() {
            // The driver's cursor jumps over no page of a run that it begins in.
            if self.truth.update_one_run(&pages, &change) {
                return;
            }
            self.driver.copy_region(&self.truth, pages.start);
        }
        write_like_the_driver(&mut self.driver, &pages, &change);
        self.truth.update(pages, change);
    }

    /// Whether the range is read-mostly.
    pub(crate) fn read_mostly(&self, pages: &Range<u64>, mode: RangeReads) -> bool {
        self.uniform(pages, mode, |page| page.read_mostly.then_some(())).is_some()
    }

    /// The range's preferred location; `None` for none or mixed.
    pub(crate) fn preferred(&self, pages: &Range<u64>, mode: RangeReads) -> Option<Location> {
        self.uniform(pages, mode, |page| page.preferred)
    }

    /// Where the range was last asked to go; `None` for never or mixed.
    pub(crate) fn last_prefetch(&self, pages: &Range<u64>, mode: RangeReads) -> Option<Location> {
        self.uniform(pages, mode, |page| page.last_prefetch)
    }

    /// Whether a processor is advised as accessing the range.
    pub(crate) fn is_accessed_by(
        &self,
        pages: &Range<u64>,
        mode: RangeReads,
        processor: Processor,
    ) -> bool {
        let has = |page: &PageAttributes| page.accessed_by.contains(processor).then_some(());
        self.uniform(pages, mode, has).is_some()
    }

    /// The value that every run met has, or `None`.
    fn uniform<V: PartialEq>(
        &self,
        pages: &Range<u64>,
        mode: RangeReads,
        get: impl Fn(&PageAttributes) -> Option<V>,
    ) -> Option<V> {
        let differs = || self.driver.containing(pages.start).is_some();
        let runs = if mode == RangeReads::Driver && differs() { &self.driver } else { &self.truth };
        let mut first = None;
        let mut cursor = pages.start;
        while cursor < pages.end {
            let run = runs.containing(cursor)?;
            let value = get(&run.value)?;
            if first.as_ref().is_some_and(|first| *first != value) {
                return None;
            }
            first = Some(value);
            cursor = match mode {
                RangeReads::Pages => run.end,
                RangeReads::Driver => cursor + (run.end - run.start),
            };
        }
        first
    }
}

/// Writes with the driver's overshooting cursor: the run is measured after cutting and joining.
fn write_like_the_driver(
    runs: &mut Runs<PageAttributes>,
    pages: &Range<u64>,
    change: impl Fn(&mut PageAttributes),
) {
    let mut cursor = pages.start;
    while cursor < pages.end {
        let Some(joined) = runs.update_run(cursor, pages, &change) else { return };
        cursor += joined.end - joined.start;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MODES: [RangeReads; 2] = [RangeReads::Pages, RangeReads::Driver];
    const GPU1: Processor = Processor::device(1);

    fn region(pages: u64) -> Attributes {
        let mut attributes = Attributes::default();
        attributes.add_region(0..pages);
        attributes
    }

    #[test]
    fn both_reads_agree_on_a_simple_history() {
        let mut attributes = region(1024);
        attributes.change(0..512, AttributeChange::ReadMostly(true));
        attributes.change(0..512, AttributeChange::AccessedBy(Processor::HOST, true));
        attributes.change(0..512, AttributeChange::AccessedBy(GPU1, true));
        attributes.change(256..512, AttributeChange::AccessedBy(Processor::HOST, false));
        for mode in MODES {
            assert!(attributes.read_mostly(&(0..512), mode));
            assert!(!attributes.read_mostly(&(512..513), mode));
            let by = |pages, processor| attributes.is_accessed_by(&pages, mode, processor);
            assert!(by(0..256, Processor::HOST) && by(0..512, GPU1));
            assert!(!by(0..512, Processor::HOST));
        }
        attributes.forget(0..512);
        assert!(MODES.iter().all(|&mode| !attributes.read_mostly(&(0..1), mode)));
    }

    #[test]
    fn a_driver_read_from_inside_a_run_overshoots_and_a_page_read_does_not() {
        let mut attributes = region(1024);
        attributes.change(38..550, AttributeChange::ReadMostly(true));
        let read = 196..708;
        assert!(attributes.read_mostly(&read, RangeReads::Driver), "CONTRACT-61");
        assert!(!attributes.read_mostly(&read, RangeReads::Pages));
    }

    #[test]
    fn a_driver_write_over_a_run_leaves_its_tail_unset() {
        let host = AttributeChange::LastPrefetch(Location::HOST);
        let numa = Location::host_numa(0);
        let mut attributes = region(512);
        attributes.change(335..352, host);
        attributes.change(0..512, AttributeChange::LastPrefetch(numa));
        // 0..335 joins 335..352, and the cursor goes on by the joined 352 pages, past the end.
        let read = |attributes: &Attributes, mode| attributes.last_prefetch(&(0..512), mode);
        assert_eq!(read(&attributes, RangeReads::Driver), None, "CONTRACT-62");
        assert_eq!(read(&attributes, RangeReads::Pages), Some(numa));
        attributes.change(0..512, AttributeChange::LastPrefetch(numa));
        assert_eq!(read(&attributes, RangeReads::Driver), Some(numa), "a second write repairs it");
    }

    fn change() -> impl Strategy<Value = AttributeChange> {
        prop_oneof![
            any::<bool>().prop_map(AttributeChange::ReadMostly),
            any::<bool>().prop_map(|on| AttributeChange::Preferred(on.then_some(Location::HOST))),
            (0..2).prop_map(|node| AttributeChange::LastPrefetch(Location::host_numa(node))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn the_driver_believes_what_its_cursor_wrote_page_by_page(
            changes in prop::collection::vec((0u64..64, 1u64..64, change()), 0..30),
        ) {
            let mut attributes = Attributes::default();
            attributes.add_region(0..32);
            attributes.add_region(32..64);
            let mut plain = [PageAttributes::default(); 64];
            for (start, length, change) in changes {
                let pages = start..(start + length).min(start / 32 * 32 + 32);
                attributes.change(pages.clone(), change);
                let mut cursor = pages.start;
                while cursor < pages.end {
                    let run = run_of(&plain, cursor);
                    for page in run.start.max(pages.start)..run.end.min(pages.end) {
                        change.apply(&mut plain[page as usize]);
                    }
                    let joined = run_of(&plain, cursor);
                    cursor += joined.end - joined.start;
                }
            }
            for (page, expected) in (0..).zip(plain) {
                let (pages, mode) = (page..page + 1, RangeReads::Driver);
                prop_assert_eq!(attributes.read_mostly(&pages, mode), expected.read_mostly);
                prop_assert_eq!(attributes.preferred(&pages, mode), expected.preferred);
                prop_assert_eq!(attributes.last_prefetch(&pages, mode), expected.last_prefetch);
            }
        }
    }

    /// The pages around one that are equal to it, within its region of 32.
    fn run_of(plain: &[PageAttributes; 64], page: u64) -> Range<u64> {
        let region = page / 32 * 32..page / 32 * 32 + 32;
        let differs = |other: &u64| plain[*other as usize] != plain[page as usize];
        let start =
            (region.start..page).rev().find(differs).map_or(region.start, |other| other + 1);
        start..(page..region.end).find(differs).unwrap_or(region.end)
    }
}
