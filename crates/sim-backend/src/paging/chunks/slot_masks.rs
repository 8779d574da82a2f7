//! Sets of pages by 2 MiB slot of the address space.
#![allow(clippy::arithmetic_side_effects, reason = "slots of pages, and of tables of 512")]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::super::mask::{PageMask, StoredMask};

/// A table for each GiB of the address space in which there are pages: sets come and go with each
/// eviction, tables seldom.
#[derive(Clone, Default)]
pub(super) struct SlotMasks(BTreeMap<u64, Table>);

#[derive(Clone)]
struct Table {
    /// Slots with pages.
    used: usize,
    masks: Box<[StoredMask]>,
}

impl Table {
    const SLOTS: u64 = 512;

    fn new() -> Self {
        Self { used: 0, masks: vec![StoredMask::default(); Self::SLOTS as usize].into() }
    }
}

impl SlotMasks {
    fn place(slot: u64) -> (u64, usize) {
        (slot / Table::SLOTS, (slot % Table::SLOTS) as usize)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds pages of a slot, at least one.
    pub(super) fn insert(&mut self, slot: u64, pages: PageMask) {
        debug_assert!(!pages.is_empty());
        let (key, index) = Self::place(slot);
        let table = self.0.entry(key).or_insert_with(Table::new);
        let mask = &mut table.masks[index];
        let was_empty = mask.is_empty();
        mask.insert(pages);
        table.used += usize::from(was_empty && !mask.is_empty());
    }

    /// Removes pages of a slot; returns how many of them it had.
    pub(super) fn remove(&mut self, slot: u64, pages: PageMask) -> usize {
        let (key, index) = Self::place(slot);
        let Some(table) = self.0.get_mut(&key) else { return 0 };
        let mask = &mut table.masks[index];
        if mask.is_empty() {
            return 0;
        }
        let removed = (mask.get() & pages).count();
        mask.remove(pages);
        if mask.is_empty() {
            table.used -= 1;
            if table.used == 0 {
                self.0.remove(&key);
            }
        }
        removed
    }

    /// The slots among these with pages, ascending.
    pub(super) fn slots(&self, among: Range<u64>) -> Vec<u64> {
        let tables = among.start / Table::SLOTS..among.end.div_ceil(Table::SLOTS);
        let slots = self.0.range(tables).flat_map(|(key, table)| {
            let of_table = (key * Table::SLOTS..).zip(&table.masks);
            of_table.filter(|(_, mask)| !mask.is_empty()).map(|(slot, _)| slot)
        });
        slots.filter(|slot| among.contains(slot)).collect()
    }
}

impl fmt::Debug for SlotMasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots(0..u64::MAX);
        let mask = |slot: u64| {
            let (key, index) = Self::place(slot);
            self.0.get(&key).map(|table| &table.masks[index])
        };
        f.debug_map().entries(slots.into_iter().map(|slot| (slot, mask(slot)))).finish()
    }
}
