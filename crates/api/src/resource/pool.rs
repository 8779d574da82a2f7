//! The driver's pools: made or found, with their attributes and trimming.

use std::fmt;

use pagewise_hal::{
    AccessFlags, AllocationType, DevicePtr, HandleTypes, Location, PoolAttribute, PoolHandle,
    PoolProps, Result,
};

use super::memory_resource::check_request;
#[cfg(unix)]
use super::shared::Shared;
use crate::refuse::{invalid, unsupported};
use crate::{Machine, Place, Stream};

/// Options of a new pool, besides the place of its memory.
///
/// ```
/// use pagewise::resource::PoolOptions;
///
/// let options = PoolOptions { max_bytes: 1 << 30, ..PoolOptions::default() };
/// assert_eq!(options.release_threshold_bytes, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolOptions {
    /// Most bytes that it reserves, 0 for what the system has. Driver 580 rounds up to 32 MiB.
    /// From CUDA 12.2; not for managed pools.
    pub max_bytes: u64,
    /// Bytes that stay reserved when a stream is waited for. With 0, the driver's default, all
    /// that is unused goes back to the system each time, and has to be reserved anew.
    pub release_threshold_bytes: u64,
    /// How it can be exported to other processes; not for managed pools and pools on the host as
    /// a whole.
    pub handle_types: HandleTypes,
}

/// The figures of a pool, in bytes, and its settings: one snapshot, read one by one.
///
/// ```
/// use pagewise::{Machine, resource::ManagedMemoryResource};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let resource = ManagedMemoryResource::new_pool(&machine, None)?;
/// let figures = resource.pool().expect("made with one").figures()?;
/// assert_eq!((figures.used_bytes, figures.reserved_bytes), (0, 0));
/// assert!(figures.reuse_follow_event_dependencies);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PoolFigures {
    /// Whether memory is reused across streams along event dependencies.
    pub reuse_follow_event_dependencies: bool,
    /// Whether memory is reused once its free has completed.
    pub reuse_allow_opportunistic: bool,
    /// Whether dependencies may be inserted to reuse memory.
    pub reuse_allow_internal_dependencies: bool,
    /// Bytes that stay reserved when a stream is waited for.
    pub release_threshold_bytes: u64,
    /// Bytes reserved now.
    pub reserved_bytes: u64,
    /// Most bytes reserved since the last reset.
    pub reserved_high_bytes: u64,
    /// Bytes in use now.
    pub used_bytes: u64,
    /// Most bytes in use since the last reset.
    pub used_high_bytes: u64,
}

/// A pool of a driver: one made here, which is destroyed with this value, or one of the driver's
/// own.
///
/// ```
/// use pagewise::{Device, Machine, resource::DeviceMemoryResource};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let resource = DeviceMemoryResource::current_pool(&machine, Device::FIRST)?;
/// let pool = resource.pool().expect("it has one");
/// assert!(!pool.is_owned());
/// pool.set_release_threshold(64 << 20)?;
/// assert_eq!(pool.figures()?.release_threshold_bytes, 64 << 20);
/// pool.set_release_threshold(0)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub struct Pool {
    machine: Machine,
    handle: PoolHandle,
    owned: bool,
    #[cfg(unix)]
    pub(super) shared: Shared,
}

/// Checks that the driver has what pools of a kind need.
fn check_pools(operation: &'static str, machine: &Machine, kind: AllocationType) -> Result<()> {
    let capabilities = machine.capabilities();
    if kind != AllocationType::MANAGED {
        return Ok(());
    }
    if !capabilities.location_pools {
        let version = capabilities.driver_version;
        let why = format!(
            "pools of managed memory need a driver of CUDA 13.0 or later, this one is of {version}: \
             use `ManagedMemoryResource::direct`"
        );
        return Err(unsupported(operation, why));
    }
    if !capabilities.concurrent_managed_access {
        let why = "pools of managed memory need concurrent managed access on every device: use \
                   `ManagedMemoryResource::direct`";
        return Err(unsupported(operation, why));
    }
    Ok(())
}

impl Pool {
    /// Makes a pool. Its release threshold is set before the caller sees it; if that fails the pool
    /// is destroyed again.
    pub(super) fn create(
        machine: &Machine,
        kind: AllocationType,
        location: Location,
        options: PoolOptions,
    ) -> Result<Self> {
        check_pools("create pool", machine, kind)?;
        let handle = machine.backend().pool_create(PoolProps {
            allocation_type: kind,
            location,
            handle_types: options.handle_types,
            max_bytes: options.max_bytes,
        })?;
        let pool = Self {
            machine: machine.clone(),
            handle,
            owned: true,
            #[cfg(unix)]
            shared: Shared::by_types(options.handle_types),
        };
        if options.release_threshold_bytes != 0 {
            pool.set_release_threshold(options.release_threshold_bytes)?;
        }
        Ok(pool)
    }

