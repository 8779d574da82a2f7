//! Loads, stores, atomics.

use super::builder::Builder;
use super::modifiers::{Modifiers, Refusal};
use super::operands::Address;
use super::order::Ordered;
use crate::code::{Access, Code, File, Fill, Place, Slot};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// The spaces of accesses. Only loads know another one: `.const`.
pub(super) const PLACES: &[(&str, Place)] = &[
    ("global", Place::Global),
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
        _ if !kind.is_plain() => Err(format!("an access has no type {kind:?}: use one of bits")),
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

/// Refuses an order for memory that no other thread has.
fn refuse_order(place: Place, ordered: bool) -> Result<(), Refusal> {
    match (place, ordered) {
        (Place::Local | Place::Frame | Place::Parameter, true) => Err(
            "only accesses to global and shared memory have an order or are volatile: leave it out"
                .to_owned(),
        ),
        _ => Ok(()),
    }
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
            // Without a space the access is generic, and the variable's address is in its space.
            (None, Some(place)) if address.is_own => Ok(place),
            (None, Some(_)) => {
                Err("the access names no space, and its variable is in one: add it".to_owned())
            }
            (Some(_), Some(_)) => {
                Err("the variable is in another space than the access".to_owned())
            }
        }
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

    /// The order of a load, or `.nc`.
    fn load_order(m: &mut Modifiers<'t>) -> Result<bool, Refusal> {
        let is_constant = m.take("nc");
        if is_constant && !m.has("global") {
            return Err("`.nc` needs `.global`: add it".to_owned());
        }
        let caches: &[&str] =
            if is_constant { &["ca", "cg", "cs"] } else { &["ca", "cg", "cs", "lu", "cv"] };
        let shared = Ordered::of_access(m, ("acquire", caches))?;
        match is_constant && shared {
            true => Err("`.nc` is for loads without an order: leave one of them out".to_owned()),
            false => Ok(shared),
        }
    }

    /// `ld`, `ldu`
    pub(super) fn load(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        refuse_newer(m)?;
        let o = Self::without_policy(m, o, 2);
        let is_constant = m.take("const");
        let shared = match name {
            // It says itself that no other thread writes the bytes.
            "ldu" => false,
            _ => Self::load_order(m)?,
        };
        m.hints();
        let named = if is_constant { Some(Place::Global) } else { m.choose(PLACES) };
        if name == "ldu" && !matches!(named, None | Some(Place::Global)) {
            return Err("`ldu` is of global memory".to_owned());
        }
        m.take("unified");
        let count = m.choose(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
        let kind = m.kind()?;
        let [to, from] = o else { return Err("2 operands are expected".to_owned()) };
        let address = self.address(from)?;
        let place = self.place(named, &address)?;
        refuse_order(if is_constant { Place::Parameter } else { place }, shared)?;
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
            narrow |= register.bits <= 16;
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
        let shared = Ordered::of_access(m, ("release", &["wb", "cg", "cs", "wt"]))?;
        m.hints();
        let named = m.choose(PLACES);
        let count = m.choose(&[("v2", 2), ("v4", 4)]).unwrap_or(1);
        let kind = m.kind()?;
        let [to, from] = o else { return Err("2 operands are expected".to_owned()) };
        let address = self.address(to)?;
        let place = self.place(named, &address)?;
        if place == Place::Parameter {
            return Err("a kernel does not write its parameters".to_owned());
        }
        refuse_order(place, shared)?;
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
