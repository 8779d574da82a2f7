//! The first program of the documentation is short and runs.
#![cfg(feature = "sim")]

use std::process::Command;

mod newcomer {
    include!("../examples/newcomer.rs");

    pub(super) fn run() -> Result<()> {
        main()
    }
}

#[test]
fn the_newcomer_s_program_is_short_and_runs() {
    let program = include_str!("../examples/newcomer.rs");
    let code = program.lines().filter(|line| !line.trim_start().starts_with("//"));
    assert!(code.count() <= 25);
    // In a process of its own, so that the environment of this one stays as it is.
    if std::env::var(pagewise::Builder::VARIABLE).is_ok_and(|name| name == "sim") {
        return newcomer::run().expect("it runs on the simulator");
    }
    let status = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_newcomer_s_program_is_short_and_runs"])
        .env(pagewise::Builder::VARIABLE, "sim")
        .status();
    assert!(status.expect("this test starts again").success());
}
