//! The answers of memory pools. Every table was read off an H200 (driver 580, CUDA 13.0).

use pagewise_hal::{
    AccessFlags, AllocationType, Backend, DeviceId, DevicePtr, HandleTypes, Location, LocationKind,
    PoolAttribute, PoolHandle, PoolProps, RangeAttribute, Span,
};
use pagewise_sim::{SimBackend, SimConfig};

use crate::common::{MIB, STREAM, code};

fn sim() -> SimBackend {
    SimBackend::new(SimConfig::h200()).unwrap()
}

fn location(kind: i32, id: i32) -> Location {
    Location { kind: LocationKind(kind), id }
}

fn props(kind: AllocationType, at: Location, handle_types: u32, max_bytes: u64) -> PoolProps {
    let handle_types = HandleTypes::from_bits_retain(handle_types);
    PoolProps { allocation_type: kind, location: at, handle_types, max_bytes }
}

fn device_pool(sim: &SimBackend) -> PoolHandle {
    sim.pool_create(props(AllocationType::PINNED, Location::device(DeviceId(0)), 0, 0)).unwrap()
}

fn reserved_mib(sim: &SimBackend, pool: PoolHandle) -> u64 {
    sim.pool_attribute(pool, PoolAttribute::RESERVED_MEM_CURRENT).unwrap() / MIB
}

#[test]
fn pools_are_made_of_exactly_the_combinations_that_the_driver_takes() {
    let sim = sim();
    let mut accepted = Vec::new();
    for kind in [0, 1, 2, 3, 4] {
        for handles in [0, 1, 2, 3, 4, 8] {
            for at in [(0, 0), (1, 0), (1, 7), (2, 0), (2, 3), (3, 0), (3, 5), (4, 0)] {
                for max in [0, 100] {
                    let props = props(AllocationType(kind), location(at.0, at.1), handles, max);
                    match code(sim.pool_create(props)) {
                        0 => accepted.push((kind, handles, at, max)),
                        other => assert_eq!(other, 1, "{props:?}"),
                    }
                }
            }
        }
    }
    let mut expected = Vec::new();
    for (handles, at) in [
        (0, (1, 0)),
        (0, (2, 0)),
        (0, (2, 3)),
        (0, (3, 0)),
        (1, (1, 0)),
        (1, (3, 0)),
        (8, (1, 0)),
        (8, (3, 0)),
    ] {
        expected.extend([(1, handles, at, 0), (1, handles, at, 100)]);
    }
    expected.extend([(0, 0), (1, 0), (2, 0), (2, 3), (3, 0), (4, 0)].map(|at| (2, 0, at, 0)));
    assert_eq!(accepted, expected);
    let invisible = props(AllocationType::MANAGED, location(5, 0), 0, 0);
    assert_eq!(code(sim.pool_create(invisible)), 801);
}

/// Rows: location; codes for access 0, 1, 2, 3 and 7.
type AccessTable = &'static [((i32, i32), [i32; 5])];

const ON_DEVICE: AccessTable = &[
    ((0, 0), [801; 5]),
    ((1, 0), [101, 801, 1, 0, 1]),
    ((1, 7), [101, 801, 101, 101, 101]),
    ((2, 0), [801; 5]),
    ((3, 5), [801; 5]),
    ((4, 0), [801; 5]),
    ((6, 0), [801; 5]),
];
const ON_HOST: AccessTable = &[
    ((0, 0), [1, 801, 1, 1, 1]),
    ((1, 0), [0, 801, 1, 0, 1]),
    ((1, 7), [101, 801, 101, 101, 101]),
    ((2, 4), [801, 801, 1, 0, 1]),
    ((3, 5), [801, 801, 1, 0, 1]),
    ((4, 0), [1, 801, 1, 1, 1]),
    ((5, 0), [1, 801, 1, 1, 1]),
];
const MANAGED: AccessTable = &[
    ((0, 0), [1, 801, 1, 1, 1]),
    ((1, 0), [0, 801, 1, 0, 1]),
    ((1, 7), [101, 801, 101, 101, 101]),
    ((2, 0), [0, 801, 1, 0, 1]),
    ((3, 5), [0, 801, 1, 0, 1]),
    ((4, 0), [1, 801, 1, 1, 1]),
    ((6, 0), [1, 801, 1, 1, 1]),
];

