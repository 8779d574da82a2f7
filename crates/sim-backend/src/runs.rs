//! Runs of pages with equal values, inside regions that never join.
//!
//! A region is one managed allocation, or one slab with all of its small allocations. Every page of
//! a region belongs to exactly one run; runs are maximal: neighbours in a region differ.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::floor::at_or_before;

/// A run of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run<V> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) value: V,
}

#[derive(Debug, Clone, Copy)]
struct Entry<V> {
    end: u64,
    value: V,
    /// First page of the region.
    region: u64,
}

impl<V: Eq> Entry<V> {
    /// Whether this and an entry that starts there are one run.
    fn goes_on_with(&self, start: u64, right: &Self) -> bool {
        self.end == start && self.region == right.region && self.value == right.value
    }
}

/// A map from page to value, as maximal runs.
#[derive(Debug, Clone)]
pub(crate) struct Runs<V> {
    /// First page of each run.
    entries: BTreeMap<u64, Entry<V>>,
}

impl<V> Default for Runs<V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<V: Copy + Eq> Runs<V> {
    /// Adds a region of pages that all have one value.
    pub(crate) fn add_region(&mut self, pages: Range<u64>, value: V) {
        debug_assert!(self.containing(pages.start).is_none(), "regions do not overlap");
        self.entries.insert(pages.start, Entry { end: pages.end, value, region: pages.start });
    }

    /// Forgets a region.
    pub(crate) fn remove_region(&mut self, pages: Range<u64>) {
        while let Some((&start, _)) = self.entries.range(pages.clone()).next() {
            self.entries.remove(&start);
        }
    }

    /// Adds the region that holds a page, as another map has it.
    pub(crate) fn copy_region(&mut self, from: &Self, page: u64) {
        let Some((_, Entry { region, .. })) = from.entry_of(page) else { return };
        let of_region = from.entries.range(region..);
        let of_region = of_region.take_while(|(_, entry)| entry.region == *region);
        self.entries.extend(of_region.map(|(&start, &entry)| (start, entry)));
    }

    /// The run that holds a page, or `None` outside every region.
    pub(crate) fn containing(&self, page: u64) -> Option<Run<V>> {
        let (start, entry) = self.entry_of(page)?;
        Some(Run { start, end: entry.end, value: entry.value })
    }

    fn entry_of(&self, page: u64) -> Option<(u64, &Entry<V>)> {
        let (start, entry) = at_or_before(&self.entries, page)?;
        (page < entry.end).then_some((start, entry))
    }

    /// Changes the values of `pages`, which lie in one region. `change` must leave a value as it is that
    /// it gave: pages that have the value already which those before them get are left out.
    pub(crate) fn update(&mut self, pages: Range<u64>, change: impl Fn(&mut V)) {
        let mut at = pages.start;
        while at < pages.end {
            let Some(changed) = self.update_run(at, &pages, &change) else { return };
            at = changed.end;
        }
    }

    /// Changes the values of `pages` if one run holds them all. Returns whether it does.
    pub(crate) fn update_one_run(&mut self, pages: &Range<u64>, change: impl Fn(&mut V)) -> bool {
        match self.entry_of(pages.start) {
            Some((start, &run)) if pages.end <= run.end => {
                self.change_run((start, run), pages.clone(), change);
                true
            }
            _ => false,
        }
    }

    /// Changes those of `pages` that are in the run of one of them, `page`. Returns the run that they
    /// are in then; `None` outside every region.
    pub(crate) fn update_run(
        &mut self,
        page: u64,
        pages: &Range<u64>,
        change: impl Fn(&mut V),
    ) -> Option<Range<u64>> {
        let (start, &run) = self.entry_of(page)?;
        let pages = pages.start.max(start)..pages.end.min(run.end);
        Some(self.change_run((start, run), pages, change))
    }

    /// Changes pages of a run. Returns the run that they are in then.
    fn change_run(
        &mut self,
        (start, run): (u64, Entry<V>),
        pages: Range<u64>,
        change: impl Fn(&mut V),
    ) -> Range<u64> {
        let mut changed = Entry { end: pages.end, ..run };
        change(&mut changed.value);
        if changed.value == run.value {
            return start..run.end; // Many changes repeat the one before.
        }
        if pages.end < run.end {
            self.entries.insert(pages.end, run);
        } else if let Some(right) = self.entries.get(&run.end)
            && changed.goes_on_with(run.end, right)
        {
            changed.end = right.end;
            self.entries.remove(&run.end);
        }
        if start < pages.start {
            self.entries.insert(start, Entry { end: pages.start, ..run });
        } else if let Some((&first, left)) = self.entries.range_mut(..start).next_back()
            && left.goes_on_with(start, &changed)
        {
            left.end = changed.end;
            self.entries.remove(&start);
            return first..changed.end;
        }
        self.entries.insert(pages.start, changed);
        pages.start..changed.end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(runs: &Runs<u8>, pages: Range<u64>) -> Vec<u8> {
        pages.map(|page| runs.containing(page).unwrap().value).collect()
    }

    #[test]
    fn equal_neighbours_join_within_a_region_only() {
        let mut runs = Runs::default();
        runs.add_region(0..10, 0);
        runs.add_region(10..20, 0);
        runs.update(4..10, |value| *value = 1);
        runs.update(10..16, |value| *value = 1);
        assert_eq!(runs.containing(9), Some(Run { start: 4, end: 10, value: 1 }));
        runs.update(4..10, |value| *value = 0);
        assert_eq!(runs.containing(9), Some(Run { start: 0, end: 10, value: 0 }));
        runs.remove_region(0..10);
        assert_eq!(runs.containing(9), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn runs_hold_what_a_plain_array_holds_and_are_maximal(
            updates in prop::collection::vec((0u64..128, 1u64..64, 0u8..3), 0..60),
        ) {
            let mut runs = Runs::default();
            runs.add_region(0..64, 0);
            runs.add_region(64..128, 0);
            let mut array = vec![0u8; 128];
            for (start, length, value) in updates {
                let end = (start + length).min(start / 64 * 64 + 64);
                runs.update(start..end, |old| *old = value);
                array[start as usize..end as usize].fill(value);
            }
            prop_assert_eq!(&values(&runs, 0..128), &array);
            let entries: Vec<_> = runs.entries.iter().collect();
            for pair in entries.windows(2) {
                let (start, right) = pair[1];
                prop_assert_eq!(pair[0].1.end, *start);
                prop_assert!(*start == 64 || pair[0].1.value != right.value);
            }
            let mut copy = Runs::default();
            copy.copy_region(&runs, 100);
            prop_assert_eq!(values(&copy, 64..128), &array[64..]);
            prop_assert_eq!(copy.containing(63), None);
        }
    }
}
