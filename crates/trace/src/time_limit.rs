//! A limit on the time that a file takes.
//!
//! Work and memory follow from a file's own numbers, time does not: machines differ, and a driver
//! can be slow. So time is measured while a thread reads the file or carries it out, and looked at
//! before each line and each operation. The operation in progress then is finished.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Reason;

/// A clock that never goes back: the time since a fixed moment. Clones are the same clock.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl WallClock {
    /// A clock for tests, or one that other code keeps.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time since the clock's fixed moment.
    #[must_use]
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for WallClock {
    /// The operating system's monotonic clock.
    fn default() -> Self {
        let start = Instant::now();
        Self::from_fn(move || start.elapsed())
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallClock").field(&self.now()).finish()
    }
}

/// The most time that a file may take, and the time that it took so far. Clones share both.
///
/// Time counts while at least one [`Busy`] of it lives; threads that work side by side count once.
/// A file is not charged for the time in which other files keep its cases waiting.
#[derive(Debug, Clone, Default)]
pub struct TimeLimit(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    clock: WallClock,
    limit: Duration,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Up to the last moment at which no thread was busy.
    before: Duration,
    /// Since when a thread is.
    since: Duration,
    busy: u64,
}

impl TimeLimit {
    /// No limit. No clock is read.
    pub const NONE: Self = Self(None);

    /// A limit on a clock. [`Duration::MAX`] is no limit.
    #[must_use]
    pub fn new(limit: Duration, clock: &WallClock) -> Self {
        if limit == Duration::MAX {
            return Self::NONE;
        }
        let taken = Mutex::default();
        Self(Some(Arc::new(Shared { clock: clock.clone(), limit, taken })))
    }

    /// Time counts until the answer is dropped.
    pub fn busy(&self) -> Busy {
        if let Some(shared) = &self.0 {
            let mut taken = shared.taken();
            if taken.busy == 0 {
                taken.since = shared.clock.now();
            }
            taken.busy = taken.busy.saturating_add(1);
        }
        Busy(self.clone())
    }

    /// Refuses to go on if the file has taken more time than it may; `at` is what comes next: an
    /// operation, a `case` or a `line`.
    ///
    /// # Errors
    /// [`Reason::TooMuchTime`].
    pub fn check(&self, at: &'static str) -> Result<(), Reason> {
        let Some(shared) = &self.0 else { return Ok(()) };
        let (needed, limit) = (shared.taken().until(&shared.clock), shared.limit);
        if needed > limit { Err(Reason::TooMuchTime { at, needed, limit }) } else { Ok(()) }
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// All time up to now.
    fn until(&self, clock: &WallClock) -> Duration {
        match self.busy {
            0 => self.before,
            _ => self.before.saturating_add(clock.now().saturating_sub(self.since)),
        }
    }
}

/// A thread works on the file. The file's time counts while this lives.
#[derive(Debug)]
#[must_use = "time counts only while this lives"]
pub struct Busy(TimeLimit);

impl Drop for Busy {
    fn drop(&mut self) {
        let Some(shared) = &self.0.0 else { return };
        let mut taken = shared.taken();
        if taken.busy == 1 {
            taken.before = taken.until(&shared.clock);
        }
        taken.busy = taken.busy.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that stands still until it is told to go on.
    fn clock() -> (WallClock, impl Fn(u64)) {
        let seconds = Arc::new(AtomicU64::new(7));
        let hand = Arc::clone(&seconds);
        let clock = WallClock::from_fn(move || Duration::from_secs(hand.load(Ordering::Relaxed)));
        (clock, move |by| _ = seconds.fetch_add(by, Ordering::Relaxed))
    }

    #[test]
    fn only_time_in_which_somebody_is_busy_counts() {
        let (clock, pass) = clock();
        let time = TimeLimit::new(Duration::from_secs(10), &clock);
        pass(100);
        assert!(time.check("line").is_ok(), "nobody has begun");
        let busy = time.busy();
        pass(6);
        drop(busy);
        pass(100);
        assert!(time.check("line").is_ok(), "6 s");
        let _busy = time.busy();
        pass(4);
        assert!(time.check("line").is_ok(), "10 s are allowed");
        pass(1);
        let (needed, limit) = (Duration::from_secs(11), Duration::from_secs(10));
        let Err(Reason::TooMuchTime { at: "line", needed: took, limit: most }) = time.check("line")
        else {
            panic!("11 s are too much")
        };
        assert_eq!((took, most), (needed, limit));
    }

    #[test]
    fn threads_that_work_side_by_side_count_once() {
        let (clock, pass) = clock();
        let time = TimeLimit::new(Duration::from_secs(10), &clock);
        let (one, other) = (time.busy(), time.clone().busy());
        pass(6);
        drop(one);
        pass(4);
        drop(other);
        assert!(time.check("case").is_ok());
        let _one = time.busy();
        pass(1);
        assert!(time.check("case").is_err());
    }

    #[test]
    fn without_a_limit_no_clock_is_read() {
        let clock = WallClock::from_fn(|| panic!("somebody reads the clock"));
        let time = TimeLimit::new(Duration::MAX, &clock);
        let _busy = time.busy();
        assert!(time.check("line").is_ok());
    }
}
