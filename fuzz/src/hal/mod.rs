//! Hostile calls of every method of `Backend`, on simulators of every profile and configuration.
//!
//! | module | concept |
//! | --- | --- |
//! | here | one round: a machine, calls until the bytes are used up, everything freed, the books |
//! | `machine` | which machine |
//! | `arguments` | what calls are made with: live, freed, wild and extreme values |
//! | `memory`, `pools`, `work` | the calls by group |
//!
//! Arguments are as wrong as safe code can make them, and as `unsafe` code may make them where the
//! trait leaves checking to the back end. What the trait calls undefined behaviour is left out:
//! registering host memory that does not exist.

mod arguments;
mod machine;
mod memory;
mod pools;
mod work;

use pagewise_hal::{Backend, DeviceId, Error, PoolAttribute, Result, Span, StreamHandle};
use pagewise_sim::SimBackend;

use crate::{Choices, Log, NO_CODE};
use arguments::Known;

/// Makes a machine and calls it until the bytes are used up, then frees everything.
///
/// # Panics
/// If the simulator does, or if memory is missing when all is freed.
pub fn attack(choices: &mut Choices<'_>, log: &mut Log) {
    let config = machine::config(choices);
    let Ok(sim) = log.call("new", || SimBackend::new(config), code) else { return };
    let mut round = Round { backend: &sim, sim: &sim, known: Known::new(&sim), choices, log };
    let before = round.free_bytes();
    while !round.choices.is_done() {
        round.step();
    }
    round.free_all();
    if !round.known.keeps_memory {
        assert_eq!(round.free_bytes(), before, "free memory of each device after all was freed");
    }
}

/// The same calls as [`attack`] on a machine that others use too. Frees what it made.
///
/// # Panics
/// If the simulator does.
pub fn attack_shared(sim: &SimBackend, choices: &mut Choices<'_>, log: &mut Log) {
    attack_through(sim, sim, choices, log);
}

/// The same calls as [`attack_shared`], of a wrapper around the machine. What only a simulator has
/// is called on the machine itself.
///
/// # Panics
/// If the simulator or the wrapper does.
pub fn attack_through(
    backend: &dyn Backend,
    sim: &SimBackend,
    choices: &mut Choices<'_>,
    log: &mut Log,
) {
    let mut round = Round { backend, sim, known: Known::new(sim), choices, log };
    while !round.choices.is_done() {
        round.step();
    }
    round.free_all();
}

/// One machine under attack.
struct Round<'a, 'b> {
    /// What is called: the machine, or a wrapper around it.
    backend: &'a dyn Backend,
    sim: &'a SimBackend,
    known: Known,
    choices: &'a mut Choices<'b>,
    log: &'a mut Log,
}

impl Round<'_, '_> {
    fn step(&mut self) {
        match self.choices.below(12) {
            0..=2 => self.allocate(),
            3 => self.free(),
            4 => self.advise(),
            5 | 6 => self.prefetch(),
            7 | 8 => self.touch(),
            9 => self.pool(),
            10 => self.stream_or_event(),
            _ => self.query(),
        }
    }

    /// Makes a call of the back end and counts its answer.
    fn call<T>(
        &mut self,
        name: &'static str,
        act: impl FnOnce(&dyn Backend) -> Result<T>,
    ) -> Option<T> {
        let backend = self.backend;
        self.log.call(name, || act(backend), code).ok()
    }

    fn free_bytes(&self) -> Vec<u64> {
        let devices = 0..self.sim.config().device_count();
        let info = |device: u32| self.sim.memory_info(DeviceId(device.cast_signed()));
        devices.filter_map(|device| info(device).ok()).map(|info| info.free_bytes).collect()
    }

    /// Frees what lives, in the order in which it was made, and gives all pools back.
    fn free_all(&mut self) {
        for Span { ptr, .. } in std::mem::take(&mut self.known.live) {
            // SAFETY: this round alone uses it.
            unsafe {
                if self.sim.free(ptr).is_err() && self.sim.free_pinned(ptr).is_err() {
                    let _ = self.sim.host_unregister(ptr);
                }
            }
        }
        for pool in std::mem::take(&mut self.known.pools) {
            // A default pool cannot be destroyed, and may have been told to keep what it has.
            let _ = self.sim.pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, 0);
            // SAFETY: nothing lives in it any more.
            let _ = unsafe { self.sim.pool_destroy(pool) };
        }
        let _ = self.sim.stream_synchronize(StreamHandle::NULL);
    }
}

/// The code of an answer.
pub(crate) fn code<T>(answer: &Result<T>) -> i32 {
    answer.as_ref().err().map_or(0, |error: &Error| error.code().unwrap_or(NO_CODE))
}
