//! Values of registers in compiled code.

use cranelift_codegen::ir::Value;

/// A value for the first lane, and the step from each lane to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineOf {
    pub(super) first: Value,
    /// With the sign of the register's width.
    pub(super) step: i64,
    /// The first value, if it is a constant.
    pub(super) constant: Option<u64>,
}

impl LineOf {
    /// The same value in all lanes.
    pub(super) fn same(first: Value) -> Self {
        Self { first, step: 0, constant: None }
    }

    pub(super) fn is_same(self) -> bool {
        self.step == 0
    }
}

/// Lines of the two halves of a warp, with the same step: those of threads in blocks that are 16 wide.
pub(super) type Halves = [LineOf; 2];

/// How many groups of four lanes a warp has.
pub(super) const GROUPS: usize = 8;
/// Those of half a warp.
pub(super) const HALF: usize = GROUPS / 2;

/// A group of four lanes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Group {
    Known(usize),
    /// That of a loop over all groups.
    Now(Round),
}

impl From<usize> for Group {
    fn from(group: usize) -> Self {
        Self::Known(group)
    }
}

/// A round of a loop over groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// The bytes of the words before it, 16 for each group, and of the doubles.
    pub(super) offset: Value,
    pub(super) doubles_offset: Value,
    /// Where the words and the doubles of its lanes are in the first registers.
    pub(super) words: Value,
    pub(super) doubles: Value,
    /// The lanes before it.
    pub(super) lanes: Value,
    /// Whether it is in the upper half of the warp, and the bytes of the words of that half before it.
    pub(super) is_upper: Value,
    pub(super) in_half: Value,
}

/// The value of a register in four lanes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Four {
    Word(Value),
    /// Two lanes in each vector.
    Double([Value; 2]),
    /// A predicate: all bits of a word, or none.
    Mask(Value),
}

impl Four {
    /// Its vectors, in the order of lanes.
    pub(super) fn parts(self) -> Vec<Value> {
        match self {
            Self::Word(value) | Self::Mask(value) => vec![value],
            Self::Double(values) => values.to_vec(),
        }
    }

    pub(super) fn word(self) -> Value {
        match self {
            Self::Word(value) | Self::Mask(value) | Self::Double([value, _]) => value,
        }
    }

    pub(super) fn double(self) -> [Value; 2] {
        match self {
            Self::Double(values) => values,
            Self::Word(value) | Self::Mask(value) => [value; 2],
        }
    }
}
