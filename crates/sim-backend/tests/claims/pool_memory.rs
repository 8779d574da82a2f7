//! Claims about the memory of pools: their descriptions, their access, their share of a device.

use pagewise_hal::{
    AccessFlags, AllocationType, Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch,
    DriverVersion, HandleTypes, HostAllocFlags, Location, MemoryInfo, PoolAttribute, PoolHandle,
    PoolProps, RangeAttribute, Span, StreamHandle,
};
use pagewise_sim::{CostParams, GpuProfile, SimBackend, SimConfig};

use crate::common::{MIB, STREAM, code};
use crate::oversubscription::{CAPACITY, WrittenMemory, small_gpu};

const FIRST: DeviceId = DeviceId(0);

fn props(allocation_type: AllocationType, location: Location) -> PoolProps {
    PoolProps { allocation_type, location, handle_types: HandleTypes::empty(), max_bytes: 0 }
}

/// Two devices of this much memory, all of which programs can have.
fn two_devices(memory_bytes: u64) -> SimBackend {
    let gpu = GpuProfile { memory_bytes, context_bytes: 0, ..GpuProfile::h200() };
    SimBackend::new(SimConfig::new(gpu).devices(2)).unwrap()
}

fn free_mib(sim: &SimBackend, device: i32) -> u64 {
    let MemoryInfo { free_bytes, .. } = sim.memory_info(DeviceId(device)).unwrap();
    free_bytes / MIB
}

#[test]
fn pools_describe_themselves_from_cuda_13_2_on() {
    let home = Location::host_numa(0);
    let exported = PoolProps {
        handle_types: HandleTypes::POSIX_FILE_DESCRIPTOR,
        max_bytes: 33 * MIB,
        ..props(AllocationType::PINNED, home)
    };
    let managed = props(AllocationType::MANAGED, Location::device(DeviceId(1)));
    let described = [
        PoolAttribute::ALLOCATION_TYPE,
        PoolAttribute::EXPORT_HANDLE_TYPES,
        PoolAttribute::LOCATION_ID,
        PoolAttribute::LOCATION_TYPE,
        PoolAttribute::MAX_POOL_SIZE,
    ];
    for (version, is_new) in [(DriverVersion::CUDA_13_0, false), (DriverVersion::CUDA_13_2, true)] {
        let config = SimConfig::h200().devices(2).driver_version(version);
        let sim = SimBackend::new(config).unwrap();
        for (props, expected) in [(exported, [1, 1, 0, 3, 64 * MIB]), (managed, [2, 0, 1, 1, 0])] {
            let pool = sim.pool_create(props).unwrap();
            for (attribute, expected) in described.into_iter().zip(expected) {
                let answer = sim.pool_attribute(pool, attribute);
                match is_new {
                    true => assert_eq!(answer, Ok(expected), "{attribute:?}"),
                    false => assert_eq!(code(answer), 1, "{attribute:?}"),
                }
            }
        }
    }
}

#[test]
fn a_high_water_mark_is_reset_by_0_and_by_no_other_number() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let pool = sim.pool_create(props(AllocationType::PINNED, Location::device(FIRST))).unwrap();
    let block = sim.pool_alloc(pool, 40 * MIB, STREAM).unwrap();
    sim.pool_alloc(pool, MIB, STREAM).unwrap();
    // SAFETY: the test does not use the block again.
    unsafe { sim.free_async(block, STREAM) }.unwrap();
    sim.stream_synchronize(STREAM).unwrap();
    for (mark, before, after) in
        [(PoolAttribute::RESERVED_MEM_HIGH, 64, 32), (PoolAttribute::USED_MEM_HIGH, 41, 1)]
    {
        let error = sim.pool_set_attribute(pool, mark, 1).unwrap_err();
        assert_eq!(error.code(), Some(1));
        assert!(error.to_string().contains("can be set to 0 only"), "{error}");
        assert_eq!(sim.pool_attribute(pool, mark), Ok(before * MIB));
        sim.pool_set_attribute(pool, mark, 0).unwrap();
        assert_eq!(sim.pool_attribute(pool, mark), Ok(after * MIB));
    }
}

