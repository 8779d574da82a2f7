//! The traces of a program: one of each process that called the driver, made of its journal.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pagewise_trace::record::recover;

use super::loader::JOURNAL;
use crate::output::cannot_write;
use crate::status::Failure;

/// Writes the traces. The first process, by the time of its last call, gets the name as it is.
pub(super) fn write(folder: &Path, path: &Path) -> Result<(), Failure> {
    let unreadable =
        |error: std::io::Error| Failure::Input(format!("{}: {error}", folder.display()));
    let mut journals: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.path().extension().is_some_and(|extension| extension == JOURNAL) {
            let changed = entry.metadata().and_then(|data| data.modified()).map_err(unreadable)?;
            journals.push((changed, entry.path()));
        }
    }
    journals.sort();
    for (number, (_, journal)) in (1_u32..).zip(&journals) {
        let name = numbered(path, number);
        recover(journal, &name).map_err(|error| cannot_write(&name, &error))?;
    }
    Ok(())
}

/// `run.jsonl.zst`, then `run.2.jsonl.zst`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, extensions) = name.split_once('.').unwrap_or((&name, "jsonl"));
    path.with_file_name(format!("{stem}.{number}.{extensions}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_processes_get_a_number_before_the_extensions() {
        let name = |path: &str, number| numbered(Path::new(path), number);
        assert_eq!(name("a/run.jsonl.zst", 1), Path::new("a/run.jsonl.zst"));
        assert_eq!(name("a/run.jsonl.zst", 2), Path::new("a/run.2.jsonl.zst"));
        assert_eq!(name("run", 3), Path::new("run.3.jsonl"));
    }
}
