//! Functions over lanes, each compiled twice: for every machine, and for one with wide vectors.
//!
//! Both forms give the same bits. The machine decides when a module is lowered, so that the loop
//! over instructions asks no more. `pure!` of the lowering makes both.

use super::lanes::Lanes;
use super::op::{OnLanes, Op, Pure};

/// Whether this machine has the vectors of 256 bits and the fused products of the second form.
pub(crate) fn has_wide_vectors() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let has = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let has = false;
    has
}

/// A function over lanes with wide vectors.
pub(crate) type Wide = unsafe fn(&mut Lanes<'_>, &Op);

/// The form of a function for this machine.
pub(crate) fn chosen(plain: OnLanes, wide: Wide) -> Pure {
    if has_wide_vectors() {
        // SAFETY: the two types differ only in that a call of `wide` needs the machine to have its
        // instructions, which it has.
        return Pure::of(unsafe { std::mem::transmute::<Wide, OnLanes>(wide) });
    }
    Pure::of(plain)
}
