//! The window in which arrivals and revocations count as thrashing.

use super::super::params::{LapseVote, ThrashingParams};

/// The window in which thrashing events count, with the votes to change it. One per address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::paging) struct LapseWindow {
    pub(super) lapse_ns: u64,
    vote: i32,
}

impl LapseWindow {
    pub(in crate::paging) fn new(params: &ThrashingParams) -> Self {
        Self { lapse_ns: params.lapse_ns, vote: 0 }
    }

    /// One vote (PAGING-125): down if the page thrashes within the window, up if it does not.
    pub(super) fn cast(&mut self, params: &ThrashingParams, gap_ns: u64) {
        let threshold = i32::from(params.vote_threshold);
        self.vote += if gap_ns < self.lapse_ns { -1 } else { 1 };
        let step = (self.lapse_ns / 8).min(params.lapse_max_ns / 10);
        let grow = match params.lapse_vote {
            LapseVote::Constant => return,
            LapseVote::Intended => self.vote >= threshold,
            // A negative vote is compared as a huge unsigned number.
            LapseVote::Compiled => self.vote < 0 || self.vote >= threshold,
        };
        if grow && self.lapse_ns < params.lapse_max_ns {
            self.lapse_ns = (self.lapse_ns + step).min(params.lapse_max_ns);
            self.vote = if self.vote >= threshold { threshold / 2 } else { 0 };
        } else if params.lapse_vote == LapseVote::Intended && self.vote <= -threshold {
            self.lapse_ns = self.lapse_ns.saturating_sub(step).max(params.lapse_min_ns);
            self.vote = -threshold / 2;
        }
    }
}
