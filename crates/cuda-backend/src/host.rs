//! The host's side: its accesses to memory, its page table, its clock.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use pagewise_hal::{HostAccess, HostTouch, PAGE_BYTES, PageRun, Result, Span};

/// How the host reaches memory, what its page table holds, and how time passes there.
///
/// Ranges lie within one live allocation that the host reaches; the back end has checked it.
pub trait Host: Debug + Send + Sync + 'static {
    /// Carries out a host access program and returns the sum of the bytes that it read.
    ///
    /// # Errors
    /// If the accesses could not be made; nothing was touched then.
    ///
    /// # Safety
    /// The range must be live memory that the host may read and write and that no other code uses.
    unsafe fn touch(&self, touch: HostTouch) -> Result<u64>;

    /// Whether [`page_map`](Self::page_map) works.
    fn shows_pages(&self) -> bool;

    /// Which of the pages that a range touches the host has mapped, as runs; adjacent runs differ.
    ///
    /// # Errors
    /// If the page table cannot be read.
    fn page_map(&self, span: Span) -> io::Result<Vec<PageRun>>;

    /// Nanoseconds since some moment before the back end was opened.
    fn clock_ns(&self) -> u64;

    /// Lets time pass.
    fn sleep_ns(&self, duration_ns: u64);
}

/// This process: volatile accesses, Linux's page map, the monotonic clock.
#[derive(Debug)]
pub(crate) struct Process {
    page_map: Option<File>,
    started: Instant,
}

impl Process {
    /// Bytes of one page's entry in the page map; its highest bit says whether it is present.
    const ENTRY_BYTES: usize = 8;
    const PRESENT: u64 = 1 << 63;

    pub(crate) fn new() -> Self {
        // Elsewhere a page may be larger, and entries would stand for several of ours.
        let same_pages = cfg!(all(target_os = "linux", target_arch = "x86_64"));
        let page_map = same_pages.then(|| File::open("/proc/self/pagemap").ok());
        Self { page_map: page_map.flatten(), started: Instant::now() }
    }
}

impl Host for Process {
    unsafe fn touch(&self, touch: HostTouch) -> Result<u64> {
        // SAFETY: `touch_here` asks for live memory of the host that no other code uses, and the
        // caller promised that of the range.
        Ok(unsafe { touch_here(touch) })
    }

    fn shows_pages(&self) -> bool {
        self.page_map.is_some()
    }

    fn page_map(&self, span: Span) -> io::Result<Vec<PageRun>> {
        let file = self.page_map.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let Range { start: first_page, end } = span.pages_outward();
        let pages = end - first_page;
        let mut runs: Vec<PageRun> = Vec::new();
        let mut buffer = [0; PAGE_BYTES as usize];
        let per_read = (buffer.len() / Self::ENTRY_BYTES) as u64;
        let mut done = 0;
        while done < pages {
            let entries = (pages - done).min(per_read) as usize * Self::ENTRY_BYTES;
            let offset = (first_page + done) * Self::ENTRY_BYTES as u64;
            read_exact_at(file, &mut buffer[..entries], offset)?;
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

    fn clock_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_ns(&self, duration_ns: u64) {
        std::thread::sleep(Duration::from_nanos(duration_ns));
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

/// Ascending, one access after another: volatile, so that each is made.
///
/// # Safety
/// The range must be live memory that the host may read and write and that no other code uses.
unsafe fn touch_here(HostTouch { span, stride_bytes, access }: HostTouch) -> u64 {
    let first = std::ptr::with_exposed_provenance_mut::<u8>(span.ptr.0 as usize);
    let offsets =
        (0..span.bytes.div_ceil(stride_bytes)).map(|place| (place * stride_bytes) as usize);
    let mut sum = 0;
    match access {
        HostAccess::Read => {
            for offset in offsets {
                // SAFETY: `offset` is below the range's length. The caller promised that the range
                // is live memory which the host may read and no other code uses.
                sum += u64::from(unsafe { first.add(offset).read_volatile() });
            }
        }
        HostAccess::Write(value) => {
            for offset in offsets {
                // SAFETY: `offset` is below the range's length. The caller promised that the range
                // is live memory which the host may write and no other code uses.
                unsafe { first.add(offset).write_volatile(value) };
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewise_hal::DevicePtr;

    #[test]
    fn a_host_program_touches_every_stride_below_the_end_and_nothing_else() {
        let mut memory = [1_u8; 100];
        let address = memory.as_mut_ptr().expose_provenance() as u64;
        let span = Span::new(DevicePtr(address), 90);
        let run = |stride_bytes, access| {
            // SAFETY: `touch_here` asks for live memory that no other code uses, and the range is
            // the test's own array.
            unsafe { touch_here(HostTouch { span, stride_bytes, access }) }
        };
        assert_eq!(run(30, HostAccess::Write(7)), 0);
        assert_eq!(run(1, HostAccess::Read), 87 + 3 * 7);
        assert_eq!(run(u64::MAX, HostAccess::Read), 7);
        assert_eq!(memory[90], 1);
        assert_eq!([0, 30, 60].map(|at| memory[at]), [7; 3]);
    }

    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn the_page_map_shows_the_pages_that_were_touched() {
        const PAGES: usize = 700;
        let process = Process::new();
        assert!(process.shows_pages());
        let bytes = (PAGES + 1) * PAGE_BYTES as usize;
        let mut memory = vec![0_u8; bytes];
        let first = (memory.as_ptr() as u64).div_ceil(PAGE_BYTES);
        let start = (first * PAGE_BYTES - memory.as_ptr() as u64) as usize;
        for page in [3, 4, 690] {
            memory[start + page * PAGE_BYTES as usize + 5] = 1;
        }
        let span = Span::new(DevicePtr(first * PAGE_BYTES + 1), PAGES as u64 * PAGE_BYTES - 1);
        let runs = process.page_map(span).expect("own pages");
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
