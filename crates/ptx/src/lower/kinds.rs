//! The types that an instruction may name, where its semantics look at their sizes only.

use super::modifiers::{Modifiers, Refusal, kind};

/// Refuses a type that an instruction does not have.
pub(super) fn check(name: &str, m: &Modifiers<'_>) -> Result<(), Refusal> {
    let allowed: &[&str] = match name {
        "and" | "or" | "xor" | "not" => &["pred", "b16", "b32", "b64"],
        "cnot" | "shl" => &["b16", "b32", "b64"],
        "shr" => &["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"],
        "shf" | "prmt" | "lop3" | "shfl" | "bmsk" | "fns" => &["b32"],
        "popc" | "clz" | "brev" | "bfi" | "match" => &["b32", "b64"],
        "bfind" | "bfe" | "addc" | "subc" | "madc" => &["u32", "u64", "s32", "s64"],
        "szext" | "mul24" | "mad24" | "dp4a" | "dp2a" => &["u32", "s32"],
        "sad" | "rem" => &["u16", "u32", "u64", "s16", "s32", "s64"],
        "abs" | "neg" => &["s16", "s32", "s64", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64"],
        "selp" | "slct" => {
            &["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"]
        }
        "copysign" | "testp" => &["f32", "f64"],
        "redux" => &["u32", "s32", "b32"],
        "vote" => &["pred", "b32"],
        "add" | "sub" | "mad" if m.has("cc") => &["u32", "u64", "s32", "s64"],
        "alloca" | "stacksave" | "stackrestore" => &["u32", "u64"],
        "cvta" | "mapa" | "getctarank" => &["u32", "u64"],
        _ => return Ok(()),
    };
    match m.names().find(|left| kind(left).is_some() && !allowed.contains(left)) {
        Some(other) => Err(format!("`{name}` has no type `.{other}`")),
        None => Ok(()),
    }
}
