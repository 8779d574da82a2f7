//! `wmma`: fragments in the places of `mma`'s, loaded and stored element by element.

use super::builder::Builder;
use super::macros::{slow_bin, slow_un};
use super::matrix::{Shape, factor, factors, register, sum};
use super::memory::PLACES;
use super::modifiers::{Modifiers, Refusal};
use super::narrow::Narrow;
use crate::code::{
    Access, Code, Factors, File, Fill, Layout, Place, Product, Pure, Slot, Sum, WIDTH,
};
use crate::math::half::{Binary16, Half};
use crate::syntax::tree::Operand;
use crate::types::Type;

const SHAPES: &[(&str, Shape)] = &[
    ("m16n16k16", (16, 16, 16)),
    ("m32n8k16", (32, 8, 16)),
    ("m8n32k16", (8, 32, 16)),
    ("m16n16k8", (16, 16, 8)),
    ("m8n8k4", (8, 8, 4)),
    ("m8n8k32", (8, 8, 32)),
    ("m8n8k128", (8, 8, 128)),
];

/// A matrix of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    A,
    B,
    Sum,
}

/// A fragment and its matrix in memory.
#[derive(Clone, Copy)]
struct Fragment {
    kind: Type,
    layout: Layout,
    /// How many registers hold it.
    registers: usize,
    /// Whether a line's elements are adjacent in memory.
    along: bool,
}

impl Fragment {
    /// The parts of a register that one access moves, and how many accesses it takes.
    fn accesses(self) -> (usize, usize) {
        if self.along { (self.layout.packed, 1) } else { (1, self.layout.packed) }
    }

    /// The place of an element as [`PLACE_OF`] reads it.
    fn encoded(self, register: usize, part: usize) -> u64 {
        let (line, place) = self.layout.origin(register, part);
        line as u64
            | (place as u64) << 8
            | (self.layout.adjacent as u64) << 16
            | u64::from(self.kind.bytes()) << 24
            | u64::from(self.along) << 32
    }
}

/// The address of each lane's element: of a matrix's address, the stride, and the immediate.
const PLACE_OF: Pure = Pure::of(|lanes, op| {
    let (base, strides) = (*lanes.double(op.s[0]), *lanes.word(op.s[1]));
    let field = |shift: u32| op.imm >> shift & 0xff;
    let mut addresses = [0; WIDTH];
    for (lane, address) in addresses.iter_mut().enumerate() {
        let (line, stride) = (field(0) + lane as u64 / 4, u64::from(strides[lane]));
        let place = field(8) + lane as u64 % 4 * field(16);
        let index = if field(32) != 0 { line * stride + place } else { place * stride + line };
        *address = base[lane].wrapping_add(index.wrapping_mul(field(24)));
    }
    lanes.set_double(op.d[0], &addresses);
});

/// Whether `wmma` has the shape for the type of a part.
fn is_known(shape: Shape, part: Part, kind: Type) -> bool {
    let common = matches!(shape, (16, 16, 16) | (32, 8, 16) | (8, 32, 16));
    match (part, kind) {
        (Part::Sum, Type::S32) => common || matches!(shape, (8, 8, 32 | 128)),
        (_, Type::F16) => common,
        (Part::Sum, Type::F32) => common || shape == (16, 16, 8),
        (_, Type::F64) => shape == (8, 8, 4),
        (Part::A | Part::B, Type::Bf16 | Type::U8 | Type::S8) => common,
        (Part::A | Part::B, Type::Tf32) => shape == (16, 16, 8),
        _ => false,
    }
}

/// The registers of a factor: `.f16` has each element more than once.
fn count(layout: Layout, kind: Type) -> usize {
    if kind == Type::F16 { 8 } else { layout.registers() }
}

