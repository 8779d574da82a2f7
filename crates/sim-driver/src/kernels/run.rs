//! Launches of kernels in PTX.

use std::ffi::c_int;

use pagewise_hal::StreamHandle;
use pagewise_sim::{KernelFault, ProgramLaunch};

use super::load;
use crate::driver::{Driver, Outcome, answer};
use crate::launch::{Executor, Launch, cluster_of};

/// `CU_LIMIT_STACK_SIZE`, `CU_LIMIT_MALLOC_HEAP_SIZE`
const STACK_BYTES: c_int = 0;
const HEAP_BYTES: c_int = 2;

/// Executes kernels of PTX.
#[derive(Debug)]
pub(crate) struct PtxKernel;

impl Executor for PtxKernel {
    fn check(&self, driver: &Driver, launch: &Launch, _on: StreamHandle) -> Outcome {
        load::kernel(driver, launch).map(drop)
    }

    fn run(&self, driver: &Driver, launch: &Launch, on: StreamHandle) -> Outcome {
        let kernel = load::kernel(driver, launch)?;
        let context = launch.function.context.unwrap_or_else(Driver::current);
        let (stack_bytes, heap_bytes) = {
            let contexts = driver.contexts();
            let stack_bytes = contexts.get(context)?.limit(STACK_BYTES)?;
            (stack_bytes, contexts.get(Driver::current())?.limit(HEAP_BYTES)?)
        };
        let of_program = ProgramLaunch {
            kernel: &kernel,
            device: launch.device,
            shape: launch.request.shape,
            parameters: &launch.parameters,
            is_cooperative: launch.request.is_cooperative,
            cluster: cluster_of(&launch.function, &launch.request)?,
            stack_bytes: u32::try_from(stack_bytes).unwrap_or(u32::MAX),
            heap_bytes: heap_bytes as u64,
        };
        let output = &driver.output;
        // SAFETY: `launch` asks that no other code uses the memory, which the program that launched
        // the kernel promised, and that the module's memory is live, which it is until the program
        // unloads the module.
        let ended = unsafe { driver.machine.launch(&of_program, &*driver.sim, output, on) };
        if let Err(error) = &ended {
            driver.warn(error.detail());
        }
        if let Some(fault) = answer(ended)? {
            driver.trapped(&fault);
        }
        // Launches are asynchronous: calls after this one have the error.
        Ok(())
    }
}

impl Driver {
    /// A kernel ended early: no later call that needs the device works.
    fn trapped(&self, fault: &KernelFault) {
        self.warn(&fault.report);
        // What the kernel printed before is not lost with the device.
        self.output.flush();
        self.faults.lose(fault.code);
    }
}
