//! Steps that fill and copy.
//!
//! Managed memory is filled and copied in whole va_blocks. No range that a copy writes overlaps
//! another range of the call.

use pagewise_hal::{BLOCK_BYTES, PAGE_BYTES};

use super::{Lowering, starts_of, whole_values};
use crate::format::{CopyBatch, CopyPart, Op, Part, Stream};
use crate::program::step::{CopyBatchStep, FillStart, Range, Step, Stretch};

impl Lowering {
    pub(super) fn fill(&mut self, step: &Step) {
        let stream = Some(Stream::NonBlocking);
        let op = match *step {
            Step::Memset { range, value } => self
                .touchable(range)
                .and_then(|part| self.whole_blocks(part))
                .map(|part| Op::Memset { part, value, stream }),
            Step::MemsetD16 { range, value, start } => {
                self.filled(range, start, 2).map(|part| Op::MemsetD16 { part, value, stream })
            }
            Step::MemsetD32 { range, value, start } => {
                self.filled(range, start, 4).map(|part| Op::MemsetD32 { part, value, stream })
            }
            _ => unreachable!("a fill"),
        };
        if let Some(op) = op {
            self.moving(op);
        }
    }

    /// The part of a fill with values of `width` bytes. `None` if no value lies in the range, or if
    /// a page of it has none: the fill would not be of whole va_blocks.
    fn filled(&self, range: Range, start: FillStart, width: u64) -> Option<Part> {
        let part = self.copyable(range).and_then(|part| self.whole_blocks(part))?;
        let values = whole_values(part, width)?;
        match start {
            FillStart::Aligned => (pages(values) == pages(part)).then_some(values),
            FillStart::Misaligned => {
                Some(Part { offset: values.offset + 1, bytes: values.bytes - width, ..values })
            }
        }
    }

    pub(super) fn memcpy(&mut self, to: Range, from: Range) {
        let Some(CopyPart { to, from, bytes }) = self.copy(to, from) else { return };
        self.moving(Op::Memcpy { to, from, bytes, stream: Some(Stream::NonBlocking) });
    }

    pub(super) fn memcpy_batch(&mut self, step: &CopyBatchStep) {
        let mut copies: Vec<CopyPart> = Vec::new();
        for &(to, from) in &step.copies {
            let Some(mut copy) = self.copy(to, from) else { continue };
            if [to, from].iter().any(|range| range.part == Stretch::Empty) {
                copy.bytes = 0;
            }
            if copies.iter().all(|other| independent(&copy, other)) {
                copies.push(copy);
            }
        }
        if copies.is_empty() && !step.copies.is_empty() {
            return;
        }
        // More sets than copies cannot be dealt out; none at all is a case of its own.
        let most = step.attributes.len().min(copies.len().max(1));
        let attributes = step.attributes[..most].to_vec();
        let attribute_starts = starts_of(copies.len() as u64, most as u64, step.starts);
        let stream = step.stream;
        self.moving(Op::MemcpyBatch(CopyBatch { copies, attributes, attribute_starts, stream }));
    }

    /// A copy of as many bytes as both ranges have.
    fn copy(&self, to: Range, from: Range) -> Option<CopyPart> {
        let whole = |range| self.copyable(range).and_then(|part| self.whole_blocks(part));
        let (to, from) = (whole(to)?, whole(from)?);
        let bytes = match to.bytes.min(from.bytes) {
            bytes if bytes < BLOCK_BYTES => bytes,
            bytes => bytes / BLOCK_BYTES * BLOCK_BYTES,
        };
        let covered =
            |part| self.whole_blocks(Part { bytes, ..part }) == Some(Part { bytes, ..part });
        let copy = CopyPart { to: (to.buf, to.offset), from: (from.buf, from.offset), bytes };
        let fits = covered(to) && covered(from) && apart(copy.written(), copy.read());
        fits.then_some(copy)
    }
}

/// Whether neither copy writes what the other uses.
fn independent(a: &CopyPart, b: &CopyPart) -> bool {
    apart(a.written(), b.written()) && apart(a.written(), b.read()) && apart(a.read(), b.written())
}

fn apart(a: Part, b: Part) -> bool {
    a.buf != b.buf || a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset
}

/// The first page that a part reaches into, and the one after the last, by number.
const fn pages(part: Part) -> (u64, u64) {
    (part.offset / PAGE_BYTES, (part.offset + part.bytes).div_ceil(PAGE_BYTES))
}
