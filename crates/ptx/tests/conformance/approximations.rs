//! Forms of approximate functions. Most of them equal hardware's bits, too.

use pagewise_ptx::math::approximate as functions;
use pagewise_ptx::math::half::{Binary16, Brain16, both};
use pagewise_ptx::math::tangent::{tangent, tangent_half};

use crate::instruction::{Function, Instruction, one};

pub(crate) fn function(form: &Instruction) -> Option<Function> {
    match form.kind() {
        "f32" if form.has("ftz") => single::<true>(form),
        "f32" => single::<false>(form),
        "f64" if form.has("ftz") => double::<true>(form),
        "f64" => double::<false>(form),
        "f16" | "bf16" | "f16x2" | "bf16x2" => halves(form),
        _ => None,
    }
}

/// Forms of `.f32`.
fn single<const FTZ: bool>(form: &Instruction) -> Option<Function> {
    let of = |f: fn(u32) -> u32| one(move |r| u64::from(f(r[0] as u32)));
    let two = |f: fn(u32, u32) -> u32| one(move |r| u64::from(f(r[0] as u32, r[1] as u32)));
    match (form.name(), form.part(1)) {
        ("rcp", "approx") => of(functions::reciprocal::<FTZ>),
        ("sqrt", "approx") => of(functions::root::<FTZ>),
        ("rsqrt", "approx") => of(functions::reciprocal_root::<FTZ>),
        ("sin", "approx") => of(functions::sine::<FTZ>),
        ("cos", "approx") => of(functions::cosine::<FTZ>),
        ("lg2", "approx") => of(functions::logarithm_2::<FTZ>),
        ("ex2", "approx") => of(functions::exponent_2::<FTZ>),
        ("tanh", "approx") => of(tangent),
        ("div", "approx") => two(functions::divide::<FTZ>),
        ("div", "full") => two(functions::divide_full::<FTZ>),
        _ => None,
    }
}

/// Forms of `.f64`.
fn double<const FTZ: bool>(form: &Instruction) -> Option<Function> {
    match (form.name(), form.part(1)) {
        ("rcp", "approx") => one(|r| functions::reciprocal_f64(r[0])),
        ("rsqrt", "approx") => one(|r| functions::reciprocal_root_f64::<FTZ>(r[0])),
        _ => None,
    }
}

/// Forms of halves.
fn halves(form: &Instruction) -> Option<Function> {
    match (form.name(), form.kind()) {
        ("ex2", "f16") => one(|r| functions::exponent_2_half::<Binary16>(r[0] as u16).into()),
        ("ex2", "bf16") => one(|r| functions::exponent_2_half::<Brain16>(r[0] as u16).into()),
        ("tanh", "f16") => one(|r| tangent_half::<Binary16>(r[0] as u16).into()),
        ("tanh", "bf16") => one(|r| tangent_half::<Brain16>(r[0] as u16).into()),
        ("tanh", "f16x2") => one(|r| both(r[0] as u32, tangent_half::<Binary16>).into()),
        ("tanh", "bf16x2") => one(|r| both(r[0] as u32, tangent_half::<Brain16>).into()),
        ("ex2", "f16x2") => {
            one(|r| both(r[0] as u32, functions::exponent_2_half::<Binary16>).into())
        }
        ("ex2", "bf16x2") => {
            one(|r| both(r[0] as u32, functions::exponent_2_half::<Brain16>).into())
        }
        _ => None,
    }
}
