//! Products of matrices, and matrices between shared memory and registers.

use super::access::{Blocked, Wanted, read, write};
use super::block::Common;
use super::engine::{Engine, lanes};
use super::memory::Kind;
use super::warp::{Fragment, Warp};
use crate::code::{Factors, Lanes, Layout, Op, Product, Sum, Tiles, WIDTH, active};
use crate::math::matrix;

/// `mma`: all lanes together.
pub(super) fn multiply(lanes: &mut Lanes<'_>, op: &Op, product: Product) {
    let sums = accumulators(lanes, op, product);
    let operands = Operands { lanes, op, product };
    let sums = match product.factors {
        Factors::F16 if product.sum == Sum::F16 => {
            operands.halves(sums, |a, b, c| matrix::dot_f16_to_f16(a, b, c as u16).into())
        }
        Factors::F16 => operands.halves(sums, |a, b, c| matrix::dot_f16(a, b, c as u32).into()),
        Factors::Bf16 => operands.halves(sums, |a, b, c| matrix::dot_bf16(a, b, c as u32).into()),
        Factors::Tf32 => {
            let dot = |a: &[u32], b: &[u32], c| matrix::dot_tf32(a, b, c as u32).into();
            operands.each(sums, 32, |bits| bits as u32, dot)
        }
        Factors::F64 => operands.each(sums, 64, |bits| bits, matrix::dot_f64),
        Factors::Bytes { a_signed, b_signed, saturate } => {
            let dot = match (a_signed, b_signed) {
                (false, false) => matrix::dot_bytes::<false, false>,
                (false, true) => matrix::dot_bytes::<false, true>,
                (true, false) => matrix::dot_bytes::<true, false>,
                (true, true) => matrix::dot_bytes::<true, true>,
            };
            let dot = |a: &[u8], b: &[u8], c| dot(a, b, c as i32, saturate).cast_unsigned().into();
            operands.each(sums, 8, |bits| bits as u8, dot)
        }
    };
    leave(lanes, op, product, &sums);
}

/// The elements of a fragment, line by line.
fn elements<T>(
    lanes: &Lanes<'_>,
    op: &Op,
    (first, wide): (usize, bool),
    layout: Layout,
    convert: impl Fn(u64) -> T,
) -> Vec<T> {
    let spots = (0..layout.lines)
        .flat_map(|line| (0..layout.length).map(move |place| layout.spot(line, place)));
    let element = |spot: crate::code::Spot| {
        let slot = op.source(first + spot.register);
        if layout.packed > 1 {
            u64::from(lanes.word(slot)[spot.lane]) >> (spot.part * 32 / layout.packed)
        } else if wide {
            lanes.double(slot)[spot.lane]
        } else {
            u64::from(lanes.word(slot)[spot.lane])
        }
    };
    spots.map(|spot| convert(element(spot))).collect()
}

/// The elements of c.
fn accumulators(lanes: &Lanes<'_>, op: &Op, product: Product) -> Vec<u64> {
    let layout = product.sum.layout(product.rows.into(), product.columns.into());
    let first = product.registers.map(usize::from).iter().sum();
    elements(lanes, op, (first, product.sum == Sum::F64), layout, |bits| bits)
}

/// The factors of a product in registers.
struct Operands<'a, 'l> {
    lanes: &'a Lanes<'l>,
    op: &'a Op,
    product: Product,
}

impl Operands<'_, '_> {
    /// Adds to each sum its row times its column, of elements of 16 bits.
    fn halves(&self, sums: Vec<u64>, dot: impl Fn(&[u16], &[u16], u64) -> u64) -> Vec<u64> {
        self.each(sums, 16, |bits| bits as u16, dot)
    }

