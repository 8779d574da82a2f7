//! Hostile calls of the driver's C entry points.
//!
//! A [`Caller`] calls the entry points of the simulated driver of this process as a hostile C
//! program may: in any order, with wild handles, ordinals, sizes, flags and device addresses, with
//! null where a pointer is expected, with results in places of any alignment, after what it names
//! was freed. What C forbids it leaves out: every pointer that a driver follows is null or has as
//! much memory behind it as the call may use.
//!
//! Entry points that no attack is written for are called by their signatures ([`attack_symbols`]):
//! that is all symbols of the library, also those that it does not implement.
//!
//! Sizes between 4 MiB and 2^47 bytes are left out too: they are no attack but work.

mod arrays;
mod contexts;
mod copies;
mod device;
mod kernels;
mod made;
mod mappings;
mod memory;
mod movement;
mod pools;
mod programs;
mod rooms;
mod sharing;
mod signatures;
mod streams;
mod transfers;
mod virtual_memory;
mod world;

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::LazyLock;

use pagewise_driver::{cuInit, pagewise_driver_panics, pagewise_driver_recover};

use signatures::EntryPoint;
use world::Attempt;
pub use world::World;

use crate::{Choices, Log};

/// Every entry point, and what calls it.
const ENTRY_POINTS: &[&[(&str, Attempt)]] = &[
    contexts::ENTRY_POINTS,
    copies::ENTRY_POINTS,
    device::ENTRY_POINTS,
    kernels::ENTRY_POINTS,
    memory::ENTRY_POINTS,
    movement::ENTRY_POINTS,
    pools::ENTRY_POINTS,
    sharing::ENTRY_POINTS,
    streams::ENTRY_POINTS,
    transfers::ENTRY_POINTS,
    virtual_memory::ENTRY_POINTS,
];

/// The symbols for which no attack is written.
static UNWRITTEN: LazyLock<Vec<&EntryPoint>> = LazyLock::new(|| {
    let written: BTreeSet<&str> = entry_points().collect();
    signatures::TABLE.iter().filter(|entry| !written.contains(entry.symbol)).collect()
});

/// Those of them that the library implements.
static IMPLEMENTED: LazyLock<Vec<&EntryPoint>> =
    LazyLock::new(|| UNWRITTEN.iter().copied().filter(|entry| entry.answers).collect());

/// `CUDA_ERROR_UNKNOWN`
const UNKNOWN: c_int = 999;

/// The entry points for which an attack is written, by their symbols.
pub fn entry_points() -> impl Iterator<Item = &'static str> {
    attempts().map(|(symbol, _)| *symbol)
}

/// The symbols that are called by their signatures alone.
pub fn unwritten() -> impl Iterator<Item = &'static str> {
    UNWRITTEN.iter().map(|entry| entry.symbol)
}

fn attempts() -> impl Iterator<Item = &'static (&'static str, Attempt)> {
    ENTRY_POINTS.iter().copied().flatten()
}

/// A hostile C program.
#[derive(Debug)]
pub struct Caller<'a, 'b>(World<'a, 'b>);

impl<'a, 'b> Caller<'a, 'b> {
    /// A program that does what the choices say. It initialises the driver. A device that an earlier
    /// program lost is there again.
    #[must_use]
    pub fn new(choices: &'a mut Choices<'b>) -> Self {
        pagewise_driver_recover();
        cuInit(0);
        Self::without_start(choices)
    }

    /// The same, but nothing was initialised.
    #[must_use]
    pub fn without_start(choices: &'a mut Choices<'b>) -> Self {
        Self(World::new(choices))
    }

    /// The memory and handles of the program.
    #[must_use]
    pub fn world(&self) -> &World<'a, 'b> {
        &self.0
    }

