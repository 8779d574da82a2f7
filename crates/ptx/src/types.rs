//! The scalar types of PTX.

/// A scalar type of PTX, as instructions and variables name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// `.pred`: one bit per lane.
    Pred,
    /// `.b8`
    B8,
    /// `.b16`
    B16,
    /// `.b32`
    B32,
    /// `.b64`
    B64,
    /// `.b128`
    B128,
    /// `.u8`
    U8,
    /// `.u16`
    U16,
    /// `.u32`
    U32,
    /// `.u64`
    U64,
    /// `.s8`
    S8,
    /// `.s16`
    S16,
    /// `.s32`
    S32,
    /// `.s64`
    S64,
    /// `.f16`
    F16,
    /// `.f16x2`: two halves in 32 bits.
    F16x2,
    /// `.bf16`
    Bf16,
    /// `.bf16x2`: two in 32 bits.
    Bf16x2,
    /// `.tf32`: the upper 19 bits of 32.
    Tf32,
    /// `.f32`
    F32,
    /// `.f64`
    F64,
    /// `.u16x2`
    U16x2,
    /// `.s16x2`
    S16x2,
}

impl Type {
    /// The size in bytes; 0 of a predicate, which has no place in memory.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Pred => 0,
            Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 2,
            Self::B32
            | Self::U32
            | Self::S32
            | Self::F16x2
            | Self::Bf16x2
            | Self::Tf32
            | Self::F32
            | Self::U16x2
            | Self::S16x2 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
            Self::B128 => 16,
        }
    }

    /// The bits of registers that hold values of the type.
    pub(crate) const fn register_bits(self) -> u32 {
        match self {
            Self::Pred => 1,
            Self::B8 | Self::U8 | Self::S8 => 16,
            other => other.bytes() * 8,
        }
    }

    /// Whether the type is one of bits.
    pub(crate) const fn is_bits(self) -> bool {
        matches!(self, Self::B8 | Self::B16 | Self::B32 | Self::B64 | Self::B128)
    }

    /// Whether the type is a float of 16 bits.
    pub(crate) const fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16)
    }

    /// Whether the type is a float of 16 bits, or two of them.
    pub(crate) const fn has_halves(self) -> bool {
        self.is_half() || matches!(self, Self::F16x2 | Self::Bf16x2)
    }

    /// Whether the type is an unsigned integer.
    pub(crate) const fn is_unsigned(self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::U16x2)
    }

    /// Whether the type is one that moves, loads, stores and choices have: of bits, an integer, or a float of 32 or
    /// 64 bits.
    pub(crate) const fn is_plain(self) -> bool {
        matches!(
            self,
            Self::B8
                | Self::B16
                | Self::B32
                | Self::B64
                | Self::B128
                | Self::U8
                | Self::U16
                | Self::U32
                | Self::U64
                | Self::S8
                | Self::S16
                | Self::S32
                | Self::S64
                | Self::F32
                | Self::F64
        )
    }

    /// Whether the type is a signed integer.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64 | Self::S16x2)
    }
}
