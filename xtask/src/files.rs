//! Files of the repository, as checks read them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::Outcome;

/// A file, or all files of a folder that end so, in a fixed order.
pub(crate) fn files(path: &Path, end: &str) -> Outcome<Vec<PathBuf>> {
    if !path.is_dir() {
        let ends = path.extension().is_some_and(|extension| extension == end);
        return Ok(ends.then(|| path.to_owned()).into_iter().collect());
    }
    let entries = fs::read_dir(path).map_err(|error| about(path, &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let found: Vec<_> = paths.iter().map(|path| files(path, end)).collect::<Outcome<_>>()?;
    Ok(found.concat())
}

/// The text of a file.
pub(crate) fn text_of(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| about(path, &error))
}

fn about(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
