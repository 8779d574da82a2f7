//! Accesses of a processor to a page, and the permissions that they need.

use pagewise_hal::FaultAccess;

use super::params::PagingParams;
use super::processor::ProcId;
use super::protection::Protection;

/// An access of a processor to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Updates atomically.
    Atomic,
}

impl Access {
    /// Whether the page changes.
    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }

    /// The permission that satisfies the access. The host's writes ask for atomics, a kernel's
    /// atomics only for writing (PAGING-80).
    pub(crate) fn needs(self, by: ProcId, params: &PagingParams) -> Protection {
        match self {
            Self::Read => Protection::Read,
            _ if by.is_host() => Protection::Atomic,
            Self::Atomic if !params.weak_atomics_need_write_only => Protection::Atomic,
            Self::Write | Self::Atomic => Protection::Write,
        }
    }
}

impl From<Access> for FaultAccess {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Write => Self::Write,
            Access::Atomic => Self::Atomic,
        }
    }
}