#[test]
fn access_to_a_managed_pool_is_given_for_all_memory_that_it_holds() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let pool = sim.pool_create(props(AllocationType::MANAGED, Location::HOST)).unwrap();
    let ptr = sim.pool_alloc(pool, 80 * MIB, STREAM).unwrap();
    let accessed_by = |offset_mib: u64| {
        let mut by = [-9; 2];
        let part = Span::new(ptr.offset(offset_mib * MIB), 2 * MIB);
        sim.range_accessed_by(part, &mut by).unwrap();
        by
    };
    for (access, expected) in [(AccessFlags::READ_WRITE, [0, -2]), (AccessFlags::NONE, [-2, -2])] {
        sim.pool_set_access(pool, Location::device(FIRST), access).unwrap();
        for offset_mib in [0, 30, 32, 62, 64, 78] {
            assert_eq!(accessed_by(offset_mib), expected, "{access:?} at {offset_mib} MiB");
        }
    }
    let part = Span::new(ptr, 2 * MIB);
    assert_eq!(sim.range_attribute(part, RangeAttribute::READ_MOSTLY), Ok(0));
}

#[test]
fn pools_of_a_device_take_whole_chunks_of_its_memory_and_other_pools_none() {
    for (allocation_type, home, taken_mib) in [
        (AllocationType::PINNED, Location::device(FIRST), [64, 0]),
        (AllocationType::PINNED, Location::device(DeviceId(1)), [0, 64]),
        (AllocationType::PINNED, Location::host_numa(0), [0, 0]),
        (AllocationType::MANAGED, Location::HOST, [0, 0]),
    ] {
        let sim = two_devices(512 * MIB);
        let pool = sim.pool_create(props(allocation_type, home)).unwrap();
        sim.pool_alloc(pool, 40 * MIB, STREAM).unwrap();
        let free = [0, 1].map(|device| free_mib(&sim, device));
        assert_eq!(free, taken_mib.map(|taken| 512 - taken), "{allocation_type:?} at {home:?}");
    }
}

/// PAGING-217
#[test]
fn managed_pages_have_made_way_for_a_pool_when_its_allocation_returns() {
    let memory = WrittenMemory::new(small_gpu(CAPACITY), CAPACITY);
    memory.sim.prefetch_to(memory.span, Location::device(FIRST)).unwrap();
    let pinned = props(AllocationType::PINNED, Location::device(FIRST));
    let pool = memory.sim.pool_create(pinned).unwrap();
    let moved = memory.counted(|| _ = memory.sim.pool_alloc(pool, CAPACITY / 2, STREAM).unwrap());
    assert_eq!(moved.by_eviction.bytes, CAPACITY / 2);
}

#[test]
fn a_pool_of_a_device_has_the_room_of_its_device_and_other_pools_have_more() {
    for (allocation_type, home, expected) in [
        (AllocationType::PINNED, Location::device(FIRST), 2),
        (AllocationType::PINNED, Location::device(DeviceId(1)), 0),
        (AllocationType::PINNED, Location::host_numa(0), 0),
        (AllocationType::MANAGED, Location::device(FIRST), 0),
    ] {
        let sim = two_devices(128 * MIB);
        sim.alloc_device(FIRST, 64 * MIB).unwrap();
        let pool = sim.pool_create(props(allocation_type, home)).unwrap();
        let answer = code(sim.pool_alloc(pool, 96 * MIB, STREAM));
        assert_eq!(answer, expected, "{allocation_type:?} at {home:?}");
    }
}

#[test]
fn a_device_gives_all_of_its_memory_and_no_byte_more() {
    let sim = two_devices(128 * MIB);
    let ptr = sim.alloc_device(FIRST, 128 * MIB).unwrap();
    assert_eq!(code(sim.alloc_device(FIRST, 1)), 2);
    // SAFETY: the test does not use the memory again.
    unsafe { sim.free(ptr) }.unwrap();
    assert_eq!(free_mib(&sim, 0), 128);
    assert_eq!(code(sim.pointer_attribute(ptr, pagewise_hal::PointerAttribute::MEMORY_TYPE)), 1);
}

