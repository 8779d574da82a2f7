//! `wmma`: fragments in the places of `mma`'s.

use super::builder::Builder;
use super::macros::{slow_bin, slow_un};
use super::matrix::{Shape, factor, factors, sum};
use super::memory::PLACES;
use super::modifiers::{Modifiers, Refusal};
use super::narrow::Narrow;
use crate::code::{Code, Factors, File, Layout, MatrixAccess, Place, Product, Sum};
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
        let (first, second) = (operand(o, 0)?, operand(o, 1)?);
        let (matrix, value) = if what == 0 { (second, first) } else { (first, second) };
        let address = self.address(matrix)?;
        let place = self.place(named, &address)?;
        if matches!(place, Place::Local | Place::Frame | Place::Parameter) {
            return Err("wmma loads and stores global or shared memory".to_owned());
        }
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
        let (is_store, bytes) = (what == 1, kind.bytes() as usize);
        let access = MatrixAccess::new(is_store, (layout, bytes), along, registers);
        let mut sources = vec![base, stride];
        let mut results = Vec::new();
        if is_store {
            sources.extend(self.registers(value, kind, registers)?);
        } else {
            results = self.results(value, kind, registers)?;
        }
        self.emit(Code::Matrix(place, access), &results, &sources, 0);
        Ok(())
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
            Err(_) if d != second && !saturate => return self.mixed_product(shape, (d, second), o),
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
        if factors == Factors::Tf32 {
            return self.product_by_fours(shape, o);
        }
        let layouts = [factor(shape.0, shape.2, types[1]), factor(shape.1, shape.2, types[2])];
        self.product(factors, shape, types, layouts.map(|layout| count(layout, types[1])), o)
    }

    /// A product of `.tf32`: an H100 adds four products along the depth to the accumulators, and then the
    /// other four. One `mma` of the same depth adds eight at once.
    fn product_by_fours(
        &mut self,
        (rows, columns, depth): Shape,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let [d, a, b, c] = o else { return Err("4 operands are expected".to_owned()) };
        let count = Sum::Word.layout(rows.into(), columns.into()).registers();
        let (a, b) = (self.registers(a, Type::Tf32, 4)?, self.registers(b, Type::Tf32, 4)?);
        let c = self.registers(c, Type::F32, count)?;
        let results = self.results(d, Type::F32, count)?;
        let sums: Vec<_> = (0..count).map(|_| self.temporary(File::Word)).collect();
        let (factors, sum, depth) = (Factors::Tf32, Sum::Word, depth / 2);
        let product = Product { factors, sum, rows, columns, depth, registers: [2, 2] };
        let first = [&a[..2], &b[..2], &c[..]].concat();
        self.emit(Code::Product(product), &sums, &first, 0);
        let second = [&a[2..], &b[2..], &sums[..]].concat();
        self.emit(Code::Product(product), &results, &second, 0);
        Ok(())
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
}

/// A single as the nearest half.
fn half_of(single: u32) -> u32 {
    Binary16::narrow(f32::from_bits(single)).into()
}

fn operand<'o, 't>(o: &'o [Operand<'t>], index: usize) -> Result<&'o Operand<'t>, Refusal> {
    o.get(index).ok_or_else(|| "operands are missing".to_owned())
}
