//! Products of matrices.

use crate::code::{Factors, Lanes, Op, Product, Sum, Value, WIDTH};
use crate::math::product::{
    Floats, Operands, REGISTERS_MAX, Registers, Room, Sizes, Sums, bits, f64, floats, integers,
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

/// The registers of a matrix, from one of an instruction's sources on.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "calls for iterators are not always inlined here")]
fn registers<'r, T: Value<Raw = T>>(
    lanes: &'r Lanes<'_>,
    op: &Op,
    (first, count): (usize, usize),
) -> Registers<'r, T> {
    let mut registers = [T::source(lanes, op.source(first)); REGISTERS_MAX];
    for at in 1..count.min(REGISTERS_MAX) {
        registers[at] = T::source(lanes, op.source(first + at));
    }
    registers
}

/// The registers of the sums of a product.
#[inline(always)]
fn count_of_sums(product: Product) -> usize {
    product.sum.layout(product.rows.into(), product.columns.into()).registers()
}

/// The sums of a product in these registers.
#[inline(always)]
fn sums<R>(product: Product, registers: R) -> Sums<R> {
    Sums { registers, rows: product.rows.into(), are_halves: product.sum == Sum::F16 }
}

/// The operands of a product.
#[inline(always)]
fn operands<'r, T: Value<Raw = T>>(
    lanes: &'r Lanes<'_>,
    op: &Op,
    product: Product,
) -> Operands<'r, T> {
    let (a, b) = (usize::from(product.registers[0]), usize::from(product.registers[1]));
    let c = registers(lanes, op, (a + b, count_of_sums(product)));
    let c = sums(product, c);
    Operands { a: registers(lanes, op, (0, a)), b: registers(lanes, op, (a, b)), c }
}

/// Writes the sums of a product to their registers.
#[inline(always)]
fn leave<T: Value<Raw = T>>(lanes: &mut Lanes<'_>, op: &Op, product: Product, sums: &[[T; WIDTH]]) {
    for (at, values) in sums[..count_of_sums(product)].iter().enumerate() {
        T::leave(lanes, op.result(at), values);
    }
}

/// A product of matrices in registers of 32 bits.
#[inline(always)]
fn words<const FUSED: bool>(lanes: &mut Lanes<'_>, room: &mut Room, op: &Op, product: Product) {
    let operands = &operands::<u32>(lanes, op, product);
    let mut results = sums(product, [[0; WIDTH]; REGISTERS_MAX]);
    let (sizes, are_halves) = (sizes(product), results.are_halves);
    let d = (room, &mut results);
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
    leave(lanes, op, product, &results.registers);
}

/// A product of doubles.
#[inline(always)]
fn doubles(lanes: &mut Lanes<'_>, op: &Op, product: Product) {
    let mut results = sums(product, [[0; WIDTH]; REGISTERS_MAX]);
    f64(sizes(product), &operands(lanes, op, product), &mut results);
    leave(lanes, op, product, &results.registers);
}
