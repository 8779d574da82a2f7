//! Rows of bytes that all lanes of a warp move together.
//!
//! Vectors move them, in pieces of 32 bytes. Accesses are volatile, since another thread of the
//! process may use the bytes at any time. Lines behind the row are fetched ahead: the next warps
//! access them.

use crate::code::WIDTH;

/// Bytes of a piece.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const PIECE: usize = 32;

/// Bytes of a cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;

/// A vector at any place.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Piece(std::arch::x86_64::__m256i);

/// Reads a row of an integer or several for each lane.
///
/// # Safety
/// The row has as many integers as `to`, aligned to their size, that can be read; their bytes are a
/// multiple of 32.
#[inline(always)]
pub(super) unsafe fn read<T: Copy>(row: *const u8, to: &mut [T; WIDTH]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for at in (0..size_of_val(to)).step_by(PIECE) {
        // SAFETY: the caller's, and the piece is inside of `to`, which any bits are values of.
        unsafe {
            let piece = row.add(at).cast::<Piece>().read_volatile();
            to.as_mut_ptr().cast::<u8>().add(at).cast::<Piece>().write(piece);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for (at, to) in to.iter_mut().enumerate() {
        // SAFETY: the row has as many integers as `to`, so the place is inside of it.
        *to = unsafe { row.cast::<T>().add(at).read_volatile() };
    }
    fetch_behind(row, size_of_val(to));
}

/// Writes a row of an integer or several for each lane.
///
/// # Safety
/// As for [`read`], to write.
#[inline(always)]
pub(super) unsafe fn write<T: Copy>(row: *mut u8, from: &[T; WIDTH]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for at in (0..size_of_val(from)).step_by(PIECE) {
        // SAFETY: the caller's, and the piece is inside of `from`.
        unsafe {
            let piece = from.as_ptr().cast::<u8>().add(at).cast::<Piece>().read();
            row.add(at).cast::<Piece>().write_volatile(piece);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for (at, from) in from.iter().enumerate() {
        // SAFETY: the row has as many integers as `from`, so the place is inside of it.
        unsafe { row.cast::<T>().add(at).write_volatile(*from) };
    }
}

/// Asks for the lines behind a row of so many bytes.
#[inline(always)]
fn fetch_behind(row: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for at in (bytes..2 * bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every machine of this kind has the instruction, and any address is one for it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(at).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (row, bytes);
}
