//! Asynchronous copies and mbarrier objects.
//!
//! Copies are complete at once, as a GPU may complete them: groups of copies need no wait.

use super::atomic::atomic_operand;
use super::builder::Builder;
use super::cluster::BYTES;
use super::macros::pure;
use super::memory::PLACES;
use super::modifiers::{Modifiers, Refusal};
use super::order::Ordered;
use crate::code::{Bulk, Code, File, Mbarrier, Modify, Place, Slot};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// The operations of mbarriers, in the order in which opcodes may name two of them.
const OPERATIONS: &[(&str, Mbarrier)] = &[
    ("init", Mbarrier::Init),
    ("inval", Mbarrier::Invalidate),
    ("arrive", Mbarrier::Arrive),
    ("arrive_drop", Mbarrier::ArriveDrop),
    ("expect_tx", Mbarrier::Expect),
    ("complete_tx", Mbarrier::Complete),
    ("test_wait", Mbarrier::Test),
    ("try_wait", Mbarrier::Test),
    ("pending_count", Mbarrier::Pending),
];

/// Where an mbarrier is.
const SHARED: &[(&str, Place)] = &[
    ("shared", Place::Shared),
    ("shared::cta", Place::Shared),
    ("shared::cluster", Place::Cluster),
];

/// The operations of `cp.reduce.async.bulk`.
const REDUCTIONS: &[(&str, Modify)] = &[
    ("add", Modify::Add),
    ("min", Modify::Min),
    ("max", Modify::Max),
    ("inc", Modify::Increment),
    ("dec", Modify::Decrement),
    ("and", Modify::And),
    ("or", Modify::Or),
    ("xor", Modify::Xor),
];

