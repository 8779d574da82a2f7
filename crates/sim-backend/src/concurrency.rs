//! Concurrent managed access: the accesses that programs and the host may make with it and without
//! it, and the moves before work begins. The rules without it stand in `exclusive`.

use std::ops::Range;

use pagewise_hal::{Advice, AllocationType, EventHandle, Processor, Span, StreamHandle};

use crate::attachments::{Attached, key};
use crate::refusal::{Checked, bad_device, illegal_address, unsupported};
use crate::sim::Sim;
use crate::space::{Allocation, ManagedRange};

/// Work that begins in a stream, by the memory that it touches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamWork<'a> {
    /// An access program or a kernel.
    Program(&'a [Span]),
    /// A fill, or a copy.
    FillOrCopy(&'a [Span]),
}

/// Whether a stream's work may touch an allocation that is attached so.
fn check_reach(attached: Attached, stream: StreamHandle) -> Checked<()> {
    match attached {
        Attached::Host => illegal_address(
            "the memory is attached to the host: attach it GLOBAL or to the stream first",
        ),
        Attached::Stream(owner) if owner != key(stream) => {
            illegal_address("the memory is attached to another stream")
        }
        _ => Ok(()),
    }
}

impl Sim {
    /// The host is about to touch memory.
    pub(crate) fn check_host_may_touch(&self, span: Span) -> Checked<()> {
        let Some(exclusive) = &self.exclusive else { return Ok(()) };
        let Some(allocation) = self.space.containing(span.ptr) else { return Ok(()) };
        if self.is_managed(allocation) && exclusive.is_in_use(self.attachments.of(allocation)) {
            return illegal_address(
                "without concurrent managed access the host may not touch managed memory while a \
                 device works: synchronise its streams first",
            );
        }
        Ok(())
    }

    /// Whether memory may have to come before a device touches any.
    #[inline]
    pub(crate) fn launch_moves(&self) -> bool {
        self.exclusive.is_some() || !self.attachments.is_empty() || self.pager.has_groups()
    }

    /// A device is about to touch memory, in a stream: the memory that has to be there comes, once
    /// for all that the call touches. Does nothing if the access will be refused.
    ///
    /// With concurrent access, fills and copies bring what is attached to the stream only if they
    /// touch managed memory (PAGING-251). It is a guess that one managed range of a copy is enough.
    pub(crate) fn launch(
        &mut self,
        by: Processor,
        work: StreamWork<'_>,
        stream: StreamHandle,
    ) -> Checked<()> {
        if !self.launch_moves() {
            return Ok(());
        }
        let (StreamWork::Program(spans) | StreamWork::FillOrCopy(spans)) = work;
        let touched: Vec<&Allocation> = self.touched(by, spans).collect();
        if touched.is_empty() {
            return Ok(());
        }
        let Some(exclusive) = &self.exclusive else {
            let is_program = matches!(work, StreamWork::Program(_));
            if is_program || touched.iter().any(|allocation| self.is_managed(allocation)) {
                self.bring_attached(by, stream);
            }
            return Ok(());
        };
        self.check_reached(by, spans, stream)?;
        let home = exclusive.home;
        let away: Vec<Range<u64>> = if home == Processor::HOST {
            Vec::new()
        } else {
            let managed = self.space.managed();
            let comes = managed.filter(|a| check_reach(self.attachments.of(a), stream).is_ok());
            let pages = comes.map(|allocation| allocation.span().pages_outward());
            pages.filter(|pages| self.is_touched_by_host(pages)).collect()
        };
        if !away.is_empty() {
            self.clock_ns = self.pager.bring(&away, home, self.clock_ns);
            self.settle_contents();
        }
        Ok(())
    }

    /// The allocations that hold these ranges, without those that the processor cannot reach.
    fn touched<'a>(
        &'a self,
        by: Processor,
        spans: &'a [Span],
    ) -> impl Iterator<Item = &'a Allocation> {
        spans.iter().filter(|span| span.bytes > 0).filter_map(move |&span| {
            let allocation = self.space.holding(span);
            allocation.filter(|a| self.reaches(by, a))
        })
    }

    /// Refuses work on memory that is attached elsewhere, on machines where that matters.
    pub(crate) fn check_reached(
        &self,
        by: Processor,
        spans: &[Span],
        stream: StreamHandle,
    ) -> Checked<()> {
        if self.exclusive.is_none() {
            return Ok(());
        }
        let mut touched = self.touched(by, spans);
        touched.try_for_each(|allocation| check_reach(self.attachments.of(allocation), stream))
    }

    /// Work was given to a stream, and the call returns before it is done.
    #[inline]
    pub(crate) fn started(&mut self, stream: StreamHandle) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.started(stream);
        }
    }

    /// A stream's work is done, and the program knows. The legacy default stream waits for all
    /// others; destroying a stream waits for nothing (cuda-python issue 1539).
    #[inline]
    pub(crate) fn waited_for(&mut self, stream: StreamHandle) {
        let Some(exclusive) = &mut self.exclusive else { return };
        if stream.is_legacy() {
            exclusive.working.clear();
        }
        exclusive.working.remove(&key(stream));
    }

    /// An event was recorded.
    pub(crate) fn recorded(&mut self, event: EventHandle, stream: StreamHandle) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.recorded(event, stream);
        }
    }

    /// An event was destroyed.
    pub(crate) fn forget_event(&mut self, event: EventHandle) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.recorded.remove(&event.as_raw());
        }
    }

    /// An event has happened, and the program knows.
    pub(crate) fn waited_for_event(&mut self, event: EventHandle) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.waited_for_event(event);
        }
    }

    /// The host maps what it touched, and nothing else.
    fn is_touched_by_host(&self, pages: &Range<u64>) -> bool {
        self.pager.host_page_map(pages.clone()).iter().any(|run| run.mapped)
    }

    /// Managed memory appeared: it lives at home from the start, and every device reaches it there.
    pub(crate) fn settle_at_home(&mut self, range: ManagedRange) {
        let Some(exclusive) = &mut self.exclusive else { return };
        exclusive.managed_bytes += range.device_bytes();
        let home = exclusive.home;
        let pages = range.first_page..range.first_page + range.pages;
        for device in (0..self.config.devices).map(Processor::device) {
            if device != home {
                self.pager.set_accessed_by(pages.clone(), device, true);
            }
        }
        self.pager.migrate(pages, home);
    }

    /// An allocation went, and perhaps its range.
    pub(crate) fn leave_home(&mut self, gone: Option<ManagedRange>) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.managed_bytes -= gone.map_or(0, ManagedRange::device_bytes);
        }
    }

    /// Advice that names a device needs one with concurrent managed access.
    pub(crate) fn check_advised_device(
        &self,
        advice: Advice,
        at: Option<Processor>,
    ) -> Checked<()> {
        let is_device = at.is_some_and(|at| !at.is_host()) && advice.uses_location();
        if is_device && self.exclusive.is_some() {
            return bad_device("the device has no concurrent managed access");
        }
        Ok(())
    }

    /// Prefetching needs devices with concurrent managed access, whatever the destination: the
    /// stream has one, too.
    pub(crate) fn check_prefetch_works(&self) -> Checked<()> {
        if self.exclusive.is_some() {
            return bad_device("the stream's device has no concurrent managed access");
        }
        Ok(())
    }

    /// The machine has no default pool of managed memory.
    pub(crate) fn check_pool_kind(&self, kind: AllocationType) -> Checked<()> {
        if kind == AllocationType::MANAGED { self.check_concurrent() } else { Ok(()) }
    }

    /// So do the batch calls and the pools of managed memory.
    pub(crate) fn check_concurrent(&self) -> Checked<()> {
        if self.exclusive.is_some() {
            return unsupported("a device of this machine has no concurrent managed access");
        }
        Ok(())
    }
}
