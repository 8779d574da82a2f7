//! Helpers for unit tests of the engine.

use std::collections::VecDeque;

use pagewise_hal::{MemoryEvent, Processor};

use super::context::Context;
use super::groups::Groups;
use super::mask::PageMask;
use super::params::PagingParams;
use super::processor::Relations;
use super::range::Policy;
use super::report::{Holding, ReportSink, Work};
use super::thrash::window::LapseWindow;
use super::totals::Totals;
use super::walked::Walked;
use crate::GpuProfile;

/// All that the engine reports, in its order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Heard {
    pub(super) records: Vec<MemoryEvent>,
    pub(super) work: Vec<Work>,
    pub(super) holdings: Vec<(u64, PageMask, Processor, Holding)>,
}

impl ReportSink for Heard {
    fn record(&mut self, record: MemoryEvent) {
        self.records.push(record);
    }

    fn work(&mut self, work: &Work) -> u64 {
        self.work.push(*work);
        1000
    }

    fn fault_latency_ns(&mut self, _: Processor, _: u64) -> u64 {
        5000
    }

    fn holding(&mut self, first_page: u64, pages: PageMask, processor: Processor, now: Holding) {
        self.holdings.push((first_page, pages, processor, now));
    }
}

/// Runs a test in a context with this policy on a PCIe host with two NVLink peers.
pub(super) fn with_context<R>(policy: Policy, test: impl FnOnce(&mut Context<'_>) -> R) -> R {
    heard_in(&GpuProfile::h200().paging, policy, test).0
}

/// Runs a test with these parameters, and returns its reports too.
pub(super) fn heard_in<R>(
    params: &PagingParams,
    policy: Policy,
    test: impl FnOnce(&mut Context<'_>) -> R,
) -> (R, Heard) {
    heard_on(&Relations::pcie_with_nvlink(2), params, policy, test)
}

/// Runs a test on a machine with these processors, and returns its reports too.
pub(super) fn heard_on<R>(
    relations: &Relations,
    params: &PagingParams,
    policy: Policy,
    test: impl FnOnce(&mut Context<'_>) -> R,
) -> (R, Heard) {
    let mut lapse = LapseWindow::new(&params.thrashing);
    let mut heard = Heard::default();
    let result = test(&mut Context {
        params,
        relations,
        policy,
        now_ns: 0,
        work: Work::default(),
        wants: heard.wants(),
        sink: &mut heard,
        pins: &mut VecDeque::new(),
        lapse: &mut lapse,
        groups: &Groups::default(),
        walked: &mut Walked::default(),
        totals: &mut Totals::new(relations.count()),
        chunks: &mut [],
        shortcuts: true,
    });
    (result, heard)
}
