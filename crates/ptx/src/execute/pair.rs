//! Atomics of 128 bits.

use super::access::{Blocked, Wanted};
use super::block::Common;
use super::engine::Engine;
use super::memory::Kind;
use super::registers::lanes;
use super::warp::{Fragment, Warp};
use crate::code::{AtomicPair, Op, WIDTH, active};

impl Engine<'_> {
    /// `atom.exch.b128`, `atom.cas.b128`
    pub(super) fn atomic_pair(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        atomic: AtomicPair,
        mask: u32,
    ) -> Result<(), Blocked> {
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let addresses = registers.addresses(op.s[0], op.imm, atomic.wide);
        let wanted = Wanted { place: atomic.place, bytes: 16, kind: Kind::Atomic, mask };
        let pointers = self.reach.places(common, warp, fragment, &addresses, wanted)?.pointers;
        let mut registers = lanes(self.program, warp, &fragment.frame, mask);
        let pairs = |index: usize| {
            let (low, high) =
                (registers.double(op.source(index)), registers.double(op.source(index + 1)));
            std::array::from_fn::<_, WIDTH, _>(|lane| {
                u128::from(low[lane]) | u128::from(high[lane]) << 64
            })
        };
        let first = pairs(1);
        let second = if atomic.swap { pairs(3) } else { first };
        let (mut low, mut high) = ([0; WIDTH], [0; WIDTH]);
        for lane in active(mask) {
            let expected = atomic.swap.then_some(first[lane]);
            // SAFETY: `places` gave the pointer for 16 bytes, aligned to them, to write.
            let old = unsafe { exchange(pointers[lane].cast(), expected, second[lane]) };
            (low[lane], high[lane]) = (old as u64, (old >> 64) as u64);
        }
        registers.set_double(op.result(0), &low);
        registers.set_double(op.result(1), &high);
        Ok(())
    }
}

/// Puts a value where the expected one is, or any one, and gives the old one. It is one step for
/// other threads of the process where the machine has an instruction for that.
///
/// # Safety
/// The pointer is valid for reads and writes of 16 bytes, and aligned to them.
unsafe fn exchange(pointer: *mut u128, expected: Option<u128>, new: u128) -> u128 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("cmpxchg16b") {
        // SAFETY: the caller's, and the machine has the instruction.
        return unsafe { exchange_whole(pointer, expected, new) };
    }
    // SAFETY: the caller's. Volatile: another thread of the process may write these bytes at any time.
    unsafe {
        let old = pointer.read_volatile();
        if expected.is_none_or(|expected| expected == old) {
            pointer.write_volatile(new);
        }
        old
    }
}

/// # Safety
/// As of [`exchange`], and the machine has `cmpxchg16b`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn exchange_whole(pointer: *mut u128, expected: Option<u128>, new: u128) -> u128 {
    let mut guess = expected.unwrap_or(0);
    loop {
        let (mut low, mut high) = (guess as u64, (guess >> 64) as u64);
        // SAFETY: the caller promises 16 aligned bytes and the instruction. The compiler keeps `rbx`
        // for itself, so it has its old value again behind the instruction.
        unsafe {
            std::arch::asm!(
                "xchg {new_low}, rbx",
                "lock cmpxchg16b [rdi]",
                "mov rbx, {new_low}",
                new_low = inout(reg) new as u64 => _,
                in("rdi") pointer,
                in("rcx") (new >> 64) as u64,
                inout("rax") low,
                inout("rdx") high,
                options(nostack),
            );
        }
        let old = u128::from(low) | u128::from(high) << 64;
        if old == guess || expected.is_some() {
            return old;
        }
        guess = old;
    }
}
