//! The modifiers that a conversion may have, as `ptxas` accepts them.

use super::modifiers::Refusal;
use super::target::Isa;
use crate::math::Rounding;
use crate::types::Type;

/// The modifiers of one conversion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) to: Type,
    pub(super) from: Type,
    /// `.rn` …
    pub(super) rounding: Option<Rounding>,
    /// `.rni` …
    pub(super) integral: Option<Rounding>,
    pub(super) ftz: bool,
    pub(super) sat: bool,
    pub(super) relu: bool,
    pub(super) finite: bool,
}

impl Form {
    /// Refuses a form that PTX does not have.
    pub(super) fn check(self, isa: Isa) -> Result<(), Refusal> {
        let Self { to, from, .. } = self;
        for kind in [to, from] {
            if !is_float(kind) && !is_integer(kind) {
                return Err(format!("no conversion is of type {kind:?}"));
            }
        }
        self.check_rounding()?;
        self.check_range()?;
        if self.finite && to == Type::Tf32 && self.rounding != Some(Rounding::NearestAway) {
            isa.needs("`.satfinite` to .tf32", 100)?;
        }
        let is_single = |kind| kind == Type::F32;
        if self.ftz && (!(is_single(to) || is_single(from)) || to == Type::Tf32) {
            return Err("`.ftz` is of conversions from and to .f32".to_owned());
        }
        Ok(())
    }

    /// Whether the operands of 8 bits have to be in registers of 8 bits.
    pub(super) fn wants_bytes(self) -> bool {
        let Self { to, from, .. } = self;
        is_brain(from) && to.bytes() == 1 || is_brain(to) && from.bytes() == 1
    }

    /// Refuses a rounding that is missing or one too many.
    fn check_rounding(self) -> Result<(), Refusal> {
        let Self { to, from, rounding, integral, .. } = self;
        let wants = match (is_float(from), is_float(to)) {
            (false, false) => (false, false),
            (false, true) => (true, false),
            (true, false) => (false, true),
            (true, true) if from == to => (false, integral.is_some()),
            // Each has numbers that the other lacks; beyond that, hardware takes what rounds nothing.
            (true, true) if from.is_half() && to.is_half() || is_brain(from) => {
                (rounding.is_some(), false)
            }
            (true, true) => (narrows(from, to), false),
        };
        if wants != (rounding.is_some(), integral.is_some()) {
            let how = match wants {
                (true, _) => "needs `.rn`, `.rz`, `.rm` or `.rp`, and no other rounding",
                (_, true) => "needs `.rni`, `.rzi`, `.rmi` or `.rpi`, and no other rounding",
                _ => "rounds nothing: leave the rounding out",
            };
            return Err(format!("a conversion from {from:?} to {to:?} {how}"));
        }
        let is_away = rounding == Some(Rounding::NearestAway);
        let is_near = matches!(rounding, Some(Rounding::Nearest | Rounding::Zero));
        if to == Type::Tf32 && !(is_away || is_near) || is_away && to != Type::Tf32 {
            return Err(
                "a conversion to .tf32 needs `.rna`, `.rn` or `.rz`, and others have no `.rna`"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Refuses modifiers for results beyond the range, where no result is or PTX has none of them.
    fn check_range(self) -> Result<(), Refusal> {
        let Self { to, from, sat, relu, finite, ftz, rounding, .. } = self;
        let is_near = matches!(rounding, Some(Rounding::Nearest | Rounding::Zero));
        let is_away = rounding == Some(Rounding::NearestAway) && !relu;
        let is_cut = from == Type::F32 && matches!(to, Type::F16 | Type::Bf16 | Type::Tf32);
        if (relu || finite) && (!is_cut || sat || ftz || !(is_near || is_away)) {
            return Err("`.relu` and `.satfinite` are of conversions from .f32 to fewer bits, by \
                        `.rn` or `.rz`, without `.sat` and `.ftz`"
                .to_owned());
        }
        let holds_all = match (from.is_signed(), to.is_signed()) {
            (false, true) => from.bytes() < to.bytes(),
            (true, false) => false,
            _ => from.bytes() <= to.bytes(),
        };
        let is_vain = is_integer(from) && is_integer(to) && holds_all;
        if sat && is_vain {
            return Err(format!("{to:?} holds all values of {from:?}: leave `.sat` out"));
        }
        if sat && (is_brain(from) || is_brain(to) || to == Type::Tf32) {
            return Err("conversions of .bf16 and .tf32 have no `.sat`: leave it out".to_owned());
        }
        Ok(())
    }
}

/// Whether a type is an integer that converts.
pub(super) fn is_integer(kind: Type) -> bool {
    kind.is_unsigned() && kind != Type::U16x2 || kind.is_signed() && kind != Type::S16x2
}

fn is_float(kind: Type) -> bool {
    matches!(kind, Type::F16 | Type::Bf16 | Type::Tf32 | Type::F32 | Type::F64)
}

fn is_brain(kind: Type) -> bool {
    kind == Type::Bf16
}

/// Whether a float loses bits in another type.
fn narrows(from: Type, to: Type) -> bool {
    to == Type::Tf32 || from.bytes() > to.bytes()
}
