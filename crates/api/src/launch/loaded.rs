//! A module that is loaded, for all that keep it so.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use pagewise_hal::ModuleHandle;

use crate::{Device, Machine};

/// The name of launches in errors.
pub(super) const OPERATION: &str = "launch";

/// A module, which is unloaded when the last owner goes.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) machine: Machine,
    pub(super) device: Device,
    pub(super) handle: ModuleHandle,
    /// The variables that buffers hold.
    held: Mutex<BTreeSet<String>>,
}

impl Loaded {
    pub(super) fn new(machine: Machine, device: Device, handle: ModuleHandle) -> Self {
        Self { machine, device, handle, held: Mutex::default() }
    }
}

/// A variable that a buffer holds.
#[derive(Debug)]
pub(super) struct Hold {
    module: Arc<Loaded>,
    name: String,
}

impl Hold {
    /// Takes a variable; `None` if a buffer holds it.
    pub(super) fn new(module: &Arc<Loaded>, name: &str) -> Option<Self> {
        let mut held = module.held.lock().unwrap_or_else(PoisonError::into_inner);
        let module = Arc::clone(module);
        held.insert(name.to_owned()).then(|| Self { module, name: name.to_owned() })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.module.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&self.name);
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let backend = self.machine.backend();
        // SAFETY: this is the last owner of the module: no kernel and no variable of it is left.
        // That its kernels have ended, who launched one has promised or waited for.
        self.machine.on_drop(|| unsafe { backend.module_unload(self.handle) });
    }
}
