//! The addresses and words of a warp's lanes, by vectors of AVX2.
//!
//! The loops count vectors: functions of iterators, which are compiled for any machine, would be called
//! here and not inlined.
//!
//! Each function is one of its own, so that its vectors stay out of the registers of its callers. The
//! instruction that gathers words by their offsets is not used: it took as long as single loads or
//! longer on a Xeon of 2023.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_and_si256, _mm256_blendv_epi8,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_loadu_si256,
    _mm256_max_epu32, _mm256_movemask_epi8, _mm256_or_si256, _mm256_permute4x64_epi64,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi32, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_ps, _mm256_storeu_si256, _mm256_testz_si256,
    _mm256_xor_si256,
};

use super::bounds::Bounds;
use crate::code::WIDTH;

/// The words of a vector.
const WORDS: usize = 8;

/// The doubles of a vector.
const DOUBLES: usize = 4;

/// The vectors of a register of words.
const VECTORS: usize = WIDTH / WORDS;

/// Whether each lane has `step` more than the lane before.
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) fn words_follow(lanes: &[u32; WIDTH], step: u32) -> bool {
    let [first, step] = [lanes[0].cast_signed(), step.cast_signed()];
    let at = |lane: i32| first.wrapping_add(step.wrapping_mul(lane));
    let mut expected = _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    let further = _mm256_set1_epi32(step.wrapping_mul(WORDS as i32));
    let mut gaps = _mm256_setzero_si256();
    for vector in 0..VECTORS {
        gaps = _mm256_or_si256(gaps, _mm256_xor_si256(words_at(lanes, vector), expected));
        expected = _mm256_add_epi32(expected, further);
    }
    is_zero(gaps)
}

/// Whether each lane has `step` more than the lane before.
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) fn doubles_follow(lanes: &[u64; WIDTH], step: u64) -> bool {
    let [first, step] = [lanes[0].cast_signed(), step.cast_signed()];
    let at = |lane: i64| first.wrapping_add(step.wrapping_mul(lane));
    let mut expected = _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
    let further = _mm256_set1_epi64x(step.wrapping_mul(DOUBLES as i64));
    let mut gaps = _mm256_setzero_si256();
    for vector in 0..WIDTH / DOUBLES {
        gaps = _mm256_or_si256(gaps, _mm256_xor_si256(doubles_at(lanes, vector), expected));
        expected = _mm256_add_epi64(expected, further);
    }
    is_zero(gaps)
}

/// Offsets from addresses of 32 bits. Returns whether all are the same, if they fit the bounds.
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) fn offsets_of_words(
    base: &[u32; WIDTH],
    bounds: Bounds,
    to: &mut [u32; WIDTH],
) -> Option<bool> {
    let shift = _mm256_set1_epi32((bounds.shift as u32).cast_signed());
    for vector in 0..VECTORS {
        set_words_at(to, vector, _mm256_add_epi32(words_at(base, vector), shift));
    }
    fit(bounds, to)
}

/// Offsets from addresses of 64 bits, as [`offsets_of_words`].
#[target_feature(enable = "avx2")]
#[inline(never)]
pub(super) fn offsets_of_doubles(
    base: &[u64; WIDTH],
    bounds: Bounds,
    to: &mut [u32; WIDTH],
) -> Option<bool> {
    let shift = _mm256_set1_epi64x(bounds.shift.cast_signed());
    let mut high = _mm256_setzero_si256();
    for vector in 0..VECTORS {
        let left = _mm256_add_epi64(doubles_at(base, 2 * vector), shift);
        let right = _mm256_add_epi64(doubles_at(base, 2 * vector + 1), shift);
        let (left, right) = (_mm256_castsi256_ps(left), _mm256_castsi256_ps(right));
        // The halves of each address, in the order of the lanes.
        let lower = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(left, right));
        let upper = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(left, right));
        set_words_at(to, vector, _mm256_permute4x64_epi64::<0xd8>(lower));
        let upper = _mm256_permute4x64_epi64::<0xd8>(upper);
        high = _mm256_or_si256(high, _mm256_and_si256(upper, active(bounds.mask, vector)));
    }
    if is_zero(high) { fit(bounds, to) } else { None }
}

