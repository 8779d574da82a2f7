//! A log of allocations that RMM's replay benchmark reads.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{DevicePtr, Result};

use super::memory_resource::{MemoryKind, MemoryResource};
use crate::{Machine, Stream};

/// Writes each event of a resource as a line of comma-separated values, in the columns of RMM's
/// logging adaptor: `Thread,Time,Action,Pointer,Size,Stream`.
///
/// Actions are `allocate`, `allocate failure` and `free`. Time is the back end's clock as
/// hours:minutes:seconds.microseconds, virtual on the simulator, so that the same program writes
/// the same log. Threads are numbered as they come. A line that cannot be written fails no
/// allocation; it counts in [`lines_lost`](Self::lines_lost).
///
/// ```
/// use pagewise::resource::{ManagedMemoryResource, MemoryResource, ReplayLog};
/// use pagewise::{Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let log = ReplayLog::new(ManagedMemoryResource::direct(&machine), Vec::new());
/// let stream = Stream::legacy_default(&machine);
/// let ptr = log.allocate(4096, &stream)?;
/// // SAFETY: no work uses the memory.
/// unsafe { log.deallocate(ptr, 4096, &stream)? };
/// let text = String::from_utf8(log.into_writer()).expect("text");
/// let lines: Vec<&str> = text.lines().collect();
/// assert_eq!(lines[0], "Thread,Time,Action,Pointer,Size,Stream");
/// assert!(lines[1].contains(&format!(",allocate,{ptr},4096,0x0")), "{text}");
/// assert!(lines[2].contains(&format!(",free,{ptr},4096,0x0")), "{text}");
/// # Ok::<(), pagewise::Error>(())
/// ```
pub struct ReplayLog<R, W> {
    inner: R,
    writer: Mutex<W>,
    lost: AtomicU64,
}

impl<R: MemoryResource, W: Write + Send + 'static> ReplayLog<R, W> {
    /// Logs a resource from now on, after the line that names the columns.
    ///
    /// ```
    /// # use pagewise::{Machine, resource::{ManagedMemoryResource, ReplayLog}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let log = ReplayLog::new(ManagedMemoryResource::direct(&machine), std::io::sink());
    /// assert_eq!(log.lines_lost(), 0);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new(inner: R, writer: W) -> Self {
        let log = Self { inner, writer: Mutex::new(writer), lost: AtomicU64::new(0) };
        log.line(format_args!("Thread,Time,Action,Pointer,Size,Stream"));
        log
    }

    /// How many lines could not be written.
    ///
    /// ```
    /// # use pagewise::{Machine, resource::{ManagedMemoryResource, ReplayLog}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let full: &'static mut [u8] = &mut [];
    /// let log = ReplayLog::new(ManagedMemoryResource::direct(&machine), full);
    /// assert_eq!(log.lines_lost(), 1, "not even the first fits");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn lines_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Ends the log.
    ///
    /// ```
    /// # use pagewise::{Machine, resource::{ManagedMemoryResource, ReplayLog}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let log = ReplayLog::new(ManagedMemoryResource::direct(&machine), Vec::new());
    /// assert!(log.into_writer().ends_with(b"Stream\n"));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn into_writer(self) -> W {
        self.writer.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked(&self) -> MutexGuard<'_, W> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, text: fmt::Arguments<'_>) {
        if self.locked().write_all(format!("{text}\n").as_bytes()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn event(&self, action: &str, ptr: DevicePtr, bytes: u64, stream: &Stream) {
        let thread = thread_number();
        let time = Time(self.inner.machine().backend().clock_ns());
        let stream = stream.raw().as_raw();
        self.line(format_args!("{thread},{time},{action},{ptr},{bytes},{stream:#x}"));
    }
}

/// A number for each thread, from 1 on, in the order in which they ask.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Nanoseconds, as a time of day.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 / 1000;
        let seconds = micros / 1_000_000;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, micros % 1_000_000)
    }
}

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time;
// the inner resource gives it and made that promise.
unsafe impl<R: MemoryResource, W: Write + Send + 'static> MemoryResource for ReplayLog<R, W> {
    fn machine(&self) -> &Machine {
        self.inner.machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        self.inner.memory_kind()
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        let answer = self.inner.allocate(bytes, stream);
        match &answer {
            Ok(ptr) => self.event("allocate", *ptr, bytes, stream),
            Err(_) => self.event("allocate failure", DevicePtr::NULL, bytes, stream),
        }
        answer
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()> {
        self.event("free", ptr, bytes, stream);
        // SAFETY: the memory came from the inner resource with the same size, and the caller
        // promised that no other work uses it.
        unsafe { self.inner.deallocate(ptr, bytes, stream) }
    }
}

impl<R: fmt::Debug, W> fmt::Debug for ReplayLog<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayLog").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_read_as_a_time_of_day() {
        assert_eq!(Time(0).to_string(), "00:00:00.000000");
        assert_eq!(Time(3_723_004_005_999).to_string(), "01:02:03.004005");
    }
}
