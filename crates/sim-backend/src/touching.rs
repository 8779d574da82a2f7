//! Calls that read and write contents: access programs. Fills and copies are in `copies`.
//!
//! Pages move first, then the bytes are read or written: contents are real memory, so what a
//! program leaves behind does not depend on where its pages are.

use pagewise_hal::{
    DeviceAccess, DeviceId, DevicePtr, DeviceTouch, HostAccess, HostTouch, Processor, StreamHandle,
};

use crate::arrival::Threads;
use crate::concurrency::StreamWork;
use crate::locate::processor_of;
use crate::pager::{Access, AccessProgram};
use crate::refusal::{Checked, bad_device, illegal_address, invalid};
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};

impl Sim {
    /// A host access program.
    pub(crate) fn host_touch(&mut self, touch: HostTouch) -> Checked<u64> {
        let HostTouch { span, stride_bytes, access } = touch;
        if stride_bytes == 0 {
            return invalid("the stride must be at least 1 byte");
        }
        self.check_host_may_touch(span)?;
        let (by, threads) = (Processor::HOST, Threads::One);
        self.lend_during(span.bytes);
        self.run_program(AccessProgram { by, span, stride_bytes, access: access.into(), threads })?;
        Ok(self.touched_by_host(&touch))
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
        let threads =
            if touch.is_serial() { Threads::One } else { Threads::Grid { blocks, threads } };
        let by = processor_of(device);
        let program = AccessProgram { by, span, stride_bytes, access: access.into(), threads };
        if self.rehearses {
            return self.check_program(&program).map(|_| 0);
        }
        self.lend_during(span.bytes);
        self.launch(by, StreamWork::Program(&[span]), stream)?;
        self.run_program(program)?;
        self.waited_for(stream);
        Ok(self.touched_by_device(&touch))
    }

    /// Reads or writes the bytes of a host program after its pages have moved; returns the sum of
    /// what it read.
    #[inline]
    pub(crate) fn touched_by_host(&mut self, touch: &HostTouch) -> u64 {
        let &HostTouch { span, stride_bytes, access } = touch;
        match access {
            HostAccess::Read => self.arena.sum_strided(span.ptr.0, span.bytes, stride_bytes),
            HostAccess::Write(value) => {
                self.before_write(span);
                self.arena.write_strided(span.ptr.0, span.bytes, stride_bytes, value);
                0
            }
        }
    }

    /// Reads or writes the bytes of a device program after its pages have moved; returns the sum of
    /// what it read.
    #[inline]
    pub(crate) fn touched_by_device(&mut self, touch: &DeviceTouch) -> u64 {
        let &DeviceTouch { span, stride_bytes, access, .. } = touch;
        match access {
            DeviceAccess::Read => self.arena.sum_strided(span.ptr.0, span.bytes, stride_bytes),
            DeviceAccess::Write(value) => {
                self.before_write(span);
                self.arena.write_strided(span.ptr.0, span.bytes, stride_bytes, value);
                0
            }
            DeviceAccess::AtomicAdd => {
                self.before_write(span);
                self.arena.add_strided(span.ptr.0, span.bytes, stride_bytes);
                0
            }
        }
    }

    /// Moves the pages of an access program, and lets its time pass.
    pub(crate) fn run_program(&mut self, program: AccessProgram) -> Checked<()> {
        if program.span.bytes == 0 {
            return Ok(());
        }
        if self.check_program(&program)? {
            self.run_on_managed(program);
        } else {
            self.pager.ran_on_plain_memory(program);
        }
        Ok(())
    }

    /// Checks that the processor can reach the memory of a program: whether the memory is managed.
    fn check_program(&self, program: &AccessProgram) -> Checked<bool> {
        if self.space.is_managed(program.span) {
            return Ok(true);
        }
        let Some(allocation) = self.space.holding(program.span) else {
            return illegal_address("the range is not within one live allocation");
        };
        let (managed, writes) = (self.is_managed(allocation), program.access != Access::Read);
        if managed || self.reaches_all(program.by, allocation, program.span, writes) {
            return Ok(managed);
        }
        illegal_address("the processor cannot reach the memory")
    }

    pub(crate) fn run_on_managed(&mut self, program: AccessProgram) {
        self.clock_ns = self.pager.run_program(program, self.clock_ns);
        self.settle_contents();
    }

    /// Lets these devices reach allocations of `cuMemAlloc`, and no others that did before
    /// (CONTRACT-125).
    pub(crate) fn set_peer_access(
        &mut self,
        allocations: &[DevicePtr],
        devices: &[DeviceId],
    ) -> Checked<()> {
        if devices.iter().any(|&device| !self.topology.has_device(device)) {
            return bad_device("the device does not exist");
        }
        for &ptr in allocations {
            let found = self.space.starting(ptr);
            if found.is_some_and(|found| matches!(found.kind, MemoryKind::Device(_))) {
                self.peer_access.set(ptr.0, devices);
            }
        }
        Ok(())
    }

    /// Whether a processor can access memory that does not migrate.
    pub(crate) fn reaches(&self, by: Processor, allocation: &Allocation) -> bool {
        match allocation.kind {
            MemoryKind::Pinned | MemoryKind::Registered | MemoryKind::Managed => true,
            MemoryKind::Device(device) => {
                by == processor_of(device) || self.peer_access.admits(by, allocation.start)
            }
            MemoryKind::Opened(device) => by == processor_of(device),
            MemoryKind::Mapped(_) => self.mappings.admits(by, allocation.span(), false),
            MemoryKind::Pool(pool) => self.pools.any(pool.as_raw()).is_some_and(|p| p.admits(by)),
        }
    }
}
