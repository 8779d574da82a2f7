//! Calls that fill and copy: memset, memcpy, batches of copies.
//!
//! Pages move first, then the bytes are written, as for access programs.

use pagewise_hal::{
    Code, CopyAttributes, DeviceId, DevicePtr, Location, LocationKind, PAGE_BYTES, Processor, Span,
    SpanCopy, StreamHandle,
};

use crate::arrival::Threads;
use crate::concurrency::StreamWork;
use crate::config::RangeReads;
use crate::cost::{MemoryStep, Transfer};
use crate::locate::processor_of;
use crate::pager::{Access, AccessProgram};
use crate::refusal::{Checked, invalid, refuse};
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};

/// The value of a fill, as the bytes that are repeated: 1, 2 or 4.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    bytes: [u8; 4],
    width: usize,
}

impl Pattern {
    pub(crate) fn new<const WIDTH: usize>(value: [u8; WIDTH]) -> Self {
        const { assert!(WIDTH == 1 || WIDTH == 2 || WIDTH == 4, "the driver has no other fills") };
        let mut bytes = [0; 4];
        bytes[..WIDTH].copy_from_slice(&value);
        Self { bytes, width: WIDTH }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.width]
    }

    /// Whether address and length of a range are whole elements.
    fn fits(&self, span: Span) -> bool {
        let width = self.width as u64;
        span.ptr.0.is_multiple_of(width) && span.bytes.is_multiple_of(width)
    }
}

/// One end of a copy.
#[derive(Debug, Clone, Copy)]
struct End {
    /// The processor that the memory is of.
    at: Processor,
    is_managed: bool,
}

impl Sim {
    /// `cuMemsetD8Async`, `cuMemsetD16Async`, `cuMemsetD32Async`: the stream's device writes every
    /// page, by the same accesses for all three (TIMING-36). Plain memory of another device is
    /// refused without access to it (CONTRACT-103).
    ///
    /// A range of 0 bytes succeeds at any address (CONTRACT-107).
    pub(crate) fn memset(
        &mut self,
        span: Span,
        pattern: Pattern,
        stream: StreamHandle,
    ) -> Checked<()> {
        let device = self.device_of(stream)?;
        if span.bytes == 0 {
            return Ok(());
        }
        if !pattern.fits(span) {
            return invalid("address and length of a fill are multiples of its value's size");
        }
        self.check_within_one(span)?;
        let elsewhere = |allocation: &Allocation| {
            matches!(allocation.kind, MemoryKind::Device(_) | MemoryKind::Opened(_))
                && !self.reaches(device, allocation)
        };
        if self.space.containing(span.ptr).is_some_and(elsewhere) {
            return invalid("the stream's device has no access to memory of another device");
        }
        self.check_admitted(device, span, true)?;
        if self.rehearses {
            return Ok(());
        }
        self.lend_during(span.bytes);
        self.launch(device, StreamWork::FillOrCopy(&[span]), stream)?;
        match self.end_of(device, span) {
            End { is_managed: true, .. } => {
                self.walk_pages(device, span, Access::Write, Threads::Fill);
            }
            End { at: Processor::HOST, .. } => self.moved(Transfer::ToHost, span.bytes),
            End { .. } => self.moved(Transfer::Fill, span.bytes),
        }
        self.started(stream);
        self.before_write(span);
        self.arena.fill(span.ptr.0, span.bytes, pattern.as_bytes());
        Ok(())
    }

    /// `cuMemcpyAsync`: the stream's device reads the source and writes the destination, except for
    /// memory that is to be on the host.
    pub(crate) fn memcpy(&mut self, copy: SpanCopy, stream: StreamHandle) -> Checked<()> {
        let device = self.device_of(stream)?;
        self.check_copy(copy, device, stream)?;
        self.carry_out_copy(copy, device, stream)
    }

