//! Bytes without determined contents: those that a discard left, those of pool memory that may have
//! been used before, and those that a declared kernel wrote.
//!
//! CUDA says that the contents of a discarded range are indeterminate until it is written. What an
//! H200 shows of it is not even the same each time: memory that the driver knows to be zero is used
//! as it is, any other is cleared, and which of the two a page gets depends on what all processes of
//! the machine freed before (PAGING-64; recorded programs that read the same byte as 145 once and as 0
//! once). So two back ends agree if they agree on all other bytes.
//!
//! The bytes that a declared kernel wrote are not determined either: a trace holds its accesses, not
//! its results.

use std::collections::HashMap;
use std::ops::Range;

use pagewise_hal::{DeviceAccess, HostAccess, PAGE_BYTES};
use rangemap::RangeSet;

use crate::format::{Op, Part, RecordedOp};

#[derive(Debug, Default)]
pub(crate) struct Indeterminate {
    /// Bytes by buffer, from its start.
    bytes: HashMap<u32, RangeSet<u64>>,
    /// Whether pool memory was freed, which another allocation may get as it is.
    pool_memory_used: bool,
}

impl Indeterminate {
    /// Whether an operation of the host reads such a byte. What devices read is not observed.
    pub(crate) fn is_read_by(&self, op: &Op) -> bool {
        let Op::HostTouch { part, stride, access: HostAccess::Read, .. } = *op else {
            return false;
        };
        let Some(bytes) = self.bytes.get(&part.buf) else { return false };
        touched(part, stride).any(|byte| bytes.contains(&byte))
    }

    /// Follows an operation, as far as results of declared kernels go, and marks a sum of such
    /// results as unstable: a trace holds accesses and no code, so no replay computes them.
    pub(crate) fn note_kernel_results(&mut self, record: &mut RecordedOp) {
        if self.is_read_by(&record.op) {
            record.observed.unstable.push("sum".to_owned());
        }
        let leaves_other_bytes = matches!(
            record.op,
            Op::DiscardPrefetchBatch(_) | Op::DiscardBatch { .. } | Op::PoolFree { .. }
        );
        if !leaves_other_bytes {
            self.follow(record);
        }
    }

    /// Follows an operation that was carried out.
    pub(crate) fn follow(&mut self, record: &RecordedOp) {
        match &record.op {
            // Also if the call was refused: it may have done a part.
            Op::DiscardPrefetchBatch(batch) => self.discard(&batch.ranges),
            Op::DiscardBatch { ranges, .. } => self.discard(ranges),
            _ if record.observed.code != 0 => {}
            Op::PoolFree { .. } => self.pool_memory_used = true,
            Op::PoolAlloc { buf, bytes, .. } if self.pool_memory_used && *bytes > 0 => {
                self.bytes.entry(*buf).or_default().insert(0..*bytes);
            }
            Op::AllocManaged { buf, .. } | Op::PoolAlloc { buf, .. } => {
                self.bytes.remove(buf);
            }
            Op::HostTouch { part, stride, access: HostAccess::Write(_), .. }
            | Op::DeviceTouch { part, stride, access: DeviceAccess::Write(_), .. } => {
                touched(*part, *stride)
                    .for_each(|byte| self.write(part.buf, byte..byte.saturating_add(1)));
            }
            Op::KernelAccesses { walks, .. } => {
                let written = walks.iter().filter(|walk| walk.access.writes());
                for (part, _) in written.flat_map(|walk| &walk.ranges) {
                    let bytes = bytes_from(part.offset, part.bytes);
                    if !bytes.is_empty() {
                        self.bytes.entry(part.buf).or_default().insert(bytes);
                    }
                }
            }
            Op::Launch(launch) => {
                for part in &launch.ranges {
                    let bytes = bytes_from(part.offset, part.bytes);
                    if !bytes.is_empty() {
                        self.bytes.entry(part.buf).or_default().insert(bytes);
                    }
                }
            }
            Op::Memset { part, .. } | Op::MemsetD16 { part, .. } | Op::MemsetD32 { part, .. } => {
                self.write(part.buf, bytes_from(part.offset, part.bytes))
            }
            Op::Memcpy { to, from, bytes, .. } => self.copy(*to, *from, *bytes),
            Op::MemcpyBatch(batch) => {
                batch.copies.iter().for_each(|copy| self.copy(copy.to, copy.from, copy.bytes));
            }
            _ => {}
        }
    }

    /// A discard takes whole pages; how the buffer lies in them is not known here.
    fn discard(&mut self, parts: &[Part]) {
        for part in parts.iter().filter(|part| part.bytes > 0) {
            let start = part.offset.saturating_sub(part.offset % PAGE_BYTES);
            let end = part.offset.saturating_add(part.bytes);
            let end = end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
            self.bytes.entry(part.buf).or_default().insert(start..end);
        }
    }

    fn write(&mut self, buf: u32, bytes: Range<u64>) {
        if let Some(set) = self.bytes.get_mut(&buf)
            && !bytes.is_empty()
        {
            set.remove(bytes);
        }
    }

