//! Words at places of their own for each lane, read by vectors where they follow one another.
//!
//! Kernels with blocks of 8 or 16 columns access rows of 8 or 16 elements, and one element for a
//! whole row: a vector reads each of these at once. The instruction that gathers by offsets is not
//! used: it took as long as single loads or longer on a Xeon of 2023.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_cmpeq_epi32, _mm256_loadu_si256, _mm256_movemask_epi8,
    _mm256_set1_epi32, _mm256_setr_epi32, _mm256_storeu_si256,
};

use crate::code::WIDTH;

/// Reads a word at each of the offsets from a place into a register.
///
/// It is a function of its own, so that its vectors stay out of the registers of its callers.
///
/// # Safety
/// The machine has AVX2, and a word can be read at each offset.
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) unsafe fn words(start: *const u8, offsets: &[u32; WIDTH], values: &mut [u32; WIDTH]) {
    let steps = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    for (from, to) in offsets.chunks_exact(8).zip(values.chunks_exact_mut(8)) {
        let first = from[0];
        // SAFETY: the chunks are whole vectors, and so is a row of eight words. Volatile: another
        // thread of the process may write the words.
        unsafe {
            let at = _mm256_loadu_si256(from.as_ptr().cast());
            let same = _mm256_set1_epi32(first.cast_signed());
            let place = start.wrapping_add(first as usize);
            if is_equal(at, _mm256_add_epi32(same, steps)) {
                let row = place.cast::<Vector>().read_volatile().0;
                _mm256_storeu_si256(to.as_mut_ptr().cast(), row);
            } else if is_equal(at, same) {
                let word = _mm256_set1_epi32(place.cast::<i32>().read_volatile());
                _mm256_storeu_si256(to.as_mut_ptr().cast(), word);
            } else {
                for (offset, value) in from.iter().zip(to) {
                    *value = start.wrapping_add(*offset as usize).cast::<u32>().read_volatile();
                }
            }
        }
    }
}

/// A vector at any place.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Vector(__m256i);

/// Whether two vectors have the same bits.
#[target_feature(enable = "avx2")]
#[inline]
fn is_equal(a: __m256i, b: __m256i) -> bool {
    _mm256_movemask_epi8(_mm256_cmpeq_epi32(a, b)) == -1
}
