//! Loads and stores of single words of shared memory at addresses of 32 bits: most accesses of most
//! kernels that use it, and seldom rows.

use super::block::Common;
use crate::code::{Access, Fill, Lanes, Op, Place, WIDTH, active};

/// Whether an access is one of these.
#[inline(always)]
pub(super) fn is_one(access: Access) -> bool {
    let Access { place, bytes, count, wide, doubles, fill, shared: _ } = access;
    (place, bytes, count, wide, doubles, fill) == (Place::Shared, 4, 1, false, 0, Fill::Zero)
}

/// The offsets of the active lanes in shared memory, and 0 for the others; `None` if one is not
/// aligned or outside.
#[inline(always)]
fn offsets(lanes: &Lanes<'_>, op: &Op, common: &Common) -> Option<[u32; WIDTH]> {
    let (base, offset) = (lanes.word(op.s[0]), op.imm as u32);
    let (mut offsets, mut most, mut all) = ([0; WIDTH], 0, 0);
    for lane in 0..WIDTH {
        let kept = lanes.mask.cast_signed() << (31 - lane) >> 31;
        offsets[lane] = base[lane].wrapping_add(offset) & kept.cast_unsigned();
        most = offsets[lane].max(most);
        all |= offsets[lane];
    }
    let is_inside = most < common.shared_bytes && common.shared_bytes - most >= 4;
    (all % 4 == 0 && is_inside).then_some(offsets)
}

/// Loads a word for each lane. Returns whether all lanes could.
#[inline(always)]
pub(super) fn load(lanes: &mut Lanes<'_>, op: &Op, common: &mut Common, is_wide: bool) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_wide {
        // SAFETY: the machine has the instructions that the function is compiled with.
        return unsafe { load_wide(lanes, op, common) };
    }
    _ = is_wide;
    load_each(lanes, op, common)
}

/// Stores a word of each active lane, the last one last. Returns whether all lanes could.
#[inline(always)]
pub(super) fn store(lanes: &Lanes<'_>, op: &Op, common: &mut Common, is_wide: bool) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_wide {
        // SAFETY: the machine has the instructions that the function is compiled with.
        return unsafe { store_wide(lanes, op, common) };
    }
    _ = is_wide;
    store_each(lanes, op, common)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn load_wide(lanes: &mut Lanes<'_>, op: &Op, common: &mut Common) -> bool {
    load_each(lanes, op, common)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn store_wide(lanes: &Lanes<'_>, op: &Op, common: &mut Common) -> bool {
    store_each(lanes, op, common)
}

#[inline(always)]
fn load_each(lanes: &mut Lanes<'_>, op: &Op, common: &mut Common) -> bool {
    let Some(offsets) = offsets(lanes, op, common) else { return false };
    let memory = common.shared.pointer();
    let mut values = [0; WIDTH];
    for lane in 0..WIDTH {
        // SAFETY: the offset is one of a word inside of the block's shared memory, which no other
        // thread of the process uses while the block runs.
        values[lane] = unsafe { memory.add(offsets[lane] as usize).cast::<u32>().read() };
    }
    lanes.set_word(op.d[0], &values);
    true
}

#[inline(always)]
fn store_each(lanes: &Lanes<'_>, op: &Op, common: &mut Common) -> bool {
    let Some(offsets) = offsets(lanes, op, common) else { return false };
    let (memory, values) = (common.shared.pointer(), lanes.word(op.s[1]));
    // SAFETY: the offset is one of a word inside of the block's shared memory, as in `load_each`.
    let write = |lane: usize| unsafe {
        memory.add(offsets[lane] as usize).cast::<u32>().write(values[lane]);
    };
    if lanes.mask == u32::MAX {
        (0..WIDTH).for_each(write);
    } else {
        active(lanes.mask).for_each(write);
    }
    true
}
