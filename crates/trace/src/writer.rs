//! Writing traces: plain, gzip or zstd.

use std::io::{self, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use serde::Serialize;

use crate::format::{Case, Header, Op, RawLine, RecordedOp};

/// The compression of a recording that is kept: zstd's slowest ordinary level.
const ZSTD_LEVEL: i32 = 19;

/// Writes one trace: the header at once, then cases and operations as they come.
///
/// ```
/// use pagewise_trace::format::{Header, RecordedOn};
/// use pagewise_trace::writer::TraceWriter;
///
/// let header = Header::new("tiny", RecordedOn::new(1, 13000));
/// let mut writer = TraceWriter::plain(Vec::new(), &header)?;
/// writer.case("one")?;
/// let text = String::from_utf8(writer.finish()?).expect("JSON is UTF-8");
/// assert_eq!(text.lines().last(), Some(r#"{"case":"one"}"#));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    output: Output<W>,
    line: Vec<u8>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes as the name of the file says: `.zst` is zstd, `.gz` gzip, anything else plain.
    ///
    /// # Errors
    /// As `output`.
    pub fn by_extension(output: W, path: &Path, header: &Header) -> io::Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("zst") => Self::zstd(output, ZSTD_LEVEL, header),
            Some("gz") => Self::gzip(output, header),
            _ => Self::plain(output, header),
        }
    }

    /// Writes plain text.
    ///
    /// # Errors
    /// As `output`.
    pub fn plain(output: W, header: &Header) -> io::Result<Self> {
        Self::start(Output::Plain(output), header)
    }

    /// Writes a zstd stream; `level` is 1 to 22, 19 for what is to be kept.
    ///
    /// # Errors
    /// As `output`; `InvalidInput` for a level that zstd refuses.
    pub fn zstd(output: W, level: i32, header: &Header) -> io::Result<Self> {
        let encoder = zstd::stream::write::Encoder::new(output, level)?;
        Self::start(Output::Zstd(encoder), header)
    }

    /// Writes a gzip stream.
    ///
    /// # Errors
    /// As `output`.
    pub fn gzip(output: W, header: &Header) -> io::Result<Self> {
        Self::start(Output::Gzip(GzEncoder::new(output, flate2::Compression::best())), header)
    }

    fn start(output: Output<W>, header: &Header) -> io::Result<Self> {
        let mut writer = Self { output, line: Vec::new() };
        writer.write_line(header)?;
        Ok(writer)
    }

    /// Starts a case.
    ///
    /// # Errors
    /// As the output.
    pub fn case(&mut self, name: &str) -> io::Result<()> {
        self.write_line(&RawLine { case: Some(name.to_owned()), ..RawLine::default() })
    }

    /// Writes one operation with what was observed.
    ///
    /// # Errors
    /// As the output.
    pub fn record(&mut self, record: &RecordedOp) -> io::Result<()> {
        self.write_line(&RawLine::from(record))
    }

    /// Writes one operation without results, for a program.
    ///
    /// # Errors
    /// As the output.
    pub fn op(&mut self, op: &Op) -> io::Result<()> {
        self.write_line(&RawLine::from(op))
    }

    /// Writes a whole case.
    ///
    /// # Errors
    /// As the output.
    pub fn whole_case(&mut self, case: &Case) -> io::Result<()> {
        self.case(&case.name)?;
        case.ops.iter().try_for_each(|line| self.record(&line.recorded))
    }

    /// Writes a whole case without results, for a program.
    ///
    /// # Errors
    /// As the output.
    pub fn program(&mut self, case: &Case) -> io::Result<()> {
        self.case(&case.name)?;
        case.ops.iter().try_for_each(|line| self.op(&line.recorded.op))
    }

    /// Ends the stream, flushes and gives the output back.
    ///
    /// # Errors
    /// As the output.
    pub fn finish(self) -> io::Result<W> {
        let mut output = match self.output {
            Output::Plain(output) => output,
            Output::Zstd(encoder) => encoder.finish()?,
            Output::Gzip(encoder) => encoder.finish()?,
        };
        output.flush()?;
        Ok(output)
    }

    fn write_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value)?;
        self.line.push(b'\n');
        match &mut self.output {
            Output::Plain(output) => output.write_all(&self.line),
            Output::Zstd(encoder) => encoder.write_all(&self.line),
            Output::Gzip(encoder) => encoder.write_all(&self.line),
        }
    }
}

/// The bytes of text of one operation, with the end of its line.
pub(crate) fn line_bytes(record: &RecordedOp) -> u64 {
    struct Count(u64);

    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len() as u64);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(1);
    // Counting does not fail, and text of a type that has one is made without failure.
    _ = serde_json::to_writer(&mut count, &RawLine::from(record));
    count.0
}

enum Output<W: Write> {
    Plain(W),
    Zstd(zstd::stream::write::Encoder<'static, W>),
    Gzip(GzEncoder<W>),
}

impl<W: Write> std::fmt::Debug for Output<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Zstd(_) => "Zstd",
            Self::Gzip(_) => "Gzip",
        })
    }
}
