//! Observations as events of the `tracing` crate.

use pagewise_hal::Processor;
use tracing::{Level, debug};

use super::buffers::Buffers;
use super::observation::Observation;
use super::stretch::{Stretch, What};

/// The target of the events.
const TARGET: &str = "pagewise::movement";

/// Whether a subscriber wants the events.
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(target: TARGET, Level::DEBUG)
}

/// An event for each stretch of an observation.
pub(crate) fn report(seen: &Observation) {
    if seen.lost > 0 {
        debug!(target: TARGET, count = seen.lost, "records are lost");
    }
    let buffers = Buffers::new(&seen.buffers);
    for stretch in seen.stretches(&buffers) {
        report_one(&stretch, &buffers.describe(stretch.span()));
    }
}

fn report_one(stretch: &Stretch, buffer: &str) {
    let (bytes, count) = (stretch.bytes(), stretch.records());
    let call = stretch.call().map(tracing::field::display);
    match stretch.what() {
        What::Copy { from, to, cause } => {
            debug!(target: TARGET, buffer, bytes, count, %from, %to, ?cause, call, "migrated");
        }
        What::GpuFault { device: processor } => {
            debug!(target: TARGET, buffer, count, %processor, call, "faulted");
        }
        What::CpuFault => {
            debug!(target: TARGET, buffer, count, processor = %Processor::HOST, call, "faulted");
        }
        What::RemoteMap { by: processor, at } => {
            debug!(target: TARGET, buffer, bytes, count, %processor, %at, call, "mapped remotely");
        }
        What::Thrashing => debug!(target: TARGET, buffer, bytes, count, call, "thrashing"),
        What::Throttling { processor } => {
            debug!(target: TARGET, buffer, count, %processor, call, "throttled");
        }
        What::Other => debug!(target: TARGET, buffer, count, call, "another record"),
    }
}
