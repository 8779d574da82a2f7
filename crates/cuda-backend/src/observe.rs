//! Seams for what the driver itself does not tell: what moved, and what the host has mapped.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;

use pagewise_hal::{MemoryEvent, PAGE_BYTES, PageRun, Result, Span};

/// A source of unified-memory records, such as the profiling library.
pub trait Observer: Debug + Send + Sync + 'static {
    /// The records since the last call, in order. Called when all work has been waited for.
    ///
    /// # Errors
    /// If records were lost or cannot be had.
    fn take_events(&self) -> Result<Vec<MemoryEvent>>;
}

/// A source of the host's page table.
pub trait HostPages: Debug + Send + Sync + 'static {
    /// Which of the pages that a range touches the host has mapped, as runs; adjacent runs differ.
    /// The range lies within one live allocation.
    ///
    /// # Errors
    /// If the page table cannot be read.
    fn host_page_map(&self, span: Span) -> io::Result<Vec<PageRun>>;
}

/// Linux's page map of this process.
#[derive(Debug)]
pub(crate) struct ProcessPageMap(File);

impl ProcessPageMap {
    /// Bytes of one page's entry; its highest bit says whether the page is present.
    const ENTRY_BYTES: usize = 8;
    const PRESENT: u64 = 1 << 63;

    /// Opens it, where the host's pages are those of managed memory.
    pub(crate) fn open() -> Option<Self> {
        // Elsewhere a page may be larger, and entries would stand for several of ours.
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return None;
        }
        File::open("/proc/self/pagemap").ok().map(Self)
    }
}

impl HostPages for ProcessPageMap {
    fn host_page_map(&self, span: Span) -> io::Result<Vec<PageRun>> {
        let Range { start: first_page, end } = span.pages_outward();
        let pages = end - first_page;
        let mut runs: Vec<PageRun> = Vec::new();
        let mut buffer = [0; PAGE_BYTES as usize];
        let per_read = (buffer.len() / Self::ENTRY_BYTES) as u64;
        let mut done = 0;
        while done < pages {
            let entries = (pages - done).min(per_read) as usize * Self::ENTRY_BYTES;
            let offset = (first_page + done) * Self::ENTRY_BYTES as u64;
            read_exact_at(&self.0, &mut buffer[..entries], offset)?;
            let (entries, _) = buffer[..entries].as_chunks();
            for &entry in entries {
                let mapped = u64::from_ne_bytes(entry) & Self::PRESENT != 0;
                match runs.last_mut() {
                    Some(run) if run.mapped == mapped => run.pages += 1,
                    _ => runs.push(PageRun { pages: 1, mapped }),
                }
            }
            done += entries.len() as u64;
        }
        Ok(runs)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(not(unix))]
fn read_exact_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::*;
    use pagewise_hal::DevicePtr;

    #[test]
    fn the_page_map_shows_the_pages_that_were_touched() {
        const PAGES: usize = 700;
        let map = ProcessPageMap::open().expect("Linux");
        let bytes = (PAGES + 1) * PAGE_BYTES as usize;
        let mut memory = vec![0_u8; bytes];
        let first = (memory.as_ptr() as u64).div_ceil(PAGE_BYTES);
        let start = (first * PAGE_BYTES - memory.as_ptr() as u64) as usize;
        for page in [3, 4, 690] {
            memory[start + page * PAGE_BYTES as usize + 5] = 1;
        }
        let span = Span::new(DevicePtr(first * PAGE_BYTES + 1), PAGES as u64 * PAGE_BYTES - 1);
        let runs = map.host_page_map(span).expect("own pages");
        assert_eq!(runs.iter().map(|run| run.pages).sum::<u64>(), PAGES as u64);
        assert!(runs.windows(2).all(|pair| pair[0].mapped != pair[1].mapped));
        let mut at = 0;
        for run in runs {
            for touched in [3, 4, 690] {
                assert!(run.mapped || !(at..at + run.pages).contains(&touched), "page {touched}");
            }
            at += run.pages;
        }
        assert_eq!(memory[start + 5], 0);
    }
}
