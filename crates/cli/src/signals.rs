//! Signals that ask this process to end: Ctrl-C, and those of `kill` and of a closed terminal.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls a function each time that this process is asked to end, in a thread where files may be
/// removed. The process goes on.
pub(crate) fn when_asked_to_end(mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().spawn(move || {
        for _ in signals.forever() {
            act();
        }
    })?;
    Ok(())
}