    /// Whether the choices are used up.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.choices.is_done()
    }

    /// Gives the next call something to work on: mostly a context, pools, a stream and an event,
    /// and room. Calls are as hostile without, but most are refused early then.
    pub fn prepare(&mut self) {
        if !self.0.choices.chance(1, 16) {
            self.0.make_current();
            self.0.furnish();
        }
        self.0.make_room();
    }

    /// Makes one hostile call: its name and its `CUresult`.
    ///
    /// # Panics
    /// If the driver answers that something unknown went wrong, as it does after a panic.
    pub fn call(&mut self, log: &mut Log) -> (&'static str, c_int) {
        let which = self.0.choices.below(attempts().count() as u64) as usize;
        let &entry = attempts().nth(which).expect("the index is below the count");
        (entry.0, self.attempt(entry, log))
    }

    /// Makes one hostile call of every entry point but `cuInit`: names and `CUresult`s.
    ///
    /// # Panics
    /// As [`call`](Self::call).
    pub fn call_each(&mut self, log: &mut Log) -> Vec<(&'static str, c_int)> {
        let others = attempts().filter(|(symbol, _)| *symbol != "cuInit");
        others.map(|&entry| (entry.0, self.attempt(entry, log))).collect()
    }

    /// Makes one hostile call of any symbol that the library exports: its name and its `CUresult`.
    /// Symbols that are implemented and have no attack written for them are called most.
    ///
    /// # Panics
    /// As [`call`](Self::call).
    pub fn call_any(&mut self, log: &mut Log) -> (&'static str, c_int) {
        match self.0.choices.below(8) {
            0..4 => self.call(log),
            4..7 => self.call_one_of(&IMPLEMENTED, log),
            _ => self.call_one_of(&UNWRITTEN, log),
        }
    }

    fn call_one_of(
        &mut self,
        symbols: &[&'static EntryPoint],
        log: &mut Log,
    ) -> (&'static str, c_int) {
        if symbols.is_empty() {
            return self.call(log);
        }
        let entry = self.0.choices.one_of(symbols);
        (entry.symbol, self.by_signature(entry, log))
    }

    /// Makes one hostile call of every symbol for which no attack is written: names and
    /// `CUresult`s.
    ///
    /// # Panics
    /// As [`call`](Self::call).
    pub fn call_each_symbol(&mut self, log: &mut Log) -> Vec<(&'static str, c_int)> {
        UNWRITTEN.iter().map(|entry| (entry.symbol, self.by_signature(entry, log))).collect()
    }

    fn by_signature(&mut self, entry: &'static EntryPoint, log: &mut Log) -> c_int {
        let code = log.call(entry.symbol, || entry.attack(&mut self.0), |code| *code);
        // An H200's driver answers so about machine code that it cannot link.
        let may_be_unknown = entry.symbol.starts_with("cuLinkAddData");
        assert!(code != UNKNOWN || may_be_unknown, "{} answered {UNKNOWN}", entry.symbol);
        code
    }

    fn attempt(&mut self, (symbol, attempt): (&'static str, Attempt), log: &mut Log) -> c_int {
        let code = log.call(symbol, || attempt(&mut self.0), |code| *code);
        // A descriptor of something else is the one thing that drivers do not know either.
        let may_be_unknown = symbol.ends_with("ImportFromShareableHandle");
        assert!(code != UNKNOWN || may_be_unknown, "{symbol} answered {UNKNOWN}");
        code
    }
}

/// Calls the driver of this process until the bytes are used up, then frees everything.
///
/// # Panics
/// If a call panicked.
pub fn attack(choices: &mut Choices<'_>, log: &mut Log) {
    let mut caller = Caller::new(choices);
    while !caller.is_done() {
        caller.prepare();
        caller.call(log);
    }
    drop(caller);
    assert_eq!(pagewise_driver_panics(), 0, "a call panicked, and the driver caught it");
}

/// As [`attack`], with calls of every symbol that the library exports among the others.
///
/// # Panics
/// If a call panicked.
pub fn attack_symbols(choices: &mut Choices<'_>, log: &mut Log) {
    let mut caller = Caller::new(choices);
    while !caller.is_done() {
        caller.prepare();
        caller.call_any(log);
    }
    drop(caller);
    assert_eq!(pagewise_driver_panics(), 0, "a call panicked, and the driver caught it");
}
