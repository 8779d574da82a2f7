//! The placement of allocations: random programs that allocate, free and wait, recorded on an H200
//! with the offset of every allocation and carried out on the simulator.

use std::collections::HashMap;
use std::path::Path;

use pagewise::{
    AllocationType, AttachFlags, Backend, DeviceId, DevicePtr, HandleTypes, Location,
    PoolAttribute, PoolProps, SimBackend, SimConfig, StreamHandle,
};
use serde_json::Value;

const STREAM: StreamHandle = StreamHandle::PER_THREAD;

/// The programs: a line each, after one that says what they are.
fn programs(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/placement").join(file);
    let text = std::fs::read_to_string(path).expect("the recording");
    text.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Allocations, and how many of them are where they were recorded. Each is freed where it is here.
fn carry_out(program: &Value) -> (usize, usize) {
    let sim = SimBackend::new(SimConfig::h200()).expect("address space");
    let allocation_type = match program["pool"].as_str() {
        Some("managed") => AllocationType::MANAGED,
        _ => AllocationType::PINNED,
    };
    let location = Location::device(DeviceId(0));
    let handle_types = HandleTypes::empty();
    let pool = sim
        .pool_create(PoolProps { allocation_type, location, handle_types, max_bytes: 0 })
        .expect("a pool");
    let threshold = program["threshold"].as_u64().expect("bytes");
    sim.pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, threshold).expect("a setting");
    let mut live: Vec<(u64, DevicePtr)> = Vec::new();
    let (mut first, mut count, mut equal) = (None, 0, 0);
    for op in program["log"].as_array().expect("operations") {
        let number = |at: usize| op[at].as_u64().expect("a number");
        match op[0].as_str() {
            Some("a") => {
                let ptr = sim.pool_alloc(pool, number(1), STREAM).expect("room");
                let base = *first.get_or_insert(ptr.0);
                count += 1;
                equal += usize::from(ptr.0 - base == number(2));
                live.push((number(2), ptr));
            }
            Some("f") => {
                let at = live.iter().position(|(offset, _)| *offset == number(2));
                let (_, ptr) = live.swap_remove(at.expect("it lives"));
                // SAFETY: no work uses the memory, and it is freed once.
                unsafe { sim.free_async(ptr, STREAM) }.expect("it lives");
            }
            _ => sim.stream_synchronize(STREAM).expect("a stream"),
        }
    }
    (count, equal)
}

/// All but two programs, the same one on managed and on device memory, agree in every address. In
/// those two the H200 takes the other of two blocks, so later addresses differ too.
#[test]
fn pools_place_allocations_where_an_h200_does() {
    let results: Vec<(usize, usize)> = programs("h200-580.jsonl").iter().map(carry_out).collect();
    let count: usize = results.iter().map(|(count, _)| count).sum();
    let equal: usize = results.iter().map(|(_, equal)| equal).sum();
    let whole = results.iter().filter(|(count, equal)| count == equal).count();
    assert_eq!((results.len(), count), (72, 3374));
    assert_eq!((whole, equal), (70, 3370));
}

/// Regions of managed memory, of 32 MiB, descend on the H200 and ascend here; within them addresses
/// ascend on both. No allocation of these programs needs more than a region.
#[test]
fn managed_allocations_are_where_an_h200_places_them() {
    const REGION_BYTES: u64 = 32 << 20;
    let (mut count, mut first) = (0, None);
    for program in programs("managed-h200-580.jsonl") {
        let sim = SimBackend::new(SimConfig::h200()).expect("address space");
        let mut live = HashMap::new();
        for op in program["log"].as_array().expect("operations") {
            let number = |at: usize| op[at].as_u64().expect("a number");
            if op[0] == "f" {
                let ptr = live.remove(&number(1)).expect("it lives");
                // SAFETY: no work uses the memory, and it is freed once.
                unsafe { sim.free(ptr) }.expect("it lives");
                continue;
            }
            let ptr = sim.alloc_managed(number(2), AttachFlags::GLOBAL).expect("room");
            let offset = ptr.0 - *first.get_or_insert(ptr.0);
            let (region, within) = (offset / REGION_BYTES, offset % REGION_BYTES);
            let there = within.cast_signed() - (region * REGION_BYTES).cast_signed();
            assert_eq!(Some(there), op[3].as_i64(), "allocation {}", number(1));
            live.insert(number(1), ptr);
            count += 1;
        }
        // Each program begins at the same address again.
        first = None;
    }
    assert_eq!(count, 661);
}
