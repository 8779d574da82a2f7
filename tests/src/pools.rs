//! Managed pools: the prefetch locations that their addresses keep, and the order in which they may
//! be destroyed.

use pagewise::{
    AllocationType, Backend, DeviceId, DevicePtr, HandleTypes, Location, PointerAttribute,
    PoolHandle, PoolProps, RangeAttribute, Span,
};

use crate::{GPU, MIB, STREAM, code};

const MANAGED: AllocationType = AllocationType::MANAGED;

/// A pool of managed memory of the host, where there are such pools and current ones: CUDA 13.0.
fn pool(backend: &dyn Backend) -> Option<PoolHandle> {
    pool_of(backend, Location::HOST)
}

fn pool_of(backend: &dyn Backend, location: Location) -> Option<PoolHandle> {
    let handle_types = HandleTypes::empty();
    let props = PoolProps { allocation_type: MANAGED, location, handle_types, max_bytes: 0 };
    let has_pools = backend.capabilities().location_pools;
    has_pools.then(|| backend.pool_create(props).expect("a driver of CUDA 13.0"))
}

fn alloc(backend: &dyn Backend, pool: PoolHandle) -> Span {
    let ptr = backend.pool_alloc(pool, MIB, STREAM).expect("room");
    backend.stream_synchronize(STREAM).expect("a stream");
    Span::new(ptr, MIB)
}

fn prefetch(backend: &dyn Backend, span: Span) {
    assert_eq!(code(backend.prefetch(span, GPU, 0, STREAM)), 0);
    backend.stream_synchronize(STREAM).expect("a stream");
}

fn free(backend: &dyn Backend, ptr: DevicePtr) {
    // SAFETY: the claims do not use the memory again.
    unsafe { backend.free_async(ptr, STREAM) }.expect("live");
    backend.stream_synchronize(STREAM).expect("a stream");
}

fn destroy(backend: &dyn Backend, pool: PoolHandle) {
    // SAFETY: the claims do not use the handle again.
    unsafe { backend.pool_destroy(pool) }.expect("live");
}

/// Driver 580 crashes at some of the orders.
pub fn managed_pools_are_destroyed_in_any_order(backend: &dyn Backend) {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for prefetched in 0..3 {
            let pools: Option<Vec<_>> = (0..3).map(|_| pool(backend)).collect();
            let Some(pools) = pools else { return };
            let span = alloc(backend, pools[prefetched]);
            prefetch(backend, span);
            free(backend, span.ptr);
            order.iter().for_each(|&at| destroy(backend, pools[at]));
        }
    }
}

pub fn a_destroyed_pool_is_not_current(backend: &dyn Backend) {
    let (Some(old), Some(young)) = (pool(backend), pool(backend)) else { return };
    let default = backend.pool_default(Location::HOST, MANAGED).expect("CUDA 13.0");
    for destroyed in [old, young] {
        backend.pool_set_current(Location::HOST, MANAGED, destroyed).expect("its own location");
        destroy(backend, destroyed);
        let current = backend.pool_current(Location::HOST, MANAGED).expect("there is one");
        assert_ne!(current, destroyed);
        // A driver may name another pool (CONTRACT-96).
        if backend.capabilities().deterministic {
            assert_eq!(current, default);
        }
    }
}

pub fn memory_that_comes_to_a_pool_again_keeps_its_last_prefetch_location(backend: &dyn Backend) {
    let Some(pool) = pool(backend) else { return };
    let last = |span| backend.range_attribute(span, RangeAttribute::LAST_PREFETCH_LOCATION);
    let first = alloc(backend, pool);
    assert_eq!(last(first), Ok(-2));
    prefetch(backend, first);
    free(backend, first.ptr);
    let again = alloc(backend, pool);
    assert_eq!((again.ptr, last(again)), (first.ptr, Ok(0)));
    free(backend, again.ptr);
    destroy(backend, pool);
}

pub fn memory_of_a_pool_belongs_to_the_pools_device(backend: &dyn Backend) {
    let ordinal =
        |span: Span| backend.pointer_attribute(span.ptr, PointerAttribute::DEVICE_ORDINAL);
    for device in 0..backend.device_count().expect("the driver answers") {
        let location = Location::device(DeviceId(device.cast_signed()));
        let Some(pool) = pool_of(backend, location) else { return };
        let span = alloc(backend, pool);
        assert_eq!(ordinal(span), Ok(u64::from(device)));
        free(backend, span.ptr);
        destroy(backend, pool);
    }
}
