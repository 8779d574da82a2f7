//! The calls of the driver fit the driver's table of entry points, and the tables fit each other.

use std::collections::BTreeMap;
use std::fs;

/// The driver's table: name and version to parameters.
fn driver() -> BTreeMap<(String, String), Vec<String>> {
    forms("legacy")
}

/// The driver's forms with one of the default streams.
fn forms(stream: &str) -> BTreeMap<(String, String), Vec<String>> {
    let table = fs::read_to_string("../sim-driver/data/symbols.tsv").expect("the driver's table");
    let rows = table.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(|row| row[3] == stream)
        .map(|row| ((row[1].to_owned(), row[2].to_owned()), parameters(row[4])))
        .collect()
}

fn parameters(text: &str) -> Vec<String> {
    text.split(", ").filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

/// The size of a C type in bytes, as far as arguments are concerned.
fn size(c: &str) -> usize {
    match c {
        _ if c.contains('*') => 8,
        "size_t" | "CUdeviceptr" | "unsigned long long" | "cuuint64_t" => 8,
        "CUmemLocation" | "cudaMemLocation" => 8,
        "cudaIpcMemHandle_t" | "cudaIpcEventHandle_t" | "CUipcMemHandle" | "CUipcEventHandle" => 64,
        "CUdevice" | "CUlimit" | "CUsharedconfig" | "CUfunc_cache" => 4,
        "cudaLogsCallback_t" | "cudaLogsCallbackHandle" | "cudaAsyncCallback" => 8,
        _ if c.ends_with("_t") || c.contains("allback") || c == "CUhostFn" => 8,
        "CUstream" | "CUevent" | "CUmemoryPool" | "CUgraph" | "CUgraphNode" | "CUgraphExec" => 8,
        "CUlibrary" | "CUkernel" | "CUuserObject" => 8,
        _ => 4,
    }
}

/// The arguments of a macro's call: the text between the parentheses, split at its commas.
fn arguments(rest: &str) -> Vec<String> {
    let (mut depth, mut all, mut one) = (1, Vec::new(), String::new());
    for letter in rest.chars() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        match letter {
            _ if depth == 0 => break,
            ',' if depth == 1 => all.push(std::mem::take(&mut one)),
            _ => one.push(letter),
        }
    }
    all.push(one);
    all.retain(|one| !one.trim().is_empty());
    all
}

#[test]
fn every_call_of_the_driver_names_one_of_its_entry_points_with_all_arguments() {
    let driver = driver();
    let mut calls = 0;
    for entry in fs::read_dir("src").expect("the sources") {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("text");
        for rest in text.split("cu!(").skip(1).filter(|rest| rest.trim_start().starts_with('"')) {
            let found = arguments(rest);
            let (name, since) = found[0].trim().split_once(" @ ").expect("a name and a version");
            let key = (name.trim_matches('"').to_owned(), since.trim().to_owned());
            let parameters = driver.get(&key).unwrap_or_else(|| panic!("no entry point {key:?}"));
            assert_eq!(found.len() - 1, parameters.len(), "{key:?} {found:?}");
            calls += 1;
        }
    }
    assert!(calls > 80, "the sources have {calls} calls");
}

#[test]
fn forms_with_the_per_thread_stream_have_the_version_that_is_asked_for() {
    let (legacy, per_thread) = (driver(), forms("per-thread"));
    let versions = |forms: &BTreeMap<(String, String), Vec<String>>, name: &str| {
        let of_name = forms.keys().filter(|key| key.0 == name);
        of_name.map(|key| key.1.parse::<u32>().expect("a number")).collect::<Vec<_>>()
    };
    let mut asked = Vec::new();
    for entry in fs::read_dir("src").expect("the sources") {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("text");
        for rest in text.split("cu!(").skip(1).filter(|rest| rest.trim_start().starts_with('"')) {
            let call = arguments(rest)[0].trim().to_owned();
            let (name, since) = call.split_once(" @ ").expect("a name and a version");
            asked.push((name.trim_matches('"').to_owned(), since.to_owned()));
        }
    }
    let forwards = fs::read_to_string("data/forwards.tsv").expect("the table of forwards");
    for line in forwards.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        asked.push((row[1].to_owned(), row[2].to_owned()));
    }
    for (name, since) in asked {
        let since: u32 = since.parse().expect("a number");
        let wanted = since.max(7000);
        let of_thread = versions(&per_thread, &name);
        assert!(
            of_thread.is_empty() || of_thread.contains(&wanted),
            "{name} {since} {of_thread:?}"
        );
        let newer = |version: &u32| *version > since && *version <= wanted;
        assert!(
            !of_thread.is_empty() || !versions(&legacy, &name).iter().any(newer),
            "{name}: {wanted} means another form than {since}"
        );
    }
}

#[test]
fn forwarded_functions_pass_arguments_of_the_sizes_that_the_driver_takes() {
    let driver = driver();
    let symbols = fs::read_to_string("data/symbols.tsv").expect("the runtime's table");
    let rows = symbols.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let forms: BTreeMap<&str, Vec<String>> = rows.map(|row| (row[2], parameters(row[5]))).collect();
    let forwards = fs::read_to_string("data/forwards.tsv").expect("the table of forwards");
    for line in forwards.lines().skip(1) {
        let row: Vec<&str> = line.split('\t').collect();
        let key = (row[1].to_owned(), row[2].to_owned());
        let sizes = |types: &[String]| types.iter().map(|c| size(c)).collect::<Vec<_>>();
        assert_eq!(sizes(&forms[row[0]]), sizes(&driver[&key]), "{line}");
    }
}

#[test]
fn both_releases_export_what_nvidia_exports() {
    let symbols = fs::read_to_string("data/symbols.tsv").expect("the runtime's table");
    let count = |major: &str| symbols.lines().filter(|line| line.starts_with(major)).count();
    // `nm -D` of libcudart.so.12 (12.9) and libcudart.so.13 (13.5), without the version's symbol.
    assert_eq!([count("12\t"), count("13\t")], [435, 458]);
}
