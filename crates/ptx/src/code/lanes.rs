//! The registers of a warp as vectors of 32 lanes, and the loops over them.

/// The lanes of a warp.
pub(crate) const WIDTH: usize = 32;

/// The bit of each lane, as a vector.
const BITS: [u32; WIDTH] = {
    let mut bits = [0; WIDTH];
    let mut lane = 0;
    while lane < WIDTH {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

/// In slots: the register is a constant of the program.
pub(crate) const CONSTANT: u16 = 0x8000;

/// Where the registers and constants of a function begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct First {
    pub(crate) word: u32,
    pub(crate) double: u32,
    pub(crate) predicate: u32,
    pub(crate) constant_word: u32,
    pub(crate) constant_double: u32,
}

/// The registers that one instruction sees, and the lanes that execute it.
pub(crate) struct Lanes<'a> {
    /// Registers of up to 32 bits, of all calls.
    pub(crate) words: &'a mut [[u32; WIDTH]],
    /// Registers of 64 bits.
    pub(crate) doubles: &'a mut [[u64; WIDTH]],
    /// Predicates, one bit per lane.
    pub(crate) predicates: &'a mut [u32],
    /// Constants of 32 bits, of all functions.
    pub(crate) constant_words: &'a [[u32; WIDTH]],
    /// Constants of 64 bits.
    pub(crate) constant_doubles: &'a [[u64; WIDTH]],
    /// The first ones of this call.
    pub(crate) first: First,
    /// The active lanes.
    pub(crate) mask: u32,
}

/// Whether a slot is a constant of the program.
#[inline(always)]
pub(crate) fn is_constant(slot: u16) -> bool {
    slot & CONSTANT != 0
}

/// The index of a slot.
#[inline(always)]
fn at(first: u32, slot: u16) -> usize {
    first as usize + usize::from(slot & !CONSTANT)
}

impl Lanes<'_> {
    #[inline(always)]
    pub(crate) fn word(&self, slot: u16) -> &[u32; WIDTH] {
        if slot & CONSTANT == 0 {
            &self.words[at(self.first.word, slot)]
        } else {
            &self.constant_words[at(self.first.constant_word, slot)]
        }
    }

    /// A register of 32 bits to write. It is no constant.
    #[inline(always)]
    pub(crate) fn word_mut(&mut self, slot: u16) -> &mut [u32; WIDTH] {
        &mut self.words[at(self.first.word, slot)]
    }

    #[inline(always)]
    pub(crate) fn double(&self, slot: u16) -> &[u64; WIDTH] {
        if slot & CONSTANT == 0 {
            &self.doubles[at(self.first.double, slot)]
        } else {
            &self.constant_doubles[at(self.first.constant_double, slot)]
        }
    }

    #[inline(always)]
    pub(crate) fn predicate(&self, slot: u16) -> u32 {
        self.predicates[at(self.first.predicate, slot)]
    }

    /// A register of 64 bits to write. It is no constant.
    #[inline(always)]
    pub(crate) fn double_mut(&mut self, slot: u16) -> &mut [u64; WIDTH] {
        &mut self.doubles[at(self.first.double, slot)]
    }

    /// Writes the active lanes of a predicate.
    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, slot: u16, value: u32) {
        let place = &mut self.predicates[at(self.first.predicate, slot)];
        *place = (*place & !self.mask) | (value & self.mask);
    }

    /// Writes the active lanes of a register of 32 bits.
    #[inline(always)]
    pub(crate) fn set_word(&mut self, slot: u16, values: &[u32; WIDTH]) {
        let place = &mut self.words[at(self.first.word, slot)];
        if self.mask == u32::MAX {
            *place = *values;
            return;
        }
        for lane in 0..WIDTH {
            let keep = if self.mask & BITS[lane] == 0 { u32::MAX } else { 0 };
            place[lane] = (place[lane] & keep) | (values[lane] & !keep);
        }
    }

    /// Writes the active lanes of a register of 64 bits.
    #[inline(always)]
    pub(crate) fn set_double(&mut self, slot: u16, values: &[u64; WIDTH]) {
        let place = &mut self.doubles[at(self.first.double, slot)];
        if self.mask == u32::MAX {
            *place = *values;
            return;
        }
        for lane in 0..WIDTH {
            let keep = if self.mask & BITS[lane] == 0 { u64::MAX } else { 0 };
            place[lane] = (place[lane] & keep) | (values[lane] & !keep);
        }
    }

    /// The addresses that a register of 32 or 64 bits gives with an offset.
    #[inline(always)]
    pub(crate) fn addresses(&self, slot: u16, offset: u64, wide: bool) -> [u64; WIDTH] {
        let mut addresses = [0; WIDTH];
        if wide {
            let base = self.double(slot);
            for lane in 0..WIDTH {
                addresses[lane] = base[lane].wrapping_add(offset);
            }
        } else {
            let base = self.word(slot);
            for lane in 0..WIDTH {
                addresses[lane] = u64::from(base[lane].wrapping_add(offset as u32));
            }
        }
        addresses
    }
}

/// A value that lanes hold.
pub(crate) trait Value: Copy + Default {
    /// The number in a register that holds the value.
    type Raw: Copy + Default;
    /// The 32 numbers of a register.
    fn source<'l>(lanes: &'l Lanes<'_>, slot: u16) -> &'l [Self::Raw; WIDTH];
    /// Writes the active lanes of a register.
    fn leave(lanes: &mut Lanes<'_>, slot: u16, numbers: &[Self::Raw; WIDTH]);
    fn of(number: Self::Raw) -> Self;
    fn raw(self) -> Self::Raw;
}

macro_rules! value {
    ($type:ty, $raw:ty, $unsigned:ty, $get:ident, $set:ident) => {
        impl Value for $type {
            type Raw = $raw;
            #[inline(always)]
            fn source<'l>(lanes: &'l Lanes<'_>, slot: u16) -> &'l [$raw; WIDTH] {
                lanes.$get(slot)
            }
            #[inline(always)]
            fn leave(lanes: &mut Lanes<'_>, slot: u16, numbers: &[$raw; WIDTH]) {
                lanes.$set(slot, numbers);
            }
            #[inline(always)]
            fn of(number: $raw) -> Self {
                number as $type
            }
            #[inline(always)]
            fn raw(self) -> $raw {
                <$raw>::from(self as $unsigned)
            }
        }
    };
}

value!(u8, u32, u8, word, set_word);
value!(i8, u32, u8, word, set_word);
value!(u16, u32, u16, word, set_word);
value!(i16, u32, u16, word, set_word);
value!(u32, u32, u32, word, set_word);
value!(i32, u32, u32, word, set_word);
value!(u64, u64, u64, double, set_double);
value!(i64, u64, u64, double, set_double);

/// The indices of the lanes of a mask.
#[inline(always)]
pub(crate) fn active(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}
