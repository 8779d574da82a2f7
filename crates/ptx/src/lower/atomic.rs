//! Atomics: `atom`, `red`.

use super::builder::Builder;
use super::memory::PLACES;
use super::modifiers::{Modifiers, Refusal};
use super::operands::{Address, width};
use super::order::Ordered;
use crate::code::{Atomic, Code, File, Modify, Operand as Value, Place, Slot};
use crate::syntax::tree::Operand;
use crate::types::Type;

const OPERATIONS: &[(&str, Modify)] = &[
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
];

/// The instruction, but for its operands.
#[derive(Clone, Copy)]
struct Form {
    modify: Modify,
    kind: Type,
    operand: Value,
    place: Place,
    flush: bool,
}

impl<'t> Builder<'_, 't> {
    /// `atom`, `red`
    pub(super) fn atomic(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
        result: bool,
    ) -> Result<(), Refusal> {
        let count = m.choose(&[("v2", 2), ("v4", 4), ("v8", 8)]);
        let orders: &[&str] = if result {
            &["relaxed", "acquire", "release", "acq_rel"]
        } else {
            &["relaxed", "release"]
        };
        Ordered::of_atomic(m, orders);
        m.hints();
        let named = m.choose(PLACES);
        let modify = m.must(OPERATIONS)?;
        let keeps = m.take("noftz");
        let kind = m.kind()?;
        if keeps != kind.has_halves() {
            return Err("atomics of halves need `.noftz`, and others have none".to_owned());
        }
        if !result && matches!(modify, Modify::Exchange | Modify::CompareAndSwap) {
            return Err("`red` has no such operation".to_owned());
        }
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
        let flush = kind == Type::F32 && !place.is_shared();
        let form = Form { modify, kind, operand, place, flush };
        if let Some(count) = count {
            return self.atomic_vector(form, count, to, (&address, &rest[1]));
        }
        if modify != Modify::Add && kind.has_halves() {
            return Err(
                "`.min` and `.max` of halves are of vectors: `.v2`, `.v4`, `.v8`".to_owned()
            );
        }
        let mut slots = vec![address.base, self.source(&rest[1], kind)?];
        if swap {
            slots.push(self.source(&rest[2], kind)?);
        }
        let mut results = Vec::new();
        if let Some(to) = to.filter(|to| !matches!(to, Operand::Name("_"))) {
            results.push(self.dest(to, kind)?);
        }
        self.atomic_element(form, &address, &results, &slots, (0, 0));
        Ok(())
    }

    /// An atomic of one element, at an offset behind the address. `vector` is the size of the vector if it is
    /// the first element of one, or 0.
    fn atomic_element(
        &mut self,
        form: Form,
        address: &Address,
        results: &[Slot],
        slots: &[Slot],
        (offset, vector): (u64, u8),
    ) {
        let Form { modify, operand, place, flush, .. } = form;
        let (wide, result) = (address.wide, !results.is_empty());
        let code = Code::Atomic(Atomic { place, wide, modify, operand, result, flush, vector });
        self.emit(code, results, slots, address.offset.wrapping_add(offset));
    }

    /// `atom.v4` and so on: an atomic for each element, as no other thread sees more than one at once.
    fn atomic_vector(
        &mut self,
        form: Form,
        count: u8,
        to: Option<&Operand<'t>>,
        (address, from): (&Address, &Operand<'t>),
    ) -> Result<(), Refusal> {
        let (kind, bytes) = (form.kind, form.operand.bytes() as u8);
        let is_known = match (form.modify, kind) {
            (Modify::Add, Type::F32) => count <= 4,
            (_, Type::F16 | Type::Bf16) => true,
            (_, Type::F16x2 | Type::Bf16x2) => count <= 4,
            _ => false,
        };
        if !is_known || !matches!(form.place, Place::Generic | Place::Global) {
            return Err(
                "atomics of vectors are of `.f32` sums and of halves in global memory, of \
                        at most 16 bytes"
                    .to_owned(),
            );
        }
        let values = self.elements(from).to_vec();
        let names = to.map(|to| self.elements(to).to_vec());
        let lengths = [Some(values.len()), names.as_ref().map(Vec::len)];
        if lengths.iter().flatten().any(|length| *length != usize::from(count)) {
            return Err(format!("{count} registers are expected"));
        }
        let values = values.iter().map(|value| self.source(value, kind));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let mut old = Vec::new();
        for (index, value) in values.into_iter().enumerate() {
            // A result may be the operand of a later element.
            let result = names.is_some().then(|| self.temporary(File::Word));
            let results = result.as_slice();
            let vector = if index == 0 { bytes * count } else { 0 };
            let offset = u64::from(bytes) * index as u64;
            self.atomic_element(form, address, results, &[address.base, value], (offset, vector));
            old.extend(result);
        }
        for (name, old) in names.unwrap_or_default().iter().zip(old) {
            let to = self.dest(name, kind)?;
            self.copy(to, old);
        }
        Ok(())
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
        (Add | Min | Max, Type::U64) => Value::B64,
        (Min | Max, Type::S32) => Value::S32,
        (Min | Max, Type::S64) => Value::S64,
        (And | Or | Xor | Exchange | CompareAndSwap, Type::B32) => Value::B32,
        (And | Or | Xor | Exchange | CompareAndSwap, Type::B64) => Value::B64,
        (CompareAndSwap, Type::B16) => Value::B16,
        _ => return Err(format!("an atomic {modify:?} of {kind:?} is not supported")),
    };
    debug_assert!(width(kind) >= 16);
    Ok(operand)
}
