//! Forms of `mma.sync`, a warp at a time.

use pagewise_ptx::math::matrix;

use crate::recording::{Form, forms};

/// How the operands of a shape lie in the registers of a warp.
struct Shape {
    rows: usize,
    /// The length of a row of the first matrix.
    depth: usize,
    /// Bits of an element.
    bits: usize,
}

impl Shape {
    /// The elements of a row, in the order in which a lane's registers hold them: the lane in the
    /// group of four, and the place within the lane's elements of that row.
    fn place(&self, column: usize) -> (usize, usize) {
        // Elements of a register, or one wide element.
        let packed = (32 / self.bits).max(1);
        let lane = column / packed % 4;
        let register = column / (packed * 4);
        (lane, register * packed + column % packed)
    }

    /// The elements that one lane holds of one row.
    fn of_row(&self) -> usize {
        self.depth / 4
    }

    /// An element of the first matrix: rows of a group of eight lie in other registers.
    fn first(&self, warp: &[Vec<u64>], row: usize, column: usize) -> u64 {
        let (lane, index) = self.place(column);
        let groups = self.rows / 8;
        let packed = (32 / self.bits).max(1);
        let (register, part) = (index / packed, index % packed);
        let register = register * groups + row / 8;
        self.part(warp[row % 8 * 4 + lane][register], part)
    }

    /// An element of the second matrix.
    fn second(&self, warp: &[Vec<u64>], row: usize, column: usize) -> u64 {
        let (lane, index) = self.place(row);
        let packed = (32 / self.bits).max(1);
        let before = self.of_row() * (self.rows / 8) / packed;
        self.part(warp[column * 4 + lane][before + index / packed], index % packed)
    }

    fn part(&self, register: u64, part: usize) -> u64 {
        if self.bits >= 32 {
            register
        } else {
            register >> (part * self.bits) & ((1 << self.bits) - 1)
        }
    }

    /// The registers of the first two matrices.
    fn before_sum(&self) -> usize {
        let packed = (32 / self.bits).max(1);
        self.of_row() / packed * (self.rows / 8 + 1)
    }
}

/// One element: a row, a column, and the accumulator.
type Element = fn(&[u64], &[u64], u64) -> u64;

fn halves(values: &[u64]) -> Vec<u16> {
    values.iter().map(|value| *value as u16).collect()
}

fn words(values: &[u64]) -> Vec<u32> {
    values.iter().map(|value| *value as u32).collect()
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().map(|value| *value as u8).collect()
}

fn of_bytes<const A: bool, const B: bool, const S: bool>(a: &[u64], b: &[u64], c: u64) -> u64 {
    u64::from(matrix::dot_bytes::<A, B>(&bytes(a), &bytes(b), c as i32, S) as u32)
}

/// A sum of products of integers of 4 bits.
fn of_nibbles<const A: bool, const B: bool, const S: bool>(a: &[u64], b: &[u64], c: u64) -> u64 {
    let of = |value: u64, signed: bool| {
        if signed && value > 7 { value as i64 - 16 } else { value as i64 }
    };
    let sum: i64 = a.iter().zip(b).map(|(a, b)| of(*a, A) * of(*b, B)).sum();
    let exact = i64::from(c as i32) + sum;
    let clamped = exact.clamp(i32::MIN.into(), i32::MAX.into());
    u64::from(if S { clamped as u32 } else { exact as u32 })
}

/// How many pairs of bits hold, added to a sum.
fn of_bits(a: &[u64], b: &[u64], c: u64, both: fn(u64, u64) -> u64) -> u64 {
    let count: u64 = a.iter().zip(b).map(|(a, b)| both(*a, *b)).sum();
    u64::from((c as u32).wrapping_add(count as u32))
}

