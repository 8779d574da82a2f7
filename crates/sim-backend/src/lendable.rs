//! State that a call can lend to the readers beside it, without a copy of it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// State that others may read while a call that leaves it alone is under way.
///
/// The state is in one place. A change never finds it lent, because readers give it back before the
/// machine goes on (`reads_beside`). If it were lent all the same, the change would go to a copy, and
/// readers would keep the state from before.
#[derive(Clone, Default)]
pub(crate) struct Lendable<T>(Arc<T>);

impl<T> Lendable<T> {
    pub(crate) fn new(state: T) -> Self {
        Self(Arc::new(state))
    }
}

impl<T> Deref for Lendable<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Lendable<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        debug_assert_eq!(Arc::strong_count(&self.0), 1, "a call changes what it lent");
        Arc::make_mut(&mut self.0)
    }
}

impl<T: fmt::Debug> fmt::Debug for Lendable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
