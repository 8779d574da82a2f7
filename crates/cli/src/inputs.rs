//! The traces that arguments name: files as they are, and the traces in directories.

use std::io;
use std::path::{Path, PathBuf};

use pagewise_trace::error::{Reason, TraceError};
use pagewise_trace::run::Input;

const SUFFIXES: [&str; 3] = [".jsonl", ".jsonl.zst", ".jsonl.gz"];

/// The traces, in the order of the arguments, those of a directory by name. A folder that cannot be
/// listed is an input that fails, so that the others are still replayed.
pub(crate) fn inputs(arguments: &[PathBuf]) -> Vec<Input<'static>> {
    let input = |path: Result<PathBuf, TraceError>| match path {
        Ok(path) => Input::file(path),
        Err(error) => Input::failed(error.file().to_owned(), error),
    };
    paths(arguments).into_iter().map(input).collect()
}

/// The paths of the inputs, not opened.
pub(crate) fn paths(arguments: &[PathBuf]) -> Vec<Result<PathBuf, TraceError>> {
    let mut paths = Vec::new();
    for path in arguments {
        if !path.is_dir() {
            paths.push(Ok(path.clone()));
            continue;
        }
        match traces_in(path) {
            Ok(found) => paths.extend(found.into_iter().map(Ok)),
            Err(error) => {
                let name = path.display().to_string();
                paths.push(Err(TraceError::new(name, None, Reason::Io(error))));
            }
        }
    }
    paths
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
