//! The batch calls: the driver's own, or a loop with the same checks.
//!
//! The arrays are checked here, for both: the driver documents one number for each of these faults,
//! and the check names what is wrong. A check also hides the driver's own answer from probes, so
//! none refuses what a GPU was seen to take (CONTRACT-55).

use std::borrow::Cow;

use pagewise_hal::{
    Code, Error, ErrorKind, Location, LocationKind, Result, Span, StreamHandle,
    locations_of_ranges, starts_are_valid,
};
use smallvec::SmallVec;

use crate::abi::{MemLocation, handle};
use crate::backend::CudaBackend;

/// The arguments of a batch that moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moves<'a> {
    pub(crate) spans: &'a [Span],
    pub(crate) locations: &'a [Location],
    pub(crate) location_starts: &'a [usize],
    pub(crate) flags: u64,
    pub(crate) stream: StreamHandle,
}

#[cold]
fn refuse<T>(operation: &'static str, why: impl Into<Cow<'static, str>>) -> Result<T> {
    Err(Error::from_code(operation, Code::INVALID_VALUE).with_detail(why))
}

/// Refuses what every batch call refuses.
#[inline]
fn check_spans(
    operation: &'static str,
    spans: &[Span],
    flags: u64,
    stream: StreamHandle,
) -> Result<()> {
    if stream.is_legacy() {
        return refuse(operation, "batch calls do not take the legacy default stream");
    }
    if flags != 0 {
        return refuse(operation, "flags must be 0");
    }
    if spans.is_empty() {
        return refuse(operation, "give at least one range");
    }
    Ok(())
}

impl Moves<'_> {
    /// Refuses what every batch call that moves refuses, ranges and locations excepted.
    #[inline]
    fn check(&self, operation: &'static str) -> Result<()> {
        check_spans(operation, self.spans, self.flags, self.stream)?;
        let starts = self.location_starts;
        if starts.is_empty() || self.locations.len() != starts.len() {
            return refuse(operation, "give one start for each location, and at least one");
        }
        if !starts_are_valid(starts, self.spans.len()) {
            return refuse(operation, "starts begin at 0 and stay below the number of ranges");
        }
        Ok(())
    }
}

/// An array of a batch. One item, the common case, costs no allocation.
type Column<T> = SmallVec<[T; 1]>;

/// Ranges as the driver takes them: addresses and lengths apart.
struct Columns {
    ptrs: Column<u64>,
    sizes: Column<usize>,
}

impl Columns {
    fn of(spans: &[Span]) -> Self {
        Self {
            ptrs: spans.iter().map(|span| span.ptr.0).collect(),
            sizes: spans.iter().map(|span| span.bytes as usize).collect(),
        }
    }
}

/// `cuMemPrefetchBatchAsync` and `cuMemDiscardAndPrefetchBatchAsync` have one signature.
pub(crate) type MoveBatch = unsafe extern "C" fn(
    *mut u64,
    *mut usize,
    usize,
    *mut MemLocation,
    *mut usize,
    usize,
    u64,
    *mut std::ffi::c_void,
) -> i32;

impl CudaBackend {
    #[inline(never)]
    pub(crate) fn prefetch_many(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "prefetch_batch";
        let moves = Moves { spans, locations, location_starts, flags, stream };
        match self.driver.table.mem_prefetch_batch {
            Some(call) => self.native(OPERATION, call, &moves),
            None => self.looped(OPERATION, &moves),
        }
    }

    /// # Safety
    /// As [`Backend::discard_batch`](pagewise_hal::Backend::discard_batch).
    #[inline(never)]
    pub(crate) unsafe fn discard_prefetch_many(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "discard_prefetch_batch";
        let moves = Moves { spans, locations, location_starts, flags, stream };
        match self.driver.table.mem_discard_prefetch_batch {
            Some(call) => self.native(OPERATION, call, &moves),
            None => Err(self.too_old_to_discard(OPERATION)),
        }
    }

