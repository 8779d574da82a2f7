//! Products and sums that become one instruction.
//!
//! The driver's compiler rounds `mul` and `add` once instead of twice if neither says how it rounds.
//! Its rule was read from the machine code that `ptxas` 13.0 makes of 46 small kernels and from the results of the corpus:
//!
//! - A product without `.sat` fuses into every use, or into none. Each use is an `add` or `sub` of
//!   the same type and `.ftz`, in the same basic block, of the product and something else.
//! - Where both sources of a sum are such products, the one with fewer uses fuses, or the first of
//!   two with equally many. The other fuses nowhere.

use std::collections::HashMap;

use super::builder::{Builder, Part};
use super::float::{flags, ftz, sat};
use super::macros::{pure, slow_ter};
use crate::code::{
    Code, Draft, File, Form, Lanes, MINUS_OTHER, MINUS_PRODUCT, Op, Pure, Slot, Width, blocks,
    has_wide_vectors, ternary,
};
use crate::math::{double, single};

impl Builder<'_, '_> {
    /// Notes that the last instruction does not say how it rounds.
    pub(super) fn unrounded(&mut self, name: &str) {
        let part = match name {
            "mul" => Part::Product,
            "add" => Part::Sum,
            "sub" => Part::Difference,
            _ => return,
        };
        if let Some(at) = self.body.drafts.len().checked_sub(1) {
            self.parts.insert(at, part);
        }
    }
}

/// Positions at which registers are read or written.
#[derive(Default)]
struct Accesses {
    reads: HashMap<Slot, Vec<usize>>,
    writes: HashMap<Slot, Vec<usize>>,
}

impl Accesses {
    fn of(drafts: &[Draft]) -> Self {
        let mut all = Self::default();
        for (at, draft) in drafts.iter().enumerate() {
            let guard = draft.guard.iter().map(|(slot, _)| slot);
            for &slot in draft.s.iter().chain(guard).filter(|slot| !slot.is_constant()) {
                all.reads.entry(slot).or_default().push(at);
            }
            for &slot in &draft.d {
                all.writes.entry(slot).or_default().push(at);
            }
        }
        all
    }

    fn written_between(&self, slot: Slot, from: usize, to: usize) -> bool {
        let writes = self.writes.get(&slot).map_or(&[][..], Vec::as_slice);
        writes.get(writes.partition_point(|&at| at < from)).is_some_and(|&at| at < to)
    }

    /// The reads of what the instruction at `at` writes to a register, if all are before `end`.
    fn uses(&self, slot: Slot, at: usize, end: usize) -> Option<&[usize]> {
        let reads = self.reads.get(&slot)?;
        let writes = self.writes.get(&slot)?;
        let next = writes.get(writes.partition_point(|&write| write <= at)).copied();
        let first = reads.partition_point(|&read| read <= at);
        let last = match next {
            Some(next) if next < end => reads.partition_point(|&read| read <= next),
            // Written once, and read nowhere else.
            _ if writes.len() == 1 && first == 0 => reads.len(),
            _ => return None,
        };
        let uses = &reads[first..last];
        uses.iter().all(|&read| read < end).then_some(uses)
    }
}

/// Fuses what the driver's compiler fuses. Branches name positions already.
pub(super) fn fuse(drafts: &mut [Draft], tables: &[Vec<u32>], parts: &HashMap<usize, Part>) {
    let mut products: Vec<usize> =
        parts.iter().filter(|(_, part)| **part == Part::Product).map(|(&at, _)| at).collect();
    if products.is_empty() || products.len() == parts.len() {
        return;
    }
    products.sort_unstable();
    let starts = blocks(drafts, tables);
    let accesses = Accesses::of(drafts);
    let mut chosen: HashMap<usize, &[usize]> = HashMap::new();
    // The product of each source of a sum.
    let mut sums: HashMap<usize, [Option<usize>; 2]> = HashMap::new();
    for at in products {
        let end = starts[starts.partition_point(|&start| start <= at)];
        let Some(uses) = fusable(drafts, parts, &accesses, at, end) else { continue };
        for &sum in uses {
            let source = usize::from(drafts[sum].s[0] != drafts[at].d[0]);
            sums.entry(sum).or_default()[source] = Some(at);
        }
        chosen.insert(at, uses);
    }
    let mut order: Vec<usize> = sums.keys().copied().collect();
    order.sort_unstable();
    for sum in order {
        if let [Some(first), Some(second)] = sums[&sum]
            && let (Some(one), Some(other)) = (chosen.get(&first), chosen.get(&second))
        {
            let loser = if other.len() < one.len() { first } else { second };
            chosen.remove(&loser);
        }
    }
    for (&at, &uses) in &chosen {
        for &sum in uses {
            let product = drafts[at].clone();
            join(&product, &mut drafts[sum], parts[&sum]);
        }
    }
}

