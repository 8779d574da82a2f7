//! Forms of `.f32` and `.f64`.

use pagewise_ptx::math::Rounding;
use pagewise_ptx::math::compare::{Comparison, Property};
use pagewise_ptx::math::directed::{self, How};
use pagewise_ptx::math::{double, single};

use crate::instruction::{Function, Instruction, one};

pub(crate) fn function(form: &Instruction) -> Option<Function> {
    if form.name() == "cvt" || form.has("approx") || form.has("full") {
        return None;
    }
    if form.predicate {
        return predicate(form);
    }
    match form.kind() {
        "f32" if form.name() == "set" => None,
        "f32" => nearest(form).or_else(|| rounded(form)).or_else(|| selected(form)),
        "f64" => doubles(form).or_else(|| doubles_rounded(form)),
        _ => None,
    }
}

/// The comparison that a word names.
pub(crate) fn comparison(word: &str) -> Option<Comparison> {
    Some(match word {
        "eq" => Comparison::Equal,
        "ne" => Comparison::NotEqual,
        "lt" => Comparison::Less,
        "le" => Comparison::LessOrEqual,
        "gt" => Comparison::Greater,
        "ge" => Comparison::GreaterOrEqual,
        "equ" => Comparison::EqualOrUnordered,
        "neu" => Comparison::NotEqualOrUnordered,
        "ltu" => Comparison::LessOrUnordered,
        "leu" => Comparison::LessOrEqualOrUnordered,
        "gtu" => Comparison::GreaterOrUnordered,
        "geu" => Comparison::GreaterOrEqualOrUnordered,
        "num" => Comparison::Ordered,
        "nan" => Comparison::Unordered,
        _ => return None,
    })
}

/// `setp` and `testp`.
fn predicate(form: &Instruction) -> Option<Function> {
    let property = match form.part(1) {
        "finite" => Some(Property::Finite),
        "infinite" => Some(Property::Infinite),
        "number" => Some(Property::Number),
        "notanumber" => Some(Property::NotANumber),
        "normal" => Some(Property::Normal),
        "subnormal" => Some(Property::Subnormal),
        _ => None,
    };
    match (property, form.kind(), form.has("ftz")) {
        (Some(property), "f32", _) => {
            one(move |r| u64::from(property.of_f32(f32::from_bits(r[0] as u32))))
        }
        (Some(property), "f64", _) => {
            one(move |r| u64::from(property.of_f64(f64::from_bits(r[0]))))
        }
        (None, "f32", false) => {
            let comparison = comparison(form.part(1))?;
            let of = |r: u64| single::operand::<false>(r as u32);
            one(move |r| u64::from(comparison.holds(of(r[0]), of(r[1]))))
        }
        (None, "f32", true) => {
            let comparison = comparison(form.part(1))?;
            let of = |r: u64| single::operand::<true>(r as u32);
            one(move |r| u64::from(comparison.holds(of(r[0]), of(r[1]))))
        }
        (None, "f64", _) => {
            let comparison = comparison(form.part(1))?;
            one(move |r| u64::from(comparison.holds(f64::from_bits(r[0]), f64::from_bits(r[1]))))
        }
        _ => None,
    }
}

/// The fast forms of a function with two constants.
macro_rules! by_modifiers {
    ($form:expr, $module:ident :: $function:ident) => {
        match ($form.has("ftz"), $form.has("sat")) {
            (false, false) => two($module::$function::<false, false>),
            (false, true) => two($module::$function::<false, true>),
            (true, false) => two($module::$function::<true, false>),
            (true, true) => two($module::$function::<true, true>),
        }
    };
}

fn one_of(f: fn(u32) -> u32) -> Option<Function> {
    one(move |r| u64::from(f(r[0] as u32)))
}

fn two(f: fn(u32, u32) -> u32) -> Option<Function> {
    one(move |r| u64::from(f(r[0] as u32, r[1] as u32)))
}

fn three(f: fn(u32, u32, u32) -> u32) -> Option<Function> {
    one(move |r| u64::from(f(r[0] as u32, r[1] as u32, r[2] as u32)))
}

