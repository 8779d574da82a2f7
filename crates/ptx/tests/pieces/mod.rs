//! Runs kernels by compiled pieces and by the interpreter, and compares all that can be seen.

#![allow(dead_code, reason = "each test uses some of it")]

use crate::machine::{BASE, Flat, Journal, PAGE, load};
use pagewise_ptx::execute::{Config, InstructionCounts, Kind, Launch, Stats, Step};
use pagewise_ptx::module::Kernel;

/// An access that waits: its block, warp, place among those of the warp, address and kind.
type Wait = (u64, u32, u32, u64, Kind);

/// All that can be seen of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) words: Vec<u32>,
    stats: Stats,
    instructions: InstructionCounts,
    pub(crate) report: Option<String>,
    /// The accesses that waited, time by time.
    waits: Vec<Vec<Wait>>,
    /// The instructions of warps at each pause.
    pauses: Vec<u64>,
}

/// A launch of a kernel that takes one or two pointers.
#[derive(Clone, Copy)]
pub(crate) struct Launched<'a> {
    pub(crate) text: &'a str,
    pub(crate) name: &'a str,
    pub(crate) grid: u32,
    /// Threads in x and y.
    pub(crate) block: [u32; 2],
    /// Whether pages come only when kernels wait for them.
    pub(crate) waits: bool,
    pub(crate) quantum: u32,
}

/// Where the second buffer is.
const SECOND: u64 = BASE + (1 << 17);
/// The words that are compared.
const COMPARED: usize = 1 << 16;

/// The bounds of a run: instructions of warps in all, and in a step.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    limit: Option<u64>,
    step: u64,
}

/// A run that ends after some millions of instructions.
pub(crate) const LIMITED: Bounds = Bounds { limit: Some(5_000_000), step: 1 << 20 };

/// A run that ends by itself.
pub(crate) const ENDLESS: Bounds = Bounds { limit: None, step: 1 << 20 };

/// A run that is compiled from its first instruction on, or interpreted.
pub(crate) fn seen(launched: Launched<'_>, bounds: Bounds, is_compiled: bool) -> Seen {
    if is_compiled {
        return compiled(launched, bounds, 0);
    }
    let kernel = load(launched.text).instantiate(&[]).unwrap().kernel(launched.name).unwrap();
    run(launched, &kernel, bounds, None)
}

/// A run by pieces that were made after so many visits.
pub(crate) fn compiled(launched: Launched<'_>, bounds: Bounds, after: u32) -> Seen {
    let kernel = load(launched.text).instantiate(&[]).unwrap().kernel(launched.name).unwrap();
    // The pieces stay with the kernel.
    for _ in 0..2 {
        run(launched, &kernel, bounds, Some(after));
    }
    run(launched, &kernel, bounds, Some(after))
}

pub(crate) fn run(
    launched: Launched<'_>,
    kernel: &Kernel,
    bounds: Bounds,
    compile_after: Option<u32>,
) -> Seen {
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    let input: Vec<u32> = (0..1 << 12).map(|at: u32| at.wrapping_mul(2_654_435_761)).collect();
    memory.write_words(BASE, &input);
    if launched.waits {
        memory.missing = (0..(1 << 20) / PAGE).collect();
    }
    let config = Config {
        compile_after,
        quantum: launched.quantum,
        instruction_limit: bounds.limit,
        ..Config::default()
    };
    let params: Vec<u8> = [BASE, SECOND].iter().flat_map(|address| address.to_le_bytes()).collect();
    let launch = Launch {
        grid: [launched.grid, 1, 1],
        block: [launched.block[0], launched.block[1], 1],
        dynamic_shared: 0,
        params: &params[..kernel.info().param_bytes as usize],
        cooperative: false,
        cluster: None,
    };
    let mut run = kernel.start(&launch, &config).unwrap();
    let (mut waits, mut pauses) = (Vec::new(), Vec::new());
    let report = loop {
        match run.step(&mut memory, &mut journal, bounds.step) {
            Step::Paused => pauses.push(run.stats().warp_instructions),
            Step::Done(_) => break None,
            Step::Trap(report) => break Some(report.to_string()),
            Step::Waiting => {
                let all = run.outstanding().iter();
                waits.push(
                    all.map(|o| (o.block, o.warp, o.nth, o.address, o.kind)).collect::<Vec<_>>(),
                );
                // One page at a time, so that pieces stop in many places.
                let page = (run.outstanding()[0].address - BASE) / PAGE;
                memory.missing.retain(|missing| *missing != page);
                memory.generation += 1;
            }
        }
    };
    assert!(memory.fences_hold());
    Seen {
        words: memory.words(BASE, COMPARED),
        stats: run.stats(),
        instructions: run.instructions(),
        report,
        waits,
        pauses,
    }
}

/// Compares runs that end after some millions of instructions.
#[track_caller]
pub(crate) fn same(launched: Launched<'_>) {
    same_in(launched, LIMITED);
}

/// Compares runs that end by themselves, in steps of so many instructions of warps.
#[track_caller]
pub(crate) fn same_in_steps(launched: Launched<'_>, step: u64) {
    same_in(launched, Bounds { limit: None, step });
}

/// Compares runs that end after so many instructions of warps, or by themselves.
#[track_caller]
pub(crate) fn same_within(launched: Launched<'_>, limit: u64) {
    same_in(launched, Bounds { limit: Some(limit), step: 1 << 20 });
}

/// Compares runs that end by themselves, by pieces that were made after so many visits: they have detours.
#[track_caller]
pub(crate) fn same_after(launched: Launched<'_>, after: u32) {
    compare(launched, &compiled(launched, ENDLESS, after), &seen(launched, ENDLESS, false));
}

#[track_caller]
fn same_in(launched: Launched<'_>, bounds: Bounds) {
    compare(launched, &seen(launched, bounds, true), &seen(launched, bounds, false));
}

#[track_caller]
fn compare(launched: Launched<'_>, compiled: &Seen, interpreted: &Seen) {
    if compiled != interpreted {
        let differ = |at: &usize| compiled.words[*at] != interpreted.words[*at];
        let first = (0..COMPARED).find(differ);
        panic!(
            "{}\nfirst word: {first:x?}, pauses the same: {}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
            launched.text,
            compiled.pauses == interpreted.pauses,
            compiled.stats,
            interpreted.stats,
            compiled.report,
            interpreted.report,
            compiled.waits,
            interpreted.waits,
        );
    }
}
