//! Memory of `cuMemAlloc` that other devices reach, because a program enabled it (CONTRACT-125).
//!
//! Contexts are not known here: the caller says which devices reach each allocation.

use std::collections::BTreeMap;

use pagewise_hal::{DeviceId, Processor};

use crate::locate::processor_of;

/// The other devices that reach an allocation, by its first address.
#[derive(Debug, Default)]
pub(crate) struct PeerAccess(BTreeMap<u64, Vec<DeviceId>>);

impl PeerAccess {
    /// Whether a device was given access to the allocation at an address.
    pub(crate) fn admits(&self, by: Processor, start: u64) -> bool {
        let devices = self.0.get(&start);
        devices.is_some_and(|devices| devices.iter().any(|&device| processor_of(device) == by))
    }

    /// These devices have access to the allocation at an address, and no others.
    pub(crate) fn set(&mut self, start: u64, devices: &[DeviceId]) {
        match devices.is_empty() {
            true => self.forget(start),
            false => _ = self.0.insert(start, devices.to_vec()),
        }
    }

    /// The allocation at an address is gone.
    pub(crate) fn forget(&mut self, start: u64) {
        self.0.remove(&start);
    }
}
