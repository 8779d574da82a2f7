//! The arrays of a batch call: how long they are, where groups start, and which one is left out.

use std::ptr::null;

use super::world::World;

/// Which array is left out, if there is one of that number.
pub(super) struct Absent(u64);

impl Absent {
    pub(super) fn choose(world: &mut World<'_, '_>) -> Self {
        Self(world.choices.below(32))
    }

    /// An array, unless it is the one that is left out.
    pub(super) fn or_null<T>(&self, index: u64, items: &[T]) -> *const T {
        if self.is(index) { null() } else { items.as_ptr() }
    }

    pub(super) fn is(&self, index: u64) -> bool {
        self.0 == index
    }
}

/// The length of an array: mostly 1, and always below `most` otherwise.
pub(super) fn length(world: &mut World<'_, '_>, most: u64) -> u64 {
    if world.choices.chance(3, 4) { 1 } else { world.choices.below(most) }
}

/// The first item of a group: mostly as if each group had one.
pub(super) fn start(world: &mut World<'_, '_>, group: usize) -> usize {
    if world.choices.chance(1, 8) { world.small(5) as usize } else { group }
}
