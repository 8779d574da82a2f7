//! Fills and copies of a trace.

use pagewise_hal::SpanCopy;

use super::running::Running;
use crate::format::{CopyBatch, CopyPart, Observed, Op, Part};

impl Running<'_> {
    /// Calls that fill and copy. `None` if the operation is none of them.
    pub(super) fn fill_or_copy(&mut self, op: &Op) -> Option<Observed> {
        Some(match op {
            &Op::Memset { part, value, stream } => {
                let span = self.own_span(part);
                self.on_stream(stream, |running, stream| {
                    // SAFETY: the range is memory of the case or null, so no code outside of the
                    // case uses it, and the call is waited for before the next is made.
                    unsafe { running.backend.memset(span, value, stream) }
                })
            }
            &Op::MemsetD16 { part, value, stream } => {
                let span = self.own_span(part);
                self.on_stream(stream, |running, stream| {
                    // SAFETY: the range is memory of the case or null, so no code outside of the
                    // case uses it, and the call is waited for before the next is made.
                    unsafe { running.backend.memset_d16(span, value, stream) }
                })
            }
            &Op::MemsetD32 { part, value, stream } => {
                let span = self.own_span(part);
                self.on_stream(stream, |running, stream| {
                    // SAFETY: the range is memory of the case or null, so no code outside of the
                    // case uses it, and the call is waited for before the next is made.
                    unsafe { running.backend.memset_d32(span, value, stream) }
                })
            }
            &Op::Memcpy { to, from, bytes, stream } => {
                let copy = self.own_copy(&CopyPart { to, from, bytes });
                let SpanCopy { destination, source, bytes } = copy;
                self.on_stream(stream, |running, stream| {
                    // SAFETY: both ranges are memory of the case or null, so no code outside of the
                    // case uses them, and the call is waited for before the next is made. If they
                    // overlap, the destination holds undefined bytes, which only the case sees.
                    unsafe { running.backend.memcpy(destination, source, bytes, stream) }
                })
            }
            Op::MemcpyBatch(batch) => self.copy_batch(batch),
            _ => return None,
        })
    }

    fn copy_batch(&mut self, batch: &CopyBatch) -> Observed {
        let copies: Vec<SpanCopy> = batch.copies.iter().map(|copy| self.own_copy(copy)).collect();
        // A start past `usize` is past the number of copies, which is all that matters.
        let start = |&start: &u64| usize::try_from(start).unwrap_or(usize::MAX);
        let starts: Vec<usize> = batch.attribute_starts.iter().map(start).collect();
        self.on_stream(Some(batch.stream), |running, stream| {
            let backend = running.backend;
            // SAFETY: all ranges are memory of the case or null, so no code outside of the case uses
            // them. The call before was waited for, and this one is before the next is made. If
            // ranges overlap, destinations hold undefined bytes, which only the case sees.
            unsafe { backend.memcpy_batch(&copies, &batch.attributes, &starts, stream) }
        })
    }

    /// A copy within memory of the case; a range of other memory becomes null, which every driver
    /// refuses.
    fn own_copy(&self, copy: &CopyPart) -> SpanCopy {
        let own = |part: Part| self.own_span(part).ptr;
        SpanCopy::new(own(copy.written()), own(copy.read()), copy.bytes)
    }
}
