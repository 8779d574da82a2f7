//! Cases on a machine of their own.

use std::collections::BTreeMap;
use std::fs;

use pagewise_ptx::execute::{Cause, Config, Launch, Report};
use pagewise_ptx::module::Variable;

use super::case::{self, Case};
use super::corpus;
use super::machine::{Machine, pack};

/// The results of a case here.
pub(crate) struct Outcome {
    /// The driver's error code.
    pub(crate) status: u32,
    pub(crate) results: BTreeMap<String, Vec<u8>>,
    pub(crate) printed: String,
    pub(crate) report: Option<Box<Report>>,
}

/// Runs a case on a machine of its own, where accesses wait for pages or do not.
pub(crate) fn run(case: &Case, config: &Config, waits: bool) -> Result<Outcome, String> {
    let text = fs::read_to_string(corpus().join(&case.ptx)).unwrap();
    let mut machine = Machine::new();
    let instance = machine.load(&text)?;
    let mut addresses = BTreeMap::new();
    for buffer in &case.buffers {
        let address = if buffer.symbol {
            let named = |variable: &Variable| variable.name == buffer.name;
            let index = instance.module().variables().iter().position(named).unwrap();
            instance.address(index).unwrap()
        } else {
            machine.memory.allocate(buffer.bytes() as u64)
        };
        addresses.insert(buffer.name.as_str(), address);
        if let Some(contents) = buffer.contents() {
            machine.memory.write(address, &contents);
        }
    }
    let mut outcome =
        Outcome { status: 0, results: BTreeMap::new(), printed: String::new(), report: None };
    if waits {
        machine.memory.wait_for_pages();
    }
    for launch in &case.launches {
        let kernel = instance.kernel(&launch.kernel).ok_or("no such kernel")?;
        let params = pack(&kernel, &launch.arguments(|name| addresses[name]));
        let shape = Launch {
            grid: launch.grid,
            block: launch.block,
            dynamic_shared: launch.shared,
            params: &params,
            cooperative: launch.cooperative,
            cluster: None,
        };
        if let Err(report) = machine.launch(&kernel, shape, config) {
            outcome.status = status(&report.cause);
            outcome.report = Some(report);
            return Ok(outcome);
        }
    }
    for buffer in case.buffers.iter().filter(|buffer| buffer.result) {
        let mut bytes = machine.memory.read(addresses[buffer.name.as_str()], buffer.bytes());
        if buffer.sorted {
            bytes = sorted(&bytes, case::element_bytes(&buffer.kind));
        }
        outcome.results.insert(buffer.name.clone(), bytes);
    }
    outcome.printed = machine.services.printed.iter().map(|&byte| char::from(byte)).collect();
    Ok(outcome)
}

/// The driver's code of a cause.
fn status(cause: &Cause) -> u32 {
    match cause {
        Cause::Misaligned { .. } => 716,
        Cause::Trap => 719,
        Cause::Assert => 710,
        Cause::InstructionLimit => 702,
        Cause::IllegalAddress { .. } | Cause::OutsideShared { .. } | Cause::OutsideLocal { .. } => {
            700
        }
        _ => 999,
    }
}

/// Elements in ascending order, as unsigned numbers: no sorted buffer has others.
fn sorted(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut elements: Vec<&[u8]> = bytes.chunks_exact(size).collect();
    elements.sort_by(|a, b| a.iter().rev().cmp(b.iter().rev()));
    elements.concat()
}
