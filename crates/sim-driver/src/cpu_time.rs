//! The processor time of this process.

use std::time::Duration;

/// The processor time that all threads of this process took so far.
#[cfg(target_os = "linux")]
pub(crate) fn of_process() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    // The clock runs from 0 on, so neither part is negative.
    Duration::try_from(time).unwrap_or_default()
}

/// Nothing: other hosts see no accesses of programs, so no kernel waits.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of_process() -> Duration {
    Duration::ZERO
}
