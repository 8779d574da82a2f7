//! Claims about each way of freeing: the memory that it takes and refuses (CONTRACT-14).

use pagewise_hal::{
    Advice, AllocationType, AttachFlags, Backend, BackendExt, DeviceId, DevicePtr, HandleTypes,
    HostAllocFlags, Location, PoolAttribute, PoolProps, RangeAttribute, StreamHandle,
};
use pagewise_sim::{SimBackend, SimConfig};

use crate::common::{MIB, code};

fn sim() -> SimBackend {
    SimBackend::new(SimConfig::h200()).unwrap()
}

/// Codes of `cuMemFree`, `cuMemFreeHost` and `cuMemFreeAsync`.
fn free_codes(make: impl Fn(&SimBackend) -> DevicePtr) -> [i32; 3] {
    let fresh = || {
        let sim = sim();
        let ptr = make(&sim);
        (sim, ptr)
    };
    let ((a, p), (b, q), (c, r)) = (fresh(), fresh(), fresh());
    // SAFETY: the test does not use the allocations again.
    unsafe { [code(a.free(p)), code(b.free_pinned(q)), code(c.free_async(r, StreamHandle::NULL))] }
}

#[test]
fn each_kind_of_memory_is_freed_by_its_own_call() {
    let managed = |sim: &SimBackend| sim.alloc_managed(4096, AttachFlags::GLOBAL).unwrap();
    assert_eq!(free_codes(managed), [0, 1, 801]);
    assert_eq!(free_codes(|sim| sim.alloc_device(DeviceId(0), 4096).unwrap()), [0, 1, 0]);
    let pinned = |sim: &SimBackend| sim.alloc_pinned(4096, HostAllocFlags::empty()).unwrap();
    assert_eq!(free_codes(pinned), [1, 0, 1]);
    assert_eq!(free_codes(|_| DevicePtr::NULL), [0, 0, 0]);
    assert_eq!(free_codes(|_| DevicePtr(0x1234_5678_9000)), [1, 1, 1]);
    assert_eq!(free_codes(|sim| managed(sim).offset(512)), [1, 1, 1]);
}

#[test]
fn freeing_twice_is_refused() {
    let sim = sim();
    let ptr = sim.alloc_managed(4096, AttachFlags::HOST).unwrap();
    // SAFETY: the test does not use the allocation again. The simulator looks the pointer of the
    // second free up and dereferences none.
    let codes = unsafe { [code(sim.free(ptr)), code(sim.free(ptr))] };
    assert_eq!(codes, [0, 1]);
}

#[test]
fn a_free_leaves_advice_and_pages_of_other_memory_as_they_are() {
    let sim = sim();
    let mut spans = [(); 3].map(|()| sim.alloc(4 * MIB).unwrap());
    spans.sort_by_key(|span| span.ptr);
    let [below, freed, above] = spans;
    for span in [below, above] {
        sim.advise(span, Advice::SET_READ_MOSTLY, Location::HOST).unwrap();
        sim.prefetch_to(span, Location::device(DeviceId(0))).unwrap();
    }
    let seen = |span| {
        let attributes = [RangeAttribute::READ_MOSTLY, RangeAttribute::LAST_PREFETCH_LOCATION];
        let attributes = attributes.map(|attribute| sim.range_attribute(span, attribute));
        (attributes, sim.host_page_map(span))
    };
    let before = [below, above].map(seen);
    assert_eq!(before[1].0, [Ok(1), Ok(0)]);
    // SAFETY: the test does not use the allocation again.
    unsafe { sim.free(freed.ptr) }.unwrap();
    assert_eq!([below, above].map(seen), before);
}

#[test]
fn both_attach_flags_share_a_slab() {
    let sim = sim();
    let flags = [AttachFlags::GLOBAL, AttachFlags::HOST, AttachFlags::GLOBAL];
    let starts = flags.map(|flags| sim.alloc_managed(4096, flags).unwrap().0);
    assert_eq!([starts[1] - starts[0], starts[2] - starts[1]], [4096, 4096]);
}

#[test]
fn sizes_and_flags_are_refused_as_the_driver_refuses_them() {
    let sim = sim();
    let managed =
        |bytes, flags| code(sim.alloc_managed(bytes, AttachFlags::from_bits_retain(flags)));
    assert_eq!([0, 3, 4, 5, 8].map(|flags| managed(4096, flags)), [1; 5]);
    assert_eq!(managed(0, 1), 1);
    assert_eq!(managed(u64::MAX, 1), 2);
    assert_eq!(code(sim.alloc_device(DeviceId(0), 0)), 1);
    assert_eq!(code(sim.alloc_device(DeviceId(1), 1)), 101);
    assert_eq!(code(sim.alloc_device(DeviceId(0), 1 << 40)), 2);
    let pinned = |bytes, flags| sim.alloc_pinned(bytes, HostAllocFlags::from_bits_retain(flags));
    assert_eq!(pinned(0, 0), Ok(DevicePtr::NULL));
    assert_eq!([7, 8, 255].map(|flags| code(pinned(4096, flags))), [0, 1, 1]);
}

#[test]
fn a_synchronous_free_returns_chunks_and_leaves_the_used_figure() {
    let sim = sim();
    let pool = sim
        .pool_create(PoolProps {
            allocation_type: AllocationType::PINNED,
            location: Location::device(DeviceId(0)),
            handle_types: HandleTypes::empty(),
            max_bytes: 0,
        })
        .unwrap();
    let ptr = sim.pool_alloc(pool, 100, StreamHandle::NULL).unwrap();
    // SAFETY: the test does not use the allocation again.
    unsafe { sim.free(ptr) }.unwrap();
    let read = |attribute| sim.pool_attribute(pool, attribute).unwrap();
    assert_eq!(read(PoolAttribute::RESERVED_MEM_CURRENT), 0);
    assert_eq!(read(PoolAttribute::USED_MEM_CURRENT), 100, "recording pools, line 565");
}