/// The function and the bits of an element for the types of a form.
fn element(types: &str) -> (usize, Element) {
    match types {
        "f32.f16.f16.f32" => {
            (16, |a, b, c| matrix::dot_f16(&halves(a), &halves(b), c as u32).into())
        }
        "f16.f16.f16.f16" => {
            (16, |a, b, c| matrix::dot_f16_to_f16(&halves(a), &halves(b), c as u16).into())
        }
        "f32.bf16.bf16.f32" => {
            (16, |a, b, c| matrix::dot_bf16(&halves(a), &halves(b), c as u32).into())
        }
        "f32.tf32.tf32.f32" => {
            (32, |a, b, c| matrix::dot_tf32(&words(a), &words(b), c as u32).into())
        }
        "f64.f64.f64.f64" => (64, matrix::dot_f64),
        "s32.s8.s8.s32" => (8, of_bytes::<true, true, false>),
        "s32.s8.u8.s32" => (8, of_bytes::<true, false, false>),
        "s32.u8.s8.s32" => (8, of_bytes::<false, true, false>),
        "s32.u8.u8.s32" => (8, of_bytes::<false, false, false>),
        "satfinite.s32.s8.s8.s32" => (8, of_bytes::<true, true, true>),
        "satfinite.s32.s8.u8.s32" => (8, of_bytes::<true, false, true>),
        "satfinite.s32.u8.s8.s32" => (8, of_bytes::<false, true, true>),
        "satfinite.s32.u8.u8.s32" => (8, of_bytes::<false, false, true>),
        "s32.s4.s4.s32" => (4, of_nibbles::<true, true, false>),
        "s32.s4.u4.s32" => (4, of_nibbles::<true, false, false>),
        "s32.u4.s4.s32" => (4, of_nibbles::<false, true, false>),
        "s32.u4.u4.s32" => (4, of_nibbles::<false, false, false>),
        "satfinite.s32.s4.s4.s32" => (4, of_nibbles::<true, true, true>),
        "satfinite.s32.s4.u4.s32" => (4, of_nibbles::<true, false, true>),
        "satfinite.s32.u4.s4.s32" => (4, of_nibbles::<false, true, true>),
        "satfinite.s32.u4.u4.s32" => (4, of_nibbles::<false, false, true>),
        "s32.b1.b1.s32.and.popc" => (1, |a, b, c| of_bits(a, b, c, |a, b| a & b)),
        "s32.b1.b1.s32.xor.popc" => (1, |a, b, c| of_bits(a, b, c, |a, b| a ^ b)),
        other => panic!("no function for {other}"),
    }
}

/// The elements of a form that differ, of how many.
fn compare(form: &Form) -> (usize, Vec<String>) {
    let name = form.body.split(' ').next().unwrap_or_default();
    let (shape, types) = name.split_once(".row.col.").expect("a product of matrices");
    let shape = shape.rsplit('.').next().unwrap_or_default();
    let (bits, function) = element(types);
    let rows = if shape.starts_with("m8") { 8 } else { 16 };
    let depth = shape.rsplit('k').next().and_then(|depth| depth.parse().ok()).expect("a depth");
    let shape = Shape { rows, depth, bits };
    let pairs = types == "f16.f16.f16.f16";
    let (mut count, mut wrong) = (0, Vec::new());
    for (warp, results) in form.operands.chunks(32).zip(form.results.chunks(32)) {
        for row in 0..rows {
            let a: Vec<_> = (0..depth).map(|k| shape.first(warp, row, k)).collect();
            for column in 0..8 {
                let b: Vec<_> = (0..depth).map(|k| shape.second(warp, k, column)).collect();
                let lane = row % 8 * 4 + column / 2;
                let of = |registers: &[u64]| {
                    if pairs {
                        registers[row / 8] >> (column % 2 * 16) & 0xffff
                    } else {
                        registers[row / 8 * 2 + column % 2]
                    }
                };
                let sum = of(&warp[lane][shape.before_sum()..]);
                let (expected, got) = (of(&results[lane]), function(&a, &b, sum));
                count += 1;
                if expected != got {
                    wrong.push(format!("{a:x?} {b:x?} {sum:x}: {expected:x}, not {got:x}"));
                }
            }
        }
    }
    (count, wrong)
}

#[test]
fn every_product_of_matrices_gives_the_bits_of_an_h200() {
    let (mut compared, mut wrong) = (0, Vec::new());
    // Those of 8-bit floats and of quads are made of several instructions: `executor` compares them.
    let is_made = |body: &str| {
        body.contains("m8n8k4.") && body.contains(".f16.f16.")
            || body.contains(".e4m3.")
            || body.contains(".e5m2.")
    };
    let of_products = |body: &str| body.starts_with("mma") && !is_made(body);
    for form in forms().iter().filter(|form| of_products(&form.body)) {
        let (count, differ) = compare(form);
        compared += 1;
        if let Some(first) = differ.first() {
            wrong.push(format!("{} ({} of {count}): {first}", form.body, differ.len()));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} forms differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(compared, 69);
}
