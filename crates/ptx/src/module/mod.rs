//! Loaded modules: their kernels and variables, and their place in a machine's memory.

mod instance;
mod kernel;
mod variable;

use crate::code::{Function, SharedVariable};

pub use instance::{Instance, InstanceError, Kernel};
pub use kernel::{Clusters, KernelInfo, Parameter};
pub use variable::{Reference, Relocation, Space, Variable};

/// The GPU that a module is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The compute capability: major, minor.
    pub compute: (u32, u32),
}

/// A loaded module: each of its instructions is known.
#[derive(Debug)]
pub struct Module {
    pub(crate) functions: Vec<Function>,
    pub(crate) kernels: Vec<KernelInfo>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) shared: Vec<SharedVariable>,
    /// The bytes of shared memory before all variables, which the system has in each block.
    pub(crate) reserved_shared: u32,
    pub(crate) files: Vec<(u32, String)>,
}

impl Module {
    /// The kernels, in the order of the text.
    #[must_use]
    pub fn kernels(&self) -> &[KernelInfo] {
        &self.kernels
    }

    /// The variables in global and constant memory, in the order of the text.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }
}
