//! Notes of fills and copies.

use pagewise_hal::{Backend, CopyAttributes, DevicePtr, Result, Span, SpanCopy, StreamHandle};

use super::log::stream_of;
use super::recorder::Recorder;
use crate::format::{CopyBatch, CopyPart, Op, Part, Stream};

impl<B: Backend> Recorder<B> {
    /// Makes a call that fills a range, and notes it. A fill of memory that the trace does not know
    /// is left out.
    pub(super) fn filled(
        &self,
        span: Span,
        stream: StreamHandle,
        op: impl FnOnce(Part, Option<Stream>) -> Op,
        call: impl FnOnce(&B) -> Result<()>,
    ) -> Result<()> {
        let mut log = self.next_call();
        if !log.ids.is_within_buffer(span) {
            return self.left(&mut log, call);
        }
        let op = op(log.ids.part(span), Some(stream_of(stream)));
        let (answer, observed, ns) = self.waited(stream, call);
        log.note(&self.inner, op, observed, ns);
        answer
    }

    /// Makes a call that copies, and notes it. A copy from or to memory that the trace does not
    /// know is left out.
    pub(super) fn copied(
        &self,
        copies: &[SpanCopy],
        stream: StreamHandle,
        op: impl FnOnce(Vec<CopyPart>) -> Op,
        call: impl FnOnce(&B) -> Result<()>,
    ) -> Result<()> {
        let mut log = self.next_call();
        let mut spans = copies.iter().flat_map(|copy| [copy.to(), copy.from()]);
        if !spans.all(|span| log.ids.is_within_buffer(span)) {
            return self.left(&mut log, call);
        }
        let place = |ptr: DevicePtr, bytes| {
            let part = log.ids.part(Span::new(ptr, bytes));
            (part.buf, part.offset)
        };
        let parts = copies.iter().map(|&SpanCopy { destination, source, bytes }| CopyPart {
            to: place(destination, bytes),
            from: place(source, bytes),
            bytes,
        });
        let op = op(parts.collect());
        let (answer, observed, ns) = self.waited(stream, call);
        log.note(&self.inner, op, observed, ns);
        answer
    }
}

/// A single copy as an operation.
pub(super) fn single(copies: &[CopyPart], stream: StreamHandle) -> Op {
    let &[CopyPart { to, from, bytes }] = copies else {
        unreachable!("one copy was given, so there is one part");
    };
    Op::Memcpy { to, from, bytes, stream: Some(stream_of(stream)) }
}

/// A batch as an operation.
pub(super) fn batch(
    copies: Vec<CopyPart>,
    attributes: &[CopyAttributes],
    starts: &[usize],
    stream: StreamHandle,
) -> Op {
    Op::MemcpyBatch(CopyBatch {
        copies,
        attributes: attributes.to_vec(),
        attribute_starts: starts.iter().map(|&start| start as u64).collect(),
        stream: stream_of(stream),
    })
}
