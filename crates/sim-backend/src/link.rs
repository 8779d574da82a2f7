//! The links of a device to the host and to other devices.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The link of a device to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum HostLink {
    /// PCI Express: the host cannot reach device memory, and atomics do not cross.
    Pcie {
        /// Generation.
        generation: u8,
        /// Lanes.
        lanes: u8,
    },
    /// NVLink-C2C: coherent, so each side reaches the other's memory without a copy.
    NvlinkC2c {
        /// Atomic operations of either side work on the other's memory.
        native_atomics: bool,
    },
}

impl HostLink {
    /// The host reaches device memory, and the link is as good as between devices.
    #[must_use]
    pub fn is_coherent(self) -> bool {
        matches!(self, Self::NvlinkC2c { .. })
    }

    /// Atomic operations work across the link.
    #[must_use]
    pub fn has_native_atomics(self) -> bool {
        matches!(self, Self::NvlinkC2c { native_atomics: true })
    }
}

impl fmt::Display for HostLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcie { generation, lanes } => write!(f, "PCIe {generation} x{lanes}"),
            Self::NvlinkC2c { .. } => f.write_str("NVLink-C2C"),
        }
    }
}

/// The link between two devices of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum PeerLink {
    /// There is no link: devices do not reach each other's memory, and copies go through the host's
    /// memory.
    None,
    /// NVLink: devices are peers of each other from the first call on.
    Nvlink {
        /// Generation.
        generation: u8,
    },
}

impl fmt::Display for PeerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Nvlink { generation } => write!(f, "NVLink {generation}"),
        }
    }
}
