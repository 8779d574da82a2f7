//! Reading traces: plain, gzip or zstd, one case in memory at a time.
//!
//! The compression is told by the first bytes, not by the name. Whatever the input, no more than
//! one line ([`MAX_LINE_BYTES`]) and one case ([`MAX_CASE_BYTES`], [`MAX_CASE_OPS`]) are held, and
//! nothing panics. A line of white space counts as nothing but its bytes. What all cases together
//! ask for is limited too, see [`limits`](crate::limits): the reader refuses an operation before
//! it can be carried out, and stops at the line that it comes to when the file's time is over.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use serde::de::IgnoredAny;

use crate::error::{Reason, TraceError};
use crate::format::{Case, Header, Op, OpLine, RawLine, RecordedOp};
use crate::limits::{Meter, WorkLimits};
use crate::time_limit::{TimeLimit, WallClock};

/// The longest line that is accepted.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// The longest header that is accepted.
pub const MAX_HEADER_BYTES: usize = 64 << 10;

/// The most text that one case may have.
pub const MAX_CASE_BYTES: u64 = 64 << 20;

/// The most operations that one case may have.
pub const MAX_CASE_OPS: usize = 200_000;

/// Reads one trace, case by case.
///
/// After the first error it has nothing more to give.
pub struct TraceReader<'a> {
    lines: Lines<'a>,
    header: Header,
    /// Name, line and bytes of the `{"case": …}` that ended the previous case.
    next: Option<(String, u64, u64)>,
    done: bool,
    /// Whether results may be missing.
    program: bool,
    meter: Meter,
    time: TimeLimit,
}

impl fmt::Debug for TraceReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader")
            .field("file", &self.lines.file)
            .field("line", &self.lines.number)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl TraceReader<'static> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// If it cannot be opened, or does not start with a header that this version can read.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::new(path.display().to_string(), opened(path)?)
    }

    /// Opens a program: see [`program`](TraceReader::program).
    ///
    /// # Errors
    /// As [`open`](Self::open), but for a missing header.
    pub fn open_program(path: &Path, default: Header) -> Result<Self, TraceError> {
        Self::program(path.display().to_string(), opened(path)?, default)
    }
}

impl<'a> TraceReader<'a> {
    /// Reads from `input`, which messages call `file`.
    ///
    /// # Errors
    /// If the input does not start with a header that this version can read.
    pub fn new(file: impl Into<String>, input: impl Read + Send + 'a) -> Result<Self, TraceError> {
        Self::start(file.into(), input, None)
    }

    /// Reads a program: a trace with operations to be carried out anew, so that results are
    /// of no interest and may be missing, as may the header, for which `default` stands then, and
    /// the first `{"case": …}`.
    ///
    /// # Errors
    /// If the input starts with a header that this version cannot read.
    pub fn program(
        file: impl Into<String>,
        input: impl Read + Send + 'a,
        default: Header,
    ) -> Result<Self, TraceError> {
        Self::start(file.into(), input, Some(default))
    }

    fn start(
        file: String,
        input: impl Read + Send + 'a,
        default: Option<Header>,
    ) -> Result<Self, TraceError> {
        let input = match decompressed(input) {
            Ok(input) => input,
            Err(error) => return Err(TraceError::new(file, None, Reason::Io(error))),
        };
        let mut lines =
            Lines { file, input, number: 0, text: Vec::new(), terminated: true, again: None };
        let program = default.is_some();
        match lines.header(default) {
            Ok(header) => {
                let meter = Meter::new(header.recorded_on.gpus);
                let time = TimeLimit::new(WorkLimits::default().time, &WallClock::default());
                Ok(Self { lines, header, next: None, done: false, program, meter, time })
            }
            Err(Reason::Empty) => Err(TraceError::new(lines.file, None, Reason::Empty)),
            Err(reason) => Err(lines.error(reason)),
        }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// With these limits instead of the default ones, for a caller that carries each case out so
    /// many times; 0 for one that only looks at the recording.
    #[must_use]
    pub fn limited(self, limits: WorkLimits, times: u64) -> Self {
        self.limited_on(limits, times, &WallClock::default())
    }

    /// Limits a reader as [`limited`](Self::limited) does, with the time measured on a clock of the
    /// caller's.
    #[must_use]
    pub fn limited_on(mut self, limits: WorkLimits, times: u64, clock: &WallClock) -> Self {
        self.meter.limit(limits, times);
        self.time = TimeLimit::new(limits.time, clock);
        self
    }

    /// The time that the file may take. It counts while [`next_case`](Self::next_case) reads; who
    /// carries the cases out lets it count by [`busy`](TimeLimit::busy).
    #[must_use]
    pub fn time(&self) -> &TimeLimit {
        &self.time
    }

    /// Units of work that the file has asked for so far.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.meter.work()
    }

