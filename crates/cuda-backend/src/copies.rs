//! Calls that fill and copy, alone and in batches.
//!
//! The checks of a batch's lists are made here, as all of them fail with the same number on the
//! driver: doing them first changes no answer, and names what is wrong.

use std::borrow::Cow;

use pagewise_hal::{
    Code, CopyAttributes, DevicePtr, Error, ErrorKind, Location, LocationKind, Result, SourceOrder,
    Span, SpanCopy, StreamHandle,
};
use smallvec::SmallVec;

use crate::abi::{CopyAttributes as RawAttributes, handle};
use crate::backend::CudaBackend;

/// An array of a batch. A few copies, the common case, cost no allocation.
type Column<T> = SmallVec<[T; 4]>;

/// Copies as the driver takes them: addresses and lengths apart.
struct Columns {
    destinations: Column<u64>,
    sources: Column<u64>,
    sizes: Column<usize>,
    attributes: Column<RawAttributes>,
    starts: Column<usize>,
}

/// The item of a failed batch that the driver names if the failure is of no item.
const NO_ITEM: usize = usize::MAX;

#[cold]
fn refuse<T>(operation: &'static str, why: impl Into<Cow<'static, str>>) -> Result<T> {
    Err(Error::from_code(operation, Code::INVALID_VALUE).with_detail(why))
}

/// Refuses what the driver refuses of a batch's lists and attributes.
fn check_lists(
    operation: &'static str,
    copies: &[SpanCopy],
    attributes: &[CopyAttributes],
    starts: &[usize],
    stream: StreamHandle,
) -> Result<()> {
    if stream.is_legacy() {
        return refuse(operation, "batch calls do not take the legacy default stream");
    }
    if copies.is_empty() {
        return refuse(operation, "give at least one copy");
    }
    if starts.is_empty() || attributes.len() != starts.len() {
        let why = "give one start for each set of attributes, and at least one";
        return refuse(operation, why);
    }
    let ascending = starts.is_sorted_by(|a, b| a < b);
    if starts[0] != 0 || !ascending || starts[starts.len() - 1] >= copies.len() {
        let why = "starts begin at 0, ascend, and stay below the number of copies";
        return refuse(operation, why);
    }
    attributes.iter().try_for_each(|attributes| match attributes.check() {
        Ok(()) => Ok(()),
        Err(why) => refuse(operation, why),
    })
}

impl CudaBackend {
    /// # Safety
    /// As [`Backend::memset`](pagewise_hal::Backend::memset).
    pub(crate) unsafe fn memset(&self, span: Span, value: u8, stream: StreamHandle) -> Result<()> {
        const OPERATION: &str = "memset";
        let _stream = self.use_stream(OPERATION, stream)?;
        let set = self.driver.table.memset_d8_async;
        self.context_of(OPERATION, stream)?
            // SAFETY: the caller promised that no other code or work uses the range until the
            // stream has passed the call. The driver checks the range. The stream is live because
            // this call uses it.
            .call(OPERATION, || unsafe {
                set(span.ptr.0, value, span.bytes as usize, handle(stream.as_raw()))
            })
            .map_err(|error| error.with_span(span))
    }

    /// # Safety
    /// As [`Backend::memset_d16`](pagewise_hal::Backend::memset_d16).
    pub(crate) unsafe fn memset_d16(
        &self,
        span: Span,
        value: u16,
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "memset_d16";
        let count = elements(OPERATION, span, 2)?;
        let _stream = self.use_stream(OPERATION, stream)?;
        let set = self.driver.table.memset_d16_async;
        self.context_of(OPERATION, stream)?
            // SAFETY: the caller promised that no other code or work uses the range until the
            // stream has passed the call. The driver checks the range. The stream is live because
            // this call uses it.
            .call(OPERATION, || unsafe { set(span.ptr.0, value, count, handle(stream.as_raw())) })
            .map_err(|error| error.with_span(span))
    }

