//! Loads, stores, atomics.

use super::builder::Builder;
use super::modifiers::{Modifiers, Refusal};
use super::operands::{Address, width};
use crate::code::{Access, Atomic, Code, File, Fill, Modify, Operand as Value, Place, Slot};
use crate::syntax::tree::Operand;
use crate::types::Type;

pub(super) const PLACES: &[(&str, Place)] = &[
    ("global", Place::Global),
    ("const", Place::Global),
    ("shared", Place::Shared),
    ("shared::cta", Place::Shared),
    ("shared::cluster", Place::Cluster),
    ("local", Place::Local),
    ("param", Place::Parameter),
    ("param::entry", Place::Parameter),
    ("param::func", Place::Parameter),
];

/// The bytes of an element in memory.
fn size(kind: Type, count: u8) -> Result<u8, Refusal> {
    match kind.bytes() {
        bytes if bytes * u32::from(count) > 16 => Err("an access has at most 16 bytes".to_owned()),
        bytes @ (1 | 2 | 4 | 8) => Ok(bytes as u8),
        _ => Err(format!("{kind:?} is not supported in memory")),
    }
}

/// Refuses forms of `ld` and `st` that newer GPUs have.
fn refuse_newer(m: &mut Modifiers<'_>) -> Result<(), Refusal> {
    if m.take("bulk") {
        return Err("bulk stores are not supported".to_owned());
    }
    if m.take("v8") {
        return Err("an access has at most 16 bytes".to_owned());
    }
    Ok(())
}

