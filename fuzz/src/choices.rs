//! Random choices, made from bytes.

use arbitrary::Unstructured;
use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// A source of choices: each uses up some of the bytes, and once none is left all are the first.
///
/// The same bytes give the same choices on every machine.
#[derive(Debug)]
pub struct Choices<'a>(Unstructured<'a>);

impl<'a> Choices<'a> {
    /// Choices from these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// The bytes of one round of a seed.
    #[must_use]
    pub fn bytes_of(seed: u64, round: u64, count: usize) -> Vec<u8> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(round);
        let mut bytes = vec![0; count];
        random.fill_bytes(&mut bytes);
        bytes
    }

    /// Whether all bytes are used up.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that are left, all of them.
    pub fn rest(&mut self) -> &'a [u8] {
        let left = self.0.len();
        self.0.bytes(left).unwrap_or_default()
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.int_in_range(0..=bound.saturating_sub(1)).unwrap_or_default()
    }

    /// Yes, `times` times in `of`.
    pub fn chance(&mut self, times: u8, of: u8) -> bool {
        self.below(u64::from(of)) < u64::from(times) && !self.is_done()
    }

    /// One of the items.
    ///
    /// # Panics
    /// If there is none.
    pub fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or_default()
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    /// A number that is often at an edge: 0, 1, around powers of two, the largest.
    pub fn edge(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => 1,
            2 => u64::MAX.wrapping_sub(self.below(3)),
            3 => (1_u64 << self.below(64)).wrapping_sub(1),
            4 => 1 << self.below(64),
            5 => (1_u64 << self.below(64)).wrapping_add(1),
            6 => u64::from(self.byte()),
            _ => self.number(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_a_seed_differ_and_repeat() {
        assert_eq!(Choices::bytes_of(1, 2, 64), Choices::bytes_of(1, 2, 64));
        assert_ne!(Choices::bytes_of(1, 2, 64), Choices::bytes_of(1, 3, 64));
        assert_ne!(Choices::bytes_of(1, 2, 64), Choices::bytes_of(2, 2, 64));
    }

    #[test]
    fn choices_end_with_the_bytes() {
        let mut choices = Choices::new(&[7; 40]);
        let mut drawn = 0;
        while !choices.is_done() {
            let _ = choices.one_of(&[1, 2, 3]);
            drawn += 1;
        }
        assert!((1..=40).contains(&drawn));
        assert_eq!((choices.number(), choices.below(0), choices.chance(1, 1)), (0, 0, false));
    }
}
