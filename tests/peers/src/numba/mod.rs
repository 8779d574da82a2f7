//! numba-cuda's memory manager beside the [external memory managers](pagewise_managers::emm).
//!
//! Each step of a scenario is carried out here, and what can be seen after it is compared with what
//! numba's own program saw: refusals, the driver's calls in their order, deallocations that wait.

mod carry_out;
mod device;
mod explain;
mod scenario;

use std::sync::{Arc, OnceLock};

use pagewise::SimBackend;

use crate::differences::Compared;
use carry_out::Run;
use scenario::Scenario;

/// The simulator under all scenarios.
fn simulator() -> Result<&'static Arc<SimBackend>, String> {
    static SIMULATOR: OnceLock<Result<Arc<SimBackend>, String>> = OnceLock::new();
    let made = SIMULATOR.get_or_init(|| pagewise::sim().map_err(|error| error.to_string()));
    made.as_ref().map_err(Clone::clone)
}

/// Carries one scenario out and compares every step; ends where a documented difference leaves the
/// two managers in different states.
pub(crate) fn compare(line: &str) -> Result<Compared, String> {
    let scenario: Scenario =
        serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
    let name = format!("scenario {}", scenario.number);
    let about = |error: pagewise::Error| format!("{name}: {error}");
    let simulator = simulator()?;
    let mut run = Run::new(&scenario, simulator);
    run.start().map_err(about)?;
    let mut compared = Compared { steps: 0, listed: Vec::new(), unexplained: None };
    for (number, step) in scenario.steps.iter().enumerate() {
        let subject = run.subject(&step.action);
        let ours = run.step(step).map_err(|why| format!("{name}, step {number}: {why}"))?;
        compared.steps += 1;
        let explained = explain::differences(step, &ours, subject);
        compared.listed.extend(explained.id);
        if let Some(what) = explained.unexplained {
            compared.unexplained = Some(format!("{name}, step {number}: {what}"));
        }
        if explained.ends {
            break;
        }
    }
    run.close(&**simulator).map_err(about)?;
    compared.listed.sort_unstable();
    compared.listed.dedup();
    Ok(compared)
}