    /// Units of work of the case read last, carried out once.
    pub(crate) fn case_work(&self) -> u64 {
        self.meter.case_work()
    }

    /// Bytes of host memory that the case read last may take.
    #[must_use]
    pub fn case_memory_bytes(&self) -> u64 {
        self.meter.case_memory_bytes()
    }

    /// The next case, or `None` at the end.
    ///
    /// # Errors
    /// If the input cannot be read on, or asks for more than the limits allow. The case that it
    /// stands in is lost.
    pub fn next_case(&mut self) -> Result<Option<Case>, TraceError> {
        if self.done {
            return Ok(None);
        }
        let busy = self.time.busy();
        let case = self.read_case();
        drop(busy);
        self.done = !matches!(case, Ok(Some(_)));
        case.map_err(|reason| self.lines.error(reason))
    }

    fn read_case(&mut self) -> Result<Option<Case>, Reason> {
        let mut case = self.next.take().map(|(name, line, text_bytes)| Case {
            name,
            line,
            ops: Vec::new(),
            text_bytes,
        });
        let mut live = Live::default();
        if case.is_some() {
            self.meter.case()?;
        }
        while let Some(bytes) = self.lines.next(MAX_LINE_BYTES)? {
            self.time.check("line")?;
            self.meter.text(bytes)?;
            let mut raw: RawLine = self.lines.json()?;
            let line = self.lines.number;
            if self.program && raw.op.is_some() {
                raw.code.get_or_insert_default();
                if case.is_none() {
                    self.meter.case()?;
                    let name = "program".to_owned();
                    case = Some(Case { name, line, ops: Vec::new(), text_bytes: 0 });
                }
            }
            match (raw.case, &mut case) {
                (Some(name), None) => {
                    self.meter.case()?;
                    case = Some(Case { name, line, ops: Vec::new(), text_bytes: bytes });
                }
                (Some(name), Some(_)) => {
                    self.next = Some((name, line, bytes));
                    break;
                }
                (None, None) => {
                    let op = raw.op.ok_or(Reason::NeitherOpNorCase)?;
                    return Err(Reason::OpBeforeCase(op.chars().take(60).collect()));
                }
                (None, Some(case)) => {
                    let record = RecordedOp::try_from(RawLine { case: None, ..raw })?;
                    if !self.program {
                        live.check(&record, line)?;
                    }
                    case.text_bytes = case.text_bytes.saturating_add(bytes);
                    self.meter.op(&record)?;
                    check_launch(&record)?;
                    case.ops.push(OpLine { line, recorded: record });
                    within_limits(case)?;
                }
            }
        }
        Ok(case)
    }
}

/// Refuses a launch with accesses that cannot be read. Its work was counted.
fn check_launch(record: &RecordedOp) -> Result<(), Reason> {
    let Op::Launch(launch) = &record.op else { return Ok(()) };
    let bad = |why| Reason::BadField(format!("op `launch`: field `accesses`: {why}"));
    launch.check().map_err(bad)
}

fn opened(path: &Path) -> Result<File, TraceError> {
    File::open(path)
        .map_err(|error| TraceError::new(path.display().to_string(), None, Reason::Io(error)))
}

fn within_limits(case: &Case) -> Result<(), Reason> {
    let too_long = |limit, unit| {
        let case = case.name.chars().take(60).collect();
        Err(Reason::CaseTooLong { case, limit, unit })
    };
    if case.ops.len() > MAX_CASE_OPS {
        return too_long(MAX_CASE_OPS as u64, "operations");
    }
    if case.text_bytes > MAX_CASE_BYTES {
        return too_long(MAX_CASE_BYTES, "bytes");
    }
    Ok(())
}

/// The buffers that live according to the recording, and since which line.
#[derive(Default)]
pub(crate) struct Live(HashMap<u32, u64>);

impl Live {
    /// Notes what the operation allocated or freed.
    pub(crate) fn check(&mut self, record: &RecordedOp, line: u64) -> Result<(), Reason> {
        let succeeded = record.observed.code == 0;
        if let Some(id) = record.op.allocates() {
            if let Some(&since) = self.0.get(&id) {
                return Err(Reason::IdUsedTwice { id, since });
            }
            if succeeded {
                self.0.insert(id, line);
            }
        }
        if let Some(id) = record.op.frees().filter(|_| succeeded) {
            self.0.remove(&id);
        }
        Ok(())
    }
}

