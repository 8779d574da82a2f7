//! Matrices in the registers of a warp, read and written by vectors of eight numbers.
//!
//! The registers of a factor follow one another by tiles of eight lines, first down the lines and then
//! along them (`code::Layout`). Lines are rows of the first factor and columns of the second. A lane holds
//! four numbers of a line apart from the lane behind it, so that numbers are taken in this order along the
//! depth: the first parts of four lanes, then their second parts. Both factors have the same order, and so
//! have the same pairs of numbers. Only doubles need the order of the depth itself, and have it: they have
//! one part.
//!
//! A lane holds two columns of the sums that are side by side. So a vector of eight columns has the even
//! ones first, in sums and in the second factor.

use std::borrow::Borrow;

/// The numbers of a vector.
pub(super) const LANES: usize = 8;

/// The values of a register in all lanes.
pub(crate) type Register<T> = [T; 32];

/// The most registers of a matrix.
pub(crate) const REGISTERS_MAX: usize = 8;

/// The registers of a matrix. Those beyond its size are not looked at.
pub(crate) type Registers<'a, T> = [&'a Register<T>; REGISTERS_MAX];

/// The lines of a tile, which each have four lanes.
const LINES: usize = 8;
const QUARTERS: usize = 4;

/// The sizes of a product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// The rows of the first factor and of the sums, a multiple of eight.
    pub(crate) rows: usize,
    /// The columns of the second factor and of the sums, a multiple of eight.
    pub(crate) columns: usize,
    /// The numbers of a row of the first factor, a multiple of four times those of a register.
    pub(crate) depth: usize,
    /// The numbers of a factor in a register: a power of two.
    pub(crate) packed: usize,
}

impl Sizes {
    /// The vectors of a row of sums.
    #[inline(always)]
    pub(super) fn vectors(self) -> usize {
        self.columns / LANES
    }

    /// Where the numbers of the first factor that [`first`] gives have four of a row: those from the place
    /// `4 * four` in the row on.
    #[inline(always)]
    pub(super) fn first(self, row: usize, four: usize) -> usize {
        let (tile, part) = (four >> self.packed.trailing_zeros(), four & (self.packed - 1));
        let register = tile * (self.rows / LINES) + row / LINES;
        (register * self.packed + part) * LINES * QUARTERS + row % LINES * QUARTERS
    }

    /// Where a number of the first factor is, by its row and its place in it.
    #[inline(always)]
    pub(super) fn number(self, row: usize, place: usize) -> usize {
        self.first(row, place / QUARTERS) + place % QUARTERS
    }

    /// Where a vector of a row begins, in the second factor or among sums.
    #[inline(always)]
    pub(super) fn vector(self, row: usize, at: usize) -> usize {
        (row * self.vectors() + at) * LANES
    }
}

/// The numbers of a part of registers: those of so many bits are in the upper bits of their part.
#[derive(Clone, Copy)]
struct Part {
    shift: u32,
    mask: u32,
}

impl Part {
    #[inline(always)]
    fn of(packed: usize, bits: u32, part: usize) -> Self {
        let room = 32 / packed as u32;
        Self { shift: part as u32 * room + room - bits, mask: u32::MAX >> (32 - bits) }
    }

    #[inline(always)]
    fn numbers<const N: usize>(self, words: &[u32; N]) -> [u32; N] {
        let mut numbers = [0; N];
        for lane in 0..N {
            numbers[lane] = words[lane] >> self.shift & self.mask;
        }
        numbers
    }
}

/// The numbers of the first factor, as its registers follow one another: all lanes of each of their parts.
#[inline(always)]
fn first(sizes: Sizes, bits: u32, registers: &Registers<'_, u32>, numbers: &mut [u32]) {
    let packed = sizes.packed;
    for register in 0..sizes.rows / LINES * (sizes.depth / (QUARTERS * packed)) {
        for part in 0..packed {
            let words = registers[register % REGISTERS_MAX];
            let at = (register * packed + part) * words.len();
            set(numbers, at, Part::of(packed, bits, part).numbers(words));
        }
    }
}

/// The numbers of the second factor: the vectors of a row follow one another, and then the next row along
/// the depth.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "calls for iterators are not always inlined here")]
fn second(sizes: Sizes, bits: u32, registers: &Registers<'_, u32>, numbers: &mut [u32]) {
    let (packed, mut register) = (sizes.packed, 0);
    for tile in 0..sizes.depth / (QUARTERS * packed) {
        for at in 0..sizes.vectors() {
            let quarters = columns(registers[register % REGISTERS_MAX]);
            register += 1;
            for part in 0..packed {
                for quarter in 0..QUARTERS {
                    let row = (tile * packed + part) * QUARTERS + quarter;
                    let own = Part::of(packed, bits, part).numbers(&quarters[quarter]);
                    set(numbers, sizes.vector(row, at), own);
                }
            }
        }
    }
}

