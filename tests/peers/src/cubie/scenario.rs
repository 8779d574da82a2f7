//! Scenarios as `cubie/scenarios.py` writes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// The memory of the device, and the steps.
#[derive(Debug, Deserialize)]
pub(super) struct Scenario {
    pub(super) number: u64,
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) steps: Vec<Step>,
}

/// A step: the action, and the state after it.
#[derive(Debug, Deserialize)]
pub(super) struct Step {
    #[serde(flatten)]
    pub(super) action: Action,
    pub(super) seen: Seen,
}

/// The action of a step. Instances have numbers.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Action {
    Register {
        who: u32,
        share: Option<f64>,
        group: String,
        owner: Option<u64>,
    },
    SetManual {
        who: u32,
        share: f64,
    },
    SetManualMode {
        who: u32,
        share: f64,
    },
    SetAuto {
        who: u32,
    },
    ChangeGroup {
        who: u32,
        group: String,
    },
    Update {
        who: u32,
        changes: Changes,
    },
    Release {
        who: u32,
    },
    Queue {
        who: u32,
        requests: BTreeMap<String, Request>,
    },
    Allocate {
        who: u32,
    },
    Chunks {
        group: String,
        request: Request,
        runs: u64,
    },
    Available {
        group: String,
    },
    Free {
        label: String,
    },
    FreeAll,
    InvalidateAll,
    Mode {
        mode: String,
    },
    Begin {
        who: u32,
    },
    End {
        who: u32,
    },
    /// Begins and ends.
    Work {
        who: u32,
    },
}

/// The arguments of an update.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changes {
    pub(super) stream_group: Option<String>,
    /// `null` is the auto pool.
    #[serde(default, deserialize_with = "given")]
    pub(super) mem_proportion: Option<Option<f64>>,
}

/// A value that is there, though it may be `null`.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A request for an array.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Request {
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    pub(super) axis: Option<usize>,
    pub(super) unchunkable: bool,
    pub(super) runs: u64,
}

/// The state after a step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Seen {
    /// The kind of refusal, if the action was refused.
    pub(super) refused: Option<String>,
    /// The numbers that the action returned, if it returned some.
    pub(super) answer: Option<Vec<i64>>,
    pub(super) warned: Vec<String>,
    /// The hooks that were called, in order.
    pub(super) heard: Vec<Heard>,
    pub(super) members: BTreeMap<u32, Member>,
    /// The free bytes of the device.
    pub(super) free: u64,
}

/// A call of a hook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "hook", rename_all = "snake_case")]
pub(super) enum Heard {
    Invalidate {
        who: u32,
    },
    Ready {
        who: u32,
        chunks: u64,
        chunk_length: u64,
        arrays: BTreeMap<String, Vec<u64>>,
        shapes: BTreeMap<String, Vec<u64>>,
    },
}

impl Heard {
    /// The order of comparison: losses as they came, then answers by instance.
    pub(super) fn rank(&self) -> (bool, u32) {
        match self {
            Self::Invalidate { .. } => (false, 0),
            Self::Ready { who, .. } => (true, *who),
        }
    }
}

/// The state of an instance.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Member {
    pub(super) share: f64,
    pub(super) cap: Option<u64>,
    pub(super) is_manual: bool,
    pub(super) is_auto: bool,
    pub(super) group: String,
    pub(super) is_grouped: bool,
    pub(super) owner: Option<u64>,
    /// The bytes of all its arrays.
    pub(super) holds: u64,
    /// The shapes of its arrays by label.
    pub(super) arrays: BTreeMap<String, Vec<u64>>,
    /// The labels of its queued requests.
    pub(super) queued: Vec<String>,
}
