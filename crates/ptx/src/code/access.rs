//! Accesses to memory: loads and stores, atomics, and copies of many bytes.

/// A state space that an access names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Any: the address says which.
    Generic,
    /// The caller's memory.
    Global,
    /// The block's shared memory.
    Shared,
    /// The thread's local memory.
    Local,
    /// The kernel's parameters.
    Parameter,
    /// The function's part of local memory: the offset is from its frame.
    Frame,
    /// The shared memory of a block of the cluster.
    Cluster,
}

impl Place {
    /// Whether it is shared memory, of this block or another.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::Cluster)
    }

    /// Whether it is in the caller's memory, or may be: accesses to that are counted.
    pub(crate) fn is_callers(self) -> bool {
        matches!(self, Self::Global | Self::Generic)
    }
}

/// Where an address in shared memory holds one more than the rank of its block in the cluster. These
/// bits are zero in addresses of the block that uses them.
pub(crate) const RANK_SHIFT: u32 = 24;

/// How a loaded value fills a register that is wider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// With zeros.
    Zero,
    /// With the sign, up to 16 bits.
    Sign16,
    /// With the sign, up to 32 bits or 64.
    Sign,
}

/// A load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) place: Place,
    /// The bytes of one element.
    pub(crate) bytes: u8,
    /// How many elements.
    pub(crate) count: u8,
    /// Whether the address is 64 bits wide.
    pub(crate) wide: bool,
    pub(crate) fill: Fill,
    /// One bit for each element: its register has 64 bits.
    pub(crate) doubles: u8,
    /// Whether another thread may change the bytes: volatile, relaxed, acquire.
    pub(crate) shared: bool,
}

impl Access {
    /// The bytes of all elements.
    #[inline(always)]
    pub(crate) fn all_bytes(self) -> u32 {
        u32::from(self.bytes) * u32::from(self.count)
    }

    /// Whether it is one word, in a register of 32 bits.
    #[inline(always)]
    pub(crate) fn is_word(self) -> bool {
        self.bytes == 4 && self.count == 1 && self.doubles == 0
    }
}

/// `ldmatrix` and `stmatrix`: up to four matrices of 8 rows of 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiles {
    pub(crate) store: bool,
    /// Whether the address is 64 bits wide.
    pub(crate) wide: bool,
    pub(crate) count: u8,
    pub(crate) transposed: bool,
    pub(crate) place: Place,
}

/// The operation of an atomic on the old value and its operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Modify {
    Add,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
    Min,
    Max,
}

/// The type of an atomic's operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    B16,
    B32,
    B64,
    S32,
    S64,
    F32,
    F64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
}

impl Operand {
    /// The size in bytes.
    #[inline(always)]
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::B16 | Self::F16 | Self::Bf16 => 2,
            Self::B32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => 4,
            Self::B64 | Self::S64 | Self::F64 => 8,
        }
    }
}

/// `atom` and `red`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub(crate) place: Place,
    pub(crate) wide: bool,
    pub(crate) modify: Modify,
    pub(crate) operand: Operand,
    /// Whether the old value is wanted.
    pub(crate) result: bool,
    /// `.ftz` of packed or single floats.
    pub(crate) flush: bool,
    /// The bytes of a vector, of which this is the first element: the address is a multiple of them. 0 for
    /// others.
    pub(crate) vector: u8,
}

/// `atom.exch.b128` and `atom.cas.b128`: the sources are the address and the halves of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtomicPair {
    pub(crate) place: Place,
    pub(crate) wide: bool,
    /// Whether it compares first.
    pub(crate) swap: bool,
}

/// `cp.async.bulk` and `cp.reduce.async.bulk`: the sources are both addresses, the size, and the
/// address of the mbarrier that it completes transactions of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bulk {
    pub(crate) to: Place,
    pub(crate) from: Place,
    /// The operation on the old values, if it does not replace them.
    pub(crate) reduce: Option<(Modify, Operand)>,
    /// Whether an mbarrier is told.
    pub(crate) signals: bool,
}
