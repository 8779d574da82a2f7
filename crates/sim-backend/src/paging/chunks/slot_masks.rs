//! Sets of pages by 2 MiB slot of the address space.
#![allow(clippy::arithmetic_side_effects, reason = "slots of pages, and of tables of 512")]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::super::mask::{PAGES, PageMask};
use super::tables::{SLOTS, Tables, place};

/// Sets of pages, by slot.
#[derive(Clone, Default)]
pub(super) struct SlotMasks(Tables<Table>);

/// Sets of pages of 512 slots. Nearly all are empty, or all of a slot.
#[derive(Clone, Default)]
struct Table {
    /// A bit for each slot with all of its pages.
    whole: PageMask,
    /// The pages of slots with some.
    some: BTreeMap<usize, PageMask>,
}

impl Table {
    fn all() -> PageMask {
        PageMask::range(0..PAGES)
    }

    fn get(&self, index: usize) -> PageMask {
        match self.whole.contains(index) {
            true => Self::all(),
            false => self.some.get(&index).copied().unwrap_or_default(),
        }
    }

    fn set(&mut self, index: usize, pages: PageMask) {
        let is_whole = pages == Self::all();
        self.whole.set(index, is_whole);
        if is_whole || pages.is_empty() {
            self.some.remove(&index);
        } else {
            self.some.insert(index, pages);
        }
    }

    fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.some.is_empty()
    }

    /// Slots with pages, ascending.
    fn slots(&self) -> impl Iterator<Item = usize> {
        let some =
            self.some.keys().fold(PageMask::EMPTY, |slots, slot| slots | PageMask::single(*slot));
        (self.whole | some).pages()
    }
}

impl SlotMasks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds pages of a slot, at least one.
    pub(super) fn insert(&mut self, slot: u64, pages: PageMask) {
        debug_assert!(!pages.is_empty());
        let (number, index) = place(slot);
        let table = self.0.get_or_begin(number);
        table.set(index, table.get(index) | pages);
    }

    /// Adds all pages of a slot.
    pub(super) fn insert_all(&mut self, slot: u64) {
        let (number, index) = place(slot);
        let table = self.0.get_or_begin(number);
        table.whole.insert(index);
        table.some.remove(&index);
    }

    /// Removes all pages of a slot; returns how many it had.
    pub(super) fn remove_all(&mut self, slot: u64) -> usize {
        let (number, index) = place(slot);
        let Some(table) = self.0.get_mut(number) else { return 0 };
        let before = match table.whole.contains(index) {
            true => PAGES,
            false => table.some.remove(&index).map_or(0, |pages| pages.count()),
        };
        table.whole.set(index, false);
        if table.is_empty() {
            self.0.remove(number);
        }
        before
    }

    /// Removes pages of a slot; returns how many of them it had.
    pub(super) fn remove(&mut self, slot: u64, pages: PageMask) -> usize {
        let (number, index) = place(slot);
        let Some(table) = self.0.get_mut(number) else { return 0 };
        let before = table.get(index);
        if before.is_empty() {
            return 0;
        }
        table.set(index, before.minus(pages));
        if table.is_empty() {
            self.0.remove(number);
        }
        (before & pages).count()
    }

    /// The slots among these with pages, ascending.
    pub(super) fn slots(&self, among: Range<u64>) -> Vec<u64> {
        let tables = among.start / SLOTS..among.end.div_ceil(SLOTS);
        let slots = self.0.range(tables).flat_map(|(number, table)| {
            table.slots().map(move |index| number * SLOTS + index as u64)
        });
        slots.filter(|slot| among.contains(slot)).collect()
    }
}

impl fmt::Debug for SlotMasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots(0..u64::MAX);
        let mask = |slot: u64| {
            let (number, index) = place(slot);
            self.0.get(number).map(|table| table.get(index))
        };
        f.debug_map().entries(slots.into_iter().map(|slot| (slot, mask(slot)))).finish()
    }
}
