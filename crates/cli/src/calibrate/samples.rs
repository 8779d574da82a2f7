//! Samples of the fit: recordings with times, replayed for the events that the cost model saw.

use std::sync::Arc;

use pagewise_sim::{SimBackend, SimConfig};
use pagewise_trace::error::{Reason, TraceError};
use pagewise_trace::format::{Case, Header, Observed, OpLine, Timing};
use pagewise_trace::limits::WorkLimits;
use pagewise_trace::replay::{CaseReplay, Moment, replay_within};
use pagewise_trace::time_limit::TimeLimit;

use super::terms::{Probes, Terms};
use crate::inputs::Source;
use crate::progress::Progress;

/// A trace, reduced to calls and times.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) file: String,
    header: Header,
    cases: Vec<Case>,
    /// The file's share of the time, for reading and all replays.
    time: TimeLimit,
}

/// An operation with a recorded time.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) id: SampleId,
    pub(crate) recorded: Timing,
    pub(crate) terms: Terms,
}

/// Which operation, and of which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampleId {
    /// The recording, in the order given.
    pub(crate) file: usize,
    /// The case's number within it.
    pub(crate) case: usize,
    pub(crate) kind: &'static str,
}

impl SampleId {
    /// Sleeps are asked for by their length: their time is fitted, but not judged.
    pub(crate) fn is_judged(&self) -> bool {
        self.kind != "sleep"
    }
}

/// A recorded time and what the model says instead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prediction {
    pub(crate) id: SampleId,
    pub(crate) recorded_ns: u64,
    pub(crate) predicted_ns: u64,
}

impl Recording {
    /// `times`: how often its cases will be replayed.
    pub(crate) fn read(
        source: &Source,
        limits: WorkLimits,
        times: u64,
        progress: &Progress,
    ) -> Result<Self, TraceError> {
        let mut reader = source.trace(progress)?.limited(limits, times);
        let (file, header) = (source.to_string(), reader.header().clone());
        let mut cases = Vec::new();
        while let Some(mut case) = reader.next_case()? {
            case.ops.iter_mut().for_each(|line| reduce(&mut line.recorded.observed));
            cases.push(case);
        }
        let time = reader.time().clone();
        Ok(Self { file, header, cases, time })
    }

    pub(crate) fn cases(&self) -> usize {
        self.cases.len()
    }

    pub(crate) fn timed_ops(&self) -> usize {
        self.cases.iter().flat_map(|case| &case.ops).filter(|line| timing(line).is_some()).count()
    }

    /// The cost model's view of each timed operation. The clock is the recording's, so that page
    /// movements do not depend on the figures.
    pub(crate) fn observe(
        &self,
        file: usize,
        config: &SimConfig,
        probes: &Probes,
        each: &mut dyn FnMut(Sample),
        case_done: &dyn Fn(),
    ) -> Result<(), TraceError> {
        let mut machines = Machines::new(self, config);
        for (number, case) in self.cases.iter().enumerate() {
            let sim = machines.next(case)?;
            sim.observe_costs();
            self.replay(&sim, case, |moment, line| {
                let recorded = timing(line);
                if moment == Moment::Before {
                    // What preparations cost is in no operation's time.
                    drop(sim.take_cost_observations());
                    let untimed = || line.recorded.observed.ns_profiled;
                    if let Some(ns) = recorded.map(|ns| ns.median).or_else(untimed) {
                        sim.pace_next_op(ns, []);
                    }
                } else if let Some(recorded) = recorded {
                    let terms = probes.terms(sim.take_cost_observations());
                    each(Sample { id: SampleId::new(file, number, line), recorded, terms });
                }
            })?;
            case_done();
        }
        Ok(())
    }

    /// The simulator's times, on its own clock, of the timed operations in the cases asked for.
    pub(crate) fn predict(
        &self,
        file: usize,
        config: &SimConfig,
        wanted: &dyn Fn(SampleId) -> bool,
        case_done: &dyn Fn(),
    ) -> Result<Vec<Prediction>, TraceError> {
        let mut machines = Machines::new(self, config);
        let mut predictions = Vec::new();
        for (number, case) in self.cases.iter().enumerate() {
            let Some(first) = case.ops.first() else { continue };
            let wanted = wanted(SampleId::new(file, number, first));
            // Pools outlive a case: what later cases do depends on it.
            if wanted || case.uses_pools() {
                let sim = machines.next(case)?;
                let replayed = self.replay(&sim, case, |_, _| {})?;
                let ops = case.ops.iter().zip(&replayed.observed).filter(|_| wanted);
                for (line, got) in ops {
                    if let (Some(recorded), Some(got)) = (timing(line), got.ns) {
                        let id = SampleId::new(file, number, line);
                        let (recorded_ns, predicted_ns) = (recorded.median, got.median);
                        predictions.push(Prediction { id, recorded_ns, predicted_ns });
                    }
                }
            }
            case_done();
        }
        Ok(predictions)
    }

    fn replay(
        &self,
        sim: &SimBackend,
        case: &Case,
        watch: impl FnMut(Moment, &OpLine),
    ) -> Result<CaseReplay, TraceError> {
        replay_within(sim, case, &self.time, watch)
            .map_err(|(line, reason)| TraceError::new(self.file.clone(), Some(line), reason))
    }
}

impl SampleId {
    fn new(file: usize, case: usize, line: &OpLine) -> Self {
        Self { file, case, kind: line.recorded.op.name() }
    }
}

/// Opens machines for the cases of a recording.
struct Machines<'a> {
    recording: &'a Recording,
    config: SimConfig,
    /// Pools outlive a case, so cases with pools share a machine.
    shared: Option<Arc<SimBackend>>,
}

impl<'a> Machines<'a> {
    fn new(recording: &'a Recording, config: &SimConfig) -> Self {
        let config = crate::sim_target::like(config, &recording.header);
        Self { recording, config, shared: None }
    }

    fn next(&mut self, case: &Case) -> Result<Arc<SimBackend>, TraceError> {
        let open = || match SimBackend::new(self.config.clone()) {
            Ok(sim) => Ok(Arc::new(sim)),
            Err(error) => {
                let reason = Reason::BadHeader(format!("no back end for this recording: {error}"));
                Err(TraceError::new(self.recording.file.clone(), Some(1), reason))
            }
        };
        if !case.uses_pools() {
            return open();
        }
        if self.shared.is_none() {
            self.shared = Some(open()?);
        }
        self.shared.clone().map_or_else(open, Ok)
    }
}

/// The recorded time of an operation that succeeded or failed alike in every run.
fn timing(line: &OpLine) -> Option<Timing> {
    let observed = &line.recorded.observed;
    observed.ns.filter(|ns| ns.median > 0 && !observed.is_unstable("ns"))
}

/// Forgets what calibration does not need.
fn reduce(observed: &mut Observed) {
    *observed = Observed {
        ns: observed.ns,
        ns_profiled: observed.ns_profiled,
        unstable: std::mem::take(&mut observed.unstable),
        ..Observed::default()
    };
}
