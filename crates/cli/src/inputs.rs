//! The traces and programs that arguments name: files, `-` for standard input, and directories.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pagewise_trace::error::{Reason, TraceError};
use pagewise_trace::format::Header;
use pagewise_trace::reader::TraceReader;
use pagewise_trace::run::Input;

use crate::progress::Progress;
use crate::standard::{STANDARD, is_standard};
use crate::status::Failure;

const SUFFIXES: [&str; 3] = [".jsonl", ".jsonl.zst", ".jsonl.gz"];

/// Something to read a trace or a program from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Standard input. It can be read once.
    Stdin,
    File(PathBuf),
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        if is_standard(path) { Self::Stdin } else { Self::File(path.to_owned()) }
    }
}

/// The name as it was given.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str(STANDARD),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Source {
    /// The size, if that is known before it is read.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Stdin => None,
            Self::File(path) => {
                path.metadata().ok().filter(|file| file.is_file()).map(|it| it.len())
            }
        }
    }

    /// The last part of the name.
    #[cfg(feature = "calibrate")]
    pub(crate) fn file_name(&self) -> String {
        match self {
            Self::Stdin => "standard input".to_owned(),
            Self::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    /// The family of a program without a header: the file's name without its endings.
    pub(crate) fn family(&self) -> String {
        match self {
            Self::Stdin => "stdin".to_owned(),
            Self::File(path) => Header::family_of(path),
        }
    }

    /// The argument that stands for it.
    pub(crate) fn as_argument(&self) -> &Path {
        match self {
            Self::Stdin => Path::new(STANDARD),
            Self::File(path) => path,
        }
    }

    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Stdin => Box::new(io::stdin()),
            Self::File(path) => Box::new(File::open(path)?),
        })
    }

    /// Opens a trace. The bytes that are read count as progress.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub(crate) fn trace<'a>(&self, progress: &'a Progress) -> Result<TraceReader<'a>, TraceError> {
        TraceReader::new(self.to_string(), progress.counted(self.opened()?))
    }

    /// Opens a program. The bytes that are read count as progress.
    ///
    /// # Errors
    /// As [`TraceReader::open_program`].
    pub(crate) fn program<'a>(
        &self,
        default: Header,
        progress: &'a Progress,
    ) -> Result<TraceReader<'a>, TraceError> {
        TraceReader::program(self.to_string(), progress.counted(self.opened()?), default)
    }

    fn opened(&self) -> Result<Box<dyn Read + Send>, TraceError> {
        self.open().map_err(|error| TraceError::new(self.to_string(), None, Reason::Io(error)))
    }

    fn input(self, progress: &Progress) -> Input<'_> {
        let file = self.to_string();
        Input::reading(file, move || Ok(progress.counted(self.open()?)))
    }
}

/// A source, or the reason why an argument names none.
pub(crate) type Found = Result<Source, TraceError>;

/// The sources in the order of the arguments, those of a directory by name, not opened. A folder
/// that cannot be listed is a source that fails, so that the others are still read.
///
/// # Errors
/// If standard input is to be read twice.
pub(crate) fn sources(arguments: &[PathBuf]) -> Result<Vec<Found>, Failure> {
    if arguments.iter().filter(|path| is_standard(path)).count() > 1 {
        let message = "`-` is standard input, which can be read once: give it once, or a file";
        return Err(Failure::Usage(message.to_owned()));
    }
    let mut sources = Vec::new();
    for path in arguments {
        if !path.is_dir() {
            sources.push(Ok(Source::from(path.as_path())));
            continue;
        }
        match traces_in(path) {
            Ok(found) => sources.extend(found.into_iter().map(|file| Ok(Source::File(file)))),
            Err(error) => {
                let name = path.display().to_string();
                sources.push(Err(TraceError::new(name, None, Reason::Io(error))));
            }
        }
    }
    Ok(sources)
}

/// The size of all of them, if it is known before they are read.
pub(crate) fn total_bytes(sources: &[Found]) -> Option<u64> {
    // A source that cannot be read is not waited for.
    let bytes = sources.iter().flatten().map(Source::bytes);
    bytes.sum()
}

/// The sources as inputs of a replay.
pub(crate) fn inputs(sources: Vec<Found>, progress: &Progress) -> Vec<Input<'_>> {
    let input = |source: Found| match source {
        Ok(source) => source.input(progress),
        Err(error) => Input::failed(error.file().to_owned(), error),
    };
    sources.into_iter().map(input).collect()
}

fn traces_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in directory.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(io::Error::other("no *.jsonl, *.jsonl.zst or *.jsonl.gz in this directory"));
    }
    found.sort();
    Ok(found)
}
