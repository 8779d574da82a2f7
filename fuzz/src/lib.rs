//! Attackers: programs that make hostile calls and read hostile files.
//!
//! An attack is a function from bytes to calls. The bytes are a file of the corpus, an input of
//! libFuzzer, or those of a seed; one function serves all three. See `fuzz/README.md` for how to
//! run one, and for how to repeat a call that failed.
//!
//! | target | what it attacks |
//! | --- | --- |
//! | `hal` | every method of `Backend`, on simulators of every profile and configuration |
//! | `trace_reader` | the reader of recordings, and the replay of what it takes |
//! | `profile_reader` | the reader of profiles, and machines of what it takes |
//! | `c_abi` | every entry point of the simulated driver, as a hostile C program |
//! | `symbols` | every symbol that the simulated driver exports, by its signature |
//! | `api` | the typed API over a back end that fails now and then |
//!
//! # Adding a target
//!
//! Write a module with one public function `attack` of type [`Attack`], and a row in [`TARGETS`].
#![deny(missing_docs)]

pub mod api;
pub mod c_abi;
pub mod campaign;
mod choices;
pub mod hal;
mod log;
pub mod profile_reader;
pub mod trace_reader;
pub mod unchanged;

pub use choices::Choices;
pub use log::{Log, NO_CODE, Running, Tally};

/// Makes calls as the bytes say, each through [`Log::call`], until the bytes are used up.
///
/// Panics if an answer breaks a rule. Whatever the attack makes, it frees.
pub type Attack = fn(&mut Choices<'_>, &mut Log);

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name on the command line, and the folder of the corpus.
    pub name: &'static str,
    /// The function that makes the calls.
    pub attack: Attack,
    /// How many bytes a seed gives to one round.
    pub round_bytes: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "hal", attack: hal::attack, round_bytes: 4096 },
    Target { name: "c_abi", attack: c_abi::attack, round_bytes: 16384 },
    Target { name: "symbols", attack: c_abi::attack_symbols, round_bytes: 16384 },
    Target { name: "trace_reader", attack: trace_reader::attack, round_bytes: 256 },
    Target { name: "profile_reader", attack: profile_reader::attack, round_bytes: 96 },
    Target { name: "api", attack: api::attack, round_bytes: 512 },
];

/// The target with this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
