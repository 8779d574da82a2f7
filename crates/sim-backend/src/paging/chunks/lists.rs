//! The lists of root chunks, in the order in which chunks are given up.
//!
//! A list is linked through its chunks, so that a chunk moves from any place to the end of any list
//! in the same time, however many there are. Decides nothing.
#![allow(clippy::arithmetic_side_effects, reason = "moves of chunks are counted, in 62 bits")]

use super::root_id::RootId;

/// A list of root chunks. Those of a lower one are given up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum List {
    /// Chunks without resident pages.
    Unused,
    /// Only discarded pages.
    Discarded,
    /// Data.
    Used,
}

/// Where a chunk is: its list, and the number of the move that put it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    const NOWHERE: Self = Self(0);

    fn new(list: List, number: u64) -> Self {
        Self(number << 2 | list as u64)
    }

    pub(super) fn list(self) -> List {
        match self.0 & 3 {
            0 => List::Unused,
            1 => List::Discarded,
            _ => List::Used,
        }
    }
}

/// A chunk's neighbours on its list.
#[derive(Debug, Clone, Copy)]
struct Link {
    place: Place,
    before: Option<RootId>,
    after: Option<RootId>,
}

/// The ends of a list.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    first: Option<RootId>,
    last: Option<RootId>,
}

/// The lists of all root chunks of a GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Lists {
    links: Vec<Link>,
    ends: [Ends; 3],
    /// Moves so far.
    moves: u64,
}

impl Lists {
    /// One more chunk, on no list.
    pub(super) fn add(&mut self) {
        self.links.push(Link { place: Place::NOWHERE, before: None, after: None });
    }

    /// Where a chunk is, if it is on a list.
    #[inline]
    pub(super) fn place(&self, id: RootId) -> Option<Place> {
        let place = self.links[id.index()].place;
        (place != Place::NOWHERE).then_some(place)
    }

    /// Puts a chunk at the end of a list.
    #[inline]
    pub(super) fn append(&mut self, id: RootId, list: List) {
        self.remove(id);
        self.moves += 1;
        let before = self.ends[list as usize].last.replace(id);
        match before {
            Some(before) => self.links[before.index()].after = Some(id),
            None => self.ends[list as usize].first = Some(id),
        }
        let place = Place::new(list, self.moves);
        self.links[id.index()] = Link { place, before, after: None };
    }

    /// Takes a chunk off its list, if it is on one.
    #[inline]
    pub(super) fn remove(&mut self, id: RootId) {
        let Link { place, before, after } = self.links[id.index()];
        if place == Place::NOWHERE {
            return;
        }
        let ends = &mut self.ends[place.list() as usize];
        match before {
            Some(before) => self.links[before.index()].after = after,
            None => ends.first = after,
        }
        match after {
            Some(after) => self.links[after.index()].before = before,
            None => ends.last = before,
        }
        self.links[id.index()].place = Place::NOWHERE;
    }

    /// The chunk to give up first, of those for which `is_free` holds.
    #[inline]
    pub(super) fn first(&self, is_free: impl Fn(RootId) -> bool) -> Option<RootId> {
        for ends in &self.ends {
            let mut next = ends.first;
            while let Some(id) = next {
                if is_free(id) {
                    return next;
                }
                next = self.links[id.index()].after;
            }
        }
        None
    }

    /// All chunks that are on a list, the one to give up first at the head.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = RootId> {
        let along =
            |first| std::iter::successors(first, |id: &RootId| self.links[id.index()].after);
        self.ends.iter().flat_map(move |ends| along(ends.first))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LISTS: [List; 3] = [List::Unused, List::Discarded, List::Used];

    proptest! {
        #[test]
        fn chunks_are_in_the_order_in_which_they_came(
            moves in prop::collection::vec((0..8u32, 0..4usize), 0..60),
        ) {
            let mut lists = Lists::default();
            (0..8).for_each(|_| lists.add());
            let mut expected: [Vec<RootId>; 3] = Default::default();
            for (chunk, to) in moves {
                let id = RootId::new(chunk);
                expected.iter_mut().for_each(|list| list.retain(|other| *other != id));
                match LISTS.get(to) {
                    Some(&list) => {
                        let before = lists.place(id);
                        lists.append(id, list);
                        expected[to].push(id);
                        let place = lists.place(id).expect("on a list");
                        prop_assert_eq!(place.list(), list);
                        prop_assert_ne!(Some(place), before, "each move is told from the last");
                    }
                    None => {
                        lists.remove(id);
                        prop_assert_eq!(lists.place(id), None);
                    }
                }
                prop_assert!(lists.iter().eq(expected.iter().flatten().copied()));
                let odd = |id: &RootId| id.index() % 2 == 1;
                let first = expected.iter().flatten().copied().find(odd);
                prop_assert_eq!(lists.first(|id| odd(&id)), first);
            }
        }
    }
}
