//! Masks of lanes, and the vectors that they stand for.

use super::lanes::WIDTH;

/// The bits of booleans.
#[inline(always)]
pub(crate) fn pack(values: &[bool; WIDTH]) -> u32 {
    let mut words = [0; WIDTH];
    for lane in 0..WIDTH {
        words[lane] = if values[lane] { u32::MAX } else { 0 };
    }
    signs(&words)
}

/// The lanes with values that have a property, as a mask.
#[inline(always)]
pub(crate) fn lanes_where<T: Copy>(values: &[T; WIDTH], holds: impl Fn(T) -> bool) -> u32 {
    // A loop: `map` of an array is a call for each lane where the compiler does not inline it.
    let mut words = [0; WIDTH];
    for (word, &value) in words.iter_mut().zip(values) {
        *word = if holds(value) { u32::MAX } else { 0 };
    }
    signs(&words)
}

/// The booleans of bits.
#[inline(always)]
pub(crate) fn bits(packed: u32) -> [bool; WIDTH] {
    let mut values = [false; WIDTH];
    for (lane, value) in values.iter_mut().enumerate() {
        *value = packed >> lane & 1 != 0;
    }
    values
}

/// The signs of words, as a mask.
#[inline(always)]
pub(crate) fn signs(words: &[u32; WIDTH]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{
            _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
        };
        let mut signs = 0;
        for (half, words) in words.chunks_exact(16).enumerate() {
            // SAFETY: every machine of this kind has the instructions, which keep signs, and each
            // four words are a vector at any address.
            let bits = unsafe {
                let four = |at: usize| _mm_loadu_si128(words.as_ptr().add(4 * at).cast());
                let low = _mm_packs_epi32(four(0), four(1));
                let high = _mm_packs_epi32(four(2), four(3));
                _mm_movemask_epi8(_mm_packs_epi16(low, high))
            };
            signs |= (bits & 0xffff) << (16 * half);
        }
        signs.cast_unsigned()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    words.iter().enumerate().fold(0, |signs, (lane, word)| signs | word >> 31 << lane)
}