impl<'t> Builder<'_, 't> {
    /// `wmma.load`, `wmma.mma`, `wmma.store`
    pub(super) fn fragments(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let narrow = m.any_starts_with("s4") || m.any_starts_with("u4") || m.any_starts_with("b1");
        if narrow && m.take("mma") {
            return self.narrow_product(m, o);
        }
        let what = m.must(&[("load", 0), ("store", 1), ("mma", 2)])?;
        m.must(&[("sync", ())])?;
        m.must(&[("aligned", ())])?;
        let shape = m.must(SHAPES)?;
        if what == 2 {
            return self.fragments_product(shape, m, o);
        }
        let part = match what {
            0 => m.must(&[("a", Part::A), ("b", Part::B), ("c", Part::Sum)])?,
            _ => m.must(&[("d", Part::Sum)])?,
        };
        let rows_first = m.must(&[("row", true), ("col", false)])?;
        let named = m.choose(PLACES);
        let narrow = Narrow::of(m);
        let kind = if narrow.is_some() { Type::B32 } else { m.kind()? };
        let known = match narrow {
            Some(narrow) => part != Part::Sum && narrow.is_loaded(shape),
            None => is_known(shape, part, kind),
        };
        if !known {
            return Err("wmma has no such shape for its type".to_owned());
        }
        let (rows, columns, depth) = shape;
        let (layout, along) = match part {
            // Each register has a whole word of a line.
            Part::A | Part::B if narrow.is_some() && (part == Part::A) == rows_first => {
                (Layout::of_factor(8, 4, 32), true)
            }
            Part::A | Part::B if narrow.is_some() => {
                return Err("wmma has such fragments along their depth only".to_owned());
            }
            Part::A => (factor(rows, depth, kind), rows_first),
            Part::B => (factor(columns, depth, kind), !rows_first),
            Part::Sum => (sum(kind)?.layout(rows.into(), columns.into()), rows_first),
        };
        let registers = if part == Part::Sum { layout.registers() } else { count(layout, kind) };
        let fragment = Fragment { kind, layout, registers, along };
        let (first, second) = (operand(o, 0)?, operand(o, 1)?);
        let (matrix, value) = if what == 0 { (second, first) } else { (first, second) };
        let address = self.address(matrix)?;
        let place = self.place(named, &address)?;
        let base = self.whole(&address);
        let stride = match o.get(2) {
            Some(stride) => {
                let stride = self.source(stride, Type::B32)?;
                narrow.map_or(stride, |narrow| self.words_of(stride, narrow))
            }
            None => {
                let stride = if along { layout.length } else { layout.lines };
                self.number(stride as u64, false)
            }
        };
        // The registers of a load may be those of its address.
        let addresses = self.places_of(fragment, base, stride);
        if what == 0 {
            self.load_fragment(fragment, place, &addresses, value)
        } else {
            self.store_fragment(fragment, place, &addresses, value)
        }
    }

    /// `wmma.mma`. Fragments have the same places whatever their layout in memory was.
    fn fragments_product(
        &mut self,
        shape: Shape,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        for _ in 0..2 {
            m.must(&[("row", ()), ("col", ())])?;
        }
        let saturate = m.take("satfinite");
        let (d, second) = (m.kind()?, m.kind()?);
        // The types of halves as factors are not named.
        let types = match m.kind() {
            Ok(third) => [d, second, third, m.kind()?],
            Err(_) if d != second => return self.mixed_product(shape, (d, second), o),
            Err(_) => [d, Type::F16, Type::F16, second],
        };
        let factors = factors(types, saturate)?;
        if factors == Factors::F64 {
            m.take("rn");
        }
        let known = is_known(shape, Part::A, types[1]) && is_known(shape, Part::Sum, d);
        let allowed = matches!(factors, Factors::Bytes { .. }) || !saturate;
        if !known || !allowed {
            return Err("wmma has no such shape for its types".to_owned());
        }
        let layouts = [factor(shape.0, shape.2, types[1]), factor(shape.1, shape.2, types[2])];
        self.product(factors, shape, types, layouts.map(|layout| count(layout, types[1])), o)
    }

    /// A product of halves with accumulators of another type than its results: the sums are single.
    /// Halves become singles, which is exact, or singles are rounded to halves.
    fn mixed_product(
        &mut self,
        shape: Shape,
        (d, c): (Type, Type),
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let is_mix = matches!((d, c), (Type::F16, Type::F32) | (Type::F32, Type::F16));
        if !is_mix || !is_known(shape, Part::A, Type::F16) {
            return Err(format!("a product of halves of {d:?} and {c:?} is not supported"));
        }
        let [result, a, b, addend] = o else { return Err("4 operands are expected".to_owned()) };
        let (rows, columns, depth) = shape;
        let count = Sum::Word.layout(rows.into(), columns.into()).registers();
        let mut slots = self.registers(a, Type::F16, 8)?;
        slots.extend(self.registers(b, Type::F16, 8)?);
        if c == Type::F16 {
            for pair in self.registers(addend, c, count / 2)? {
                for part in 0..2 {
                    let single = self.temporary(File::Word);
                    let run = slow_un!(u32 => u32, |op, a| Binary16::widen((a >> op.imm) as u16).to_bits());
                    self.emit(Code::Pure(run), &[single], &[pair], 16 * part);
                    slots.push(single);
                }
            }
        } else {
            slots.extend(self.registers(addend, c, count)?);
        }
        let results = match d {
            Type::F32 => self.results(result, d, count)?,
            _ => (0..count).map(|_| self.temporary(File::Word)).collect(),
        };
        let product = Product {
            factors: Factors::F16,
            sum: Sum::Word,
            rows,
            columns,
            depth,
            registers: [8, 8],
        };
        self.emit(Code::Product(product), &results, &slots, 0);
        if d == Type::F16 {
            let run = slow_bin!(u32, u32 => u32, |_op, a, b| half_of(a) | half_of(b) << 16);
            for (pair, singles) in self.results(result, d, count / 2)?.iter().zip(results.chunks(2))
            {
                self.emit(Code::Pure(run), &[*pair], singles, 0);
            }
        }
        Ok(())
    }

    /// The addresses of all accesses of a fragment, register by register.
    fn places_of(&mut self, fragment: Fragment, base: Slot, stride: Slot) -> Vec<Slot> {
        let (step, count) = fragment.accesses();
        let mut addresses = Vec::new();
        for register in 0..fragment.registers {
            for access in 0..count {
                let slot = self.temporary(File::Double);
                let imm = fragment.encoded(register, access * step);
                self.emit(Code::Pure(PLACE_OF), &[slot], &[base, stride], imm);
                addresses.push(slot);
            }
        }
        addresses
    }

    fn load_fragment(
        &mut self,
        fragment: Fragment,
        place: Place,
        addresses: &[Slot],
        to: &Operand<'t>,
    ) -> Result<(), Refusal> {
        let results = self.results(to, fragment.kind, fragment.registers)?;
        let access = access(fragment, place);
        for (result, addresses) in results.iter().zip(addresses.chunks(fragment.accesses().1)) {
            self.emit(Code::Load(access), &[*result], &[addresses[0]], 0);
            for (part, address) in addresses.iter().enumerate().skip(1) {
                let more = self.temporary(File::Word);
                self.emit(Code::Load(access), &[more], &[*address], 0);
                let join = slow_bin!(u32, u32 => u32, |op, a, b| a | b << op.imm);
                let shift = part as u64 * 8 * u64::from(access.bytes);
                self.emit(Code::Pure(join), &[*result], &[*result, more], shift);
            }
        }
        Ok(())
    }

    fn store_fragment(
        &mut self,
        fragment: Fragment,
        place: Place,
        addresses: &[Slot],
        from: &Operand<'t>,
    ) -> Result<(), Refusal> {
        let values = self.registers(from, fragment.kind, fragment.registers)?;
        let access = access(fragment, place);
        for (value, addresses) in values.iter().zip(addresses.chunks(fragment.accesses().1)) {
            self.emit(Code::Store(access), &[], &[addresses[0], *value], 0);
            for (part, address) in addresses.iter().enumerate().skip(1) {
                let more = self.temporary(File::Word);
                let cut = slow_un!(u32 => u32, |op, a| a >> op.imm);
                let shift = part as u64 * 8 * u64::from(access.bytes);
                self.emit(Code::Pure(cut), &[more], &[*value], shift);
                self.emit(Code::Store(access), &[], &[*address, more], 0);
            }
        }
        Ok(())
    }
}

/// A single as the nearest half.
fn half_of(single: u32) -> u32 {
    Binary16::narrow(f32::from_bits(single)).into()
}

fn operand<'o, 't>(o: &'o [Operand<'t>], index: usize) -> Result<&'o Operand<'t>, Refusal> {
    o.get(index).ok_or_else(|| "operands are missing".to_owned())
}

/// One access of a fragment's register or of a part of it.
fn access(fragment: Fragment, place: Place) -> Access {
    let bytes = fragment.kind.bytes() as usize * fragment.accesses().0;
    Access {
        place,
        bytes: bytes as u8,
        count: 1,
        wide: true,
        fill: Fill::Zero,
        doubles: u8::from(register(fragment.kind) == Type::F64),
        shared: false,
    }
}
