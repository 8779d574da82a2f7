//! Managed memory, directly or from a pool.

use std::sync::atomic::{AtomicBool, Ordering};

use pagewise_hal::{AllocationType, AttachFlags, Backend, DevicePtr, Location, Result, Span};

use super::memory_resource::{MemoryKind, MemoryResource};
use super::pool::{Pool, PoolOptions, location_of};
use super::pooled::{allocate_from, deallocate_to};
use crate::{Host, Machine, Place, Stream};

/// Gives managed memory.
///
/// | made by | memory | advice | needs |
/// | --- | --- | --- | --- |
/// | [`direct`](Self::direct) | `cuMemAllocManaged`, ready at once; giving it back waits for the stream | yes | CUDA 12.0 |
/// | [`new_pool`](Self::new_pool), [`current_pool`](Self::current_pool), [`default_pool`](Self::default_pool) | in stream order | refused (801) by driver 580 | CUDA 13.0, concurrent managed access |
///
/// ```
/// use pagewise::resource::ManagedMemoryResource;
/// use pagewise::{Device, Machine, Place};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let resource = ManagedMemoryResource::new_pool(&machine, Some(Place::HOST))?;
/// assert_eq!(resource.preferred_location(), Some(Place::HOST));
/// assert!(ManagedMemoryResource::direct(&machine).pool().is_none());
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct ManagedMemoryResource {
    machine: Machine,
    pool: Option<Pool>,
    preferred: Option<Place>,
    /// Whether the pool may give memory that it gave before.
    gives_again: AtomicBool,
}

impl ManagedMemoryResource {
    /// Memory from the driver, one call each.
    pub fn direct(machine: impl Into<Machine>) -> Self {
        Self::of(machine.into(), None, None)
    }

    /// Memory from a pool of its own, with a preferred location or none.
    ///
    /// Driver 580 reserves 265 GiB of address space for such a pool, and ends the process when no
    /// address space is left, with some 460 pools alive: keep a resource, and share it. Its memory
    /// may show contents of an earlier allocation of the pool.
    ///
    /// Without a preferred location, memory that the pool gives out again is prefetched, without a
    /// copy, to the device of the stream, or to the host if the stream has none. Otherwise driver
    /// 580 would lose bytes written there with the next migration.
    ///
    /// # Errors
    /// Without a CUDA code: `Unsupported` before CUDA 13.0 and without concurrent managed access;
    /// `InvalidDevice`. `InvalidValue` (1) for a NUMA node that does not exist.
    pub fn new_pool(machine: impl Into<Machine>, preferred: Option<Place>) -> Result<Self> {
        Self::with_options(machine, preferred, PoolOptions::default())
    }

    /// Memory from a pool of its own with options. The driver refuses a size limit and handle
    /// types.
    ///
    /// # Errors
    /// As [`new_pool`](Self::new_pool); `InvalidValue` (1) for a size limit or handle types.
    ///
    /// ```
    /// use pagewise::{Machine, resource::{ManagedMemoryResource, PoolOptions}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let options = PoolOptions { release_threshold_bytes: 1 << 30, ..Default::default() };
    /// let resource = ManagedMemoryResource::with_options(&machine, None, options)?;
    /// assert_eq!(resource.pool().unwrap().figures()?.release_threshold_bytes, 1 << 30);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn with_options(
        machine: impl Into<Machine>,
        preferred: Option<Place>,
        options: PoolOptions,
    ) -> Result<Self> {
        let machine = machine.into();
        let location = location_of("create pool", &machine, preferred)?;
        let pool = Pool::create(&machine, AllocationType::MANAGED, location, options)?;
        Ok(Self::of(machine, Some(pool), preferred))
    }

    /// Memory from the current managed pool of the process. It is the driver's, and shared.
    ///
    /// # Errors
    /// `Unsupported` (no CUDA code) before CUDA 13.0 and without concurrent managed access.
    pub fn current_pool(machine: impl Into<Machine>) -> Result<Self> {
        let machine = machine.into();
        let pool = Pool::current(&machine, AllocationType::MANAGED, Location::NONE)?;
        Ok(Self::of(machine, Some(pool), None))
    }

    /// Memory from the default managed pool: the current one until another is set.
    ///
    /// # Errors
    /// As [`current_pool`](Self::current_pool).
    ///
    /// ```
    /// # use pagewise::{Machine, resource::ManagedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = ManagedMemoryResource::default_pool(&machine)?;
    /// let current = ManagedMemoryResource::current_pool(&machine)?;
    /// assert_eq!(resource.pool().unwrap().handle(), current.pool().unwrap().handle());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn default_pool(machine: impl Into<Machine>) -> Result<Self> {
        let machine = machine.into();
        let pool = Pool::default_of(&machine, AllocationType::MANAGED, Location::NONE)?;
        Ok(Self::of(machine, Some(pool), None))
    }

    /// Its pool, if it has one.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// The preferred location that its own pool was made with.
    #[must_use]
    pub fn preferred_location(&self) -> Option<Place> {
        self.preferred
    }

    fn of(machine: Machine, pool: Option<Pool>, preferred: Option<Place>) -> Self {
        // A pool from elsewhere may have given the same memory before.
        let gives_again = pool.as_ref().is_some_and(|pool| !pool.is_owned());
        Self { machine, pool, preferred, gives_again: AtomicBool::new(gives_again) }
    }

    /// Moves memory that a pool gives again, without copying, to the stream's device, or to the
    /// host if the stream has none.
    ///
    /// What a managed pool gets back stays mapped and is marked as discarded. Driver 580 moves it
    /// when it gives it again, if the pool has a location, and that takes the mark away. Without a
    /// location it does not: a write does not fault, the mark stays, and the next migration loses
    /// what was written (PAGING-271).
    fn settle(&self, span: Span, stream: &Stream) -> Result<()> {
        let is_moved = matches!(self.preferred, Some(Place::Device(_) | Place::Host(Host::Any)));
        if self.pool.is_none() || is_moved || !self.gives_again.load(Ordering::Relaxed) {
            return Ok(());
        }
        let to = stream.device().map_or(Place::HOST, Place::from);
        self.machine.prefetch(span, to, stream.raw())
    }
}

// SAFETY: a resource has to give memory of the size and alignment that it promises, to one owner at
// a time. The driver gives managed memory of at least the size, aligned to 512 bytes, and gives no
// byte out twice.
unsafe impl MemoryResource for ManagedMemoryResource {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Managed
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        let direct = |backend: &dyn Backend| backend.alloc_managed(bytes, AttachFlags::GLOBAL);
        let ptr = allocate_from(self.pool.as_ref(), &self.machine, bytes, stream, direct)?;
        if let Err(error) = self.settle(Span::new(ptr, bytes), stream) {
            // SAFETY: the memory was given just now, and no other code has its address.
            self.machine.on_drop(|| unsafe { self.deallocate(ptr, bytes, stream) });
            return Err(error);
        }
        Ok(ptr)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, _: u64, stream: &Stream) -> Result<()> {
        self.gives_again.store(true, Ordering::Relaxed);
        // SAFETY: the caller promised that only work of the stream uses the memory, and that work
        // is done when `direct` is called.
        let direct = || unsafe { self.machine.backend().free(ptr) };
        // SAFETY: the memory came from the pool if there is one, and the caller promised that only
        // work of the stream uses it.
        unsafe { deallocate_to(self.pool.as_ref(), ptr, stream, direct) }
    }
}
