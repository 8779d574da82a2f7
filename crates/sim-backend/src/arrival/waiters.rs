//! The units that wait for pages, by the place of the page.
#![allow(clippy::arithmetic_side_effects, reason = "waiters are counted, fewer than 2^32")]

use super::faults::WORD_PAGES;

/// Lists of waiters: all places, of 256 KiB each, with the same number modulo this share one.
const LISTS: usize = 1024;
/// No waiter.
const NONE: u32 = u32::MAX;

/// A unit that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiter {
    /// The page that it misses.
    pub(super) page: u64,
    /// The number of the walk that the access is of.
    pub(super) walk: u32,
    pub(super) multiprocessor: u32,
    /// Its number there.
    pub(super) unit: u32,
}

/// Where a waiter is from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It waits for the same page.
    Stays,
    /// It waits for this page, for an access of a walk.
    Waits { page: u64, walk: u32 },
    /// It waits for none.
    Leaves,
}

/// A waiter in the list of its place.
#[derive(Debug, Clone, Copy)]
struct Node {
    waiter: Waiter,
    next: u32,
}

/// Waiters in lists by place.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// The first of each list. Empty before the first waiter: most kernels have none.
    first: Vec<u32>,
    nodes: Vec<Node>,
    /// The nodes that are in no list.
    free: Vec<u32>,
}

impl Waiters {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.first.fill(NONE);
        self.nodes.clear();
        self.free.clear();
    }

    /// Puts one in the list of its place.
    pub(super) fn insert(&mut self, waiter: Waiter) {
        self.first.resize(LISTS, NONE);
        let node = Node { waiter, next: NONE };
        match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                self.link(at);
            }
            None => {
                self.nodes.push(node);
                self.link(self.nodes.len() as u32 - 1);
            }
        }
    }

    /// Puts a node in the list of its place.
    fn link(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        let first = &mut self.first[(node.waiter.page / WORD_PAGES) as usize % LISTS];
        node.next = std::mem::replace(first, at);
    }

    /// Asks each waiter for a page of the place that holds `page` where it is from now on.
    pub(super) fn visit(&mut self, page: u64, mut then: impl FnMut(&Waiter) -> Then) {
        let place = page / WORD_PAGES;
        self.visit_list(place as usize % LISTS, |waiter| {
            let is_here = waiter.page / WORD_PAGES == place;
            if is_here { then(waiter) } else { Then::Stays }
        });
    }

    /// Asks each waiter at least once.
    pub(super) fn visit_all(&mut self, mut then: impl FnMut(&Waiter) -> Then) {
        (0..self.first.len()).for_each(|list| self.visit_list(list, &mut then));
    }

    #[inline]
    fn visit_list(&mut self, list: usize, mut then: impl FnMut(&Waiter) -> Then) {
        let mut at = self.first.get_mut(list).map_or(NONE, |first| std::mem::replace(first, NONE));
        while at != NONE {
            let Node { waiter, next } = &mut self.nodes[at as usize];
            let behind = *next;
            match then(waiter) {
                Then::Stays => self.link(at),
                Then::Waits { page, walk } => {
                    (waiter.page, waiter.walk) = (page, walk);
                    self.link(at);
                }
                Then::Leaves => self.free.push(at),
            }
            at = behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The units that wait for a page of a place, ascending.
    fn at(waiters: &mut Waiters, page: u64) -> Vec<u32> {
        let mut units = Vec::new();
        waiters.visit(page, |waiter| {
            units.push(waiter.unit);
            Then::Stays
        });
        units.sort_unstable();
        units
    }

    #[test]
    fn waiters_are_found_where_they_wait_until_they_leave() {
        let mut waiters = Waiters::default();
        let far = WORD_PAGES * LISTS as u64;
        let waiter = |(page, unit)| Waiter { page, walk: 0, multiprocessor: 0, unit };
        let pages = [0, 63, 64, far, far + 63];
        pages.into_iter().zip(0..).map(waiter).for_each(|waiter| waiters.insert(waiter));
        assert_eq!(
            [0, 64, far].map(|page| at(&mut waiters, page)),
            [vec![0, 1], vec![2], vec![3, 4]]
        );
        // One goes on within its place, one to another place, one leaves.
        waiters.visit(20, |waiter| Then::Waits {
            page: if waiter.unit == 0 { 7 } else { 65 },
            walk: 0,
        });
        waiters.visit(far, |waiter| if waiter.unit == 3 { Then::Leaves } else { Then::Stays });
        assert_eq!([0, 64, far].map(|page| at(&mut waiters, page)), [vec![0], vec![1, 2], vec![4]]);
        assert_eq!(waiters.count(), 4);
        // The place of the one that left is taken again.
        waiters.insert(waiter((far, 5)));
        assert_eq!((at(&mut waiters, far), waiters.nodes.len()), (vec![4, 5], 5));
        waiters.clear();
        assert_eq!((at(&mut waiters, 0), waiters.count()), (vec![], 0));
    }
}
