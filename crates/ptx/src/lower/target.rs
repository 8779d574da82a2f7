//! The version and the target of a module: which instructions its text may have.

use super::modifiers::{Modifiers, Refusal};
use crate::error::LoadError;
use crate::syntax::tree;

/// The first version in which accesses to other lanes name these lanes, on GPUs from `sm_70` on.
const LANES_ARE_NAMED: (u32, u32) = (6, 4);

/// `.version` and `.target` of a module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Isa {
    version: (u32, u32),
    /// The number of `sm_90`.
    sm: u32,
    /// Whether the target has the instructions of one GPU only: `sm_90a`.
    is_specific: bool,
}

impl Isa {
    /// Those of a module for a GPU with a compute capability.
    pub(super) fn of(tree: &tree::Module<'_>, compute: (u32, u32)) -> Result<Self, LoadError> {
        let refuse = |message: String| Err(LoadError::at(1, 1, message));
        if tree.address_size != 64 {
            return refuse("only modules with `.address_size 64` are supported".to_owned());
        }
        let mut isa = Self { version: tree.version, sm: 0, is_specific: false };
        for target in &tree.targets {
            let Some(name) = target.strip_prefix("sm_") else { continue };
            let digits = name.trim_end_matches(|letter: char| !letter.is_ascii_digit());
            let Ok(number) = digits.parse() else { continue };
            if number > compute.0 * 10 + compute.1 {
                return refuse(format!(
                    "the module is for {target}, and the GPU has {}.{}",
                    compute.0, compute.1
                ));
            }
            (isa.sm, isa.is_specific) = (number, digits.len() < name.len());
        }
        Ok(isa)
    }

    /// Refuses an instruction that targets before `sm` lack.
    pub(super) fn needs(self, what: &str, sm: u32) -> Result<(), Refusal> {
        if self.sm >= sm {
            Ok(())
        } else {
            Err(format!("{what} needs `.target sm_{sm}` or higher"))
        }
    }

    /// Refuses an instruction that only targets of one GPU have.
    pub(super) fn needs_specific(self, what: &str, target: &str) -> Result<(), Refusal> {
        if self.is_specific { Ok(()) } else { Err(format!("{what} needs `.target {target}`")) }
    }

    /// Takes `.sync`, by which an access to other lanes names them. Where lanes run apart it must be there.
    pub(super) fn names_lanes(self, name: &str, m: &mut Modifiers<'_>) -> Result<bool, Refusal> {
        let sync = m.take("sync");
        if !sync && self.sm >= 70 && self.version >= LANES_ARE_NAMED {
            return Err(format!("`{name}` without `.sync` is not there from sm_70 on"));
        }
        Ok(sync)
    }
}
