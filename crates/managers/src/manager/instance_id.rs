//! The ids of instances.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names an instance. Unique in the process, and never used again: nothing that comes later can be
/// taken for it.
///
/// ```
/// use pagewise_managers::manager::InstanceId;
/// assert_ne!(InstanceId::unique(), InstanceId::unique());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(u64);

impl InstanceId {
    /// One that no instance has.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instance {}", self.0)
    }
}
