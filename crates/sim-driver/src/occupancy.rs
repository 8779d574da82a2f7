//! Occupancy: how many blocks of a kernel a multiprocessor holds at once.
//!
//! Source: the CUDA programming guide, "Multiprocessor level", and "Technical specifications per
//! compute capability". An H200 gave the same numbers for six kernels, twelve block sizes and six
//! sizes of shared memory (`tests/data/programs.tsv`).

use pagewise_hal::Code;
use pagewise_ptx::execute::blocks_by_registers;

use crate::outcome::Outcome;
use crate::programs::limits::{Limits, Multiprocessor};
use crate::programs::settings::registers;
use crate::programs::tables::Function;

/// Registers are given to a warp in multiples of this.
const REGISTER_UNIT: u32 = 256;

/// Shared memory is given to a block in multiples of this many bytes.
const SHARED_UNIT: u64 = 128;

/// Blocks of a kernel that a multiprocessor holds at once, with so many threads and so many bytes
/// of dynamic shared memory each. 0 if it cannot run one.
pub(crate) fn active_blocks(
    function: &Function,
    limits: &Limits,
    multiprocessor: &Multiprocessor,
    threads: u32,
    dynamic_bytes: u64,
) -> Outcome<u32> {
    let kernel = function.kernel()?;
    let Multiprocessor { threads: all, blocks, registers: room, warp, .. } = *multiprocessor;
    if warp == 0 || threads == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let is_too_large =
        threads > limits.block_threads || dynamic_bytes > function.settings.dynamic_shared(kernel);
    if is_too_large {
        return Ok(0);
    }
    let warps = threads.div_ceil(warp);
    let by_warps = all.checked_div(warp).and_then(|all| all.checked_div(warps)).unwrap_or(0);
    let registers = registers(&function.image, kernel);
    let by_registers = if kernel.registers.is_some() {
        let of_warp = registers.saturating_mul(warp).next_multiple_of(REGISTER_UNIT);
        room.checked_div(of_warp.saturating_mul(warps)).unwrap_or(u32::MAX)
    } else {
        blocks_by_registers(registers, warps, room)
    };
    let bytes = kernel.shared_bytes.saturating_add(dynamic_bytes);
    let bytes = bytes.saturating_add(multiprocessor.reserved_bytes);
    let bytes = bytes.checked_next_multiple_of(SHARED_UNIT).unwrap_or(u64::MAX);
    let by_shared = multiprocessor.shared_bytes.checked_div(bytes).unwrap_or(u64::MAX);
    let by_shared = u32::try_from(by_shared).unwrap_or(u32::MAX);
    Ok(blocks.min(by_warps).min(by_registers).min(by_shared))
}

/// Blocks of clusters that a multiprocessor holds at once, at most (`tests/data/clusters.tsv`).
const CLUSTER_BLOCKS: u32 = 8;

/// Clusters of so many blocks that a device holds at once. A cluster lies in one group of
/// multiprocessors, which has at least as many as the cluster has blocks.
pub(crate) fn active_clusters(
    function: &Function,
    limits: &Limits,
    multiprocessor: &Multiprocessor,
    groups: &[u32],
    (cluster, threads, dynamic_bytes): (u32, u32, u64),
) -> Outcome<u32> {
    let each = active_blocks(function, limits, multiprocessor, threads, dynamic_bytes)?;
    let each = each.min(CLUSTER_BLOCKS);
    let of_group = |group: &&u32| **group >= cluster && cluster > 0;
    let clusters = groups.iter().filter(of_group);
    Ok(clusters.fold(0, |sum: u32, group| {
        sum.saturating_add(group.saturating_mul(each).checked_div(cluster).unwrap_or(0))
    }))
}

/// The block that keeps most threads of a multiprocessor busy, and the blocks of the smallest grid
/// that fills a device: the larger block of two that are as good. `dynamic_bytes` gives the dynamic
/// shared memory of a block of so many threads; `most` limits the block, unless it is 0.
pub(crate) fn best_block(
    function: &Function,
    limits: &Limits,
    multiprocessor: &Multiprocessor,
    dynamic_bytes: impl Fn(u32) -> u64,
    most: u32,
) -> Outcome<(u32, u32)> {
    let kernel = function.kernel()?;
    let allowed = kernel.threads_max().unwrap_or(limits.block_threads).min(limits.block_threads);
    let most = if most == 0 { allowed } else { most.min(allowed) };
    let warp = multiprocessor.warp.max(1);
    let (mut best, mut best_threads) = ((0, 0), 0);
    for warps in (1..=most.div_ceil(warp)).rev() {
        let threads = warps.saturating_mul(warp).min(most);
        let bytes = dynamic_bytes(threads);
        let blocks = active_blocks(function, limits, multiprocessor, threads, bytes)?;
        let busy = blocks.saturating_mul(threads);
        if busy > best_threads {
            best_threads = busy;
            best = (blocks.saturating_mul(multiprocessor.count), threads);
        }
        if busy >= multiprocessor.threads {
            break;
        }
    }
    Ok(best)
}

/// Bytes of dynamic shared memory that each of so many blocks can have on one multiprocessor.
pub(crate) fn available_shared(
    function: &Function,
    limits: &Limits,
    multiprocessor: &Multiprocessor,
    (blocks, threads): (u32, u32),
) -> Outcome<u64> {
    let most = active_blocks(function, limits, multiprocessor, threads, 0)?;
    if blocks == 0 || blocks > most {
        return Err(Code::INVALID_VALUE);
    }
    let kernel = function.kernel()?;
    let share = multiprocessor.shared_bytes.checked_div(u64::from(blocks)).unwrap_or(0);
    let share = share.checked_div(SHARED_UNIT).unwrap_or(0).saturating_mul(SHARED_UNIT);
    let share = share.saturating_sub(kernel.shared_bytes);
    Ok(share.min(function.settings.dynamic_shared(kernel)))
}
