//! Bulk copies: done at once, as a GPU may do them.
//!
//! All bytes of a copy find their places before one of them moves. If a page is missing, the copy has
//! done nothing, the accesses to all of its missing pages are listed, and it is repeated later.

use super::access::{Blocked, Reach, Wanted, read, write};
use super::block::Common;
use super::engine::Engine;
use super::mbarrier;
use super::memory::Kind;
use super::modify::{modified, update};
use super::registers::lanes;
use super::report::Cause;
use super::warp::{Fragment, Warp};
use crate::code::{Atomic, Bulk, Mbarrier, Op, Place, RANK_SHIFT, WIDTH, active};

/// The bytes of a copy are a multiple of this, and so are its addresses.
const UNIT: u32 = 16;
/// Accesses wait for whole pages of so many bytes.
const PAGE: u64 = 4096;
/// How often a copy looks for its bytes again when the memory moves under it.
const RETRIES: u32 = 4;

/// Bytes that follow one another in this process.
struct Piece {
    host: *mut u8,
    bytes: u64,
}

/// One side of a copy.
#[derive(Clone, Copy)]
struct Side {
    place: Place,
    kind: Kind,
    start: u64,
    bytes: u32,
}

/// All units of a side, one after another.
fn units(pieces: &[Piece]) -> impl Iterator<Item = *mut u8> {
    let each = |piece: &Piece| {
        let host = piece.host;
        (0..piece.bytes as usize).step_by(UNIT as usize).map(move |at| host.wrapping_add(at))
    };
    pieces.iter().flat_map(each)
}

impl Reach<'_> {
    /// The bytes of a side; `None` if some of them wait. The waits are noted.
    fn pieces(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        lane: usize,
        side: Side,
    ) -> Result<Option<Vec<Piece>>, Blocked> {
        let end = side.start.wrapping_add(u64::from(side.bytes));
        for address in [side.start, end] {
            if !address.is_multiple_of(u64::from(UNIT)) {
                return Err(Blocked::trap(lane, Some(address), Cause::Misaligned { bytes: UNIT }));
            }
        }
        let wanted = Wanted { place: side.place, bytes: UNIT, kind: side.kind, mask: 1 << lane };
        let (mut pieces, mut waits) = (Vec::new(), false);
        let (mut address, mut left) = (side.start, u64::from(side.bytes));
        while left > 0 {
            let trap = |cause| Blocked::trap(lane, Some(address), cause);
            let found = self.place(common, warp, fragment, lane, address, wanted).map_err(trap)?;
            let bytes = match found {
                Some(host) => {
                    let more = self.follows(common, side, address).min(left) / 16 * 16;
                    let bytes = more.max(u64::from(UNIT));
                    self.count_more(side, bytes - u64::from(UNIT));
                    pieces.push(Piece { host, bytes });
                    bytes
                }
                None => {
                    waits = true;
                    self.wait(common, warp, address, side.kind);
                    (PAGE - address % PAGE).min(left)
                }
            };
            address = address.wrapping_add(bytes);
            left -= bytes;
        }
        Ok((!waits).then_some(pieces))
    }

    /// How many bytes follow an address that has its place.
    fn follows(&self, common: &Common, side: Side, address: u64) -> u64 {
        if side.place.is_shared() {
            let offset = address & ((1 << RANK_SHIFT) - 1);
            return u64::from(common.shared_bytes).saturating_sub(offset);
        }
        let window = self.kept.find(address, UNIT.into(), side.kind);
        window.map_or(0, |window| window.bytes() - (address - window.start()))
    }

    /// Counts bytes behind the unit that was counted when it found its place.
    fn count_more(&mut self, side: Side, bytes: u64) {
        if side.place.is_shared() {
            return;
        }
        if side.kind == Kind::Read {
            self.stats.bytes_read += bytes;
        } else {
            self.stats.bytes_written += bytes;
        }
    }
}

