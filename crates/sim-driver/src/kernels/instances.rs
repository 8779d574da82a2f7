//! Modules that kernels were launched from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_sim::Program;

/// The modules of a driver that were launched from, by handle.
#[derive(Debug, Default)]
pub(crate) struct Instances(Mutex<BTreeMap<usize, Arc<Program>>>);

impl Instances {
    /// All of them, for one use.
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Program>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A module is gone. Handles are never used twice.
    pub(crate) fn forget(&self, module: usize) {
        self.lock().remove(&module);
    }
}
