//! Calls that read and write contents: access programs, memset, memcpy.
//!
//! Pages move first, then the bytes are read or written: contents are real memory, so what a
//! program leaves behind does not depend on where its pages are.

use pagewise_hal::{
    Code, DeviceAccess, DevicePtr, DeviceTouch, HostAccess, HostTouch, LocationKind, PAGE_BYTES,
    Processor, Span, StreamHandle,
};

use crate::arrival::Threads;
use crate::concurrency::StreamWork;
use crate::config::RangeReads;
use crate::locate::processor_of;
use crate::pager::{Access, AccessProgram};
use crate::refusal::{Checked, bad_device, illegal_address, invalid, refuse};
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};

impl Sim {
    /// A host access program.
    pub(crate) fn host_touch(&mut self, touch: HostTouch) -> Checked<u64> {
        let HostTouch { span, stride_bytes, access } = touch;
        if stride_bytes == 0 {
            return invalid("the stride must be at least 1 byte");
        }
        let fault = match access {
            HostAccess::Read => Access::Read,
            HostAccess::Write(_) => Access::Write,
        };
        self.check_host_may_touch(span)?;
        let (by, threads) = (Processor::HOST, Threads::One);
        self.run_program(AccessProgram { by, span, stride_bytes, access: fault, threads })?;
        let Span { ptr, bytes } = span;
        match access {
            HostAccess::Read => return Ok(self.arena.sum_strided(ptr.0, bytes, stride_bytes)),
            HostAccess::Write(value) => {
                self.before_write(span);
                self.arena.write_strided(ptr.0, bytes, stride_bytes, value);
            }
        }
        Ok(0)
    }

    /// A device access program.
    pub(crate) fn device_touch(
        &mut self,
        touch: DeviceTouch,
        stream: StreamHandle,
    ) -> Checked<u64> {
        let DeviceTouch { device, span, stride_bytes, access, blocks, threads } = touch;
        if !self.topology.has_device(device) {
            return bad_device("the device does not exist");
        }
        // The driver looks at the stream first (CONTRACT-101).
        self.streams.check_for(stream, device)?;
        if let Err(why) = touch.check() {
            return invalid(why);
        }
        let fault = match access {
            DeviceAccess::Read => Access::Read,
            DeviceAccess::Write(_) => Access::Write,
            DeviceAccess::AtomicAdd => Access::Atomic,
        };
        let threads =
            if touch.is_serial() { Threads::One } else { Threads::Grid { blocks, threads } };
        let by = processor_of(device);
        self.launch(by, StreamWork::Program(&[span]), stream)?;
        self.run_program(AccessProgram { by, span, stride_bytes, access: fault, threads })?;
        self.waited_for(stream);
        let Span { ptr, bytes } = span;
        match access {
            DeviceAccess::Read => return Ok(self.arena.sum_strided(ptr.0, bytes, stride_bytes)),
            DeviceAccess::Write(value) => {
                self.before_write(span);
                self.arena.write_strided(ptr.0, bytes, stride_bytes, value);
            }
            DeviceAccess::AtomicAdd => {
                self.before_write(span);
                self.arena.add_strided(ptr.0, bytes, stride_bytes);
            }
        }
        Ok(0)
    }

    /// `cuMemsetD8Async`: the stream's device writes every page. Plain memory of another device is
    /// refused, as no peer has access (CONTRACT-103).
    pub(crate) fn memset(&mut self, span: Span, value: u8, stream: StreamHandle) -> Checked<()> {
        let device = self.device_of(stream)?;
        if span.bytes == 0 {
            return Ok(());
        }
        self.check_within_one(span)?;
        let elsewhere = |allocation: &Allocation| match allocation.kind {
            MemoryKind::Device(owner) => processor_of(owner) != device,
            _ => false,
        };
        if self.space.containing(span.ptr).is_some_and(elsewhere) {
            return invalid("the memory is another device's than the stream");
        }
        self.launch(device, StreamWork::FillOrCopy(&[span]), stream)?;
        self.walk_pages(device, span, Access::Write, Threads::Bulk);
        self.started(stream);
        self.before_write(span);
        self.arena.fill(span.ptr.0, span.bytes, value);
        Ok(())
    }

