//! Files that host arrays spill to.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;

use super::error::{ManagerError, Result};

/// A mapped file of zeros, gone with this.
pub(crate) struct SpillFile {
    map: MmapMut,
    /// Where it still has a name, because it could not be removed while it is in use.
    named: Option<PathBuf>,
}

impl SpillFile {
    pub(crate) fn new(directory: &Path, bytes: usize) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("pagewise-{}-{number}.spill", std::process::id()));
        let failed = |error: std::io::Error| ManagerError::Spill {
            path: path.display().to_string(),
            why: error.to_string(),
        };
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = made.map_err(failed)?;
        let mapped = fill(&file, bytes).and_then(|()| {
            // SAFETY: no code may change or shorten the file while it is mapped. It was made above
            // under a name that is not used elsewhere, and only this process has it open.
            unsafe { MmapMut::map_mut(&file) }
        });
        // Without a name it goes with the mapping, however the process ends.
        let named = fs::remove_file(&path).is_err().then(|| path.clone());
        mapped.map(|map| Self { map, named }).map_err(failed)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        if let Some(path) = &self.named {
            // A destructor cannot report, and a file left behind does no harm.
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes zeros, so that a full disk is an error here, and not the end of the process at an access.
fn fill(mut file: &File, bytes: usize) -> std::io::Result<()> {
    let zeros = vec![0; bytes.min(1 << 20)];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(zeros.len());
        file.write_all(&zeros[..now])?;
        left -= now;
    }
    Ok(())
}
