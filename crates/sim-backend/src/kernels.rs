//! Accesses of kernels that a caller declares. No code of a device runs here: `programs` runs it.

use pagewise_hal::{KernelAccess, KernelAccesses, Span, StreamHandle, StridedSpan};

use crate::arrival::Threads;
use crate::concurrency::StreamWork;
use crate::locate::processor_of;
use crate::pager::{Access, AccessProgram, KernelProgram};
use crate::refusal::{Checked, bad_device, illegal_address, invalid};
use crate::sim::Sim;

/// The engine's accesses at a place, in order.
const fn accesses(access: KernelAccess) -> &'static [Access] {
    match access {
        KernelAccess::Load => &[Access::Read],
        KernelAccess::Store => &[Access::Write],
        KernelAccess::Update => &[Access::Read, Access::Write],
        KernelAccess::Atomic => &[Access::Atomic],
    }
}

impl Sim {
    /// The accesses of a kernel. Contents stay, and memory that pages have left keeps its own.
    pub(crate) fn kernel_accesses(
        &mut self,
        kernel: &KernelAccesses,
        stream: StreamHandle,
    ) -> Checked<()> {
        let &KernelAccesses { device, blocks, threads, ref walks } = kernel;
        if !self.topology.has_device(device) {
            return bad_device("the device does not exist");
        }
        // The driver looks at the stream first (CONTRACT-101).
        self.streams.check_for(stream, device)?;
        if let Err(why) = kernel.check() {
            return invalid(why);
        }
        let by = processor_of(device);
        let touched = self.allocations_of(kernel)?;
        self.check_may_write(kernel)?;
        self.lend();
        self.launch(by, StreamWork::Program(&touched), stream)?;
        let threads =
            if kernel.is_serial() { Threads::One } else { Threads::Grid { blocks, threads } };
        let each = walks.iter().flat_map(|walk| {
            accesses(walk.access).iter().map(|&access| (access, &walk.places[..]))
        });
        let walks: Vec<(Access, &[StridedSpan])> = each.collect();
        match walks[..] {
            // A walk over one range is an access program.
            [(access, &[StridedSpan { span, stride_bytes }])] => {
                self.run_program(AccessProgram { by, span, stride_bytes, access, threads })?;
            }
            _ => {
                let kernel = KernelProgram { by, threads, walks };
                self.clock_ns = self.pager.run_walks(&kernel, self.clock_ns);
                self.settle_contents();
            }
        }
        self.waited_for(stream);
        let written = kernel.walks.iter().filter(|walk| walk.access.writes());
        written.flat_map(|walk| &walk.places).for_each(|range| self.before_write(range.span));
        Ok(())
    }

    /// Refuses writes to memory that the device may only read. Its allocations were looked up.
    fn check_may_write(&self, kernel: &KernelAccesses) -> Checked<()> {
        let by = processor_of(kernel.device);
        let written = kernel.walks.iter().filter(|walk| walk.access.writes());
        for &StridedSpan { span, .. } in written.flat_map(|walk| &walk.places) {
            let allocation = self.space.containing(span.ptr).filter(|_| span.bytes > 0);
            if allocation.is_some_and(|found| !self.reaches_all(by, found, span, true)) {
                return illegal_address("the device may read the memory, and not write it");
            }
        }
        Ok(())
    }

    /// The allocations that a kernel accesses, each once. Refuses ranges that are not within one
    /// that the device can reach.
    fn allocations_of(&self, kernel: &KernelAccesses) -> Checked<Vec<Span>> {
        let by = processor_of(kernel.device);
        let mut found: Vec<Span> = Vec::new();
        let holds = |whole: &Span, part: Span| {
            let ends = whole.end().zip(part.end());
            whole.ptr <= part.ptr && ends.is_some_and(|(whole, part)| part <= whole)
        };
        for span in kernel.spans().filter(|span| span.bytes > 0) {
            // Neighbours in a walk are mostly of one allocation.
            if found.iter().rev().take(2).any(|whole| holds(whole, span)) {
                continue;
            }
            let Some(allocation) = self.space.holding(span) else {
                return illegal_address("a range is not within one live allocation");
            };
            if !self.reaches_all(by, allocation, span, false) {
                return illegal_address("the device cannot reach the memory");
            }
            // Mappings side by side hold a range that none of them does.
            let whole = allocation.span();
            found.push(if allocation.contains(span) { whole } else { span });
        }
        found.sort_unstable_by_key(|span| span.ptr);
        found.dedup();
        Ok(found)
    }
}
