//! The file that a recording goes to while it is made.

use std::fmt;
use std::io;
use std::path::Path;

use crate::format::{Case, Header, OpLine, RecordedOp};
use crate::indeterminate::Indeterminate;
use crate::output::Output;
use crate::writer::TraceWriter;

/// The lines of a case, in the order of its operations. Sums of results of kernels are unstable.
pub(super) fn lines_of(records: impl Iterator<Item = RecordedOp>) -> Vec<OpLine> {
    let mut results = Indeterminate::default();
    let line = |(line, mut recorded)| {
        results.note_kernel_results(&mut recorded);
        OpLine { line, recorded }
    };
    // The header and the name of the case come first.
    (3..).zip(records).map(line).collect()
}

/// A trace in progress. Its file appears when it is complete.
#[derive(Debug)]
pub(super) struct CaseFile {
    writer: TraceWriter<Output>,
    written: Written,
    /// The reason why a case could not be written. No further one is.
    failure: Option<io::Error>,
}

impl CaseFile {
    pub(super) fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let writer = TraceWriter::by_extension(Output::create(path)?, path, header)?;
        Ok(Self { writer, written: Written::default(), failure: None })
    }

    /// Writes a case; whether that was possible. A failure is kept for [`keep`](Self::keep).
    pub(super) fn write(&mut self, ops: Vec<OpLine>) -> bool {
        if self.failure.is_none() {
            self.written.cases = self.written.cases.saturating_add(1);
            self.written.ops = self.written.ops.saturating_add(ops.len() as u64);
            let name = format!("part {}", self.written.cases);
            let case = Case { name, line: 2, ops, text_bytes: 0 };
            self.failure = self.writer.whole_case(&case).err();
        }
        self.failure.is_none()
    }

    /// Ends the file: now it can be seen.
    pub(super) fn keep(self, left_out: u64) -> io::Result<Written> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.writer.finish()?.keep()?;
        Ok(Written { left_out, ..self.written })
    }
}

/// The extent of a finished recording. `Display` is one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Written {
    /// Cases of the trace.
    pub cases: u64,
    /// Operations of all cases.
    pub ops: u64,
    /// Calls with an effect that are not in the trace, so that a replay will differ: see
    /// [`Recorder`](super::Recorder).
    pub left_out: u64,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cases, ops, left_out } = self;
        let s = |number: u64| if number == 1 { "" } else { "s" };
        write!(f, "{ops} operation{} in {cases} case{}", s(*ops), s(*cases))?;
        match left_out {
            0 => Ok(()),
            _ => write!(f, ", {left_out} call{} left out", s(*left_out)),
        }
    }
}
