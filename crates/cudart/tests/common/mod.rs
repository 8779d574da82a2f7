//! Helpers of the tests over the simulated driver.

use std::process::Command;

// The driver's library is built because these tests depend on it.
use pagewise_driver as _;

const DRIVER: &str = "PAGEWISE_DRIVER_LIBRARY";

/// Runs a test in a process of its own, in which the runtime finds the simulated driver.
pub(crate) fn over_the_driver(test: &str, body: impl FnOnce()) {
    if std::env::var_os(DRIVER).is_some() {
        return body();
    }
    let program = std::env::current_exe().expect("a test knows its path");
    let mut command = Command::new(&program);
    command.args(["--exact", test, "--nocapture"]);
    command.env(DRIVER, program.with_file_name("libpagewise_driver.so"));
    command.env("PAGEWISE_DRIVER", "profile=h200 memory=1GiB");
    let output = command.output().expect("the test runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}