impl Engine<'_> {
    /// `cp.async.bulk`, `cp.reduce.async.bulk`: each lane copies bytes of its own.
    pub(super) fn bulk(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        bulk: Bulk,
        mask: u32,
    ) -> Result<(), Blocked> {
        if bulk.signals && bulk.from == Place::Shared {
            self.needs_clusters(mask)?;
        }
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        let (to, from) = (*registers.double(op.s[0]), *registers.double(op.s[1]));
        let sizes = *registers.word(op.s[2]);
        let mut told = [std::ptr::null_mut(); WIDTH];
        if bulk.signals {
            let objects = *registers.double(op.s[3]);
            let wanted = Wanted { place: bulk.to, bytes: 8, kind: Kind::Atomic, mask };
            told = self.reach.places(common, warp, fragment, &objects, wanted)?.pointers;
        }
        let written = if bulk.reduce.is_some() { Kind::Atomic } else { Kind::Write };
        let before = *self.reach.stats;
        for _ in 0..RETRIES {
            *self.reach.stats = before;
            self.reach.renew();
            let generation = self.reach.memory.generation();
            let (mut copies, mut waits) = (Vec::new(), false);
            for lane in active(mask) {
                let bytes = sizes[lane];
                let from = Side { place: bulk.from, kind: Kind::Read, start: from[lane], bytes };
                let to = Side { place: bulk.to, kind: written, start: to[lane], bytes };
                let from = self.reach.pieces(common, warp, fragment, lane, from)?;
                let to = self.reach.pieces(common, warp, fragment, lane, to)?;
                match (from, to) {
                    (Some(from), Some(to)) => copies.push((lane, from, to)),
                    _ => waits = true,
                }
            }
            if waits {
                *self.reach.stats = before;
                return Err(Blocked::Memory);
            }
            if self.reach.memory.generation() == generation {
                for (lane, from, to) in copies {
                    // SAFETY: the memory has not changed since `pieces` gave the pieces of both
                    // sides for their bytes, and `places` gave the mbarrier's for 8.
                    unsafe {
                        carry_out(bulk, &from, &to);
                        if bulk.signals {
                            let next =
                                |old| mbarrier::after(Mbarrier::Complete, old, sizes[lane].into());
                            update(told[lane], 8, next);
                        }
                    }
                }
                return Ok(());
            }
        }
        // The memory moves some bytes away for others: let others run first.
        *self.reach.stats = before;
        if let Some(lane) = active(mask).next() {
            let (address, kind) = match bulk.from {
                Place::Shared => (to[lane], written),
                _ => (from[lane], Kind::Read),
            };
            self.reach.wait(common, warp, address, kind);
        }
        Err(Blocked::Memory)
    }
}

/// Moves the bytes of a copy.
///
/// # Safety
/// The pieces of both sides are as long as each other, and are there for their accesses: to read, and
/// to write.
unsafe fn carry_out(bulk: Bulk, from: &[Piece], to: &[Piece]) {
    for (from, to) in units(from).zip(units(to)) {
        let Some((modify, operand)) = bulk.reduce else {
            for at in [0, 8] {
                // SAFETY: a unit has 16 bytes; the caller promises them.
                unsafe { write(to.wrapping_add(at), 8, read(from.wrapping_add(at), 8)) };
            }
            continue;
        };
        let bytes = operand.bytes();
        // Unlike an atomic's, these sums of singles keep subnormal numbers (recorded).
        let flush = false;
        let atomic =
            Atomic { place: bulk.to, wide: true, modify, operand, result: false, flush, vector: 0 };
        for at in (0..UNIT as usize).step_by(bytes as usize) {
            // SAFETY: a unit has 16 bytes, which its elements fill; the caller promises them.
            unsafe {
                let value = read(from.wrapping_add(at), bytes as u8);
                update(to.wrapping_add(at), bytes, |old| {
                    modified((atomic.modify, atomic.operand), atomic, old, [value, 0])
                });
            }
        }
    }
}
