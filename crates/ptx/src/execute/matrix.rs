//! Products of matrices.

use crate::code::{Factors, Lanes, Layout, Op, Product, Sum, WIDTH};
use crate::math::product::{self, ELEMENTS_MAX, Sizes};

/// The most elements of a factor of bits: 16 lines of 256.
const NARROW_MAX: usize = 4096;

/// The most elements of a matrix of doubles: 16 lines of 16.
const DOUBLES_MAX: usize = 256;

/// The elements of a matrix of doubles.
type Doubles = [u64; DOUBLES_MAX];

/// `mma`: all lanes together.
pub(super) fn multiply(lanes: &mut Lanes<'_>, op: &Op, product: Product, is_wide: bool) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_wide {
        // SAFETY: the machine has the instructions that the function is compiled with.
        return unsafe { multiply_wide(lanes, op, product) };
    }
    _ = is_wide;
    multiply_each(lanes, op, product);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn multiply_wide(lanes: &mut Lanes<'_>, op: &Op, product: Product) {
    multiply_each(lanes, op, product);
}

#[inline(always)]
fn multiply_each(lanes: &mut Lanes<'_>, op: &Op, product: Product) {
    let operands = Operands { lanes, op, product };
    let bits = match product.factors {
        Factors::F64 => return operands.doubles(),
        Factors::Nibbles { .. } | Factors::Bits { .. } => return operands.narrow(),
        Factors::Bytes { .. } => 8,
        Factors::F16 | Factors::Bf16 => 16,
        Factors::Tf32 => 19,
    };
    let (sizes, mut factors) = (operands.sizes(), [[0; ELEMENTS_MAX]; 2]);
    let (mut sums, mut results) = ([0; ELEMENTS_MAX], [0; ELEMENTS_MAX]);
    let [a, b] = operands.factors(bits, &mut factors);
    let c = operands.accumulators(&mut sums);
    let d = &mut results[..c.len()];
    match product.factors {
        Factors::F16 if product.sum == Sum::F16 => product::f16_to_f16(sizes, a, b, c, d),
        Factors::F16 => product::f16(sizes, a, b, c, d),
        Factors::Bf16 => product::bf16(sizes, a, b, c, d),
        Factors::Tf32 => product::tf32(sizes, a, b, c, d),
        Factors::Bytes { a_signed, b_signed, saturate } => {
            let a = integers::<ELEMENTS_MAX>(a, 8, a_signed);
            product::integers(sizes, saturate, &a, &integers::<ELEMENTS_MAX>(b, 8, b_signed), c, d);
        }
        Factors::F64 | Factors::Nibbles { .. } | Factors::Bits { .. } => {}
    }
    operands.set_sums(&results);
}

fn layout_of_sums(product: Product) -> Layout {
    product.sum.layout(product.rows.into(), product.columns.into())
}

/// Numbers of so many bits as integers.
#[inline(always)]
fn integers<const N: usize>(numbers: &[u32], bits: u32, signed: bool) -> [i32; N] {
    let (shift, mut integers) = (32 - bits, [0; N]);
    for (at, &number) in numbers.iter().enumerate() {
        let high = number << shift;
        integers[at] =
            if signed { high.cast_signed() >> shift } else { (high >> shift).cast_signed() };
    }
    integers
}

/// Where the elements of a part of a register are among those of their matrix, which follow one
/// another in its lines or across them.
pub(super) struct Places {
    start: usize,
    line: usize,
    step: usize,
}

impl Places {
    #[inline(always)]
    pub(super) fn of(layout: Layout, along_lines: bool, register: usize, part: usize) -> Self {
        let (line, place) = layout.origin(register, part);
        let (lines, places) = if along_lines { (layout.length, 1) } else { (1, layout.lines) };
        Self { start: line * lines + place * places, line: lines, step: layout.adjacent * places }
    }

    #[inline(always)]
    pub(super) fn lane(&self, lane: usize) -> usize {
        self.start + lane / 4 * self.line + lane % 4 * self.step
    }
}

/// The lower and the upper halves of words.
#[inline(always)]
fn halves(words: &[u32; WIDTH]) -> [[u32; WIDTH]; 2] {
    let [mut lower, mut upper] = [*words; 2];
    for lane in 0..WIDTH {
        lower[lane] &= 0xffff;
        upper[lane] >>= 16;
    }
    [lower, upper]
}

