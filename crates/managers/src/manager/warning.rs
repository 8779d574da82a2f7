//! Warnings: facts worth knowing that are no errors.

use std::collections::VecDeque;
use std::fmt;

/// Something that went well but may not next time. Kept until
/// [`take_warnings`](super::MemoryManager::take_warnings); with the feature `tracing` also an event.
/// Never printed.
///
/// ```
/// use pagewise_managers::manager::{MemoryManager, Registration, Warning};
/// use pagewise::{Device, Machine};
///
/// let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
/// let id = manager.register(Registration::new())?;
/// assert!(!manager.free_array(id, "nothing")?);
/// assert_eq!(manager.take_warnings(), [Warning::NothingToFree { label: "nothing".into() }]);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// Manual shares come to more than 0.95, so no instance can join the auto pool.
    ManualPoolLarge {
        /// Their sum.
        manual: f64,
    },
    /// A group uses more than 95 % of what its caps allow (active mode).
    NearCap {
        /// Which group.
        group: String,
        /// Bytes that its instances hold on the device.
        used_bytes: u64,
        /// Bytes that their caps allow.
        cap_bytes: u64,
    },
    /// A request is more than 20 times what the device has free, so that there will be many chunks.
    MuchLarger {
        /// Bytes requested.
        requested_bytes: u128,
        /// Bytes free before anything was evicted.
        free_bytes: u64,
    },
    /// There is no array of that name to free.
    NothingToFree {
        /// The name.
        label: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManualPoolLarge { manual } => {
                write!(f, "manual proportions come to {manual}: nobody can join the auto pool")
            }
            Self::NearCap { group, used_bytes, cap_bytes } => {
                write!(f, "stream group {group:?} uses {used_bytes} bytes of {cap_bytes} allowed")
            }
            Self::MuchLarger { requested_bytes, free_bytes } => {
                write!(f, "{requested_bytes} bytes requested, over 20 times the {free_bytes} free")
            }
            Self::NothingToFree { label } => write!(f, "there is no array {label:?} to free"),
        }
    }
}

/// The last warnings, oldest first. Bounded, as they may never be read.
#[derive(Debug, Default)]
pub(crate) struct Warnings(VecDeque<Warning>);

impl Warnings {
    const MAX: usize = 256;

    pub(crate) fn push(&mut self, warning: Warning) {
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "pagewise_managers::manager", "{warning}");
        if self.0.len() == Self::MAX {
            self.0.pop_front();
        }
        self.0.push_back(warning);
    }

    pub(crate) fn take(&mut self) -> Vec<Warning> {
        self.0.drain(..).collect()
    }
}
