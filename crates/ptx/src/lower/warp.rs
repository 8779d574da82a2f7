//! Instructions across the lanes of a warp, and barriers of blocks.

use super::builder::Builder;
use super::modifiers::{Modifiers, Refusal};
use crate::code::{Barrier, Code, Reduce, Shuffle, Vote};
use crate::syntax::tree::Operand;
use crate::types::Type;

impl<'t> Builder<'_, 't> {
    /// `shfl`
    pub(super) fn shuffle(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let sync = self.isa.names_lanes("shfl", m)?;
        let mode = m.must(&[
            ("up", Shuffle::Up),
            ("down", Shuffle::Down),
            ("bfly", Shuffle::Butterfly),
            ("idx", Shuffle::Index),
        ])?;
        let kind = m.kind()?;
        if o.len() != if sync { 5 } else { 4 } {
            return Err("operands are missing".to_owned());
        }
        let mut slots = vec![
            self.source(&o[1], kind)?,
            self.source(&o[2], Type::B32)?,
            self.source(&o[3], Type::B32)?,
        ];
        if sync {
            slots.push(self.source(&o[4], Type::B32)?);
        }
        let (d, p) = self.dest_pair(&o[0], kind)?;
        let results: Vec<_> = [Some(d), p].into_iter().flatten().collect();
        self.emit(Code::Shuffle { mode, sync, predicate: p.is_some() }, &results, &slots, 0);
        Ok(())
    }

    /// `vote`
    pub(super) fn vote(&mut self, m: &mut Modifiers<'t>, o: &[Operand<'t>]) -> Result<(), Refusal> {
        let sync = self.isa.names_lanes("vote", m)?;
        let mode = m.must(&[
            ("all", Vote::All),
            ("any", Vote::Any),
            ("uni", Vote::Uniform),
            ("ballot", Vote::Ballot),
        ])?;
        let kind = m.kind()?;
        if o.len() != if sync { 3 } else { 2 } {
            return Err("operands are missing".to_owned());
        }
        let mut slots = vec![self.source(&o[1], Type::Pred)?];
        if sync {
            slots.push(self.source(&o[2], Type::B32)?);
        }
        let d = self.dest(&o[0], kind)?;
        self.emit(Code::Vote { mode, sync }, &[d], &slots, 0);
        Ok(())
    }

    /// `match`
    pub(super) fn matches(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let all = m.must(&[("all", true), ("any", false)])?;
        m.must(&[("sync", ())])?;
        let kind = m.kind()?;
        if o.len() != 3 {
            return Err("3 operands are expected".to_owned());
        }
        let slots = [self.source(&o[1], kind)?, self.source(&o[2], Type::B32)?];
        let (d, p) = self.dest_pair(&o[0], Type::B32)?;
        if !all && p.is_some() {
            return Err("`match.any` has no predicate as a result".to_owned());
        }
        let results: Vec<_> = [Some(d), p].into_iter().flatten().collect();
        let wide = super::operands::width(kind) == 64;
        self.emit(Code::Match { all, wide, predicate: p.is_some() }, &results, &slots, 0);
        Ok(())
    }

    /// `redux`
    pub(super) fn reduce(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        m.must(&[("sync", ())])?;
        let what =
            m.must(&[("add", 0), ("min", 1), ("max", 2), ("and", 3), ("or", 4), ("xor", 5)])?;
        let kind = m.kind()?;
        let reduce = match (what, kind) {
            (0, Type::U32 | Type::S32) => Reduce::Add,
            (1, Type::U32) => Reduce::MinUnsigned,
            (1, Type::S32) => Reduce::MinSigned,
            (2, Type::U32) => Reduce::MaxUnsigned,
            (2, Type::S32) => Reduce::MaxSigned,
            (3, Type::B32) => Reduce::And,
            (4, Type::B32) => Reduce::Or,
            (5, Type::B32) => Reduce::Xor,
            _ => return Err("this form of redux is not supported".to_owned()),
        };
        if o.len() != 3 {
            return Err("3 operands are expected".to_owned());
        }
        let slots = [self.source(&o[1], kind)?, self.source(&o[2], Type::B32)?];
        let d = self.dest(&o[0], kind)?;
        self.emit(Code::Reduce(reduce), &[d], &slots, 0);
        Ok(())
    }

    /// `activemask`, `elect`
    pub(super) fn mask(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let first = o.first().ok_or("an operand is missing")?;
        if name == "activemask" {
            m.must_one(&["b32"])?;
            let d = self.dest(first, Type::B32)?;
            self.emit(Code::ActiveMask, &[d], &[], 0);
            return Ok(());
        }
        m.must(&[("sync", ())])?;
        let mask = self.source(o.get(1).ok_or("a mask is missing")?, Type::B32)?;
        let (d, p) = self.dest_pair(first, Type::B32)?;
        let p = p.ok_or("a result `d|p` is expected")?;
        self.emit(Code::Elect, &[d, p], &[mask], 0);
        Ok(())
    }

    /// `bar`, `barrier`
    pub(super) fn barrier(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if name == "barrier" {
            m.take("aligned");
        }
        m.take("cta");
        if m.take("warp") {
            m.must(&[("sync", ())])?;
            let mask = self.source(o.first().ok_or("a mask is missing")?, Type::B32)?;
            self.emit(Code::WarpBarrier, &[], &[mask], 0);
            return Ok(());
        }
        if m.take("cluster") {
            return self.cluster_barrier(m);
        }
        let mode = m.must(&[
            ("sync", Barrier::Sync),
            ("arrive", Barrier::Arrive),
            ("red", Barrier::Count),
        ])?;
        let (kind, results, rest) = if mode == Barrier::Count {
            let kind =
                m.must(&[("popc", Barrier::Count), ("and", Barrier::And), ("or", Barrier::Or)])?;
            let result = m.kind()?;
            if result != if kind == Barrier::Count { Type::U32 } else { Type::Pred } {
                return Err("`.popc` counts in .u32, `.and` and `.or` give .pred".to_owned());
            }
            let to = o.first().ok_or("a result is missing")?;
            (kind, vec![self.dest(to, result)?], &o[1..])
        } else {
            (mode, Vec::new(), o)
        };
        let reduces = !results.is_empty();
        let (rest, predicate) = match rest.split_last() {
            Some((last, rest)) if reduces => (rest, Some(self.source(last, Type::Pred)?)),
            _ => (rest, None),
        };
        let mut slots = vec![match rest.first() {
            Some(index) => self.source(index, Type::U32)?,
            None => self.number(0, false),
        }];
        let counted = rest.len() > 1;
        if kind == Barrier::Arrive && !counted {
            return Err("an arrival names the barrier and how many threads it takes".to_owned());
        }
        slots.push(match rest.get(1) {
            Some(count) => self.source(count, Type::U32)?,
            None => self.number(0, false),
        });
        slots.extend(predicate);
        self.emit(Code::Barrier { kind, counted }, &results, &slots, 0);
        Ok(())
    }

    /// `createpolicy`: a cache policy that no access looks at
    pub(super) fn policy(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        m.must_one(&["fractional", "range"])?;
        m.hints();
        m.must_one(&["b64"])?;
        let d = self.dest(o.first().ok_or("a result is missing")?, Type::B64)?;
        let zero = self.number(0, true);
        self.copy(d, zero);
        Ok(())
    }

    /// `alloca`, `stacksave`, `stackrestore`
    pub(super) fn stack(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let first = o.first().ok_or("an operand is missing")?;
        let wide = super::operands::width(kind) == 64;
        if !wide {
            return Err("addresses have 64 bits".to_owned());
        }
        match name {
            "alloca" => {
                let size = self.source(o.get(1).ok_or("a size is missing")?, kind)?;
                let align = match o.get(2) {
                    Some(align) => {
                        self.literal(align, Type::B32).ok_or("the alignment is a number")??
                    }
                    None => 8,
                };
                if !align.is_power_of_two() || align > 1 << 23 {
                    return Err("an alignment is a power of two".to_owned());
                }
                let d = self.dest(first, kind)?;
                self.emit(Code::Alloca, &[d], &[size], align);
            }
            "stacksave" => {
                let d = self.dest(first, kind)?;
                self.emit(Code::StackSave, &[d], &[], 0);
            }
            _ => {
                let from = self.source(first, kind)?;
                self.emit(Code::StackRestore, &[], &[from], 0);
            }
        }

        Ok(())
    }
}
