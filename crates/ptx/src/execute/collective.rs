//! Instructions that lanes execute together: shuffles, votes, matches, reductions, barriers.

use super::access::Blocked;
use super::block::Common;
use super::engine::{Engine, Next};
use super::matrix::multiply;
use super::quads;
use super::registers::lanes;
use super::warp::{Fragment, State, Warp};
use crate::code::{
    BARRIERS, Barrier, Code, Lanes, Op, Reduce, Shuffle, Vote, WIDTH, active, has_wide_vectors,
    lanes_where, signs,
};
use crate::math::product::Room;

impl Engine<'_> {
    /// Executes an instruction of lanes together, or lets the fragment wait for others. Not a part of its caller:
    /// that has many calls for which the room of this one would be made.
    #[inline(never)]
    pub(super) fn together(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        op: &Op,
        mask: u32,
    ) -> Result<Next, Blocked> {
        self.only(warp, fragment, mask);
        match op.code {
            Code::Barrier { kind, counted } => {
                fragment.alone = false;
                return Ok(self.barrier(common, warp, fragment, op, (kind, counted)));
            }
            Code::ClusterArrive => {
                self.cluster_arrive(common, warp, mask);
                return Ok(Next::Go);
            }
            Code::ClusterWait => return Ok(self.cluster_wait(common, warp, fragment)),
            _ => {}
        }
        let Some(members) = self.members(warp, fragment, op, mask) else {
            fragment.state = State::Lanes;
            return Ok(Next::Stop);
        };
        fragment.alone = false;
        match op.code {
            Code::Tiles(tiles) => self.tiles(common, warp, fragment, op, tiles, mask)?,
            Code::Matrix(place, matrix) => {
                self.matrix(common, warp, fragment, op, (place, matrix, mask))?;
            }
            _ => self.exchange(warp, fragment, op, &members),
        }
        Ok(Next::Go)
    }

    /// The lanes that an instruction names, for each lane. Without names: those that are here. `None` if some
    /// that are named did not come yet.
    fn members(
        &self,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        mask: u32,
    ) -> Option<[u32; WIDTH]> {
        let named = match op.code {
            Code::Shuffle { sync: true, .. } => Some(op.s[3]),
            Code::Vote { sync: true, .. } | Code::Match { .. } | Code::Reduce(_) => Some(op.s[1]),
            Code::WarpBarrier | Code::Elect => Some(op.s[0]),
            _ => None,
        };
        let members = match named {
            Some(slot) => *lanes(self.program, warp, &fragment.frame, mask).word(slot),
            None if op.code.is_of_matrices() => [u32::MAX; WIDTH],
            None => [mask; WIDTH],
        };
        let wanted = union(&members, mask) & warp.live;
        (wanted & !mask == 0 || fragment.alone).then_some(members)
    }

    /// Executes an instruction of registers of the lanes that are here.
    fn exchange(&mut self, warp: &mut Warp, fragment: &Fragment, op: &Op, members: &[u32; WIDTH]) {
        let mut lanes = lanes(self.program, warp, &fragment.frame, fragment.mask);
        let mask = lanes.mask;
        match op.code {
            Code::Product(product) => {
                let room = self.room.get_or_insert_with(Room::boxed);
                multiply((&mut lanes, room), op, product, self.rules.wide_vectors);
            }
            Code::Quads(quads) => quads::multiply(&mut lanes, op, quads),
            Code::Shuffle { mode, predicate, .. } => {
                shuffle(&mut lanes, op, mode, predicate);
            }
            Code::Vote { mode, .. } => vote(&mut lanes, op, mode, members),
            Code::Match { all, wide, predicate } => {
                find_equal(&mut lanes, op, (all, wide, predicate), members);
            }
            Code::Reduce(reduce) => {
                let values = *lanes.word(op.s[0]);
                let results = each_group(mask, members, |asked| reduced(reduce, &values, asked));
                lanes.set_word(op.d[0], &results);
            }
            Code::Transpose => transpose(&mut lanes, op),
            Code::ActiveMask => lanes.set_word(op.d[0], &[mask; WIDTH]),
            Code::Elect => {
                let leaders = members.map(|members| (members & mask).trailing_zeros());
                let elected = active(mask).filter(|&lane| leaders[lane] as usize == lane);
                let elected = elected.fold(0, |all, lane| all | 1 << lane);
                lanes.set_word(op.d[0], &leaders);
                lanes.set_predicate(op.d[1], elected);
            }
            _ => {}
        }
    }

    /// Barriers of the block. A fragment that waits is already behind the instruction; the result of
    /// a reduction is read by a second look at the instruction.
    pub(super) fn barrier(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        op: &Op,
        (kind, counted): (Barrier, bool),
    ) -> Next {
        let reduces = matches!(kind, Barrier::Count | Barrier::And | Barrier::Or);
        let mask = fragment.mask;
        if let Some(index) = fragment.barrier.take() {
            let result = common.result(index, kind);
            let mut lanes = lanes(self.program, warp, &fragment.frame, mask);
            if kind == Barrier::Count {
                lanes.set_word(op.d[0], &[result; WIDTH]);
            } else {
                lanes.set_predicate(op.d[0], if result != 0 { u32::MAX } else { 0 });
            }
            return Next::Go;
        }
        let whole = mask == warp.live;
        let lanes = lanes(self.program, warp, &fragment.frame, mask);
        let lane = mask.trailing_zeros() as usize % WIDTH;
        let (index, expected) = (lanes.word(op.s[0])[lane], lanes.word(op.s[1])[lane]);
        let threads = mask.count_ones();
        let predicate = match reduces {
            true => ((lanes.predicate(op.s[2]) & mask).count_ones(), threads),
            false => (0, 0),
        };
        let expected = if counted { expected } else { 0 };
        // A count is of whole warps.
        let threads = if counted && whole { 32 } else { threads };
        let round = common.arrive(index, expected, threads, predicate);
        if kind == Barrier::Arrive {
            return Next::Go;
        }
        if reduces {
            fragment.barrier = Some(index as u8 % BARRIERS);
        } else {
            fragment.pc += 1;
        }
        fragment.state = common.waiting(round, || self.program.goes_evenly(fragment.pc));
        Next::Stop
    }
}

