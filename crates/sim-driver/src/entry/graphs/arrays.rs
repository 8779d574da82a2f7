//! Arrays of handles that calls take and give.

use std::ffi::c_void;
use std::ptr::without_provenance_mut;

use pagewise_hal::Code;

use crate::driver::{Outcome, has_place};
use crate::entry::movement::gather;
use crate::graphs::LOSSY_QUERY;

/// The handles of an array.
///
/// # Safety
/// `items` must be null or have `count` items.
pub(in crate::entry) unsafe fn handles(
    items: *const *mut c_void,
    count: usize,
) -> Outcome<Vec<usize>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    has_place(items)?;
    gather(count, |index| {
        // SAFETY: `items` is not null, so by this function's contract it has `count` items, and
        // `index` is below `count`. Items are pointers, of which every bit pattern is a value.
        unsafe { items.wrapping_add(index).read_unaligned() }.addr()
    })
}

/// The data of edges. Without an array it is zero.
///
/// # Safety
/// `edges` must be null or have `count` items.
pub(super) unsafe fn edge_data(edges: *const u64, count: usize) -> Outcome<Vec<u64>> {
    gather(count, |index| {
        if edges.is_null() {
            return 0;
        }
        // SAFETY: `edges` is not null, so by this function's contract it has `count` items of 8
        // bytes, and `index` is below `count`.
        unsafe { edges.wrapping_add(index).read_unaligned() }
    })
}

/// Refuses data of edges other than zero, which captures and new nodes do not take.
///
/// # Safety
/// `edges` must be null or have `count` items.
pub(in crate::entry) unsafe fn plain_edges(edges: *const u64, count: usize) -> Outcome {
    if edges.is_null() {
        return Ok(());
    }
    // SAFETY: by this function's contract the array has `count` items.
    let data = unsafe { edge_data(edges, count) }?;
    if data.iter().all(|edge| *edge == 0) { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
}

/// Gives handles to an array. Without an array, `count` becomes their number. The rest of a longer
/// array becomes null, and `count` the number of handles given.
///
/// # Safety
/// `count` must be null or valid for reading and writing; `out` null or as long as it says.
pub(super) unsafe fn give_handles(
    found: &[usize],
    out: *mut *mut c_void,
    count: *mut usize,
) -> Outcome {
    has_place(count)?;
    // SAFETY: `count` is not null, so by this function's contract it can be read and written; `out`
    // has as many items as it says.
    unsafe {
        if out.is_null() {
            count.write_unaligned(found.len());
            return Ok(());
        }
        let room = count.read_unaligned();
        for index in 0..room {
            let handle = found.get(index).copied().unwrap_or_default();
            out.wrapping_add(index).write_unaligned(without_provenance_mut(handle));
        }
        count.write_unaligned(room.min(found.len()));
    }
    Ok(())
}

/// Gives the data of edges to an array that may be missing if all data is zero.
///
/// # Errors
/// `CUDA_ERROR_LOSSY_QUERY` if edges have data and nodes are asked for without it.
///
/// # Safety
/// `count` must be null or valid for reading; `out` null or as long as it says.
pub(super) unsafe fn give_edges(
    found: &[u64],
    out: *mut u64,
    count: *const usize,
    gives_nodes: bool,
) -> Outcome {
    has_place(count)?;
    if out.is_null() {
        let is_lossy = gives_nodes && found.iter().any(|data| *data != 0);
        return if is_lossy { Err(LOSSY_QUERY) } else { Ok(()) };
    }
    // SAFETY: `count` is not null, so by this function's contract it can be read, and `out` has as
    // many items as it says.
    unsafe {
        for (index, data) in found.iter().enumerate().take(count.read_unaligned()) {
            out.wrapping_add(index).write_unaligned(*data);
        }
    }
    Ok(())
}