/// The elements of a matrix of which each lane holds two adjacent ones, in one register or in two.
#[inline(always)]
fn spread_pairs<'r, const N: usize>(
    (layout, along_lines): (Layout, bool),
    register: impl Fn(usize) -> &'r [u32; WIDTH],
    elements: &mut [u32; N],
) {
    let mut next = (0, 0);
    for tile in 0..layout.tiles() {
        let (line, place) = next;
        next = layout.next_tile(line, place);
        let [first, second] = match layout.packed {
            2 => halves(register(tile)),
            _ => [*register(2 * tile), *register(2 * tile + 1)],
        };
        if along_lines {
            for own in 0..8 {
                let mut row = [0; 8];
                for quarter in 0..4 {
                    row[2 * quarter] = first[4 * own + quarter];
                    row[2 * quarter + 1] = second[4 * own + quarter];
                }
                product::set(elements, (line + own) * layout.length + place, row);
            }
            continue;
        }
        for quarter in 0..4 {
            let (mut even, mut odd) = ([0; 8], [0; 8]);
            for own in 0..8 {
                even[own] = first[4 * own + quarter];
                odd[own] = second[4 * own + quarter];
            }
            let at = (place + 2 * quarter) * layout.lines + line;
            product::set(elements, at, even);
            product::set(elements, at + layout.lines, odd);
        }
    }
}

/// The registers of the tile at a line and a place, of which each lane holds two adjacent elements: its
/// first ones, and its second ones.
#[inline(always)]
fn gathered_pairs(
    layout: Layout,
    (line, place): (usize, usize),
    elements: &[u32; ELEMENTS_MAX],
) -> [[u32; WIDTH]; 2] {
    let (mut first, mut second) = ([0; WIDTH], [0; WIDTH]);
    for own in 0..8 {
        let at = (line + own) * layout.length + place;
        let row = product::vector(elements, at);
        for quarter in 0..4 {
            first[4 * own + quarter] = row[2 * quarter];
            second[4 * own + quarter] = row[2 * quarter + 1];
        }
    }
    [first, second]
}

/// The elements of a matrix in the registers of a warp, which take the upper `bits` bits of their
/// parts.
#[inline(always)]
fn spread<'e, 'r, const N: usize>(
    (layout, along_lines): (Layout, bool),
    bits: u32,
    register: impl Fn(usize) -> &'r [u32; WIDTH],
    elements: &'e mut [u32; N],
) -> &'e [u32] {
    let part_bits = 32 / layout.packed as u32;
    if layout.adjacent == 2 {
        spread_pairs((layout, along_lines), register, elements);
        return &elements[..layout.lines * layout.length];
    }
    for index in 0..layout.registers() {
        let values = register(index);
        for part in 0..layout.packed {
            let shift = part as u32 * part_bits + (part_bits - bits);
            let mask = u32::MAX >> (32 - bits);
            let places = Places::of(layout, along_lines, index, part);
            let mut shifted = [0; WIDTH];
            for lane in 0..WIDTH {
                shifted[lane] = values[lane] >> shift & mask;
            }
            for lane in 0..WIDTH {
                // The places are inside of the matrix, which the bound only repeats.
                elements[places.lane(lane) % N] = shifted[lane];
            }
        }
    }
    &elements[..layout.lines * layout.length]
}

/// The factors of a product in registers.
struct Operands<'a, 'l> {
    lanes: &'a mut Lanes<'l>,
    op: &'a Op,
    product: Product,
}

impl Operands<'_, '_> {
    fn sizes(&self) -> Sizes {
        let Product { rows, columns, depth, .. } = self.product;
        Sizes { rows: rows.into(), columns: columns.into(), depth: depth.into() }
    }

    /// The first registers of b and of c.
    fn starts(&self) -> [usize; 2] {
        let [a, b] = self.product.registers.map(usize::from);
        [a, a + b]
    }

