//! Files that a command writes: complete or absent, and never in place of a device or a link.
//!
//! - A regular file, or none: the text goes to a new file beside it, which takes its place when it
//!   is complete. A symbolic link stays; the file that it points to is replaced.
//! - A device, a FIFO, a socket, or a link that points nowhere: the text is collected, and written
//!   through when it is complete.
//! - A directory is refused.
//!
//! Ctrl-C, or a signal that ends the process, removes what is not complete.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use tempfile::{NamedTempFile, TempDir};

use crate::status::Failure;

/// The status of a command that was interrupted: 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: i32 = 130;

/// A file in progress.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    writer: BufWriter<Destination>,
}

/// The destination of the text until it is complete.
#[derive(Debug)]
enum Destination {
    /// Beside the file that it replaces.
    Beside(Partial<NamedTempFile>, PathBuf),
    /// In a file without a name, for what has to be written through.
    Apart(File),
}

impl Output {
    /// Begins a file.
    ///
    /// # Errors
    /// If there can be no such file.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let destination = destination_for(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), writer: BufWriter::new(destination) })
    }

    /// Ends it: now it can be seen.
    ///
    /// # Errors
    /// If the text cannot be written. The old file is still there then, unless it had to
    /// be written through.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        let Self { path, writer } = self;
        let kept = writer.into_inner().map_err(io::IntoInnerError::into_error);
        kept.and_then(|destination| destination.keep(&path))
            .map_err(|error| cannot_write(&path, &error))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
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

fn destination_for(path: &Path) -> io::Result<Destination> {
    let there = path.symlink_metadata().ok();
    // Links are followed.
    let file = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
        }
        Ok(metadata) if metadata.is_file() => path.canonicalize()?,
        Err(_) if there.is_none() => path.to_owned(),
        _ => return Ok(Destination::Apart(tempfile::tempfile()?)),
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let partial = Partial::new(|| new_file(folder.unwrap_or(Path::new("."))), NamedTempFile::path);
    Ok(Destination::Beside(partial?, file))
}

/// A new file in `folder` with the rights that any new file gets.
fn new_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".pagewise-").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

impl Destination {
    fn keep(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Beside(partial, file) => {
                partial.end(|partial| partial.persist(file))?;
            }
            Self::Apart(mut text) => {
                text.rewind()?;
                let mut through =
                    OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
                io::copy(&mut text, &mut through)?;
                through.flush()?;
            }
        }
        Ok(())
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(partial, _) => partial.held.as_file_mut().write(bytes),
            Self::Apart(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    path: PathBuf,
}

impl<T> Partial<T> {
    /// Made under the lock: an interruption finds all of it or nothing.
    fn new(make: impl FnOnce() -> io::Result<T>, path: fn(&T) -> &Path) -> io::Result<Self> {
        let mut unfinished = unfinished();
        let held = make()?;
        let path = path(&held).to_owned();
        unfinished.paths.insert(path.clone());
        Ok(Self { held, path })
    }

    /// Ends it in another way than by removing it.
    fn end<R>(self, end: impl FnOnce(T) -> R) -> R {
        let mut unfinished = unfinished();
        unfinished.paths.remove(&self.path);
        end(self.held)
    }
}

impl Partial<TempDir> {
    /// A folder for what is needed meanwhile.
    pub(crate) fn folder() -> io::Result<Self> {
        Self::new(tempfile::tempdir, TempDir::path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
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
