//! Running cargo and other programs, with a line for each command that is run.

use std::env;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The result of a step: the reason why it failed, if it did.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The cargo that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Outcome {
    announce(command);
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed ({status})")) }
}

/// Builds the libraries, the programs and the tests of the workspace. With fewer features or packages
/// cargo would build most of them once more.
pub(crate) fn build_workspace() -> Outcome {
    let workspace = ["build", "--quiet", "--locked", "--workspace", "--all-features"];
    run(cargo(&workspace).args(["--lib", "--bins", "--tests"]))
}

/// Whether a command can be run and succeeds. Its output is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

/// Runs a command and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed ({})", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}

fn announce(command: &Command) {
    // cargo by its name: the path says which toolchain it is of, which is no news.
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = iter::once(program).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    println!("\n$ {}", words.join(" "));
}

/// The status of a script of `tests` where Python or the registry of packages cannot be used.
const UNAVAILABLE: i32 = 75;

/// Runs a script of `tests`, with the folder of what cargo builds. If it cannot have what it needs,
/// it says what that is, and the step goes on, unless this is CI (the variable `CI` is set), which
/// has to have all.
pub(crate) fn script(path: &str) -> Outcome {
    let status = Command::new(path).arg(target_directory()?).status();
    let status = status.map_err(|error| format!("{path}: {error}"))?;
    match (status.code(), env::var_os("CI").is_some()) {
        (Some(0), _) => Ok(()),
        (Some(UNAVAILABLE), false) => {
            println!("skipped: {path} cannot have all that it needs (above)");
            Ok(())
        }
        _ => Err(format!("{path}: {status}")),
    }
}

/// The workspace as `cargo metadata` describes it, without what it depends on.
pub(crate) fn metadata() -> Outcome<Value> {
    let text = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// The folder of what cargo builds.
pub(crate) fn target_directory() -> Outcome<PathBuf> {
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str().ok_or("cargo names no target directory")?;
    Ok(PathBuf::from(target))
}
