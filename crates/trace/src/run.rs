//! Replaying many traces: cases in parallel, with bounded memory.
//!
//! One thread reads the traces one after another; other threads carry cases out (`Crew`), each
//! on a back end of its own that a [`Target`] opens. Cases that use memory pools are different:
//! pools outlive a case, so all such cases of a file share one back end and are carried out in
//! the order of the file. Reading waits while the cases in memory exceed a budget.
//!
//! A file stops when its time is over: its cases in progress at their next operation, the others
//! before they begin. Those that were compared by then are in the report, with the error.

mod budget;
mod crew;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Read};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use budget::{Budget, CaseBytes, Held};
use crew::Crew;
use pagewise_hal::{Backend, Result};

use crate::compare::{Tally, compare_case, compare_replays};
use crate::error::{Reason, TraceError};
use crate::format::{Case, Header};
use crate::limits::WorkLimits;
use crate::pace::{Pace, Unknowns};
use crate::reader::TraceReader;
use crate::replay::{CaseReplay, Moment, replay_within};
use crate::report::{Report, TraceReport};
use crate::time_limit::{TimeLimit, WallClock};

/// The bytes counted for a case with no text, so that endless tiny cases are bounded too.
const LEAST_CASE_BYTES: u64 = 4 << 10;

/// Of each file, so many of the first cases that disagree are carried out again at every possible
/// pace, if they are small. So all of that takes no more work than the file itself may.
const RETRIED_MAX: u64 = 32;

/// The line at which the time of a file was over, and that it was.
pub(crate) type Late = (u64, Reason);

/// Opens back ends to replay on.
pub trait Target: Sync {
    /// A fresh back end that resembles the machine of the recording.
    ///
    /// # Errors
    /// If there cannot be one, for instance with that many devices.
    fn open(&self, header: &Header) -> Result<Session>;

    /// Whether sessions may be used at the same time. If not, cases are carried out one after
    /// another on the thread that calls [`run`].
    fn is_concurrent(&self) -> bool;
}

/// A back end, and how to set its clock.
pub struct Session {
    /// The back end. No other code may allocate on it.
    pub backend: Arc<dyn Backend>,
    /// Tells the back end how long the next operation took on the recorded machine; for back ends
    /// with a clock that can be set.
    pub pace: Option<Box<dyn Fn(Pace) + Send>>,
}

impl Session {
    /// Carries out a case; `paced`: at the recorded pace, where the back end's clock can be set.
    pub(crate) fn replay(
        &self,
        case: &Case,
        paced: bool,
        time: &TimeLimit,
    ) -> std::result::Result<CaseReplay, Late> {
        self.replay_at(case, paced.then_some(Unknowns::LIKELY), time)
    }

    /// At the recorded pace, if there is a guess at what the recording does not say of it.
    fn replay_at(
        &self,
        case: &Case,
        unknowns: Option<Unknowns>,
        time: &TimeLimit,
    ) -> std::result::Result<CaseReplay, Late> {
        let pace = self.pace.as_ref().zip(unknowns);
        let mut later = case.ops.iter().skip(1);
        replay_within(&*self.backend, case, time, |moment, line| {
            let (Moment::Before, Some((pace, unknowns))) = (moment, pace) else { return };
            let next = later.next().map(|line| &line.recorded);
            if let Some(recorded) = Pace::of(&line.recorded, next, unknowns) {
                pace(recorded);
            }
        })
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, pace } = self;
        write!(f, "Session {{ backend: {backend:?}, paced: {} }}", pace.is_some())
    }
}

/// Which clock a replay runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// The recording's, where it has no times to predict (`timed_runs` is 0, as in recordings
    /// with results that depend on real time between operations); else the back end's. A case that
    /// disagrees on the back end's clock is carried out on the recording's too, as what thrashes
    /// depends on time; if it agrees then, that counts. Cases with pools, which share a back end,
    /// are not.
    #[default]
    Auto,
    /// The recorded `ns_profiled` of each operation. Nothing is predicted then.
    Recorded,
    /// The back end's own.
    Model,
}

impl Clock {
    fn is_recorded(self, header: &Header) -> bool {
        match self {
            Self::Auto => header.timed_runs == Some(0),
            Self::Recorded => true,
            Self::Model => false,
        }
    }
}

