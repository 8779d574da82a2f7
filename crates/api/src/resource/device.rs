//! Memory of one device, directly or from a pool.

#[cfg(unix)]
use std::sync::Arc;
#[cfg(unix)]
use uuid::Uuid;

use pagewise_hal::{AllocationType, Backend, DevicePtr, Location, Result};

#[cfg(unix)]
use super::allocation::Allocation;
#[cfg(unix)]
use super::descriptor::{AllocationHandle, BufferDescriptor};
#[cfg(unix)]
use super::ipc::{self, Mapped};
use super::memory_resource::{MemoryKind, MemoryResource};
use super::peers::PeerAccess;
use super::pool::{Pool, PoolOptions};
use super::pooled::{allocate_from, deallocate_to};
use crate::{Device, Machine, Stream};

/// Gives memory of a device, which does not migrate.
///
/// | made by | memory |
/// | --- | --- |
/// | [`direct`](Self::direct) | `cuMemAlloc`; giving it back waits for the stream |
/// | [`new_pool`](Self::new_pool) | in stream order, from a pool of its own |
/// | [`current_pool`](Self::current_pool), [`default_pool`](Self::default_pool) | in stream order, from the driver's pool of the device |
///
/// ```
/// use pagewise::resource::{DeviceMemoryResource, MemoryKind, MemoryResource};
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let resource = DeviceMemoryResource::new_pool(&machine, Device::FIRST, Default::default())?;
/// assert_eq!((resource.device(), resource.memory_kind()), (Device::FIRST, MemoryKind::Device));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceMemoryResource {
    machine: Machine,
    device: Device,
    pool: Option<Pool>,
}

impl DeviceMemoryResource {
    /// Memory from the driver, one call each.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) for a device that does not exist.
    ///
    /// ```
    /// # use pagewise::{Device, Machine, resource::DeviceMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// assert!(DeviceMemoryResource::direct(&machine, Device::new(5)?).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn direct(machine: impl Into<Machine>, device: Device) -> Result<Self> {
        let machine = machine.into();
        machine.check_device("device memory", device)?;
        Ok(Self { machine, device, pool: None })
    }

    /// Memory from a pool of its own.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) for a device that does not exist; `InvalidValue` (1) for
    /// options that the driver does not have.
    pub fn new_pool(
        machine: impl Into<Machine>,
        device: Device,
        options: PoolOptions,
    ) -> Result<Self> {
        Self::with(machine.into(), device, |machine, at| {
            Pool::create(machine, AllocationType::PINNED, at, options)
        })
    }

    /// Memory from the device's current pool. It is the driver's, and shared.
    ///
    /// Its release threshold is 0 until it is set: then all unused memory goes back to the system
    /// whenever a stream is waited for. See
    /// [`Pool::set_release_threshold`](super::Pool::set_release_threshold).
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) for a device that does not exist.
    pub fn current_pool(machine: impl Into<Machine>, device: Device) -> Result<Self> {
        Self::with(machine.into(), device, |machine, at| {
            Pool::current(machine, AllocationType::PINNED, at)
        })
    }

    /// Memory from the device's default pool: the current one until another is set.
    ///
    /// # Errors
    /// As [`current_pool`](Self::current_pool).
    pub fn default_pool(machine: impl Into<Machine>, device: Device) -> Result<Self> {
        Self::with(machine.into(), device, |machine, at| {
            Pool::default_of(machine, AllocationType::PINNED, at)
        })
    }

    fn with(
        machine: Machine,
        device: Device,
        pool: impl FnOnce(&Machine, Location) -> Result<Pool>,
    ) -> Result<Self> {
        let location = machine.check_place("device memory", device.into())?;
        let pool = Some(pool(&machine, location)?);
        Ok(Self { machine, device, pool })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Its pool, if it has one.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// The other devices that may use the pool's memory, as a set that can be changed; `None`
    /// without a pool.
    #[must_use]
    pub fn peer_accessible_by(&self) -> Option<PeerAccess<'_>> {
        self.pool.as_ref().map(|pool| PeerAccess::of(pool, self.device))
    }
}

#[cfg(unix)]
ipc::shared_with_other_processes!(DeviceMemoryResource);

#[cfg(unix)]
impl Mapped for DeviceMemoryResource {
    const NAME: &'static str = "device memory";

    fn of_import(machine: &Machine, pool: Pool) -> Result<Self> {
        for device in machine.devices()? {
            if ipc::is_home(&pool, Location::device(device.id()))? {
                return Ok(Self { machine: machine.clone(), device, pool: Some(pool) });
            }
        }
        ipc::wrong_kind(Self::NAME)
    }

    fn the_pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }
}

// SAFETY: a resource has to give memory of the size and alignment that it promises, to one owner at
// a time. The driver gives memory of the device of at least the size, aligned to 512 bytes, and
// gives no byte out twice.
unsafe impl MemoryResource for DeviceMemoryResource {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        let direct = |backend: &dyn Backend| backend.alloc_device(self.device.id(), bytes);
        allocate_from(self.pool.as_ref(), &self.machine, bytes, stream, direct)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, _: u64, stream: &Stream) -> Result<()> {
        // SAFETY: the caller promised that only work of the stream uses the memory, and that work
        // is done when `direct` is called.
        let direct = || unsafe { self.machine.backend().free(ptr) };
        // SAFETY: the memory came from the pool if there is one, and the caller promised that only
        // work of the stream uses it.
        unsafe { deallocate_to(self.pool.as_ref(), ptr, stream, direct) }
    }
}
