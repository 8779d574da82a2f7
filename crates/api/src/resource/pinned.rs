//! Page-locked host memory, directly or from a pool.

#[cfg(unix)]
use std::sync::Arc;
#[cfg(unix)]
use uuid::Uuid;

use pagewise_hal::{
    AllocationType, Backend, DeviceAttribute, DevicePtr, HostAllocFlags, Location, Result,
};

#[cfg(unix)]
use super::allocation::Allocation;
#[cfg(unix)]
use super::descriptor::{AllocationHandle, BufferDescriptor};
#[cfg(unix)]
use super::ipc::{self, Mapped};
use super::memory_resource::{MemoryKind, MemoryResource};
use super::pool::{Pool, PoolOptions, location_of};
use super::pooled::{allocate_from, deallocate_to};
use crate::refuse::unsupported;
use crate::{Device, Host, Machine, NumaNode, Place, Stream};

/// Gives page-locked host memory, which host and devices reach where it is.
///
/// | made by | memory | needs |
/// | --- | --- | --- |
/// | [`direct`](Self::direct) | `cuMemHostAlloc`; giving it back waits for the stream | CUDA 12.0 |
/// | [`new_pool`](Self::new_pool) | in stream order, on the host as a whole; on a NUMA node if it is to be exported | CUDA 13.0; to be exported, 12.2 |
/// | [`on_node`](Self::on_node) | in stream order, on a NUMA node | CUDA 12.2 |
/// | [`current_pool`](Self::current_pool), [`default_pool`](Self::default_pool) | in stream order, from the driver's pool of the host | CUDA 13.0 |
///
/// No device may use a pool's memory until
/// [`Pool::set_accessible_by`](super::Pool::set_accessible_by) gives it access.
///
/// ```
/// use std::sync::Arc;
/// use pagewise::resource::{Allocation, PinnedMemoryResource};
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let resource = PinnedMemoryResource::new_pool(&machine, Default::default())?;
/// resource.pool().unwrap().set_accessible_by(Device::FIRST, true)?;
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let bytes = Allocation::new(Arc::new(resource), 4096, &stream)?;
/// assert_eq!(bytes.span().bytes, 4096);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct PinnedMemoryResource {
    machine: Machine,
    pool: Option<Pool>,
    node: Option<NumaNode>,
}

/// Whether a device says that it has such pools. The attributes are newer than what they describe,
/// so one that the driver does not know means nothing.
fn check_supported(machine: &Machine, attribute: DeviceAttribute) -> Result<()> {
    if machine.backend().device_attribute(Device::FIRST.id(), attribute) == Ok(0) {
        let why = "the device has no such pools of host memory: use `PinnedMemoryResource::direct`";
        return Err(unsupported("create pool", why));
    }
    Ok(())
}

impl PinnedMemoryResource {
    /// Memory from the driver, one call each, mapped for every device.
    pub fn direct(machine: impl Into<Machine>) -> Self {
        Self { machine: machine.into(), pool: None, node: None }
    }