    /// Moves one range by the driver's own call, the common case, where nothing needs more than a
    /// look. None if something does.
    ///
    /// Little of this code is in the caches after a call into the driver, so each line costs. Hence
    /// the general way is elsewhere, and arguments are in registers until they are known to fit.
    #[inline(always)]
    pub(crate) fn move_one(
        &self,
        operation: &'static str,
        call: Option<MoveBatch>,
        moves: Moves<'_>,
    ) -> Option<Result<()>> {
        let (Some(call), [span], [location], [0]) =
            (call, moves.spans, moves.locations, moves.location_starts)
        else {
            return None;
        };
        if !self.is_plain(moves.flags, moves.stream) {
            return None;
        }
        let _used = match self.use_stream(operation, moves.stream) {
            Ok(used) => used,
            Err(error) => return Some(Err(error)),
        };
        let (mut ptr, mut bytes) = (span.ptr.0, span.bytes as usize);
        let (mut place, mut start) = (MemLocation::from(*location), 0);
        let on = handle(moves.stream.as_raw());
        // SAFETY: the driver reads one item of each array, and each is a local that outlives the
        // call. It checks range and location. The stream is live because this call uses it.
        let mut submit = move || unsafe {
            let (ptr, bytes) = (&raw mut ptr, &raw mut bytes);
            call(ptr, bytes, 1, &raw mut place, &raw mut start, 1, 0, on)
        };
        Some(match submit() {
            Code::SUCCESS => Ok(()),
            code => self.refused_one(operation, code, &mut submit, *span),
        })
    }

    /// Discards one range by the short way, if the batch has one range.
    ///
    /// # Safety
    /// As [`Backend::discard_batch`](pagewise_hal::Backend::discard_batch).
    #[inline(always)]
    pub(crate) unsafe fn discard_one(
        &self,
        operation: &'static str,
        spans: &[Span],
        flags: u64,
        stream: StreamHandle,
    ) -> Option<Result<()>> {
        let (Some(call), [span]) = (self.driver.table.mem_discard_batch, spans) else {
            return None;
        };
        if !self.is_plain(flags, stream) {
            return None;
        }
        let _used = match self.use_stream(operation, stream) {
            Ok(used) => used,
            Err(error) => return Some(Err(error)),
        };
        let (mut ptr, mut bytes) = (span.ptr.0, span.bytes as usize);
        let on = handle(stream.as_raw());
        // SAFETY: the driver reads one item of each array, and each is a local that outlives the
        // call. It checks the range. The stream is live because this call uses it. The caller of
        // `discard_batch`, which alone calls this function, promised that no thread and no work
        // reads the contents before they are written again.
        let mut submit = move || unsafe { call(&raw mut ptr, &raw mut bytes, 1, 0, on) };
        Some(match submit() {
            Code::SUCCESS => Ok(()),
            code => self.refused_one(operation, code, &mut submit, *span),
        })
    }

    /// Whether a batch call needs no check of its flags, its stream and the context.
    #[inline(always)]
    fn is_plain(&self, flags: u64, stream: StreamHandle) -> bool {
        let plain = flags == 0 && !stream.is_legacy() && self.others.is_empty();
        plain && self.home.context.is_current()
    }

    /// The answer to a refused call about one range.
    #[cold]
    fn refused_one(
        &self,
        operation: &'static str,
        code: i32,
        call: &mut dyn FnMut() -> i32,
        span: Span,
    ) -> Result<()> {
        let answer = self.home.context.refused(operation, code, call);
        answer.map_err(|error| self.blame(error, &[span]))
    }

    /// # Safety
    /// As [`Backend::discard_batch`](pagewise_hal::Backend::discard_batch).
    #[inline(never)]
    pub(crate) unsafe fn discard_many(
        &self,
        spans: &[Span],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "discard_batch";
        let Some(call) = self.driver.table.mem_discard_batch else {
            return Err(self.too_old_to_discard(OPERATION));
        };
        check_spans(OPERATION, spans, flags, stream)?;
        let _used = self.use_stream(OPERATION, stream)?;
        let context = self.context_of(OPERATION, stream)?;
        let mut columns = Columns::of(spans);
        // SAFETY: the driver reads as many items of both arrays as there are ranges, and `columns`
        // has one for each. It checks the ranges. The stream is live because this call uses it. The
        // caller of `discard_batch`, which alone calls this function, promised that no thread and
        // no work reads the contents before they are written again.
        let answer = context.call(OPERATION, || unsafe {
            let (ptrs, sizes) = (columns.ptrs.as_mut_ptr(), columns.sizes.as_mut_ptr());
            call(ptrs, sizes, spans.len(), flags, handle(stream.as_raw()))
        });
        answer.map_err(|error| self.blame(error, spans))
    }

    /// The driver's own call.
    fn native(&self, operation: &'static str, call: MoveBatch, moves: &Moves<'_>) -> Result<()> {
        moves.check(operation)?;
        let _used = self.use_stream(operation, moves.stream)?;
        let context = self.context_of(operation, moves.stream)?;
        let mut columns = Columns::of(moves.spans);
        let places = moves.locations.iter().map(|&at| MemLocation::from(at));
        let mut places: Column<MemLocation> = places.collect();
        let mut starts = Column::from_slice(moves.location_starts);
        // SAFETY: the driver reads as many items of each array as it is told, which are the arrays'
        // lengths; the starts were checked before. It checks ranges and locations. The stream is
        // live because this call uses it.
        let answer = context.call(operation, || unsafe {
            call(
                columns.ptrs.as_mut_ptr(),
                columns.sizes.as_mut_ptr(),
                columns.ptrs.len(),
                places.as_mut_ptr(),
                starts.as_mut_ptr(),
                places.len(),
                moves.flags,
                handle(moves.stream.as_raw()),
            )
        });
        answer.map_err(|error| self.blame(error, moves.spans))
    }

