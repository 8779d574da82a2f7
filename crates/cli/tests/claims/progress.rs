//! Progress, which is shown at a terminal.
#![cfg(target_os = "linux")]

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `script` of util-linux lends the command a terminal.
#[test]
fn a_terminal_is_shown_how_much_of_the_total_is_done() {
    let arguments = "compare --backend sim --ops 1000000 --family calls";
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_pagewise"));
    let script = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut script) = script else {
        println!("skipped: there is no `script`, which lends a command a terminal");
        return;
    };
    let mut terminal = script.stdout.take().expect("a pipe");
    let (begun, mut shown, mut part) = (Instant::now(), Vec::new(), [0; 4096]);
    let line = " of 1000000 operations, ";
    while !String::from_utf8_lossy(&shown).contains(line) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is shown");
        match terminal.read(&mut part) {
            Ok(count @ 1..) => shown.extend(&part[..count]),
            end => panic!("it ends with {end:?}: {}", String::from_utf8_lossy(&shown)),
        }
    }
    assert!(begun.elapsed() > Duration::from_millis(900), "not before a second");
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(shown.contains(" %, ") && shown.contains(" cases compared, "), "{shown}");
    script.kill().expect("it still runs");
    script.wait().expect("a child");
}