    /// Adds to each sum its row times its column, of elements of so many bits.
    fn each<T: Copy>(
        &self,
        mut sums: Vec<u64>,
        bits: usize,
        convert: impl Fn(u64) -> T + Copy,
        dot: impl Fn(&[T], &[T], u64) -> u64,
    ) -> Vec<u64> {
        let Self { lanes, op, product } = *self;
        let depth = usize::from(product.depth);
        let first = Layout::of_factor(product.rows.into(), depth, bits);
        let second = Layout::of_factor(product.columns.into(), depth, bits);
        let a = elements(lanes, op, (0, bits == 64), first, convert);
        let b = elements(lanes, op, (product.registers[0].into(), bits == 64), second, convert);
        let columns = usize::from(product.columns);
        for (row, sums) in a.chunks_exact(depth).zip(sums.chunks_exact_mut(columns)) {
            for (column, sum) in b.chunks_exact(depth).zip(sums) {
                *sum = dot(row, column, *sum);
            }
        }
        sums
    }
}

/// Writes the registers of d.
fn leave(lanes: &mut Lanes<'_>, op: &Op, product: Product, sums: &[u64]) {
    let columns = usize::from(product.columns);
    let layout = product.sum.layout(product.rows.into(), columns);
    let mut results = vec![[0; WIDTH]; layout.registers()];
    for (index, sum) in sums.iter().enumerate() {
        let spot = layout.spot(index / columns, index % columns);
        results[spot.register][spot.lane] |= sum << (spot.part * 32 / layout.packed);
    }
    for (index, values) in results.iter().enumerate() {
        if product.sum == Sum::F64 {
            lanes.set_double(op.result(index), values);
        } else {
            lanes.set_word(op.result(index), &values.map(|value| value as u32));
        }
    }
}

impl Engine<'_> {
    /// `ldmatrix`, `stmatrix`: each lane gives the address of one row.
    pub(super) fn tiles(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        tiles: Tiles,
        mask: u32,
    ) -> Result<(), Blocked> {
        let count = usize::from(tiles.count);
        let rows = mask & (u64::MAX >> (64 - 8 * count)) as u32;
        let (program, frame) = (self.program, &fragment.frame);
        let addresses =
            lanes(program, warp, frame, mask).addresses(op.source(0), op.imm, tiles.wide);
        let kind = if tiles.store { Kind::Write } else { Kind::Read };
        let wanted = Wanted { place: tiles.place, bytes: 16, kind, mask: rows };
        let pointers = self.reach.places(common, warp, fragment, &addresses, wanted)?;
        let mut lanes = lanes(program, warp, frame, mask);
        let mut halves = [[0_u16; 8]; WIDTH];
        // The row and the column of a lane's first and second element of a matrix.
        let spot = |lane: usize, part: usize| {
            let (line, place) = (lane / 4, lane % 4 * 2 + part);
            if tiles.transposed { (place, line) } else { (line, place) }
        };
        if tiles.store {
            for matrix in 0..count {
                let values = lanes.word(op.source(matrix + 1));
                for (lane, value) in values.iter().enumerate() {
                    for part in 0..2 {
                        let (row, column) = spot(lane, part);
                        halves[matrix * 8 + row][column] = (value >> (16 * part)) as u16;
                    }
                }
            }
            for lane in active(rows) {
                for (at, half) in halves[lane].iter().enumerate() {
                    // SAFETY: `places` gave the pointer for 16 bytes to write.
                    unsafe { write(pointers[lane].wrapping_add(2 * at), 2, u64::from(*half)) };
                }
            }
            return Ok(());
        }
        for lane in active(rows) {
            for (at, half) in halves[lane].iter_mut().enumerate() {
                // SAFETY: `places` gave the pointer for 16 bytes.
                *half = unsafe { read(pointers[lane].wrapping_add(2 * at), 2) } as u16;
            }
        }
        for matrix in 0..count {
            let half = |lane, part| {
                let (row, column) = spot(lane, part);
                u32::from(halves[matrix * 8 + row][column])
            };
            let values = std::array::from_fn(|lane| half(lane, 0) | half(lane, 1) << 16);
            lanes.set_word(op.result(matrix), &values);
        }
        Ok(())
    }
}
