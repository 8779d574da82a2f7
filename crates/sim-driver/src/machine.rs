//! The simulated machine of a driver, with a journal of its calls if the options ask for one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewise_hal::{Backend, Result, StreamHandle};
use pagewise_sim::{BegunKernel, HostFault, KernelOutput, Progress, SimBackend};
use pagewise_trace::format::{Header, RecordedOn};
use pagewise_trace::record::{Recorder, recover};

/// The files of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recording {
    /// A trace, which is complete when the process ends; until then its journal is beside it.
    Trace(PathBuf),
    /// A journal, of which another process makes the trace.
    Journal(PathBuf),
}

impl Recording {
    /// A file's name with `%p` in it, in which this process's number takes the place.
    fn of_process(path: &Path) -> PathBuf {
        match path.to_str() {
            Some(text) => text.replace("%p", &std::process::id().to_string()).into(),
            None => path.to_owned(),
        }
    }
}

/// The simulated machine of a driver.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The simulator itself, for what is no call of a driver. It is not noted.
    pub(crate) simulator: Arc<SimBackend>,
    recorder: Option<Arc<Recorder<Arc<SimBackend>>>>,
    recorded: Recorded,
}

/// The recording of a process, for its end.
#[derive(Debug)]
struct Recorded {
    /// The journal, and the trace that is made of it at the end.
    unfinished: Option<(PathBuf, PathBuf)>,
    /// The process that the files belong to: a child of `fork` must not end them.
    process: u32,
}

impl Machine {
    /// Begins the machine's recording. Calls of the driver go to the back end: the
    /// simulator, in a recorder if there is one.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub(crate) fn new(
        simulator: SimBackend,
        recording: Option<&Recording>,
    ) -> std::result::Result<(Arc<dyn Backend>, Self), String> {
        let simulator = Arc::new(simulator);
        let mut recorded = Recorded { unfinished: None, process: std::process::id() };
        let (journal, family) = match recording {
            None => return Ok((simulator.clone(), Self { simulator, recorder: None, recorded })),
            Some(Recording::Journal(path)) => (Recording::of_process(path), "run".to_owned()),
            Some(Recording::Trace(path)) => {
                let trace = Recording::of_process(path);
                let mut journal = trace.clone().into_os_string();
                journal.push(".journal");
                let family = Header::family_of(&trace);
                recorded.unfinished = Some((journal.clone().into(), trace));
                (journal.into(), family)
            }
        };
        let recorded_on = RecordedOn::of(&*simulator).map_err(|error| error.to_string())?;
        let header = Header::new(family, recorded_on);
        let recorder = Recorder::to_journal(simulator.clone(), &journal, &header);
        let unwritable = |error| format!("{}: cannot write: {error}", journal.display());
        let calls = Arc::new(recorder.map_err(unwritable)?);
        Ok((calls.clone(), Self { simulator, recorder: Some(calls), recorded }))
    }

    /// Services a fault of the host, and notes it.
    pub(crate) fn serve(&self, service: &mut dyn FnMut() -> Option<HostFault>) {
        match &self.recorder {
            Some(recorder) => {
                recorder.access_undeclared(|_| service().map(|fault| (fault.touch, fault.answer)))
            }
            None => _ = service(),
        }
    }

    /// Runs a kernel until it ends, or all its threads wait for memory to change. Notes its accesses
    /// if there is a recording.
    ///
    /// # Errors
    /// As [`BegunKernel::go_on`].
    ///
    /// # Safety
    /// As [`BegunKernel::go_on`].
    pub(crate) unsafe fn run(
        &self,
        kernel: &mut BegunKernel,
        output: &dyn KernelOutput,
        on: StreamHandle,
    ) -> Result<Progress> {
        match &self.recorder {
            // SAFETY: `go_on_traced` asks what this function asks.
            Some(recorder) => recorder
                .launch_observed(on, |simulator| unsafe { kernel.go_on_traced(simulator, output) }),
            // SAFETY: `go_on` asks what this function asks.
            None => unsafe { kernel.go_on(&self.simulator, output) },
        }
    }

    /// Makes the trace of the journal, at the end of the process.
    pub(crate) fn end(&self) {
        let Some((journal, trace)) = &self.recorded.unfinished else { return };
        if self.recorded.process != std::process::id() {
            return;
        }
        match recover(journal, trace) {
            // The trace is there, so its journal is of no more use; a failure leaves a file more.
            Ok(_) => _ = std::fs::remove_file(journal),
            Err(error) => eprintln!(
                "simulated CUDA driver: {}: {error}; its journal is {}",
                trace.display(),
                journal.display()
            ),
        }
    }
}
