//! The modification of bytes by atomics, lane by lane.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::access::{Pointers, read, write};
use crate::code::{Atomic, Modify, Operand, WIDTH, active};
use crate::math::half::{self, Binary16, Brain16, Choice, Modifiers};
use crate::math::{double, single};

/// The operands of an atomic in each lane of a mask, and the places that it modifies.
pub(super) struct ByLane<'a> {
    pub(super) pointers: &'a Pointers,
    pub(super) first: &'a [u64; WIDTH],
    pub(super) second: &'a [u64; WIDTH],
    pub(super) mask: u32,
    /// Whether only the thread that runs the grid reaches the places, so that two steps are one for all
    /// others.
    pub(super) is_alone: bool,
}

/// Carries out an atomic by code for just it, if it is one of these.
macro_rules! by_kind {
    ($lanes:expr, $atomic:expr; $($modify:ident $operand:ident),* $(,)?) => {
        match ($atomic.modify, $atomic.operand) {
            $((Modify::$modify, Operand::$operand) => {
                $lanes.each((Modify::$modify, Operand::$operand), $atomic)
            })*
            kind => $lanes.each(kind, $atomic),
        }
    };
}

impl ByLane<'_> {
    /// Carries out the atomic in one lane after the other. Gives the values before.
    ///
    /// # Safety
    /// The lanes' pointers are valid for reads and writes of the atomic's bytes, and aligned to them.
    pub(super) unsafe fn apply(&self, atomic: Atomic) -> [u64; WIDTH] {
        // SAFETY: the caller promises the same for all lanes.
        unsafe {
            if is_integer_sum(atomic.modify, atomic.operand)
                && let Some(place) = self.one_place()
            {
                return self.sum_at(place, atomic);
            }
            by_kind!(self, atomic;
                Add B32, Add S32, Add B64, Add F32, Add F64,
                Min B32, Min S32, Max B32, Max S32, And B32, Or B32, Xor B32,
                Min B64, Min S64, Max B64, Max S64, And B64, Or B64, Xor B64,
                Exchange B32, Exchange B64, CompareAndSwap B32, CompareAndSwap B64,
            )
        }
    }

    /// The place that all lanes modify, if it is one.
    fn one_place(&self) -> Option<*mut u8> {
        let place = self.pointers[self.mask.trailing_zeros() as usize % WIDTH];
        active(self.mask).all(|lane| self.pointers[lane] == place).then_some(place)
    }

    /// All lanes add to their one place, in a step for all: a lane's value before has the sum of the lanes
    /// before it.
    ///
    /// # Safety
    /// As for [`ByLane::apply`].
    unsafe fn sum_at(&self, place: *mut u8, atomic: Atomic) -> [u64; WIDTH] {
        let (mut sums, mut sum) = ([0_u64; WIDTH], 0_u64);
        for lane in active(self.mask) {
            sums[lane] = sum;
            sum = sum.wrapping_add(self.first[lane]);
        }
        let of = (atomic.operand.bytes(), self.is_alone);
        // SAFETY: the caller promises the same for each lane's pointer.
        let before = unsafe { add(of, place, sum) };
        sums.map(|sum| before.wrapping_add(sum))
    }

    /// The kind is that of the atomic. It comes by itself, so that code for one kind has it as a constant.
    ///
    /// # Safety
    /// As for [`ByLane::apply`].
    #[inline(always)]
    unsafe fn each(&self, kind: (Modify, Operand), atomic: Atomic) -> [u64; WIDTH] {
        // SAFETY: the caller promises valid pointers for all lanes, as these want.
        unsafe {
            if self.is_alone {
                self.each_where::<true>(kind, atomic)
            } else {
                self.each_where::<false>(kind, atomic)
            }
        }
    }

    /// [`each`](Self::each), where the thread is alone or not.
    ///
    /// # Safety
    /// As for [`ByLane::apply`].
    #[inline(always)]
    unsafe fn each_where<const ALONE: bool>(
        &self,
        kind: (Modify, Operand),
        atomic: Atomic,
    ) -> [u64; WIDTH] {
        let (modify, operand) = kind;
        let is_sum = is_integer_sum(modify, operand);
        let mut old = [0; WIDTH];
        for lane in active(self.mask) {
            let (pointer, value) = (self.pointers[lane], self.first[lane]);
            let next = |old| modified(kind, atomic, old, [value, self.second[lane]]);
            // SAFETY: the caller promises the same for each lane's pointer.
            old[lane] = unsafe {
                if is_sum {
                    add((operand.bytes(), ALONE), pointer, value)
                } else if ALONE {
                    replace(pointer, operand.bytes() as u8, next)
                } else {
                    update(pointer, operand.bytes(), next)
                }
            };
        }
        old
    }
}

/// Adds to an integer of so many bytes, which the thread reaches alone or not, in one step, and gives the
/// old one: the most frequent atomic, which machines have.
///
/// # Safety
/// As for [`update`], of four or eight bytes.
#[inline(always)]
unsafe fn add((bytes, is_alone): (u32, bool), pointer: *mut u8, value: u64) -> u64 {
    // SAFETY: the caller promises a pointer for as many bytes; other threads of the process use atomics
    // on these bytes, too.
    unsafe {
        if is_alone {
            replace(pointer, bytes as u8, |old| old.wrapping_add(value))
        } else if bytes == 4 {
            let place = AtomicU32::from_ptr(pointer.cast());
            place.fetch_add(value as u32, Ordering::SeqCst).into()
        } else {
            AtomicU64::from_ptr(pointer.cast()).fetch_add(value, Ordering::SeqCst)
        }
    }
}

/// Whether an atomic adds integers of 32 or 64 bits.
#[inline(always)]
fn is_integer_sum(modify: Modify, operand: Operand) -> bool {
    use Operand::{B32, B64, S32, S64};
    modify == Modify::Add && matches!(operand, B32 | B64 | S32 | S64)
}

/// Replaces bytes that only the thread that runs the grid reaches, and gives the old ones.
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
#[inline(always)]
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
#[inline(always)]
pub(super) fn modified(
    (modify, operand): (Modify, Operand),
    atomic: Atomic,
    old: u64,
    [a, b]: [u64; 2],
) -> u64 {
    match (modify, operand) {
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
