//! The calls of pools that need more than their arguments passed on.

use pagewise_hal::{
    AllocationType, Code, DeviceId, DriverVersion, Error, Location, LocationKind, PoolAttribute,
    PoolHandle, PoolProps, Result,
};

use crate::abi::{Handle, MemLocation, RawPoolProps, handle};
use crate::backend::CudaBackend;

/// `cuMemGetDefaultMemPool` and `cuMemGetMemPool`.
type ByLocation = unsafe extern "C" fn(*mut Handle, *mut MemLocation, i32) -> i32;
/// The forms of the same two calls in CUDA 11.2, which have only pools of pinned memory on devices.
type ByDevice = unsafe extern "C" fn(*mut Handle, i32) -> i32;

fn invalid<T>(operation: &'static str, why: &'static str) -> Result<T> {
    Err(Error::from_code(operation, Code::INVALID_VALUE).with_detail(why))
}

impl CudaBackend {
    pub(crate) fn pool_create(&self, props: PoolProps) -> Result<PoolHandle> {
        const OPERATION: &str = "pool_create";
        self.check_props(OPERATION, props)?;
        let raw = RawPoolProps::from(props);
        let create = self.driver.table.mem_pool_create;
        let make = || {
            let (context, mut pool) = (&self.home.context, std::ptr::null_mut());
            // SAFETY: the driver reads `raw` and writes the pool, both locals that outlive the
            // call. The bytes of the properties that have no use are zero, as the driver asks.
            context.call(OPERATION, || unsafe { create(&raw mut pool, &raw const raw) })?;
            Ok(made(pool))
        };
        if props.allocation_type == AllocationType::MANAGED {
            return self.driver.pools.make(props.location, make);
        }
        self.driver.pools.find(make)
    }

    /// Refuses properties that a driver of the version in use refuses, because the installed driver
    /// may be newer and take them.
    fn check_props(&self, operation: &'static str, props: PoolProps) -> Result<()> {
        let has = |since| self.driver.has(since);
        let kind = props.location.kind;
        if props.max_bytes != 0 && !has(DriverVersion::CUDA_12_2) {
            return invalid(operation, "a size limit needs a driver of CUDA 12.2 or later");
        }
        if kind == LocationKind::HOST_NUMA && !has(DriverVersion::CUDA_12_2) {
            return invalid(operation, "NUMA nodes need a driver of CUDA 12.2 or later");
        }
        let on_host = kind == LocationKind::HOST;
        let managed = props.allocation_type == AllocationType::MANAGED;
        if (managed || on_host) && !has(DriverVersion::CUDA_13_0) {
            let why = "managed pools and pools on the host need a driver of CUDA 13.0 or later";
            return invalid(operation, why);
        }
        Ok(())
    }

    /// Asks the driver for a default or current pool, and enters it in the set of live pools.
    pub(crate) fn pool_found(
        &self,
        operation: &'static str,
        location: Location,
        kind: AllocationType,
        by_location: Option<ByLocation>,
        by_device: ByDevice,
    ) -> Result<PoolHandle> {
        let ask = || self.pool_asked(operation, location, kind, by_location, by_device);
        self.driver.pools.find(ask)
    }

    /// Asks for a default or current pool while the lock on the order of pools is held.
    pub(crate) fn pool_asked(
        &self,
        operation: &'static str,
        location: Location,
        kind: AllocationType,
        by_location: Option<ByLocation>,
        by_device: ByDevice,
    ) -> Result<PoolHandle> {
        let mut pool = std::ptr::null_mut();
        if let Some(find) = by_location {
            let mut raw = MemLocation::from(location);
            let context = &self.home.context;
            // SAFETY: the driver reads the location and writes the pool, both locals that outlive
            // the call.
            context.call(operation, || unsafe { find(&raw mut pool, &raw mut raw, kind.0) })?;
        } else {
            let device = self.pool_device(operation, location, kind)?;
            // SAFETY: the driver checks the device, and writes the pool to a local that outlives
            // the call.
            self.home.context.call(operation, || unsafe { by_device(&raw mut pool, device) })?;
        }
        Ok(made(pool))
    }

