//! Barriers behind which warps have to go on evenly.
//!
//! Some programs load shared memory behind a barrier, and store to it for their next round without another
//! barrier between. They are right on a GPU as long as all warps have loaded when the first one
//! stores: the loads come soon, the stores late. Where no such store follows a load, they are right in any
//! order of warps or wrong on a GPU, too, and warps may run one after the other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::access::Place;
use super::op::{Code, Op, UNGUARDED};

/// A store fewer instructions behind a load does not wait for other warps on a GPU either. A load of other
/// memory and a loop take as long as so many.
const FAR: u32 = 16;

/// Whether warps go on evenly from each position on, which is one behind a barrier.
pub(super) fn even(ops: &[Op], tables: &[Vec<u32>]) -> Vec<bool> {
    let mut even = vec![false; ops.len()];
    let mut behind_barriers = (1..ops.len()).filter(|&at| is_barrier(&ops[at - 1])).peekable();
    if behind_barriers.peek().is_none() {
        return even;
    }
    let before = predecessors(ops, tables);
    let stores = (0..ops.len()).filter(|&at| accesses(&ops[at]).1);
    let to_store = distances(&before, ops, stores);
    let is_far = |at: usize| to_store[at].is_some_and(|distance| distance >= FAR);
    // A function that is called may load and store as it likes.
    let is_call = |at: usize| matches!(ops[at].code, Code::Call(_) | Code::CallIndirect(_));
    let loads = (0..ops.len()).filter(|&at| is_call(at) || accesses(&ops[at]).0 && is_far(at));
    let to_load = distances(&before, ops, loads);
    behind_barriers.for_each(|at| even[at] = to_load[at].is_some());
    even
}

/// How many instructions each position is before the nearest of some others. `None` if a barrier comes
/// first, or none of them ever.
fn distances(
    before: &[Vec<u32>],
    ops: &[Op],
    from: impl Iterator<Item = usize>,
) -> Vec<Option<u32>> {
    let mut distances = vec![None; ops.len()];
    let mut next: BinaryHeap<Reverse<(u32, usize)>> = from.map(|at| Reverse((0, at))).collect();
    while let Some(Reverse((distance, at))) = next.pop() {
        if distances[at].is_some() {
            continue;
        }
        distances[at] = Some(distance);
        for &earlier in &before[at] {
            let earlier = earlier as usize;
            if distances[earlier].is_none() && !is_barrier(&ops[earlier]) {
                next.push(Reverse((
                    distance.saturating_add(length(&ops[earlier], earlier)),
                    earlier,
                )));
            }
        }
    }
    distances
}

fn is_barrier(op: &Op) -> bool {
    matches!(op.code, Code::Barrier { .. })
}

/// As how many instructions one counts.
fn length(op: &Op, position: usize) -> u32 {
    match op.code {
        Code::Load(access) if matches!(access.place, Place::Global | Place::Generic) => FAR,
        Code::Branch(target) if target as usize <= position => FAR,
        _ => 1,
    }
}

/// Whether an instruction may load shared memory, and whether it may store to it.
fn accesses(op: &Op) -> (bool, bool) {
    match op.code {
        Code::Load(access) => loads_or_stores(access.place, false),
        Code::Store(access) => loads_or_stores(access.place, true),
        Code::Atomic(atomic) => [may_be_shared(atomic.place); 2].into(),
        Code::AtomicPair(atomic) => [may_be_shared(atomic.place); 2].into(),
        Code::Matrix(place, matrix) => loads_or_stores(place, matrix.store),
        Code::Tiles(tiles) => loads_or_stores(tiles.place, tiles.store),
        Code::Copy { .. } | Code::Bulk(_) => (false, true),
        _ => (false, false),
    }
}

fn loads_or_stores(place: Place, is_store: bool) -> (bool, bool) {
    let is_shared = may_be_shared(place);
    (is_shared && !is_store, is_shared && is_store)
}

fn may_be_shared(place: Place) -> bool {
    matches!(place, Place::Shared | Place::Cluster | Place::Generic)
}

/// The positions that may come before each.
fn predecessors(ops: &[Op], tables: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut before = vec![Vec::new(); ops.len()];
    for (at, op) in ops.iter().enumerate() {
        let leads_away = op.code.leads_away() || matches!(op.code, Code::Trap);
        let goes_on = !leads_away || op.guard != UNGUARDED;
        let next = goes_on.then_some(at as u32 + 1);
        for position in op.code.targets(tables).iter().copied().chain(next) {
            if let Some(all) = before.get_mut(position as usize) {
                all.push(at as u32);
            }
        }
    }
    before
}
