//! The cost of advice: its work on each range and block.

use super::params::AdviceCosts;
use super::state::Warmth;
use super::tally::Tally;
use crate::paging::{Advised, Work};

pub(super) fn call(costs: &AdviceCosts, tally: &Tally, warmth: Warmth) -> f64 {
    if !tally.advised {
        let woken = warmth.if_after_sleep(costs.no_memory_after_sleep);
        return costs.no_memory + woken;
    }
    let woken = if tally.acts && warmth.has_slept() { costs.acts_after_sleep } else { 0.0 };
    costs.call + warmth.ns(&costs.warmth) + woken + tally.advice_ns
}

/// Whether an advice acts on a block rather than only noting something.
pub(super) fn acts(advised: Advised, work: &Work) -> bool {
    let preferred = matches!(advised, Advised::PreferredDevice | Advised::PreferredElsewhere);
    match advised {
        _ if preferred => work.pages_held_host > 0,
        Advised::ReadMostlyEnd => work.pages_collapsed > 0,
        Advised::AccessedByEnd => false,
        _ => work.blocks > 0,
    }
}

/// The cost of its effect on one block, or on ranges.
pub(super) fn step(costs: &AdviceCosts, advised: Advised, work: &Work) -> f64 {
    let blocks = work.blocks as f64;
    let (on_host, on_device) = (work.pages_held_host as f64, work.pages_held_device as f64);
    let holding = |pages: u64| if pages > 0 { blocks } else { 0.0 };
    let (host_block, device_block) =
        (holding(work.pages_held_host), holding(work.pages_held_device));
    let cuts = costs.range * work.ranges_advised as f64
        + costs.range_split * work.ranges_split as f64
        + costs.block_split * work.blocks_split as f64
        + costs.mapped_block_split * work.mapped_blocks_split as f64;
    cuts + match advised {
        Advised::PreferredElsewhere => {
            costs.preferred_block * blocks + costs.preferred_host_page * on_host
        }
        Advised::PreferredDevice => {
            costs.preferred_block * blocks
                + costs.preferred_host_page * on_host
                + costs.preferred_device_block * device_block
        }
        Advised::ReadMostly => {
            costs.read_mostly_host_block * host_block
                + costs.read_mostly_device_block * device_block
                + costs.revoked_host_page * work.pages_revoked_host as f64
        }
        Advised::ReadMostlyEnd => {
            let collapsed = holding(work.pages_collapsed);
            costs.read_mostly_end_block * blocks
                + costs.read_mostly_end_host_block * host_block
                + costs.collapsed_block * collapsed
        }
        Advised::AccessedByDevice => {
            costs.accessed_by_device_block * blocks
                + costs.accessed_by_device_page * (on_host + on_device)
        }
        Advised::AccessedByHost => {
            costs.accessed_by_host_block * blocks
                + costs.accessed_by_host_page * on_host
                + costs.accessed_by_host_device_page * on_device
        }
        Advised::AccessedByEnd => 0.0,
    }
}
