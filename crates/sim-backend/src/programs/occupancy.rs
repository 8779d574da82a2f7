//! Occupancy: how many blocks of a kernel a multiprocessor holds at once.

use pagewise_hal::BestBlock;
use pagewise_ptx::execute::{Config, blocks_per_sm};
use pagewise_ptx::module::KernelInfo;

use super::limits::GridLimits;

/// Threads of a warp.
const WARP: u32 = 32;

/// Blocks of a kernel that a multiprocessor holds at once; 0 if it cannot hold one.
pub(super) fn blocks(limits: &GridLimits, kernel: &KernelInfo, threads: u32, shared: u32) -> u32 {
    if threads > kernel.max_threads {
        return 0;
    }
    let config = Config { limits: limits.of_multiprocessor(), ..Config::default() };
    blocks_per_sm(kernel, &config, threads, shared)
}

/// The block that keeps most threads busy: the larger of two that are as good. `most` limits it,
/// unless it is 0.
pub(super) fn best_block(
    limits: &GridLimits,
    kernel: &KernelInfo,
    shared: u32,
    most: u32,
) -> BestBlock {
    let allowed = kernel.max_threads.min(limits.block_threads);
    let most = if most == 0 { allowed } else { most.min(allowed) };
    let (mut best, mut busiest) = (BestBlock { grid_blocks: 0, block_threads: 0 }, 0);
    for warps in (1..=most.div_ceil(WARP)).rev() {
        let threads = warps.saturating_mul(WARP).min(most);
        let each = blocks(limits, kernel, threads, shared);
        let busy = each.saturating_mul(threads);
        if busy > busiest {
            busiest = busy;
            let grid_blocks = each.saturating_mul(limits.multiprocessors);
            best = BestBlock { grid_blocks, block_threads: threads };
        }
        if busy >= limits.threads {
            break;
        }
    }
    best
}
