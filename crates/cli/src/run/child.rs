//! The program of `pagewise run` as a process: signals reach it, and it does not outlive the command.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::thread;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Starts a program and waits for its end.
///
/// A signal from the terminal reaches the program too, which decides what to do about it; this process
/// goes on, to tell what moved. A request to end that reaches this process only is passed on. If this
/// process is killed, the program is, too.
pub(super) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    end_with_parent(command);
    // From here on, so that no signal ends this process between the start of the program and the
    // thread that passes signals on. Without it, the command ends with the program and leaves a folder
    // behind: no reason to refuse.
    let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
    let mut child = command.spawn()?;
    let passing = signals.ok().map(|signals| pass_on(signals, &child));
    let status = child.wait();
    if let Some(passing) = passing {
        passing.close();
    }
    status
}

/// Lets a program end when this thread does. Only Linux can.
fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let before_start = move || {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before this process asked for its signal.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls: it takes no lock and
    // allocates nothing.
    unsafe { command.pre_exec(before_start) };
}

/// Passes requests to end on to a program, until the handle is closed.
fn pass_on(mut signals: Signals, child: &Child) -> Handle {
    let (handle, program) = (signals.handle(), Pid::from_child(child));
    thread::spawn(move || {
        for signal in signals.forever() {
            // Those of the keyboard go to all processes of the terminal.
            let passed = match signal {
                SIGHUP => Signal::HUP,
                SIGTERM => Signal::TERM,
                _ => continue,
            };
            // The program may end in this moment.
            _ = kill_process(program, passed);
        }
    });
    handle
}
