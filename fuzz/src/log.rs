//! A log of the calls and their answers, and of the call that is running.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The code of an answer that carries no `CUresult`.
pub const NO_CODE: i32 = -1;

/// The call that a thread is in.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    /// The call.
    pub name: &'static str,
    /// Which round of the seed made it.
    pub round: u64,
    /// Which call of the round it is, from 0.
    pub call: u64,
    /// Since when.
    pub since: Instant,
}

/// How often each call gave each code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<(&'static str, i32), u64>);

impl Tally {
    /// All calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.values().sum()
    }

    /// How often one call gave one code.
    #[must_use]
    pub fn count(&self, name: &str, code: i32) -> u64 {
        self.0.iter().filter(|((n, c), _)| (*n, *c) == (name, code)).map(|(_, count)| count).sum()
    }

    /// How often the call was made.
    #[must_use]
    pub fn calls_of(&self, name: &str) -> u64 {
        self.0.iter().filter(|((n, _), _)| *n == name).map(|(_, count)| count).sum()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (&key, count) in &other.0 {
            *self.0.entry(key).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    /// One line for each call: how often, then each code with how often.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for (&(name, code), count) in &self.0 {
            if name != last {
                let lead = if last.is_empty() { "" } else { "\n" };
                write!(f, "{lead}{name:32} {:>10} calls:", self.calls_of(name))?;
            }
            match code {
                NO_CODE => write!(f, " no code {count}")?,
                code => write!(f, " {code}: {count}")?,
            }
            last = name;
        }
        Ok(())
    }
}

/// One thread's log.
#[derive(Debug, Default)]
pub struct Log {
    tally: Tally,
    round: u64,
    call: u64,
    running: Arc<Mutex<Option<Running>>>,
}

impl Log {
    /// A round begins.
    pub fn begin_round(&mut self, round: u64) {
        (self.round, self.call) = (round, 0);
    }

    /// Makes a call and counts what `code_of` finds in its answer: a `CUresult`, 0 for success,
    /// [`NO_CODE`] for a refusal without one.
    pub fn call<T>(
        &mut self,
        name: &'static str,
        act: impl FnOnce() -> T,
        code_of: impl FnOnce(&T) -> i32,
    ) -> T {
        let (round, call) = (self.round, self.call);
        self.set_running(Some(Running { name, round, call, since: Instant::now() }));
        let answer = act();
        self.set_running(None);
        self.call += 1;
        *self.tally.0.entry((name, code_of(&answer))).or_default() += 1;
        answer
    }

    /// The counts so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The call that runs now, for the thread that watches this one.
    #[must_use]
    pub fn running(&self) -> Arc<Mutex<Option<Running>>> {
        Arc::clone(&self.running)
    }

    fn set_running(&self, running: Option<Running>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_name_and_code() {
        let mut log = Log::default();
        log.begin_round(3);
        log.call("free", || 1, |&code| code);
        log.call("free", || 0, |&code| code);
        log.call("alloc", || (), |()| NO_CODE);
        let tally = log.tally();
        assert_eq!((tally.calls(), tally.calls_of("free"), tally.count("free", 1)), (3, 2, 1));
        assert!(tally.to_string().contains("no code 1"));
        assert!(log.running().lock().unwrap().is_none());
    }

    #[test]
    fn the_running_call_is_seen_from_outside() {
        let mut log = Log::default();
        log.begin_round(9);
        let running = log.running();
        let seen = log.call("free", || *running.lock().unwrap(), |_| 0);
        let seen = seen.expect("a call is running");
        assert_eq!((seen.name, seen.round, seen.call), ("free", 9, 0));
    }
}