/// A register of the second factor, by vectors of columns: one for each of a column's lanes.
#[inline(always)]
pub(super) fn columns<T: Copy + Default>(register: &Register<T>) -> [[T; LANES]; QUARTERS] {
    let mut vectors = [[T::default(); LANES]; QUARTERS];
    for quarter in 0..QUARTERS {
        for line in 0..LINES / 2 {
            vectors[quarter][line] = register[2 * line * QUARTERS + quarter];
            vectors[quarter][line + LINES / 2] = register[(2 * line + 1) * QUARTERS + quarter];
        }
    }
    vectors
}

/// So many numbers from a place on; zeros if there are fewer.
#[inline(always)]
pub(super) fn vector<T: Copy + Default, const N: usize>(numbers: &[T], at: usize) -> [T; N] {
    let rest = numbers.get(at..).unwrap_or_default();
    rest.first_chunk().map_or([T::default(); N], |vector| *vector)
}

/// Writes numbers from a place on, if there is room for them.
#[inline(always)]
pub(super) fn set<T, const N: usize>(numbers: &mut [T], at: usize, values: [T; N]) {
    if let Some(place) = numbers.get_mut(at..).and_then(<[T]>::first_chunk_mut) {
        *place = values;
    }
}

/// Eight numbers of two times four.
#[inline(always)]
fn eight<T: Copy + Default>([first, second]: [[T; QUARTERS]; 2]) -> [T; LANES] {
    let ([a, b, c, d], [e, f, g, h]) = (first, second);
    [a, b, c, d, e, f, g, h]
}

/// Sums in registers.
#[derive(Clone, Copy)]
pub(crate) struct Sums<R> {
    pub(crate) registers: R,
    pub(crate) rows: usize,
    /// Whether a register has two of them.
    pub(crate) are_halves: bool,
}

impl<R> Sums<R> {
    /// The number of the tile that has a vector of a row, and the first lane of the row there.
    #[inline(always)]
    fn place(&self, row: usize, at: usize) -> (usize, usize) {
        (at * (self.rows / LINES) + row / LINES, row % LINES * QUARTERS)
    }
}

impl<R> Sums<[R; REGISTERS_MAX]> {
    /// The sums of a row that have a register each, by the number of their vector.
    #[inline(always)]
    pub(super) fn wide<T: Copy + Default>(&self, row: usize, at: usize) -> [T; LANES]
    where
        R: Borrow<Register<T>>,
    {
        let (tile, lane) = self.place(row, at);
        let first = vector(self.registers[2 * tile % REGISTERS_MAX].borrow(), lane);
        let second = vector(self.registers[(2 * tile + 1) % REGISTERS_MAX].borrow(), lane);
        eight([first, second])
    }
}

impl Sums<Registers<'_, u32>> {
    /// The sums of a row, by the number of their vector.
    #[inline(always)]
    pub(super) fn vector(&self, row: usize, at: usize) -> [u32; LANES] {
        if !self.are_halves {
            return self.wide(row, at);
        }
        let (tile, lane) = self.place(row, at);
        let (mut lower, mut upper) = ([0; QUARTERS], [0; QUARTERS]);
        let pairs: [u32; QUARTERS] = vector(self.registers[tile % REGISTERS_MAX], lane);
        for quarter in 0..QUARTERS {
            (lower[quarter], upper[quarter]) = (pairs[quarter] & 0xffff, pairs[quarter] >> 16);
        }
        eight([lower, upper])
    }
}

impl<T: Copy + Default> Sums<[Register<T>; REGISTERS_MAX]> {
    /// Writes the sums of a row that have a register each, by the number of their vector.
    #[inline(always)]
    pub(super) fn set_wide(&mut self, row: usize, at: usize, sums: [T; LANES]) {
        let (tile, lane) = self.place(row, at);
        for half in 0..2 {
            let register = &mut self.registers[(2 * tile + half) % REGISTERS_MAX];
            let four: [T; QUARTERS] = vector(&sums, half * QUARTERS);
            set(register, lane, four);
        }
    }
}

impl Sums<[Register<u32>; REGISTERS_MAX]> {
    /// Writes the sums of a row, by the number of their vector.
    #[inline(always)]
    pub(super) fn set(&mut self, row: usize, at: usize, sums: [u32; LANES]) {
        if !self.are_halves {
            return self.set_wide(row, at, sums);
        }
        let (tile, lane) = self.place(row, at);
        let mut pairs = [0; QUARTERS];
        for quarter in 0..QUARTERS {
            pairs[quarter] = sums[quarter] | sums[QUARTERS + quarter] << 16;
        }
        set(&mut self.registers[tile % REGISTERS_MAX], lane, pairs);
    }
}

/// The most numbers of a matrix: 16 lines of 64.
pub(crate) const NUMBERS: usize = 1024;

/// The registers of the operands of a product, `a * b + c`.
pub(crate) struct Operands<'a, T = u32> {
    pub(crate) a: Registers<'a, T>,
    pub(crate) b: Registers<'a, T>,
    pub(crate) c: Sums<Registers<'a, T>>,
}

