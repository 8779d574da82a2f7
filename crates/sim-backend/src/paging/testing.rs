//! Surroundings for unit tests.

use std::collections::VecDeque;

use pagewise_hal::MemoryEvent;

use super::context::Context;
use super::event::Work;
use super::groups::Groups;
use super::params::PagingParams;
use super::processor::Relations;
use super::range::Policy;
use super::thrash::LapseWindow;
use super::totals::Totals;

/// Runs a test in a context with this policy on a PCIe host with two NVLink peers.
pub(super) fn with_context<R>(policy: Policy, test: impl FnOnce(&mut Context<'_>) -> R) -> R {
    let params = PagingParams::default();
    let mut lapse = LapseWindow::new(&params.thrashing);
    test(&mut Context {
        params: &params,
        relations: &Relations::pcie_with_nvlink(2),
        policy,
        now_ns: 0,
        work: Work::default(),
        sink: &mut Vec::<MemoryEvent>::new(),
        pins: &mut VecDeque::new(),
        lapse: &mut lapse,
        groups: &Groups::default(),
        totals: &mut Totals::new(3),
        shortcuts: true,
    })
}
