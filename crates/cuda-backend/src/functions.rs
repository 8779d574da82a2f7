//! Kernels and variables of callers' modules as the driver describes them.

use std::ffi::{CString, c_int};

use pagewise_hal::{
    BestBlock, Code, DevicePtr, Error, ErrorKind, FunctionAttribute, FunctionHandle, ModuleHandle,
    ParamInfo, Result, Span,
};

use crate::abi::{Handle, handle};
use crate::backend::CudaBackend;
use crate::modules::NO_MODULE;

/// No kernel has more bytes of parameters (32,764), and each has at least one.
const PARAMS_MAX: usize = 1 << 15;

impl CudaBackend {
    pub(crate) fn module_global(&self, module: ModuleHandle, name: &str) -> Result<Span> {
        const OPERATION: &str = "module_global";
        let raw = module.as_raw();
        let _module = self.use_module(OPERATION, raw, NO_MODULE)?;
        let Ok(name) = CString::new(name) else {
            return Err(Error::from_code(OPERATION, Code::INVALID_VALUE)
                .with_detail("the name of a variable has no NUL"));
        };
        let device = self.modules.device(raw).unwrap_or_default();
        let (mut ptr, mut bytes) = (0, 0);
        let find = self.driver.table.module_get_global;
        // SAFETY: the module is live because this call uses it. The driver reads the name up to its
        // NUL, and writes to two locals that outlive the call.
        self.device(OPERATION, device)?.context.call(OPERATION, || unsafe {
            find(&raw mut ptr, &raw mut bytes, handle(raw), name.as_ptr())
        })?;
        Ok(Span::new(DevicePtr(ptr), bytes as u64))
    }

    pub(crate) fn function_params(&self, function: FunctionHandle) -> Result<Vec<ParamInfo>> {
        const OPERATION: &str = "function_params";
        let Some(ask) = self.driver.table.func_get_param_info else {
            return Err(Error::new(OPERATION, ErrorKind::Unsupported)
                .with_detail("drivers tell the parameters of kernels from CUDA 12.4 on"));
        };
        let mut params = Vec::new();
        while params.len() < PARAMS_MAX {
            let (index, mut offset, mut bytes) = (params.len(), 0, 0);
            let asked = self.of_function(OPERATION, function, |function| {
                // SAFETY: the function is live, as `of_function` says. The driver writes to two
                // locals that outlive the call.
                unsafe { ask(function, index, &raw mut offset, &raw mut bytes) }
            });
            match asked {
                Ok(()) => {
                    params.push(ParamInfo { offset_bytes: offset as u64, bytes: bytes as u64 })
                }
                // There are no more.
                Err(error) if error.code() == Some(Code::INVALID_VALUE) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(params)
    }

    pub(crate) fn function_attribute(
        &self,
        function: FunctionHandle,
        FunctionAttribute(attribute): FunctionAttribute,
    ) -> Result<i32> {
        let ask = self.driver.table.func_get_attribute;
        let mut value: c_int = 0;
        // SAFETY: the function is live, as `of_function` says. The driver writes to a local.
        self.of_function("function_attribute", function, |function| unsafe {
            ask(&raw mut value, attribute, function)
        })?;
        Ok(value)
    }

    pub(crate) fn function_set_attribute(
        &self,
        function: FunctionHandle,
        FunctionAttribute(attribute): FunctionAttribute,
        value: i32,
    ) -> Result<()> {
        let set = self.driver.table.func_set_attribute;
        // SAFETY: the function is live, as `of_function` says.
        self.of_function("function_set_attribute", function, |function| unsafe {
            set(function, attribute, value)
        })
    }

    pub(crate) fn occupancy_blocks(
        &self,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        let ask = self.driver.table.occupancy_blocks;
        let threads = c_int::try_from(block_threads).unwrap_or(c_int::MAX);
        let mut blocks: c_int = 0;
        // SAFETY: the function is live, as `of_function` says. The driver writes to a local.
        self.of_function("occupancy_blocks", function, |function| unsafe {
            ask(&raw mut blocks, function, threads, shared_bytes as usize)
        })?;
        Ok(blocks.unsigned_abs())
    }

    pub(crate) fn occupancy_best_block(
        &self,
        function: FunctionHandle,
        shared_bytes: u32,
        threads_max: u32,
    ) -> Result<BestBlock> {
        let ask = self.driver.table.occupancy_best_block;
        let limit = c_int::try_from(threads_max).unwrap_or(c_int::MAX);
        let (mut grid, mut block): (c_int, c_int) = (0, 0);
        let shared = shared_bytes as usize;
        // SAFETY: the function is live, as `of_function` says. The driver writes to two locals. There
        // is no callback.
        self.of_function("occupancy_best_block", function, |function| unsafe {
            ask(&raw mut grid, &raw mut block, function, std::ptr::null(), shared, limit)
        })?;
        Ok(BestBlock { grid_blocks: grid.unsigned_abs(), block_threads: block.unsigned_abs() })
    }

    /// Makes a call about a function, which is live meanwhile: this call uses its module, or the
    /// code that vouched for the function promised it.
    fn of_function(
        &self,
        operation: &'static str,
        function: FunctionHandle,
        mut call: impl FnMut(Handle) -> i32,
    ) -> Result<()> {
        let (_module, device) = self.use_function(operation, function)?;
        let context = &self.device(operation, device.unwrap_or_default())?.context;
        context.call(operation, || call(handle(function.as_raw())))
    }
}
