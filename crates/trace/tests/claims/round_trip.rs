//! The recordings that ship with the project survive reading and writing.

use std::io::Read;
use std::path::PathBuf;

use pagewise_trace::format::Case;
use pagewise_trace::reader::TraceReader;
use pagewise_trace::writer::TraceWriter;
use serde_json::Value;

fn recordings() -> Vec<PathBuf> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/traces/h200-580");
    let entries = std::fs::read_dir(directory).expect("the checkout has its recordings");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "zst"));
    paths.sort();
    assert!(paths.len() >= 15, "only {} recordings found", paths.len());
    paths
}

fn cases(reader: &mut TraceReader<'_>) -> Vec<Case> {
    std::iter::from_fn(|| reader.next_case().unwrap_or_else(|error| panic!("{error}"))).collect()
}

#[test]
fn what_is_written_is_what_was_read_line_by_line() {
    for path in recordings() {
        let name = path.display().to_string();
        let mut original = String::new();
        let file = std::fs::File::open(&path).expect("readable");
        let mut decoder = zstd::Decoder::new(file).expect("zstd");
        decoder.read_to_string(&mut original).expect("UTF-8");

        let mut reader = TraceReader::new(name.as_str(), original.as_bytes()).expect("a header");
        let mut writer = TraceWriter::plain(Vec::new(), reader.header()).expect("in memory");
        for case in cases(&mut reader) {
            writer.whole_case(&case).expect("in memory");
        }
        let written = String::from_utf8(writer.finish().expect("in memory")).expect("UTF-8");

        assert_eq!(original.lines().count(), written.lines().count(), "{name}");
        for (number, (original, written)) in (1..).zip(original.lines().zip(written.lines())) {
            let value = |text| serde_json::from_str::<Value>(text).expect("JSON");
            assert_eq!(value(original), value(written), "{name}:{number}");
        }
    }
}

#[test]
fn reading_what_was_compressed_gives_the_same_cases() {
    for path in recordings() {
        let mut reader = TraceReader::open(&path).expect("a header");
        let header = reader.header().clone();
        let before = cases(&mut reader);
        let mut writer = TraceWriter::zstd(Vec::new(), 1, &header).expect("in memory");
        before.iter().for_each(|case| writer.whole_case(case).expect("in memory"));
        let bytes = writer.finish().expect("in memory");
        let mut reader = TraceReader::new("again", bytes.as_slice()).expect("a header");
        assert_eq!(reader.header(), &header);
        let without_size = |cases: Vec<Case>| -> Vec<_> {
            cases.into_iter().map(|case| (case.name, case.line, case.ops)).collect()
        };
        assert_eq!(without_size(cases(&mut reader)), without_size(before), "{}", path.display());
    }
}
