//! Files that appear complete or not at all.
//!
//! The text is written elsewhere first, and the kind of the named file decides the rest:
//!
//! - A regular file, or none: the text goes to a new file beside it, which takes its place when it
//!   is complete. A symbolic link stays; the file that it points to is replaced.
//! - A device, a FIFO, a socket, or a link that points nowhere: the text is collected, and written
//!   through when it is complete.
//! - A directory is refused.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file in progress. Dropped before [`keep`](Self::keep), it leaves nothing.
///
/// ```
/// use std::io::Write;
/// use pagewise_trace::output::Output;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("trace.jsonl");
/// let mut output = Output::create(&path)?;
/// output.write_all(b"text")?;
/// assert!(!path.exists(), "it is not complete yet");
/// output.keep()?;
/// assert_eq!(std::fs::read(&path)?, b"text");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    writer: BufWriter<Destination>,
}

/// The destination of the text until it is complete.
#[derive(Debug)]
enum Destination {
    /// Beside the file that it replaces.
    Beside(NamedTempFile, PathBuf),
    /// In a file without a name, for what has to be written through.
    Apart(File),
}

impl Output {
    /// Begins a file.
    ///
    /// # Errors
    /// If there can be no such file: no such folder, no right to write there, a directory.
    pub fn create(path: &Path) -> io::Result<Self> {
        let destination = destination_for(path)?;
        Ok(Self { path: path.to_owned(), writer: BufWriter::new(destination) })
    }

    /// The file beside the named one that holds the text until it is complete, if there is one. A
    /// process that is ended by a signal leaves it behind, unless the program removes it.
    #[must_use]
    pub fn partial(&self) -> Option<&Path> {
        match self.writer.get_ref() {
            Destination::Beside(partial, _) => Some(partial.path()),
            Destination::Apart(_) => None,
        }
    }

    /// Ends it: now it can be seen.
    ///
    /// # Errors
    /// If the text cannot be written. The old file is still there then, unless it had to be written
    /// through.
    pub fn keep(self) -> io::Result<()> {
        let Self { path, writer } = self;
        writer.into_inner().map_err(io::IntoInnerError::into_error)?.keep(&path)
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
    let partial = new_file(folder.unwrap_or(Path::new(".")))?;
    Ok(Destination::Beside(partial, file))
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
                partial.persist(file)?;
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
            Self::Beside(partial, _) => partial.as_file_mut().write(bytes),
            Self::Apart(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
