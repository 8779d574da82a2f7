//! The journal of a recording: each operation is in a file as soon as it is noted.
//!
//! A recording is complete only at its end, and a process that ends in a crash has none. Its journal
//! is the rest: [`recover`] makes the recording of it that would have been, had the program ended
//! there. A journal is text in the format of traces, with two more fields in each line: the addresses
//! of the records, and the live buffers if they changed. Buffers get their final names only when a
//! case ends.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;

use pagewise_hal::{DevicePtr, MemoryEvent, Span};
use serde::{Deserialize, Serialize};

use super::file::{CaseFile, Written, lines_of};
use crate::format::{Header, RawLine, RecordedOp};
use crate::reader::MAX_LINE_BYTES;
use crate::replay::names::Owners;

/// The fields of a line that a trace does not have.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Beside {
    /// Of the line's records, in their order.
    #[serde(default)]
    addresses: Vec<u64>,
    /// Id, address and bytes of each live buffer after the operation, if they changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    live: Option<Vec<(u32, u64, u64)>>,
    /// Calls that were left out so far.
    #[serde(default)]
    left_out: u64,
}

/// A journal in progress.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    /// The live buffers of the last line.
    live: Vec<(u32, u64, u64)>,
    cases: u64,
    in_case: bool,
    /// Whether a line could not be written. No further one is.
    failed: bool,
}

impl Journal {
    pub(super) fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let mut file = File::create(path)?;
        write_line(&mut file, serde_json::to_string(header)?)?;
        Ok(Self { file, live: Vec::new(), cases: 0, in_case: false, failed: false })
    }

    /// Adds an operation. A journal that cannot be written ends; the recording goes on.
    pub(super) fn add(
        &mut self,
        record: &RecordedOp,
        events: &[MemoryEvent],
        buffers: impl Iterator<Item = (u32, Span)>,
        left_out: u64,
    ) {
        let live: Vec<_> = buffers.map(|(id, span)| (id, span.ptr.0, span.bytes)).collect();
        let changed = live != self.live;
        let beside = Beside {
            addresses: events.iter().map(MemoryEvent::address).collect(),
            live: changed.then(|| live.clone()),
            left_out,
        };
        if !self.failed && self.write(record, events, &beside).is_err() {
            self.failed = true;
        }
        self.live = live;
    }

    /// The case has ended: the next operation begins another one.
    pub(super) fn end_case(&mut self) {
        self.in_case = false;
        self.live.clear();
    }

    fn write(
        &mut self,
        record: &RecordedOp,
        events: &[MemoryEvent],
        beside: &Beside,
    ) -> io::Result<()> {
        if !self.in_case {
            self.cases = self.cases.saturating_add(1);
            let case = RawLine { case: Some(format!("part {}", self.cases)), ..RawLine::default() };
            write_line(&mut self.file, serde_json::to_string(&case)?)?;
            self.in_case = true;
        }
        let unnamed = Owners::new([]);
        let mut record = record.clone();
        record.observed.events = events.iter().map(|event| unnamed.name(event)).collect();
        let mut line = serde_json::to_string(&RawLine::from(&record))?;
        let beside = serde_json::to_string(beside)?;
        // Two objects become one: `{…}` and `{…}` are `{…,…}`.
        line.pop();
        line.push(',');
        line.push_str(beside.trim_start_matches('{'));
        write_line(&mut self.file, line)
    }
}

/// Writes a line by one call, so that a process that ends leaves whole lines.
fn write_line(file: &mut File, mut line: String) -> io::Result<()> {
    line.push('\n');
    file.write_all(line.as_bytes())
}

/// Makes a recording of the journal that a crashed process left. A line that is cut off at the end of
/// the journal is ignored.
///
/// # Errors
/// `InvalidData` if the journal is none; as files for the rest. There is no new file then.
pub fn recover(journal: &Path, path: &Path) -> io::Result<Written> {
    let mut lines = BufReader::new(File::open(journal)?).lines();
    let header = lines.next().ok_or_else(|| invalid("it is empty"))??;
    let header = serde_json::from_str(&header).map_err(invalid)?;
    let header = Header::from_json(&header).map_err(invalid)?;
    let mut recovery = Recovery {
        file: CaseFile::create(path, &header)?,
        ops: Vec::new(),
        live: Vec::new(),
        left_out: 0,
    };
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        let taken = recovery.take(&line?);
        if lines.peek().is_some() {
            taken?;
        }
    }
    recovery.end_case();
    recovery.file.keep(recovery.left_out)
}

/// A recording that is made of a journal.
struct Recovery {
    file: CaseFile,
    /// The operations of the case, and the addresses of their records.
    ops: Vec<(RecordedOp, Vec<u64>)>,
    /// The live buffers after the last of them.
    live: Vec<(u32, u64, u64)>,
    left_out: u64,
}

impl Recovery {
    fn take(&mut self, line: &str) -> io::Result<()> {
        if line.len() > MAX_LINE_BYTES {
            return Err(invalid("a line is too long"));
        }
        let raw: RawLine = serde_json::from_str(line).map_err(invalid)?;
        if raw.case.is_some() {
            self.end_case();
            return Ok(());
        }
        let beside: Beside = serde_json::from_str(line).map_err(invalid)?;
        let record = RecordedOp::try_from(raw).map_err(invalid)?;
        if record.observed.events.len() != beside.addresses.len() {
            return Err(invalid("a line has not one address for each record"));
        }
        if let Some(live) = beside.live {
            self.live = live;
        }
        self.left_out = beside.left_out;
        self.ops.push((record, beside.addresses));
        Ok(())
    }

    /// Names the records of the case after the buffers that live now, and writes it.
    fn end_case(&mut self) {
        let live = std::mem::take(&mut self.live);
        let span =
            |&(id, address, bytes): &(u32, u64, u64)| (id, Span::new(DevicePtr(address), bytes));
        let owners = Owners::new(live.iter().map(span));
        let named = |(mut recorded, addresses): (RecordedOp, Vec<u64>)| {
            for (event, address) in recorded.observed.events.iter_mut().zip(addresses) {
                (event.buf, event.offset) = owners.owner(address);
            }
            recorded
        };
        let ops = lines_of(std::mem::take(&mut self.ops).into_iter().map(named));
        if !ops.is_empty() {
            // A failure is kept, and told at the end.
            _ = self.file.write(ops);
        }
    }
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no journal: {}", why.to_string()))
}