    /// The elements of both factors: a by rows, b by its depth.
    #[inline(always)]
    fn factors<'e, const N: usize>(
        &self,
        bits: u32,
        elements: &'e mut [[u32; N]; 2],
    ) -> [&'e [u32]; 2] {
        let (sizes, [b, _]) = (self.sizes(), self.starts());
        let element = bits.next_power_of_two() as usize;
        let register = |index: usize| self.lanes.word(self.op.source(index));
        let first = Layout::of_factor(sizes.rows, sizes.depth, element);
        let second = Layout::of_factor(sizes.columns, sizes.depth, element);
        let [a_elements, b_elements] = elements;
        [
            spread((first, true), bits, register, a_elements),
            spread((second, false), bits, |index| register(b + index), b_elements),
        ]
    }

    /// The elements of c, which has sums of up to 32 bits.
    #[inline(always)]
    fn accumulators<'e>(&self, elements: &'e mut [u32; ELEMENTS_MAX]) -> &'e [u32] {
        let layout = layout_of_sums(self.product);
        let [_, c] = self.starts();
        let register = |index: usize| self.lanes.word(self.op.source(c + index));
        spread((layout, true), 32 / layout.packed as u32, register, elements)
    }

    /// Writes the sums to their registers.
    #[inline(always)]
    fn set_sums(self, sums: &[u32; ELEMENTS_MAX]) {
        let layout = layout_of_sums(self.product);
        let mut next = (0, 0);
        for tile in 0..layout.tiles() {
            let (line, place) = next;
            next = layout.next_tile(line, place);
            let [first, second] = gathered_pairs(layout, (line, place), sums);
            if layout.packed == 2 {
                let mut both = first;
                for lane in 0..WIDTH {
                    both[lane] |= second[lane] << 16;
                }
                self.lanes.set_word(self.op.result(tile), &both);
            } else {
                self.lanes.set_word(self.op.result(2 * tile), &first);
                self.lanes.set_word(self.op.result(2 * tile + 1), &second);
            }
        }
    }

    /// A product of integers of 4 bits, or of bits.
    fn narrow(self) {
        let bits = if matches!(self.product.factors, Factors::Bits { .. }) { 1 } else { 4 };
        let (sizes, mut factors) = (self.sizes(), [[0; NARROW_MAX]; 2]);
        let (mut sums, mut results) = ([0; ELEMENTS_MAX], [0; ELEMENTS_MAX]);
        let [a, b] = self.factors(bits, &mut factors);
        let c = self.accumulators(&mut sums);
        let d = &mut results[..c.len()];
        match self.product.factors {
            Factors::Nibbles { a_signed, b_signed, saturate } => {
                let a = integers::<NARROW_MAX>(a, 4, a_signed);
                let b = integers::<NARROW_MAX>(b, 4, b_signed);
                product::integers(sizes, saturate, &a, &b, c, d);
            }
            Factors::Bits { and } => product::bits(sizes, and, a, b, c, d),
            _ => {}
        }
        self.set_sums(&results);
    }

    /// The elements of a matrix of doubles, of which each register has one of each lane.
    #[inline(always)]
    fn spread_doubles(&self, layout: Layout, along_lines: bool, first: usize) -> Doubles {
        let mut elements = [0; DOUBLES_MAX];
        for register in 0..layout.registers() {
            let values = self.lanes.double(self.op.source(first + register));
            let places = Places::of(layout, along_lines, register, 0);
            for lane in 0..WIDTH {
                // The places are inside of the matrix, which the bound only repeats.
                elements[places.lane(lane) % DOUBLES_MAX] = values[lane];
            }
        }
        elements
    }

    /// A product of doubles.
    #[inline(always)]
    fn doubles(self) {
        let (sizes, [b, c]) = (self.sizes(), self.starts());
        let sums = layout_of_sums(self.product);
        let of_factor = |lines| Layout::of_factor(lines, sizes.depth, 64);
        let first = self.spread_doubles(of_factor(sizes.rows), true, 0);
        let second = self.spread_doubles(of_factor(sizes.columns), false, b);
        let addends = self.spread_doubles(sums, true, c);
        let mut results = [0; DOUBLES_MAX];
        let count = sums.lines * sums.length;
        product::f64(sizes, &first, &second, &addends[..count], &mut results[..count]);
        for register in 0..sums.registers() {
            let mut values = [0; WIDTH];
            let places = Places::of(sums, true, register, 0);
            for lane in 0..WIDTH {
                values[lane] = results[places.lane(lane) % DOUBLES_MAX];
            }
            self.lanes.set_double(self.op.result(register), &values);
        }
    }
}
