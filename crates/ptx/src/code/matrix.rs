//! Matrices in the registers of a warp.

/// The elements of the two factors of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factors {
    F16,
    Bf16,
    Tf32,
    F64,
    Bytes {
        a_signed: bool,
        b_signed: bool,
        saturate: bool,
    },
    /// Integers of 4 bits.
    Nibbles {
        a_signed: bool,
        b_signed: bool,
        saturate: bool,
    },
    /// Bits, of which the pairs are counted that `and` or `xor` sets.
    Bits {
        and: bool,
    },
}

/// The elements of an accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    F16,
    /// `.f32` or `.s32`
    Word,
    F64,
}

impl Sum {
    /// The fragment of an accumulator.
    pub(crate) fn layout(self, rows: usize, columns: usize) -> Layout {
        let packed = if self == Self::F16 { 2 } else { 1 };
        Layout { lines: rows, length: columns, adjacent: 2, packed }
    }
}

/// `mma` and `wmma.mma`: the sources are the registers of a, b and c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) factors: Factors,
    /// The elements of c and d.
    pub(crate) sum: Sum,
    pub(crate) rows: u8,
    pub(crate) columns: u8,
    pub(crate) depth: u16,
    /// The registers of a and of b.
    pub(crate) registers: [u8; 2],
}

/// `mma.m8n8k4` of halves: four products, each of four lanes and of the four that are 16 behind them. The
/// sources are two registers of a, two of b and those of c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quads {
    /// Whether a lane holds a row of a, and of b; else a column.
    pub(crate) rows: [bool; 2],
    /// Whether c and d are halves; else singles.
    pub(crate) halves: [bool; 2],
}

/// `wmma.load` and `wmma.store`: a matrix between memory and the registers of a warp. The sources are
/// its address, the elements from one line in memory to the next, and, for a store, the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatrixAccess {
    pub(crate) store: bool,
    /// The bytes of an element.
    pub(crate) bytes: u8,
    /// Whether the elements of a line are adjacent in memory. If not, those of all lines at one place
    /// of the line are.
    pub(crate) along: bool,
    /// The registers that a load writes, beyond those of the layout the first ones again.
    pub(crate) registers: u8,
    lines: u8,
    length: u8,
    adjacent: u8,
    packed: u8,
}

impl MatrixAccess {
    pub(crate) fn new(
        store: bool,
        (layout, bytes): (Layout, usize),
        along: bool,
        registers: usize,
    ) -> Self {
        let Layout { lines, length, adjacent, packed } = layout;
        let [lines, length] = [lines, length].map(|count| count as u8);
        let [adjacent, packed] = [adjacent, packed].map(|count| count as u8);
        let (bytes, registers) = (bytes as u8, registers as u8);
        Self { store, bytes, along, registers, lines, length, adjacent, packed }
    }

    #[inline]
    pub(crate) fn layout(self) -> Layout {
        Layout {
            lines: self.lines.into(),
            length: self.length.into(),
            adjacent: self.adjacent.into(),
            packed: self.packed.into(),
        }
    }
}

/// The place of a fragment's elements in the registers of a warp, as `mma` has it.
///
/// Lines are rows of the first factor and of accumulators, and columns of the second factor. Tiles
/// of eight lines follow one another: first down the lines, then along them. `wmma` leaves its own
/// places open, and has the same here; registers beyond the last tile hold the first tiles again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// A multiple of eight.
    pub(crate) lines: usize,
    /// The elements of a line.
    pub(crate) length: usize,
    /// The adjacent elements of a line that one lane holds in a tile.
    pub(crate) adjacent: usize,
    /// The elements of a register.
    pub(crate) packed: usize,
}

impl Layout {
    /// The fragment of a factor with elements of so many bits.
    pub(crate) fn of_factor(lines: usize, length: usize, bits: usize) -> Self {
        let packed = (32 / bits).max(1);
        Self { lines, length, adjacent: packed, packed }
    }

    pub(crate) fn tiles(self) -> usize {
        self.lines / 8 * (self.length / (4 * self.adjacent))
    }

    /// The registers that hold each element once.
    #[inline]
    pub(crate) fn registers(self) -> usize {
        self.tiles() * self.adjacent / self.packed
    }

    /// Where the tile begins that follows the one at a line and a place in it.
    #[inline(always)]
    pub(crate) fn next_tile(self, line: usize, place: usize) -> (usize, usize) {
        if line + 8 < self.lines { (line + 8, place) } else { (0, place + 4 * self.adjacent) }
    }

    /// The line, and the place in it, of the first lane's element.
    #[inline]
    pub(crate) fn origin(self, register: usize, part: usize) -> (usize, usize) {
        let index = register * self.packed + part;
        let tile = index / self.adjacent % self.tiles();
        let groups = self.lines / 8;
        (tile % groups * 8, tile / groups * self.adjacent * 4 + index % self.adjacent)
    }
}
