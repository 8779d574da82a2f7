//! `pagewise record` as scripts see it.

use crate::common::{Files, pagewise, status, stderr};

/// A plain program: neither header nor case nor results.
const OPS: &[&str] = &[
    r#"{"op":"alloc_managed","buf":3,"bytes":2097152,"attach_flags":1}"#,
    r#"{"op":"host_touch","buf":3,"offset":0,"bytes":2097152,"stride":4096,"access":"write","value":7}"#,
    r#"{"op":"device_touch","device":0,"buf":3,"offset":0,"bytes":2097152,"stride":4096,"access":"read","blocks":1,"threads":1}"#,
    r#"{"op":"free","buf":3}"#,
];

#[test]
fn a_plain_program_becomes_a_trace_that_replays_whatever_its_compression() {
    let files = Files::new();
    let program = files.add("touches.jsonl", OPS.join("\n"));
    let mut texts = Vec::new();
    for name in ["plain.jsonl", "small.jsonl.gz", "smaller.jsonl.zst"] {
        let trace = files.path(name);
        let output = pagewise(&["record", &program, "-o", &trace]);
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("4 operations in 1 cases, family touches"), "{said}");
        assert_eq!(status(&pagewise(&["replay", &trace])), 0);
        texts.push(std::fs::read(trace).expect("readable"));
    }
    assert!(texts[1].starts_with(&[0x1f, 0x8b]) && texts[2].starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
    let plain = String::from_utf8_lossy(&texts[0]).into_owned();
    assert!(plain.contains("\"runs\":2,\"timed_runs\":5"), "{plain}");
    assert!(plain.contains("gpu_fault") && plain.contains("\"host_mapped\":{\"3\":\"512.\"}"));
}

#[test]
fn recording_a_recording_gives_the_same_bytes() {
    let files = Files::new();
    let program = files.add("touches.jsonl", OPS.join("\n"));
    let (first, second) = (files.path("first.jsonl"), files.path("second.jsonl"));
    assert_eq!(status(&pagewise(&["record", &program, "-o", &first])), 0);
    assert_eq!(status(&pagewise(&["record", &first, "-o", &second])), 0);
    let bytes = |path: &str| std::fs::read(path).expect("readable");
    assert_eq!(bytes(&first), bytes(&second));
}