    pub(crate) fn pool_set_current(
        &self,
        location: Location,
        kind: AllocationType,
        pool: PoolHandle,
    ) -> Result<()> {
        const OPERATION: &str = "pool_set_current";
        let _used = self.use_pool(OPERATION, pool)?;
        let (table, context) = (&self.driver.table, &self.home.context);
        let raw_pool = handle(pool.as_raw());
        if let Some(set) = table.mem_set_mem_pool {
            let mut raw = MemLocation::from(location);
            // SAFETY: the driver reads the location, a local that outlives the call. The pool is
            // live because this call uses it.
            return context.call(OPERATION, || unsafe { set(&raw mut raw, kind.0, raw_pool) });
        }
        let device = self.pool_device(OPERATION, location, kind)?;
        // SAFETY: the driver checks the device. The pool is live because this call uses it.
        context.call(OPERATION, || unsafe { (table.device_set_mem_pool)(device, raw_pool) })
    }

    /// The device of a location with a pool of pinned memory. Before CUDA 13.0 there are no other
    /// pools.
    fn pool_device(
        &self,
        operation: &'static str,
        location: Location,
        kind: AllocationType,
    ) -> Result<i32> {
        if (location.kind, kind) != (LocationKind::DEVICE, AllocationType::PINNED) {
            let instead = "before it, only devices have default pools, of pinned memory";
            return Err(self.too_old(operation, "13.0", instead));
        }
        if self.check_device(operation, DeviceId(location.id)).is_err() {
            return invalid(operation, "the device does not exist");
        }
        Ok(location.id)
    }

    pub(crate) fn pool_attribute(&self, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64> {
        const OPERATION: &str = "pool_attribute";
        self.check_pool_attribute(OPERATION, attribute)?;
        let _used = self.use_pool(OPERATION, pool)?;
        // Larger than any attribute; those of 4 bytes fill the lower half of the first word.
        let mut value = [0_u64; 4];
        let get = self.driver.table.mem_pool_get_attribute;
        // SAFETY: the driver writes 4 or 8 bytes for a known attribute, and the place has 32. The
        // pool is live because this call uses it.
        self.home.context.call(OPERATION, || unsafe {
            get(handle(pool.as_raw()), attribute.0, value.as_mut_ptr().cast())
        })?;
        let signed = [
            PoolAttribute::ALLOCATION_TYPE,
            PoolAttribute::LOCATION_ID,
            PoolAttribute::LOCATION_TYPE,
        ];
        Ok(match value[0] {
            number if signed.contains(&attribute) => number as u32 as i32 as u64,
            number => number,
        })
    }

    pub(crate) fn pool_set_attribute(
        &self,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()> {
        const OPERATION: &str = "pool_set_attribute";
        self.check_pool_attribute(OPERATION, attribute)?;
        let _used = self.use_pool(OPERATION, pool)?;
        let mut value = [value, 0, 0, 0];
        let set = self.driver.table.mem_pool_set_attribute;
        // SAFETY: the driver reads 4 or 8 bytes of a local that outlives the call. The pool is live
        // because this call uses it.
        self.home.context.call(OPERATION, || unsafe {
            set(handle(pool.as_raw()), attribute.0, value.as_mut_ptr().cast())
        })
    }

    /// Refuses attributes that the version in use does not have, because their size is unknown
    /// here.
    fn check_pool_attribute(
        &self,
        operation: &'static str,
        attribute: PoolAttribute,
    ) -> Result<()> {
        /// `CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID`, the last one of CUDA 13.5.
        const LAST: i32 = 15;
        let last = if self.driver.has(DriverVersion::CUDA_13_2) { LAST } else { 8 };
        if (1..=last).contains(&attribute.0) {
            return Ok(());
        }
        invalid(operation, "this driver does not know the pool attribute")
    }
}

/// The handle of a pool that the driver has just returned.
pub(crate) fn made(pool: Handle) -> PoolHandle {
    PoolHandle::checked(pool.addr() as u64)
}
