//! Operations of a machine on byte ranges of managed memory by address, whichever code owns them.
//!
//! Buffers and regions use these operations, and so does code that manages memory of its own. They
//! pass ranges on unchanged. [`Rounding::apply`](crate::Rounding::apply) rounds them, and the
//! checks of a [`Machine`] refuse wrong arguments before the back end is asked. The back end
//! refuses a range that is not managed memory.

use pagewise_hal::{BatchSupport, Error, Location, Result, Span, StreamHandle};
use smallvec::SmallVec;

use crate::refuse::{also, invalid, unsupported};
use crate::{Machine, MemoryAdvice, Place, Stream};

impl Machine {
    /// Gives advice on a byte range, by location, or by ordinal before CUDA 12.2.
    ///
    /// # Errors
    /// As [`Backend::advise`](crate::Backend::advise), with the driver's code. `Unsupported` (no
    /// CUDA code) for a NUMA node before CUDA 12.2; [`MemoryAdvice::check`] finds that and other
    /// wrong places first, with more to say.
    ///
    /// ```
    /// use pagewise::{BackendExt, Machine, MemoryAdvice};
    ///
    /// let sim = pagewise::sim()?;
    /// let span = sim.alloc(4096)?;
    /// Machine::from(&sim).advise(span, MemoryAdvice::SetReadMostly)?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn advise(&self, span: Span, advice: MemoryAdvice) -> Result<()> {
        let place = advice.place().unwrap_or(Place::HOST);
        if self.capabilities().locations {
            return self.backend().advise(span, advice.number(), place.into());
        }
        let ordinal = place.ordinal().ok_or_else(|| no_ordinal("advise", place))?;
        self.backend().advise_ordinal(span, advice.number(), ordinal)
    }

    /// Gives advice on each byte range, in order, because no driver takes advice for many at once.
    ///
    /// # Errors
    /// As [`advise`](Self::advise), with the item. The ranges before the item were advised; it and
    /// those after it were not.
    ///
    /// ```
    /// use pagewise::{BackendExt, Machine, MemoryAdvice};
    ///
    /// let sim = pagewise::sim()?;
    /// let spans = [sim.alloc(4096)?, sim.alloc(4096)?];
    /// Machine::from(&sim).advise_spans(&spans, MemoryAdvice::SetReadMostly)?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn advise_spans(&self, spans: &[Span], advice: MemoryAdvice) -> Result<()> {
        for (item, &span) in spans.iter().enumerate() {
            self.advise(span, advice).map_err(|error| midway(error, item, span, "advised"))?;
        }
        Ok(())
    }

    /// Asks for migration of a byte range, in stream order: by location, or by ordinal before
    /// CUDA 12.2. Success promises no residency.
    ///
    /// # Errors
    /// As [`Backend::prefetch`](crate::Backend::prefetch), with the driver's code. `Unsupported`
    /// (no CUDA code) for a NUMA node before CUDA 12.2; [`check_place`](Self::check_place) finds
    /// that and other wrong places first, with more to say.
    ///
    /// ```
    /// use pagewise::{BackendExt, Machine, Place, StreamHandle};
    ///
    /// let sim = pagewise::sim()?;
    /// let span = sim.alloc(4096)?;
    /// Machine::from(&sim).prefetch(span, Place::HOST, StreamHandle::NULL)?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn prefetch(&self, span: Span, to: Place, stream: StreamHandle) -> Result<()> {
        if self.capabilities().locations {
            return self.backend().prefetch(span, Location::from(to), 0, stream);
        }
        let ordinal = to.ordinal().ok_or_else(|| no_ordinal("prefetch", to))?;
        self.backend().prefetch_ordinal(span, ordinal, stream)
    }

    /// Asks for migration of byte ranges to one place, in stream order: in one call of the
    /// back end, or in a loop where the back end has none or the stream is the legacy default, which
    /// batch calls refuse.
    ///
    /// # Errors
    /// As [`prefetch`](Self::prefetch). An error from a loop has the item: the ranges before it
    /// were submitted; it and those after it were not.
    ///
    /// ```
    /// use pagewise::{BackendExt, Machine, Place, StreamHandle};
    ///
    /// let sim = pagewise::sim()?;
    /// let spans = [sim.alloc(4096)?, sim.alloc(4096)?];
    /// Machine::from(&sim).prefetch_spans(&spans, Place::HOST, StreamHandle::NULL)?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn prefetch_spans(&self, spans: &[Span], to: Place, stream: StreamHandle) -> Result<()> {
        let absent = self.capabilities().prefetch_batch == BatchSupport::Absent;
        if spans.len() > 1 && !absent && !stream.is_legacy() {
            return self.backend().prefetch_batch(spans, &[to.into()], &[0], 0, stream);
        }
        for (item, &span) in spans.iter().enumerate() {
            let sent = self.prefetch(span, to, stream);
            sent.map_err(|error| midway(error, item, span, "submitted"))?;
        }
        Ok(())
    }

    /// Refuses discards that no memory of this machine could take on this stream.
    ///
    /// # Errors
    /// Without a CUDA code: `Unsupported` before CUDA 13.0; `InvalidValue` for a stream of another
    /// machine and for the legacy default stream, which the driver takes for no discard.
    ///
    /// ```
    /// use pagewise::{Device, Machine, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// machine.check_discard("reset", &Stream::new(&machine, Device::FIRST)?)?;
    /// assert!(machine.check_discard("reset", &Stream::legacy_default(&machine)).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn check_discard(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        if !self.capabilities().discard {
            let version = self.capabilities().driver_version;
            let why = format!("needs a driver of CUDA 13.0 or later, this one is of {version}");
            return Err(unsupported(operation, why));
        }
        self.check_stream(operation, stream)?;
        if stream.is_legacy_default() {
            let why = "the driver takes no legacy default stream here: make one with `Stream::new`";
            return Err(invalid(operation, why));
        }
        Ok(())
    }

    /// Declares the contents of byte ranges worthless, in stream order. It waits for the stream
    /// first, because driver 580 loses bytes that are written after a discard that is queued behind
    /// a prefetch.
    ///
    /// The driver gets each range twice. If some pages of a va_block are duplicated by read-mostly,
    /// a discard unmaps only those. The others keep their mappings and are only marked as
    /// discarded: a write to them does not fault, so the mark stays, and the next migration loses
    /// the written bytes. The second time no page is duplicated any more, so all are unmapped, and
    /// the first write to a page takes its mark away.
    ///
    /// # Errors
    /// As [`Backend::discard_batch`](crate::Backend::discard_batch), with the driver's code; then
    /// no contents were discarded. [`check_discard`](Self::check_discard) finds some of these
    /// errors first.
    ///
    /// # Safety
    /// As [`Backend::discard_batch`](crate::Backend::discard_batch).
    ///
    /// ```
    /// use pagewise::{BackendExt, Device, Machine, Stream};
    ///
    /// let sim = pagewise::sim()?;
    /// let machine = Machine::from(&sim);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let spans = [sim.alloc(2 << 20)?];
    /// // SAFETY: no other code has the address.
    /// unsafe { machine.discard_spans(&spans, stream.handle())? };
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn discard_spans(&self, spans: &[Span], stream: StreamHandle) -> Result<()> {
        self.backend().stream_synchronize(stream)?;
        let twice: SmallVec<[Span; 2]> = spans.iter().chain(spans).copied().collect();
        // SAFETY: the call asks that no code uses the contents until they are written, and the
        // caller promised that of these ranges. Each is named twice, which has the same effect as
        // once.
        unsafe { self.backend().discard_batch(&twice, 0, stream) }
    }
}

/// The error of a place that a driver of this version has no number for.
#[cold]
fn no_ordinal(operation: &'static str, place: Place) -> Error {
    unsupported(operation, format!("this driver cannot name {place}"))
}

/// The error of a loop that failed at an item.
#[cold]
pub(crate) fn midway(error: Error, item: usize, span: Span, done: &str) -> Error {
    let outcome = format!("the {item} regions before this one were {done}, the others were not");
    also(error, &outcome).with_item(item).with_span(span)
}