#[test]
fn an_invalid_program_is_status_3_and_leaves_an_older_recording_alone() {
    let files = Files::new();
    let twice = [OPS[0], OPS[0]].join("\n");
    let unknown = [OPS[0], r#"{"op":"explode"}"#].join("\n");
    for (text, reason) in [
        (twice.as_str(), ":2: buffer id 3 used twice"),
        (unknown.as_str(), ":2: unknown op `explode`"),
        ("", "empty"),
        ("{\"format\":\"other\"}\n", ":1: wrong format"),
    ] {
        let program = files.add("program.jsonl", text);
        let trace = files.add("trace.jsonl", "an older recording");
        let output = pagewise(&["record", &program, "-o", &trace]);
        assert_eq!(status(&output), 3, "{text}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(&trace).expect("readable"), "an older recording");
        assert_eq!(files.names(), ["program.jsonl", "trace.jsonl"], "no temporary file is left");
    }
}

#[test]
fn a_ceiling_and_a_number_of_devices_replace_those_of_the_program() {
    let files = Files::new();
    let program = files.add(
        "program.jsonl",
        r#"{"op":"alloc_managed","buf":0,"bytes":4096,"attach_flags":1}
{"op":"advise","abi":2,"buf":0,"offset":0,"bytes":4096,"advice":"set_read_mostly","location":{"kind":"host"}}
{"op":"prefetch","abi":1,"buf":0,"offset":0,"bytes":4096,"location":{"ordinal":1}}
"#,
    );
    let trace = files.path("trace.jsonl");
    let arguments = ["--ceiling", "12.0", "--devices", "2", "--repeat", "1", "--timed-runs", "0"];
    let output = pagewise(&[&["record", &program, "-o", &trace][..], &arguments].concat());
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let text = std::fs::read_to_string(&trace).expect("readable");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("\"gpus\":2") && lines[0].contains("12000"), "{text}");
    assert!(lines[3].contains("\"code\":801"), "CUDA 12.0 has no locations: {text}");
    assert!(lines[4].contains("\"code\":0") && !lines[4].contains("\"ns\""), "{text}");
}

#[test]
fn a_record_without_an_output_is_a_usage_error() {
    let files = Files::new();
    let program = files.add("program.jsonl", OPS[0]);
    assert_eq!(status(&pagewise(&["record", &program])), 2);
    let missing = pagewise(&["record", &files.path("none"), "-o", &files.path("out")]);
    assert_eq!(status(&missing), 3);
    assert_eq!(files.names(), ["program.jsonl"]);
}

// ---- where it goes ----------------------------------------------------------------------------

/// Files of a kind that the output is not to replace.
#[cfg(unix)]
mod special {
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn kind(path: &str) -> std::fs::FileType {
        Path::new(path).symlink_metadata().expect("still there").file_type()
    }

    #[test]
    fn a_link_stays_and_the_file_behind_it_is_replaced() {
        let files = Files::new();
        let program = files.add("touches.jsonl", OPS.join("\n"));
        let (old, new) = (files.add("old.jsonl", "an older recording"), files.path("new.jsonl"));
        for target in [old, new] {
            let link = files.path("link.jsonl");
            symlink(&target, &link).expect("a link");
            let output = pagewise(&["record", &program, "-o", &link]);
            assert_eq!(status(&output), 0, "{}", stderr(&output));
            assert!(kind(&link).is_symlink() && kind(&target).is_file(), "{target}");
            assert_eq!(status(&pagewise(&["replay", &target])), 0, "{target}");
            std::fs::remove_file(link).expect("removed");
        }
        assert_eq!(files.names(), ["new.jsonl", "old.jsonl", "touches.jsonl"]);
    }

    #[test]
    fn a_device_is_written_through_and_a_full_one_is_status_3() {
        let files = Files::new();
        let program = files.add("touches.jsonl", OPS.join("\n"));
        for (device, expected) in [("/dev/null", 0), ("/dev/full", 3)] {
            let link = files.path("device");
            symlink(device, &link).expect("a link");
            let output = pagewise(&["record", &program, "-o", &link]);
            assert_eq!(status(&output), expected, "{device}: {}", stderr(&output));
            assert!(kind(&link).is_symlink(), "{device}");
            std::fs::remove_file(link).expect("removed");
        }
        assert_eq!(files.names(), ["touches.jsonl"]);
    }

    #[test]
    fn a_fifo_gets_the_trace_and_stays() {
        let files = Files::new();
        let program = files.add("touches.jsonl", OPS.join("\n"));
        let fifo = files.path("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs");
        assert!(made.success());
        let reading = fifo.clone();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let mut pipe = std::fs::File::open(reading).expect("a FIFO");
            pipe.read_to_string(&mut text).map(|_| text)
        });
        let output = pagewise(&["record", &program, "-o", &fifo]);
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        let text = reader.join().expect("no panic").expect("UTF-8");
        assert_eq!(text.lines().count(), 6, "header, case and four operations: {text}");
        assert!(kind(&fifo).is_fifo());
    }

    #[test]
    fn a_directory_is_refused() {
        let files = Files::new();
        let program = files.add("touches.jsonl", OPS.join("\n"));
        let output = pagewise(&["record", &program, "-o", &files.directory()]);
        assert_eq!(status(&output), 3);
        assert!(stderr(&output).contains("it is a directory"), "{}", stderr(&output));
    }

    #[test]
    fn other_commands_write_through_links_and_devices_too() {
        let files = Files::new();
        let link = files.path("link");
        symlink("/dev/full", &link).expect("a link");
        let arguments = ["compare", "--backend", "sim", "--ops", "20", "--family", "calls"];
        for option in ["--programs", "--trying"] {
            let output = pagewise(&[&arguments[..], &[option, &link]].concat());
            assert_eq!(status(&output), 3, "{option}: {}", stderr(&output));
            assert!(stderr(&output).contains("cannot write"), "{}", stderr(&output));
        }
        assert!(kind(&link).is_symlink());
        assert_eq!(files.names(), ["link"]);
    }
}
