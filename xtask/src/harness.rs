//! Test binaries: building them, and running one.
//!
//! Each runs by the harness of the standard library, all of its tests in one process, on several
//! threads and in a shuffled order: what tests share by mistake shows.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use serde_json::Value;

use crate::command::{Outcome, cargo, output};

/// A binary that ran longer hangs, and is ended. The longest takes a minute on two cores.
pub(crate) const LONGEST: Duration = Duration::from_secs(600);

/// How the tests of a binary run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// How many run at once.
    pub(crate) threads: usize,
    /// Which order they start in.
    pub(crate) seed: u64,
    /// Where property tests begin to draw.
    pub(crate) properties: u64,
}

/// A program of tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// The package and the target.
    pub(crate) name: String,
    executable: PathBuf,
    /// The package's folder, which tests run in.
    folder: PathBuf,
}

/// The output of a binary, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) text: String,
    pub(crate) succeeded: bool,
}

/// Builds every test binary of the workspace.
pub(crate) fn build_all() -> Outcome<Vec<Binary>> {
    build(&mut cargo(&["test", "--workspace", "--all-features", "--locked", "--no-run"]))
}

/// Builds the test binaries that a command of cargo's builds.
pub(crate) fn build(command: &mut Command) -> Outcome<Vec<Binary>> {
    let messages = output(command.args(["--message-format", "json-render-diagnostics"]))?;
    let binaries: Vec<Binary> = messages.lines().filter_map(binary).collect();
    if binaries.is_empty() { Err("cargo built no test".to_owned()) } else { Ok(binaries) }
}

/// The test binary that a message of cargo's is about.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str()?;
    Some(Binary { name: format!("{package}::{target}"), executable, folder })
}

impl Binary {
    /// The command that runs it, with the unstable options of the harness allowed.
    pub(crate) fn command(&self) -> Command {
        self.command_by(|program| Command::new(program))
    }

    /// The same command, where another program may start the executable.
    pub(crate) fn command_by(&self, start: impl FnOnce(&OsStr) -> Command) -> Command {
        let mut command = start(self.executable.as_os_str());
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        // They are unstable on any compiler; nothing is compiled here.
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Z", "unstable-options"]);
        command
    }

    /// The names of its tests.
    pub(crate) fn names(&self) -> Outcome<Vec<String>> {
        let list = output(self.command().args(["--list", "--format", "terse"]))?;
        Ok(list.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
    }

    /// Runs all tests, with what passing ones print.
    pub(crate) fn run(&self, order: Order) -> Outcome<Ran> {
        let mut command = self.command();
        command.arg("--show-output");
        command.args(["--test-threads", &order.threads.to_string()]);
        command.args(["--shuffle-seed", &order.seed.to_string()]);
        command.env("PROPTEST_RNG_SEED", order.properties.to_string());
        run_within(&mut command, LONGEST)
    }
}

/// Runs a command, and ends it after a time.
pub(crate) fn run_within(command: &mut Command, longest: Duration) -> Outcome<Ran> {
    let failed = |error: std::io::Error| format!("a test binary cannot be run: {error}");
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let both = writer.try_clone().map_err(failed)?;
    let child = command.stdin(Stdio::null()).stdout(writer).stderr(both).spawn().map_err(failed)?;
    // The command holds the writing ends too; without them the reader would never see an end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = Arc::new(Mutex::new(child));
    let hanging = Arc::clone(&child);
    let (done, is_done) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hangs = is_done.recv_timeout(longest) == Err(mpsc::RecvTimeoutError::Timeout);
        hangs && hanging.lock().unwrap_or_else(PoisonError::into_inner).kill().is_ok()
    });
    let mut text = String::new();
    // Tests print what they like.
    for line in BufReader::new(reader).split(b'\n') {
        text.push_str(&String::from_utf8_lossy(&line.map_err(failed)?));
        text.push('\n');
    }
    let status = child.lock().unwrap_or_else(PoisonError::into_inner).wait().map_err(failed)?;
    drop(done);
    if watchdog.join().unwrap_or(false) {
        text.push_str(&format!("ended after {} s: a test hangs\n", longest.as_secs()));
    } else if !status.success() {
        text.push_str(&format!("ended with {status}\n"));
    }
    Ok(Ran { text, succeeded: status.success() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_s_messages_name_the_test_binaries_among_them() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/hal/Cargo.toml",
            "target":{"name":"ext"},"profile":{"test":true},"executable":"/t/ext-1"}"#;
        let found = binary(message).expect("a test binary");
        assert_eq!(
            (found.name.as_str(), found.folder.to_str()),
            ("hal::ext", Some("/p/crates/hal"))
        );
        assert_eq!(binary(&message.replace("true", "false")), None, "the library itself");
        assert_eq!(binary(&message.replace("\"/t/ext-1\"", "null")), None);
        assert_eq!(binary("warning: something"), None);
    }

    #[cfg(unix)]
    #[test]
    fn what_hangs_is_ended_and_what_it_printed_is_kept() {
        let mut hangs = Command::new("sh");
        hangs.args(["-c", "echo before; exec sleep 60"]);
        let ran = run_within(&mut hangs, Duration::from_millis(200)).expect("a shell");
        assert!(!ran.succeeded);
        assert!(ran.text.starts_with("before\n") && ran.text.contains("hangs"), "{}", ran.text);
        let mut quick = Command::new("sh");
        let ran = run_within(quick.args(["-c", "echo x; exit 3"]), LONGEST).expect("a shell");
        assert!(!ran.succeeded && ran.text.contains("exit status: 3"), "{}", ran.text);
    }
}