    /// `cuMemcpyBatchAsync`: the copies as single calls, in order, up to one that is refused
    /// (CONTRACT-105). Hints and flags change nothing. `refused` is set to the copy that the refusal
    /// is about.
    pub(crate) fn memcpy_batch(
        &mut self,
        copies: &[SpanCopy],
        attributes: &[CopyAttributes],
        starts: &[usize],
        stream: StreamHandle,
        refused: &mut Option<usize>,
    ) -> Checked<()> {
        if stream.is_legacy() {
            return invalid("batch calls do not take the legacy default stream");
        }
        let device = self.device_of(stream)?;
        if copies.is_empty() {
            return invalid("give at least one copy");
        }
        if starts.is_empty() || attributes.len() != starts.len() {
            return invalid("give one start for each set of attributes, and at least one");
        }
        let ascending = starts.is_sorted_by(|a, b| a < b);
        let inside = starts.last().is_some_and(|&last| last < copies.len());
        if starts[0] != 0 || !ascending || !inside {
            return invalid("starts begin at 0, ascend, and stay below the number of copies");
        }
        attributes.iter().try_for_each(|&attributes| self.check_attributes(attributes))?;
        for (item, &copy) in copies.iter().enumerate() {
            let copied = match copy.bytes {
                0 => invalid("a copy of a batch has at least 1 byte"),
                _ => self.check_copy(copy, device, stream),
            };
            copied.inspect_err(|_| *refused = Some(item))?;
            self.carry_out_copy(copy, device, stream)?;
        }
        Ok(())
    }

    /// Refuses what the driver refuses of a set of attributes, whatever memory it is for. Of hints
    /// it looks at the type, and at the number of a device (CONTRACT-106).
    fn check_attributes(&self, attributes: CopyAttributes) -> Checked<()> {
        if let Err(why) = attributes.check() {
            return invalid(why);
        }
        let exists = |hint: Location| match hint.kind {
            LocationKind::DEVICE => self.topology.has_device(DeviceId(hint.id)),
            LocationKind(kind) => (0..=4).contains(&kind),
        };
        if exists(attributes.source_hint) && exists(attributes.destination_hint) {
            return Ok(());
        }
        invalid("a hint names no device or known type")
    }

    /// Refuses a copy that the driver refuses. One of 0 bytes is nothing to do.
    fn check_copy(&self, copy: SpanCopy, device: Processor, stream: StreamHandle) -> Checked<()> {
        if copy.bytes == 0 {
            return Ok(());
        }
        self.check_within_one(copy.to())?;
        self.check_within_one(copy.from())?;
        self.check_admitted(device, copy.to(), true)?;
        self.check_admitted(device, copy.from(), false)?;
        self.check_reached(device, &[copy.from(), copy.to()], stream)
    }

    /// A copy that passed every check.
    fn carry_out_copy(
        &mut self,
        copy: SpanCopy,
        device: Processor,
        stream: StreamHandle,
    ) -> Checked<()> {
        let SpanCopy { destination, source, bytes } = copy;
        if bytes == 0 || self.rehearses {
            return Ok(());
        }
        let (to, from) = (copy.to(), copy.from());
        self.lend_during(bytes);
        self.launch(device, StreamWork::FillOrCopy(&[from, to]), stream)?;
        let ends = [self.end_of(device, from), self.end_of(device, to)];
        self.walk_copied((device, ends[0]), from, Access::Read);
        self.walk_copied((device, ends[1]), to, Access::Write);
        self.pay_copy(device, copy, ends);
        self.started(stream);
        self.before_write(to);
        self.arena.copy(destination.0, source.0, bytes);
        Ok(())
    }

