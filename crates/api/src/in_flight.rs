//! A buffer's record of the copies and fills that streams were given and that were not waited for.
//!
//! No guard stands for work in flight, so nothing can be forgotten: the memory itself knows which
//! streams use it, and whatever else uses it waits for them.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{Result, Span};

use crate::Stream;

/// The work of one stream on a buffer.
#[derive(Debug)]
struct Work {
    stream: Stream,
    /// The addresses from the first to the last byte that is used: at least what is in use, so that
    /// the record does not grow with the number of copies.
    bytes: Range<u64>,
    writes: bool,
    /// The number of its latest part.
    number: u64,
}

impl Work {
    /// Whether an access to these bytes has to come after this work.
    fn is_before(&self, bytes: &Range<u64>, writes: bool) -> bool {
        (self.writes || writes) && self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

#[derive(Debug, Default)]
struct Works {
    works: Vec<Work>,
    /// How many copies and fills there were.
    count: u64,
}

/// The copies and fills of a buffer that may be in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Mutex<Works>);

/// Bytes as a range of addresses. Spans of live memory do not pass the end of the address space.
fn addresses(span: Span) -> Range<u64> {
    span.ptr.0..span.ptr.0.saturating_add(span.bytes)
}

impl InFlight {
    /// The list is as good as it was if a thread panicked while holding it.
    fn locked(&self) -> MutexGuard<'_, Works> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream was given work on these bytes.
    pub(crate) fn add(&self, span: Span, stream: &Stream, writes: bool) {
        let bytes = addresses(span);
        let mut list = self.locked();
        list.count = list.count.saturating_add(1);
        let number = list.count;
        let same = |work: &&mut Work| work.writes == writes && work.stream == *stream;
        match list.works.iter_mut().find(same) {
            Some(work) => {
                let Range { start, end } = work.bytes;
                work.bytes = start.min(bytes.start)..end.max(bytes.end);
                work.number = number;
            }
            None => list.works.push(Work { stream: stream.clone(), bytes, writes, number }),
        }
    }

    /// The streams with work that an access to these bytes has to come after, and how many copies
    /// and fills there were by now.
    fn before(&self, span: Span, writes: bool) -> (Vec<Stream>, u64) {
        let bytes = addresses(span);
        let mut streams: Vec<Stream> = Vec::new();
        let list = self.locked();
        for work in list.works.iter().filter(|work| work.is_before(&bytes, writes)) {
            if !streams.contains(&work.stream) {
                streams.push(work.stream.clone());
            }
        }
        (streams, list.count)
    }

    /// Lets a stream come after the work of others that uses these bytes.
    pub(crate) fn order(&self, span: Span, stream: &Stream, writes: bool) -> Result<()> {
        self.before(span, writes).0.iter().try_for_each(|other| stream.wait_for(other))
    }

    /// Waits, on the host, for work on these bytes: for work that writes them, or if they are about
    /// to be written, for all.
    pub(crate) fn wait(&self, span: Span, writes: bool) -> Result<()> {
        let (streams, known) = self.before(span, writes);
        for stream in streams {
            stream.synchronize()?;
            // Another thread may have added work since, which was not waited for.
            self.locked().works.retain(|work| work.stream != stream || work.number > known);
        }
        Ok(())
    }
}

// Two attributes: `cargo xtask mutants` plants nothing in what stands under `cfg(test)`.
#[cfg(test)]
#[cfg(feature = "sim")]
mod tests {
    use pagewise_hal::DevicePtr;

    use super::*;
    use crate::{Device, Machine};

    fn bytes(range: Range<u64>) -> Span {
        Span::new(DevicePtr(range.start), range.end - range.start)
    }

    #[test]
    fn readers_come_after_writers_only_and_writers_after_all() {
        let machine = Machine::from(crate::sim().expect("address space"));
        let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
        let (reading, writing) = (InFlight::default(), InFlight::default());
        reading.add(bytes(10..20), &stream, false);
        writing.add(bytes(10..20), &stream, true);
        let count = |of: &InFlight, range, writes| of.before(bytes(range), writes).0.len();
        assert_eq!([count(&reading, 0..11, false), count(&reading, 0..11, true)], [0, 1]);
        assert_eq!([count(&writing, 19..30, false), count(&writing, 19..30, true)], [1, 1]);
        assert_eq!([count(&writing, 0..10, true), count(&writing, 20..30, true)], [0, 0]);
    }

    #[test]
    fn work_that_was_waited_for_is_forgotten_and_work_of_a_stream_is_one_entry() {
        let machine = Machine::from(crate::sim().expect("address space"));
        let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
        let works = InFlight::default();
        (0..100).for_each(|at| works.add(bytes(at..at + 1), &stream, true));
        assert_eq!(works.locked().works.len(), 1);
        works.wait(bytes(200..201), true).expect("nothing to wait for");
        assert_eq!(works.locked().works.len(), 1, "other bytes");
        works.wait(bytes(50..51), false).expect("a stream");
        assert!(works.locked().works.is_empty());
    }
}