#[test]
fn page_locked_memory_takes_each_flag_alone_and_all_together() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    for bits in 0..8 {
        let flags = HostAllocFlags::from_bits_retain(bits);
        assert_eq!(code(sim.alloc_pinned(MIB, flags)), 0, "{flags:?}");
    }
    assert_eq!(code(sim.alloc_pinned(MIB, HostAllocFlags::from_bits_retain(8))), 1);
}

/// A pool that was destroyed while memory of it is used.
fn destroyed_in_use(sim: &SimBackend) -> (PoolHandle, pagewise_hal::DevicePtr) {
    let pool = sim.pool_create(props(AllocationType::PINNED, Location::device(FIRST))).unwrap();
    sim.pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, u64::MAX).unwrap();
    let ptr = sim.pool_alloc(pool, 40 * MIB, STREAM).unwrap();
    // SAFETY: the claims name the handle afterwards, and the simulator looks handles up and
    // dereferences none.
    unsafe { sim.pool_destroy(pool) }.unwrap();
    (pool, ptr)
}

#[test]
fn a_destroyed_pool_is_refused_by_every_call_while_its_memory_lives() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let (pool, _) = destroyed_in_use(&sim);
    let (home, threshold) = (Location::device(FIRST), PoolAttribute::RELEASE_THRESHOLD);
    let answers = [
        code(sim.pool_attribute(pool, threshold)),
        code(sim.pool_set_attribute(pool, threshold, 0)),
        code(sim.pool_access(pool, home)),
        code(sim.pool_set_access(pool, home, AccessFlags::READ_WRITE)),
        code(sim.pool_trim(pool, 0)),
        code(sim.pool_set_current(home, AllocationType::PINNED, pool)),
        code(sim.pool_alloc(pool, MIB, STREAM)),
        // SAFETY: as it was destroyed before, the call only refuses the handle.
        code(unsafe { sim.pool_destroy(pool) }),
    ];
    assert_eq!(answers, [1; 8]);
}

#[test]
fn a_destroyed_pool_keeps_nothing_once_its_memory_is_freed_whatever_its_threshold() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let before = free_mib(&sim, 0);
    let (_, ptr) = destroyed_in_use(&sim);
    assert_eq!(free_mib(&sim, 0), before - 64);
    // SAFETY: the test does not use the memory again.
    unsafe { sim.free(ptr) }.unwrap();
    assert_eq!(free_mib(&sim, 0), before);
}

#[test]
fn each_device_and_numa_node_has_a_default_pool_of_its_own() {
    let sim = SimBackend::new(SimConfig::h200().devices(2).host_numa_nodes(2)).unwrap();
    let pinned = |at| sim.pool_default(at, AllocationType::PINNED).unwrap();
    let places = [
        Location::device(FIRST),
        Location::device(DeviceId(1)),
        Location::host_numa(0),
        Location::host_numa(1),
        Location::HOST,
    ];
    let pools = places.map(pinned);
    for (at, pool) in places.into_iter().zip(pools) {
        assert_eq!(pinned(at), pool, "{at:?} has one");
        assert_eq!(pools.iter().filter(|other| **other == pool).count(), 1, "{at:?} alone");
    }
}

#[test]
fn before_cuda_13_only_devices_have_default_pools_and_these_are_pinned() {
    let config = SimConfig::h200().driver_version(DriverVersion::CUDA_12_9);
    let sim = SimBackend::new(config).unwrap();
    let kind = |at, kind| sim.pool_default(at, kind).map_err(|error| error.kind());
    assert!(kind(Location::device(FIRST), AllocationType::PINNED).is_ok());
    for (at, allocation_type) in [
        (Location::HOST, AllocationType::PINNED),
        (Location::device(FIRST), AllocationType::MANAGED),
    ] {
        let answer = kind(at, allocation_type);
        assert_eq!(answer, Err(pagewise_hal::ErrorKind::Unsupported), "{at:?}");
    }
}

