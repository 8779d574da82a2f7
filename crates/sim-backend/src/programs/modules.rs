//! Modules that calls of the trait loaded: handles, variables, settings of kernels.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_hal::{Code, DeviceId, FunctionAttribute, KernelParam, LaunchShape, ParamInfo, Span};
use pagewise_ptx::module::KernelInfo;

use super::limits::GridLimits;
use super::program::{Program, ProgramKernel};
use super::text::Text;
use crate::refusal::{Checked, bad_handle, invalid, refuse};

/// Bytes of shared memory that a block may have unless its kernel asks for more.
const SHARED_BYTES: u32 = 48 << 10;

/// The most blocks of a grid in each dimension, and threads of a block.
const GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const BLOCK: [u32; 3] = [1024, 1024, 64];

/// A variable of a module.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) span: Span,
}

/// A module in memory of a device.
#[derive(Debug)]
pub(crate) struct LoadedModule {
    pub(crate) device: DeviceId,
    pub(crate) program: Program,
    /// Those with memory.
    pub(crate) variables: Vec<Variable>,
    /// Ten times the major compute capability that the text is for, and the minor one.
    pub(crate) target: i32,
}

/// A kernel of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) device: DeviceId,
    pub(crate) kernel: ProgramKernel,
    target: i32,
    /// The most bytes of dynamic shared memory.
    dynamic_shared: AtomicU32,
}

#[derive(Debug, Default)]
struct Tables {
    last: u64,
    modules: BTreeMap<u64, (Arc<LoadedModule>, BTreeMap<String, u64>)>,
    functions: BTreeMap<u64, Arc<Function>>,
}

/// The modules of a machine.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    tables: Mutex<Tables>,
    pub(crate) text: Text,
}

impl Tables {
    fn handle(&mut self) -> u64 {
        self.last = self.last.saturating_add(1);
        self.last
    }

    fn module(&self, handle: u64) -> Checked<&Arc<LoadedModule>> {
        match self.modules.get(&handle) {
            Some((module, _)) => Ok(module),
            None => bad_handle("no live module of this machine: unloaded, or of another one"),
        }
    }
}

impl Modules {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, module: LoadedModule) -> u64 {
        let mut tables = self.lock();
        let handle = tables.handle();
        tables.modules.insert(handle, (Arc::new(module), BTreeMap::new()));
        handle
    }

    /// A module is gone, with its kernels. The caller frees its memory.
    pub(crate) fn remove(&self, handle: u64) -> Checked<Arc<LoadedModule>> {
        let mut tables = self.lock();
        tables.module(handle)?;
        let Some((module, functions)) = tables.modules.remove(&handle) else {
            return bad_handle("no live module");
        };
        functions.values().for_each(|function| _ = tables.functions.remove(function));
        Ok(module)
    }

    /// The handle of a kernel. Each kernel has one.
    pub(crate) fn function(&self, module: u64, name: &str) -> Checked<u64> {
        let mut tables = self.lock();
        let loaded = Arc::clone(tables.module(module)?);
        if name.contains('\0') {
            return invalid("the name of a kernel has no NUL");
        }
        if let Some(known) = tables.modules.get(&module).and_then(|(_, known)| known.get(name)) {
            return Ok(*known);
        }
        let Some(kernel) = loaded.program.kernel(name) else {
            return refuse(Code::NOT_FOUND, "the module has no kernel of this name");
        };
        let most = SHARED_BYTES.saturating_sub(kernel.kernel.info().static_shared);
        let function = Function {
            device: loaded.device,
            kernel,
            target: loaded.target,
            dynamic_shared: AtomicU32::new(most),
        };
        let handle = tables.handle();
        tables.functions.insert(handle, Arc::new(function));
        if let Some((_, known)) = tables.modules.get_mut(&module) {
            known.insert(name.to_owned(), handle);
        }
        Ok(handle)
    }

    /// A live kernel.
    pub(crate) fn live(&self, function: u64) -> Checked<Arc<Function>> {
        match self.lock().functions.get(&function) {
            Some(found) => Ok(Arc::clone(found)),
            None => bad_handle("no kernel of a live module of this machine"),
        }
    }

    /// The memory of a variable.
    pub(crate) fn global(&self, module: u64, name: &str) -> Checked<Span> {
        let tables = self.lock();
        let mut variables = tables.module(module)?.variables.iter();
        if name.contains('\0') {
            return invalid("the name of a variable has no NUL");
        }
        match variables.find(|variable| variable.name == name) {
            Some(found) => Ok(found.span),
            None => refuse(Code::NOT_FOUND, "the module has no variable of this name"),
        }
    }
}