    /// Memory from a pool of its own: on the host as a whole, or if it is to be exported on the
    /// NUMA node nearest to device 0, because the driver exports none of the host as a whole.
    ///
    /// # Errors
    /// `Unsupported` (no CUDA code) if the device has no such pools, or no NUMA node is known for
    /// it; `InvalidValue` (1) from a driver that has none.
    ///
    /// ```
    /// use pagewise::{HandleTypes, Machine, NumaNode};
    /// use pagewise::resource::{PinnedMemoryResource, PoolOptions};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let options = PoolOptions {
    ///     handle_types: HandleTypes::POSIX_FILE_DESCRIPTOR, ..PoolOptions::default()
    /// };
    /// let resource = PinnedMemoryResource::new_pool(&machine, options)?;
    /// assert_eq!(resource.node(), Some(NumaNode::new(0)?));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new_pool(machine: impl Into<Machine>, options: PoolOptions) -> Result<Self> {
        let machine = machine.into();
        if !options.handle_types.is_empty() {
            let node = nearest_node(&machine)?;
            return Self::on_node(machine, node, options);
        }
        check_supported(&machine, DeviceAttribute::HOST_MEMORY_POOLS_SUPPORTED)?;
        let pool = Pool::create(&machine, AllocationType::PINNED, Location::HOST, options)?;
        Ok(Self { machine, pool: Some(pool), node: None })
    }

    /// Memory from a pool of its own on a NUMA node.
    ///
    /// # Errors
    /// As [`new_pool`](Self::new_pool); `InvalidValue` (1) for a node that does not exist.
    ///
    /// ```
    /// use pagewise::{Machine, NumaNode, resource::PinnedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let node = NumaNode::new(0)?;
    /// let resource = PinnedMemoryResource::on_node(&machine, node, Default::default())?;
    /// assert_eq!(resource.node(), Some(node));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn on_node(
        machine: impl Into<Machine>,
        node: NumaNode,
        options: PoolOptions,
    ) -> Result<Self> {
        let machine = machine.into();
        check_supported(&machine, DeviceAttribute::HOST_NUMA_MEMORY_POOLS_SUPPORTED)?;
        let place = Some(Place::Host(Host::Node(node)));
        let location = location_of("create pool", &machine, place)?;
        let pool = Pool::create(&machine, AllocationType::PINNED, location, options)?;
        Ok(Self { machine, pool: Some(pool), node: Some(node) })
    }

    /// Memory from the current pool of the host. It is the driver's, and shared.
    ///
    /// # Errors
    /// `Unsupported` before CUDA 13.0.
    pub fn current_pool(machine: impl Into<Machine>) -> Result<Self> {
        let machine = machine.into();
        let pool = Pool::current(&machine, AllocationType::PINNED, Location::HOST)?;
        Ok(Self { machine, pool: Some(pool), node: None })
    }

    /// Memory from the default pool of the host: the current one until another is set.
    ///
    /// # Errors
    /// As [`current_pool`](Self::current_pool).
    pub fn default_pool(machine: impl Into<Machine>) -> Result<Self> {
        let machine = machine.into();
        let pool = Pool::default_of(&machine, AllocationType::PINNED, Location::HOST)?;
        Ok(Self { machine, pool: Some(pool), node: None })
    }

    /// Its pool, if it has one.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// The NUMA node that its own pool is on.
    #[must_use]
    pub fn node(&self) -> Option<NumaNode> {
        self.node
    }
}

/// The node nearest to device 0.
fn nearest_node(machine: &Machine) -> Result<NumaNode> {
    let attribute = DeviceAttribute::HOST_NUMA_ID;
    let answer = machine.backend().device_attribute(Device::FIRST.id(), attribute)?;
    match u32::try_from(answer) {
        Ok(number) => NumaNode::new(number),
        Err(_) => Err(unsupported(
            "create pool",
            "no NUMA node is known for device 0: name one with `PinnedMemoryResource::on_node`",
        )),
    }
}

#[cfg(unix)]
ipc::shared_with_other_processes!(PinnedMemoryResource);

#[cfg(unix)]
impl Mapped for PinnedMemoryResource {
    const NAME: &'static str = "pinned memory";

    fn of_import(machine: &Machine, pool: Pool) -> Result<Self> {
        if !ipc::is_home(&pool, Location::HOST)? {
            return ipc::wrong_kind(Self::NAME);
        }
        Ok(Self { machine: machine.clone(), pool: Some(pool), node: None })
    }

    fn the_pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }
}

// SAFETY: a resource has to give memory of the size and alignment that it promises, to one owner at
// a time. The driver gives page-locked host memory of at least the size, aligned to 512 bytes, and
// gives no byte out twice.
unsafe impl MemoryResource for PinnedMemoryResource {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Pinned
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        let direct = |backend: &dyn Backend| backend.alloc_pinned(bytes, HostAllocFlags::PORTABLE);
        allocate_from(self.pool.as_ref(), &self.machine, bytes, stream, direct)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, _: u64, stream: &Stream) -> Result<()> {
        // SAFETY: the caller promised that only work of the stream uses the memory, and that work
        // is done when `direct` is called.
        let direct = || unsafe { self.machine.backend().free_pinned(ptr) };
        // SAFETY: the memory came from the pool if there is one, and the caller promised that only
        // work of the stream uses it.
        unsafe { deallocate_to(self.pool.as_ref(), ptr, stream, direct) }
    }
}