#[test]
fn an_imported_pool_has_access_and_no_attributes() {
    let fd = HandleTypes::POSIX_FILE_DESCRIPTOR;
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let home = Location::device(FIRST);
    let exported = PoolProps { handle_types: fd, ..props(AllocationType::PINNED, home) };
    let pool = sim.pool_create(exported).unwrap();
    let handle = sim.pool_export(pool, fd).unwrap();
    // SAFETY: the simulator takes handles of its own process.
    let imported = unsafe { sim.pool_import(handle, fd) }.unwrap();
    assert_eq!(code(sim.pool_access(imported, home)), 0);
    assert_eq!(code(sim.pool_attribute(imported, PoolAttribute::RELEASE_THRESHOLD)), 1);
    assert_eq!(code(sim.pool_alloc(imported, MIB, STREAM)), 1);
}

#[test]
fn memory_of_a_pool_is_reached_by_its_own_device_and_by_those_with_access() {
    let sim = two_devices(512 * MIB);
    let pool = sim.pool_create(props(AllocationType::PINNED, Location::device(FIRST))).unwrap();
    let span = Span::new(sim.pool_alloc(pool, MIB, STREAM).unwrap(), MIB);
    let reads = |device| {
        let access = DeviceAccess::Read;
        let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
        // SAFETY: only this test uses the memory, from one thread.
        code(unsafe { sim.device_touch(touch, StreamHandle::NULL) })
    };
    let second = DeviceId(1);
    assert_eq!([reads(FIRST), reads(second)], [0, 700]);
    sim.pool_set_access(pool, Location::device(second), AccessFlags::READ_WRITE).unwrap();
    assert_eq!([reads(FIRST), reads(second)], [0, 0]);
}

/// A machine on which calls on pools take the time of these figures and no other.
fn timed(set: impl FnOnce(&mut CostParams)) -> SimBackend {
    let mut gpu = GpuProfile::h200();
    gpu.cost.pool = Default::default();
    set(&mut gpu.cost);
    SimBackend::new(SimConfig::new(gpu)).unwrap()
}

fn took_ns<T>(sim: &SimBackend, call: impl FnOnce() -> T) -> (u64, T) {
    let before_ns = sim.clock_ns();
    let answer = call();
    (sim.clock_ns() - before_ns, answer)
}

#[test]
fn a_pool_takes_its_time_when_it_is_made_by_whether_it_is_limited() {
    let sim = timed(|cost| {
        (cost.pool.device.create, cost.pool.device.create_limited) = (90.0, 7.0);
    });
    let home = Location::device(FIRST);
    let made = |max_bytes| {
        let props = PoolProps { max_bytes, ..props(AllocationType::PINNED, home) };
        took_ns(&sim, || sim.pool_create(props).unwrap()).0
    };
    assert_eq!([0, 1, 33 * MIB].map(made), [90, 7, 7]);
    let asked = || took_ns(&sim, || sim.pool_default(home, AllocationType::PINNED).unwrap()).0;
    assert_eq!([(); 2].map(|()| asked()), [90, 0], "made when it is first asked for");
}

#[test]
fn chunks_that_a_managed_pool_had_before_take_another_time_than_new_ones() {
    let sim = timed(|cost| {
        (cost.pool.managed_host.chunk, cost.pool.managed_host.chunk_again) = (1000.0, 7.0);
    });
    let pool = sim.pool_create(props(AllocationType::MANAGED, Location::HOST)).unwrap();
    let alloc = |mib: u64| took_ns(&sim, || sim.pool_alloc(pool, mib * MIB, STREAM).unwrap());
    let (first_ns, ptr) = alloc(64);
    // SAFETY: the test does not use the block again.
    unsafe { sim.free_async(ptr, STREAM) }.unwrap();
    sim.stream_synchronize(STREAM).unwrap();
    sim.pool_trim(pool, 0).unwrap();
    let (again_ns, _) = alloc(96);
    assert_eq!((first_ns, again_ns), (2000, 1014), "two new, then two old ones and a new one");
}