    /// # Safety
    /// As [`Backend::memset_d32`](pagewise_hal::Backend::memset_d32).
    pub(crate) unsafe fn memset_d32(
        &self,
        span: Span,
        value: u32,
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "memset_d32";
        let count = elements(OPERATION, span, 4)?;
        let _stream = self.use_stream(OPERATION, stream)?;
        let set = self.driver.table.memset_d32_async;
        self.context_of(OPERATION, stream)?
            // SAFETY: the caller promised that no other code or work uses the range until the
            // stream has passed the call. The driver checks the range. The stream is live because
            // this call uses it.
            .call(OPERATION, || unsafe { set(span.ptr.0, value, count, handle(stream.as_raw())) })
            .map_err(|error| error.with_span(span))
    }

    /// # Safety
    /// As [`Backend::memcpy`](pagewise_hal::Backend::memcpy).
    pub(crate) unsafe fn memcpy(
        &self,
        destination: DevicePtr,
        source: DevicePtr,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "memcpy";
        let _stream = self.use_stream(OPERATION, stream)?;
        // SAFETY: the function asks for what `memcpy` asks for, which the caller promised, and for
        // a live stream, which this call uses.
        unsafe { self.copy_one(OPERATION, SpanCopy::new(destination, source, bytes), stream) }
    }

    /// # Safety
    /// As [`Backend::memcpy`](pagewise_hal::Backend::memcpy), and the stream is live.
    unsafe fn copy_one(
        &self,
        operation: &'static str,
        copy: SpanCopy,
        stream: StreamHandle,
    ) -> Result<()> {
        let SpanCopy { destination, source, bytes } = copy;
        let call = self.driver.table.memcpy_async;
        self.context_of(operation, stream)?
            // SAFETY: the caller promised that the ranges do not overlap, that no other code or
            // work uses them until the stream has passed the call, and that the stream is live. The
            // driver checks the ranges.
            .call(operation, || unsafe {
                call(destination.0, source.0, bytes as usize, handle(stream.as_raw()))
            })
            .map_err(|error| error.with_span(copy.to()))
    }

    /// # Safety
    /// As [`Backend::memcpy_batch`](pagewise_hal::Backend::memcpy_batch).
    pub(crate) unsafe fn memcpy_batch(
        &self,
        copies: &[SpanCopy],
        attributes: &[CopyAttributes],
        attribute_starts: &[usize],
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "memcpy_batch";
        check_lists(OPERATION, copies, attributes, attribute_starts, stream)?;
        let (newer, older) =
            (self.driver.table.memcpy_batch, self.driver.table.memcpy_batch_fail_index);
        if newer.is_none() && older.is_none() {
            // SAFETY: the caller promised of all copies what `memcpy` asks for of each.
            return unsafe { self.loop_of_copies(OPERATION, copies, attributes, stream) };
        }
        let _used = self.use_stream(OPERATION, stream)?;
        let context = self.context_of(OPERATION, stream)?;
        let mut lists = Columns {
            destinations: copies.iter().map(|copy| copy.destination.0).collect(),
            sources: copies.iter().map(|copy| copy.source.0).collect(),
            sizes: copies.iter().map(|copy| copy.bytes as usize).collect(),
            attributes: attributes.iter().map(|&one| RawAttributes::from(one)).collect(),
            starts: Column::from_slice(attribute_starts),
        };
        let (to, from, sizes) =
            (lists.destinations.as_mut_ptr(), lists.sources.as_mut_ptr(), lists.sizes.as_mut_ptr());
        let (with, starts, kinds) =
            (lists.attributes.as_mut_ptr(), lists.starts.as_mut_ptr(), lists.starts.len());
        let (count, on) = (copies.len(), handle(stream.as_raw()));
        let mut failed = NO_ITEM;
        let answer = context.call(OPERATION, || match (newer, older) {
            // SAFETY: the driver reads as many items of each array as it is told, which are the
            // arrays' lengths. It checks addresses and hints; orders, flags and starts were checked
            // before. The stream is live because this call uses it. The caller of `memcpy_batch`
            // promised that no other code or work uses the ranges until they are copied.
            (Some(call), _) => unsafe { call(to, from, sizes, count, with, starts, kinds, on) },
            // SAFETY: the driver reads as many items of each array as it is told, which are the
            // arrays' lengths, and writes one number to a local that outlives the call. It checks
            // addresses and hints; orders, flags and starts were checked before. The stream is live
            // because this call uses it. The caller of `memcpy_batch` promised that no other code
            // or work uses the ranges until they are copied.
            (None, Some(call)) => unsafe {
                call(to, from, sizes, count, with, starts, kinds, &raw mut failed, on)
            },
            (None, None) => Code::NOT_SUPPORTED,
        });
        answer.map_err(|error| self.blame_copy(error, copies, failed))
    }