/// The fast forms to the nearest.
fn nearest(form: &Instruction) -> Option<Function> {
    if form.rounding() != Some(Rounding::Nearest) {
        return None;
    }
    let ftz = form.has("ftz");
    match (form.name(), ftz) {
        ("add", _) => by_modifiers!(form, single::add),
        ("sub", _) => by_modifiers!(form, single::subtract),
        ("mul", _) => by_modifiers!(form, single::multiply),
        ("fma" | "mad", _) => match (ftz, form.has("sat")) {
            (false, false) => three(single::fma::<false, false>),
            (false, true) => three(single::fma::<false, true>),
            (true, false) => three(single::fma::<true, false>),
            (true, true) => three(single::fma::<true, true>),
        },
        ("div", false) => two(single::divide::<false>),
        ("div", true) => two(single::divide::<true>),
        ("rcp", false) => one_of(single::reciprocal::<false>),
        ("rcp", true) => one_of(single::reciprocal::<true>),
        ("sqrt", false) => one_of(single::square_root::<false>),
        ("sqrt", true) => one_of(single::square_root::<true>),
        _ => None,
    }
}

/// The forms with a directed rounding.
fn rounded(form: &Instruction) -> Option<Function> {
    let rounding = form.rounding()?;
    let how = How::new(rounding, form.has("ftz"), form.has("sat"));
    let word = |r: u64| r as u32;
    match form.name() {
        "add" => one(move |r| directed::add(word(r[0]), word(r[1]), how).into()),
        "sub" => one(move |r| directed::subtract(word(r[0]), word(r[1]), how).into()),
        "mul" => one(move |r| directed::multiply(word(r[0]), word(r[1]), how).into()),
        "fma" | "mad" => {
            one(move |r| directed::fma(word(r[0]), word(r[1]), word(r[2]), how).into())
        }
        "div" => one(move |r| directed::divide(word(r[0]), word(r[1]), how).into()),
        "rcp" => one(move |r| directed::reciprocal(word(r[0]), how).into()),
        "sqrt" => one(move |r| directed::square_root(word(r[0]), how).into()),
        _ => None,
    }
}

/// The forms that choose an operand or change its sign.
fn selected(form: &Instruction) -> Option<Function> {
    macro_rules! choice {
        ($function:ident) => {
            match (form.has("ftz"), form.has("NaN")) {
                (false, false) => two(single::$function::<false, false>),
                (false, true) => two(single::$function::<false, true>),
                (true, false) => two(single::$function::<true, false>),
                (true, true) => two(single::$function::<true, true>),
            }
        };
    }
    match (form.name(), form.has("xorsign"), form.has("ftz")) {
        ("min", false, _) => choice!(min),
        ("max", false, _) => choice!(max),
        ("min", true, _) => choice!(min_xorsign_abs),
        ("max", true, _) => choice!(max_xorsign_abs),
        ("abs", _, false) => one_of(single::absolute::<false>),
        ("abs", _, true) => one_of(single::absolute::<true>),
        ("neg", _, false) => one_of(single::negate::<false>),
        ("neg", _, true) => one_of(single::negate::<true>),
        ("copysign", _, _) => two(single::copy_sign),
        _ => None,
    }
}

/// The fast forms of doubles.
fn doubles(form: &Instruction) -> Option<Function> {
    let two = |f: fn(u64, u64) -> u64| one(move |r| f(r[0], r[1]));
    let one_of = |f: fn(u64) -> u64| one(move |r| f(r[0]));
    match (form.name(), form.rounding()) {
        ("add", Some(Rounding::Nearest)) => two(double::add),
        ("sub", Some(Rounding::Nearest)) => two(double::subtract),
        ("mul", Some(Rounding::Nearest)) => two(double::multiply),
        ("div", Some(Rounding::Nearest)) => two(double::divide),
        ("fma", Some(Rounding::Nearest)) => one(|r| double::fma(r[0], r[1], r[2])),
        ("rcp", Some(Rounding::Nearest)) => one_of(double::reciprocal),
        ("sqrt", Some(Rounding::Nearest)) => one_of(double::square_root),
        ("min", _) => two(double::min),
        ("max", _) => two(double::max),
        ("copysign", _) => two(double::copy_sign),
        ("abs", _) => one_of(double::absolute),
        ("neg", _) => one_of(double::negate),
        _ => None,
    }
}

/// The forms of doubles with a directed rounding.
fn doubles_rounded(form: &Instruction) -> Option<Function> {
    let rounding = form.rounding()?;
    let two = |f: fn(u64, u64, Rounding) -> u64| one(move |r| f(r[0], r[1], rounding));
    let one_of = |f: fn(u64, Rounding) -> u64| one(move |r| f(r[0], rounding));
    match form.name() {
        "add" => two(double::add_rounded),
        "sub" => two(double::subtract_rounded),
        "mul" => two(double::multiply_rounded),
        "div" => two(double::divide_rounded),
        "fma" => one(move |r| double::fma_rounded(r[0], r[1], r[2], rounding)),
        "rcp" => one_of(double::reciprocal_rounded),
        "sqrt" => one_of(double::square_root_rounded),
        _ => None,
    }
}