/// How to replay.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The clock.
    pub clock: Clock,
    /// Judges times: the median of |log2(predicted / recorded)| may not exceed this.
    pub max_time_error: Option<f64>,
    /// How much work each file may ask for and how long it may take, and how much memory all cases
    /// in progress may.
    pub limits: WorkLimits,
    /// Cases that are carried out at a time, at most 256: as many as there are processors if `None`.
    /// The report is the same for every number.
    pub jobs: Option<NonZero<usize>>,
}

/// A trace to replay: its name, and how to open it. Opened when its turn comes.
pub struct Input<'a> {
    /// The name in the report.
    pub file: String,
    open: Box<dyn FnOnce() -> std::result::Result<TraceReader<'a>, TraceError> + 'a>,
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("file", &self.file).finish_non_exhaustive()
    }
}

impl<'a> Input<'a> {
    /// A trace in a file.
    #[must_use]
    pub fn file(path: std::path::PathBuf) -> Self {
        let file = path.display().to_string();
        Self { file, open: Box::new(move || TraceReader::open(&path)) }
    }

    /// A trace in memory, compressed or not.
    #[must_use]
    pub fn bytes(file: impl Into<String>, bytes: &'a [u8]) -> Self {
        let file = file.into();
        Self { file: file.clone(), open: Box::new(move || TraceReader::new(file, bytes)) }
    }

    /// A trace that is read from what `open` opens, compressed or not.
    #[must_use]
    pub fn reading<R: Read + Send + 'a>(
        file: impl Into<String>,
        open: impl FnOnce() -> io::Result<R> + 'a,
    ) -> Self {
        let file = file.into();
        let name = file.clone();
        let open = move || match open() {
            Ok(input) => TraceReader::new(name, input),
            Err(error) => Err(TraceError::new(name, None, Reason::Io(error))),
        };
        Self { file, open: Box::new(open) }
    }

    /// A trace that could not be found, to be reported among the others.
    #[must_use]
    pub fn failed(file: impl Into<String>, error: TraceError) -> Self {
        Self { file: file.into(), open: Box::new(move || Err(error)) }
    }
}

/// Replays traces and compares. `on_case` is called after each case, on any thread.
///
/// # Panics
/// If a back end does, once the cases in progress are done.
#[must_use]
pub fn run(
    inputs: Vec<Input<'_>>,
    target: &dyn Target,
    options: Options,
    on_case: &(dyn Fn() + Sync),
) -> Report {
    run_on(inputs, target, options, &WallClock::default(), on_case)
}

/// [`run`], with the time of each file and of the whole measured on a clock of the caller's.
///
/// # Panics
/// If a back end does, once the cases in progress are done.
#[must_use]
pub fn run_on(
    inputs: Vec<Input<'_>>,
    target: &dyn Target,
    options: Options,
    clock: &WallClock,
    on_case: &(dyn Fn() + Sync),
) -> Report {
    let start = clock.now();
    let budget = Arc::new(Budget::default());
    let mut files = Vec::with_capacity(inputs.len());
    std::thread::scope(|scope| {
        let crew = Crew::new(scope, options.jobs);
        for input in inputs {
            let file = Arc::new(File::new(input.file.clone()));
            files.push(Arc::clone(&file));
            let limits = ReadLimits { of_file: options.limits, clock, budget: &budget };
            let read = read(input, limits, &file, |job| {
                let file = Arc::clone(&file);
                // Here, as what is spawned need not begin in this order.
                let job = file.queue(job);
                if target.is_concurrent() {
                    crew.hand(move || file.carry_out(job, target, options, on_case));
                } else {
                    file.carry_out(job, target, options, on_case);
                }
            });
            if let Err(error) = read {
                file.fail(error);
            }
        }
    });
    files.iter().for_each(|file| file.settle_suspects(target));
    if let Some(payload) = files.iter().find_map(|file| file.locked().panic.take()) {
        resume_unwind(payload);
    }
    let traces: Vec<TraceReport> = files.iter().map(|file| file.report(options)).collect();
    let simulated_ns: f64 = traces.iter().map(|trace| trace.simulated_ns as f64).sum();
    Report {
        ok: traces.iter().all(TraceReport::ok),
        traces,
        wall_s: clock.now().saturating_sub(start).as_secs_f64(),
        simulated_s: simulated_ns / 1e9,
    }
}

