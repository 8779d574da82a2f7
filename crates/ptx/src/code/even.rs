//! Barriers behind which warps have to go on evenly.
//!
//! Some programs load shared memory behind a barrier, and store to it for their next round without another
//! barrier between. They are right on a GPU as long as all warps have loaded when the first one
//! stores: the loads come soon, the stores late. Where no such store follows a load, the order of
//! warps makes no difference, and they may run one after the other.

use super::op::{Code, Op, Place, UNGUARDED};

/// The accesses behind a position, up to the next barrier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ahead {
    /// A store to shared memory.
    stores: bool,
    /// A load of shared memory, and a store behind it.
    loads_and_stores: bool,
}

/// Whether warps go on evenly from each position on, which is one behind a barrier.
pub(super) fn even(ops: &[Op], tables: &[Vec<u32>]) -> Vec<bool> {
    let has_barrier = ops.iter().any(|op| matches!(op.code, Code::Barrier { .. }));
    if !has_barrier {
        return vec![false; ops.len()];
    }
    let ahead = ahead(ops, tables);
    let behind_barrier = |at: usize| at > 0 && matches!(ops[at - 1].code, Code::Barrier { .. });
    (0..ops.len()).map(|at| behind_barrier(at) && ahead[at].loads_and_stores).collect()
}

/// The accesses behind each position. Each is looked at again when more is known of one that follows it, twice at
/// most for each of these.
fn ahead(ops: &[Op], tables: &[Vec<u32>]) -> Vec<Ahead> {
    let mut before = vec![Vec::new(); ops.len()];
    for at in 0..ops.len() {
        for next in followers(ops, tables, at) {
            if let Some(all) = before.get_mut(next as usize) {
                all.push(at as u32);
            }
        }
    }
    let mut ahead: Vec<Ahead> = ops.iter().map(|op| at(op, Ahead::default())).collect();
    let mut changed: Vec<u32> = (0..ops.len() as u32).collect();
    while let Some(position) = changed.pop() {
        let known = ahead[position as usize];
        for &earlier in &before[position as usize] {
            let old = ahead[earlier as usize];
            let new = at(&ops[earlier as usize], known);
            let all = Ahead {
                stores: old.stores | new.stores,
                loads_and_stores: old.loads_and_stores | new.loads_and_stores,
            };
            if all != old {
                ahead[earlier as usize] = all;
                changed.push(earlier);
            }
        }
    }
    ahead
}

/// The accesses of an instruction and those behind it.
fn at(op: &Op, behind: Ahead) -> Ahead {
    let (loads, stores) = match op.code {
        Code::Barrier { .. } => return Ahead::default(),
        Code::Load(access) => loads_or_stores(access.place, false),
        Code::Store(access) => loads_or_stores(access.place, true),
        Code::Atomic(atomic) => [may_be_shared(atomic.place); 2].into(),
        Code::AtomicPair(atomic) => [may_be_shared(atomic.place); 2].into(),
        Code::Matrix(place, matrix) => loads_or_stores(place, matrix.store),
        Code::Tiles(tiles) => loads_or_stores(tiles.place, tiles.store),
        Code::Copy { .. } | Code::Bulk(_) => (false, true),
        Code::Call(_) | Code::CallIndirect(_) => (true, true),
        _ => (false, false),
    };
    let stores = stores || behind.stores;
    Ahead { stores, loads_and_stores: loads && stores || behind.loads_and_stores }
}

fn loads_or_stores(place: Place, is_store: bool) -> (bool, bool) {
    let is_shared = may_be_shared(place);
    (is_shared && !is_store, is_shared && is_store)
}

fn may_be_shared(place: Place) -> bool {
    matches!(place, Place::Shared | Place::Cluster | Place::Generic)
}

/// The positions that may follow one.
fn followers(ops: &[Op], tables: &[Vec<u32>], at: usize) -> Vec<u32> {
    let op = &ops[at];
    let (mut next, goes_on) = match op.code {
        Code::Branch(target) => (vec![target], op.guard != UNGUARDED),
        Code::BranchTable(table) => (tables[table as usize].clone(), op.guard != UNGUARDED),
        Code::Return | Code::Exit | Code::Trap => (Vec::new(), op.guard != UNGUARDED),
        _ => (Vec::new(), true),
    };
    if goes_on {
        next.push(at as u32 + 1);
    }
    next
}
