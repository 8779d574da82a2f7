//! A line on stderr that counts cases, shown at a terminal after one second.

use std::io::{IsTerminal, stderr};
use std::sync::Once;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Progress {
    start: Instant,
    bar: ProgressBar,
    shown: Once,
}

impl Progress {
    /// `done`: the word for what has happened to the cases that are counted.
    pub(crate) fn start(done: &str) -> Self {
        let bar = ProgressBar::hidden();
        let template = format!("{{spinner}} {{pos}} cases {done}, {{msg}}{{elapsed}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self { start: Instant::now(), bar, shown: Once::new() }
    }

    pub(crate) fn case_done(&self) {
        self.bar.inc(1);
        self.bar.set_message("");
        if self.start.elapsed() > PATIENCE && stderr().is_terminal() {
            self.shown.call_once(|| self.bar.set_draw_target(ProgressDrawTarget::stderr()));
        }
    }

    /// Shows other work than replaying, until the next case is done.
    #[cfg(feature = "calibrate")]
    pub(crate) fn doing(&self, what: &str) {
        self.bar.set_message(format!("{what}, "));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
