//! The time that a kernel takes on a device without faults: a roofline.

use pagewise_hal::KernelWork;
use serde::{Deserialize, Serialize};

/// How fast a GPU's multiprocessors execute kernels. Rates are instructions of warps that one
/// multiprocessor completes in a clock, times are nanoseconds.
///
/// A kernel takes as long as the slowest of its units, and beyond that as long as one warp waits for
/// its own instructions, once for each wave of blocks. The launch itself is in the cost of the call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelParams {
    /// The clock of the multiprocessors.
    pub clock_ghz: f64,
    /// Instructions of all classes.
    pub issue: f64,
    /// Arithmetic of up to 32 bits of floating point.
    pub fp32: f64,
    /// Arithmetic of 64 bits of floating point.
    pub fp64: f64,
    /// Integer arithmetic.
    pub integer: f64,
    /// Approximate functions.
    pub special: f64,
    /// Accesses to memory.
    pub memory: f64,
    /// Accesses to shared memory, and exchanges within a warp.
    pub shared: f64,
    /// Products of matrices.
    pub tensor: f64,
    /// Branches, calls and barriers.
    pub control: f64,
    /// Bytes that all multiprocessors read and write in a nanosecond, most of them in caches.
    pub bytes_per_ns: f64,
    /// The time from the begin of a block to that of the next, on the whole GPU.
    pub block_ns: f64,
    /// The wait of a warp for one access to memory, of those that it makes one after another.
    pub access_ns: f64,
    /// The wait of a warp for another instruction.
    pub instruction_ns: f64,
}

/// The time in nanoseconds of a kernel on a device of so many multiprocessors, each of which holds
/// so many blocks.
#[must_use]
pub(crate) fn kernel_ns(
    work: &KernelWork,
    params: &KernelParams,
    multiprocessors: u32,
    blocks_each: u32,
) -> u64 {
    let multiprocessors = f64::from(multiprocessors.max(1));
    let blocks = work.blocks as f64;
    // A grid of fewer blocks leaves multiprocessors idle.
    let busy = blocks.clamp(1.0, multiprocessors);
    let units = [
        (work.instructions(), params.issue),
        (work.fp32, params.fp32),
        (work.fp64, params.fp64),
        (work.integer, params.integer),
        (work.special, params.special),
        (work.memory, params.memory),
        (work.shared, params.shared),
        (work.tensor, params.tensor),
        (work.control, params.control),
    ];
    let clocks = units.iter().map(|(count, rate)| *count as f64 / rate / busy);
    let units_ns = clocks.fold(0.0, f64::max) / params.clock_ghz;
    let bytes = work.bytes_read.saturating_add(work.bytes_written) as f64;
    let throughput_ns = units_ns.max(bytes / params.bytes_per_ns).max(blocks * params.block_ns);
    let warps = work.warps.max(1) as f64;
    let others = work.instructions().saturating_sub(work.memory) as f64;
    let warp_ns = (work.memory as f64 * params.access_ns + others * params.instruction_ns) / warps;
    let held = multiprocessors * f64::from(blocks_each.max(1));
    let waves = (blocks / held).max(1.0);
    (throughput_ns + waves * warp_ns) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::GpuProfile;

    /// 65536 blocks of 256 threads.
    fn grid(of_warp: KernelWork) -> KernelWork {
        let (blocks, warps) = (65_536, 65_536 * 8);
        let KernelWork { fp32, fp64, memory, .. } = of_warp;
        let times = |count| count * warps;
        let (fp32, fp64, memory) = (times(fp32), times(fp64), times(memory));
        KernelWork { fp32, fp64, memory, bytes_read: memory * 128, blocks, warps, ..of_warp }
    }

    fn ns(work: &KernelWork) -> u64 {
        kernel_ns(work, &GpuProfile::h200().kernels, 132, 8)
    }

    #[test]
    fn a_kernel_takes_as_long_as_its_slowest_unit_at_least() {
        let single = grid(KernelWork { fp32: 10_000, ..KernelWork::default() });
        let double = grid(KernelWork { fp64: 10_000, ..KernelWork::default() });
        let (single, double) = (ns(&single) as f64, ns(&double) as f64);
        // 7.6 and 3.9 instructions of warps in a nanosecond, as measured.
        let expected = 65_536.0 * 8.0 * 10_000.0 / 132.0;
        assert!((single / (expected / 7.65) - 1.0).abs() < 0.1, "{single}");
        assert!((double / (expected / 3.93) - 1.0).abs() < 0.1, "{double}");
    }

    #[test]
    fn a_grid_of_few_blocks_waits_for_its_warps() {
        let work =
            KernelWork { memory: 128 * 12_000, blocks: 16, warps: 128, ..Default::default() };
        assert!(ns(&work) > 500_000, "{}", ns(&work));
    }

    #[test]
    fn no_work_takes_next_to_no_time() {
        assert_eq!(ns(&KernelWork::default()), 0);
        let most = KernelWork { fp32: u64::MAX, memory: u64::MAX, ..KernelWork::default() };
        assert!(ns(&most) > 1 << 50);
    }
}
