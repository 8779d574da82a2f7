//! The end of each help text: the exit status, and with `--help` the JSON object.

/// An exit status, before the description of the object, if there is one.
macro_rules! exits {
    (compared) => {
        "Exit status: 0 all agree, 1 something diverges, 2 usage, 3 a trace cannot be read or \
         exceeds a limit."
    };
    (recorded) => {
        "Exit status: 0 recorded, 2 usage, 3 the program cannot be read or exceeds a limit, a \
         result cannot be written, or there is no such back end."
    };
    (calibrated) => {
        "Exit status: 0 the profile is written, 2 usage, 3 a trace cannot be read, exceeds a limit \
         or has no times, or the profile cannot be written."
    };
    (judged) => {
        "Exit status: 0 whatever the verdicts, 2 usage, 3 a program cannot be read or exceeds a \
         limit."
    };
    (ran) => {
        "Exit status: the program's; 128 and the number of the signal that ended it; 125 the \
         simulated driver is not found or the summary cannot be read, 126 the program cannot be \
         started, 127 there is no such program; 2 usage, 3 the summary cannot be written."
    };
    (doctor) => {
        "Exit status: 0, with or without a driver."
    };
}

macro_rules! report {
    () => {
        r#"

JSON: {"ok", "traces", "wall_s", "simulated_s"}
  each of traces: {"file", "family", "cases", "ops", "contract", "range_attributes", "pages",
    "events", "time", "first_divergence"}, and "aggregate", "real_time", "error" where there are any
  contract, range_attributes, pages, events: {"checked", "agree"}, numbers of operations
  first_divergence: null, or {"case", "line", "level", "op", "expected", "got"}; op is the
    operation as the trace has it"#
    };
}

macro_rules! failure {
    () => {
        r#"
  failure before there is an answer: {"ok": false, "status", "error"}; stderr has it too"#
    };
}

pub(super) const COMPARED: &str = exits!(compared);
pub(super) const REPLAY: &str = concat!(exits!(compared), report!(), failure!());
pub(super) const COMPARE: &str = concat!(
    exits!(compared),
    report!(),
    r#"
  without traces, each of traces is a family, and there is "programs"
  each of programs: {"family", "seed", "programs", "disagreeing", "by_chance", "first"}
  first: null, or {"case", "operations", "operation", "divergence", "program"}: the name, the
    operations before it was shrunk, the one that disagrees, and the shrunk program's text"#,
    failure!(),
);

pub(super) const RECORDED: &str = exits!(recorded);
pub(super) const RECORD: &str = concat!(
    exits!(recorded),
    r#"

JSON: {"ok", "output", "family", "cases", "operations"}"#,
    failure!(),
);

#[cfg(feature = "calibrate")]
pub(super) const CALIBRATED: &str = exits!(calibrated);
#[cfg(feature = "calibrate")]
pub(super) const CALIBRATE: &str = concat!(
    exits!(calibrated),
    r#"

JSON: {"ok", "output", "files", "kinds", "fitted", "converged", "without_evidence", "wall_s"}
  each of files and kinds: {"name", "ops", "before", "after", "held_out"}
  before, after, held_out: {"total_ratio", "median_abs_log2", "p90_abs_log2"}"#,
    failure!(),
);

pub(super) const PROFILES: &str = concat!(
    r#"JSON: {"ok", "profiles"}, or of one profile {"ok", "profile"}, the document
  each of profiles: {"name", "memory_bytes", "host_link", "peer_link", "figures"}
  figures: their number, by evidence"#,
    failure!(),
);

pub(super) const JUDGED: &str = exits!(judged);
pub(super) const VERDICT: &str = concat!(
    exits!(judged),
    r#"

JSON: {"ok", "verdicts"}
  each of verdicts: {"file", "profile", "verdict", "refused", "capacity_bytes", "peak_bytes",
    "evicted_bytes", "returned_bytes", "confidence"}
  verdict: "fits", "streams", "thrashes", or null if the driver refuses memory
  refused: operations that it refuses
  confidence: {"trust", "founded", "figures", "margin"}; trust: "low", "fair" or "high"; founded:
    figures that were measured or published, of those behind the verdict; margin: 0 to 1"#,
    failure!(),
);

pub(super) const RAN: &str = exits!(ran);
pub(super) const RUN: &str = concat!(
    exits!(ran),
    r#"

Summary: {"exit", "processes", "profile", "devices", "host_faults", "gpu_fault_groups",
    "gpu_faults", "cpu_faults", "h2d_bytes", "d2h_bytes", "d2d_bytes", "bytes_by_cause",
    "thrashing", "throttling", "remote_maps", "simulated_ns", "unsupported", "pressure",
    "buffers"}
  host_faults: "userfaultfd", "page_protection", or "declared" if accesses of the program's own
    were not seen
  bytes_by_cause: {"h2d", "d2h"}, each {"user", "coherence", "prefetch", "eviction",
    "access_counters"}
  gpu_faults: the faults that the gpu_fault_groups stand for
  thrashing: pages; throttling: waits; simulated_ns: of the process that took longest
  unsupported: names of entry points that were called and refused
  each of pressure, by process and device: {"capacity_bytes", "peak_bytes", "evicted_bytes",
    "returned_bytes", "verdict"}
  each of buffers, at most 64 of a process: {"number", "bytes", "peak_device_bytes"}

Sweep: exit status 0, 1 some run ended by a signal or timed out, 125 it does not end without a fault
JSON of a sweep: {"ok", "code", "without_fault", "runs", "left_out"}
  each of runs: {"call", "nth", "end", "same_output"}; nth: from 0
  without_fault, end: {"exit": status}, {"signal": number} or "timed_out""#
);

pub(super) const DOCTORED: &str = exits!(doctor);
pub(super) const DOCTOR: &str = concat!(
    exits!(doctor),
    r#"

JSON: {"ok", "driver", "devices", "host", "supported"}
  driver: {"library", "version", "used_as", "advise_and_prefetch", "entry_points", "devices"}
  each of entry_points: {"name", "since", "required", "state"}
  each of devices: {"ordinal", "name", "memory", "compute_capability", "attributes",
    "virtual_memory"}
  virtual_memory: {"granularity_bytes", "recommended_granularity_bytes"}
  host: {"numa_nodes", "page_table", "records"}
  supported: {"driver", "simulator", "capabilities"}
  in place of a value that is not known: {"error"}, or null"#,
);

pub(super) const COMPLETIONS: &str = concat!(
    r#"To install the script:
  bash  pagewise completions bash > ~/.local/share/bash-completion/completions/pagewise
  zsh   pagewise completions zsh > DIRECTORY/_pagewise, for a directory of $fpath
  fish  pagewise completions fish > ~/.config/fish/completions/pagewise.fish

JSON: {"ok", "shell", "script"}"#,
    failure!(),
);

pub(super) const MAN: &str = concat!(
    r#"To read the page:    pagewise man | man -l -
To install the page: pagewise man > ~/.local/share/man/man1/pagewise.1

JSON: {"ok", "page"}"#,
    failure!(),
);
