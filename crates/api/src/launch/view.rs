//! Views of an operand that a kernel accesses in part.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::order::ElementOrder;

/// The elements that a kernel reads, by place: `view[0]` is the element that it reads first.
///
/// Elements that are not declared cannot be reached.
#[derive(Debug)]
pub struct Places<'v, T> {
    pub(super) elements: &'v [T],
    pub(super) order: Arc<ElementOrder>,
}

impl<T> Places<'_, T> {
    /// How many places there are; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an operand has at least one place")]
    pub fn len(&self) -> usize {
        self.order.places()
    }

    /// The element at a place; `None` behind the last.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.elements.get(self.order.element(place)?)
    }

    /// The elements, by place.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|place| self.get(place))
    }
}

/// Panics behind the last place, as a slice does.
impl<T> Index<usize> for Places<'_, T> {
    type Output = T;

    fn index(&self, place: usize) -> &T {
        match self.get(place) {
            Some(element) => element,
            None => no_such_place(place, self.len()),
        }
    }
}

/// The elements that a kernel writes or updates, by place: `view[0]` is the element that it takes
/// first.
///
/// Elements that are not declared cannot be reached.
#[derive(Debug)]
pub struct PlacesMut<'v, T> {
    pub(super) elements: &'v mut [T],
    pub(super) order: Arc<ElementOrder>,
}

impl<T> PlacesMut<'_, T> {
    /// How many places there are; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an operand has at least one place")]
    pub fn len(&self) -> usize {
        self.order.places()
    }

    /// The element at a place; `None` behind the last.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.elements.get(self.order.element(place)?)
    }

    /// The element at a place, to be changed; `None` behind the last.
    #[must_use]
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.elements.get_mut(self.order.element(place)?)
    }
}

/// Panics behind the last place, as a slice does.
impl<T> Index<usize> for PlacesMut<'_, T> {
    type Output = T;

    fn index(&self, place: usize) -> &T {
        match self.get(place) {
            Some(element) => element,
            None => no_such_place(place, self.len()),
        }
    }
}

/// Panics behind the last place, as a slice does.
impl<T> IndexMut<usize> for PlacesMut<'_, T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        let places = self.len();
        match self.get_mut(place) {
            Some(element) => element,
            None => no_such_place(place, places),
        }
    }
}

#[cold]
#[track_caller]
fn no_such_place(place: usize, places: usize) -> ! {
    panic!("place {place} is behind the last of {places} places")
}
