//! The interceptor that reports what calls moved.

use std::sync::{Mutex, PoisonError};

use pagewise_hal::{EventsSince, Operation, Result};

use super::spans::Spans;
use crate::intercept::{Call, Interceptor};
use crate::names::Remembering;
use crate::observe::report::{self, report};
use crate::{Machine, Observation, Scope, Watch};

/// Opens spans, and reports movements inside of them.
#[derive(Debug)]
pub(super) struct Movements {
    /// The machine inside, which is asked without spans.
    machine: Machine,
    source: Source,
}

/// The way in which the back end's records are had.
#[derive(Debug)]
enum Source {
    /// There are none.
    Nothing,
    /// The back end knows the call of each record.
    Calls,
    /// It does not: the position up to which records were reported.
    Stream(Mutex<u64>),
}

impl Movements {
    pub(super) fn of(machine: Machine) -> Self {
        let source = match machine.backend().events_since(u64::MAX) {
            Err(_) => Source::Nothing,
            Ok(EventsSince { calls: Some(_), .. }) => Source::Calls,
            Ok(EventsSince { position, .. }) => Source::Stream(Mutex::new(position)),
        };
        Self { machine, source }
    }

    /// Makes a call, and reports what it moved.
    fn report_call<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let watch = Watch::begin(Scope::this_thread(&self.machine));
        let answer = make();
        if let Ok(seen) = watch.and_then(Watch::end) {
            report(&seen);
        }
        answer
    }

    /// Reports the records since the last report. Two threads do not report one record twice.
    fn report_stream(&self, position: &Mutex<u64>) {
        let mut position = position.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(seen) = self.machine.backend().events_since(*position) {
            *position = seen.position;
            let remembering = Remembering::begin(&self.machine);
            report(&Observation::of(seen, false, 0, &remembering));
        }
    }
}

impl Interceptor for Movements {
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if !report::is_wanted() {
            return Spans.around(call, make);
        }
        Spans.around(call, || match &self.source {
            Source::Nothing => make(),
            Source::Calls => self.report_call(make),
            Source::Stream(position) => {
                // Records that are taken, and buffers that are freed, cannot be reported later.
                if is_last_chance(call.operation()) {
                    self.report_stream(position);
                }
                let answer = make();
                if waits(call.operation()) {
                    self.report_stream(position);
                }
                answer
            }
        })
    }
}

/// Calls that take records, or a buffer with its name, away.
fn is_last_chance(operation: Operation) -> bool {
    matches!(operation, Operation::TakeEvents | Operation::Free | Operation::FreeAsync)
}

/// Calls after which the records of a device are complete: they wait for it.
fn waits(operation: Operation) -> bool {
    use Operation::{DeviceTouch, EventSynchronize, KernelAccesses, StreamSynchronize};
    matches!(operation, StreamSynchronize | EventSynchronize | DeviceTouch | KernelAccesses)
}
