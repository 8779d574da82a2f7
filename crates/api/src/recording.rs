//! Recordings of programs: a trace of the calls that a program makes on a machine.
//!
//! [`record()`] puts a recorder between a program and the back end of its machine, and writes a
//! trace that the command `pagewise` replays. The guide has a chapter, `recording`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagewise_hal::{Backend, Error, ErrorKind, Result};
use pagewise_trace::format::{Header, RecordedOn};
use pagewise_trace::record::Recorder;

pub use pagewise_trace::record::Written;

use crate::Machine;

const OPERATION: &str = "record";

/// Records a program: what it does with [`Recording::machine`] becomes a trace, which
/// `pagewise replay` carries out again and compares.
///
/// The file's name chooses the compression: `.zst` is zstd, `.gz` gzip, anything else plain text. A
/// file of that name is replaced when the recording is complete, and stays if it never is.
///
/// The machine may be of any back end, wrapped or not. Buffers and streams that it has are not part
/// of the recording: they stay usable with `machine`, and are refused with the recorded machine.
/// A replay does not have their memory, so it may differ in what depends on it: the place of small
/// buffers within 2 MiB, and evictions. Record from the start of a program.
///
/// Failures that an [injector](crate::inject) inside makes are recorded as answers of the back end.
/// Put it around [`Recording::backend`] instead to record the program's way out of them.
///
/// # Errors
/// Without a CUDA code: `InvalidValue` if there can be no file of that name, `NotPermitted` if the
/// system does not allow one. As [`Backend::device_count`]. Nothing was recorded or written then.
///
/// ```
/// use pagewise::{Device, ManagedBuffer, Stream};
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("trace.jsonl.zst");
///
/// let recording = pagewise::record(pagewise::sim()?, &path)?; // such as "trace.jsonl.zst"
/// let machine = recording.machine();
/// let stream = Stream::new(machine, Device::FIRST)?;
/// let numbers = ManagedBuffer::from_slice(machine, &[1_u32; 4096])?;
/// numbers.prefetch(Device::FIRST, &stream)?;
/// let written = recording.finish()?;
/// assert_eq!(written.to_string(), "3 operations in 1 case"); // allocate, write, prefetch
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn record(machine: impl Into<Machine>, path: impl AsRef<Path>) -> Result<Recording> {
    let (original, path) = (machine.into(), path.as_ref().to_owned());
    let header = Header::new(Header::family_of(&path), RecordedOn::of(original.backend())?);
    let recorder = Recorder::to_file(original.shared_backend(), &path, &header);
    let recorder = Arc::new(recorder.map_err(|error| unwritable(&path, &error))?);
    let machine = Machine::from(&recorder);
    Ok(Recording { original, machine, recorder, path, is_open: true })
}

/// A recording in progress.
///
/// It ends with [`finish`](Self::finish), or when it is dropped, also by a panic: the trace is
/// written then too. A failure of that counts in the original machine's
/// [`failures_on_drop`](Machine::failures_on_drop). A process that aborts or exits before leaves no
/// trace, and a file `.pagewise-*.partial` beside it.
///
/// # Differences from a machine that is not recorded
///
/// Calls are carried out one after another, whichever threads make them, and the stream of an
/// asynchronous call is waited for, because a trace is defined so. On the driver, accesses by the
/// host and by kernels are not seen, only those that go through a back end (`host_touch` and
/// `device_touch`): a trace of such a program tells its calls.
///
/// # Limits
///
/// A trace consists of cases, which begin without memory. The recording holds the case in progress:
/// its operations, its records, and after each operation the page tables of all live buffers of at
/// most 16 MiB. A case ends as soon as it is long (10,000 operations or 4 MiB of text) and nothing
/// that it allocated lives, pools included. At 200,000 operations or 64 MiB of text no reader would
/// take more: all later calls are left out. [`Written::left_out`] counts those, and calls that a
/// trace cannot express ([`Recorder`]).
pub struct Recording {
    original: Machine,
    machine: Machine,
    recorder: Arc<Recorder<Arc<dyn Backend>>>,
    path: PathBuf,
    is_open: bool,
}

impl Recording {
    /// The machine that is recorded. It stays usable when the recording has ended, and calls are
    /// not noted then.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The back end that is recorded, for layers around it.
    ///
    /// ```
    /// use pagewise::Machine;
    /// use pagewise::inject::FaultInjector;
    /// use std::sync::Arc;
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("trace.jsonl");
    ///
    /// let recording = pagewise::record(pagewise::sim()?, &path)?;
    /// let injector = Arc::new(FaultInjector::around(recording.backend()));
    /// let machine = Machine::from(&injector);
    /// # assert_eq!(machine.device_count()?, 1);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.machine.shared_backend()
    }

    /// The file that the trace goes to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the recording and writes the rest of the trace. Records of moved pages are named after
    /// the buffers that live at this moment: finish before you drop buffers to have names.
    ///
    /// # Errors
    /// Without a CUDA code: `NotPermitted` if the file cannot be written, such as on a full disk.
    /// There is no new file then, and an older one stays.
    pub fn finish(mut self) -> Result<Written> {
        self.end()
    }

    fn end(&mut self) -> Result<Written> {
        self.is_open = false;
        self.recorder.finish().map_err(|error| unwritable(&self.path, &error))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.is_open {
            let machine = self.original.clone();
            machine.on_drop(|| self.end().map(drop));
        }
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording({:?}, {})", self.machine, self.path.display())
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind as Io;
    let kind = match error.kind() {
        Io::NotFound | Io::IsADirectory | Io::NotADirectory | Io::InvalidInput => {
            ErrorKind::InvalidValue
        }
        _ => ErrorKind::NotPermitted,
    };
    Error::new(OPERATION, kind).with_detail(format!("{}: cannot write: {error}", path.display()))
}
