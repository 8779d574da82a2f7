//! A divergence in words: the call, the values that differ, and a small map of the pages.

use std::fmt::Write as _;

use pagewise_hal::Error;
use pagewise_trace::report::{Divergence, Level};
use serde_json::{Map, Value};

use crate::page_map;

/// Characters of a single value that are shown.
const MOST_SHOWN: usize = 100;

/// The call, then what was expected and what came, a line or a map for each field that differs.
pub(crate) fn words(divergence: &Divergence) -> String {
    let Divergence { case, level, op, expected, got, .. } = divergence;
    let mut text = format!("case {case} diverges at level {}\n", level.name());
    if let Some(call) = op.as_object() {
        _ = writeln!(text, "  {}", call_in_words(call));
    }
    match level {
        Level::Pages => pages(&mut text, expected, got),
        Level::Events => events(&mut text, expected, got),
        _ => fields(&mut text, "", expected, got),
    }
    text
}

// ---- the call ---------------------------------------------------------------------------------

/// An operation of a trace: its name, the memory, and the other arguments.
fn call_in_words(op: &Map<String, Value>) -> String {
    let number = |field: &str| op.get(field).and_then(Value::as_u64);
    let name = op.get("op").and_then(Value::as_str).unwrap_or("operation");
    let mut arguments = Vec::new();
    let mut memory = vec!["op", "abi"];
    if let (Some(buf), Some(bytes)) = (op.get("buf"), number("bytes")) {
        memory.extend(["buf", "bytes", "offset"]);
        arguments.push(match number("offset") {
            Some(offset) => stretch(buf, offset, bytes),
            None => format!("buffer {buf}, {bytes} bytes"),
        });
    }
    let others = op.iter().filter(|(field, _)| !memory.contains(&field.as_str()));
    arguments.extend(others.map(|(field, value)| {
        let field = if field == "buf" { "buffer" } else { field };
        format!("{} {}", field.replace('_', " "), value_in_words(value))
    }));
    format!("{name}: {}", arguments.join("; "))
}

fn stretch(buf: &Value, offset: u64, bytes: u64) -> String {
    let end = offset.saturating_add(bytes);
    format!("bytes {offset}..{end} of buffer {buf} ({})", page_map::pages(offset, bytes))
}