/// The bounds on reading a file.
#[derive(Clone, Copy)]
struct ReadLimits<'a> {
    of_file: WorkLimits,
    clock: &'a WallClock,
    budget: &'a Arc<Budget>,
}

/// Reads one trace to its end and hands its cases over, waiting for the budget.
fn read(
    input: Input<'_>,
    limits: ReadLimits<'_>,
    file: &File,
    spawn: impl Fn(Job),
) -> std::result::Result<(), TraceError> {
    let ReadLimits { of_file, clock, budget } = limits;
    let mut reader = (input.open)()?.limited_on(of_file, 1, clock);
    let header = Arc::new(reader.header().clone());
    {
        let mut state = file.locked();
        (state.header, state.time) = (Some(Arc::clone(&header)), reader.time().clone());
    }
    while let Some(case) = reader.next_case()? {
        if file.is_over() {
            break;
        }
        let bytes = CaseBytes {
            text_bytes: case.text_bytes.max(LEAST_CASE_BYTES),
            memory_bytes: reader.case_memory_bytes(),
        };
        let held = budget.take(bytes, of_file.memory_bytes);
        let retry = reader.case_work() <= of_file.work / RETRIED_MAX / Unknowns::POSSIBLE;
        let (header, time) = (Arc::clone(&header), reader.time().clone());
        spawn(Job { header, case, can_be_retried: retry, time, _held: held });
    }
    Ok(())
}

/// One case to carry out.
struct Job {
    header: Arc<Header>,
    case: Case,
    /// Whether it is small enough to be carried out at all possible paces.
    can_be_retried: bool,
    /// The file's share of the time.
    time: TimeLimit,
    _held: Held,
}

/// A file in progress.
struct File {
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    header: Option<Arc<Header>>,
    time: TimeLimit,
    tally: Tally,
    error: Option<TraceError>,
    panic: Option<Box<dyn Any + Send>>,
    lane: Lane,
    /// Cases that disagree and are still to be carried out at other paces, by their line.
    suspects: BTreeMap<u64, Suspect>,
}

/// A case that disagrees, perhaps because of real time.
struct Suspect {
    case: Case,
    /// The comparison on the clock of the run.
    tally: Tally,
    /// The replay at the likely pace.
    replayed: CaseReplay,
    paced: bool,
}

impl State {
    /// Keeps a case to be carried out at other paces. Only the first ones are kept.
    fn suspect(&mut self, suspect: Suspect) {
        self.suspects.insert(suspect.case.line, suspect);
        if self.suspects.len() as u64 > RETRIED_MAX
            && let Some((_, last)) = self.suspects.pop_last()
        {
            self.tally.merge(last.tally);
        }
    }
}

/// Cases that share a back end, in order. A thread that finds it idle works it off; others only
/// queue.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Job>,
    busy: bool,
    session: Option<Session>,
}