#[test]
fn setting_access_is_refused_as_the_driver_refuses_it() {
    let sim = sim();
    for (kind, home, table) in [
        (1, (1, 0), ON_DEVICE),
        (1, (2, 0), ON_HOST),
        (1, (3, 0), ON_HOST),
        (2, (1, 0), MANAGED),
        (2, (2, 0), MANAGED),
        (2, (4, 0), MANAGED),
        (2, (0, 0), MANAGED),
    ] {
        let props = props(AllocationType(kind), location(home.0, home.1), 0, 0);
        for (at, codes) in table {
            for (access, expected) in [0, 1, 2, 3, 7].into_iter().zip(codes) {
                let pool = sim.pool_create(props).unwrap();
                let at = location(at.0, at.1);
                let got = code(sim.pool_set_access(pool, at, AccessFlags(access)));
                assert_eq!(got, *expected, "{props:?}: {at:?} gets {access}");
            }
        }
    }
}

#[test]
fn access_reads_know_the_home_of_pinned_pools_only_and_any_numa_node_is_the_host() {
    let sim = sim();
    let all = [(0, 0), (1, 0), (1, 7), (2, 4), (3, 0), (3, 5), (4, 0), (5, 0)];
    for (kind, home, expected) in [
        (1, (1, 0), [99, 3, 99, 0, 0, 0, 99, 99]),
        (1, (2, 0), [99, 0, 99, 3, 3, 3, 99, 99]),
        (2, (1, 0), [99, 0, 99, 0, 0, 0, 99, 99]),
        (2, (2, 0), [99, 0, 99, 0, 0, 0, 99, 99]),
    ] {
        let props = props(AllocationType(kind), location(home.0, home.1), 0, 0);
        let pool = sim.pool_create(props).unwrap();
        let got = all.map(|at| sim.pool_access(pool, location(at.0, at.1)).map_or(99, |a| a.0));
        assert_eq!(got, expected, "{props:?}");
    }
}

/// `cuda.h` says which attributes are an int and which a 64-bit number.
#[test]
fn of_a_switch_the_low_32_bits_count_and_of_a_threshold_all_64() {
    let sim = sim();
    let pool = device_pool(&sim);
    let set = |attribute, value| {
        sim.pool_set_attribute(pool, attribute, value).unwrap();
        sim.pool_attribute(pool, attribute).unwrap()
    };
    for attribute in [1, 2, 3].map(PoolAttribute) {
        for (value, on) in
            [(1 << 32, 0), (1, 1), (1 << 63, 0), ((1 << 32) + 1, 1), (0, 0), (1 << 31, 1)]
        {
            assert_eq!(set(attribute, value), on, "{attribute:?} set to {value:#x}");
        }
    }
    let threshold = (1 << 32) + 5;
    assert_eq!(set(PoolAttribute::RELEASE_THRESHOLD, threshold), threshold);
}

/// The reserved MiB after each of four 32 MiB allocations was freed and the stream
/// synchronised; then after trimming to 100, 64, 33, 32, 1 and 0 MiB.
#[test]
fn thresholds_and_trims_keep_what_the_driver_keeps() {
    for (threshold_mib, after_frees, after_trims) in [
        (0, [96, 64, 32, 0], [0, 0, 0, 0, 0, 0]),
        (16, [96, 64, 32, 0], [0, 0, 0, 0, 0, 0]),
        (32, [96, 64, 32, 32], [32, 32, 32, 32, 32, 0]),
        (33, [96, 64, 32, 32], [32, 32, 32, 32, 32, 0]),
        (64, [96, 64, 64, 64], [64, 64, 64, 32, 32, 0]),
        (96, [96, 96, 96, 96], [96, 64, 64, 32, 32, 0]),
        (128, [128; 4], [128, 64, 64, 32, 32, 0]),
    ] {
        let sim = sim();
        let pool = device_pool(&sim);
        let threshold = PoolAttribute::RELEASE_THRESHOLD;
        sim.pool_set_attribute(pool, threshold, threshold_mib * MIB).unwrap();
        let blocks = [(); 4].map(|()| sim.pool_alloc(pool, 32 * MIB, STREAM).unwrap());
        let mut rest = blocks.into_iter().rev();
        let frees = [(); 4].map(|()| {
            // SAFETY: the test does not use the block again.
            unsafe { sim.free_async(rest.next().unwrap(), STREAM) }.unwrap();
            sim.stream_synchronize(STREAM).unwrap();
            reserved_mib(&sim, pool)
        });
        assert_eq!(frees, after_frees, "threshold {threshold_mib} MiB");
        let trims = [100, 64, 33, 32, 1, 0].map(|keep| {
            sim.pool_trim(pool, if keep == 1 { 1 } else { keep * MIB }).unwrap();
            reserved_mib(&sim, pool)
        });
        assert_eq!(trims, after_trims, "threshold {threshold_mib} MiB");
    }
}

