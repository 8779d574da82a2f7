//! Notes of launches that the caller carries out: a back end does not say what a kernel accessed.

use pagewise_hal::{Backend, RecordedLaunch, Result, StreamHandle};

use super::log::{Log, stream_of};
use super::recorder::Recorder;
use crate::format::{Launch, Op};
use crate::replay::code::coded;

/// A launch as a trace has it.
pub(super) fn launch_of(log: &Log, launch: &RecordedLaunch, stream: StreamHandle) -> Launch {
    Launch::of(launch, Some(stream_of(stream)), |span| log.ids.part(span))
}

impl<B: Backend> Recorder<B> {
    /// Carries out a launch by `launch`, which observes its accesses, waits for its stream and notes
    /// it. Calls that it makes on this recorder are noted before it.
    ///
    /// The bytes that a kernel writes are not known, so a replay does not compare sums of later reads
    /// of the memory that it accessed.
    ///
    /// # Errors
    /// Those of `launch`, which are not noted: a kernel that was not launched did nothing.
    pub fn launch_observed<T>(
        &self,
        stream: StreamHandle,
        launch: impl FnOnce(&B) -> Result<(T, RecordedLaunch)>,
    ) -> Result<T> {
        // No lock is held meanwhile: the launch may need memory, which is a call.
        drop(self.next_call());
        let ((launched, waited), ns) = self.timed(|inner| {
            let launched = launch(inner);
            (launched, inner.stream_synchronize(stream))
        });
        let (answer, launch) = launched?;
        let mut log = self.next_call();
        let op = Op::Launch(Box::new(launch_of(&log, &launch, stream)));
        log.note(&self.inner, op, coded(&waited), ns);
        Ok(answer)
    }
}
