//! Launches of kernels in PTX.

use std::ffi::c_int;

use pagewise_hal::StreamHandle;
use pagewise_sim::{BegunKernel, KernelFault, ProgramLaunch, Progress};

use super::load;
use crate::deferring::KernelRest;
use crate::driver::{Driver, Outcome, answer};
use crate::launch::{Executor, Launch, Ready, cluster_of};

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

    fn ready(&self, driver: &Driver, launch: &Launch, on: StreamHandle) -> Outcome<Ready> {
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
        let begun = driver.machine.simulator.begin_program(&of_program, &*driver.sim, on);
        let mut kernel = driver.warned(begun)?;
        Ok(Box::new(move |driver| {
            if driver.go_on(&mut kernel, on)? {
                return Ok(None);
            }
            let rest: KernelRest =
                Box::new(move |driver| driver.look_again(&mut kernel, on).transpose());
            Ok(Some(rest))
        }))
    }
}

impl Driver {
    /// Lets a kernel go on. Returns whether it ended: if not, it waits for memory to change. A kernel
    /// that ends early loses the device; launches are asynchronous, so calls after this have the
    /// error.
    fn go_on(&self, kernel: &mut BegunKernel, on: StreamHandle) -> Outcome<bool> {
        // SAFETY: the program that launched the kernel promised that no other code uses the memory,
        // and that the module's memory is live, which it is until the program unloads the module.
        let progress = unsafe { self.machine.run(kernel, &self.output, on) };
        match self.warned(progress)? {
            Progress::Spins => return Ok(false),
            Progress::Ended(None) => {}
            Progress::Ended(Some(fault)) => self.trapped(&fault),
        }
        Ok(true)
    }

    /// Lets a kernel go on if the memory that it waits for has changed. `None` if it still waits.
    fn look_again(&self, kernel: &mut BegunKernel, on: StreamHandle) -> Outcome<Option<()>> {
        // SAFETY: the program's promise, as for `go_on`.
        let spins = unsafe { kernel.is_spinning(&self.machine.simulator, &self.output) };
        if self.warned(spins)? {
            return Ok(None);
        }
        Ok(self.go_on(kernel, on)?.then_some(()))
    }

    /// The answer of the simulator, with its words in the log if it refuses.
    fn warned<T>(&self, answered: pagewise_hal::Result<T>) -> Outcome<T> {
        if let Err(error) = &answered {
            self.warn(error.detail());
        }
        answer(answered)
    }

    /// A kernel ended early: no later call that needs the device works.
    fn trapped(&self, fault: &KernelFault) {
        self.warn(&fault.report);
        self.faults.lose(fault.code);
    }
}