    /// One call for each copy, and a wait if a source was to be read during the call.
    ///
    /// # Safety
    /// As [`Backend::memcpy_batch`](pagewise_hal::Backend::memcpy_batch).
    unsafe fn loop_of_copies(
        &self,
        operation: &'static str,
        copies: &[SpanCopy],
        attributes: &[CopyAttributes],
        stream: StreamHandle,
    ) -> Result<()> {
        let _used = self.use_stream(operation, stream)?;
        for attributes in attributes {
            self.check_hint(operation, attributes.source_hint)?;
            self.check_hint(operation, attributes.destination_hint)?;
        }
        for (item, &copy) in copies.iter().enumerate() {
            if copy.bytes == 0 {
                return refuse(operation, "a copy of a batch has at least 1 byte")
                    .map_err(|error| error.with_item(item).with_span(copy.to()));
            }
            // SAFETY: the caller promised that no other code or work uses the ranges until they
            // are copied, and that no copy writes a range of another. The stream is live because
            // this call uses it.
            let copied = unsafe { self.copy_one(operation, copy, stream) };
            copied.map_err(|error| {
                error.with_item(item).with_detail(format!(
                    "by a loop, because the driver is of CUDA {}: the {item} copies before this \
                     one were submitted, the others were not",
                    self.driver.library.effective
                ))
            })?;
        }
        let during_call = |one: &CopyAttributes| one.source_order == SourceOrder::DURING_CALL;
        if attributes.iter().any(during_call) {
            let waited = self.stream_synchronize(stream);
            waited.map_err(|error| {
                error.with_detail(format!("in {operation}: the copies were submitted"))
            })?;
        }
        Ok(())
    }

    /// The check that the driver's batch call makes of a hint (CONTRACT-106).
    fn check_hint(&self, operation: &'static str, hint: Location) -> Result<()> {
        let exists = match hint.kind {
            LocationKind::DEVICE => {
                u32::try_from(hint.id).is_ok_and(|ordinal| ordinal < self.driver.devices)
            }
            LocationKind(kind) => (0..=4).contains(&kind),
        };
        if exists { Ok(()) } else { refuse(operation, "a hint names no device or known type") }
    }

    /// The first copy of 0 bytes, or with a range that is null or passes the end of an allocation.
    /// Memory that the driver does not know may be the process's own, which it copies too.
    #[cold]
    fn first_wrong(&self, copies: &[SpanCopy]) -> Option<usize> {
        let wrong = |span: Span| {
            let known = self.allocation_at(span.ptr).ok();
            span.bytes == 0
                || span.ptr.is_null()
                || known.is_some_and(|allocation| !allocation.contains(span))
        };
        copies.iter().position(|copy| wrong(copy.to()) || wrong(copy.from()))
    }

    /// Says which copy of a refused batch is wrong, where one is: the one that the driver named, or
    /// the first with a range that no allocation holds.
    #[cold]
    fn blame_copy(&self, error: Error, copies: &[SpanCopy], named: usize) -> Error {
        if error.kind() != ErrorKind::InvalidValue {
            return error;
        }
        let found = copies.get(named).map(|_| named).or_else(|| self.first_wrong(copies));
        match found {
            Some(item) => error
                .with_item(item)
                .with_span(copies[item].to())
                .with_detail("a range is empty, or not within one live allocation"),
            None => error.with_detail("a range is not in live memory, or a hint names no place"),
        }
    }
}

/// The number of elements of a fill. The driver cannot be told of half an element.
fn elements(operation: &'static str, span: Span, width: u64) -> Result<usize> {
    if span.bytes.is_multiple_of(width) {
        return Ok((span.bytes / width) as usize);
    }
    refuse(operation, format!("the length of the fill is no multiple of {width} bytes"))
        .map_err(|error| error.with_span(span))
}
