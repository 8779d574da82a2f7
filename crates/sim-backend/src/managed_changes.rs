//! The managed allocations that appear, go and change, for those who follow them.

use pagewise_hal::{BLOCK_BYTES, Span};

use crate::backend::SimBackend;
use crate::paging::Asker;
use crate::space::Step;

/// An allocation that appeared or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagedStep {
    /// Managed memory appeared.
    Made(Span),
    /// Memory went, managed or not.
    Gone(Span),
}

/// Changes of managed memory since they were last asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagedChanges {
    /// The allocations that appeared and went, in their order.
    pub steps: Vec<ManagedStep>,
    /// The addresses of blocks of 2 MiB that may have changed, ascending.
    pub blocks: Vec<u64>,
}

impl SimBackend {
    /// Notes, from now on, which managed allocations appear, go and change: see
    /// [`take_managed_changes`](Self::take_managed_changes). Those that live now are not noted.
    pub fn follow_managed(&self) {
        let mut machine = self.lock();
        machine.space.journal().begin();
        machine.pager.watch_slots(Asker::Follower);
    }

    /// The managed allocations that appeared and went since this was last asked, and the blocks with
    /// pages that came, went, or were mapped or unmapped. Empty unless
    /// [`follow_managed`](Self::follow_managed) was called. Costs by what changed.
    ///
    /// ```
    /// use pagewise_hal::{Backend, BackendExt, Location};
    /// use pagewise_sim::{ManagedStep, SimBackend, SimConfig};
    ///
    /// let sim = SimBackend::new(SimConfig::h200())?;
    /// sim.follow_managed();
    /// let span = sim.alloc(4096)?;
    /// sim.prefetch_to(span, Location::device(pagewise_hal::DeviceId(0)))?;
    /// let changes = sim.take_managed_changes();
    /// assert_eq!(changes.steps, [ManagedStep::Made(span)]);
    /// assert_eq!(changes.blocks, [span.ptr.0]);
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    #[must_use]
    pub fn take_managed_changes(&self) -> ManagedChanges {
        let mut machine = self.lock();
        let steps = machine.space.journal().take();
        let slots = machine.pager.take_changed_slots(Asker::Follower);
        let managed = steps.into_iter().filter_map(|step| match step {
            Step::Made(found) => {
                machine.is_managed(&found).then(|| ManagedStep::Made(found.span()))
            }
            Step::Gone(found) => Some(ManagedStep::Gone(found.span())),
        });
        let blocks = slots.into_iter().map(|slot| slot.saturating_mul(BLOCK_BYTES)).collect();
        ManagedChanges { steps: managed.collect(), blocks }
    }
}