impl<'t> Builder<'_, 't> {
    /// `cp.async` without bulk
    pub(super) fn copy_asynchronously(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if m.take("reduce") {
            return self.bulk_reduction(m, o);
        }
        m.must(&[("async", ())])?;
        if m.take("bulk") {
            return self.bulk(m, o);
        }
        if ["commit_group", "wait_group", "wait_all"].iter().any(|name| m.take(name)) {
            // Copies are complete at once.
            self.emit(Code::Fence, &[], &[], 0);
            return Ok(());
        }
        if m.take("mbarrier") || m.any_starts_with("mbarrier") {
            return self.copies_arrive(m, o);
        }
        let o = Self::without_policy(m, o, 3);
        let in_second_level = m.must(&[("ca", false), ("cg", true)])?;
        m.hints();
        m.must(&[("shared", ()), ("shared::cta", ())])?;
        m.must(&[("global", ())])?;
        let (Some(to), Some(from), Some(bytes)) = (o.first(), o.get(1), o.get(2)) else {
            return Err("a destination, a source and a size are expected".to_owned());
        };
        let bytes = self.literal(bytes, Type::B32).ok_or("the size is a number")??;
        if !matches!(bytes, 4 | 8 | 16) {
            return Err("4, 8 or 16 bytes are copied".to_owned());
        }
        if in_second_level && bytes != 16 {
            return Err("`cp.async.cg` copies 16 bytes: use `.ca` for fewer".to_owned());
        }
        let (to, from) = (self.address(to)?, self.address(from)?);
        let to = self.whole(&to);
        let from = self.whole(&from);
        let mut slots = vec![to, from];
        let sized = o.len() > 3;
        if let Some(size) = o.get(3) {
            slots.push(match self.any_register(size)? {
                Some(ignored) if ignored.bits == 1 => self.size_unless(ignored.slot, bytes),
                _ => self.source(size, Type::B32)?,
            });
        }
        self.emit(Code::Copy { bytes: bytes as u8, sized }, &[], &slots, 0);
        Ok(())
    }

    /// So many bytes, or none where a predicate holds.
    fn size_unless(&mut self, ignored: Slot, bytes: u64) -> Slot {
        let size = self.temporary(File::Word);
        let run = pure!(|l, op| {
            let ignored = l.predicate(op.s[0]);
            let sizes =
                std::array::from_fn(
                    |lane| if ignored >> lane & 1 == 1 { 0 } else { op.imm as u32 },
                );
            l.set_word(op.d[0], &sizes)
        });
        self.emit(Code::Pure(run), &[size], &[ignored], bytes);
        size
    }

    /// `cp.async.bulk`
    fn bulk(&mut self, m: &mut Modifiers<'t>, o: &[Operand<'t>]) -> Result<(), Refusal> {
        if m.any_starts_with("tensor") {
            return Err("bulk tensor copies are not supported".to_owned());
        }
        if m.take("commit_group") || m.take("wait_group") {
            m.take("read");
            self.emit(Code::Fence, &[], &[], 0);
            return Ok(());
        }
        if m.take("prefetch") {
            for name in ["L2", "global"] {
                m.must(&[(name, ())])?;
            }
            m.hints();
            self.address(o.first().ok_or("an address is expected")?)?;
            self.emit(Code::Fence, &[], &[], 0);
            return Ok(());
        }
        self.bulk_copy(None, m, o)
    }

    /// `cp.reduce.async.bulk`
    fn bulk_reduction(&mut self, m: &mut Modifiers<'t>, o: &[Operand<'t>]) -> Result<(), Refusal> {
        for name in ["async", "bulk"] {
            m.must(&[(name, ())])?;
        }
        if m.any_starts_with("tensor") {
            return Err("bulk tensor copies are not supported".to_owned());
        }
        let modify = m.must(REDUCTIONS)?;
        let keeps = m.take("noftz");
        let kind = m.kind()?;
        let is_half_sum = modify == Modify::Add && kind.is_half();
        if keeps != is_half_sum {
            return Err("`.noftz` is of sums of halves, and these have it".to_owned());
        }
        self.bulk_copy(Some((modify, atomic_operand(modify, kind)?)), m, o)
    }

    /// The copy of both: a destination, a source, a size, and an mbarrier if one is told.
    fn bulk_copy(
        &mut self,
        reduce: Option<(Modify, crate::code::Operand)>,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (to, from) = (m.must(PLACES)?, m.must(PLACES)?);
        let signals = m.must(&[(BYTES, true), ("bulk_group", false)])?;
        m.hints();
        match (to, from, signals) {
            (to, Place::Global, true) if to.is_shared() && reduce.is_none() => {}
            (to, Place::Shared, true) if to.is_shared() => {}
            (Place::Global, Place::Shared, false) => {}
            _ => return Err("bulk copies have no such spaces and completion".to_owned()),
        }
        let operand = |index: usize| o.get(index).ok_or("operands are missing");
        let mut slots = Vec::new();
        for index in [0, 1] {
            let address = self.address(operand(index)?)?;
            slots.push(self.whole(&address));
        }
        let size = operand(2)?;
        if let Some(bytes) = self.literal(size, Type::U32)
            && !bytes?.is_multiple_of(16)
        {
            return Err("a bulk copy has a multiple of 16 bytes".to_owned());
        }
        slots.push(self.source(size, Type::U32)?);
        if signals {
            let address = self.address(operand(3)?)?;
            slots.push(self.whole(&address));
        }
        self.emit(Code::Bulk(Bulk { to, from, reduce, signals }), &[], &slots, 0);
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`: the copies of the thread are complete, so it arrives.
    fn copies_arrive(&mut self, m: &mut Modifiers<'t>, o: &[Operand<'t>]) -> Result<(), Refusal> {
        m.take("arrive");
        let counted = m.take("noinc");
        let place = m.choose(&SHARED[..2]).unwrap_or(Place::Generic);
        m.kind()?;
        let address = self.address(o.first().ok_or("an address is expected")?)?;
        // Without `.noinc` the pending count rises by one before the arrival: nothing changes.
        if !counted {
            self.emit(Code::Fence, &[], &[], 0);
            return Ok(());
        }
        let one = self.number(1, false);
        let sink = self.temporary(File::Double);
        let base = self.whole(&address);
        let code = Code::Mbarrier { what: Mbarrier::Arrive, place };
        self.emit(code, &[sink], &[base, one], 0);
        Ok(())
    }

    /// `mbarrier.*`
    pub(super) fn mbarrier(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let what = m.must(OPERATIONS)?;
        // Beside an arrival it says that transactions are expected, too.
        let what = match what {
            Mbarrier::Arrive if m.take("expect_tx") => Mbarrier::ArriveExpect,
            Mbarrier::ArriveDrop if m.take("expect_tx") => Mbarrier::ArriveDropExpect,
            other => other,
        };
        if matches!(what, Mbarrier::Arrive | Mbarrier::ArriveDrop) {
            // A promise of the program: the phase does not end by it.
            m.take("noComplete");
        }
        let parity = m.take("parity");
        let orders: &[&str] = match what {
            Mbarrier::Arrive
            | Mbarrier::ArriveDrop
            | Mbarrier::ArriveExpect
            | Mbarrier::ArriveDropExpect => &["release", "relaxed"],
            Mbarrier::Test => &["acquire", "relaxed"],
            Mbarrier::Expect | Mbarrier::Complete => &["relaxed"],
            _ => &[],
        };
        Ordered::take(m, orders, &["cta", "cluster"])?;
        let named = if what == Mbarrier::Pending { None } else { m.choose(SHARED) };
        if m.kind()? != Type::B64 {
            return Err("an mbarrier has .b64".to_owned());
        }
        let operand = |index: usize| o.get(index).ok_or("operands are missing");
        let code = |what| Code::Mbarrier { what, place: named.unwrap_or(Place::Generic) };
        match what {
            Mbarrier::Init => {
                let address = self.address(operand(0)?)?;
                let slots = [self.whole(&address), self.source(operand(1)?, Type::U32)?];
                self.emit(code(what), &[], &slots, 0);
            }
            Mbarrier::Invalidate => {
                let address = self.address(operand(0)?)?;
                let base = self.whole(&address);
                self.emit(code(what), &[], &[base], 0);
            }
            Mbarrier::Expect | Mbarrier::Complete | Mbarrier::CompleteByAccess => {
                let address = self.address(operand(0)?)?;
                let slots = [self.whole(&address), self.source(operand(1)?, Type::U32)?];
                self.emit(code(what), &[], &slots, 0);
            }
            Mbarrier::Arrive
            | Mbarrier::ArriveDrop
            | Mbarrier::ArriveExpect
            | Mbarrier::ArriveDropExpect => {
                let state = self.dest(operand(0)?, Type::B64)?;
                let address = self.address(operand(1)?)?;
                let count = match o.get(2) {
                    Some(count) => self.source(count, Type::U32)?,
                    None => self.number(1, false),
                };
                let base = self.whole(&address);
                self.emit(code(what), &[state], &[base, count], 0);
            }
            Mbarrier::Test | Mbarrier::TestParity => {
                let done = self.dest(operand(0)?, Type::Pred)?;
                let address = self.address(operand(1)?)?;
                let base = self.whole(&address);
                if parity {
                    let phase = self.source(operand(2)?, Type::U32)?;
                    self.emit(code(Mbarrier::TestParity), &[done], &[base, phase], 0);
                } else {
                    let state = self.source(operand(2)?, Type::B64)?;
                    self.emit(code(Mbarrier::Test), &[done], &[base, state], 0);
                }
            }
            Mbarrier::Pending => {
                let state = self.source(operand(1)?, Type::B64)?;
                let count = self.dest(operand(0)?, Type::U32)?;
                self.emit(code(what), &[count], &[state], 0);
            }
        }
        Ok(())
    }
}