/// A lane holds two adjacent halves of a row: four lanes hold each of the eight rows.
fn transpose(lanes: &mut Lanes<'_>, op: &Op) {
    let values = *lanes.word(op.s[0]);
    let half =
        |row: usize, column: usize| values[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
    let turned = std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, lane % 4 * 2);
        half(column, row) | half(column + 1, row) << 16
    });
    lanes.set_word(op.d[0], &turned);
}

/// All lanes that those of a mask name.
fn union(members: &[u32; WIDTH], mask: u32) -> u32 {
    let first = members[mask.trailing_zeros() as usize % WIDTH];
    // Nearly always all name the same.
    if members.iter().fold(0, |all, members| all | (members ^ first)) == 0 {
        return first;
    }
    active(mask).fold(0, |all, lane| all | members[lane])
}

fn shuffle(lanes: &mut Lanes<'_>, op: &Op, mode: Shuffle, predicate: bool) {
    let (mut values, [offsets, controls]) =
        (lanes.word(op.s[0]), [op.s[1], op.s[2]].map(|slot| lanes.word(slot)));
    let mut given = [0; WIDTH];
    if lanes.mask != u32::MAX {
        // An H200 gives 0 for a lane that does not take part: NVIDIA's sample `reduction` adds such
        // values, and its sums are right there.
        for lane in active(lanes.mask) {
            given[lane] = values[lane];
        }
        values = &given;
    }
    let (results, inside) = shuffled(mode, values, offsets, controls);
    lanes.set_word(op.d[0], &results);
    if predicate {
        lanes.set_predicate(op.d[1], signs(&inside));
    }
}

