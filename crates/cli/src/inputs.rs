//! From arguments to traces: files as they are, directories as the traces in them.

use std::io;
use std::path::{Path, PathBuf};

use pagewise_trace::error::{Reason, TraceError};
use pagewise_trace::run::Input;

const SUFFIXES: [&str; 3] = [".jsonl", ".jsonl.zst", ".jsonl.gz"];

/// The traces, in the order of the arguments, those of a directory by name. What cannot be listed
/// is an input that fails, so that the others are still replayed.
pub(crate) fn inputs(arguments: &[PathBuf]) -> Vec<Input<'static>> {
    let mut inputs = Vec::new();
    for path in arguments {
        if !path.is_dir() {
            inputs.push(Input::file(path.clone()));
            continue;
        }
        match traces_in(path) {
            Ok(found) => inputs.extend(found.into_iter().map(Input::file)),
            Err(error) => {
                let name = path.display().to_string();
                let error = TraceError::new(name.clone(), None, Reason::Io(error));
                inputs.push(Input::failed(name, error));
            }
        }
    }
    inputs
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
