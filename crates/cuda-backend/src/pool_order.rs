//! The order in which managed pools are destroyed: of one location, the youngest first.
//!
//! Driver 580 follows a null pointer in `cuMemPoolDestroy` if an older managed pool of the same
//! location was destroyed before and its memory had been prefetched (25 orders tried on an H200:
//! every crash is of this kind, and destroyed youngest first none crashes; docs/measurements.md). So
//! an older pool waits until the younger ones are destroyed. Meanwhile it is emptied, and no longer
//! current; what waits holds address space only.
//!
//! A pool belongs to a primary context, of which a process has one per device and driver. So all
//! back ends over one loaded library keep one order, whichever of them made a pool. Pools that other
//! code makes through the driver are not known here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pagewise_hal::{Location, PoolHandle, Result};

use crate::live::{Kind, Live};

/// A managed pool that a back end of this driver made.
#[derive(Debug, Clone, Copy)]
struct Made {
    pool: PoolHandle,
    location: Location,
    /// Whether the user destroyed it, and it waits.
    waits: bool,
}

/// The outcome of destroying a pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It can go now.
    Now,
    /// A younger one of this location lives.
    Later(Location),
    /// It was destroyed before.
    Over,
}

/// Managed pools, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PoolOrder(Vec<Made>);

impl PoolOrder {
    /// The driver made a pool. A pool that had its handle before is gone.
    fn made(&mut self, pool: PoolHandle, location: Location) {
        self.0.retain(|made| made.pool != pool);
        self.0.push(Made { pool, location, waits: false });
    }

    /// Pools of others, and of pinned memory, go at any time.
    pub(crate) fn leave(&mut self, pool: PoolHandle) -> Turn {
        let Some(at) = self.0.iter().position(|made| made.pool == pool) else { return Turn::Now };
        let Made { location, waits, .. } = self.0[at];
        if waits {
            return Turn::Over;
        }
        let is_younger = |made: &Made| made.location == location;
        if !self.0[at + 1..].iter().any(is_younger) {
            return Turn::Now;
        }
        self.0[at].waits = true;
        Turn::Later(location)
    }

    /// A pool is gone. Returns those that waited for it, the youngest first.
    pub(crate) fn gone(&mut self, pool: PoolHandle) -> Vec<PoolHandle> {
        let Some(at) = self.0.iter().position(|made| made.pool == pool) else { return Vec::new() };
        let location = self.0.remove(at).location;
        let alike = self.0.iter().rev().filter(|made| made.location == location);
        let free: Vec<PoolHandle> = alike.take_while(|made| made.waits).map(|m| m.pool).collect();
        self.0.retain(|made| !free.contains(&made.pool));
        free
    }
}

/// The pools of a driver: those that live, and the managed ones as all back ends over it made them.
#[derive(Debug)]
pub(crate) struct DriverPools {
    order: Mutex<PoolOrder>,
    /// A pool is known to all back ends, as it may be current.
    pub(crate) live: Live,
}

impl Default for DriverPools {
    fn default() -> Self {
        Self { order: Mutex::default(), live: Live::new(Kind::Pool) }
    }
}

/// The pools of each driver library with a back end, by [`DriverLibrary::id`]. Pools that the last
/// back end leaves behind are destroyed with its contexts.
///
/// [`DriverLibrary::id`]: crate::library::DriverLibrary::id
static OPEN: Mutex<BTreeMap<usize, Weak<DriverPools>>> = Mutex::new(BTreeMap::new());

impl DriverPools {
    /// The pools of a driver library.
    pub(crate) fn of(library: usize) -> Arc<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, pools| pools.strong_count() > 0);
        open.get(&library).and_then(Weak::upgrade).unwrap_or_else(|| {
            let pools = Arc::default();
            open.insert(library, Arc::downgrade(&pools));
            pools
        })
    }

    /// Makes a pool of this location.
    pub(crate) fn make(
        &self,
        location: Location,
        make: impl FnOnce() -> Result<PoolHandle>,
    ) -> Result<PoolHandle> {
        // Held over the call, as the order is the one in which the driver makes pools.
        let mut order = self.locked();
        let pool = make()?;
        order.made(pool, location);
        self.live.add(pool.as_raw());
        Ok(pool)
    }

    /// A pool that the driver names: it is live.
    pub(crate) fn find(&self, ask: impl FnOnce() -> Result<PoolHandle>) -> Result<PoolHandle> {
        // Held over the call, so that no thread destroys the pool before it counts as live.
        let _order = self.locked();
        let pool = ask()?;
        self.live.add(pool.as_raw());
        Ok(pool)
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, PoolOrder> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Location = Location::HOST;
    const GPU: Location = Location::device(pagewise_hal::DeviceId(0));

    fn pool(raw: u64) -> PoolHandle {
        PoolHandle::checked(raw)
    }

    fn order(locations: &[Location]) -> PoolOrder {
        let mut order = PoolOrder::default();
        locations.iter().zip(1..).for_each(|(location, raw)| order.made(pool(raw), *location));
        order
    }

    #[test]
    fn the_youngest_of_a_location_goes_at_once_and_takes_along_who_waited() {
        let mut order = order(&[HOST, HOST, HOST]);
        assert_eq!(order.leave(pool(1)), Turn::Later(HOST));
        assert_eq!(order.leave(pool(2)), Turn::Later(HOST));
        assert_eq!(order.leave(pool(3)), Turn::Now);
        assert_eq!(order.gone(pool(3)), [pool(2), pool(1)]);
        assert!(order.0.is_empty());
    }

    #[test]
    fn a_pool_in_use_keeps_the_older_ones_waiting() {
        let mut order = order(&[HOST, HOST, HOST]);
        assert_eq!(order.leave(pool(1)), Turn::Later(HOST));
        assert_eq!(order.leave(pool(3)), Turn::Now);
        assert_eq!(order.gone(pool(3)), []);
        assert_eq!(order.leave(pool(2)), Turn::Now);
        assert_eq!(order.gone(pool(2)), [pool(1)]);
    }

    #[test]
    fn other_locations_and_unknown_pools_do_not_wait() {
        let mut order = order(&[HOST, GPU]);
        assert_eq!(order.leave(pool(1)), Turn::Now);
        assert_eq!(order.leave(pool(9)), Turn::Now);
        assert_eq!(order.gone(pool(9)), []);
    }

    #[test]
    fn back_ends_over_one_library_keep_one_order_and_libraries_one_each() {
        // No library is at these addresses.
        let [first, again, other] = [1, 1, 2].map(DriverPools::of);
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        first.make(HOST, || Ok(pool(7))).expect("made");
        assert_eq!(again.locked().0.len(), 1);
        drop((first, again));
        assert_eq!(DriverPools::of(1).locked().0.len(), 0, "gone with the last back end");
    }

    #[test]
    fn a_handle_that_the_driver_gives_again_is_a_new_pool() {
        let mut order = order(&[HOST, HOST]);
        assert_eq!(order.leave(pool(1)), Turn::Later(HOST));
        order.made(pool(1), HOST);
        assert_eq!(order.leave(pool(1)), Turn::Now);
    }

    #[test]
    fn a_pool_is_destroyed_once() {
        let mut order = order(&[HOST, HOST]);
        assert_eq!(order.leave(pool(1)), Turn::Later(HOST));
        assert_eq!(order.leave(pool(1)), Turn::Over);
    }
}
