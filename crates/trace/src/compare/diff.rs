//! Differences as JSON: only the fields that differ.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::agree::reads_agree;
use crate::format::{Detail, Label, MemoryRecord, Observed};

/// Records that are shown on each side.
const MOST_EVENTS: usize = 8;

type RecordKey<'a> = (&'a Label, u64, i64, u64, i64, i64, &'a Detail);

/// Expected and got.
pub(super) type BothSides = (Value, Value);

#[derive(Default)]
struct Both(Map<String, Value>, Map<String, Value>);

impl Both {
    fn add(&mut self, field: &str, expected: Value, got: Value) {
        self.0.insert(field.to_owned(), expected);
        self.1.insert(field.to_owned(), got);
    }

    fn done(self) -> BothSides {
        (Value::Object(self.0), Value::Object(self.1))
    }
}

/// `fields`: those that differ.
pub(super) fn contract(fields: &[&str], recorded: &Observed, got: &Observed) -> BothSides {
    let mut both = Both::default();
    for &field in fields {
        let (expected, got) = match field {
            "code" => (json!(recorded.code), json!(got.code)),
            "offset_in_2mib" => (json!(recorded.offset_in_2mib), json!(got.offset_in_2mib)),
            "sum" => (json!(recorded.sum), json!(got.sum)),
            "access_flags" => (json!(recorded.access_flags), json!(got.access_flags)),
            "same_as" => (json!(recorded.same_as), json!(got.same_as)),
            _ => attributes(recorded, got),
        };
        both.add(field, expected, got);
    }
    both.done()
}

fn attributes(recorded: &Observed, got: &Observed) -> BothSides {
    let mut both = Both::default();
    for (name, read) in recorded.attributes.iter().flat_map(|attributes| &attributes.0) {
        let other = got.attributes.as_ref().and_then(|got| got.get(name.as_str()));
        if !other.is_some_and(|other| reads_agree(read, other)) {
            both.add(name.as_str(), json!(read), json!(other));
        }
    }
    both.done()
}

pub(super) fn pages(recorded: &Observed, got: &Observed) -> BothSides {
    let mut maps = Both::default();
    for (buf, map) in &recorded.host_mapped {
        let other = got.host_mapped.get(buf);
        if other != Some(map) {
            maps.add(&buf.to_string(), json!(map), json!(other));
        }
    }
    let (expected, got) = maps.done();
    (json!({ "host_mapped": expected }), json!({ "host_mapped": got }))
}

pub(super) fn sorted_keys(events: &[MemoryRecord]) -> Vec<RecordKey<'_>> {
    let mut keys: Vec<_> = events.iter().map(MemoryRecord::key).collect();
    keys.sort_unstable();
    keys
}

/// The records that only one side has, cut short, with their full number.
pub(super) fn events(recorded: &Observed, got: &Observed) -> BothSides {
    let (expected, got) = (sorted_keys(&recorded.events), sorted_keys(&got.events));
    let (mut only_expected, mut only_got) = (Vec::new(), Vec::new());
    let (mut a, mut b) = (expected.iter().peekable(), got.iter().peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.cmp(b),
        };
        match order {
            Ordering::Less => only_expected.extend(a.next()),
            Ordering::Greater => only_got.extend(b.next()),
            Ordering::Equal => _ = (a.next(), b.next()),
        }
    }
    (shown(&only_expected), shown(&only_got))
}

/// Bytes by kind of copy, source and destination.
pub(super) fn copied(bytes: &BTreeMap<(&str, i64, i64), u64>) -> Value {
    let one = |(&(kind, src, dst), &bytes)| json!([kind, bytes, src, dst]);
    json!({ "copied_bytes": bytes.iter().map(one).collect::<Vec<_>>() })
}

fn shown(keys: &[&RecordKey<'_>]) -> Value {
    let first: Vec<_> = keys.iter().take(MOST_EVENTS).collect();
    match keys.len().saturating_sub(MOST_EVENTS) {
        0 => json!({ "events": first }),
        more => json!({ "events": first, "more_events": more }),
    }
}