/// Gives lanes that are not active the offset of the first active one. Returns whether all offsets
/// are the same, if they fit the bounds.
#[target_feature(enable = "avx2")]
#[inline]
fn fit(bounds: Bounds, to: &mut [u32; WIDTH]) -> Option<bool> {
    let first = to[bounds.mask.trailing_zeros() as usize % WIDTH];
    let first = _mm256_set1_epi32(first.cast_signed());
    let zero = _mm256_setzero_si256();
    let (mut most, mut all, mut differ) = (zero, zero, zero);
    for vector in 0..VECTORS {
        let mut offsets = words_at(to, vector);
        if bounds.mask != u32::MAX {
            offsets = _mm256_blendv_epi8(first, offsets, active(bounds.mask, vector));
            set_words_at(to, vector, offsets);
        }
        most = _mm256_max_epu32(most, offsets);
        all = _mm256_or_si256(all, offsets);
        differ = _mm256_or_si256(differ, _mm256_xor_si256(offsets, first));
    }
    let last = _mm256_set1_epi32(bounds.last.cast_signed());
    let is_inside = is_equal(_mm256_max_epu32(most, last), last);
    let all = _mm256_or_si256(all, _mm256_set1_epi32(bounds.start.cast_signed()));
    let is_aligned = _mm256_testz_si256(all, _mm256_set1_epi32(bounds.odd.cast_signed())) == 1;
    (is_inside && is_aligned).then(|| is_zero(differ))
}

/// Reads a word at each of the offsets from a place. Kernels with blocks of 8 or 16 columns access
/// rows of so many words, and one word for a whole row: a vector reads each of these at once.
///
/// # Safety
/// A word can be read at each offset, and the machine has AVX2.
#[inline(never)]
pub(super) unsafe fn words(start: *const u8, offsets: &[u32; WIDTH], values: &mut [u32; WIDTH]) {
    // SAFETY: the caller promises the words and AVX2.
    unsafe { read_words(start, offsets, values) }
}

/// As [`words`], which is no part of its callers: `inline(never)` of a function with features of the machine
/// (rustc 1.95) holds in functions with features only. In a loop of a caller, all that depends on the offsets
/// would be computed before the loop.
///
/// # Safety
/// A word can be read at each offset.
#[target_feature(enable = "avx2")]
unsafe fn read_words(start: *const u8, offsets: &[u32; WIDTH], values: &mut [u32; WIDTH]) {
    let steps = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    for vector in 0..VECTORS {
        let at = words_at(offsets, vector);
        let first = offsets[WORDS * vector];
        let same = _mm256_set1_epi32(first.cast_signed());
        let place = start.wrapping_add(first as usize);
        // SAFETY: the caller's, and eight words that follow one another are a vector. Volatile:
        // another thread of the process may write the words.
        unsafe {
            if is_equal(at, _mm256_add_epi32(same, steps)) {
                set_words_at(values, vector, place.cast::<Unaligned>().read_volatile().0);
            } else if is_equal(at, same) {
                let word = _mm256_set1_epi32(place.cast::<i32>().read_volatile());
                set_words_at(values, vector, word);
            } else {
                for lane in WORDS * vector..WORDS * (vector + 1) {
                    let place = start.wrapping_add(offsets[lane] as usize);
                    values[lane] = place.cast::<u32>().read_volatile();
                }
            }
        }
    }
}

/// A vector at any place.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned(__m256i);

/// A vector of a register of words.
#[target_feature(enable = "avx2")]
#[inline]
fn words_at(register: &[u32; WIDTH], vector: usize) -> __m256i {
    debug_assert!(vector < VECTORS);
    // SAFETY: the register has so many vectors.
    unsafe { _mm256_loadu_si256(register.as_ptr().cast::<__m256i>().add(vector)) }
}

/// Writes a vector of a register of words.
#[target_feature(enable = "avx2")]
#[inline]
fn set_words_at(register: &mut [u32; WIDTH], vector: usize, words: __m256i) {
    debug_assert!(vector < VECTORS);
    // SAFETY: the register has so many vectors.
    unsafe { _mm256_storeu_si256(register.as_mut_ptr().cast::<__m256i>().add(vector), words) };
}

/// A vector of a register of doubles.
#[target_feature(enable = "avx2")]
#[inline]
fn doubles_at(register: &[u64; WIDTH], vector: usize) -> __m256i {
    debug_assert!(vector < WIDTH / DOUBLES);
    // SAFETY: the register has so many vectors.
    unsafe { _mm256_loadu_si256(register.as_ptr().cast::<__m256i>().add(vector)) }
}

/// All bits of each active lane, for a vector of words.
#[target_feature(enable = "avx2")]
#[inline]
fn active(mask: u32, vector: usize) -> __m256i {
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let own = _mm256_set1_epi32((mask >> (WORDS * vector)).cast_signed());
    _mm256_cmpeq_epi32(_mm256_and_si256(own, bits), bits)
}

#[target_feature(enable = "avx2")]
#[inline]
fn is_zero(vector: __m256i) -> bool {
    _mm256_testz_si256(vector, vector) == 1
}

#[target_feature(enable = "avx2")]
#[inline]
fn is_equal(a: __m256i, b: __m256i) -> bool {
    _mm256_movemask_epi8(_mm256_cmpeq_epi32(a, b)) == -1
}