impl File {
    fn new(name: String) -> Self {
        Self { name, state: Mutex::default() }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the first error.
    fn fail(&self, error: TraceError) {
        self.locked().error.get_or_insert(error);
    }

    /// Whether reading on is pointless: the back end cannot be opened, or is broken.
    fn is_over(&self) -> bool {
        let state = self.locked();
        state.error.is_some() || state.panic.is_some()
    }

    /// Puts a case into the lane if it belongs there; else returns it.
    fn queue(&self, job: Job) -> Option<Job> {
        if !job.case.uses_pools() {
            return Some(job);
        }
        self.locked().lane.waiting.push_back(job);
        None
    }

    /// Carries out a case of its own, or what waits in the lane.
    fn carry_out(
        &self,
        job: Option<Job>,
        target: &dyn Target,
        options: Options,
        on_case: &(dyn Fn() + Sync),
    ) {
        if let Some(job) = job {
            self.replay(job, None, target, options);
            on_case();
            return;
        }
        let mut state = self.locked();
        if state.lane.busy {
            return;
        }
        state.lane.busy = true;
        while let Some(job) = state.lane.waiting.pop_front() {
            let session = state.lane.session.take();
            drop(state);
            let session = self.replay(job, session, target, options);
            on_case();
            state = self.locked();
            state.lane.session = session;
        }
        state.lane.busy = false;
    }

    /// Replays one case and gives its back end back, if that is still of use.
    fn replay(
        &self,
        job: Job,
        session: Option<Session>,
        target: &dyn Target,
        options: Options,
    ) -> Option<Session> {
        let Job { header, case, can_be_retried, time, _held } = job;
        let _busy = time.busy();
        let carry_out = AssertUnwindSafe(|| {
            time.check("case").map_err(|reason| (case.line, reason))?;
            let session = session.map_or_else(|| target.open(&header), Ok)?;
            let paced = options.clock.is_recorded(&header);
            let mut replayed = session.replay(&case, paced, &time)?;
            let can_pace = session.pace.is_some();
            let mut tally = compare_case(&case, &replayed, !(paced && can_pace));
            let by_time = can_pace && options.clock != Clock::Model && !case.uses_pools();
            if by_time && !paced && !tally.agrees() {
                replayed = target.open(&header)?.replay(&case, true, &time)?;
                tally = tally.or_if_it_agrees(compare_case(&case, &replayed, false));
            }
            let suspect = by_time && can_be_retried && !tally.agrees();
            Ok::<_, Stop>((session, tally, suspect.then_some(replayed), paced))
        });
        match catch_unwind(carry_out) {
            Ok(Ok((session, tally, replayed, paced))) => {
                let mut state = self.locked();
                match replayed {
                    None => state.tally.merge(tally),
                    Some(replayed) => state.suspect(Suspect { case, tally, replayed, paced }),
                }
                Some(session)
            }
            Ok(Err(stop)) => {
                self.stopped(stop);
                None
            }
            // Passed on when no other case can be waiting for this one any more.
            Err(payload) => {
                self.locked().panic.get_or_insert(payload);
                None
            }
        }
    }

    /// Carries out what disagreed at every possible pace, to see what depends on real time. What
    /// there is no time left for counts as it is.
    fn settle_suspects(&self, target: &dyn Target) {
        let (suspects, header, time) = {
            let mut state = self.locked();
            (std::mem::take(&mut state.suspects), state.header.clone(), state.time.clone())
        };
        let Some(header) = header else { return };
        let _busy = time.busy();
        for suspect in suspects.into_values() {
            let Suspect { case, tally, replayed, paced } = suspect;
            let replays = || replays_at_every_pace(&case, replayed, &header, target, &time);
            let settled = match catch_unwind(AssertUnwindSafe(replays)) {
                Ok(Ok(replays)) => {
                    let by_time = compare_replays(&case, &replays);
                    if paced { by_time } else { tally.or_if_it_agrees(by_time) }
                }
                Ok(Err(stop)) => {
                    self.stopped(stop);
                    tally
                }
                Err(payload) => {
                    self.locked().panic.get_or_insert(payload);
                    continue;
                }
            };
            self.locked().tally.merge(settled);
        }
    }

    fn stopped(&self, stop: Stop) {
        let (line, reason) = match stop {
            Stop::NoBackEnd(error) => {
                (1, Reason::BadHeader(format!("no back end for this recording: {error}")))
            }
            Stop::Late((line, reason)) => (line, reason),
        };
        self.fail(TraceError::new(self.name.clone(), Some(line), reason));
    }

    fn report(&self, options: Options) -> TraceReport {
        let mut state = self.locked();
        let error = state.error.as_ref().map(ToString::to_string);
        let tally = std::mem::take(&mut state.tally);
        tally.report(self.name.clone(), state.header.as_deref(), options.max_time_error, error)
    }
}

/// The reason why a case was not carried out to its end.
enum Stop {
    NoBackEnd(pagewise_hal::Error),
    Late(Late),
}

impl From<pagewise_hal::Error> for Stop {
    fn from(error: pagewise_hal::Error) -> Self {
        Self::NoBackEnd(error)
    }
}

impl From<Late> for Stop {
    fn from(late: Late) -> Self {
        Self::Late(late)
    }
}

/// The replays of a case that disagrees at the likely pace, and at every possible one.
fn replays_at_every_pace(
    case: &Case,
    replayed: CaseReplay,
    header: &Header,
    target: &dyn Target,
    time: &TimeLimit,
) -> std::result::Result<Vec<CaseReplay>, Stop> {
    let mut replays = vec![replayed];
    for unknowns in Unknowns::possible() {
        replays.push(target.open(header)?.replay_at(case, Some(unknowns), time)?);
    }
    Ok(replays)
}
