//! Entries that are noted for a caller who asks for them now and then.

use std::fmt;

/// The entries since they were last asked for, if a caller asks. Not part of the state of a machine.
pub(crate) struct Journal<T>(Option<Vec<T>>);

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialEq> Journal<T> {
    /// Notes from now on.
    pub(crate) fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    /// Notes an entry, once if it comes again at once.
    #[inline]
    pub(crate) fn note(&mut self, entry: T) {
        if let Some(entries) = &mut self.0
            && entries.last() != Some(&entry)
        {
            entries.push(entry);
        }
    }

    /// The entries since this was last called, in their order.
    pub(crate) fn take(&mut self) -> Vec<T> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<T> fmt::Debug for Journal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Journal")
    }
}
