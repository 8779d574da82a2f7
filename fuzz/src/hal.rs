//! Hostile calls of `Backend` on simulators.

use pagewise_hal::{AttachFlags, Backend, Error, Result};
use pagewise_sim::{SimBackend, SimConfig};

use crate::{Choices, Log, NO_CODE};

/// Makes a machine and calls it until the bytes are used up.
pub fn attack(choices: &mut Choices<'_>, log: &mut Log) {
    let devices = choices.below(4) as u32;
    let made = log.call("new", || SimBackend::new(SimConfig::h200().devices(devices)), code);
    let Ok(sim) = made else { return };
    while !choices.is_done() {
        let bytes = choices.edge();
        let ptr = log.call("alloc_managed", || sim.alloc_managed(bytes, AttachFlags::GLOBAL), code);
        if let Ok(ptr) = ptr {
            // SAFETY: nobody else uses it.
            let _ = log.call("free", || unsafe { sim.free(ptr) }, code);
        }
    }
}

fn code<T>(answer: &Result<T>) -> i32 {
    answer.as_ref().err().map_or(0, |error: &Error| error.code().unwrap_or(NO_CODE))
}
