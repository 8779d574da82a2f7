//! Places for registers: those that never live together share one.
//!
//! PTX names a new register for almost every result, and most are read in the basic block that writes
//! them. Liveness over blocks is computed for the others; each register then lives from its first to
//! its last position, and a linear scan hands out places.

use super::file::File;
use super::op::{Draft, Slot};
use super::unit::Files;

/// Bits of liveness beyond which registers keep a place of their own: hostile texts cost no more.
const MOST_BITS: usize = 1 << 27;

/// Gives the registers of a function their places, and says how many each file needs.
pub(crate) fn allocate(drafts: &mut [Draft], tables: &[Vec<u32>], counts: Files) -> Files {
    let limits = [counts.words, counts.doubles, counts.predicates];
    let bases = [0, limits[0] as usize, (limits[0] + limits[1]) as usize];
    let total = limits.iter().map(|&count| count as usize).sum::<usize>();
    let number = |slot: Slot| match slot.file {
        File::Word => Some(slot.index as usize),
        File::Double => Some(bases[1] + slot.index as usize),
        File::Predicate => Some(bases[2] + slot.index as usize),
        File::ConstantWord | File::ConstantDouble => None,
    };
    let blocks = blocks(drafts, tables);
    let crossing = Crossing::of(drafts, &blocks, total, number);
    if blocks.len().saturating_mul(crossing.registers.len()) > MOST_BITS {
        return counts;
    }
    let live = liveness(drafts, tables, &blocks, &crossing, number);
    let intervals = intervals(drafts, &blocks, (&live, &crossing), total, number);
    let mut places = vec![0; total];
    let mut used = [0; 3];
    for file in 0..3 {
        let range = bases[file]..bases[file] + limits[file] as usize;
        used[file] = scan(&intervals[range.clone()], &mut places[range]);
    }
    for draft in drafts {
        let guard = draft.guard.iter_mut().map(|(slot, _)| slot);
        for slot in draft.d.iter_mut().chain(&mut draft.s).chain(guard) {
            if let Some(number) = number(*slot) {
                slot.index = places[number];
            }
        }
    }
    Files { words: used[0], doubles: used[1], predicates: used[2] }
}

/// The first positions of basic blocks, and the end.
pub(crate) fn blocks(drafts: &[Draft], tables: &[Vec<u32>]) -> Vec<usize> {
    let mut starts = vec![false; drafts.len() + 1];
    starts[0] = true;
    starts[drafts.len()] = true;
    for (at, draft) in drafts.iter().enumerate() {
        for &target in draft.code.targets(tables) {
            starts[target as usize] = true;
        }
        starts[at + 1] |= draft.code.leads_away();
    }
    (0..=drafts.len()).filter(|&at| starts[at]).collect()
}

/// The blocks that may follow a block.
fn followers(drafts: &[Draft], tables: &[Vec<u32>], blocks: &[usize], block: usize) -> Vec<usize> {
    let last = blocks[block + 1] - 1;
    let index = |position: usize| blocks.binary_search(&position).ok();
    let Draft { code, guard, .. } = &drafts[last];
    let targets = code.targets(tables).iter();
    let mut next: Vec<_> = targets.filter_map(|&target| index(target as usize)).collect();
    if !code.leads_away() || guard.is_some() {
        next.push(block + 1);
    }
    next.retain(|&block| block + 1 < blocks.len());
    next
}

/// The registers that an instruction reads: its result too where a guard leaves other lanes as they
/// were.
fn reads(draft: &Draft) -> impl Iterator<Item = &Slot> {
    let guard = draft.guard.iter().map(|(slot, _)| slot);
    let partial = draft.guard.is_some();
    draft.s.iter().chain(guard).chain(draft.d.iter().filter(move |_| partial))
}

/// The registers that a block reads before it writes them. Only those live across blocks.
struct Crossing {
    registers: Vec<u32>,
    /// By register, its index among them.
    index: Vec<Option<u32>>,
}

impl Crossing {
    fn of(
        drafts: &[Draft],
        blocks: &[usize],
        total: usize,
        number: impl Fn(Slot) -> Option<usize>,
    ) -> Self {
        let mut crossing = Self { registers: Vec::new(), index: vec![None; total] };
        let mut written = vec![usize::MAX; total];
        for block in 0..blocks.len() - 1 {
            for draft in &drafts[blocks[block]..blocks[block + 1]] {
                for register in reads(draft).filter_map(|&slot| number(slot)) {
                    if written[register] != block && crossing.index[register].is_none() {
                        crossing.index[register] = Some(crossing.registers.len() as u32);
                        crossing.registers.push(register as u32);
                    }
                }
                for register in draft.d.iter().filter_map(|&slot| number(slot)) {
                    written[register] = block;
                }
            }
        }
        crossing
    }
}

