//! Tables by GiB of the address space, for what is kept by 2 MiB slot.
#![allow(clippy::arithmetic_side_effects, reason = "a table has at least one slot")]

use std::ops::Range;

/// Slots of 2 MiB that a table is for.
pub(super) const SLOTS: u64 = 512;

/// A table for each GiB in which there is something. Slots come and go with each eviction, tables
/// seldom: so they are in one sorted list, in which a look is short.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables<T>(Vec<(u64, T)>);

/// The number of the table that a slot is in, and the slot's place there.
#[inline]
pub(super) fn place(slot: u64) -> (u64, usize) {
    (slot / SLOTS, (slot % SLOTS) as usize)
}

impl<T> Tables<T> {
    #[inline]
    fn find(&self, number: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&number, |(number, _)| *number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let at = self.find(number).ok()?;
        self.0.get(at).map(|(_, table)| table)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = self.find(number).ok()?;
        self.0.get_mut(at).map(|(_, table)| table)
    }

    /// The table with a number, begun if there is none.
    #[inline]
    pub(super) fn get_or_begin(&mut self, number: u64) -> &mut T
    where
        T: Default,
    {
        let at = self.find(number).unwrap_or_else(|at| {
            self.0.insert(at, (number, T::default()));
            at
        });
        &mut self.0[at].1
    }

    pub(super) fn remove(&mut self, number: u64) {
        if let Ok(at) = self.find(number) {
            self.0.remove(at);
        }
    }

    /// The tables with these numbers, ascending.
    pub(super) fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &T)> {
        let from = self.0.partition_point(|(number, _)| *number < numbers.start);
        let tables = self.0[from..].iter().map(|(number, table)| (*number, table));
        tables.take_while(move |(number, _)| *number < numbers.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order_however_they_came_until_they_are_removed() {
        let mut tables = Tables::<u64>::default();
        for number in [7, 2, 9, 2, 0] {
            *tables.get_or_begin(number) += 1;
        }
        tables.remove(9);
        tables.remove(5);
        assert_eq!((tables.get(2), tables.get(9)), (Some(&2), None));
        let numbers = |range| tables.range(range).map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!((numbers(0..100), numbers(1..7)), (vec![0, 2, 7], vec![2]));
    }
}