    /// `cuMemcpyAsync`: the stream's device reads the source and writes the destination, except for
    /// memory that is to be on the host.
    pub(crate) fn memcpy(
        &mut self,
        destination: DevicePtr,
        source: DevicePtr,
        bytes: u64,
        stream: StreamHandle,
    ) -> Checked<()> {
        let device = self.device_of(stream)?;
        let (to, from) = (Span::new(destination, bytes), Span::new(source, bytes));
        if bytes == 0 {
            return Ok(());
        }
        self.check_within_one(to)?;
        self.check_within_one(from)?;
        self.launch(device, StreamWork::FillOrCopy(&[from, to]), stream)?;
        self.walk_copied(device, from, Access::Read);
        self.walk_copied(device, to, Access::Write);
        self.started(stream);
        self.before_write(to);
        self.arena.copy(destination.0, source.0, bytes);
        Ok(())
    }

    /// Touches every page of the source or destination of a copy. If it prefers the host, as far as
    /// the driver knows, the host's threads do that (PAGING-280).
    fn walk_copied(&mut self, device: Processor, span: Span, access: Access) {
        let pages = span.pages_outward();
        let preferred = self.attributes.preferred(&pages, RangeReads::Driver);
        let by_host = preferred.is_some_and(|location| location.kind != LocationKind::DEVICE);
        if by_host && self.exclusive.is_none() {
            self.walk_pages(Processor::HOST, span, access, Threads::One);
        } else {
            self.walk_pages(device, span, access, Threads::Bulk);
        }
    }

    /// Touches every page of a range, also one that it only reaches into, as the driver's kernels
    /// do. Its copy engine reaches any memory, so only managed ranges fault.
    fn walk_pages(&mut self, by: Processor, span: Span, access: Access, threads: Threads) {
        let allocation = self.space.containing(span.ptr);
        if allocation.is_some_and(|allocation| self.is_managed(allocation)) {
            let pages = span.pages_outward();
            let bytes = (pages.end - pages.start) * PAGE_BYTES;
            let span = Span::new(DevicePtr(pages.start * PAGE_BYTES), bytes);
            self.run_on_managed(AccessProgram {
                by,
                span,
                stride_bytes: PAGE_BYTES,
                access,
                threads,
            });
        }
    }

    /// Moves the pages of an access program, and lets its time pass.
    pub(crate) fn run_program(&mut self, program: AccessProgram) -> Checked<()> {
        if program.span.bytes == 0 {
            return Ok(());
        }
        let allocation = self.space.containing(program.span.ptr);
        let Some(allocation) = allocation.filter(|a| a.contains(program.span)) else {
            return illegal_address("the range is not within one live allocation");
        };
        if self.is_managed(allocation) {
            self.run_on_managed(program);
            return Ok(());
        }
        if self.reaches(program.by, allocation) {
            self.pager.ran_on_plain_memory(program);
            return Ok(());
        }
        illegal_address("the processor cannot reach the memory")
    }

    fn run_on_managed(&mut self, program: AccessProgram) {
        self.clock_ns = self.pager.run_program(program, self.clock_ns);
        self.settle_contents();
    }

    /// Whether a processor can access memory that does not migrate.
    pub(crate) fn reaches(&self, by: Processor, allocation: &Allocation) -> bool {
        match (allocation.kind, by.device_ordinal()) {
            (MemoryKind::Pinned | MemoryKind::Registered | MemoryKind::Managed, _) => true,
            (MemoryKind::Device(device), Some(ordinal)) => {
                processor_of(device).device_ordinal() == Some(ordinal)
            }
            (MemoryKind::Device(_), None) => false,
            (MemoryKind::Pool(pool), _) => {
                self.pools.any(pool.as_raw()).is_some_and(|p| p.admits(by))
            }
        }
    }

    fn check_within_one(&self, span: Span) -> Checked<()> {
        match self.space.containing(span.ptr) {
            Some(allocation) if allocation.contains(span) => Ok(()),
            _ => invalid("the range is not within one live allocation"),
        }
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