    /// The time of the bytes of a copy. Walks of managed memory have theirs already.
    fn pay_copy(&mut self, device: Processor, copy: SpanCopy, [from, to]: [End; 2]) {
        if from.is_managed && to.is_managed {
            return;
        }
        let reached = |span: Span| {
            self.space.containing(span.ptr).is_some_and(|found| self.reaches(device, found))
        };
        let transfer = match (from.at.is_host(), to.at.is_host()) {
            (true, true) => Transfer::WithinHost,
            (true, false) => Transfer::ToDevice,
            (false, true) => Transfer::ToHost,
            (false, false) if from.at == to.at => Transfer::WithinDevice,
            (false, false) if reached(copy.from()) && reached(copy.to()) => {
                Transfer::BetweenDevices
            }
            (false, false) => Transfer::ByHost,
        };
        self.moved(transfer, copy.bytes);
    }

    fn moved(&mut self, transfer: Transfer, bytes: u64) {
        self.pager.note_memory(MemoryStep::Moved(transfer, bytes));
    }

    /// The memory in which a device finds a range that it fills or copies. Managed memory that prefers
    /// the host, as far as the driver knows, stays there (PAGING-280).
    fn end_of(&self, device: Processor, span: Span) -> End {
        let found = self.space.containing(span.ptr);
        if !found.is_some_and(|found| self.is_managed(found)) {
            let home = found.and_then(|found| self.book().home_of(found));
            return End { at: home.unwrap_or(Processor::HOST), is_managed: false };
        }
        let preferred = self.attributes.preferred(&span.pages_outward(), RangeReads::Driver);
        let on_host = preferred.is_some_and(|location| location.kind != LocationKind::DEVICE)
            && self.exclusive.is_none();
        End { at: if on_host { Processor::HOST } else { device }, is_managed: true }
    }

    /// Touches every page of the source or destination of a copy. The host's threads do that for
    /// memory that stays there.
    fn walk_copied(&mut self, (device, end): (Processor, End), span: Span, access: Access) {
        if end.is_managed && end.at.is_host() {
            self.walk_pages(Processor::HOST, span, access, Threads::One);
        } else {
            self.walk_pages(device, span, access, Threads::Copy);
        }
    }

    /// Touches every page of a range, also one that it only reaches into, as the driver's kernels
    /// do. Its copy engine reaches any memory, so only managed ranges fault.
    fn walk_pages(&mut self, by: Processor, span: Span, access: Access, threads: Threads) {
        let allocation = self.space.containing(span.ptr);
        if allocation.is_some_and(|allocation| self.is_managed(allocation)) {
            let span = match threads {
                Threads::Fill | Threads::Copy => span,
                // One access on each page.
                _ => {
                    let pages = span.pages_outward();
                    let bytes = (pages.end - pages.start) * PAGE_BYTES;
                    Span::new(DevicePtr(pages.start * PAGE_BYTES), bytes)
                }
            };
            self.run_on_managed(AccessProgram {
                by,
                span,
                stride_bytes: PAGE_BYTES,
                access,
                threads,
            });
        }
    }

    fn check_within_one(&self, span: Span) -> Checked<()> {
        match self.space.holding(span) {
            Some(_) => Ok(()),
            None => invalid("the range is not within one live allocation"),
        }
    }

    /// Refuses fills and copies of mapped memory without access to it: that of the stream's device
    /// (CONTRACT-123).
    fn check_admitted(&self, device: Processor, span: Span, writes: bool) -> Checked<()> {
        let is_mapped = |found: &&Allocation| matches!(found.kind, MemoryKind::Mapped(_));
        let mapped = self.space.containing(span.ptr).filter(is_mapped);
        if mapped.is_some_and(|found| !self.reaches_all(device, found, span, writes)) {
            return invalid("the stream's device has no access to the mapped memory");
        }
        Ok(())
    }

    /// The device that carries out a fill or copy. Default streams are of device 0, which a machine
    /// without devices lacks: a driver there says so before it takes any call.
    fn device_of(&self, stream: StreamHandle) -> Checked<Processor> {
        let device = self.streams.device_of(stream)?;
        if !self.topology.has_device(device) {
            return refuse(Code::NO_DEVICE, "fills and copies run on a device: there is none");
        }
        Ok(processor_of(device))
    }
}