impl Function {
    /// The figures of the kernel.
    pub(crate) fn info(&self) -> &KernelInfo {
        self.kernel.kernel.info()
    }

    pub(crate) fn params(&self) -> Vec<ParamInfo> {
        let params = self.info().params.iter();
        params
            .map(|one| ParamInfo {
                offset_bytes: u64::from(one.offset),
                bytes: u64::from(one.bytes),
            })
            .collect()
    }

    /// The most bytes of shared memory that a launch may add.
    pub(crate) fn dynamic_shared(&self) -> u32 {
        self.dynamic_shared.load(Ordering::Relaxed)
    }

    /// `cuFuncGetAttribute`
    pub(crate) fn attribute(
        &self,
        attribute: FunctionAttribute,
        capability: (i32, i32),
    ) -> Checked<i32> {
        let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        let info = self.info();
        Ok(match attribute {
            FunctionAttribute::MAX_THREADS_PER_BLOCK => number(info.max_threads),
            FunctionAttribute::SHARED_SIZE_BYTES => number(info.static_shared),
            FunctionAttribute::CONST_SIZE_BYTES => number(info.constant),
            FunctionAttribute::LOCAL_SIZE_BYTES => number(info.local),
            FunctionAttribute::NUM_REGS => number(info.registers),
            FunctionAttribute::PTX_VERSION => self.target,
            FunctionAttribute::BINARY_VERSION => {
                capability.0.saturating_mul(10).saturating_add(capability.1)
            }
            FunctionAttribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => number(self.dynamic_shared()),
            _ => return invalid("the simulator does not know the attribute of kernels"),
        })
    }

    /// `cuFuncSetAttribute`
    pub(crate) fn set_attribute(
        &self,
        attribute: FunctionAttribute,
        value: i32,
        limits: &GridLimits,
    ) -> Checked<()> {
        if attribute != FunctionAttribute::MAX_DYNAMIC_SHARED_SIZE_BYTES {
            return invalid("this attribute of kernels cannot be set");
        }
        let most = limits.block_shared_bytes.saturating_sub(self.info().static_shared);
        match u32::try_from(value) {
            Ok(value) if value <= most => {
                self.dynamic_shared.store(value, Ordering::Relaxed);
                Ok(())
            }
            _ => invalid("more shared memory than a block can have on this device"),
        }
    }

    /// Checks the shape of a launch, as an H200's driver does.
    pub(crate) fn check_shape(&self, shape: &LaunchShape, limits: &GridLimits) -> Checked<()> {
        let within = |of: [u32; 3], most: [u32; 3]| {
            of.iter().zip(most).all(|(one, most)| (1..=most).contains(one))
        };
        let LaunchShape { grid, block, shared_bytes } = *shape;
        if !within(grid, GRID) || !within(block, BLOCK) {
            return invalid("a grid with a dimension that is 0 or larger than a GPU takes");
        }
        let threads = block.iter().fold(1_u32, |all, one| all.saturating_mul(*one));
        let info = self.info();
        if threads > limits.block_threads.min(info.max_threads) {
            return invalid("more threads in a block than the device or the kernel allows");
        }
        if info.required_threads.is_some_and(|required| required != block) {
            return invalid("the kernel asks for another block (.reqntid)");
        }
        if shared_bytes > self.dynamic_shared() {
            return invalid(
                "more dynamic shared memory than the kernel may have: set \
                 MAX_DYNAMIC_SHARED_SIZE_BYTES first",
            );
        }
        Ok(())
    }

    /// The bytes of all parameters, each at its offset; the reason if they are not the kernel's.
    pub(crate) fn pack(&self, params: &[KernelParam]) -> Result<Vec<u8>, String> {
        let info = self.info();
        let expected = info.params.len();
        if params.len() != expected {
            let given = params.len();
            return Err(format!("the kernel takes {expected} parameters, and {given} are given"));
        }
        let mut bytes = vec![0; info.param_bytes as usize];
        for (index, (declared, given)) in info.params.iter().zip(params).enumerate() {
            let given = given.bytes();
            if given.len() != declared.bytes as usize {
                let (declared, given) = (declared.bytes, given.len());
                return Err(format!(
                    "parameter {index} has {declared} bytes, and {given} are given"
                ));
            }
            let start = declared.offset as usize;
            let place = bytes.get_mut(start..start.saturating_add(given.len()));
            place.unwrap_or_default().copy_from_slice(given);
        }
        Ok(bytes)
    }
}
