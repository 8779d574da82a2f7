//! Atomics, and asynchronous copies of a few bytes.

use super::access::{Blocked, Places, Wanted, read, write};
use super::block::Common;
use super::engine::Engine;
use super::memory::Kind;
use super::modify::ByLane;
use super::registers::lanes;
use super::report::Cause;
use super::warp::{Fragment, Warp};
use crate::code::{Atomic, Lanes, Modify, Op, Place, WIDTH, active};

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
        let Places { pointers, is_alone } =
            self.reach.places(common, warp, fragment, &addresses, wanted)?;
        let mut lanes = lanes(self.program, warp, &fragment.frame, mask);
        let first = values(&lanes, op.s[1], bytes);
        let swap = atomic.modify == Modify::CompareAndSwap;
        let second = if swap { values(&lanes, op.s[2], bytes) } else { [0; WIDTH] };
        // SAFETY: `places` gave the pointers for these bytes, aligned to their size, to write.
        let old = unsafe {
            ByLane { pointers: &pointers, first: &first, second: &second, mask, is_alone }
                .apply(atomic)
        };
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
        let sources = self.reach.places(common, warp, fragment, &from, wanted)?.pointers;
        let wanted = Wanted { place: Place::Shared, bytes: size, kind: Kind::Write, mask };
        let targets = self.reach.places(common, warp, fragment, &to, wanted)?.pointers;
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
