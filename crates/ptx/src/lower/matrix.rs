//! Products of matrices, and matrices between shared memory and registers.

use super::builder::Builder;
use super::memory::PLACES;
use super::modifiers::{Modifiers, Refusal};
use crate::code::{Code, Factors, Layout, Place, Product, Slot, Sum, Tiles};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// The rows, the columns and the depth of a product.
pub(super) type Shape = (u8, u8, u16);

const SHAPES: &[(&str, Shape)] = &[
    ("m8n8k4", (8, 8, 4)),
    ("m8n8k16", (8, 8, 16)),
    ("m16n8k4", (16, 8, 4)),
    ("m16n8k8", (16, 8, 8)),
    ("m16n8k16", (16, 8, 16)),
    ("m16n8k32", (16, 8, 32)),
];

/// The layout of a factor's fragment.
pub(super) fn factor(lines: u8, depth: u16, kind: Type) -> Layout {
    let bits = kind.bytes() as usize * 8;
    Layout::of_factor(lines.into(), depth.into(), bits)
}

/// The elements of an accumulator.
pub(super) fn sum(kind: Type) -> Result<Sum, Refusal> {
    Ok(match kind {
        Type::F16 => Sum::F16,
        Type::F32 | Type::S32 => Sum::Word,
        Type::F64 => Sum::F64,
        _ => return Err(format!("an accumulator of {kind:?} is not supported")),
    })
}

/// The type of a fragment's registers.
pub(super) fn register(kind: Type) -> Type {
    if kind == Type::F64 { Type::F64 } else { Type::B32 }
}

/// The kinds of factors, if the types of d, a, b and c go together.
pub(super) fn factors(types: [Type; 4], saturate: bool) -> Result<Factors, Refusal> {
    let signed = |kind: Type| kind == Type::S8;
    Ok(match types {
        [Type::F32, Type::F16, Type::F16, Type::F32]
        | [Type::F16, Type::F16, Type::F16, Type::F16] => Factors::F16,
        [Type::F32, Type::Bf16, Type::Bf16, Type::F32] => Factors::Bf16,
        [Type::F32, Type::Tf32, Type::Tf32, Type::F32] => Factors::Tf32,
        [Type::F64, Type::F64, Type::F64, Type::F64] => Factors::F64,
        [Type::S32, a @ (Type::S8 | Type::U8), b @ (Type::S8 | Type::U8), Type::S32] => {
            Factors::Bytes { a_signed: signed(a), b_signed: signed(b), saturate }
        }
        _ => {
            return Err(format!(
                "a product of matrices of {types:?} (d, a, b, c) is not supported"
            ));
        }
    })
}