/// The registers that live at the start and at the end of each block, as bits.
struct Live {
    words: usize,
    start: Vec<u64>,
    end: Vec<u64>,
}

fn liveness(
    drafts: &[Draft],
    tables: &[Vec<u32>],
    blocks: &[usize],
    crossing: &Crossing,
    number: impl Fn(Slot) -> Option<usize>,
) -> Live {
    let index = |slot: &Slot| Some(crossing.index[number(*slot)?]? as usize);
    let words = crossing.registers.len().div_ceil(64);
    let count = blocks.len() - 1;
    let mut live = Live { words, start: vec![0; words * count], end: vec![0; words * count] };
    let mut kill = vec![0_u64; words * count];
    for block in 0..count {
        let row = block * words;
        for draft in &drafts[blocks[block]..blocks[block + 1]] {
            for register in reads(draft).filter_map(index) {
                if kill[row + register / 64] >> (register % 64) & 1 == 0 {
                    live.start[row + register / 64] |= 1 << (register % 64);
                }
            }
            for register in draft.d.iter().filter_map(index) {
                kill[row + register / 64] |= 1 << (register % 64);
            }
        }
    }
    let mut before = vec![Vec::new(); count];
    for block in 0..count {
        for next in followers(drafts, tables, blocks, block) {
            before[next].push(block);
        }
    }
    let mut waiting: Vec<usize> = (0..count).collect();
    let mut queued = vec![true; count];
    while let Some(block) = waiting.pop() {
        queued[block] = false;
        for &earlier in &before[block] {
            let mut changed = false;
            for word in 0..words {
                let coming = live.start[block * words + word];
                let end = &mut live.end[earlier * words + word];
                let new = coming & !*end;
                if new != 0 {
                    *end |= new;
                    let through = new & !kill[earlier * words + word];
                    let start = &mut live.start[earlier * words + word];
                    changed |= through & !*start != 0;
                    *start |= through;
                }
            }
            if changed && !queued[earlier] {
                queued[earlier] = true;
                waiting.push(earlier);
            }
        }
    }
    live
}

/// The first and last position of each register; the first is beyond the last if it has none.
fn intervals(
    drafts: &[Draft],
    blocks: &[usize],
    (live, crossing): (&Live, &Crossing),
    total: usize,
    number: impl Fn(Slot) -> Option<usize>,
) -> Vec<(u32, u32)> {
    let mut intervals = vec![(u32::MAX, 0_u32); total];
    let mut touch = |register: usize, position: usize| {
        let interval = &mut intervals[register];
        interval.0 = interval.0.min(position as u32);
        interval.1 = interval.1.max(position as u32);
    };
    for block in 0..blocks.len() - 1 {
        let (first, last) = (blocks[block], blocks[block + 1] - 1);
        for word in 0..live.words {
            for (bits, position) in [
                (live.start[block * live.words + word], first),
                (live.end[block * live.words + word], last),
            ] {
                let mut bits = bits;
                while bits != 0 {
                    let index = word * 64 + bits.trailing_zeros() as usize;
                    touch(crossing.registers[index] as usize, position);
                    bits &= bits - 1;
                }
            }
        }
    }
    for (position, draft) in drafts.iter().enumerate() {
        let guard = draft.guard.iter().map(|(slot, _)| slot);
        for register in draft.d.iter().chain(&draft.s).chain(guard).filter_map(|&slot| number(slot))
        {
            touch(register, position);
        }
    }
    intervals
}

/// Hands out places in the order of first positions.
fn scan(intervals: &[(u32, u32)], places: &mut [u32]) -> u32 {
    let mut order: Vec<usize> =
        (0..intervals.len()).filter(|&i| intervals[i].0 != u32::MAX).collect();
    order.sort_by_key(|&i| intervals[i]);
    let mut ends: std::collections::BinaryHeap<std::cmp::Reverse<(u32, u32)>> = Default::default();
    let mut free = Vec::new();
    let mut used = 0;
    for i in order {
        let (first, last) = intervals[i];
        while let Some(&std::cmp::Reverse((end, place))) = ends.peek() {
            if end >= first {
                break;
            }
            free.push(place);
            ends.pop();
        }
        places[i] = free.pop().unwrap_or_else(|| {
            used += 1;
            used - 1
        });
        ends.push(std::cmp::Reverse((last, places[i])));
    }
    used
}
