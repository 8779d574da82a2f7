//! A buffer's record of the contents that a discard made indeterminate.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{DevicePtr, Result, Span};
use rangemap::RangeMap;

use crate::Stream;
use crate::refuse::invalid;

/// The discarded bytes of a buffer, by address, each with the stream that the discard is on.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    discarded: Mutex<RangeMap<u64, Stream>>,
}

/// Bytes as a range of addresses. Spans of live memory do not pass the end of the address space.
fn addresses(span: Span) -> Range<u64> {
    span.ptr.0..span.ptr.0.saturating_add(span.bytes)
}

impl Contents {
    /// The map is as good as it was if a thread panicked while holding it.
    fn locked(&self) -> MutexGuard<'_, RangeMap<u64, Stream>> {
        self.discarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These bytes were discarded.
    pub(crate) fn discarded(&self, span: Span, stream: &Stream) {
        if span.bytes == 0 {
            return;
        }
        let bytes = addresses(span);
        let mut discarded = self.locked();
        let known = discarded.get_key_value(&bytes.start);
        if known.is_some_and(|(range, on)| range.end >= bytes.end && on == stream) {
            return;
        }
        discarded.insert(bytes, stream.clone());
    }

    /// Refuses to read discarded contents.
    pub(crate) fn check_readable(&self, operation: &'static str, span: Span) -> Result<()> {
        let discarded = self.locked();
        let Some((first, _)) = discarded.overlapping(addresses(span)).next() else {
            return Ok(());
        };
        let from = first.start.saturating_sub(span.ptr.0);
        Err(invalid(
            operation,
            format!(
                "contents were discarded, from byte {from} of the range on: write them first, or \
                 if a device did, say so with `assume_written`"
            ),
        )
        .with_span(span))
    }

    /// Waits for discards of these bytes, so that none is in flight.
    pub(crate) fn wait(&self, span: Span) -> Result<()> {
        let mut streams: Vec<Stream> = Vec::new();
        for (_, stream) in self.locked().overlapping(addresses(span)) {
            if !streams.contains(stream) {
                streams.push(stream.clone());
            }
        }
        streams.iter().try_for_each(Stream::synchronize)
    }

    /// These bytes are about to be written, or have been: waits for discards of them, which must
    /// not be in flight then, and counts them as written.
    pub(crate) fn settle(&self, span: Span) -> Result<()> {
        self.wait(span)?;
        self.written(span);
        Ok(())
    }

    /// Counts a range as written. The discards of it are done.
    pub(crate) fn written(&self, span: Span) {
        if span.bytes > 0 {
            self.locked().remove(addresses(span));
        }
    }

    /// The parts of a range that count as discarded.
    pub(crate) fn discarded_in(&self, span: Span) -> Vec<Span> {
        let Range { start, end } = addresses(span);
        let discarded = self.locked();
        let parts = discarded.overlapping(start..end).map(|(part, _)| {
            let (first, after) = (part.start.max(start), part.end.min(end));
            Span::new(DevicePtr(first), after - first)
        });
        parts.collect()
    }
}

// Two attributes: `cargo xtask mutants` plants nothing in what stands under `cfg(test)`.
#[cfg(test)]
#[cfg(feature = "sim")]
mod tests {
    use super::*;
    use crate::Machine;

    fn pages(range: Range<u64>) -> Span {
        Span::new(DevicePtr(range.start << 12), (range.end - range.start) << 12)
    }

    fn stream() -> Stream {
        let machine = Machine::from(crate::sim().expect("address space"));
        Stream::legacy_default(&machine)
    }

    #[test]
    fn the_parts_of_a_range_that_were_discarded_are_named_and_no_more() {
        let (contents, stream) = (Contents::default(), stream());
        contents.discarded(pages(1..3), &stream);
        contents.discarded(pages(5..8), &stream);
        assert_eq!(contents.discarded_in(pages(2..6)), [pages(2..3), pages(5..6)]);
        assert_eq!(contents.discarded_in(pages(3..5)), [], "nothing there was discarded");
    }

    #[test]
    fn a_longer_discard_that_begins_with_a_known_one_counts_as_a_whole() {
        let (contents, stream) = (Contents::default(), stream());
        contents.discarded(pages(1..2), &stream);
        contents.discarded(pages(1..4), &stream);
        assert_eq!(contents.discarded_in(pages(0..9)), [pages(1..4)]);
    }

    #[test]
    fn no_bytes_can_be_discarded_and_written() {
        let (contents, stream) = (Contents::default(), stream());
        contents.discarded(pages(1..1), &stream);
        contents.discarded(pages(1..2), &stream);
        contents.written(pages(1..1));
        assert_eq!(contents.discarded_in(pages(0..9)), [pages(1..2)]);
    }
}
