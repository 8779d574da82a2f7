//! Images of device code: PTX, machine code (cubins), and fat binaries of both.
//!
//! An image is read into its kernels and variables. It is data of a program and may be damaged: no
//! number in it is trusted, and what it can make the reader allocate is bounded by its own length
//! and by fixed limits.

mod cubin;
pub(crate) mod fatbin;
pub(crate) mod parts;
pub(crate) mod ptx;
pub(crate) mod source;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt;
use std::sync::OnceLock;

use pagewise_hal::DriverVersion;
use pagewise_ptx::LoadError;
use pagewise_sim::LoweredProgram;

use fatbin::Form;
use parts::{Kernel, Space, Target, Variable};

/// `CUDA_ERROR_INVALID_IMAGE`
pub(crate) const INVALID_IMAGE: c_int = 200;
/// `CUDA_ERROR_NO_BINARY_FOR_GPU`
pub(crate) const NO_BINARY_FOR_GPU: c_int = 209;

/// The first four bytes of an ELF file.
const ELF: u32 = u32::from_le_bytes([0x7F, b'E', b'L', b'F']);

/// The machine that an image is to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Ten times the major compute capability, and the minor one.
    pub(crate) capability: u32,
    pub(crate) driver: DriverVersion,
}

/// The reason why an image is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The `CUresult`.
    pub(crate) code: c_int,
    /// The text for the log of errors; may be empty.
    pub(crate) log: String,
}

impl Refusal {
    fn new(code: c_int) -> Self {
        Self { code, log: String::new() }
    }

    /// Whether it is text of a newer PTX than the driver's.
    pub(crate) fn is_newer_ptx(&self) -> bool {
        self.code == ptx::UNSUPPORTED_PTX_VERSION
    }

    /// An image without code for the machine.
    fn no_binary(machine: Machine) -> Self {
        let capability = machine.capability;
        let log = format!(
            "error   : the image has no PTX, and no machine code for compute capability {}.{}; \
             build with PTX: -gencode arch=compute_75,code=compute_75",
            capability / 10,
            capability % 10
        );
        Self { code: NO_BINARY_FOR_GPU, log }
    }

    /// Bytes that are no image.
    fn not_an_image() -> Self {
        let log = "error   : Binary format for key='0', ident='' is not recognized".to_owned();
        Self { code: INVALID_IMAGE, log }
    }
}

impl From<ptx::Fault> for Refusal {
    fn from(fault: ptx::Fault) -> Self {
        // The compiler ends its report so, unless the version is what it does not know.
        let is_syntax =
            fault.to_string().contains("line ") && fault.code != ptx::UNSUPPORTED_PTX_VERSION;
        let end =
            if is_syntax { "\nptxas fatal   : Ptx assembly aborted due to errors" } else { "" };
        Self { code: fault.code, log: format!("{fault}{end}") }
    }
}

/// A program for a device.
#[derive(Default)]
pub(crate) struct Image {
    /// The text of PTX; empty for machine code.
    pub(crate) text: Vec<u8>,
    /// A function that it calls and another module has to define.
    unresolved: Option<String>,
    pub(crate) target: Target,
    /// The compute capability of the device: ten times the major one, and the minor one.
    capability: u32,
    /// The text as it is executed, once a caller asked for it.
    lowered: OnceLock<Result<LoweredProgram, LoadError>>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
    /// Indices by name.
    kernel_indices: BTreeMap<String, usize>,
    variable_indices: BTreeMap<String, usize>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.kernels.iter().map(Kernel::name);
        f.debug_list().entries(names).finish()
    }
}

impl Image {
    /// Reads an image of any kind.
    pub(crate) fn read(bytes: &[u8], machine: Machine) -> Result<Self, Refusal> {
        let magic = bytes.first_chunk().map(|first| u32::from_le_bytes(*first));
        match magic {
            Some(fatbin::MAGIC) => Self::of_container(bytes, machine),
            Some(ELF) => Self::of_cubin(bytes, machine),
            _ if ptx::is_ptx(bytes) => Self::of_ptx(bytes, machine),
            _ => Err(Refusal::not_an_image()),
        }
    }

    /// Takes the form of a program that fits the device best. Text is better than machine code of
    /// which nothing is executed, and code for newer GPUs is better.
    fn of_container(bytes: &[u8], machine: Machine) -> Result<Self, Refusal> {
        let mut entries = fatbin::entries(bytes);
        entries.retain(|entry| entry.target.runs_on(machine.capability));
        let best = entries.into_iter().max_by_key(|entry| (entry.form, entry.target));
        let best = best.ok_or_else(|| Refusal::no_binary(machine))?;
        let contents = best.contents().ok_or_else(|| Refusal::new(INVALID_IMAGE))?;
        match best.form {
            Form::Ptx => Self::of_ptx(&contents, machine),
            Form::Cubin => Self::of_cubin(&contents, machine),
        }
    }

    fn of_cubin(bytes: &[u8], machine: Machine) -> Result<Self, Refusal> {
        let cubin = cubin::read(bytes).ok_or_else(Refusal::not_an_image)?;
        if !cubin.target.runs_on(machine.capability) {
            return Err(Refusal::no_binary(machine));
        }
        let new = Self::new(Vec::new(), cubin.target, cubin.kernels, cubin.variables);
        Ok(Self { capability: machine.capability, ..new })
    }

    fn of_ptx(text: &[u8], machine: Machine) -> Result<Self, Refusal> {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let text = text.get(..end).unwrap_or_default();
        let module = ptx::read(text, machine.driver)?;
        let ptx::Module { target, kernels, variables, unresolved } = module;
        if !target.runs_on(machine.capability) {
            return Err(ptx::Fault::newer_target().into());
        }
        let new = Self::new(text.to_vec(), target, kernels, variables);
        Ok(Self { unresolved, capability: machine.capability, ..new })
    }

    fn new(text: Vec<u8>, target: Target, kernels: Vec<Kernel>, variables: Vec<Variable>) -> Self {
        let names = kernels.iter().enumerate();
        let kernel_indices = names.map(|(index, one)| (one.name().to_owned(), index)).collect();
        let names = variables.iter().enumerate();
        let variable_indices = names.map(|(index, one)| (one.name.clone(), index)).collect();
        Self {
            text,
            target,
            kernels,
            variables,
            kernel_indices,
            variable_indices,
            ..Self::default()
        }
    }

    /// The text, checked and lowered by the first caller. Machine code has none.
    pub(crate) fn lowered(&self) -> Result<&LoweredProgram, &LoadError> {
        let lower = || {
            let [major, minor] = [self.capability / 10, self.capability % 10].map(u32::cast_signed);
            LoweredProgram::new((major, minor), &String::from_utf8_lossy(&self.text))
        };
        self.lowered.get_or_init(lower).as_ref()
    }

    /// The image, if it can be loaded as it is, without others.
    pub(crate) fn whole(self) -> Result<Self, Refusal> {
        match &self.unresolved {
            Some(name) => Err(ptx::Fault::unresolved(name).into()),
            None => Ok(self),
        }
    }

    /// The index of a kernel.
    pub(crate) fn kernel(&self, name: &str) -> Option<usize> {
        self.kernel_indices.get(name).copied()
    }

    /// The index of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<usize> {
        self.variable_indices.get(name).copied()
    }

    /// Bytes of constant memory of all its variables.
    pub(crate) fn constant_bytes(&self) -> u64 {
        let constants = self.variables.iter().filter(|one| one.space == Space::Constant);
        constants.fold(0, |all, one| all.saturating_add(one.bytes))
    }
}

#[cfg(test)]
mod tests;
