//! `pagewise verdict` as scripts see it: verdicts, what the confidence derives from, refusals.

use serde_json::Value;

use crate::common::{Files, json, pagewise, status, stderr, stdout, trace};

const MIB: u64 = 1 << 20;

/// A GPU of 64 MiB for allocations, with the sources of its sizes.
fn small_gpu(files: &Files, evidence: &str) -> String {
    let text = format!(
        "base = 'h200'\nname = 'small'\nmemory_bytes = {}\ncontext_bytes = {}\n[sources]\n\
         memory_bytes = '{evidence}: a test'\ncontext_bytes = '{evidence}: a test'\n",
        128 * MIB,
        64 * MIB
    );
    files.add(&format!("{evidence}.toml"), text)
}

/// A program with one buffer that a GPU reads from front to back so many times.
fn passes(files: &Files, mib: u64, count: usize) -> String {
    let alloc =
        format!(r#"{{"op":"alloc_managed","buf":0,"bytes":{},"attach_flags":1}}"#, mib * MIB);
    let touch = format!(
        r#"{{"op":"device_touch","device":0,"buf":0,"offset":0,"bytes":{},"stride":4096,"access":"read","blocks":1,"threads":1}}"#,
        mib * MIB
    );
    let mut lines = vec![alloc.as_str()];
    lines.extend(std::iter::repeat_n(touch.as_str(), count));
    files.add(&format!("{mib}x{count}.jsonl"), trace(&lines))
}

fn verdict_of(program: &str, profile: &str) -> Value {
    let report = json(&pagewise(&["verdict", "--json", "--profile", profile, program]));
    assert_eq!(report["ok"], true, "{report}");
    report["verdicts"][0].clone()
}

#[test]
fn a_program_fits_streams_or_thrashes_by_what_comes_back() {
    let files = Files::new();
    let gpu = small_gpu(&files, "calibrated");
    for (mib, count, verdict, evicted, returned) in
        [(32, 3, "fits", 0, 0), (128, 1, "streams", 64, 0), (128, 4, "thrashes", 448, 384)]
    {
        let found = verdict_of(&passes(&files, mib, count), &gpu);
        assert_eq!(found["verdict"], verdict, "{found}");
        assert_eq!(found["evicted_bytes"], evicted * MIB, "{found}");
        assert_eq!(found["returned_bytes"], returned * MIB, "{found}");
        assert_eq!(found["peak_bytes"], mib.min(64) * MIB, "{found}");
    }
}

#[test]
fn confidence_derives_from_measured_figures_and_the_distance_to_another_verdict() {
    let files = Files::new();
    let trust = |program: &str, profile: &str| {
        let found = verdict_of(program, profile);
        let confidence = &found["confidence"];
        let count = |key: &str| confidence[key].as_u64().expect("a number");
        let trust = confidence["trust"].as_str().expect("a word").to_owned();
        (trust, count("founded"), count("figures"))
    };
    let fits = passes(&files, 32, 1);
    let measured = small_gpu(&files, "calibrated");
    let guessed = small_gpu(&files, "guess");
    assert_eq!(trust(&fits, &measured), ("high".to_owned(), 2, 2));
    assert_eq!(trust(&fits, &guessed), ("low".to_owned(), 0, 2));
    // 63 of 64 MiB: another buffer, and it does not fit.
    assert_eq!(trust(&passes(&files, 63, 1), &measured), ("low".to_owned(), 2, 2));
    // Beyond the memory, policy and the order of faults count, too. Of these, the document has only
    // those that the driver sets for every GPU.
    let (word, founded, figures) = trust(&passes(&files, 128, 1), &measured);
    assert!(figures > 30 && founded > 10 && 2 * founded < figures, "{founded} of {figures}");
    assert_eq!(word, "low");
}

#[test]
fn every_shipped_gpu_that_evicts_gets_a_line() {
    let files = Files::new();
    let output = pagewise(&["verdict", &passes(&files, 4, 1)]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    for profile in ["h200", "a100", "l4", "rtx4060ti-16gb", "v100", "gtx1080ti", "gh200"] {
        let line = text.lines().find(|line| line.contains(&format!("  {profile} ")));
        let line = line.unwrap_or_else(|| panic!("{profile}: {text}"));
        let trust = if profile == "h200" { "high: 2 of 2" } else { "fair: 1 of 2" };
        assert!(line.contains("fits") && line.contains(trust), "{line}");
    }
    assert_eq!(text.lines().count(), 8, "wsl has no eviction: {text}");
    let refused = pagewise(&["verdict", "--profile", "wsl", &passes(&files, 4, 1)]);
    assert_eq!(status(&refused), 2);
    assert!(stderr(&refused).contains("managed memory cannot exceed"), "{}", stderr(&refused));
}

#[test]
fn a_program_whose_memory_is_refused_gets_no_verdict() {
    let files = Files::new();
    let gpu = small_gpu(&files, "calibrated");
    let alloc = format!(r#"{{"op":"alloc_device","buf":0,"device":0,"bytes":{}}}"#, 256 * MIB);
    let program = files.add("too-large.jsonl", trace(&[&alloc]));
    let found = verdict_of(&program, &gpu);
    assert_eq!((&found["verdict"], &found["refused"]), (&Value::Null, &1.into()), "{found}");
    let text = stdout(&pagewise(&["verdict", "--profile", &gpu, &program]));
    assert!(text.contains("refused 1 times"), "{text}");
}