/// Rows: limit in MiB (1 stands for 1 byte); then for each request in MiB the code, and what is
/// reserved now and at most.
#[test]
fn a_size_limit_counts_whole_chunks_and_failed_growth_shows_in_the_high_water_mark() {
    let requests = [40, 30, 66, 1, 100, 32];
    for (max_bytes, expected) in [
        (0, [(0, 64, 64), (0, 96, 96), (0, 160, 160), (0, 160, 160), (0, 256, 256), (0, 288, 288)]),
        (1, [(2, 0, 32), (0, 32, 32), (2, 32, 32), (0, 32, 32), (2, 32, 32), (2, 32, 32)]),
        (33 * MIB, [(0, 64, 64), (2, 64, 64), (2, 64, 64), (0, 64, 64), (2, 64, 64), (2, 64, 64)]),
        (96 * MIB, [(0, 64, 64), (0, 96, 96), (2, 96, 96), (0, 96, 96), (2, 96, 96), (2, 96, 96)]),
        (
            100 * MIB,
            [(0, 64, 64), (0, 96, 96), (2, 96, 128), (0, 96, 128), (2, 96, 128), (0, 128, 128)],
        ),
    ] {
        let sim = sim();
        let home = Location::device(DeviceId(0));
        let pool = sim.pool_create(props(AllocationType::PINNED, home, 0, max_bytes)).unwrap();
        let got = requests.map(|mib| {
            let code = code(sim.pool_alloc(pool, mib * MIB, STREAM));
            let high = sim.pool_attribute(pool, PoolAttribute::RESERVED_MEM_HIGH).unwrap() / MIB;
            (code, reserved_mib(&sim, pool), high)
        });
        assert_eq!(got, expected, "limit {max_bytes}");
    }
}

/// Rows: sizes; offsets of the allocations; offsets when the first three sizes are asked for again
/// after the first block was freed. In MiB.
#[test]
fn allocations_go_where_the_fewest_new_chunks_are_needed() {
    for (sizes, offsets, again) in [
        (&[66, 1, 66, 5, 40][..], &[0, 66, 67, 133, 138][..], [0, 178, 179]),
        (&[100, 10], &[0, 100], [0, 110, 0]),
        (&[33, 33, 33], &[0, 33, 66], [0, 99, 132]),
        (&[20, 20, 20], &[0, 20, 40], [0, 60, 80]),
        (&[64, 64], &[0, 64], [0, 128, 0]),
        (&[3, 31, 2, 30], &[0, 3, 34, 36], [0, 66, 97]),
    ] {
        let sim = sim();
        let pool = device_pool(&sim);
        let alloc = |mib: &u64| sim.pool_alloc(pool, mib * MIB, STREAM).unwrap();
        let blocks: Vec<DevicePtr> = sizes.iter().map(alloc).collect();
        let offset = |block: DevicePtr| (block.0 - blocks[0].0) / MIB;
        assert_eq!(blocks.iter().map(|&block| offset(block)).collect::<Vec<_>>(), offsets);
        // SAFETY: the test does not use the block again.
        unsafe { sim.free_async(blocks[0], STREAM) }.unwrap();
        sim.stream_synchronize(STREAM).unwrap();
        for (mib, expected) in sizes.iter().zip(again).take(3) {
            assert_eq!(offset(alloc(mib)), expected, "{sizes:?}");
        }
    }
}