/// The words that lanes take from others, and all bits for those inside of their segments: from the
/// words of all lanes, and the offset and the control of each.
pub(super) fn shuffled(
    mode: Shuffle,
    values: &[u32; WIDTH],
    offsets: &[u32; WIDTH],
    controls: &[u32; WIDTH],
) -> ([u32; WIDTH], [u32; WIDTH]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if has_wide_vectors() {
        // SAFETY: the machine has the instructions that the function is compiled with.
        return unsafe { shuffled_wide(mode, values, offsets, controls) };
    }
    shuffled_any(mode, values, offsets, controls)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn shuffled_wide(
    mode: Shuffle,
    values: &[u32; WIDTH],
    offsets: &[u32; WIDTH],
    controls: &[u32; WIDTH],
) -> ([u32; WIDTH], [u32; WIDTH]) {
    shuffled_any(mode, values, offsets, controls)
}

#[inline(always)]
fn shuffled_any(
    mode: Shuffle,
    values: &[u32; WIDTH],
    offsets: &[u32; WIDTH],
    controls: &[u32; WIDTH],
) -> ([u32; WIDTH], [u32; WIDTH]) {
    // One loop for each mode.
    match mode {
        Shuffle::Up => shuffled_by(Shuffle::Up, values, offsets, controls),
        Shuffle::Down => shuffled_by(Shuffle::Down, values, offsets, controls),
        Shuffle::Butterfly => shuffled_by(Shuffle::Butterfly, values, offsets, controls),
        Shuffle::Index => shuffled_by(Shuffle::Index, values, offsets, controls),
    }
}

#[inline(always)]
fn shuffled_by(
    mode: Shuffle,
    values: &[u32; WIDTH],
    offsets: &[u32; WIDTH],
    controls: &[u32; WIDTH],
) -> ([u32; WIDTH], [u32; WIDTH]) {
    let (mut sources, mut inside) = ([0; WIDTH], [0; WIDTH]);
    for lane in 0..WIDTH {
        let (from, valid) = mode.source(lane as u32, offsets[lane], controls[lane]);
        sources[lane] = from;
        inside[lane] = if valid { u32::MAX } else { 0 };
    }
    let mut results = [0; WIDTH];
    for lane in 0..WIDTH {
        results[lane] = values[sources[lane] as usize % WIDTH];
    }
    (results, inside)
}

/// A result for each lane of a mask, which lanes that name the same lanes have in common. The function gets those
/// that are named and here.
#[inline(always)]
fn each_group(
    mask: u32,
    members: &[u32; WIDTH],
    mut result: impl FnMut(u32) -> u32,
) -> [u32; WIDTH] {
    let (mut results, mut rest) = ([0; WIDTH], mask);
    while let Some(first) = active(rest).next() {
        let (named, result) = (members[first], result(members[first] & mask));
        let alike = rest & lanes_where(members, |one| one == named);
        if alike == mask {
            // Nearly always all name the same.
            return [result; WIDTH];
        }
        for lane in active(alike) {
            results[lane] = result;
        }
        rest &= !alike;
    }
    results
}

/// A vote. Each lane asks those that it names and that are here.
fn vote(lanes: &mut Lanes<'_>, op: &Op, mode: Vote, members: &[u32; WIDTH]) {
    let (mask, held) = (lanes.mask, lanes.predicate(op.s[0]) & lanes.mask);
    let mut results = [0; WIDTH];
    for (result, members) in results.iter_mut().zip(members) {
        let (asked, held) = (members & mask, members & held);
        let all_if = |holds: bool| if holds { u32::MAX } else { 0 };
        *result = match mode {
            Vote::Ballot => held,
            Vote::All => all_if(held == asked),
            Vote::Any => all_if(held != 0),
            _ => all_if(held == asked || held == 0),
        };
    }
    if mode == Vote::Ballot {
        lanes.set_word(op.d[0], &results);
    } else {
        lanes.set_predicate(op.d[0], signs(&results));
    }
}

fn find_equal(
    lanes: &mut Lanes<'_>,
    op: &Op,
    (all, wide, predicate): (bool, bool, bool),
    members: &[u32; WIDTH],
) {
    let values = if wide { *lanes.double(op.s[0]) } else { lanes.word(op.s[0]).map(u64::from) };
    let equal_to = |value| lanes_where(&values, |one| one == value);
    if all {
        let results = each_group(lanes.mask, members, |asked| {
            let value = values[asked.trailing_zeros() as usize % WIDTH];
            if equal_to(value) & asked == asked { asked } else { 0 }
        });
        lanes.set_word(op.d[0], &results);
        if predicate {
            lanes.set_predicate(op.d[1], lanes_where(&results, |one| one != 0));
        }
        return;
    }
    let (mut results, mut rest) = ([0; WIDTH], lanes.mask);
    // Lanes with the same value that name the same lanes have the same answer.
    while let Some(lane) = active(rest).next() {
        let (value, named) = (values[lane], members[lane]);
        let equal = equal_to(value) & named & lanes.mask;
        for alike in active(equal & rest | 1 << lane).filter(|&alike| members[alike] == named) {
            results[alike] = equal;
            rest &= !(1 << alike);
        }
    }
    lanes.set_word(op.d[0], &results);
}

/// The reduction of the words of some lanes.
fn reduced(reduce: Reduce, values: &[u32; WIDTH], asked: u32) -> u32 {
    let neutral = match reduce {
        Reduce::Add | Reduce::MaxUnsigned | Reduce::Or | Reduce::Xor => 0,
        Reduce::MinUnsigned | Reduce::And => u32::MAX,
        Reduce::MinSigned => i32::MAX.cast_unsigned(),
        Reduce::MaxSigned => i32::MIN.cast_unsigned(),
    };
    let mut held = if asked == u32::MAX { *values } else { [neutral; WIDTH] };
    for lane in active(if asked == u32::MAX { 0 } else { asked }) {
        held[lane] = values[lane];
    }
    // One loop for each kind.
    let all = held.into_iter();
    match reduce {
        Reduce::Add => all.fold(neutral, u32::wrapping_add),
        Reduce::MinUnsigned => all.fold(neutral, u32::min),
        Reduce::MaxUnsigned => all.fold(neutral, u32::max),
        Reduce::MinSigned => all.map(u32::cast_signed).fold(i32::MAX, i32::min).cast_unsigned(),
        Reduce::MaxSigned => all.map(u32::cast_signed).fold(i32::MIN, i32::max).cast_unsigned(),
        Reduce::And => all.fold(neutral, |all, one| all & one),
        Reduce::Or => all.fold(neutral, |all, one| all | one),
        Reduce::Xor => all.fold(neutral, |all, one| all ^ one),
    }
}
