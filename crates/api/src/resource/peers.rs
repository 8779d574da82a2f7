//! The other devices that may use a pool's memory, as a live set.

use std::collections::BTreeSet;
use std::fmt;

use pagewise_hal::{Error, Result};

use super::pool::Pool;
use crate::Device;
use crate::refuse::also;

/// The devices, other than its own, that may use a pool's memory.
///
/// The set is the driver's, so two values can be about one pool. Changes of several devices are
/// checked as a whole first, and taken back if the driver fails midway. A change can take the
/// driver long, because it maps all of the pool's memory anew: make it once. The pool's own device
/// is ignored wherever it is named.
///
/// ```
/// use pagewise::resource::DeviceMemoryResource;
/// use pagewise::{Device, Machine, SimBackend, SimConfig};
///
/// let sim = std::sync::Arc::new(SimBackend::new(SimConfig::h200().devices(2))?);
/// let machine = Machine::from(&sim);
/// let resource = DeviceMemoryResource::new_pool(&machine, Device::FIRST, Default::default())?;
/// let peers = resource.peer_accessible_by().unwrap();
/// let second = machine.device(1)?;
/// peers.assign([second])?;
/// assert!(peers.contains(second)?);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct PeerAccess<'p> {
    pool: &'p Pool,
    own: Device,
}

impl<'p> PeerAccess<'p> {
    pub(super) fn of(pool: &'p Pool, own: Device) -> Self {
        Self { pool, own }
    }

    /// The devices, as they are now.
    ///
    /// # Errors
    /// Errors of the back end for reads of a pool's access.
    pub fn to_set(&self) -> Result<BTreeSet<Device>> {
        let mut found = BTreeSet::new();
        for device in self.pool.machine().devices()? {
            if device != self.own && self.pool.is_accessible_by(device)? {
                found.insert(device);
            }
        }
        Ok(found)
    }

    /// Whether a device may use the memory; the pool's own counts as none.
    ///
    /// # Errors
    /// As [`Pool::is_accessible_by`].
    pub fn contains(&self, device: Device) -> Result<bool> {
        Ok(device != self.own && self.pool.is_accessible_by(device)?)
    }

    /// Gives a device access.
    ///
    /// # Errors
    /// As [`Pool::set_accessible_by`].
    ///
    /// ```
    /// # use pagewise::{Device, Machine, resource::DeviceMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = DeviceMemoryResource::current_pool(&machine, Device::FIRST)?;
    /// assert!(resource.peer_accessible_by().unwrap().insert(Device::new(1)?).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn insert(&self, device: Device) -> Result<()> {
        self.set(device, true)
    }

    /// Takes access away from a device.
    ///
    /// # Errors
    /// As [`Pool::set_accessible_by`].
    pub fn remove(&self, device: Device) -> Result<()> {
        self.set(device, false)
    }

    /// Gives exactly these devices access, changing only what differs.
    ///
    /// # Errors
    /// Before anything is changed: `InvalidDevice` (no CUDA code) for a device that does not exist.
    /// If the driver fails midway, its error, with a text that says whether access is as before, or
    /// what it is now.
    pub fn assign(&self, devices: impl IntoIterator<Item = Device>) -> Result<()> {
        let mut target: BTreeSet<Device> = devices.into_iter().collect();
        target.remove(&self.own);
        for &device in &target {
            self.pool.machine().check_device("peer access", device)?;
        }
        let present = self.to_set()?;
        let removals = present.difference(&target).map(|&device| (device, false));
        let additions = target.difference(&present).map(|&device| (device, true));
        let mut done: Vec<(Device, bool)> = Vec::new();
        for (device, on) in removals.chain(additions) {
            match self.set(device, on) {
                Ok(()) => done.push((device, on)),
                Err(error) => return Err(self.take_back(done, error)),
            }
        }
        Ok(())
    }

    /// Takes access away from all devices.
    ///
    /// # Errors
    /// As [`assign`](Self::assign).
    pub fn clear(&self) -> Result<()> {
        self.assign([])
    }

    fn set(&self, device: Device, on: bool) -> Result<()> {
        if device == self.own {
            return Ok(());
        }
        self.pool.set_accessible_by(device, on)
    }

    #[cold]
    fn take_back(&self, done: Vec<(Device, bool)>, error: Error) -> Error {
        let mut kept: Vec<String> = Vec::new();
        for (device, on) in done.into_iter().rev() {
            if self.set(device, !on).is_err() {
                kept.push(format!("{device} {} access now", if on { "has" } else { "has no" }));
            }
        }
        let outcome = match kept.is_empty() {
            true => "access is as before".to_owned(),
            false => format!("it could not all be taken back: {}", kept.join(", ")),
        };
        also(error, &outcome)
    }
}

impl fmt::Debug for PeerAccess<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_set() {
            Ok(devices) => f.debug_set().entries(devices).finish(),
            Err(error) => write!(f, "{{{error}}}"),
        }
    }
}
