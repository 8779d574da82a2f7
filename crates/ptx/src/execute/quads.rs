//! `mma.m8n8k4`: four products of matrices of halves in a warp.

use crate::code::{Lanes, Op, Quads, WIDTH};
use crate::math::half::{Binary16, Half};
use crate::math::matrix::{quad_to_half, quad_to_single};

/// The lanes of a product: four, and the four that are 16 behind them.
const LANES: usize = 8;
/// The rows of a and the columns of b: one for each lane.
const LINES: usize = 8;
const DEPTH: usize = 4;
/// The sums of a lane.
const SUMS: usize = 8;

/// The warp's lane of a product's lane.
fn lane_of(product: usize, lane: usize) -> usize {
    product * 4 + lane % 4 + lane / 4 * 16
}

/// A half of a register.
fn half(lanes: &Lanes<'_>, op: &Op, source: usize, part: usize, lane: usize) -> u16 {
    (lanes.word(op.source(source))[lane] >> (16 * part)) as u16
}

/// The rows of a factor, or the columns of the second one. A lane holds one of them, or the elements at
/// one place of four of them.
fn lines(lanes: &Lanes<'_>, op: &Op, first: usize, whole: bool, product: usize) -> [[u16; 4]; 8] {
    let mut lines = [[0; DEPTH]; LINES];
    for lane in 0..LANES {
        for number in 0..DEPTH {
            let element = half(lanes, op, first + number / 2, number % 2, lane_of(product, lane));
            let (line, place) =
                if whole { (lane, number) } else { (number + lane / 4 * 4, lane % 4) };
            lines[line][place] = element;
        }
    }
    lines
}

/// The row and the column of a lane's sum.
fn place(is_half: bool, lane: usize, number: usize) -> (usize, usize) {
    if is_half {
        return (lane, number);
    }
    ((lane & 1) + (number & 2) + lane / 4 * 4, (number & 4) + (lane & 2) + (number & 1))
}

/// The accumulators, as singles.
fn addends(lanes: &Lanes<'_>, op: &Op, is_half: bool, product: usize) -> [[u32; LINES]; LINES] {
    let mut addends = [[0; LINES]; LINES];
    for lane in 0..LANES {
        for number in 0..SUMS {
            let (row, column) = place(is_half, lane, number);
            let own = lane_of(product, lane);
            addends[row][column] = if is_half {
                Binary16::widen(half(lanes, op, 4 + number / 2, number % 2, own)).to_bits()
            } else {
                lanes.word(op.source(4 + number))[own]
            };
        }
    }
    addends
}

/// All products of a warp.
pub(super) fn multiply(lanes: &mut Lanes<'_>, op: &Op, quads: Quads) {
    let [to_half, from_half] = quads.halves;
    let mut results = [[0; WIDTH]; SUMS];
    for product in 0..WIDTH / LANES {
        let a = lines(lanes, op, 0, quads.rows[0], product);
        // A lane that holds a row of b has the elements of its columns at one place.
        let b = lines(lanes, op, 2, !quads.rows[1], product);
        let c = addends(lanes, op, from_half, product);
        for lane in 0..LANES {
            for number in 0..SUMS {
                let (row, column) = place(to_half, lane, number);
                let (line, other, addend) = (&a[row], &b[column], c[row][column]);
                let own = lane_of(product, lane);
                if to_half {
                    let sum = u32::from(quad_to_half(line, other, addend));
                    results[number / 2][own] |= sum << (16 * (number % 2));
                } else {
                    results[number][own] = quad_to_single(line, other, addend);
                }
            }
        }
    }
    let count = if to_half { SUMS / 2 } else { SUMS };
    for (at, values) in results[..count].iter().enumerate() {
        lanes.set_word(op.result(at), values);
    }
}
