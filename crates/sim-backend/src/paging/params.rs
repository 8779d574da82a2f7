//! Parameters of the driver's paging policy: module parameters and version differences.
//!
//! Times in nanoseconds. The defaults are those of driver 580 on an H200. Module parameters have
//! the defaults of the published driver.

use serde::{Deserialize, Serialize};

/// Parameters that can be tuned or differ between driver versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagingParams {
    /// Whether faults prefetch (`uvm_perf_prefetch_enable`).
    pub prefetch_enable: bool,
    /// A tree node is prefetched if more than this percentage of it is there
    /// (`uvm_perf_prefetch_threshold`).
    pub prefetch_threshold_percent: u32,
    /// Faults on a block towards one processor before any prefetch
    /// (`uvm_perf_prefetch_min_faults`).
    pub prefetch_min_faults: u32,
    /// The tree loses the low pages of a block that does not start on a 64 KiB boundary, as the
    /// driver's does (PAGING-106). Off: a node reaches back to page 0.
    pub prefetch_unaligned_quirk: bool,
    /// The tree runs only without a preferred location or towards it: driver 595. Driver 580 has no
    /// such gate (PAGING-102).
    pub prefetch_gated_by_preferred: bool,
    /// A kernel's weak atomic asks only for write permission (PAGING-80).
    pub weak_atomics_need_write_only: bool,
    /// An explicit migration to the host maps the pages there (PAGING-171).
    pub migration_maps_host: bool,
    /// Migration of memory that devices access remotely.
    pub access_counters: AccessCounterParams,
    /// Thrashing detection and what it does.
    pub thrashing: ThrashingParams,
    /// Batches with throttled pages that one fault service goes through before it waits
    /// (`uvm_perf_fault_max_throttle_per_service`).
    pub throttled_batches_per_service: u32,
}

/// Parameters of migration by access counters (`uvm_perf_access_counter_*`). Not checked against
/// hardware: no recording is of a machine that has it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessCounterParams {
    /// Whether remote accesses are counted and move pages.
    pub enable: bool,
    /// Accesses to one 2 MiB of another processor's memory after which the driver is told.
    pub threshold: u32,
}

/// How the window in which events count as thrashing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LapseVote {
    /// The window does not change. Driver 580 behaves so (PAGING-125).
    #[default]
    Constant,
    /// By votes, as the source of 595 means it.
    Intended,
    /// By votes, as 595 behaves when compiled: it grows with every negative vote.
    Compiled,
}

/// Parameters of thrashing detection (`uvm_perf_thrashing_*`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThrashingParams {
    /// Whether thrashing is detected.
    pub enable: bool,
    /// Events close to each other that make a page thrash.
    pub threshold: u8,
    /// Throttles after which a page is pinned.
    pub pin_threshold: u8,
    /// Events at most this far apart count.
    pub lapse_ns: u64,
    /// How long a processor is throttled.
    pub nap_ns: u64,
    /// Without thrashing for this long a block starts afresh.
    pub epoch_ns: u64,
    /// How long a page stays pinned; 0 is for ever.
    pub pin_ns: u64,
    /// Fresh starts per block.
    pub max_resets: u8,
    /// How the window changes.
    pub lapse_vote: LapseVote,
    /// Votes that change the window.
    pub vote_threshold: u8,
    /// Smallest window that votes can reach.
    pub lapse_min_ns: u64,
    /// Largest window that votes can reach.
    pub lapse_max_ns: u64,
    /// Time stamps are multiples of this.
    pub stamp_ns: u64,
    /// A pinned page is released this long before its time.
    pub unpin_slack_ns: u64,
}
