//! The modules that calls loaded, with their devices and kernels.
//!
//! A module belongs to the context that was current when it was loaded, and a kernel runs in that
//! of its stream. So the device of each module is kept, and the module of each kernel that was
//! found.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pagewise_hal::DeviceId;

use crate::live::{Kind, Live};

/// The modules that calls loaded.
#[derive(Debug)]
pub(crate) struct Modules {
    pub(crate) live: Live,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The device of each module.
    devices: BTreeMap<u64, DeviceId>,
    /// The module of each kernel.
    functions: BTreeMap<u64, u64>,
}

impl Default for Modules {
    fn default() -> Self {
        Self { live: Live::new(Kind::Module), known: RwLock::default() }
    }
}

impl Modules {
    /// A panic elsewhere leaves maps of numbers as good as they were.
    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A module was loaded on a device.
    pub(crate) fn add(&self, module: u64, device: DeviceId) {
        self.known_mut().devices.insert(module, device);
        self.live.add(module);
    }

    /// A kernel of a module was found.
    pub(crate) fn add_function(&self, function: u64, module: u64) {
        self.known_mut().functions.insert(function, module);
    }

    /// A module is about to go, with its kernels. Returns its device.
    pub(crate) fn forget(&self, module: u64) -> Option<DeviceId> {
        let mut known = self.known_mut();
        known.functions.retain(|_, of| *of != module);
        known.devices.remove(&module)
    }

    /// The device of a module.
    pub(crate) fn device(&self, module: u64) -> Option<DeviceId> {
        self.known().devices.get(&module).copied()
    }

    /// The module of a kernel.
    pub(crate) fn module_of(&self, function: u64) -> Option<u64> {
        self.known().functions.get(&function).copied()
    }
}
