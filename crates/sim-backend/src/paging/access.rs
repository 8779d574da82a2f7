//! Accesses of a processor to a page, and the permissions that they need.

use pagewise_hal::{DeviceAccess, FaultAccess, HostAccess};

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
    #[inline]
    pub(crate) fn needs(self, by: ProcId, params: &PagingParams) -> Protection {
        match self {
            Self::Read => Protection::Read,
            _ if by.is_host() => Protection::Atomic,
            Self::Atomic if !params.weak_atomics_need_write_only => Protection::Atomic,
            Self::Write | Self::Atomic => Protection::Write,
        }
    }
}

impl From<HostAccess> for Access {
    fn from(access: HostAccess) -> Self {
        match access {
            HostAccess::Read => Self::Read,
            HostAccess::Write(_) => Self::Write,
        }
    }
}

impl From<DeviceAccess> for Access {
    fn from(access: DeviceAccess) -> Self {
        match access {
            DeviceAccess::Read => Self::Read,
            DeviceAccess::Write(_) => Self::Write,
            DeviceAccess::AtomicAdd => Self::Atomic,
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
