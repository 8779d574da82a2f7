//! cubie's memory manager beside [`MemoryManager`](pagewise_managers::manager::MemoryManager).
//!
//! Each step of a scenario is carried out here, and the state after it is compared with the state
//! that cubie's own program saw: refusals, warnings, hooks in their order, instances, free memory.

mod allocation;
mod carry_out;
mod explain;
mod scenario;

use std::sync::{Arc, OnceLock};

use pagewise::Machine;

use crate::around::Figures;
use crate::device::{ExactDevice, Memory};
use crate::differences::Compared;
use carry_out::Run;
use explain::Context;
use scenario::{Action, Scenario};

/// The machine of all scenarios, and its figures.
fn machine() -> Result<&'static (Machine, Figures<Memory>), String> {
    static MACHINE: OnceLock<Result<(Machine, Figures<Memory>), String>> = OnceLock::new();
    let made = MACHINE.get_or_init(|| {
        let figures = Figures::default();
        let simulator = pagewise::sim().map_err(|error| error.to_string())?;
        let device = Arc::new(ExactDevice::new(simulator, figures.clone()));
        let machine = Machine::new(device);
        Ok((machine, figures))
    });
    made.as_ref().map_err(Clone::clone)
}

/// Carries one scenario out and compares every step; ends where a documented difference leaves the
/// two managers in different states.
pub(crate) fn compare(line: &str) -> Result<Compared, String> {
    let scenario: Scenario =
        serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
    let name = format!("scenario {}", scenario.number);
    let (machine, figures) = machine()?;
    let left = figures.reset(scenario.total, scenario.free);
    left.map_err(|bytes| format!("{name}: {bytes} bytes are left of the one before"))?;
    let mut run = Run::new(machine, figures).map_err(|error| format!("{name}: {error}"))?;
    let mut is_active = false;
    let mut compared = Compared { steps: 0, listed: Vec::new(), unexplained: None };
    for (number, step) in scenario.steps.iter().enumerate() {
        if let Action::Mode { mode } = &step.action {
            is_active = mode == "active";
        }
        let before = run.members();
        let ours = run.step(&step.action);
        compared.steps += 1;
        let context = Context { action: &step.action, before: &before, is_active };
        let explained = explain::differences(&context, &step.seen, &ours);
        compared.listed.extend(explained.ids);
        if let Some(what) = explained.unexplained {
            compared.unexplained = Some(format!("{name}, step {number}: {what}"));
        }
        if explained.ends {
            break;
        }
    }
    compared.listed.sort_unstable();
    compared.listed.dedup();
    Ok(compared)
}
