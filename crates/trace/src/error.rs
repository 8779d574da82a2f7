//! The reasons why a trace cannot be read: file, line, reason.

use std::fmt;
use std::io;
use std::time::Duration;

/// A trace that cannot be read, and where. `Display` is one line, `file:line: reason`.
#[derive(Debug)]
pub struct TraceError {
    file: String,
    line: Option<u64>,
    reason: Reason,
}

impl TraceError {
    /// An error at a line (from 1 on), or about the file as a whole.
    #[must_use]
    pub fn new(file: impl Into<String>, line: Option<u64>, reason: Reason) -> Self {
        Self { file: file.into(), line, reason }
    }

    /// The file, as it was named to the reader.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, from 1 on, or `None` if the file as a whole is at fault.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        self.line
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// A fault of a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The file cannot be opened or read.
    #[error("cannot read: {0}")]
    Io(io::Error),
    /// No bytes, or nothing but blank lines.
    #[error("the file is empty; a trace starts with a header line")]
    Empty,
    /// The last line stops inside a JSON value.
    #[error("truncated: the file ends inside a JSON value")]
    Truncated,
    /// The compressed stream stops early.
    #[error("truncated: the {0} stream ends early")]
    TruncatedStream(&'static str),
    /// The compressed stream is damaged.
    #[error("damaged {format} stream: {source}")]
    DamagedStream {
        /// `gzip` or `zstd`.
        format: &'static str,
        /// The decoder's message.
        source: io::Error,
    },
    /// A line holds bytes that are not UTF-8.
    #[error("not UTF-8: invalid byte at column {column}")]
    NotUtf8 {
        /// The byte, from 1 on.
        column: usize,
    },
    /// A line is not JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// A line is longer than the reader accepts.
    #[error("line longer than {limit} bytes")]
    LineTooLong {
        /// The limit.
        limit: usize,
    },
    /// A case is larger than the reader accepts.
    #[error("case `{case}` exceeds {limit} {unit}")]
    CaseTooLong {
        /// The case.
        case: String,
        /// The limit.
        limit: u64,
        /// The thing counted: `operations` or `bytes`.
        unit: &'static str,
    },
    /// The file asks for more work than is allowed: see [`limits`](crate::limits).
    #[error(
        "too much work: up to this {at} the file asks for {needed} units and {limit} are allowed \
         (a unit is a page touched or moved, an operation, or a record); if the file is to be \
         trusted, raise the limit with --max-work"
    )]
    TooMuchWork {
        /// The operation; `case` or `line`.
        at: &'static str,
        /// Units of work up to here.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// A case may need more memory than is allowed: see [`limits`](crate::limits).
    #[error(
        "too much memory: with this {at} the case may write {needed} bytes and {limit} are \
         allowed; if the file is to be trusted, raise the limit with --max-memory"
    )]
    TooMuchMemory {
        /// The operation.
        at: &'static str,
        /// Bytes that the case may need up to here.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// The file takes longer than it may: see [`limits`](crate::limits).
    #[error(
        "too much time: up to this {at} the file takes {:.1} s and {} s are allowed; if the file \
         is to be trusted, raise the limit with --max-seconds (0 is none)",
        needed.as_secs_f64(), limit.as_secs_f64()
    )]
    TooMuchTime {
        /// The operation; `case` or `line`.
        at: &'static str,
        /// Time that it took, or that it asks to sleep.
        needed: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The first line is JSON, but no header.
    #[error("missing header: the first line has no field `format`")]
    MissingHeader,
    /// The header names another format.
    #[error("wrong format `{0}`: expected `{name}`", name = crate::format::FORMAT)]
    WrongFormat(String),
    /// The header names a version that this reader does not know.
    #[error("unsupported version {0}: this reader knows version {known}", known = crate::format::VERSION)]
    UnsupportedVersion(String),
    /// Another problem of the header.
    #[error("header: {0}")]
    BadHeader(String),
    /// An operation stands before the first `{"case": …}`.
    #[error("operation `{0}` before the first case")]
    OpBeforeCase(String),
    /// A line has neither `op` nor `case`.
    #[error("neither an operation nor a case: no field `op` or `case`")]
    NeitherOpNorCase,
    /// An operation that this reader does not know.
    #[error("unknown op `{0}`")]
    UnknownOp(String),
    /// A required field is missing.
    #[error("op `{op}`: missing field `{field}`")]
    MissingField {
        /// The operation.
        op: String,
        /// The field.
        field: &'static str,
    },
    /// A field has a value that the operation does not take.
    #[error("{0}")]
    BadField(String),
    /// An id is outside [`MAX_ID`](crate::format::MAX_ID).
    #[error("id {id} out of range in field `{field}`: ids are 0 to {max}", max = crate::format::MAX_ID)]
    IdOutOfRange {
        /// The field.
        field: &'static str,
        /// The id.
        id: i64,
    },
    /// A buffer id is allocated again while its buffer lives.
    #[error("buffer id {id} used twice: it is live since line {since}")]
    IdUsedTwice {
        /// The id.
        id: u32,
        /// The line of the allocation that still lives.
        since: u64,
    },
}