/// The numbers of a matrix: of a first factor as [`Sizes::first`] has them, of others a vector of columns
/// after the other, and one row after the other.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) count: usize,
    /// Their bits, in the lowest ones of words.
    pub(super) patterns: [u32; NUMBERS],
    /// Their values, and the powers of two of their first bits, if a way to multiply has them.
    pub(super) values: [f32; NUMBERS],
    pub(super) powers: [f32; NUMBERS],
    /// Likewise: their magnitudes as integers, and the exponents of their first bits.
    pub(super) magnitudes: [i32; NUMBERS],
    pub(super) exponents: [i32; NUMBERS],
}

impl Numbers {
    const NONE: Self = Self {
        count: 0,
        patterns: [0; NUMBERS],
        values: [0.0; NUMBERS],
        powers: [0.0; NUMBERS],
        magnitudes: [0; NUMBERS],
        exponents: [0; NUMBERS],
    };
}

/// Room for the numbers of a product: to clear it for each would take as long as some products do.
#[derive(Debug)]
pub(crate) struct Room {
    pub(super) a: Numbers,
    pub(super) b: Numbers,
    pub(super) c: Numbers,
}

impl Room {
    pub(crate) fn boxed() -> Box<Self> {
        Box::new(Self { a: Numbers::NONE, b: Numbers::NONE, c: Numbers::NONE })
    }

    /// Takes the patterns of the operands of a product, with factors of so many bits.
    #[inline(always)]
    pub(super) fn take(&mut self, sizes: Sizes, bits: u32, operands: &Operands<'_>) {
        let Sizes { rows, columns, depth, .. } = sizes;
        self.a.count = (rows * depth).min(NUMBERS);
        self.b.count = (columns * depth).min(NUMBERS);
        self.c.count = (rows * columns).min(NUMBERS);
        first(sizes, bits, &operands.a, &mut self.a.patterns);
        second(sizes, bits, &operands.b, &mut self.b.patterns);
        for row in 0..rows {
            for at in 0..sizes.vectors() {
                set(&mut self.c.patterns, sizes.vector(row, at), operands.c.vector(row, at));
            }
        }
    }
}

/// Sums that are written.
pub(crate) type Results = Sums<[Register<u32>; REGISTERS_MAX]>;

/// Products of matrices that are given by lines, for tests.
#[cfg(test)]
pub(super) mod by_lines {
    use super::*;
    use crate::code::Layout;

    /// The registers of a factor with these lines, which follow one another.
    fn registers(lines: &[u32], (length, packed): (usize, usize)) -> Vec<Register<u32>> {
        let bits = 32 / packed;
        let layout = Layout::of_factor(lines.len() / length, length, bits);
        let mut registers = vec![[0; 32]; layout.registers()];
        for (at, register) in registers.iter_mut().enumerate() {
            for part in 0..packed {
                let (line, place) = layout.origin(at, part);
                for (lane, word) in register.iter_mut().enumerate() {
                    let (line, place) = (line + lane / 4, place + lane % 4 * packed);
                    *word |= lines[line * length + place] << (bits * part);
                }
            }
        }
        registers
    }

    /// The registers of sums that follow one another by rows, or the sums of registers.
    fn sums(
        rows: usize,
        (columns, packed): (usize, usize),
        mut each: impl FnMut(usize, usize, usize, usize),
    ) {
        let layout = Layout { lines: rows, length: columns, adjacent: 2, packed };
        for register in 0..layout.registers() {
            for part in 0..packed {
                let (line, place) = layout.origin(register, part);
                for lane in 0..32 {
                    let element = (line + lane / 4) * columns + place + lane % 4 * 2;
                    each(element, register, part, lane);
                }
            }
        }
    }

    /// Numbers of so many bits in the upper bits of their part of a register.
    pub(in crate::math) fn upper(numbers: &[u32], packed: usize, bits: u32) -> Vec<u32> {
        numbers.iter().map(|number| number << (32 / packed as u32 - bits)).collect()
    }

    fn refer<'r>(registers: &'r [Register<u32>]) -> Registers<'r, u32> {
        std::array::from_fn(|at| &registers[at.min(registers.len() - 1)])
    }

    /// The sums of a product of rows and columns.
    pub(in crate::math) fn product(
        sizes: Sizes,
        are_halves: bool,
        [a, b, c]: [&[u32]; 3],
        multiply: impl FnOnce(&Operands<'_>, &mut Results),
    ) -> Vec<u32> {
        let Sizes { rows, columns, depth, packed } = sizes;
        let (a, b) = (registers(a, (depth, packed)), registers(b, (depth, packed)));
        let pair = if are_halves { 2 } else { 1 };
        let mut addends = vec![[0; 32]; REGISTERS_MAX];
        sums(rows, (columns, pair), |element, register, part, lane| {
            addends[register][lane] |= c[element] << (16 * part);
        });
        let c = Sums { registers: refer(&addends), rows, are_halves };
        let mut d = Sums { registers: [[0; 32]; REGISTERS_MAX], rows, are_halves };
        multiply(&Operands { a: refer(&a), b: refer(&b), c }, &mut d);
        let mut results = vec![0; rows * columns];
        sums(rows, (columns, pair), |element, register, part, lane| {
            let word = d.registers[register][lane] >> (16 * part);
            results[element] = if are_halves { word & 0xffff } else { word };
        });
        results
    }
}
