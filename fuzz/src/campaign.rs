//! Long runs of one target: many rounds on many threads, watched.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use crate::{Choices, Log, Running, Tally, Target};

/// The options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// At least so many calls; the round in which the last of them falls is finished.
    pub calls: u64,
    /// On so many threads.
    pub threads: u64,
    /// Where the bytes of rounds come from.
    pub seed: u64,
    /// A call that takes longer than this hangs.
    pub call_limit: Duration,
    /// How often the run says on standard error how far it is; `None` for never.
    pub progress: Option<Duration>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How often each call was made, by its answer.
    pub tally: Tally,
    /// Rounds that were made.
    pub rounds: u64,
    /// Panics, also those that were caught: where, and in which call.
    pub panics: Vec<String>,
    /// From the first call to the last.
    pub took: Duration,
    /// The process's resident memory after a tenth of the calls, in bytes.
    pub resident_early: u64,
    /// The same at the end.
    pub resident_late: u64,
}

impl Outcome {
    /// Resident memory that a run may gain between its first tenth and its end: what the
    /// allocators of the threads keep varies by that much.
    pub const GROWTH_LIMIT: u64 = 64 << 20;

    /// The reason why the run failed, or nothing.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if let Some(first) = self.panics.first() {
            return Some(format!("{} panics, the first: {first}", self.panics.len()));
        }
        let growth = self.resident_late.saturating_sub(self.resident_early);
        (growth > Self::GROWTH_LIMIT).then(|| format!("resident memory grew by {growth} bytes"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.tally.calls();
        let seconds = self.took.as_secs_f64();
        writeln!(f, "{}", self.tally)?;
        for panic in &self.panics {
            writeln!(f, "panic: {panic}")?;
        }
        let mib = |bytes: u64| bytes >> 20;
        write!(
            f,
            "{calls} calls in {} rounds, {} panics, {seconds:.1} s, {:.0} calls/s; \
             resident {} MiB after a tenth, {} MiB at the end",
            self.rounds,
            self.panics.len(),
            calls as f64 / seconds.max(1e-9),
            mib(self.resident_early),
            mib(self.resident_late),
        )
    }
}

/// The state that threads share.
struct Shared {
    target: &'static Target,
    plan: Plan,
    next_round: AtomicU64,
    calls: AtomicU64,
    resident_early: AtomicU64,
    done: AtomicBool,
    watched: Mutex<Vec<Arc<Mutex<Option<Running>>>>>,
    panics: Mutex<Vec<String>>,
}

static TURN: Mutex<()> = Mutex::new(());

/// The right to run campaigns and rounds, which one thread of the process has at a time: a campaign
/// judges the memory of the whole process, and notes every panic of it. Tests keep it until they
/// have judged the outcome, so that the panic of one that fails is not another campaign's.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "dropping it ends the turn")] MutexGuard<'static, ()>);

impl Turn {
    /// Waits until no other thread has the turn.
    #[must_use]
    pub fn take() -> Turn {
        Turn(lock(&TURN))
    }

    /// Runs the plan to its end. Ends the process if a call hangs, after naming it: a thread that
    /// hangs cannot be stopped otherwise.
    pub fn run(&self, target: &'static Target, plan: Plan) -> Outcome {
        let shared = Arc::new(Shared {
            target,
            plan,
            next_round: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            resident_early: AtomicU64::new(0),
            done: AtomicBool::new(false),
            watched: Mutex::default(),
            panics: Mutex::default(),
        });
        let begin = Instant::now();
        let tallies = with_panics_noted(&shared, || {
            let watchdog = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || watch(&shared))
            };
            let attackers: Vec<_> = (0..plan.threads)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || attack(&shared))
                })
                .collect();
            let tallies: Vec<_> = attackers.into_iter().filter_map(|one| one.join().ok()).collect();
            shared.done.store(true, Ordering::Relaxed);
            let _ = watchdog.join();
            tallies
        });
        let mut outcome = Outcome {
            rounds: shared.next_round.load(Ordering::Relaxed),
            panics: std::mem::take(&mut *lock(&shared.panics)),
            took: begin.elapsed(),
            resident_early: shared.resident_early.load(Ordering::Relaxed),
            resident_late: resident_bytes(),
            ..Outcome::default()
        };
        tallies.iter().for_each(|tally| outcome.tally.add(tally));
        outcome
    }

    /// Makes one round with these bytes, without threads and without a watch over it: panics come
    /// out.
    pub fn round(&self, target: &Target, bytes: &[u8]) -> Tally {
        let mut log = Log::default();
        (target.attack)(&mut Choices::new(bytes), &mut log);
        log.tally().clone()
    }
}

/// One round in a turn of its own.
pub fn round(target: &Target, bytes: &[u8]) -> Tally {
    Turn::take().round(target, bytes)
}

fn attack(shared: &Shared) -> Tally {
    let mut log = Log::default();
    lock(&shared.watched).push(log.running());
    let Plan { calls, seed, .. } = shared.plan;
    while shared.calls.load(Ordering::Relaxed) < calls {
        let round = shared.next_round.fetch_add(1, Ordering::Relaxed);
        let before = log.tally().calls();
        log.begin_round(round);
        let bytes = Choices::bytes_of(seed, round, shared.target.round_bytes);
        let attack = || (shared.target.attack)(&mut Choices::new(&bytes), &mut log);
        if panic::catch_unwind(AssertUnwindSafe(attack)).is_err() {
            // The hook noted where.
            lock(&shared.panics).push(format!("round {round} of seed {seed} ended in it"));
        }
        let made = log.tally().calls() - before;
        let sum = shared.calls.fetch_add(made, Ordering::Relaxed) + made;
        if sum >= calls / 10 && shared.resident_early.load(Ordering::Relaxed) == 0 {
            shared.resident_early.store(resident_bytes(), Ordering::Relaxed);
        }
    }
    log.tally().clone()
}

/// Lets every panic of the process be noted while `act` runs, also those that are caught: a driver
/// answers 999 after one.
fn with_panics_noted<T>(shared: &Arc<Shared>, act: impl FnOnce() -> T) -> T {
    let before = panic::take_hook();
    let noting = Arc::clone(shared);
    panic::set_hook(Box::new(move |info| {
        let mut panics = lock(&noting.panics);
        if panics.len() < 100 {
            panics.push(info.to_string().replace('\n', " "));
        }
    }));
    let result = act();
    panic::set_hook(before);
    result
}

fn watch(shared: &Shared) {
    let begin = Instant::now();
    let mut told = begin;
    while !shared.done.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(200));
        if shared.plan.progress.is_some_and(|every| told.elapsed() >= every) {
            told = Instant::now();
            let calls = shared.calls.load(Ordering::Relaxed);
            eprintln!("{calls} calls after {} s", begin.elapsed().as_secs());
        }
        for running in lock(&shared.watched).iter() {
            let Some(Running { name, round, call, since }) = *lock(running) else { continue };
            if since.elapsed() > shared.plan.call_limit {
                let seed = shared.plan.seed;
                eprintln!("{name} hangs: call {call} of round {round} of seed {seed}");
                std::process::exit(3);
            }
        }
    }
}

/// Bytes of memory that the process has in use; 0 where the system does not say.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * pagewise_hal::PAGE_BYTES
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