    fn copy(&mut self, to: (u32, u64), from: (u32, u64), bytes: u64) {
        let source = self.bytes.get(&from.0).cloned().unwrap_or_default();
        let read = bytes_from(from.1, bytes);
        self.write(to.0, bytes_from(to.1, bytes));
        if read.is_empty() {
            return;
        }
        for range in source.overlapping(read.clone()) {
            let moved = |byte: u64| byte.saturating_sub(from.1).saturating_add(to.1);
            let copied = moved(range.start.max(read.start))..moved(range.end.min(read.end));
            if !copied.is_empty() {
                self.bytes.entry(to.0).or_default().insert(copied);
            }
        }
    }
}

fn bytes_from(offset: u64, bytes: u64) -> Range<u64> {
    offset..offset.saturating_add(bytes)
}

/// The bytes that an access program touches.
fn touched(part: Part, stride: u64) -> impl Iterator<Item = u64> {
    let steps = usize::try_from(stride.max(1)).unwrap_or(usize::MAX);
    bytes_from(part.offset, part.bytes).step_by(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Observed, Stream, Walk};
    use pagewise_hal::KernelAccess;

    const fn part(offset: u64, bytes: u64) -> Part {
        Part { buf: 0, offset, bytes }
    }

    fn reads(offset: u64, bytes: u64, stride: u64) -> Op {
        Op::HostTouch { part: part(offset, bytes), stride, access: HostAccess::Read, value: None }
    }

    fn follow(state: &mut Indeterminate, op: Op) {
        let observed = Observed::default();
        state.follow(&RecordedOp { op, observed });
    }

    fn discarded(offset: u64, bytes: u64) -> Indeterminate {
        let mut state = Indeterminate::default();
        let ranges = vec![part(offset, bytes)];
        follow(&mut state, Op::DiscardBatch { ranges, flags: 0, stream: Stream::NonBlocking });
        state
    }

    #[test]
    fn a_discard_leaves_the_pages_that_it_touches_and_no_others() {
        let state = discarded(5000, 4000);
        assert!(state.is_read_by(&reads(0, 20_000, 4096)));
        assert!(state.is_read_by(&reads(4096, 1, 1)));
        assert!(!state.is_read_by(&reads(4095, 1, 1)));
        assert!(!state.is_read_by(&reads(12_288, 4096, 1)));
    }

    #[test]
    fn bytes_that_are_written_are_determined_and_their_neighbours_are_not() {
        let mut state = discarded(0, 65_536);
        let access = HostAccess::Write(1);
        let write = Op::HostTouch { part: part(0, 65_536), stride: 4096, access, value: None };
        follow(&mut state, write);
        assert!(!state.is_read_by(&reads(0, 65_536, 4096)));
        assert!(!state.is_read_by(&reads(0, 65_536, 8192)));
        assert!(state.is_read_by(&reads(1, 1, 1)));
        follow(&mut state, Op::Memset { part: part(0, 8192), value: 3, stream: None });
        assert!(!state.is_read_by(&reads(0, 8192, 1)));
    }

    #[test]
    fn the_bytes_that_a_declared_kernel_wrote_are_not_determined() {
        let kernel = |access| Op::KernelAccesses {
            device: 0,
            blocks: 1,
            threads: 1,
            walks: vec![Walk { access, ranges: vec![(part(4096, 8), 4)] }],
        };
        let mut state = Indeterminate::default();
        follow(&mut state, kernel(KernelAccess::Load));
        assert!(!state.is_read_by(&reads(0, 8192, 1)));
        follow(&mut state, kernel(KernelAccess::Store));
        assert!(state.is_read_by(&reads(4103, 1, 1)), "all bytes of the range");
        assert!(!state.is_read_by(&reads(0, 4096, 1)) && !state.is_read_by(&reads(4104, 9, 1)));
        follow(&mut state, Op::Memset { part: part(0, 8192), value: 3, stream: None });
        assert!(!state.is_read_by(&reads(0, 8192, 1)));
    }

    #[test]
    fn pool_memory_may_show_what_an_earlier_allocation_wrote() {
        let alloc = |buf| Op::PoolAlloc { buf, pool: 0, bytes: 100 };
        let mut state = Indeterminate::default();
        follow(&mut state, alloc(0));
        assert!(!state.is_read_by(&reads(0, 100, 1)));
        follow(&mut state, Op::PoolFree { buf: 0 });
        follow(&mut state, alloc(0));
        assert!(state.is_read_by(&reads(99, 1, 1)));
    }

    #[test]
    fn a_copy_takes_what_is_indeterminate_along() {
        let mut state = discarded(4096, 4096);
        follow(&mut state, Op::Memcpy { to: (1, 0), from: (0, 0), bytes: 8192, stream: None });
        let read = |offset| Op::HostTouch {
            part: Part { buf: 1, offset, bytes: 1 },
            stride: 1,
            access: HostAccess::Read,
            value: None,
        };
        assert!(!state.is_read_by(&read(4095)));
        assert!(state.is_read_by(&read(4096)));
        follow(&mut state, Op::Memcpy { to: (0, 4096), from: (2, 0), bytes: 4096, stream: None });
        assert!(!state.is_read_by(&reads(0, 65_536, 1)));
    }
}
