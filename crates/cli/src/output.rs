//! Files that a command writes: complete or absent, and never in place of a device or a link.
//! [`pagewise_trace::output`] says how.
//!
//! Ctrl-C, or a signal that ends the process, removes what is not complete.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use pagewise_trace::output;
use tempfile::TempDir;

use crate::status::Failure;

/// The status of a command that was interrupted: 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: i32 = 130;

/// A file in progress.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    partial: Partial<output::Output>,
}

impl Output {
    /// Begins a file.
    ///
    /// # Errors
    /// If there can be no such file.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let partial = Partial::new(|| output::Output::create(path), output::Output::partial);
        let partial = partial.map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), partial })
    }

    /// Ends it: now it can be seen.
    ///
    /// # Errors
    /// If the text cannot be written. The old file is still there then, unless it had to
    /// be written through.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        let Self { path, mut partial } = self;
        let kept = partial.held.flush().and_then(|()| partial.end(output::Output::keep));
        kept.map_err(|error| cannot_write(&path, &error))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.held.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.partial.held.flush()
    }
}

/// Writes a whole file.
pub(crate) fn write_file(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let mut output = Output::create(path)?;
    output.write_all(text).map_err(|error| cannot_write(path, &error))?;
    output.keep()
}

/// The message if a file cannot be written.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Input(format!("{}: cannot write: {error}", path.display()))
}

// ---- interruption -----------------------------------------------------------------------------

/// Files that go when the process is interrupted.
#[derive(Debug)]
struct Unfinished {
    paths: BTreeSet<PathBuf>,
    child: Option<Child>,
}

static UNFINISHED: Mutex<Unfinished> =
    Mutex::new(Unfinished { paths: BTreeSet::new(), child: None });

fn unfinished() -> MutexGuard<'static, Unfinished> {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // Where signals cannot be watched, an interruption leaves a file behind: no reason to
        // refuse the command.
        _ = ctrlc::set_handler(|| {
            // Held to the end, so that nothing new is begun.
            let mut unfinished = unfinished();
            if let Some(child) = &mut unfinished.child {
                _ = child.kill();
                _ = child.wait();
            }
            for path in &unfinished.paths {
                // If this fails too, there is no other place to report it.
                _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
            }
            std::process::exit(INTERRUPTED);
        });
    });
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file or folder that goes when it is dropped, and when the process is interrupted.
#[derive(Debug)]
pub(crate) struct Partial<T> {
    held: T,
    /// `None` for a file without a name, which goes by itself.
    path: Option<PathBuf>,
}

impl<T> Partial<T> {
    /// Made under the lock: an interruption finds all of it or nothing.
    fn new(
        make: impl FnOnce() -> io::Result<T>,
        path: fn(&T) -> Option<&Path>,
    ) -> io::Result<Self> {
        let mut unfinished = unfinished();
        let held = make()?;
        let path = path(&held).map(Path::to_owned);
        unfinished.paths.extend(path.clone());
        Ok(Self { held, path })
    }

    /// Ends it in another way than by removing it.
    fn end<R>(self, end: impl FnOnce(T) -> R) -> R {
        let Some(path) = self.path else { return end(self.held) };
        let mut unfinished = unfinished();
        unfinished.paths.remove(&path);
        end(self.held)
    }
}

impl Partial<TempDir> {
    /// A folder for what is needed meanwhile.
    pub(crate) fn folder() -> io::Result<Self> {
        Self::new(tempfile::tempdir, |folder| Some(folder.path()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.held.path()
    }
}

/// Runs a process to its end, or ends it when this one is interrupted.
pub(crate) fn run_to_end(command: &mut Command) -> io::Result<ExitStatus> {
    const PAUSE: Duration = Duration::from_millis(20);
    {
        let mut unfinished = unfinished();
        unfinished.child = Some(command.spawn()?);
    }
    loop {
        let ended = match &mut unfinished().child {
            Some(child) => child.try_wait()?,
            None => return Err(io::Error::other("the process is no longer known")),
        };
        if let Some(status) = ended {
            unfinished().child = None;
            return Ok(status);
        }
        std::thread::sleep(PAUSE);
    }
}
