//! Mbarrier objects: phases that end when all arrivals and all transactions have come.

use super::access::{Blocked, Wanted};
use super::block::Common;
use super::engine::{Engine, first};
use super::memory::Kind;
use super::modify::update;
use super::registers::lanes;
use super::report::Cause;
use super::warp::{Fragment, Warp};
use crate::code::{Mbarrier, Op, Place, WIDTH, active};

impl Engine<'_> {
    pub(super) fn mbarrier(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        (what, place): (Mbarrier, Place),
        mask: u32,
    ) -> Result<(), Blocked> {
        if what == Mbarrier::CompleteByAccess {
            self.needs_clusters(mask)?;
        }
        let registers = lanes(self.program, warp, &fragment.frame, mask);
        if what == Mbarrier::Pending {
            let counts = registers.double(op.s[0]).map(|state| (state & COUNT) as u32);
            lanes(self.program, warp, &fragment.frame, mask).set_word(op.d[0], &counts);
            return Ok(());
        }
        let addresses = *registers.double(op.s[0]);
        let operand = match what {
            Mbarrier::Test => *registers.double(op.s[1]),
            Mbarrier::Invalidate => [0; WIDTH],
            _ => registers.word(op.s[1]).map(u64::from),
        };
        let wanted = Wanted { place, bytes: 8, kind: Kind::Atomic, mask };
        let pointers = self.reach.places(common, warp, fragment, &addresses, wanted)?.pointers;
        let (mut states, mut done) = ([0; WIDTH], 0);
        for lane in active(mask) {
            let next = |old| after(what, old, operand[lane]);
            // SAFETY: `places` gave the pointer for 8 bytes, aligned to them, to write.
            let old = unsafe { update(pointers[lane], 8, next) };
            states[lane] = old;
            let complete = match what {
                Mbarrier::Test => (old ^ operand[lane]) & PHASE != 0,
                _ => old >> 63 != operand[lane] & 1,
            };
            done |= u32::from(complete) << lane;
        }
        let mut registers = lanes(self.program, warp, &fragment.frame, mask);
        match what {
            Mbarrier::Arrive
            | Mbarrier::ArriveDrop
            | Mbarrier::ArriveExpect
            | Mbarrier::ArriveDropExpect => registers.set_double(op.d[0], &states),
            Mbarrier::Test | Mbarrier::TestParity => registers.set_predicate(op.d[0], done),
            _ => {}
        }
        Ok(())
    }

    /// Only launches with clusters have accesses to shared memory that tell an mbarrier.
    pub(super) fn needs_clusters(&self, mask: u32) -> Result<(), Blocked> {
        match self.rules.shape.has_clusters {
            true => Ok(()),
            false => Err(Blocked::trap(first(mask), None, Cause::NoCluster)),
        }
    }
}

/// An mbarrier: the pending count, the expected count, the transactions that are expected and have
/// not come (fewer than none if they came first), the parity of the phase.
const COUNT: u64 = 0xf_ffff;
const EXPECTED: u32 = 20;
const TRANSACTIONS: u32 = 40;
/// One bit more than a count, for the sign.
const TRANSACTIONS_MASK: u64 = 0x1f_ffff;
const PHASE: u64 = 1 << 63;

/// The object after an operation.
pub(super) fn after(what: Mbarrier, old: u64, operand: u64) -> u64 {
    let (mut pending, mut expected) = (old & COUNT, old >> EXPECTED & COUNT);
    let mut transactions = old >> TRANSACTIONS;
    match what {
        Mbarrier::Init => return operand & COUNT | (operand & COUNT) << EXPECTED,
        Mbarrier::Invalidate => return 0,
        Mbarrier::Arrive => pending = pending.saturating_sub(operand),
        Mbarrier::ArriveDrop => {
            pending = pending.saturating_sub(operand);
            expected = expected.saturating_sub(operand);
        }
        Mbarrier::Expect => transactions = transactions.wrapping_add(operand),
        Mbarrier::Complete | Mbarrier::CompleteByAccess => {
            transactions = transactions.wrapping_sub(operand);
        }
        Mbarrier::ArriveExpect => {
            pending = pending.saturating_sub(1);
            transactions = transactions.wrapping_add(operand);
        }
        Mbarrier::ArriveDropExpect => {
            pending = pending.saturating_sub(1);
            expected = expected.saturating_sub(1);
            transactions = transactions.wrapping_add(operand);
        }
        Mbarrier::Test | Mbarrier::TestParity | Mbarrier::Pending => return old,
    }
    let (phase, transactions) = (old & PHASE, transactions & TRANSACTIONS_MASK);
    if pending == 0 && transactions == 0 {
        expected | expected << EXPECTED | phase ^ PHASE
    } else {
        pending | expected << EXPECTED | transactions << TRANSACTIONS | phase
    }
}
