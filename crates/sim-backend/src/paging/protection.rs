//! Permissions of a mapping of a page.

/// The permission of a mapping. Each level includes the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protection {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To write and to update atomically.
    Atomic,
}

impl Protection {
    /// All levels, lowest first.
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Atomic];
}