/// The sums that use the product at a position, if it can fuse into each.
fn fusable<'a>(
    drafts: &[Draft],
    parts: &HashMap<usize, Part>,
    accesses: &'a Accesses,
    at: usize,
    end: usize,
) -> Option<&'a [usize]> {
    let product = &drafts[at];
    if product.guard.is_some() || sat(product.imm) {
        return None;
    }
    let result = product.d[0];
    let uses = accesses.uses(result, at, end)?;
    let fits = |&sum: &usize| {
        let draft = &drafts[sum];
        let is_sum = matches!(parts.get(&sum), Some(Part::Sum | Part::Difference));
        is_sum
            && (draft.s[0] == result) != (draft.s[1] == result)
            && draft.d[0].file == result.file
            && ftz(draft.imm) == ftz(product.imm)
            && !product.s.iter().any(|&source| accesses.written_between(source, at, sum))
    };
    (!uses.is_empty() && uses.iter().all(fits)).then_some(uses)
}

/// Makes a sum one instruction with the product that it uses.
fn join(product: &Draft, sum: &mut Draft, part: Part) {
    let first = sum.s[0] == product.d[0];
    let other = sum.s[usize::from(first)];
    if part == Part::Difference {
        sum.imm |= if first { MINUS_OTHER } else { MINUS_PRODUCT };
    }
    sum.code = Code::Pure(if sum.d[0].file == File::Double {
        fused_double()
    } else {
        fused_single(ftz(sum.imm), sat(sum.imm))
    });
    sum.s = vec![product.s[0], product.s[1], other];
}

fn fused_single(ftz: bool, sat: bool) -> Pure {
    if !ftz && has_wide_vectors() {
        return match sat {
            false => pure!(|lanes, op| fused_natively::<false>(lanes, op))
                .as_form(Form::FloatContracted(Width::Word)),
            true => pure!(|lanes, op| fused_natively::<true>(lanes, op)),
        };
    }
    let run = flags!(ftz, sat, |F, S| slow_ter!(u32, u32, u32 => u32, |op, a, b, c| {
        let (product, other) = signs(op.imm);
        single::fma::<F, S>(a ^ product << 31, b, c ^ other << 31)
    }));
    let form = Form::FloatContracted(Width::Word);
    run.as_form((!sat && has_wide_vectors()).then_some(form))
}

#[inline(always)]
fn fused_natively<const SAT: bool>(lanes: &mut Lanes<'_>, op: &Op) {
    let (product, other) = signs(op.imm);
    ternary(lanes, op, |a: u32, b: u32, c: u32| {
        single::fma_native::<SAT>(a ^ product << 31, b, c ^ other << 31)
    });
}

fn fused_double() -> Pure {
    if has_wide_vectors() {
        return pure!(|lanes, op| {
            let (product, other) = signs(op.imm);
            ternary(lanes, op, |a: u64, b: u64, c: u64| {
                double::fma(a ^ u64::from(product) << 63, b, c ^ u64::from(other) << 63)
            });
        })
        .as_form(Form::FloatContracted(Width::Double));
    }
    slow_ter!(u64, u64, u64 => u64, |op, a, b, c| {
        let (product, other) = signs(op.imm);
        double::fma(a ^ u64::from(product) << 63, b, c ^ u64::from(other) << 63)
    })
}

/// One for each sign that changes.
fn signs(imm: u64) -> (u32, u32) {
    (u32::from(imm & MINUS_PRODUCT != 0), u32::from(imm & MINUS_OTHER != 0))
}
