//! Parameters of the arrival of faults.

use serde::{Deserialize, Serialize};

/// How the faults of a kernel of many threads reach the driver, and how the driver collects them.
///
/// Times in nanoseconds. Fields are either *published* or *fitted*: chosen so that the number of
/// batches in recording `parallel` of an H200 comes out, which does not make them measurements of
/// what their names say (TIMING-31).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalParams {
    /// Multiprocessors of the GPU. Published: 132.
    pub multiprocessors: u32,
    /// Threads that a multiprocessor holds at a time. Published: CUDA programming guide, compute
    /// capability 9.0, 2048.
    pub threads_per_multiprocessor: u32,
    /// Thread blocks that a multiprocessor holds at a time. Published: likewise, 32.
    pub blocks_per_multiprocessor: u32,
    /// Faults in one batch, duplicates included. Published: `uvm_perf_fault_batch_count`, 256.
    pub batch_faults: u32,
    /// Percentage of duplicates in a batch above which the driver drops every fault that arrived
    /// while it was at work, and not only those from before. Published:
    /// `uvm_perf_fault_replay_update_put_ratio`, 50.
    pub drop_all_percent: u32,
    /// Aligned pieces of 16 KiB in which one multiprocessor has faults outstanding. 14 of them are
    /// 56 pages, the published limit of one uTLB (TIMING-30).
    pub sectors_per_multiprocessor: u32,
    /// Turns that a multiprocessor takes together when it begins, and together the next time; the
    /// others follow one by one. A warp's access takes one, and each of its faults another
    /// (TIMING-32). Fitted.
    pub wave_slots: [u32; 2],
    /// Faults of writes that a multiprocessor has on one page at a time. Recorded (TIMING-32).
    pub page_writes: u32,
    /// From the first of these waves to the second, and from there to the others. Fitted.
    pub wave_ns: u64,
    /// From one of the other faults to the next, or of a wave of a copy (TIMING-35), and for the
    /// driver to read any fault. Fitted.
    pub fault_ns: u64,
    /// After a replay, multiprocessors begin to fault within this time for each that waits. Fitted.
    pub spread_ns: u64,
    /// From one write of a warp that writes on to its next, from the second on. Fitted.
    pub write_ns: u64,
    /// From the first fault after a replay until the driver reads: the walk of the page tables to
    /// its page, if the device maps one of the same 8 entries, one of the same 16, another page of
    /// the va_block, or none of these (TIMING-32). Fitted.
    pub walk_ns: [u64; 4],
    /// Nanoseconds from the replay until the driver reads, if faults are left over from before it.
    /// Fitted.
    pub reads_late_after_ns: u64,
    /// From the last fault that the driver reads to the replay, for each block. Fitted.
    pub service_block_ns: u64,
    /// For code that is executed, of which the driver reads the faults that came until it looked and
    /// leaves all that come later (TIMING-37). Fitted to the fault records of thirteen programs on an
    /// H200 and an H100; the fields above are for kernels that are declared by what they access.
    pub executed: ReadingParams,
    /// How the driver's kernels fill.
    pub fills: BulkShape,
    /// How the driver's kernels copy.
    pub copies: BulkShape,
}

/// When multiprocessors begin to fault and the driver reads, of one kind of kernels. The fields are
/// those of the same names in [`ArrivalParams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadingParams {
    /// After a replay, multiprocessors begin to fault within this time for each that waits.
    pub spread_ns: u64,
    /// From the first fault after a replay until the driver reads, by the mappings near its page.
    pub walk_ns: [u64; 4],
    /// Nanoseconds from the replay until the driver reads, if faults are left over from before it.
    pub reads_late_after_ns: u64,
}

impl ArrivalParams {
    /// The figures of kernels that are declared by what they access.
    pub(crate) const fn declared(&self) -> ReadingParams {
        let &Self { spread_ns, walk_ns, reads_late_after_ns, .. } = self;
        ReadingParams { spread_ns, walk_ns, reads_late_after_ns }
    }

    /// From the start of a multiprocessor to the fault in its turn `nth`, `ahead` accesses of its warp
    /// after one that waits. Turns of a wave are `turn_ns` apart.
    #[inline]
    pub(super) fn delay_ns(&self, turn_ns: u64, nth: u64, ahead: u64) -> u64 {
        let first = u64::from(self.wave_slots[0]);
        let both = first.saturating_add(self.wave_slots[1].into());
        let delay_ns = if nth < first {
            turn_ns.saturating_mul(nth)
        } else if nth < both {
            self.wave_ns.saturating_add(turn_ns.saturating_mul(nth.saturating_sub(first)))
        } else {
            let others_ns = nth.saturating_sub(both).saturating_mul(self.fault_ns);
            self.wave_ns.saturating_mul(2).saturating_add(others_ns)
        };
        let written_ns = ahead.checked_sub(1).map_or(0, |before| {
            let before_ns = self.write_ns.saturating_mul(before);
            self.wave_ns.saturating_mul(2).saturating_add(before_ns)
        });
        delay_ns.max(written_ns)
    }
}

/// The launch behind fills (`cuMemsetD8Async`, `cuMemsetD16Async`, `cuMemsetD32Async`), or
/// small copies (`cuMemcpyAsync`). From the faults of one page that fills and copies of 1 byte to
/// 128 KiB merge (TIMING-33). Large copies access more at once (TIMING-34).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BulkShape {
    /// Threads of a block; one block runs on each multiprocessor.
    pub threads: u32,
    /// Bytes that a thread accesses at once.
    pub bytes_per_access: u32,
    /// Equal parts of the memory between which each thread alternates.
    pub parts: u32,
}
