//! Pinned pages, in the order in which they are released.

use std::collections::VecDeque;

use super::super::params::ThrashingParams;

/// A pinned page, in the queue of pages to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paging) struct Pin {
    pub(in crate::paging) deadline_ns: u64,
    /// Absolute page number.
    pub(in crate::paging) page: u64,
}

/// The pins that run out by `now_ns`, taken off the queue.
pub(in crate::paging) fn expired(
    pins: &mut VecDeque<Pin>,
    params: &ThrashingParams,
    now_ns: u64,
) -> Option<Pin> {
    let first = pins.front()?;
    if first.deadline_ns > now_ns.saturating_add(params.unpin_slack_ns) {
        return None;
    }
    pins.pop_front()
}
