//! The context of one step on one va_block: policy, parameters, time and the sink for reports.
#![allow(clippy::arithmetic_side_effects, reason = "one step counts pages and runs of one block")]

use std::collections::VecDeque;

use pagewise_hal::MemoryEvent;

use super::chunks::Chunks;
use super::groups::Groups;
use super::params::PagingParams;
use super::processor::{ProcId, Relations};
use super::range::Policy;
use super::report::{ReportSink, Wants, Work, WorkCause};
use super::thrash::pins::Pin;
use super::thrash::window::LapseWindow;
use super::totals::Totals;
use super::walked::Walked;

/// The surroundings of one step on one va_block.
pub(super) struct Context<'a> {
    pub(super) params: &'a PagingParams,
    pub(super) relations: &'a Relations,
    /// The policy of the block's range.
    pub(super) policy: Policy,
    pub(super) now_ns: u64,
    pub(super) work: Work,
    pub(super) sink: &'a mut dyn ReportSink,
    pub(super) wants: Wants,
    pub(super) pins: &'a mut VecDeque<Pin>,
    pub(super) lapse: &'a mut LapseWindow,
    pub(super) totals: &'a mut Totals,
    /// Memory of each GPU.
    pub(super) chunks: &'a mut [Chunks],
    pub(super) groups: &'a Groups,
    pub(super) walked: &'a mut Walked,
    #[cfg(test)]
    pub(super) shortcuts: bool,
}

impl Context<'_> {
    /// The figures, the groups and the policy that decide which pages a fault brings along.
    pub(super) fn by_policy(&self) -> (&PagingParams, &Groups, Policy) {
        (self.params, self.groups, self.policy)
    }

    /// Reports one record.
    #[inline]
    pub(super) fn emit(&mut self, record: MemoryEvent) {
        self.sink.record(record);
    }

    /// Reports the work of the step, if there was any; returns the nanoseconds that it took.
    pub(super) fn finish(&mut self) -> u64 {
        if self.work.cause == WorkCause::Fault || !self.work.is_idle() {
            self.sink.work(&self.work)
        } else {
            0
        }
    }

    /// Counts pages taken out of a processor's page table.
    #[inline]
    pub(super) fn count_unmapped(&mut self, id: ProcId, pages: usize) {
        self.walked.forget(id);
        let (counter, times) = if id.is_host() {
            (&mut self.work.pages_unmapped_host, &mut self.work.unmaps_host)
        } else {
            (&mut self.work.pages_unmapped_device, &mut self.work.unmaps_device)
        };
        *counter += pages as u64;
        *times += 1;
    }

    /// Counts pages entered in a processor's page table.
    #[inline]
    pub(super) fn count_mapped(&mut self, id: ProcId, pages: usize) {
        let counter = if id.is_host() {
            &mut self.work.pages_mapped_host
        } else {
            &mut self.work.pages_mapped_device
        };
        *counter += pages as u64;
    }

    /// Counts copied runs, and their pages.
    #[inline]
    pub(super) fn count_copied(&mut self, from: ProcId, to: ProcId, runs: u64, pages: u64) {
        let counter = if from.is_host() {
            &mut self.work.pages_to_device
        } else if to.is_host() {
            &mut self.work.pages_to_host
        } else {
            &mut self.work.pages_between_devices
        };
        *counter += pages;
        self.work.copies += runs;
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("policy", &self.policy).finish_non_exhaustive()
    }
}
