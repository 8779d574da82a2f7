//! The offsets that a region allows.

/// The offsets that an access may have.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The difference between an offset and the value of the register.
    pub(super) shift: u64,
    /// The highest one.
    pub(super) last: u32,
    /// Bits that no offset has, so that the addresses are multiples of the access's size.
    pub(super) odd: u32,
    /// The region's first address, which has none of these bits either.
    pub(super) start: u32,
    /// The lanes, of which at least one is active.
    pub(super) mask: u32,
}