#[test]
fn memory_of_a_managed_pool_prefers_the_location_as_it_was_passed() {
    let sim = sim();
    for (home, legacy, kind, id) in [
        ((1, 0), 0, 1, 0),
        ((2, 0), -1, 2, 0),
        ((3, 0), -1, 3, 0),
        ((4, 0), -1, 4, 0),
        ((0, 0), -2, 0, -2),
    ] {
        let props = props(AllocationType::MANAGED, location(home.0, home.1), 0, 0);
        let pool = sim.pool_create(props).unwrap();
        let span = Span::new(sim.pool_alloc(pool, 4 * MIB, STREAM).unwrap(), 4 * MIB);
        let read = |attribute| sim.range_attribute(span, attribute).unwrap();
        assert_eq!(read(RangeAttribute::PREFERRED_LOCATION), legacy);
        assert_eq!(read(RangeAttribute::PREFERRED_LOCATION_TYPE), kind);
        assert_eq!(read(RangeAttribute::PREFERRED_LOCATION_ID), id);
        let mut by = [0; 2];
        sim.range_accessed_by(span, &mut by).unwrap();
        assert_eq!(by, [-2, -2]);
    }
}

#[test]
fn default_pools_are_one_for_each_type_and_location_and_cannot_be_destroyed() {
    let sim = sim();
    let default = |kind, at: (i32, i32)| {
        sim.pool_default(location(at.0, at.1), AllocationType(kind))
            .map_err(|error| error.code().unwrap())
    };
    assert_eq!(default(2, (2, 0)), default(2, (2, 9)), "the host's id is ignored");
    assert_ne!(default(2, (2, 0)), default(2, (3, 0)));
    assert_ne!(default(1, (1, 0)), default(2, (1, 0)));
    for (kind, at, code) in [
        (1, (4, 0), 801),
        (2, (4, 0), 801),
        (9, (4, 0), 801),
        (1, (0, 0), 1),
        (1, (1, 7), 1),
        (1, (3, 5), 1),
        (2, (1, 7), 1),
        (0, (1, 0), 1),
    ] {
        assert_eq!(default(kind, at), Err(code), "type {kind} at {at:?}");
    }
    // SAFETY: the test does not use the handle again.
    assert_eq!(code(unsafe { sim.pool_destroy(default(1, (1, 0)).unwrap()) }), 1);
}

#[test]
fn a_pool_can_be_current_where_it_belongs_until_it_is_destroyed() {
    let sim = sim();
    let home = Location::device(DeviceId(0));
    let pool = device_pool(&sim);
    let pinned = AllocationType::PINNED;
    assert_eq!(code(sim.pool_set_current(Location::HOST, pinned, pool)), 1);
    assert_eq!(code(sim.pool_set_current(home, AllocationType::MANAGED, pool)), 1);
    sim.pool_set_current(home, pinned, pool).unwrap();
    assert_eq!(sim.pool_current(home, pinned).unwrap(), pool);
    // SAFETY: the test compares the handle afterwards, and the simulator looks handles up and
    // dereferences none.
    unsafe { sim.pool_destroy(pool) }.unwrap();
    assert_eq!(sim.pool_current(home, pinned), sim.pool_default(home, pinned));
    assert_eq!(code(sim.pool_attribute(pool, PoolAttribute::RELEASE_THRESHOLD)), 1);
}

/// Else the import would swallow the free of whatever has the address next.
#[test]
#[cfg(unix)]
fn memory_that_its_exporter_frees_first_takes_its_import_along() {
    use std::os::fd::{FromRawFd, OwnedFd};
    let (sim, fd) = (sim(), HandleTypes::POSIX_FILE_DESCRIPTOR);
    let at = Location::device(DeviceId(0));
    let pool = sim.pool_create(props(AllocationType::PINNED, at, fd.bits(), 0)).unwrap();
    let first = sim.pool_alloc(pool, MIB, STREAM).unwrap();
    let handle = sim.pool_export(pool, fd).unwrap();
    let blob = sim.pool_export_pointer(first).unwrap();
    // SAFETY: the simulator takes handles of its own process. The test does not use the memory, and
    // the descriptor was made for it.
    unsafe {
        let imported = sim.pool_import(handle, fd).unwrap();
        assert_eq!(sim.pool_import_pointer(imported, blob), Ok(first));
        sim.free(first).unwrap();
        assert_eq!(sim.pool_alloc(pool, MIB, STREAM), Ok(first));
        sim.free_async(first, STREAM).unwrap();
        assert_eq!(code(sim.free_async(first, STREAM)), 1, "one free ends it");
        drop(OwnedFd::from_raw_fd(handle.0));
    }
}
