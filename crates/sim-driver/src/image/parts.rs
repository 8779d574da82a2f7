//! The parts of an image that a driver asks for: kernels, variables, and the GPU they are for.

use std::ffi::{CStr, CString};
use std::ops::Range;
use std::str::FromStr;

/// The GPU that code is for: `sm_90`, `sm_90a` or `sm_100f`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// Ten times the major compute capability, and the minor one.
    pub(crate) capability: u32,
    reach: Reach,
}

/// The GPUs that run code of a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// All newer ones.
    #[default]
    Newer,
    /// Newer ones with the same major compute capability.
    Family,
    /// No other.
    Exact,
}

/// The compute capabilities that PTX has targets for, each with the first PTX that has it: the
/// table "PTX release history" of the PTX ISA.
const CAPABILITIES: [(u32, (u32, u32)); 31] = [
    (10, (1, 0)),
    (11, (1, 0)),
    (12, (1, 2)),
    (13, (1, 2)),
    (20, (2, 0)),
    (21, (2, 0)),
    (30, (3, 0)),
    (32, (4, 0)),
    (35, (3, 1)),
    (37, (4, 1)),
    (50, (4, 0)),
    (52, (4, 1)),
    (53, (4, 2)),
    (60, (5, 0)),
    (61, (5, 0)),
    (62, (5, 0)),
    (70, (6, 0)),
    (72, (6, 1)),
    (75, (6, 3)),
    (80, (7, 0)),
    (86, (7, 1)),
    (87, (7, 4)),
    (88, (9, 0)),
    (89, (7, 8)),
    (90, (7, 8)),
    (100, (8, 6)),
    (101, (8, 6)),
    (103, (8, 8)),
    (110, (9, 0)),
    (120, (8, 7)),
    (121, (8, 8)),
];

impl Target {
    /// The target of machine code, which newer GPUs of the same major compute capability run.
    pub(crate) const fn of_machine_code(capability: u32) -> Self {
        Self { capability, reach: Reach::Family }
    }

    /// Whether PTX of a version has the target.
    pub(crate) fn is_in(self, version: (u32, u32)) -> bool {
        let known = CAPABILITIES.iter().find(|(known, _)| *known == self.capability);
        known.is_some_and(|(_, since)| *since <= version)
    }

    /// Whether a GPU of a compute capability runs the code.
    pub(crate) const fn runs_on(self, capability: u32) -> bool {
        let is_new_enough = self.capability <= capability;
        match self.reach {
            Reach::Newer => is_new_enough,
            Reach::Family => is_new_enough && self.capability / 10 == capability / 10,
            Reach::Exact => self.capability == capability,
        }
    }
}

impl FromStr for Target {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.strip_prefix("sm_").ok_or(())?;
        let (digits, reach) = match text.as_bytes() {
            [.., b'a'] => (text.trim_end_matches('a'), Reach::Exact),
            [.., b'f'] => (text.trim_end_matches('f'), Reach::Family),
            _ => (text, Reach::Newer),
        };
        let capability = digits.parse().map_err(drop)?;
        if CAPABILITIES.iter().any(|(known, _)| *known == capability) {
            Ok(Self { capability, reach })
        } else {
            Err(())
        }
    }
}

/// A parameter of a kernel, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// From the first byte of all parameters.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A kernel of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    name: CString,
    pub(crate) parameters: Vec<Parameter>,
    /// The largest block (`.maxntid`).
    pub(crate) max_block: Option<[u32; 3]>,
    /// The only block (`.reqntid`).
    pub(crate) required_block: Option<[u32; 3]>,
    /// The only cluster (`.reqnctapercluster`).
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// The most blocks of a cluster (`.maxclusterrank`).
    pub(crate) most_in_cluster: Option<u32>,
    /// Whether a launch has to say the cluster (`.explicitcluster`).
    pub(crate) needs_cluster: bool,
    /// Bytes of shared memory that each block has before a launch adds to it.
    pub(crate) shared_bytes: u64,
    /// Bytes of local memory of each thread, as far as the image tells.
    pub(crate) local_bytes: u64,
    /// Registers of each thread, if the image is machine code.
    pub(crate) registers: Option<u32>,
    /// The place of its body in the text of the image. Empty for machine code.
    pub(crate) body: Range<usize>,
}

impl Kernel {
    /// The most bytes that the parameters of a kernel may have (since PTX 8.1).
    pub(crate) const PARAMETER_BYTES_MAX: u64 = 32_764;

    /// A kernel without parameters. A name has no NUL.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: CString::new(name).unwrap_or_default(), ..Self::default() }
    }

    /// Its name, as programs ask for it.
    pub(crate) fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    /// Its name, for C.
    pub(crate) fn c_name(&self) -> &CStr {
        &self.name
    }

    /// Bytes of all its parameters.
    pub(crate) fn parameter_bytes(&self) -> u64 {
        self.parameters.last().map_or(0, |last| last.offset.saturating_add(last.bytes))
    }

    /// The most threads of a block that the kernel was compiled for.
    pub(crate) fn threads_max(&self) -> Option<u32> {
        self.max_block.map(|block| block.iter().fold(1_u32, |all, one| all.saturating_mul(*one)))
    }
}

/// The memory that a variable lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Constant,
    /// Memory of each block, which has no address outside of kernels.
    Shared,
}

/// The modules that see a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// Its own only.
    #[default]
    Internal,
    /// All.
    Visible,
    /// All; any one of several definitions counts.
    Weak,
    /// Another module defines it.
    Extern,
}

/// An address in a variable's initial contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// The place of the address in the variable, in bytes.
    pub(crate) offset: u64,
    /// Bytes of the place: 8, or fewer for a part of the address.
    pub(crate) bytes: usize,
    /// The variable that has the address.
    pub(crate) symbol: String,
    /// Bytes that are added to the address.
    pub(crate) addend: u64,
    /// The first bit of the part.
    pub(crate) shift: u32,
}

/// A variable of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) space: Space,
    /// Whether it lies in managed memory.
    pub(crate) is_managed: bool,
    pub(crate) linkage: Linkage,
    pub(crate) align: u64,
    pub(crate) bytes: u64,
    /// Its first bytes; those that are left out are 0.
    pub(crate) contents: Vec<u8>,
    pub(crate) relocations: Vec<Relocation>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_runs_on_newer_gpus_of_its_reach() {
        let runs = |target: &str, capability| {
            target.parse::<Target>().map(|target| target.runs_on(capability))
        };
        assert_eq!((runs("sm_60", 90), runs("sm_90", 89)), (Ok(true), Ok(false)));
        assert_eq!((runs("sm_90a", 90), runs("sm_90a", 100)), (Ok(true), Ok(false)));
        assert_eq!((runs("sm_100f", 103), runs("sm_100f", 120)), (Ok(true), Ok(false)));
        assert_eq!(
            (runs("sm_999", 90), runs("sm_", 90), runs("90", 90)),
            (Err(()), Err(()), Err(()))
        );
        assert!(
            !Target::of_machine_code(80).runs_on(90) && Target::of_machine_code(80).runs_on(86)
        );
    }
}