/// Lines with their numbers.
struct Lines<'a> {
    file: String,
    input: Decompressed<'a>,
    number: u64,
    text: Vec<u8>,
    /// Whether the line ended with a newline.
    terminated: bool,
    /// The length of the line, if it is to be read once more.
    again: Option<u64>,
}

impl Lines<'_> {
    /// Reads the next line that is not blank and gives its length, blank lines before it included.
    fn next(&mut self, limit: usize) -> Result<Option<u64>, Reason> {
        if let Some(bytes) = self.again.take() {
            return Ok(Some(bytes));
        }
        let mut bytes = 0;
        loop {
            self.text.clear();
            self.number = self.number.saturating_add(1);
            let most = (limit as u64).saturating_add(1);
            let read = self.input.read.by_ref().take(most).read_until(b'\n', &mut self.text);
            let read = read.map_err(|error| self.input.reason(error))?;
            if read == 0 {
                return Ok(None);
            }
            bytes = u64::saturating_add(bytes, read as u64);
            self.terminated = self.text.last() == Some(&b'\n');
            if !self.terminated && read > limit {
                return Err(Reason::LineTooLong { limit });
            }
            if !self.text.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(bytes));
            }
            if bytes > MAX_CASE_BYTES {
                return Err(Reason::NotJson("nothing but blank lines".to_owned()));
            }
        }
    }

    /// Reads the header. With a default, the first line may be something else, and is left.
    fn header(&mut self, default: Option<Header>) -> Result<Header, Reason> {
        let bytes = self.next(MAX_HEADER_BYTES)?.ok_or(Reason::Empty)?;
        let line: serde_json::Value = self.json()?;
        match default {
            Some(default) if line.get("op").is_some() || line.get("case").is_some() => {
                self.again = Some(bytes);
                Ok(default)
            }
            _ => Header::from_json(&line),
        }
    }

    /// The line as a JSON value.
    fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Reason> {
        let text = match std::str::from_utf8(&self.text) {
            Ok(text) => text.trim_ascii_end(),
            Err(error) => {
                return Err(Reason::NotUtf8 { column: error.valid_up_to().saturating_add(1) });
            }
        };
        serde_json::from_str(text).map_err(|error| self.why(text, &error))
    }

    /// Tells a line that is no JSON from one that has a wrong value, and a truncated one from both.
    #[cold]
    fn why(&self, text: &str, error: &serde_json::Error) -> Reason {
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => {
                let message = without_position(&error.to_string());
                Reason::BadField(format!("{message} (column {})", error.column()))
            }
            Err(syntax) if syntax.is_eof() && !self.terminated => Reason::Truncated,
            Err(syntax) => {
                let message = without_position(&syntax.to_string());
                Reason::NotJson(format!("{message} (column {})", syntax.column()))
            }
        }
    }

    fn error(&self, reason: Reason) -> TraceError {
        let line = (self.number > 0).then_some(self.number);
        TraceError::new(self.file.clone(), line, reason)
    }
}

/// Every line is parsed on its own, so that "line 1" of the parser would mislead.
fn without_position(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).to_owned()
}

/// The decompressed bytes, and what to call the compression.
struct Decompressed<'a> {
    read: Box<dyn BufRead + Send + 'a>,
    compression: Option<&'static str>,
}

impl Decompressed<'_> {
    fn reason(&self, source: io::Error) -> Reason {
        match self.compression {
            None => Reason::Io(source),
            Some(format) if source.kind() == io::ErrorKind::UnexpectedEof => {
                Reason::TruncatedStream(format)
            }
            Some(format) => Reason::DamagedStream { format, source },
        }
    }
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 64 << 10;

fn decompressed<'a>(mut input: impl Read + Send + 'a) -> io::Result<Decompressed<'a>> {
    let mut start = Vec::with_capacity(ZSTD_MAGIC.len());
    input.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut start)?;
    let (gzip, zstd) = (start.starts_with(&GZIP_MAGIC), start.starts_with(&ZSTD_MAGIC));
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(start).chain(input));
    if gzip {
        let decoder = flate2::bufread::MultiGzDecoder::new(whole);
        let read = Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder));
        return Ok(Decompressed { read, compression: Some("gzip") });
    }
    if zstd {
        let decoder = zstd::stream::read::Decoder::with_buffer(whole)?;
        let read = Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder));
        return Ok(Decompressed { read, compression: Some("zstd") });
    }
    Ok(Decompressed { read: Box::new(whole), compression: None })
}
