//! The end of pools: each is destroyed when its turn comes (see `pool_order`).

use pagewise_hal::{
    AllocationType, Code, Error, ErrorKind, Location, PoolAttribute, PoolHandle, Result,
};

use crate::abi::handle;
use crate::backend::CudaBackend;
use crate::pool_order::Turn;
use crate::uses::Taken;

const OPERATION: &str = "pool_destroy";

impl CudaBackend {
    /// Destroys a pool that is not in the set of live ones any more, when its turn comes.
    pub(crate) fn pool_end(&self, pool: PoolHandle) -> Result<()> {
        // Held over the calls, as two threads may destroy two pools.
        let (live, mut order) = (&self.driver.pools.live, self.driver.pools.locked());
        match order.leave(pool) {
            Turn::Now => {
                self.destroy_now(pool).inspect_err(|error| {
                    // A default pool lives on.
                    if error.kind() == ErrorKind::InvalidValue && !pool.is_vouched() {
                        live.add(pool.as_raw());
                    }
                })?;
                for waiting in order.gone(pool) {
                    // The driver may have named it once more, if it could not be replaced as the
                    // current one. Then the last call that uses it destroys it.
                    if live.take(waiting.as_raw()) != Taken::InUse {
                        // Its user was told that it is destroyed.
                        _ = self.destroy_now(waiting);
                    }
                }
                Ok(())
            }
            Turn::Later(location) => {
                self.empty(pool, location);
                Ok(())
            }
            Turn::Over => Err(Error::from_code(OPERATION, Code::INVALID_VALUE)
                .with_detail("the pool was destroyed before")),
        }
    }

    fn destroy_now(&self, pool: PoolHandle) -> Result<()> {
        let destroy = self.driver.table.mem_pool_destroy;
        // SAFETY: the driver asks for a live pool that no call uses. It was taken from the set of
        // live ones, which succeeds once and only while no call uses it; for a pool that was not in
        // the set, the caller of `pool_destroy` promised it.
        self.home.context.call(OPERATION, || unsafe { destroy(handle(pool.as_raw())) })
    }

    /// Does what destroying a pool does besides ending it. Failures are the driver's to deal with
    /// when the pool's turn comes.
    fn empty(&self, pool: PoolHandle, location: Location) {
        const MANAGED: AllocationType = AllocationType::MANAGED;
        let table = &self.driver.table;
        let ask = |by_location, by_device| {
            let found = self.pool_asked(OPERATION, location, MANAGED, by_location, by_device);
            // SAFETY: a handle has to name a live pool while it is used. The driver has just named
            // this one, and the lock on the order, which is held, keeps other threads from
            // destroying it.
            found.map(|found| unsafe { PoolHandle::from_raw(found.as_raw()) })
        };
        // SAFETY: a handle has to name a live pool while it is used. This one is destroyed after
        // its turn only, and the lock on the order, which is held, keeps the turn from coming.
        let pool = unsafe { PoolHandle::from_raw(pool.as_raw()) };
        if ask(table.mem_get_mem_pool, table.device_get_mem_pool) == Ok(pool)
            && let Ok(default) =
                ask(table.mem_get_default_mem_pool, table.device_get_default_mem_pool)
        {
            _ = self.pool_set_current(location, MANAGED, default);
        }
        _ = self.pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, 0);
        _ = self.pool_trim(pool, 0);
    }
}
