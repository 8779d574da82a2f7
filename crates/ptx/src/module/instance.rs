//! Modules with addresses for their variables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use super::{KernelInfo, Module, Reference};
use crate::code::{Constant, Program, reached};
use crate::execute::FUNCTION_WINDOW;
use crate::jit::Editions;

/// Registers that a kernel keeps while a function that it calls runs, at least.
const CALL_REGISTERS: u32 = 4;

/// Refusals of places for modules.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InstanceError {
    /// The addresses are not one for each variable.
    #[error("the module has {expected} variables, and {given} addresses are given")]
    Count {
        /// The module's variables.
        expected: usize,
        /// The addresses.
        given: usize,
    },
    /// An address is no multiple of its variable's alignment, or none that a GPU has.
    #[error("the variable {name} cannot be at {address:#x}")]
    Address {
        /// The variable.
        name: String,
        /// The address.
        address: u64,
    },
}

/// A kernel that can be launched.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub(crate) info: Arc<KernelInfo>,
    pub(crate) program: Arc<Program>,
    /// The pieces of the program that are compiled.
    pub(crate) compiled: Arc<Editions>,
    pub(crate) files: Arc<Vec<(u32, String)>>,
    /// Where dynamic shared memory begins.
    pub(crate) static_shared: u32,
    /// The bytes of shared memory before all variables.
    pub(crate) reserved_shared: u32,
}

impl Kernel {
    /// The kernel's figures.
    #[must_use]
    pub fn info(&self) -> &KernelInfo {
        &self.info
    }
}

/// A module in a machine's memory.
#[derive(Debug)]
pub struct Instance {
    module: Arc<Module>,
    addresses: Vec<u64>,
    files: Arc<Vec<(u32, String)>>,
    /// Kernels that have been asked for.
    linked: Mutex<HashMap<u32, Kernel>>,
}

impl Module {
    /// Places the variables at addresses of the caller, one for each of [`Module::variables`]. The
    /// caller writes [`Instance::contents`] there, and zeros behind them.
    ///
    /// # Errors
    /// If an address is missing or misaligned.
    pub fn instantiate(self: &Arc<Self>, addresses: &[u64]) -> Result<Instance, InstanceError> {
        if addresses.len() != self.variables.len() {
            return Err(InstanceError::Count {
                expected: self.variables.len(),
                given: addresses.len(),
            });
        }
        for (variable, &address) in self.variables.iter().zip(addresses) {
            if !address.is_multiple_of(u64::from(variable.align.max(1))) || address >> 56 != 0 {
                return Err(InstanceError::Address { name: variable.name.clone(), address });
            }
        }
        Ok(Instance {
            module: Arc::clone(self),
            addresses: addresses.to_vec(),
            files: Arc::new(self.files.clone()),
            linked: Mutex::default(),
        })
    }

    /// Adds a kernel with the figures of all functions that it reaches.
    pub(crate) fn add_kernel(&mut self, mut kernel: KernelInfo) {
        let order = reached(&self.functions, kernel.function);
        kernel.static_shared = self.shared_layout(&order).1.saturating_sub(self.reserved_shared);
        for &index in &order[1..] {
            let function = &self.functions[index as usize];
            kernel.registers = kernel.registers.max(function.registers() + CALL_REGISTERS);
            kernel.local = kernel.local.saturating_add(function.frame);
        }
        kernel.registers = kernel.registers.min(kernel.registers_max);
        self.kernels.push(kernel);
    }

    /// The offsets of the shared variables that functions name, and where dynamic ones begin. The
    /// system's bytes come first: on an H200 the first variable is at 1024.
    fn shared_layout(&self, order: &[u32]) -> (HashMap<u32, u32>, u32) {
        let mut named: Vec<u32> =
            order.iter().flat_map(|&f| self.functions[f as usize].shared.clone()).collect();
        named.sort_unstable();
        named.dedup();
        let (mut offsets, mut at) = (HashMap::new(), self.reserved_shared);
        for dynamic in [false, true] {
            let mut dynamic_align = 1;
            for &index in &named {
                let variable = &self.shared[index as usize];
                if variable.dynamic == dynamic && dynamic {
                    dynamic_align = dynamic_align.max(variable.align);
                } else if variable.dynamic == dynamic {
                    at = at.next_multiple_of(variable.align.max(1));
                    offsets.insert(index, at);
                    at = at.saturating_add(variable.bytes);
                }
            }
            if dynamic {
                at = at.next_multiple_of(dynamic_align);
                for &index in &named {
                    offsets.entry(index).or_insert(at);
                }
            }
        }
        (offsets, at)
    }
}

impl Instance {
    /// The module.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The address of a variable, by its index.
    #[must_use]
    pub fn address(&self, variable: usize) -> Option<u64> {
        self.addresses.get(variable).copied()
    }

    /// The first bytes of a variable's contents, with the addresses that they hold.
    #[must_use]
    pub fn contents(&self, variable: usize) -> Vec<u8> {
        let Some(variable) = self.module.variables.get(variable) else { return Vec::new() };
        let mut bytes = variable.initial.clone();
        for relocation in &variable.relocations {
            let address = match relocation.to {
                Reference::Variable(index) => self.addresses[index as usize],
                Reference::Function(index) => function_address(index),
            };
            let value = address.wrapping_add(relocation.offset.cast_unsigned()).to_le_bytes();
            let (at, size) = (relocation.at as usize, relocation.bytes.min(8) as usize);
            bytes[at..at + size].copy_from_slice(&value[..size]);
        }
        bytes
    }

    /// The kernel of a name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        let info = self.module.kernels.iter().find(|kernel| kernel.name == name)?;
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        Some(linked.entry(info.function).or_insert_with(|| self.link(info)).clone())
    }

    fn link(&self, info: &KernelInfo) -> Kernel {
        let mut order = reached(&self.module.functions, info.function);
        // A table in memory may hold the address of any function that a variable names.
        let indirect = order.iter().any(|&index| self.module.functions[index as usize].indirect);
        if indirect {
            for index in self.module.named_functions() {
                for other in reached(&self.module.functions, index) {
                    if !order.contains(&other) {
                        order.push(other);
                    }
                }
            }
        }
        let (shared, static_shared) = self.module.shared_layout(&order);
        let value = |constant| match constant {
            Constant::Bits(bits) => bits,
            Constant::Variable(index, offset) => {
                self.addresses[index as usize].wrapping_add(offset.cast_unsigned())
            }
            Constant::Shared(index, offset) => u64::from(shared.get(&index).copied().unwrap_or(0))
                .wrapping_add(offset.cast_unsigned()),
            Constant::Function(index) => function_address(index),
        };
        Kernel {
            program: Arc::new(Program::link(&self.module.functions, &order, value)),
            compiled: Arc::default(),
            info: Arc::new(info.clone()),
            files: Arc::clone(&self.files),
            static_shared,
            reserved_shared: self.module.reserved_shared,
        }
    }
}

impl Module {
    /// The functions that variables' contents name, or that any function takes the address of.
    fn named_functions(&self) -> Vec<u32> {
        let relocations = self.variables.iter().flat_map(|variable| &variable.relocations);
        let named = relocations.filter_map(|relocation| match relocation.to {
            Reference::Function(index) => Some(index),
            Reference::Variable(_) => None,
        });
        let taken = self.functions.iter().flat_map(|function| function.references.iter().copied());
        named.chain(taken).collect()
    }
}

/// The address of a function of a module.
fn function_address(index: u32) -> u64 {
    FUNCTION_WINDOW + 16 * (u64::from(index) + 1)
}
