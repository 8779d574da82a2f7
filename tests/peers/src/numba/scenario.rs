//! Scenarios as numba's program writes them.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Scenario {
    pub(super) number: u64,
    /// Bytes of the device's memory.
    pub(super) total: u64,
    /// Whether the device can map host memory.
    pub(super) can_map: bool,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Step {
    #[serde(flatten)]
    pub(super) action: Action,
    /// The calls of the driver that fail in this step, each with its code.
    pub(super) fails: BTreeMap<String, i32>,
    pub(super) seen: Seen,
}

/// A step. Handles have numbers in the order in which they were given.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Action {
    Enter,
    Leave,
    Memalloc { bytes: u64 },
    Managed { bytes: u64, global: bool },
    Host { bytes: u64, mapped: bool, portable: bool, write_combined: bool },
    Pin { region: usize, mapped: bool },
    Raw { auto_free: bool },
    Own { of: u64 },
    View { of: u64, start: u64, stop: Option<u64> },
    Drop { of: u64 },
    Free { of: u64 },
    Fill { of: u64, value: u8 },
    Ipc { of: u64 },
    Defer,
    EndDeferral,
    Limits { count: usize, ratio: f64 },
    Info,
    Reset,
}

/// The state and calls that both sides see after a step.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Seen {
    /// The refusal, by a name that both sides give it.
    pub(super) refused: Option<String>,
    /// The driver's calls in their order, failed ones with their code.
    pub(super) calls: Vec<String>,
    /// The failures that a destructor could not report.
    pub(super) lost: u64,
    /// The deallocations that wait, and their bytes.
    pub(super) pending: (usize, u64),
}