    /// One call for each range, after every range and location was checked.
    fn looped(&self, operation: &'static str, moves: &Moves<'_>) -> Result<()> {
        moves.check(operation)?;
        let _used = self.use_stream(operation, moves.stream)?;
        for (item, &span) in moves.spans.iter().enumerate() {
            if let Some(why) = self.not_managed(span) {
                let error = refuse(operation, why).map_err(|error| error.with_item(item));
                return error.map_err(|error| error.with_span(span));
            }
        }
        for &location in moves.locations {
            self.check_loop_location(operation, location)?;
        }
        let locations = locations_of_ranges(moves.location_starts, moves.spans.len());
        for ((item, &span), location) in moves.spans.iter().enumerate().zip(locations) {
            self.prefetch_one(operation, span, moves.locations[location], moves.stream).map_err(
                |error| {
                    error.with_item(item).with_span(span).with_detail(format!(
                        "by a loop, because the driver is of CUDA {}: the {item} ranges before \
                         this one were submitted, the others were not",
                        self.driver.library.effective
                    ))
                },
            )?;
        }
        Ok(())
    }

    fn prefetch_one(
        &self,
        operation: &'static str,
        span: Span,
        location: Location,
        stream: StreamHandle,
    ) -> Result<()> {
        let context = self.context_of(operation, stream)?;
        let (ptr, bytes, on) = (span.ptr.0, span.bytes as usize, handle(stream.as_raw()));
        match self.driver.table.mem_prefetch {
            Some(call) => {
                // SAFETY: the driver takes numbers, which it checks, and a stream, which is live
                // because `looped` uses it.
                context.call(operation, || unsafe { call(ptr, bytes, location.into(), 0, on) })
            }
            None => {
                let ordinal = match location.kind {
                    LocationKind::DEVICE => location.id,
                    _ => Location::ORDINAL_HOST,
                };
                let call = self.driver.table.mem_prefetch_ordinal;
                // SAFETY: the driver takes numbers, which it checks, and a stream, which is live
                // because `looped` uses it.
                context.call(operation, || unsafe { call(ptr, bytes, ordinal, on) })
            }
        }
    }

    /// The checks that the driver's batch call makes of a location. An unknown device is an
    /// invalid value here, not an invalid device.
    fn check_loop_location(&self, operation: &'static str, location: Location) -> Result<()> {
        let numa =
            matches!(location.kind, LocationKind::HOST_NUMA | LocationKind::HOST_NUMA_CURRENT);
        if numa && !self.has_locations() {
            return Err(self.too_old(
                operation,
                "12.2",
                "an ordinal cannot name a host NUMA node: use HOST",
            ));
        }
        let known = match location.kind {
            LocationKind::DEVICE => {
                u32::try_from(location.id).is_ok_and(|ordinal| ordinal < self.driver.devices)
            }
            LocationKind::HOST_NUMA => self.numa.contains(location.id),
            LocationKind::HOST | LocationKind::HOST_NUMA_CURRENT => true,
            _ => false,
        };
        if known {
            return Ok(());
        }
        refuse(operation, "a location names no device, NUMA node or known type")
    }

    #[cold]
    fn too_old_to_discard(&self, operation: &'static str) -> Error {
        self.too_old(operation, "13.0", "prefetch the range, or leave its contents as they are")
    }

    /// The entry point does not exist in the version in use.
    #[cold]
    pub(crate) fn too_old(
        &self,
        operation: &'static str,
        since: &str,
        instead: &'static str,
    ) -> Error {
        let used = self.driver.library.effective;
        Error::new(operation, ErrorKind::Unsupported).with_detail(format!(
            "needs a driver of CUDA {since} or later, and CUDA {used} is in use: {instead}"
        ))
    }

    /// Says which range of a refused batch is wrong, where one is.
    #[cold]
    fn blame(&self, error: Error, spans: &[Span]) -> Error {
        if error.kind() != ErrorKind::InvalidValue {
            return error;
        }
        let bad = |(item, &span)| Some((item, span, self.not_managed(span)?));
        match spans.iter().enumerate().find_map(bad) {
            Some((item, span, why)) => error.with_item(item).with_span(span).with_detail(why),
            None => error.with_detail("a location names no device, NUMA node or known type"),
        }
    }
}
