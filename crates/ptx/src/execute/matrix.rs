//! Products of matrices.

use crate::code::{Factors, Lanes, Op, Product, Sum, WIDTH};
use crate::math::product::{
    Doubles, Floats, Operands, REGISTERS_MAX, Registers, Room, Sizes, Sums, bits, f64, floats,
    integers,
};

/// `mma`: all lanes together.
pub(super) fn multiply(
    (lanes, room): (&mut Lanes<'_>, &mut Room),
    op: &Op,
    product: Product,
    is_wide: bool,
) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_wide {
        // SAFETY: the machine has the instructions that the function is compiled with.
        return unsafe { multiply_wide(lanes, room, op, product) };
    }
    _ = is_wide;
    multiply_each::<false>(lanes, room, op, product);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn multiply_wide(lanes: &mut Lanes<'_>, room: &mut Room, op: &Op, product: Product) {
    multiply_each::<true>(lanes, room, op, product);
}

/// `FUSED`: whether the machine has an instruction for a product and a sum.
#[inline(always)]
fn multiply_each<const FUSED: bool>(
    lanes: &mut Lanes<'_>,
    room: &mut Room,
    op: &Op,
    product: Product,
) {
    match product.factors {
        Factors::F64 => doubles(lanes, op, product),
        _ => words::<FUSED>(lanes, room, op, product),
    }
}

/// The sizes of a product. Bits are taken by words.
fn sizes(product: Product) -> Sizes {
    let (packed, word) = match product.factors {
        Factors::F16 | Factors::Bf16 => (2, 1),
        Factors::Tf32 | Factors::F64 => (1, 1),
        Factors::Bytes { .. } => (4, 1),
        Factors::Nibbles { .. } => (8, 1),
        Factors::Bits { .. } => (1, u32::BITS as usize),
    };
    let Product { rows, columns, depth, .. } = product;
    let depth = usize::from(depth) / word;
    Sizes { rows: rows.into(), columns: columns.into(), depth, packed }
}

/// The registers of 32 bits of a matrix, from one of an instruction's sources on.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "calls for iterators are not always inlined here")]
fn of_words<'r>(
    lanes: &'r Lanes<'_>,
    op: &Op,
    (first, count): (usize, usize),
) -> Registers<'r, u32> {
    let mut registers = [lanes.word(op.source(first)); REGISTERS_MAX];
    for at in 1..count.min(REGISTERS_MAX) {
        registers[at] = lanes.word(op.source(first + at));
    }
    registers
}

/// Those of 64 bits.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "calls for iterators are not always inlined here")]
fn of_doubles<'r>(
    lanes: &'r Lanes<'_>,
    op: &Op,
    (first, count): (usize, usize),
) -> Registers<'r, u64> {
    let mut registers = [lanes.double(op.source(first)); REGISTERS_MAX];
    for at in 1..count.min(REGISTERS_MAX) {
        registers[at] = lanes.double(op.source(first + at));
    }
    registers
}

/// A product of matrices in registers of 32 bits.
#[inline(always)]
fn words<const FUSED: bool>(lanes: &mut Lanes<'_>, room: &mut Room, op: &Op, product: Product) {
    let (rows, are_halves) = (product.rows.into(), product.sum == Sum::F16);
    let (a, b) = (usize::from(product.registers[0]), usize::from(product.registers[1]));
    let count = product.sum.layout(rows, product.columns.into()).registers();
    let mut results = Sums { registers: [[0; WIDTH]; REGISTERS_MAX], rows, are_halves };
    let c = Sums { registers: of_words(lanes, op, (a + b, count)), rows, are_halves };
    let (a, b) = (of_words(lanes, op, (0, a)), of_words(lanes, op, (a, b)));
    let operands = &Operands { a, b, c };
    let (sizes, d) = (sizes(product), (room, &mut results));
    // No closures here: they are not inlined into functions with features of the machine.
    match product.factors {
        Factors::F16 if are_halves => floats::<FUSED>(Floats::F16ToF16, sizes, operands, d),
        Factors::F16 => floats::<FUSED>(Floats::F16, sizes, operands, d),
        Factors::Bf16 => floats::<FUSED>(Floats::Bf16, sizes, operands, d),
        Factors::Tf32 => floats::<FUSED>(Floats::Tf32, sizes, operands, d),
        Factors::Bytes { a_signed, b_signed, saturate }
        | Factors::Nibbles { a_signed, b_signed, saturate } => {
            let how = ([a_signed, b_signed], saturate);
            integers::<FUSED>(sizes, how, operands, d);
        }
        Factors::Bits { and } => bits(sizes, and, operands, d),
        Factors::F64 => {}
    }
    for (at, values) in results.registers[..count].iter().enumerate() {
        lanes.set_word(op.result(at), values);
    }
}

/// A product of doubles.
#[inline(always)]
fn doubles(lanes: &mut Lanes<'_>, op: &Op, product: Product) {
    let (rows, are_halves) = (product.rows.into(), false);
    let (a, b) = (usize::from(product.registers[0]), usize::from(product.registers[1]));
    let count = product.sum.layout(rows, product.columns.into()).registers();
    let mut d = Sums { registers: [[0; WIDTH]; REGISTERS_MAX], rows, are_halves };
    let c = Sums { registers: of_doubles(lanes, op, (a + b, count)), rows, are_halves };
    let (a, b) = (of_doubles(lanes, op, (0, a)), of_doubles(lanes, op, (a, b)));
    let operands = Doubles { a, b, c };
    f64(sizes(product), &operands, &mut d);
    for (at, values) in d.registers[..count].iter().enumerate() {
        lanes.set_double(op.result(at), values);
    }
}