impl<'t> Builder<'_, 't> {
    /// `mma.sync`
    pub(super) fn matrix_product(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if m.any_starts_with("sp") {
            return Err("products of sparse matrices are not supported".to_owned());
        }
        const NEWER: [&str; 3] = ["e2m1", "e3m2", "e2m3"];
        if let Some(kind) = NEWER.iter().find(|kind| m.take(kind)) {
            return Err(format!("products of matrices of .{kind} are not supported"));
        }
        if m.has("e4m3") || m.has("e5m2") {
            return self.quarter_product(m, o);
        }
        if m.has("m8n8k4") && m.has("f16") {
            return self.quads(m, o);
        }
        if m.any_starts_with("s4") || m.any_starts_with("u4") || m.any_starts_with("b1") {
            return self.narrow_product(m, o);
        }
        for name in ["sync", "aligned", "row", "col"] {
            m.must(&[(name, ())])?;
        }
        let shape = m.must(SHAPES)?;
        let saturate = m.take("satfinite");
        let types = [m.kind()?, m.kind()?, m.kind()?, m.kind()?];
        let factors = factors(types, saturate)?;
        let known = match factors {
            Factors::F16 | Factors::Bf16 => matches!(shape, (16, 8, 8 | 16)),
            Factors::Tf32 => matches!(shape, (16, 8, 4 | 8)),
            Factors::F64 => matches!(shape, (8, 8, 4) | (16, 8, 4 | 8 | 16)),
            Factors::Bytes { .. } => matches!(shape, (8, 8, 16) | (16, 8, 16 | 32)),
            Factors::Nibbles { .. } | Factors::Bits { .. } => false,
        };
        let allowed = matches!(factors, Factors::Bytes { .. }) || !saturate;
        if !known || !allowed {
            return Err("this shape of mma is not supported for its types".to_owned());
        }
        let registers = [factor(shape.0, shape.2, types[1]), factor(shape.1, shape.2, types[2])];
        self.product(factors, shape, types, registers.map(Layout::registers), o)
    }

    /// The product of fragments with so many registers.
    pub(super) fn product(
        &mut self,
        factors: Factors,
        shape: Shape,
        types: [Type; 4],
        registers: [usize; 2],
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let [d, a, b, c] = o else { return Err("4 operands are expected".to_owned()) };
        let sum = sum(types[0])?;
        let (rows, columns, depth) = shape;
        let count = sum.layout(rows.into(), columns.into()).registers();
        let mut slots = self.registers(a, types[1], registers[0])?;
        slots.extend(self.registers(b, types[2], registers[1])?);
        slots.extend(self.registers(c, types[3], count)?);
        let results = self.results(d, types[0], count)?;
        let registers = registers.map(|count| count as u8);
        let product = Product { factors, sum, rows, columns, depth, registers };
        self.emit(Code::Product(product), &results, &slots, 0);
        Ok(())
    }

    /// The registers of a fragment that is read.
    pub(super) fn registers(
        &mut self,
        operand: &Operand<'t>,
        kind: Type,
        count: usize,
    ) -> Result<Vec<Slot>, Refusal> {
        self.fragment(operand, count, |builder, one| builder.source(one, register(kind)))
    }

    /// The registers of a fragment that is written.
    pub(super) fn results(
        &mut self,
        operand: &Operand<'t>,
        kind: Type,
        count: usize,
    ) -> Result<Vec<Slot>, Refusal> {
        self.fragment(operand, count, |builder, one| builder.dest(one, register(kind)))
    }

    fn fragment(
        &mut self,
        operand: &Operand<'t>,
        count: usize,
        slot: impl Fn(&mut Self, &Operand<'t>) -> Result<Slot, Refusal>,
    ) -> Result<Vec<Slot>, Refusal> {
        let elements = self.elements(operand).to_vec();
        if elements.len() != count {
            return Err(format!("{count} registers are expected"));
        }
        elements.iter().map(|element| slot(self, element)).collect()
    }

    /// `movmatrix`
    pub(super) fn transpose(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        for name in ["sync", "aligned", "m8n8", "trans", "b16"] {
            m.must(&[(name, ())])?;
        }
        let [to, from] = o else { return Err("2 operands are expected".to_owned()) };
        let from = self.source(from, Type::B32)?;
        let to = self.dest(to, Type::B32)?;
        self.emit(Code::Transpose, &[to], &[from], 0);
        Ok(())
    }

    /// `ldmatrix`, `stmatrix`
    pub(super) fn matrix_tiles(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if !m.any_starts_with("m8n8") {
            return Err(format!("`{name}` is of 8 by 8 elements"));
        }
        for name in ["sync", "aligned", "m8n8"] {
            m.must(&[(name, ())])?;
        }
        let count = m.must(&[("x1", 1_u8), ("x2", 2), ("x4", 4)])?;
        let transposed = m.take("trans");
        let named = m.choose(PLACES);
        if m.kind()? != Type::B16 {
            return Err(format!("`{name}` is of .b16"));
        }
        let store = name == "stmatrix";
        let [first, second] = o else { return Err("2 operands are expected".to_owned()) };
        let (address, fragment) = if store { (first, second) } else { (second, first) };
        let address = self.address(address)?;
        let place = self.place(named, &address)?;
        if !matches!(place, Place::Shared | Place::Generic) {
            return Err(format!("`{name}` is of shared memory"));
        }
        let tiles = Tiles { store, wide: address.wide, count, transposed, place };
        let (mut slots, mut results) = (vec![address.base], Vec::new());
        if store {
            slots.extend(self.registers(fragment, Type::B32, count.into())?);
        } else {
            results = self.results(fragment, Type::B32, count.into())?;
        }
        self.emit(Code::Tiles(tiles), &results, &slots, address.offset);
        Ok(())
    }
}