impl<'t> Builder<'_, 't> {
    /// The space of an access, from its modifier and its address.
    pub(super) fn place(&self, named: Option<Place>, address: &Address) -> Result<Place, Refusal> {
        match (named, address.implied) {
            // A parameter in a function is in its frame, and so are the arguments of its calls.
            (Some(Place::Parameter | Place::Local), Some(Place::Frame)) => Ok(Place::Frame),
            (Some(Place::Parameter), None) if !self.entry => Ok(Place::Local),
            (Some(named), None) => Ok(named),
            (None, None) => Ok(Place::Generic),
            (Some(named), Some(implied)) if named == implied => Ok(named),
            // A variable is the block's own.
            (Some(Place::Cluster), Some(Place::Shared)) => Ok(Place::Shared),
            (None, Some(place @ Place::Global)) => Ok(place),
            (None, Some(_)) => {
                Err("the access names no space, and its variable is in one: add it".to_owned())
            }
            (Some(_), Some(_)) => {
                Err("the variable is in another space than the access".to_owned())
            }
        }
    }

    /// Modifiers of order and volatility. This executor makes every access visible at once.
    pub(super) fn order(m: &mut Modifiers<'t>) -> bool {
        let mut shared = m.take("volatile");
        for order in ["relaxed", "acquire", "release", "acq_rel", "mmio"] {
            shared |= m.take(order);
        }
        m.take("weak");
        m.take("seq_cst");
        m.take("sc");
        m.scope();
        m.hints();
        shared
    }

    /// The policy of a cache hint is an operand more.
    pub(super) fn without_policy<'o>(
        m: &Modifiers<'t>,
        o: &'o [Operand<'t>],
        expected: usize,
    ) -> &'o [Operand<'t>] {
        let hinted = m.any_starts_with("L2::cache_hint");
        if hinted && o.len() > expected { &o[..expected] } else { o }
    }

    /// `ld`, `ldu`
    pub(super) fn load(&mut self, m: &mut Modifiers<'t>, o: &[Operand<'t>]) -> Result<(), Refusal> {
        refuse_newer(m)?;
        let o = Self::without_policy(m, o, 2);
        let shared = Self::order(m);
        let named = m.choose(PLACES);
        m.take("unified");
        let count = m.choose(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
        let kind = m.kind()?;
        let [to, from] = o else { return Err("2 operands are expected".to_owned()) };
        let address = self.address(from)?;
        let place = self.place(named, &address)?;
        if (kind, count) == (Type::B128, 1) {
            return self.load_pair(to, &address, place, shared);
        }
        let elements = self.elements(to).to_vec();
        if elements.len() != usize::from(count) {
            return Err(format!("{count} registers are expected"));
        }
        let (mut slots, mut doubles, mut narrow) = (Vec::new(), 0, false);
        for (index, operand) in elements.iter().enumerate() {
            let register = self.relaxed_dest(operand, kind)?;
            if register.slot.file == File::Double {
                doubles |= 1 << index;
            }
            narrow |= register.bits == 16;
            slots.push(register.slot);
        }
        let fill = match (kind.is_signed(), narrow) {
            (false, _) => Fill::Zero,
            (true, true) => Fill::Sign16,
            (true, false) => Fill::Sign,
        };
        let access = Access {
            place,
            bytes: size(kind, count)?,
            count,
            wide: address.wide,
            fill,
            doubles,
            shared,
        };
        self.emit(Code::Load(access), &slots, &[address.base], address.offset);
        Ok(())
    }

    /// `st`
    pub(super) fn store(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        refuse_newer(m)?;
        let o = Self::without_policy(m, o, 2);
        let shared = Self::order(m);
        let named = m.choose(PLACES);
        let count = m.choose(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
        let kind = m.kind()?;
        let [to, from] = o else { return Err("2 operands are expected".to_owned()) };
        let address = self.address(to)?;
        let place = self.place(named, &address)?;
        if place == Place::Parameter {
            return Err("a kernel does not write its parameters".to_owned());
        }
        if (kind, count) == (Type::B128, 1) {
            return self.store_pair(&address, place, from, shared);
        }
        let elements = self.elements(from).to_vec();
        if elements.len() != usize::from(count) {
            return Err(format!("{count} registers are expected"));
        }
        let mut slots = vec![address.base];
        let mut doubles = 0;
        for (index, operand) in elements.iter().enumerate() {
            let slot = self.relaxed_source(operand, kind)?;
            if matches!(slot.file, File::Double | File::ConstantDouble) {
                doubles |= 1 << index;
            }
            slots.push(slot);
        }
        let fill = Fill::Zero;
        let access = Access {
            place,
            bytes: size(kind, count)?,
            count,
            wide: address.wide,
            fill,
            doubles,
            shared,
        };
        self.emit(Code::Store(access), &[], &slots, address.offset);
        Ok(())
    }

    /// `atom`, `red`
    pub(super) fn atomic(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
        result: bool,
    ) -> Result<(), Refusal> {
        if ["v2", "v4", "v8"].iter().any(|vector| m.take(vector)) {
            return Err("atomics of vectors are not supported".to_owned());
        }
        Self::order(m);
        let named = m.choose(PLACES);
        let modify = m.must(&[
            ("add", Modify::Add),
            ("and", Modify::And),
            ("or", Modify::Or),
            ("xor", Modify::Xor),
            ("exch", Modify::Exchange),
            ("cas", Modify::CompareAndSwap),
            ("inc", Modify::Increment),
            ("dec", Modify::Decrement),
            ("min", Modify::Min),
            ("max", Modify::Max),
        ])?;
        let flush = !m.take("noftz");
        let kind = m.kind()?;
        if kind == Type::B128 {
            return self.atomic_pair((modify, named), o, result);
        }
        let operand = atomic_operand(modify, kind)?;
        let (to, rest) = if result { (o.first(), o.get(1..).unwrap_or(&[])) } else { (None, o) };
        let swap = modify == Modify::CompareAndSwap;
        let expected = if swap { 3 } else { 2 };
        if rest.len() < expected || (result && to.is_none()) {
            return Err("operands are missing".to_owned());
        }
        let address = self.address(&rest[0])?;
        let place = self.place(named, &address)?;
        if !(matches!(place, Place::Generic | Place::Global) || place.is_shared()) {
            return Err("atomics are in global and shared memory".to_owned());
        }
        let mut slots = vec![address.base, self.source(&rest[1], kind)?];
        if swap {
            slots.push(self.source(&rest[2], kind)?);
        }
        let mut results = Vec::new();
        let mut wanted = false;
        if let Some(to) = to {
            wanted = !matches!(to, Operand::Name("_"));
            if wanted {
                results.push(self.dest(to, kind)?);
            }
        }
        let flush = flush && kind == Type::F32 && !place.is_shared();
        let code = Atomic { place, wide: address.wide, modify, operand, result: wanted, flush };
        self.emit(Code::Atomic(code), &results, &slots, address.offset);
        Ok(())
    }

    /// The address with its offset in a register of 64 bits.
    pub(super) fn whole(&mut self, address: &Address) -> Slot {
        use super::macros::{pure, un};
        let mut base = address.base;
        if !address.wide {
            let wide = self.temporary(File::Double);
            self.emit(Code::Pure(un!(u32 => u64, |a| u64::from(a))), &[wide], &[base], 0);
            base = wide;
        }
        if address.offset == 0 && !base.is_constant() {
            return base;
        }
        let sum = self.temporary(File::Double);
        let run = pure!(|l, op| crate::code::unary(l, op, |a: u64| a.wrapping_add(op.imm)));
        self.emit(Code::Pure(run), &[sum], &[base], address.offset);
        sum
    }
}

/// The operand of an atomic, if PTX has it.
pub(super) fn atomic_operand(modify: Modify, kind: Type) -> Result<Value, Refusal> {
    use Modify::{Add, And, CompareAndSwap, Decrement, Exchange, Increment, Max, Min, Or, Xor};
    let operand = match (modify, kind) {
        (Add, Type::F32) => Value::F32,
        (Add, Type::F64) => Value::F64,
        (Add | Min | Max, Type::F16) => Value::F16,
        (Add | Min | Max, Type::F16x2) => Value::F16x2,
        (Add | Min | Max, Type::Bf16) => Value::Bf16,
        (Add | Min | Max, Type::Bf16x2) => Value::Bf16x2,
        (Add, Type::U32 | Type::S32) | (Min | Max | Increment | Decrement, Type::U32) => Value::B32,
        (Add | Min | Max, Type::U64) | (Add, Type::S64) => Value::B64,
        (Min | Max, Type::S32) => Value::S32,
        (Min | Max, Type::S64) => Value::S64,
        (And | Or | Xor | Exchange | CompareAndSwap, Type::B32) => Value::B32,
        (And | Or | Xor | Exchange | CompareAndSwap, Type::B64) => Value::B64,
        (CompareAndSwap, Type::B16) => Value::B16,
        // Older texts name signs where none matter.
        (And | Or | Xor | Exchange | CompareAndSwap, Type::U32 | Type::S32) => Value::B32,
        (And | Or | Xor | Exchange | CompareAndSwap, Type::U64 | Type::S64) => Value::B64,
        _ => return Err(format!("an atomic {modify:?} of {kind:?} is not supported")),
    };
    debug_assert!(width(kind) >= 16);
    Ok(operand)
}
