//! A line on stderr that says how much is done, of how much where that is known. It is shown at a
//! terminal, after one second.

use std::io::{self, IsTerminal as _, Read, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);

/// The least time between two drawings.
const PAUSE: Duration = Duration::from_millis(100);

/// The unit of the work that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes of the files that are read, as they are stored.
    Bytes,
    Operations,
    #[cfg_attr(not(feature = "calibrate"), allow(dead_code, reason = "`calibrate` counts cases"))]
    Cases,
}

/// The progress of one command.
#[derive(Debug)]
pub(crate) struct Progress {
    /// `None` where there is no terminal.
    state: Option<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    start: Instant,
    /// The word for what has happened to the cases that are counted.
    done: &'static str,
    unit: Unit,
    /// Units of work that there are, if that is known.
    total: Option<u64>,
    amount: u64,
    cases: u64,
    /// Other work than with cases.
    doing: Option<&'static str>,
    drawn: Option<Instant>,
    /// Characters on the screen.
    width: usize,
}

impl Progress {
    /// Begins to count. `done`: the word for what has happened to the cases that are counted.
    pub(crate) fn start(done: &'static str, unit: Unit, total: Option<u64>) -> Self {
        let state = io::stderr().is_terminal().then(|| Mutex::new(State::new(done, unit, total)));
        Self { state }
    }

    /// Counts work.
    pub(crate) fn advance(&self, amount: u64) {
        self.change(|state| state.amount = state.amount.saturating_add(amount));
    }

    pub(crate) fn case_done(&self) {
        self.change(|state| {
            state.cases = state.cases.saturating_add(1);
            state.doing = None;
        });
    }

    /// Sets how much work there is, once that is known.
    #[cfg(feature = "calibrate")]
    pub(crate) fn expect(&self, total: u64) {
        self.change(|state| state.total = Some(total));
    }

    /// Shows other work than replaying, until the next case is done.
    #[cfg(feature = "calibrate")]
    pub(crate) fn doing(&self, work: &'static str) {
        self.change(|state| state.doing = Some(work));
    }

    /// Counts what is read from `input`.
    pub(crate) fn counted<R: Read>(&self, input: R) -> Counted<'_, R> {
        Counted { input, progress: self }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        if let Some(state) = &self.state {
            let mut state = locked(state);
            change(&mut state);
            state.draw();
        }
    }
}

/// The line goes when the command is done with its work, or gives up.
impl Drop for Progress {
    fn drop(&mut self) {
        let Some(state) = &self.state else { return };
        let width = locked(state).width;
        if width > 0 {
            // A failure here has no place to be told.
            _ = write!(io::stderr(), "\r{:width$}\r", "");
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn new(done: &'static str, unit: Unit, total: Option<u64>) -> Self {
        let start = Instant::now();
        let total = total.filter(|&total| total > 0);
        Self { start, done, unit, total, amount: 0, cases: 0, doing: None, drawn: None, width: 0 }
    }

    fn draw(&mut self) {
        let now = Instant::now();
        let waits = self.drawn.map_or(PATIENCE, |_| PAUSE);
        if now.duration_since(self.drawn.unwrap_or(self.start)) < waits {
            return;
        }
        let line = self.line(now.duration_since(self.start));
        let width = self.width;
        // A failure here has no place to be told.
        _ = write!(io::stderr(), "\r{line:width$}");
        (self.width, self.drawn) = (line.chars().count(), Some(now));
    }

    fn line(&self, elapsed: Duration) -> String {
        let Self { done, unit, total, amount, cases, .. } = *self;
        let of = |shown: fn(u64) -> String, part: u64| match total {
            None => shown(part),
            Some(total) => format!("{} of {}", shown(part), shown(total)),
        };
        let work = match unit {
            Unit::Bytes => format!("{} MB, {cases} cases {done}", of(megabytes, amount)),
            Unit::Operations => {
                format!(
                    "{} operations, {cases} cases {done}",
                    of(|count| count.to_string(), amount)
                )
            }
            Unit::Cases => format!("{} cases {done}", of(|count| count.to_string(), cases)),
        };
        let percent = self.percent().map_or(String::new(), |percent| format!("{percent} %, "));
        let doing = self.doing.map_or(String::new(), |work| format!("{work}, "));
        format!("{percent}{work}, {doing}{} s", elapsed.as_secs())
    }

    /// Rounded down; never more than 100.
    fn percent(&self) -> Option<u128> {
        let counted = match self.unit {
            Unit::Bytes | Unit::Operations => self.amount,
            Unit::Cases => self.cases,
        };
        let hundreds = u128::from(counted).saturating_mul(100);
        Some(hundreds.checked_div(self.total?.into())?.min(100))
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// A reader of which the bytes count as progress.
#[derive(Debug)]
pub(crate) struct Counted<'a, R> {
    input: R,
    progress: &'a Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.progress.advance(count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(unit: Unit, total: Option<u64>, amount: u64) -> String {
        let state = State { amount, cases: 3, ..State::new("replayed", unit, total) };
        state.line(Duration::from_millis(4_900))
    }

    #[test]
    fn the_line_says_how_much_of_the_total_is_done() {
        let of_bytes = line(Unit::Bytes, Some(16_000_000), 4_100_000);
        assert_eq!(of_bytes, "25 %, 4.1 of 16.0 MB, 3 cases replayed, 4 s");
        let of_operations = line(Unit::Operations, Some(8000), 7999);
        assert_eq!(of_operations, "99 %, 7999 of 8000 operations, 3 cases replayed, 4 s");
        assert_eq!(line(Unit::Cases, Some(12), 0), "25 %, 3 of 12 cases replayed, 4 s");
        let more_than_expected = line(Unit::Operations, Some(10), 12);
        assert!(more_than_expected.starts_with("100 %, 12 of 10"), "{more_than_expected}");
    }

    #[test]
    fn the_line_claims_no_total_where_none_is_known() {
        for total in [None, Some(0)] {
            assert_eq!(line(Unit::Bytes, total, 2_000_000), "2.0 MB, 3 cases replayed, 4 s");
        }
    }

    #[test]
    fn what_is_read_is_counted_once() {
        let state = Mutex::new(State::new("read", Unit::Bytes, Some(5)));
        let progress = Progress { state: Some(state) };
        let mut read = Vec::new();
        progress.counted(&b"bytes"[..]).read_to_end(&mut read).expect("in memory");
        assert_eq!(
            (read.as_slice(), locked(progress.state.as_ref().expect("kept")).amount),
            (&b"bytes"[..], 5)
        );
    }
}
