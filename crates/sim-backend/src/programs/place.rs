//! Programs in the machine's memory, placed where their variables are.

use pagewise_hal::{DevicePtr, HostAddresses};
use pagewise_ptx::module::{Instance, Reference, Variable};

use super::program::{LoweredProgram, NOWHERE, Program, ProgramError, ProgramVariable};
use crate::backend::SimBackend;

impl Program {
    /// Places a module in the memory of a machine. `address` says where a variable is; one without
    /// an address is nowhere. The caller has written first contents there, apart from the addresses
    /// of functions, which this writes.
    ///
    /// # Errors
    /// If an address is misaligned.
    ///
    /// # Safety
    /// An address is that of live memory of this machine, which no other code uses meanwhile, with
    /// as many bytes as the text says.
    pub unsafe fn place(
        sim: &SimBackend,
        lowered: &LoweredProgram,
        mut address: impl FnMut(ProgramVariable<'_>) -> Option<u64>,
    ) -> Result<Self, ProgramError> {
        let variables = lowered.module.variables();
        let program = lowered.at(variables.iter().map(|one| address(ProgramVariable(one))))?;
        for (index, variable) in variables.iter().enumerate() {
            // SAFETY: by this function's contract variables that are somewhere have memory.
            unsafe { place_functions(sim, &program.instance, index, variable) };
        }
        Ok(program)
    }
}

/// Writes the addresses of functions into a variable. Its other contents are there since the module
/// was loaded, and the program may have changed them.
///
/// # Safety
/// A variable that is somewhere has live memory there, which no other code uses.
unsafe fn place_functions(
    sim: &SimBackend,
    instance: &Instance,
    index: usize,
    variable: &Variable,
) {
    let Some(address) = instance.address(index).filter(|address| *address != NOWHERE) else {
        return;
    };
    let is_function = |to: &Reference| matches!(to, Reference::Function(_));
    let relocations = variable.relocations.iter().filter(|one| is_function(&one.to));
    let contents = instance.contents(index);
    for relocation in relocations {
        let (at, bytes) = (relocation.at as usize, relocation.bytes as usize);
        let Some(value) = contents.get(at..at.saturating_add(bytes)) else { continue };
        let place = sim.kernel_address(DevicePtr(address.saturating_add(relocation.at))).0;
        let place = std::ptr::with_exposed_provenance_mut::<u8>(place as usize);
        // SAFETY: the bytes are those of a live variable of the module, at the address by which a
        // simulated device reaches them. No kernel of the module has run yet.
        unsafe { place.copy_from_nonoverlapping(value.as_ptr(), value.len()) };
    }
}
