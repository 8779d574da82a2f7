//! Modules as the simulator executes them: each is lowered at the first launch of a kernel of it.

use std::fmt::Display;
use std::sync::Arc;

use pagewise_hal::Code;
use pagewise_sim::{Program, ProgramKernel};

use crate::driver::{Driver, Outcome};
use crate::launch::Launch;

/// The kernel of a launch.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if the module has an instruction that is not executed, which the log
/// names; `CUDA_ERROR_NO_BINARY_FOR_GPU` for machine code.
pub(super) fn kernel(driver: &Driver, launch: &Launch) -> Outcome<ProgramKernel> {
    let mut known = driver.instances.lock();
    let program = match known.get(&launch.module) {
        Some(program) => program,
        None => known.entry(launch.module).or_insert(Arc::new(program(driver, launch)?)),
    };
    program.kernel(launch.function.kernel()?.name()).ok_or(Code::NOT_FOUND)
}

fn program(driver: &Driver, launch: &Launch) -> Outcome<Program> {
    let programs = driver.programs();
    let module = programs.module(launch.module)?;
    if module.image.text.is_empty() {
        return driver.refuse_machine_code();
    }
    let refuse = |error: &dyn Display| {
        driver.refuse_why(&format!("a kernel's module is not executed: {error}"))
    };
    let lowered = match module.image.lowered() {
        Ok(lowered) => lowered,
        Err(error) => return refuse(error),
    };
    // SAFETY: the module's variables have their memory as long as the module is, which the lock keeps.
    // No kernel of the module has run yet.
    let program = unsafe {
        Program::place(&driver.machine.simulator, lowered, |variable| {
            let index = module.image.variable(variable.name());
            index.and_then(|index| module.storage.address(index))
        })
    };
    program.or_else(|error| refuse(&error))
}