    /// The pool that the driver has for a location now.
    pub(super) fn current(
        machine: &Machine,
        kind: AllocationType,
        location: Location,
    ) -> Result<Self> {
        check_pools("current pool", machine, kind)?;
        let handle = machine.backend().pool_current(location, kind)?;
        Ok(Self::found(machine, handle))
    }

    /// The pool that the driver has for a location from the start.
    pub(super) fn default_of(
        machine: &Machine,
        kind: AllocationType,
        location: Location,
    ) -> Result<Self> {
        check_pools("default pool", machine, kind)?;
        let handle = machine.backend().pool_default(location, kind)?;
        Ok(Self::found(machine, handle))
    }

    /// A pool that is the driver's.
    fn found(machine: &Machine, handle: PoolHandle) -> Self {
        Self {
            machine: machine.clone(),
            handle,
            owned: false,
            #[cfg(unix)]
            shared: Shared::default(),
        }
    }

    /// A pool of another process.
    #[cfg(unix)]
    pub(super) fn imported(machine: &Machine, handle: PoolHandle, shared: Shared) -> Self {
        Self { machine: machine.clone(), handle, owned: true, shared }
    }

    /// Whether it belongs to another process. Such a pool gives only imported memory, and has no
    /// figures.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        #[cfg(unix)]
        return self.shared.imports.is_some();
        #[cfg(not(unix))]
        false
    }

    /// The id that other processes know it by, once it was exported or registered.
    #[cfg(unix)]
    #[must_use]
    pub fn uuid(&self) -> Option<uuid::Uuid> {
        self.shared.uuid()
    }

    /// The pool as back ends name it.
    #[must_use]
    pub fn handle(&self) -> PoolHandle {
        self.handle
    }

    /// Whether it was made here and is destroyed with this value.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.owned
    }

    /// All figures and settings.
    ///
    /// # Errors
    /// `InvalidValue` (1) if the pool was destroyed.
    pub fn figures(&self) -> Result<PoolFigures> {
        let flag = |attribute| Ok::<_, pagewise_hal::Error>(self.attribute(attribute)? != 0);
        Ok(PoolFigures {
            reuse_follow_event_dependencies: flag(PoolAttribute::REUSE_FOLLOW_EVENT_DEPENDENCIES)?,
            reuse_allow_opportunistic: flag(PoolAttribute::REUSE_ALLOW_OPPORTUNISTIC)?,
            reuse_allow_internal_dependencies: flag(
                PoolAttribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES,
            )?,
            release_threshold_bytes: self.attribute(PoolAttribute::RELEASE_THRESHOLD)?,
            reserved_bytes: self.attribute(PoolAttribute::RESERVED_MEM_CURRENT)?,
            reserved_high_bytes: self.attribute(PoolAttribute::RESERVED_MEM_HIGH)?,
            used_bytes: self.attribute(PoolAttribute::USED_MEM_CURRENT)?,
            used_high_bytes: self.attribute(PoolAttribute::USED_MEM_HIGH)?,
        })
    }

    /// Any attribute, those of drivers from CUDA 13.2 on included.
    ///
    /// # Errors
    /// `InvalidValue` (1) for one that the driver does not know.
    pub fn attribute(&self, attribute: PoolAttribute) -> Result<u64> {
        self.machine.backend().pool_attribute(self.handle, attribute)
    }

    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        self.machine.backend().pool_set_attribute(self.handle, attribute, value)
    }

    /// Sets how many bytes stay reserved when a stream is waited for. `u64::MAX` keeps all.
    ///
    /// # Errors
    /// As [`figures`](Self::figures).
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.set(PoolAttribute::RELEASE_THRESHOLD, bytes)
    }

    /// Sets whether memory is reused across streams along event dependencies.
    ///
    /// # Errors
    /// As [`figures`](Self::figures).
    ///
    /// ```
    /// # use pagewise::{Machine, resource::ManagedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = ManagedMemoryResource::new_pool(&machine, None)?;
    /// let pool = resource.pool().unwrap();
    /// pool.set_reuse_follow_event_dependencies(false)?;
    /// assert!(!pool.figures()?.reuse_follow_event_dependencies);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_reuse_follow_event_dependencies(&self, on: bool) -> Result<()> {
        self.set(PoolAttribute::REUSE_FOLLOW_EVENT_DEPENDENCIES, on.into())
    }

    /// Sets whether memory is reused once its free has completed.
    ///
    /// # Errors
    /// As [`figures`](Self::figures).
    ///
    /// ```
    /// # use pagewise::{Machine, resource::ManagedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = ManagedMemoryResource::new_pool(&machine, None)?;
    /// let pool = resource.pool().unwrap();
    /// pool.set_reuse_allow_opportunistic(false)?;
    /// assert!(!pool.figures()?.reuse_allow_opportunistic);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_reuse_allow_opportunistic(&self, on: bool) -> Result<()> {
        self.set(PoolAttribute::REUSE_ALLOW_OPPORTUNISTIC, on.into())
    }

    /// Sets whether dependencies may be inserted to reuse memory.
    ///
    /// # Errors
    /// As [`figures`](Self::figures).
    ///
    /// ```
    /// # use pagewise::{Machine, resource::ManagedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = ManagedMemoryResource::new_pool(&machine, None)?;
    /// let pool = resource.pool().unwrap();
    /// pool.set_reuse_allow_internal_dependencies(false)?;
    /// assert!(!pool.figures()?.reuse_allow_internal_dependencies);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_reuse_allow_internal_dependencies(&self, on: bool) -> Result<()> {
        self.set(PoolAttribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES, on.into())
    }

    /// Resets the high-water mark of reserved bytes to the bytes reserved now.
    ///
    /// # Errors
    /// As [`figures`](Self::figures).
    pub fn reset_reserved_high(&self) -> Result<()> {
        self.set(PoolAttribute::RESERVED_MEM_HIGH, 0)
    }

    /// Resets the high-water mark of used bytes to the bytes used now.
    ///
    /// # Errors
    /// As [`figures`](Self::figures).
    pub fn reset_used_high(&self) -> Result<()> {
        self.set(PoolAttribute::USED_MEM_HIGH, 0)
    }

    /// Gives unused memory back to the system, keeping at least so many bytes reserved.
    ///
    /// # Errors
    /// As [`figures`](Self::figures).
    ///
    /// ```
    /// # use pagewise::{Machine, resource::ManagedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = ManagedMemoryResource::new_pool(&machine, None)?;
    /// resource.pool().unwrap().trim(0)?;
    /// assert_eq!(resource.pool().unwrap().figures()?.reserved_bytes, 0);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn trim(&self, keep_bytes: u64) -> Result<()> {
        self.machine.backend().pool_trim(self.handle, keep_bytes)
    }

    /// Whether a place may read and write the pool's memory.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) for a device that does not exist; `InvalidValue` (1) for the
    /// current NUMA node.
    pub fn is_accessible_by(&self, place: impl Into<Place>) -> Result<bool> {
        let location = self.machine.check_place("pool access", place.into())?;
        let access = self.machine.backend().pool_access(self.handle, location)?;
        Ok(access == AccessFlags::READ_WRITE)
    }

    /// Gives a place access to the pool's memory, or takes it away.
    ///
    /// # Errors
    /// As [`is_accessible_by`](Self::is_accessible_by); `InvalidDevice` (101) or `Unsupported`
    /// (801) for taking it from the pool's own place, and for places that it cannot be given to.
    ///
    /// ```
    /// use pagewise::{Device, Machine, resource::PinnedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = PinnedMemoryResource::new_pool(&machine, Default::default())?;
    /// let pool = resource.pool().unwrap();
    /// pool.set_accessible_by(Device::FIRST, true)?;
    /// assert!(pool.is_accessible_by(Device::FIRST)?);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_accessible_by(&self, place: impl Into<Place>, on: bool) -> Result<()> {
        let location = self.machine.check_place("pool access", place.into())?;
        let access = if on { AccessFlags::READ_WRITE } else { AccessFlags::NONE };
        self.machine.backend().pool_set_access(self.handle, location, access)
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        check_request(&self.machine, bytes, stream)?;
        if self.is_mapped() {
            let why = "the pool is another process's: import what that allocates";
            return Err(invalid("allocate", why));
        }
        self.machine.backend().pool_alloc(self.handle, bytes, stream.raw())
    }

    /// # Safety
    /// As [`MemoryResource::deallocate`](super::MemoryResource::deallocate).
    pub(super) unsafe fn deallocate(&self, ptr: DevicePtr, stream: &Stream) -> Result<()> {
        #[cfg(unix)]
        if self.shared.imports.as_ref().is_some_and(|imports| !imports.release(ptr)) {
            return Ok(());
        }
        // SAFETY: the memory came from this pool, and this is the last claim on it. The caller
        // promised that only work of the stream uses it.
        unsafe { self.machine.backend().free_async(ptr, stream.raw()) }
    }
}

/// Where a pool's memory is or prefers to be; `NONE` for nowhere in particular.
pub(super) fn location_of(
    operation: &'static str,
    machine: &Machine,
    place: Option<Place>,
) -> Result<Location> {
    place.map_or(Ok(Location::NONE), |place| machine.check_place(operation, place))
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: this value made the pool and is its only owner, so no code uses the handle
            // again. The driver keeps memory that was allocated from the pool until it is freed.
            self.machine.on_drop(|| unsafe { self.machine.backend().pool_destroy(self.handle) });
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.owned { "owned" } else { "the driver's" };
        write!(f, "Pool({:#x}, {whose})", self.handle.as_raw())
    }
}
