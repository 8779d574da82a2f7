//! Forms of `.f16`, `.bf16` and their pairs.

use pagewise_ptx::math::half::{self, Binary16, Brain16, Choice, Half, Modifiers};

use crate::floats::comparison;
use crate::instruction::{Function, Instruction, one};

pub(crate) fn function(form: &Instruction) -> Option<Function> {
    if matches!(form.name(), "cvt" | "set" | "ex2" | "tanh") || form.has("oob") {
        return None;
    }
    match form.kind() {
        "f16" => of_one::<Binary16>(form),
        "bf16" => of_one::<Brain16>(form),
        "f16x2" => of_pair::<Binary16>(form),
        "bf16x2" => of_pair::<Brain16>(form),
        _ => None,
    }
}

/// A function of up to three halves.
type Each = Box<dyn Fn([u16; 3]) -> u16>;

/// A form of one half.
fn of_one<H: Half + 'static>(form: &Instruction) -> Option<Function> {
    let each = each::<H>(form)?;
    one(move |r| {
        let at = |index: usize| r.get(index).map_or(0, |register| *register as u16);
        each([at(0), at(1), at(2)]).into()
    })
}

/// A form of a pair.
fn of_pair<H: Half + 'static>(form: &Instruction) -> Option<Function> {
    let each = each::<H>(form)?;
    let predicate = form.predicate;
    Some(Box::new(move |r| {
        let at = |index: usize| r.get(index).map_or(0, |register| *register as u32);
        if predicate {
            let low = each([at(0) as u16, at(1) as u16, 0]);
            let high = each([(at(0) >> 16) as u16, (at(1) >> 16) as u16, 0]);
            return vec![low.into(), high.into()];
        }
        vec![half::both_3(at(0), at(1), at(2), |a, b, c| each([a, b, c])).into()]
    }))
}

/// The function that a form applies to each half.
fn each<H: Half + 'static>(form: &Instruction) -> Option<Each> {
    let ftz = form.has("ftz");
    let modifiers = Modifiers { ftz, sat: form.has("sat"), relu: form.has("relu") };
    let choice = Choice { ftz, nan_wins: form.has("NaN"), xorsign_abs: form.has("xorsign") };
    Some(match form.name() {
        "add" => Box::new(move |[a, b, _]| half::add::<H>(a, b, modifiers)),
        "sub" => Box::new(move |[a, b, _]| half::subtract::<H>(a, b, modifiers)),
        "mul" => Box::new(move |[a, b, _]| half::multiply::<H>(a, b, modifiers)),
        "fma" => Box::new(move |[a, b, c]| half::fma::<H>(a, b, c, modifiers)),
        "min" => Box::new(move |[a, b, _]| half::min::<H>(a, b, choice)),
        "max" => Box::new(move |[a, b, _]| half::max::<H>(a, b, choice)),
        "abs" => Box::new(move |[a, _, _]| half::absolute::<H>(a, ftz)),
        "neg" => Box::new(move |[a, _, _]| half::negate::<H>(a, ftz)),
        "setp" => {
            let comparison = comparison(form.part(1))?;
            Box::new(move |[a, b, _]| {
                let of = |bits| H::widen(if ftz { half::flush::<H>(bits) } else { bits });
                comparison.holds(of(a), of(b)).into()
            })
        }
        _ => return None,
    })
}
