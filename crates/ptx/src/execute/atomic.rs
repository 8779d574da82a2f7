//! Atomics, and asynchronous copies of a few bytes.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::access::{Blocked, Wanted, read, write};
use super::block::Common;
use super::engine::Engine;
use super::memory::Kind;
use super::registers::lanes;
use super::report::Cause;
use super::warp::{Fragment, Warp};
use crate::code::{Atomic, Lanes, Modify, Op, Operand, Place, WIDTH, active};
use crate::math::half::{self, Binary16, Brain16, Choice, Modifiers};
use crate::math::{double, single};

impl Engine<'_> {
    pub(super) fn atomic(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        atomic: Atomic,
        mask: u32,
    ) -> Result<(), Blocked> {
        let addresses = lanes(self.program, warp, &fragment.frame, mask).addresses(
            op.s[0],
            op.imm,
            atomic.wide,
        );
        let vector = u32::from(atomic.vector);
        if vector > 0
            && let Some(lane) =
                active(mask).find(|&lane| !addresses[lane].is_multiple_of(vector.into()))
        {
            let cause = Cause::Misaligned { bytes: vector };
            return Err(Blocked::trap(lane, Some(addresses[lane]), cause));
        }
        let bytes = atomic.operand.bytes();
        let wanted = Wanted { place: atomic.place, bytes, kind: Kind::Atomic, mask };
        let pointers = self.reach.places(common, warp, fragment, &addresses, wanted)?;
        let mut lanes = lanes(self.program, warp, &fragment.frame, mask);
        let first = values(&lanes, op.s[1], bytes);
        let swap = atomic.modify == Modify::CompareAndSwap;
        let second = if swap { values(&lanes, op.s[2], bytes) } else { [0; WIDTH] };
        let mut old = [0; WIDTH];
        let is_sum =
            atomic.modify == Modify::Add && matches!(atomic.operand, Operand::B32 | Operand::S32);
        for lane in active(mask) {
            let next = |old| modified(atomic, old, first[lane], second[lane]);
            // SAFETY: `places` gave the pointer for these bytes, aligned to their size, to write.
            old[lane] = unsafe {
                if atomic.place.is_shared() && is_sum {
                    let own = first[lane];
                    replace(pointers[lane], 4, |old| old.wrapping_add(own))
                } else if atomic.place.is_shared() {
                    replace(pointers[lane], bytes as u8, next)
                } else if is_sum {
                    add(pointers[lane], first[lane] as u32)
                } else {
                    update(pointers[lane], bytes, next)
                }
            };
        }
        if atomic.result && bytes == 8 {
            lanes.set_double(op.d[0], &old);
        } else if atomic.result {
            let mut words = [0; WIDTH];
            for lane in 0..WIDTH {
                words[lane] = old[lane] as u32;
            }
            lanes.set_word(op.d[0], &words);
        }
        Ok(())
    }

    /// `cp.async`: done at once, as a GPU may do it.
    pub(super) fn copy(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (bytes, sized): (u8, bool),
        mask: u32,
    ) -> Result<(), Blocked> {
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let (to, from) = (*registers.double(op.s[0]), *registers.double(op.s[1]));
        let sizes = if sized { *registers.word(op.s[2]) } else { [u32::from(bytes); WIDTH] };
        let reads =
            active(mask).filter(|&lane| sizes[lane] != 0).fold(0, |reads, lane| reads | 1 << lane);
        let size = u32::from(bytes);
        let wanted = Wanted { place: Place::Global, bytes: size, kind: Kind::Read, mask: reads };
        let sources = self.reach.places(common, warp, fragment, &from, wanted)?;
        let wanted = Wanted { place: Place::Shared, bytes: size, kind: Kind::Write, mask };
        let targets = self.reach.places(common, warp, fragment, &to, wanted)?;
        for lane in active(mask) {
            if sizes[lane] >= u32::from(bytes) {
                for word in 0..usize::from(bytes) / 4 {
                    // SAFETY: `places` gave both pointers for all bytes of the copy, which are whole
                    // words.
                    unsafe {
                        let value = read(sources[lane].wrapping_add(4 * word), 4);
                        write(targets[lane].wrapping_add(4 * word), 4, value);
                    }
                }
                continue;
            }
            for byte in 0..usize::from(bytes) {
                // SAFETY: `places` gave both pointers for all bytes of the copy.
                unsafe {
                    let inside = byte < sizes[lane] as usize;
                    let value = if inside { read(sources[lane].wrapping_add(byte), 1) } else { 0 };
                    write(targets[lane].wrapping_add(byte), 1, value);
                }
            }
        }
        Ok(())
    }
}

/// The values of a register for operands of so many bytes.
fn values(lanes: &Lanes<'_>, slot: u16, bytes: u32) -> [u64; WIDTH] {
    if bytes == 8 {
        return *lanes.double(slot);
    }
    let words = lanes.word(slot);
    let mut values = [0; WIDTH];
    for lane in 0..WIDTH {
        values[lane] = words[lane].into();
    }
    values
}

/// Adds to a word in one step, and gives the old one: the most frequent atomic, which machines have.
///
/// # Safety
/// As for [`update`], of four bytes.
unsafe fn add(pointer: *mut u8, value: u32) -> u64 {
    // SAFETY: the caller's; other threads of the process use atomics on these bytes, too.
    unsafe { AtomicU32::from_ptr(pointer.cast()) }.fetch_add(value, Ordering::SeqCst).into()
}

