//! Claims about the addresses of pools, and about what they give back.

use super::*;

const MIB: u64 = 1 << 20;

fn pools() -> (Arena, Pools) {
    let topology = Topology { devices: 1, host_numa_nodes: 1 };
    (Arena::default(), Pools::new(topology, DriverVersion::CUDA_13_0, 1 << 30))
}

fn create(pools: &mut Pools, allocation_type: AllocationType) -> u64 {
    let location = Location::device(pagewise_hal::DeviceId(0));
    let handle_types = HandleTypes::empty();
    pools.create(PoolProps { allocation_type, location, handle_types, max_bytes: 0 }).expect("made")
}

fn alloc(arena: &mut Arena, pools: &mut Pools, pool: u64, bytes: u64) -> Checked<u64> {
    pools.alloc(arena, pool, bytes, u64::MAX).map(|grown| grown.address)
}

/// Pools of a kind with memory, until there is no address space for another one.
fn fill_up(arena: &mut Arena, pools: &mut Pools, kind: AllocationType) -> Vec<(u64, u64)> {
    let mut made = Vec::new();
    loop {
        let pool = create(pools, kind);
        match alloc(arena, pools, pool, MIB) {
            Ok(address) => made.push((pool, address)),
            Err(_) => return made,
        }
    }
}

/// A managed pool gives its addresses back as one, another pool chunk by chunk, the last first.
#[test]
fn a_destroyed_pool_is_forgotten_when_its_memory_has_been_freed() {
    for (kind, is_managed) in [(AllocationType::MANAGED, true), (AllocationType::PINNED, false)] {
        let (mut arena, mut pools) = pools();
        let pool = create(&mut pools, kind);
        let first = alloc(&mut arena, &mut pools, pool, 80 * MIB).expect("room");
        let released = pools.destroy(pool).expect("a pool");
        assert_eq!((released.idle, released.gone), (vec![], vec![]), "its memory lives");
        assert!(pools.any(pool).is_some());
        pools.free(pool, first, 80 * MIB, true);
        let parts = if is_managed { 1 } else { 3 };
        let bytes = 96 * MIB / parts;
        let part = |index: u64| first + index * bytes..first + (index + 1) * bytes;
        let gone = (0..parts).rev().map(part).collect();
        let released = pools.release_all();
        assert_eq!((released.idle, released.gone), (Vec::new(), gone), "{kind:?}");
        assert!(pools.any(pool).is_none());
        let next = create(&mut pools, kind);
        assert_eq!(
            alloc(&mut arena, &mut pools, next, 1),
            Ok(first),
            "the addresses are free again"
        );
    }
}

#[test]
fn pools_without_memory_lose_their_addresses_to_pools_of_their_kind_if_there_are_no_others() {
    let (mut arena, mut pools) = pools();
    let pinned = fill_up(&mut arena, &mut pools, AllocationType::PINNED);
    let managed = fill_up(&mut arena, &mut pools, AllocationType::MANAGED);
    assert!(pinned.len() > 1 && managed.len() > 1, "each kind has addresses of its own");
    for (kind, of_kind, others) in
        [(AllocationType::MANAGED, &managed, &pinned), (AllocationType::PINNED, &pinned, &managed)]
    {
        let newcomer = create(&mut pools, kind);
        assert!(alloc(&mut arena, &mut pools, newcomer, 1).is_err(), "all pools use theirs");
        let (other, its) = others[0];
        pools.free(other, its, MIB, true);
        pools.release_to_threshold(other);
        assert!(alloc(&mut arena, &mut pools, newcomer, 1).is_err(), "the other kind has some");
        assert_eq!(alloc(&mut arena, &mut pools, other, MIB), Ok(its));
        let (idle, address) = of_kind[1];
        pools.free(idle, address, MIB, true);
        pools.release_to_threshold(idle);
        assert_eq!(alloc(&mut arena, &mut pools, newcomer, 1), Ok(address));
    }
}
