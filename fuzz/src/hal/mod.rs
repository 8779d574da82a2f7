//! Hostile calls of every method of `Backend`, on simulators of every profile and configuration.
//!
//! | module | concept |
//! | --- | --- |
//! | here | one round: a machine, calls until the bytes are used up, everything freed, the books |
//! | `machine` | which machine |
//! | `round`, `known` | a machine under attack, and what the attacker has of it |
//! | `arguments` | what calls are made with: live, freed, wild and extreme values |
//! | `memory`, `pools`, `work` | the calls by group |
//!
//! Arguments are as wrong as safe code can make them, and as `unsafe` code may make them where the
//! trait leaves checking to the back end. What the trait calls undefined behaviour is left out:
//! registering host memory that does not exist.

mod arguments;
mod known;
mod machine;
mod memory;
mod pools;
mod round;
mod virtual_memory;
mod work;

use pagewise_hal::Backend;
use pagewise_sim::SimBackend;

use crate::{Choices, Log};
use known::Known;
use round::Round;

pub(crate) use round::code;

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
