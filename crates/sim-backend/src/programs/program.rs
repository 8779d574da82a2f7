//! Modules of PTX: lowered once, with addresses for their variables.

use std::sync::Arc;

use pagewise_ptx::LoadError;
use pagewise_ptx::module::{Instance, InstanceError, Kernel, Module, Target, Variable};
use thiserror::Error;

use crate::repeats::{KernelIdentity, new_program};

/// An address for variables that have none: no memory is there.
pub(super) const NOWHERE: u64 = 1 << 55;

/// The name of a function that kernels get memory of the heap by.
const MALLOC: &str = " malloc";

/// A refusal of a program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The text, with the place in it.
    #[error(transparent)]
    Text(#[from] LoadError),
    /// The address of a variable.
    #[error(transparent)]
    Place(#[from] InstanceError),
}

/// A module of PTX, in the memory of a machine.
#[derive(Debug)]
pub struct Program {
    pub(super) instance: Instance,
    number: u64,
    /// Whether its kernels may use the heap of the device.
    uses_heap: bool,
}

/// A kernel of a [`Program`].
#[derive(Debug, Clone)]
pub struct ProgramKernel {
    pub(super) kernel: Kernel,
    pub(super) uses_heap: bool,
    pub(super) identity: KernelIdentity,
}

/// A variable of a program, for the caller to say where it is.
#[derive(Debug, Clone, Copy)]
pub struct ProgramVariable<'a>(pub(super) &'a Variable);

impl ProgramVariable<'_> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// A module of PTX that is checked and lowered, and in no memory yet.
#[derive(Debug)]
pub struct LoweredProgram {
    pub(super) module: Arc<Module>,
    uses_heap: bool,
}

impl LoweredProgram {
    /// Checks and lowers the text of a module for a GPU of a compute capability: major and minor.
    ///
    /// # Errors
    /// If the text is no PTX, is for a newer GPU, or has an instruction that is not executed.
    pub fn new((major, minor): (i32, i32), text: &str) -> Result<Self, LoadError> {
        let target = Target { compute: (major.unsigned_abs(), minor.unsigned_abs()) };
        let module = Arc::new(Module::load(text, &target)?);
        Ok(Self { module, uses_heap: text.contains(MALLOC) })
    }

    /// Registers of 32 bits of each thread of a kernel: an estimate, and the count that a launch
    /// takes of a multiprocessor's.
    #[must_use]
    pub fn registers(&self, kernel: &str) -> Option<u32> {
        let kernel = self.module.kernels().iter().find(|one| one.name == kernel)?;
        Some(kernel.registers)
    }

    /// The module with an address for each variable that has one.
    pub(super) fn at(
        &self,
        addresses: impl Iterator<Item = Option<u64>>,
    ) -> Result<Program, InstanceError> {
        let addresses: Vec<u64> = addresses.map(|place| place.unwrap_or(NOWHERE)).collect();
        let instance = self.module.instantiate(&addresses)?;
        Ok(Program { instance, number: new_program(), uses_heap: self.uses_heap })
    }
}

impl Program {
    /// The kernel of a name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<ProgramKernel> {
        let kernel = self.instance.kernel(name)?;
        let identity = KernelIdentity::new(self.number, name);
        Some(ProgramKernel { kernel, uses_heap: self.uses_heap, identity })
    }

    /// The first bytes of a variable, with the addresses that they hold.
    pub(super) fn contents(&self, variable: usize) -> Vec<u8> {
        self.instance.contents(variable)
    }
}
