//! A case in progress: its buffers, streams, events and pools.

use std::collections::BTreeMap;

use pagewise_hal::{
    Backend, DeviceId, DevicePtr, PAGE_BYTES, PoolHandle, Result, Span, StreamFlags, StreamHandle,
};

use super::shared::CaseMemory;
use crate::format::{MAX_MAPPED_BYTES, Observed, Op, PageMap, Part, Stream, Timing};

/// As many pages as the buffer's size has, from the page of its first byte on: the last page of an
/// unaligned buffer may be missing, as it is in recordings. `None` if the back end refuses.
pub(crate) fn page_map_of(backend: &dyn Backend, span: Span) -> Option<PageMap> {
    let runs = backend.host_page_map(span).ok()?;
    let mut left = span.bytes.div_ceil(PAGE_BYTES);
    let cut = runs.into_iter().map_while(|mut run| {
        run.pages = run.pages.min(left);
        left = left.saturating_sub(run.pages);
        (run.pages > 0).then_some(run)
    });
    Some(PageMap::new(cut))
}

/// A case in progress.
pub(super) struct Running<'a> {
    pub(super) backend: &'a dyn Backend,
    pub(super) devices: u32,
    /// Live buffers. Never empty ranges: a pool allocation of 0 bytes is the null address.
    pub(super) buffers: BTreeMap<u32, Span>,
    /// Pools in the order in which the case got them.
    pub(super) pools: Vec<(u32, PoolHandle)>,
    /// Pools that the case made and did not destroy.
    pub(super) made_pools: Vec<PoolHandle>,
    /// The non-blocking stream of each device, once it is needed.
    pub(super) streams: BTreeMap<i32, StreamHandle>,
    pub(super) shared: CaseMemory,
}

impl Running<'_> {
    /// Carries out an operation of a case that began at a moment of the back end's clock.
    pub(super) fn timed(&mut self, op: &Op, case_start_ns: u64, observe_pages: bool) -> Observed {
        let before = self.backend.clock_ns();
        let mut observed = self.call(op);
        let ns = self.backend.clock_ns().saturating_sub(before);
        observed.ns = Some(Timing { min: ns, median: ns, max: ns });
        observed.start_ns = Some(before.saturating_sub(case_start_ns));
        if observe_pages {
            observed.host_mapped = self.host_mapped();
        }
        observed
    }

    pub(super) fn host_mapped(&self) -> BTreeMap<u32, PageMap> {
        let small = self.buffers.iter().filter(|(_, span)| span.bytes <= MAX_MAPPED_BYTES);
        small.filter_map(|(&id, &span)| Some((id, page_map_of(self.backend, span)?))).collect()
    }

    pub(super) fn ptr(&self, buf: u32, offset: u64) -> DevicePtr {
        let buffer = self.buffers.get(&buf).map(|span| span.ptr);
        let start = buffer.or_else(|| self.shared.start(buf));
        start.unwrap_or(DevicePtr::NULL).offset(offset)
    }

    pub(super) fn span(&self, part: Part) -> Span {
        Span::new(self.ptr(part.buf, part.offset), part.bytes)
    }

    /// Whether a range is within the live buffer, or the memory of the process, that it names. An
    /// import is within the buffer that was exported, which is of this case too.
    pub(super) fn holds(&self, part: Part) -> bool {
        let span = self.span(part);
        let within = |known: Span| {
            let ends = known.end().zip(span.end());
            known.ptr <= span.ptr && ends.is_some_and(|(known, end)| end <= known)
        };
        let named = self.buffers.get(&part.buf).copied().or_else(|| self.shared.pages(part.buf));
        match named {
            Some(named) => within(named),
            None => {
                let is_import = self.shared.start(part.buf).is_some();
                is_import && self.buffers.values().copied().any(within)
            }
        }
    }

    /// A range for a call that uses or gives up its contents. An offset in a trace may lead to any
    /// address: a range that is not the case's becomes one at the null address, which every back
    /// end refuses. So no memory outside the case is used by such a call.
    pub(super) fn own_span(&self, part: Part) -> Span {
        if self.holds(part) { self.span(part) } else { Span::new(DevicePtr::NULL, part.bytes) }
    }

    pub(super) fn own_spans(&self, parts: &[Part]) -> Vec<Span> {
        parts.iter().map(|&part| self.own_span(part)).collect()
    }

    pub(super) fn spans(&self, parts: &[Part]) -> Vec<Span> {
        parts.iter().map(|&part| self.span(part)).collect()
    }

    pub(super) fn pool(&self, id: u32) -> PoolHandle {
        let latest = self.pools.iter().rev().find(|(pool, _)| *pool == id);
        latest.map_or(PoolHandle::NULL, |&(_, handle)| handle)
    }

    pub(super) fn stream(&mut self, stream: Option<Stream>) -> Result<StreamHandle> {
        match stream.unwrap_or(Stream::NonBlocking) {
            Stream::Legacy => Ok(StreamHandle::NULL),
            Stream::NonBlocking => self.device_stream(DeviceId(0)),
        }
    }

    pub(super) fn device_stream(&mut self, device: DeviceId) -> Result<StreamHandle> {
        if let Some(&stream) = self.streams.get(&device.0) {
            return Ok(stream);
        }
        let stream = self.backend.stream_create(device, StreamFlags::NON_BLOCKING)?;
        self.streams.insert(device.0, stream);
        Ok(stream)
    }

    /// Makes the stream that the operation needs, so that its time is not the operation's.
    pub(super) fn prepare(&mut self, op: &Op) {
        let device = match op {
            Op::DeviceTouch { device, .. } | Op::KernelAccesses { device, .. } => DeviceId(*device),
            Op::Launch(launch) => DeviceId(launch.device),
            op if op.is_asynchronous() => DeviceId(0),
            _ => return,
        };
        // A failure is the operation's result: it tries again.
        _ = self.device_stream(device);
    }

    pub(super) fn clean_up(&mut self) {
        self.shared.clean_up(self.backend);
        for span in std::mem::take(&mut self.buffers).into_values() {
            // Pinned memory is freed by its own call; any other failure leaves the buffer to the
            // back end, as the recorder left it to the driver.
            // SAFETY: the case allocated the buffer and never gave its address out. Every call of
            // the case was waited for, and the map that held the address is gone.
            unsafe {
                _ = self.backend.free(span.ptr).or_else(|_| self.backend.free_pinned(span.ptr));
            }
        }
        for stream in std::mem::take(&mut self.streams).into_values() {
            // SAFETY: the case made the stream and never gave its handle out, and the map that held
            // the handle is gone.
            _ = unsafe { self.backend.stream_destroy(stream) };
        }
        for pool in std::mem::take(&mut self.made_pools) {
            // SAFETY: the case made or imported the pool. `finish` takes the case by value, so no
            // later operation of it can name the handle.
            _ = unsafe { self.backend.pool_destroy(pool) };
        }
    }
}
