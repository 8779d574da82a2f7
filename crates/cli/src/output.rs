//! Files that a command writes: complete or absent, and never in place of a device or a link.
//! [`pagewise_trace::output`] says how. `-` is standard output: the text is collected, and printed
//! when it is complete.
//!
//! Ctrl-C, or a signal that ends the process, removes what is not complete.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use pagewise_trace::output;
use tempfile::TempDir;

use crate::signals::when_asked_to_end;
use crate::standard::is_standard;
use crate::status::Failure;

/// The status of a command that was interrupted: 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: i32 = 130;

/// A file in progress.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    destination: Destination,
}

/// The destination of the text until it is complete.
#[derive(Debug)]
enum Destination {
    File(Partial<output::Output>),
    /// A file without a name, of what is to be printed.
    Stdout(BufWriter<File>),
}

impl Output {
    /// Begins a file.
    ///
    /// # Errors
    /// If there can be no such file.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let destination = if is_standard(path) {
            tempfile::tempfile().map(|file| Destination::Stdout(BufWriter::new(file)))
        } else {
            Partial::new(|| output::Output::create(path), output::Output::partial)
                .map(Destination::File)
        };
        let destination = destination.map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), destination })
    }

    /// Ends it: now it can be seen.
    ///
    /// # Errors
    /// If the text cannot be written. The old file is still there then, unless it had to
    /// be written through.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        let Self { path, destination } = self;
        let kept = match destination {
            Destination::File(mut partial) => {
                partial.held.flush().and_then(|()| partial.end(output::Output::keep))
            }
            Destination::Stdout(text) => {
                text.into_inner().map_err(io::IntoInnerError::into_error).and_then(print_all)
            }
        };
        kept.map_err(|error| cannot_write(&path, &error))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.destination {
            Destination::File(partial) => partial.held.write(bytes),
            Destination::Stdout(text) => text.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.destination {
            Destination::File(partial) => partial.held.flush(),
            Destination::Stdout(text) => text.flush(),
        }
    }
}

/// Prints a file. A reader that has seen enough, as `head` has, is no failure.
fn print_all(mut text: File) -> io::Result<()> {
    text.rewind()?;
    let mut stdout = io::stdout().lock();
    match io::copy(&mut text, &mut stdout).and_then(|_| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
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
        _ = when_asked_to_end(|| {
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