/// A value without the marks of JSON where they say nothing.
fn value_in_words(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        // A location.
        Value::Object(fields) => match (fields.get("kind"), fields.get("id")) {
            (Some(kind), None) => value_in_words(kind),
            (Some(kind), Some(id)) => format!("{} {id}", value_in_words(kind)),
            _ => {
                let field = |(name, value)| format!("{name} {}", value_in_words(value));
                fields.iter().map(field).collect::<Vec<_>>().join(" ")
            }
        },
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(value_in_words).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Null => "nothing".to_owned(),
        value => value.to_string(),
    };
    let mut shown: String = text.chars().take(MOST_SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

// ---- contract, totals and times ---------------------------------------------------------------

/// A line for each field that differs.
fn fields(text: &mut String, prefix: &str, expected: &Value, got: &Value) {
    let (Some(expected), Some(got)) = (expected.as_object(), got.as_object()) else {
        _ = writeln!(text, "  expected {expected}, got {got}");
        return;
    };
    for (field, expected) in expected {
        let got = got.get(field).unwrap_or(&Value::Null);
        match field.as_str() {
            "attributes" => fields(text, "attribute ", expected, got),
            "op" => operations(text, expected, got),
            _ => {
                let value = match (field.as_str(), prefix) {
                    ("code", "") => code_in_words,
                    (_, "") => value_in_words,
                    _ => attribute_in_words,
                };
                let name = field_in_words(field);
                let (expected, got) = (value(expected), value(got));
                _ = writeln!(text, "  {prefix}{name}: expected {expected}, got {got}");
            }
        }
    }
}

fn field_in_words(field: &str) -> &str {
    match field {
        "code" => "result",
        "offset_in_2mib" => "address modulo 2 MiB",
        "sum" => "sum of the bytes that were read",
        "access_flags" => "access flags",
        "same_as" => "pools with the same handle",
        "h2d_bytes" => "bytes from host to devices, in the whole case",
        "d2h_bytes" => "bytes from devices to host, in the whole case",
        "gpu_fault_records" => "records of GPU faults, in the whole case",
        "ns" => "nanoseconds",
        other => other,
    }
}

/// Operations of two recordings that are not of the same program.
fn operations(text: &mut String, expected: &Value, got: &Value) {
    for (side, op) in [("expected", expected), ("got", got)] {
        let call = op.as_object().map_or("no operation".to_owned(), call_in_words);
        _ = writeln!(text, "  {side:<8} {call}");
    }
}

/// A result of CUDA with its name.
fn code_in_words(code: &Value) -> String {
    let number = code.as_i64().and_then(|code| i32::try_from(code).ok());
    let name = match number {
        Some(0) => Some("CUDA_SUCCESS"),
        Some(number) => Error::from_code("", number).code_name(),
        None => None,
    };
    name.map_or_else(|| value_in_words(code), |name| format!("{code} ({name})"))
}

/// An attribute read: the value, or the result of one that failed.
fn attribute_in_words(read: &Value) -> String {
    match read.as_array().map(Vec::as_slice) {
        Some([code, value]) if code == 0 => value_in_words(value),
        Some([code, ..]) => format!("result {}", code_in_words(code)),
        _ => value_in_words(read),
    }
}

// ---- pages ------------------------------------------------------------------------------------

/// A map for each buffer of which the host's page table differs.
fn pages(text: &mut String, expected: &Value, got: &Value) {
    let Some(maps) = expected["host_mapped"].as_object() else {
        return fields(text, "", expected, got);
    };
    for (buf, expected) in maps {
        let map = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let got = &got["host_mapped"][buf];
        _ = writeln!(text, "  the host's page table of buffer {buf} (H mapped, . not):");
        match (map(expected), map(got)) {
            (Some(expected), Some(got)) => text.push_str(&page_map::compared(&expected, &got)),
            _ => {
                let (expected, got) = (value_in_words(expected), value_in_words(got));
                _ = writeln!(text, "    expected {expected}, got {got}");
            }
        }
    }
}

// ---- records ----------------------------------------------------------------------------------

/// The records that only one side has, and a map of their pages.
fn events(text: &mut String, expected: &Value, got: &Value) {
    if expected.get("copied_bytes").is_some() {
        for (side, value) in [("expected", expected), ("got", got)] {
            let copies = value["copied_bytes"].as_array().map_or(&[][..], Vec::as_slice);
            let copies: Vec<_> = copies.iter().map(copied_in_words).collect();
            let copies = if copies.is_empty() { "no copy".to_owned() } else { copies.join("; ") };
            _ = writeln!(text, "  {side:<8} {copies}");
        }
        return;
    }
    let records = |side: &Value| -> Vec<Record> {
        let records = side["events"].as_array();
        records.into_iter().flatten().filter_map(Record::of).collect()
    };
    let (only_expected, only_got) = (records(expected), records(got));
    for (what, records, side) in [
        ("expected, and did not come", &only_expected, expected),
        ("not expected, and came", &only_got, got),
    ] {
        if records.is_empty() {
            continue;
        }
        _ = writeln!(text, "  records that were {what}:");
        for record in records {
            _ = writeln!(text, "    {}", record.in_words());
        }
        if let Some(more) = side["more_events"].as_u64() {
            _ = writeln!(text, "    and {more} more");
        }
    }
    let mut buffers: Vec<i64> =
        only_expected.iter().chain(&only_got).map(|record| record.buf).collect();
    buffers.sort_unstable();
    buffers.dedup();
    for buf in buffers.into_iter().filter(|&buf| buf >= 0) {
        let of = |records: &[Record]| -> Vec<(u64, u64)> {
            let records = records.iter().filter(|record| record.buf == buf);
            records.map(|record| (record.offset, record.bytes())).collect()
        };
        _ = writeln!(text, "  their pages in buffer {buf} (x has such a record):");
        text.push_str(&page_map::marked(&of(&only_expected), &of(&only_got)));
    }
}

/// Bytes of a kind of copy, from one processor to another.
fn copied_in_words(copied: &Value) -> String {
    let field = |at: usize| copied.get(at).and_then(Value::as_i64).unwrap_or(-1);
    let kind = copied.get(0).map(value_in_words).unwrap_or_default();
    format!("{kind} of {} bytes, {} to {}", field(1), processor(field(2)), processor(field(3)))
}

/// A unified-memory record, as a trace has it.
struct Record {
    kind: String,
    /// Bytes, or merged faults.
    value: u64,
    buf: i64,
    offset: u64,
    src: i64,
    dst: i64,
    detail: Value,
}

impl Record {
    fn of(value: &Value) -> Option<Self> {
        Some(Self {
            kind: value.get(0)?.as_str()?.to_owned(),
            value: value.get(1)?.as_u64()?,
            buf: value.get(2)?.as_i64()?,
            offset: value.get(3)?.as_u64()?,
            src: value.get(4)?.as_i64()?,
            dst: value.get(5)?.as_i64()?,
            detail: value.get(6)?.clone(),
        })
    }

    fn is_copy(&self) -> bool {
        self.kind.starts_with("copy_")
    }

    /// The bytes that it is about: a fault is about one page.
    fn bytes(&self) -> u64 {
        if self.is_copy() { self.value } else { 1 }
    }

    fn in_words(&self) -> String {
        let Self { kind, value, buf, offset, src, dst, detail } = self;
        let memory = match (*buf >= 0, page_map::pages(*offset, self.bytes())) {
            (true, pages) => format!("{pages} of buffer {buf}"),
            (false, _) => format!("no buffer, address modulo 2 MiB {offset}"),
        };
        let amount = if self.is_copy() { "bytes" } else { "value" };
        let route = match kind.as_str() {
            // Its source is a mask.
            "thrashing" => format!("mask of GPUs {src}"),
            _ if src == dst => processor(*src),
            _ => format!("{} to {}", processor(*src), processor(*dst)),
        };
        format!("{kind}: {memory}, {amount} {value}, {route}, {}", value_in_words(detail))
    }
}

fn processor(number: i64) -> String {
    if number < 0 { "host".to_owned() } else { format!("GPU {number}") }
}