/// Replaces bytes of shared memory, and gives the old ones. Only the thread that runs the grid reaches
/// them, so two steps are one for all others.
///
/// # Safety
/// As for [`update`].
#[inline(always)]
unsafe fn replace(pointer: *mut u8, bytes: u8, next: impl Fn(u64) -> u64) -> u64 {
    // SAFETY: the caller promises a pointer that is valid for so many bytes, and aligned to them.
    unsafe {
        let old = read(pointer, bytes);
        write(pointer, bytes, next(old));
        old
    }
}

/// Replaces bytes in one step, and gives the old ones.
///
/// # Safety
/// The pointer is valid for reads and writes of as many bytes, and aligned to them.
pub(super) unsafe fn update(pointer: *mut u8, bytes: u32, next: impl Fn(u64) -> u64) -> u64 {
    // SAFETY: the caller's; other threads of the process use atomics on these bytes, too.
    unsafe {
        match bytes {
            2 => {
                let place = AtomicU16::from_ptr(pointer.cast());
                let old = place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
                    Some(next(u64::from(old)) as u16)
                });
                u64::from(old.unwrap_or_else(|old| old))
            }
            4 => {
                let place = AtomicU32::from_ptr(pointer.cast());
                let old = place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
                    Some(next(u64::from(old)) as u32)
                });
                u64::from(old.unwrap_or_else(|old| old))
            }
            _ => {
                let place = AtomicU64::from_ptr(pointer.cast());
                let old =
                    place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(next(old)));
                old.unwrap_or_else(|old| old)
            }
        }
    }
}

/// The new value of an atomic.
pub(super) fn modified(atomic: Atomic, old: u64, a: u64, b: u64) -> u64 {
    match (atomic.modify, atomic.operand) {
        (Modify::And, _) => old & a,
        (Modify::Or, _) => old | a,
        (Modify::Xor, _) => old ^ a,
        (Modify::Exchange, _) => a,
        (Modify::CompareAndSwap, operand) => {
            let width =
                if operand.bytes() == 8 { u64::MAX } else { (1 << (8 * operand.bytes())) - 1 };
            if old & width == a & width { b } else { old }
        }
        (Modify::Increment, _) => {
            if old as u32 >= a as u32 {
                0
            } else {
                old + 1
            }
        }
        (Modify::Decrement, _) => {
            let (old, a) = (old as u32, a as u32);
            u64::from(if old == 0 || old > a { a } else { old - 1 })
        }
        (Modify::Add, Operand::F32) if atomic.flush => {
            u64::from(single::add::<true, false>(old as u32, a as u32))
        }
        (Modify::Add, Operand::F32) => u64::from(single::add::<false, false>(old as u32, a as u32)),
        // Shared memory's is an addition of a thread; global memory's leaves a NaN as it is.
        (Modify::Add, Operand::F64) if atomic.place.is_shared() => double::add(a, old),
        (Modify::Add, Operand::F64) if double::is_nan(a) => a,
        (Modify::Add, Operand::F64) if double::is_nan(old) => old,
        (Modify::Add, Operand::F64) => double::add(old, a),
        (_, Operand::F16 | Operand::F16x2 | Operand::Bf16 | Operand::Bf16x2) => {
            halves(atomic, old as u32, a as u32)
        }
        (Modify::Add, _) => old.wrapping_add(a),
        (Modify::Min, Operand::B64) => old.min(a),
        (Modify::Max, Operand::B64) => old.max(a),
        (Modify::Min, Operand::S64) => old.cast_signed().min(a.cast_signed()).cast_unsigned(),
        (Modify::Max, Operand::S64) => old.cast_signed().max(a.cast_signed()).cast_unsigned(),
        (Modify::Min, Operand::S32) => u64::from((old as i32).min(a as i32).cast_unsigned()),
        (Modify::Max, Operand::S32) => u64::from((old as i32).max(a as i32).cast_unsigned()),
        (Modify::Min, _) => u64::from((old as u32).min(a as u32)),
        (Modify::Max, _) => u64::from((old as u32).max(a as u32)),
    }
}

fn halves(atomic: Atomic, old: u32, a: u32) -> u64 {
    let f16 = |old: u16, a: u16| match atomic.modify {
        Modify::Min => half::min::<Binary16>(old, a, Choice::default()),
        Modify::Max => half::max::<Binary16>(old, a, Choice::default()),
        _ => half::add::<Binary16>(old, a, Modifiers::default()),
    };
    let bf16 = |old: u16, a: u16| match atomic.modify {
        Modify::Min => half::min::<Brain16>(old, a, Choice::default()),
        Modify::Max => half::max::<Brain16>(old, a, Choice::default()),
        _ => half::add::<Brain16>(old, a, Modifiers::default()),
    };
    match atomic.operand {
        Operand::F16 => u64::from(f16(old as u16, a as u16)),
        Operand::F16x2 => u64::from(half::both_2(old, a, f16)),
        Operand::Bf16 => u64::from(bf16(old as u16, a as u16)),
        _ => u64::from(half::both_2(old, a, bf16)),
    }
}
