//! Every call of a recorder: passed on to its back end, and noted.

use pagewise_hal::{
    AccessFlags, Advice, AllocationType, AttachFlags, Backend, BestBlock, Capabilities, Code,
    CopyAttributes, DeviceAccess, DeviceAttribute, DeviceId, DevicePtr, DeviceTouch, DriverVersion,
    EventFlags, EventHandle, EventsSince, ExportedPointer, FunctionAttribute, FunctionHandle,
    Granularity, HandleTypes, HostAccess, HostAddresses, HostAllocFlags, HostRegisterFlags,
    HostTouch, HostViews, IpcMemHandle, KernelAccesses, KernelParam, KernelWalk, LaunchShape,
    Location, MemoryAccess, MemoryEvent, MemoryHandle, MemoryInfo, MemoryProps, ModuleHandle,
    PageRun, ParamInfo, PointerAttribute, PoolAttribute, PoolHandle, PoolProps, RangeAttribute,
    RecordedLaunch, Result, ShareableHandle, Span, SpanCopy, StreamFlags, StreamHandle,
};

use super::copies;
use super::ids::{GivenValue, HostMemory};
use super::launches::launch_of;
use super::log::{Log, stream_of};
use super::recorder::Recorder;
use crate::format::{Batch, LocationArg, MAX_SLOTS, Observed, Op, Part, PoolQuery, Walk};
use crate::replay::call::NO_ACCESS_ANSWER;
use crate::replay::code::coded;

fn parts(log: &Log, spans: &[Span]) -> Vec<Part> {
    spans.iter().map(|&span| log.ids.part(span)).collect()
}

fn walk(log: &Log, walk: &KernelWalk) -> Walk {
    let ranges = walk.places.iter().map(|range| (log.ids.part(range.span), range.stride_bytes));
    Walk { access: walk.access, ranges: ranges.collect() }
}

fn batch(
    log: &Log,
    spans: &[Span],
    locations: &[Location],
    starts: &[usize],
    flags: u64,
    stream: StreamHandle,
) -> Batch {
    Batch {
        ranges: parts(log, spans),
        locations: locations.to_vec(),
        location_starts: starts.iter().map(|&start| start as u64).collect(),
        flags,
        stream: stream_of(stream),
    }
}

/// Whether memory of the process has a byte that is not zero.
///
/// # Safety
/// The memory is live and readable by the host.
unsafe fn holds_something(span: Span) -> bool {
    let start = std::ptr::with_exposed_provenance::<u8>(span.ptr.0 as usize);
    // SAFETY: the caller promised that every byte of the span is readable. The reads are volatile
    // and make no reference, because other threads may know the memory.
    (0..span.bytes as usize).any(|byte| unsafe { start.add(byte).read_volatile() } != 0)
}

// SAFETY: addresses and descriptors are passed on as the inner back end gave them, and that back
// end made the promise. The recorder adds only waits and reads of attributes, page tables and
// records, none of which change contents. It owns the back end, which so lives as long, and
// `into_inner` consumes it.
unsafe impl<B: Backend> HostAddresses for Recorder<B> {
    fn host_views(&self) -> HostViews {
        self.inner.host_views()
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        self.inner.kernel_address(ptr)
    }
}

// Every `unsafe` call below goes on unchanged, once, before the method returns, so each comment
// names the promise that the caller made. The recorder keeps that promise too: between calls it
// only asks for attributes and page tables, which use no contents, and it gives no handle or
// address out.
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for Recorder<B> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn driver_version(&self) -> Result<DriverVersion> {
        self.inner.driver_version()
    }

    fn device_count(&self) -> Result<u32> {
        self.inner.device_count()
    }

    fn device_attribute(&self, device: DeviceId, attribute: DeviceAttribute) -> Result<i32> {
        self.inner.device_attribute(device, attribute)
    }

    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool> {
        self.inner.can_access_peer(device, peer)
    }

    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        self.inner.memory_info(device)
    }

    // ---- allocation ---------------------------------------------------------------------------

    fn alloc_managed(&self, bytes: u64, flags: AttachFlags) -> Result<DevicePtr> {
        let op = |buf| Op::AllocManaged { buf, bytes, attach_flags: flags.bits() };
        self.allocate(bytes, op, |inner| inner.alloc_managed(bytes, flags))
    }

    fn alloc_device(&self, device: DeviceId, bytes: u64) -> Result<DevicePtr> {
        let op = |buf| Op::AllocDevice { buf, bytes, device: device.0 };
        self.allocate(bytes, op, |inner| inner.alloc_device(device, bytes))
    }

    fn alloc_pinned(&self, bytes: u64, flags: HostAllocFlags) -> Result<DevicePtr> {
        let op = |buf| Op::AllocPinned { buf, bytes, flags: flags.bits() };
        self.allocate(bytes, op, |inner| inner.alloc_pinned(bytes, flags))
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the inner call asks that no code or work uses the allocation during or after it;
        // the caller of this method promised that.
        self.release(ptr, |buf| Op::Free { buf }, |inner| unsafe { inner.free(ptr) })
    }

    unsafe fn free_pinned(&self, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the inner call asks that no code or work uses the allocation during or after it;
        // the caller of this method promised that.
        self.release(ptr, |buf| Op::FreePinned { buf }, |inner| unsafe { inner.free_pinned(ptr) })
    }

    // ---- advice and movement ------------------------------------------------------------------

    fn advise_ordinal(&self, span: Span, advice: Advice, ordinal: i32) -> Result<()> {
        let arg = LocationArg::Ordinal(ordinal);
        self.plain(
            |log| Op::Advise { part: log.ids.part(span), advice, location: arg },
            |inner| inner.advise_ordinal(span, advice, ordinal),
        )
    }

    fn advise(&self, span: Span, advice: Advice, location: Location) -> Result<()> {
        let arg = LocationArg::Location(location);
        self.plain(
            |log| Op::Advise { part: log.ids.part(span), advice, location: arg },
            |inner| inner.advise(span, advice, location),
        )
    }

    fn prefetch_ordinal(&self, span: Span, ordinal: i32, stream: StreamHandle) -> Result<()> {
        let arg = LocationArg::Ordinal(ordinal);
        self.streamed(
            stream,
            |log| Op::Prefetch { part: log.ids.part(span), location: arg, flags: None },
            |inner| inner.prefetch_ordinal(span, ordinal, stream),
        )
    }

    fn prefetch(
        &self,
        span: Span,
        location: Location,
        flags: u32,
        stream: StreamHandle,
    ) -> Result<()> {
        let arg = LocationArg::Location(location);
        self.streamed(
            stream,
            |log| Op::Prefetch { part: log.ids.part(span), location: arg, flags: Some(flags) },
            |inner| inner.prefetch(span, location, flags, stream),
        )
    }

    fn prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        self.streamed(
            stream,
            |log| {
                let batch = batch(log, spans, locations, location_starts, flags, stream);
                Op::PrefetchBatch(batch)
            },
            |inner| inner.prefetch_batch(spans, locations, location_starts, flags, stream),
        )
    }

    unsafe fn discard_batch(&self, spans: &[Span], flags: u64, stream: StreamHandle) -> Result<()> {
        self.streamed(
            stream,
            |log| Op::DiscardBatch { ranges: parts(log, spans), flags, stream: stream_of(stream) },
            // SAFETY: the inner call asks that no code or work uses the ranges while they are
            // discarded, nor reads them until they are written; the caller of this method promised
            // that.
            |inner| unsafe { inner.discard_batch(spans, flags, stream) },
        )
    }

    unsafe fn discard_prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        self.streamed(
            stream,
            |log| {
                let batch = batch(log, spans, locations, location_starts, flags, stream);
                Op::DiscardPrefetchBatch(batch)
            },
            // SAFETY: the inner call asks that no code or work uses the ranges while they are
            // discarded, nor reads them until they are written; the caller of this method promised
            // that.
            |inner| unsafe {
                inner.discard_prefetch_batch(spans, locations, location_starts, flags, stream)
            },
        )
    }

    // ---- attributes ---------------------------------------------------------------------------

    fn range_attribute(&self, span: Span, attribute: RangeAttribute) -> Result<i32> {
        let mut log = self.locked();
        let (answer, ns) = self.timed(|inner| inner.range_attribute(span, attribute));
        log.range_attribute(&self.inner, span, attribute, &answer, ns);
        answer
    }

    fn range_accessed_by(&self, span: Span, out: &mut [i32]) -> Result<()> {
        let mut log = self.locked();
        let (answer, ns) = self.timed(|inner| inner.range_accessed_by(span, out));
        let usual = (self.devices as usize).saturating_add(1);
        let slots = u32::try_from(out.len()).ok().filter(|&slots| slots <= MAX_SLOTS);
        let list = match slots {
            Some(_) => answer.clone().map(|()| out.to_vec()),
            // A trace holds no list as long as this one: it gets the usual length.
            None => {
                let mut list = vec![0; usual];
                self.inner.range_accessed_by(span, &mut list).map(|()| list)
            }
        };
        let slots = slots.filter(|&slots| slots as usize != usual);
        log.range_accessed_by(&self.inner, (span, slots), list, ns);
        answer
    }

    fn pointer_attribute(&self, ptr: DevicePtr, attribute: PointerAttribute) -> Result<u64> {
        let mut log = self.locked();
        let (answer, ns) = self.timed(|inner| inner.pointer_attribute(ptr, attribute));
        log.pointer_attribute(&self.inner, ptr, attribute, &answer, ns);
        answer
    }

    // ---- pools --------------------------------------------------------------------------------

    fn pool_create(&self, props: PoolProps) -> Result<PoolHandle> {
        let op = |pool| Op::PoolCreate {
            pool,
            kind: props.allocation_type,
            location: props.location,
            handle_types: props.handle_types.bits(),
            max_bytes: props.max_bytes,
        };
        self.find_pool(op, |inner| inner.pool_create(props))
    }

    unsafe fn pool_destroy(&self, pool: PoolHandle) -> Result<()> {
        let op = |pool| Op::PoolDestroy { pool };
        // SAFETY: the inner call asks that the handle is not used again. The caller of this method
        // promised that, and `forget_pool` drops the copy in the log.
        let answer = self.on_pool(pool, op, |inner| unsafe { inner.pool_destroy(pool) }, coded);
        if answer.is_ok() {
            self.locked().ids.forget_pool(pool);
        }
        answer
    }

    fn pool_default(&self, location: Location, kind: AllocationType) -> Result<PoolHandle> {
        let op = |pool| Op::PoolGetDefault(PoolQuery { pool, location, kind });
        self.find_pool(op, |inner| inner.pool_default(location, kind))
    }

    fn pool_current(&self, location: Location, kind: AllocationType) -> Result<PoolHandle> {
        let op = |pool| Op::PoolGetCurrent(PoolQuery { pool, location, kind });
        self.find_pool(op, |inner| inner.pool_current(location, kind))
    }

    fn pool_set_current(
        &self,
        location: Location,
        kind: AllocationType,
        pool: PoolHandle,
    ) -> Result<()> {
        let op = |pool| Op::PoolSetCurrent(PoolQuery { pool, location, kind });
        self.on_pool(pool, op, |inner| inner.pool_set_current(location, kind, pool), coded)
    }

    fn pool_attribute(&self, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64> {
        let mut log = self.locked();
        let (answer, ns) = self.timed(|inner| inner.pool_attribute(pool, attribute));
        log.pool_attribute(&self.inner, pool, attribute, &answer, ns);
        answer
    }

    fn pool_set_attribute(
        &self,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()> {
        let op = |pool| Op::PoolSetAttribute { pool, attribute: attribute.0, value };
        self.on_pool(pool, op, |inner| inner.pool_set_attribute(pool, attribute, value), coded)
    }

    fn pool_trim(&self, pool: PoolHandle, min_bytes_to_keep: u64) -> Result<()> {
        let op = |pool| Op::PoolTrimTo { pool, bytes: min_bytes_to_keep };
        self.on_pool(pool, op, |inner| inner.pool_trim(pool, min_bytes_to_keep), coded)
    }

    fn pool_set_access(
        &self,
        pool: PoolHandle,
        location: Location,
        access: AccessFlags,
    ) -> Result<()> {
        let op = |pool| Op::PoolSetAccess { pool, location, access: access.0 };
        self.on_pool(pool, op, |inner| inner.pool_set_access(pool, location, access), coded)
    }

    fn pool_access(&self, pool: PoolHandle, location: Location) -> Result<AccessFlags> {
        let op = |pool| Op::PoolGetAccess { pool, location };
        let observe = |answer: &Result<AccessFlags>| {
            let flags = answer.as_ref().map_or(NO_ACCESS_ANSWER, |access| access.0);
            Observed { access_flags: Some(flags), ..coded(answer) }
        };
        self.on_pool(pool, op, |inner| inner.pool_access(pool, location), observe)
    }

    fn pool_alloc(&self, pool: PoolHandle, bytes: u64, stream: StreamHandle) -> Result<DevicePtr> {
        let mut log = self.next_call();
        let Some(id) = log.ids.pool(pool) else {
            return self.left(&mut log, |inner| inner.pool_alloc(pool, bytes, stream));
        };
        let buf = log.ids.next_buffer();
        let call = |inner: &B| inner.pool_alloc(pool, bytes, stream);
        let (answer, observed, ns) = self.waited(stream, call);
        if let Ok(ptr) = answer {
            log.ids.allocated(buf, Span::new(ptr, bytes));
        }
        log.note(&self.inner, Op::PoolAlloc { buf, pool: id, bytes }, observed, ns);
        answer
    }

    unsafe fn free_async(&self, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        // SAFETY: the inner call asks that no work uses the memory that comes later in the stream
        // or is unordered with it; the caller of this method promised that.
        let call = |inner: &B| unsafe { inner.free_async(ptr, stream) };
        let mut log = self.next_call();
        // An import is freed before what it is of.
        let import = log.ids.import_at(ptr);
        let Some(buf) = import.or_else(|| log.ids.starting_at(ptr)) else {
            return self.left(&mut log, call);
        };
        let (answer, observed, ns) = self.waited(stream, call);
        match import {
            _ if answer.is_err() => {}
            Some(_) => log.ids.forget_import(ptr),
            None => log.ids.forget(ptr),
        }
        log.note(&self.inner, Op::PoolFree { buf }, observed, ns);
        answer
    }

    // ---- other processes ----------------------------------------------------------------------

    unsafe fn host_register(&self, span: Span, flags: HostRegisterFlags) -> Result<()> {
        // SAFETY: the inner call asks that the memory is live and stays so until it is
        // unregistered; the caller of this method promised that.
        let call = |inner: &B| unsafe { inner.host_register(span, flags) };
        let mut log = self.next_call();
        let mut is_new = false;
        match log.ids.host_memory(span) {
            HostMemory::Known => {}
            HostMemory::New(pages) => {
                is_new = true;
                let buf = log.ids.next_buffer();
                log.ids.host_found(buf, pages);
                let op = Op::HostMemory { buf, bytes: pages.bytes };
                log.note(&self.inner, op, Observed::default(), 0);
            }
            HostMemory::InPart => return self.left(&mut log, call),
        }
        let op = Op::HostRegister { part: log.ids.part(span), flags: flags.bits() };
        let (answer, ns) = self.timed(call);
        if answer.is_ok() {
            log.ids.registered(span.ptr);
            let is_memory = self.inner.host_views() != HostViews::Absent;
            // SAFETY: the span has to be readable. The caller of this method promised that it is
            // live memory, and the back end, which gives the host's addresses, took it.
            if is_new && is_memory && unsafe { holds_something(span) } {
                log.leave_out(); // A trace has no contents, and a replay begins with zeros.
            }
        }
        log.note(&self.inner, op, coded(&answer), ns);
        answer
    }

    unsafe fn host_unregister(&self, ptr: DevicePtr) -> Result<()> {
        let mut log = self.next_call();
        let Part { buf, offset, .. } = log.ids.part(Span::new(ptr, 0));
        // SAFETY: the inner call asks that no device uses the memory during or after it; the caller
        // of this method promised that.
        let (answer, ns) = self.timed(|inner| unsafe { inner.host_unregister(ptr) });
        if answer.is_ok() && !log.ids.unregistered(ptr) {
            log.leave_out(); // It was registered before the case.
            return answer;
        }
        log.note(&self.inner, Op::HostUnregister { buf, offset }, coded(&answer), ns);
        answer
    }

    fn pool_export(&self, pool: PoolHandle, kind: HandleTypes) -> Result<ShareableHandle> {
        let handle_types = kind.bits();
        self.share(
            |log, share| {
                let pool = log.ids.pool(pool)?;
                Some(Op::PoolExport { pool, share, handle_types })
            },
            |inner| inner.pool_export(pool, kind),
            GivenValue::Pool,
        )
    }

    unsafe fn pool_import(&self, handle: ShareableHandle, kind: HandleTypes) -> Result<PoolHandle> {
        self.take(
            GivenValue::Pool(handle),
            |log, answer, share| {
                let pool = log.ids.next_pool();
                let mut observed = coded(answer);
                let found = answer.as_ref().ok();
                observed.same_as = found.map(|&handle| log.ids.pool_found(pool, handle));
                Some((Op::PoolImport { pool, share, handle_types: kind.bits() }, observed))
            },
            // SAFETY: the inner call asks for a handle of another process, unless the back end
            // takes its own; the caller of this method promised that.
            |inner| unsafe { inner.pool_import(handle, kind) },
        )
    }

    fn pool_export_pointer(&self, ptr: DevicePtr) -> Result<ExportedPointer> {
        self.share(
            |log, share| {
                let Part { buf, offset, .. } = log.ids.part(Span::new(ptr, 0));
                Some(Op::PoolExportPointer { buf, offset, share })
            },
            |inner| inner.pool_export_pointer(ptr),
            GivenValue::Pointer,
        )
    }

    unsafe fn pool_import_pointer(
        &self,
        pool: PoolHandle,
        exported: ExportedPointer,
    ) -> Result<DevicePtr> {
        self.take(
            GivenValue::Pointer(exported),
            |log, answer, share| {
                let pool = log.ids.pool(pool)?;
                let buf = log.imported(answer);
                Some((Op::PoolImportPointer { buf, pool, share }, coded(answer)))
            },
            // SAFETY: the inner call asks that the exporter's allocation has completed and is freed
            // after this one; the caller of this method promised that.
            |inner| unsafe { inner.pool_import_pointer(pool, exported) },
        )
    }

    fn ipc_mem_handle(&self, ptr: DevicePtr) -> Result<IpcMemHandle> {
        self.share(
            |log, share| {
                let Part { buf, offset, .. } = log.ids.part(Span::new(ptr, 0));
                Some(Op::IpcMemHandle { buf, offset, share })
            },
            |inner| inner.ipc_mem_handle(ptr),
            GivenValue::Memory,
        )
    }

    unsafe fn ipc_open_mem_handle(
        &self,
        device: DeviceId,
        handle: IpcMemHandle,
    ) -> Result<DevicePtr> {
        self.take(
            GivenValue::Memory(handle),
            |log, answer, share| {
                let buf = log.imported(answer);
                Some((Op::IpcOpenMemHandle { buf, device: device.0, share }, coded(answer)))
            },
            // SAFETY: the inner call asks that the exporter frees the memory after it was closed
            // here; the caller of this method promised that.
            |inner| unsafe { inner.ipc_open_mem_handle(device, handle) },
        )
    }

    unsafe fn ipc_close_mem_handle(&self, ptr: DevicePtr) -> Result<()> {
        let mut log = self.next_call();
        let import = log.ids.import_at(ptr);
        let (buf, offset) = import.map_or_else(
            || {
                let Part { buf, offset, .. } = log.ids.part(Span::new(ptr, 0));
                (buf, offset)
            },
            |buf| (buf, 0),
        );
        // SAFETY: the inner call asks that no code or work uses the memory during or after it; the
        // caller of this method promised that.
        let (answer, ns) = self.timed(|inner| unsafe { inner.ipc_close_mem_handle(ptr) });
        if answer.is_ok() {
            log.ids.forget_import(ptr);
            if import.is_none() {
                log.leave_out(); // It was opened before the case, or is another process's.
                return answer;
            }
        }
        log.note(&self.inner, Op::IpcCloseMemHandle { buf, offset }, coded(&answer), ns);
        answer
    }

    // ---- virtual memory management ------------------------------------------------------------

    // A trace holds neither reservations nor physical memory.

    fn memory_granularity(&self, props: MemoryProps, which: Granularity) -> Result<u64> {
        self.inner.memory_granularity(props, which)
    }

    fn address_reserve(&self, bytes: u64, align_bytes: u64, hint: DevicePtr) -> Result<DevicePtr> {
        self.unnoted(|inner| inner.address_reserve(bytes, align_bytes, hint))
    }

    unsafe fn address_free(&self, span: Span) -> Result<()> {
        // SAFETY: the inner call asks that no code uses the addresses from now on; the caller of
        // this method promised that.
        self.unnoted(|inner| unsafe { inner.address_free(span) })
    }

    fn memory_create(&self, bytes: u64, props: MemoryProps) -> Result<MemoryHandle> {
        self.unnoted(|inner| inner.memory_create(bytes, props))
    }

    unsafe fn memory_release(&self, memory: MemoryHandle) -> Result<()> {
        // SAFETY: the inner call asks that the handle is not used again; the caller of this method
        // promised that, and the log keeps no handle of memory.
        self.unnoted(|inner| unsafe { inner.memory_release(memory) })
    }

    unsafe fn memory_map(&self, span: Span, offset_bytes: u64, memory: MemoryHandle) -> Result<()> {
        // SAFETY: the inner call asks that no code counts on having the memory alone if it is
        // mapped elsewhere; the caller of this method promised that.
        self.unnoted(|inner| unsafe { inner.memory_map(span, offset_bytes, memory) })
    }

    unsafe fn memory_unmap(&self, span: Span) -> Result<()> {
        // SAFETY: the inner call asks that no code or work uses the range during or after it; the
        // caller of this method promised that.
        self.unnoted(|inner| unsafe { inner.memory_unmap(span) })
    }

    unsafe fn memory_set_access(&self, span: Span, wanted: &[MemoryAccess]) -> Result<()> {
        // SAFETY: the inner call asks that no code loses access to memory that it uses; the caller
        // of this method promised that.
        self.unnoted(|inner| unsafe { inner.memory_set_access(span, wanted) })
    }

    fn memory_access(&self, ptr: DevicePtr, location: Location) -> Result<AccessFlags> {
        self.inner.memory_access(ptr, location)
    }

    // ---- streams and events -------------------------------------------------------------------

    fn stream_create(&self, device: DeviceId, flags: StreamFlags) -> Result<StreamHandle> {
        self.inner.stream_create(device, flags)
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        // SAFETY: the inner call asks that the handle is not used again. The caller of this method
        // promised that, and the log keeps no handle of a stream.
        unsafe { self.inner.stream_destroy(stream) }
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.inner.stream_synchronize(stream)
    }

    fn stream_wait_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.inner.stream_wait_event(stream, event)
    }

    unsafe fn stream_attach(
        &self,
        stream: StreamHandle,
        span: Span,
        flags: AttachFlags,
    ) -> Result<()> {
        self.streamed(
            stream,
            |log| Op::StreamAttach {
                part: log.ids.part(span),
                flags: flags.bits(),
                stream: Some(stream_of(stream)),
            },
            // SAFETY: the inner call asks that the memory is accessed only as the attachment
            // allows, on machines that ask for that; the caller of this method promised that.
            |inner| unsafe { inner.stream_attach(stream, span, flags) },
        )
    }

    fn event_create(&self, device: DeviceId, flags: EventFlags) -> Result<EventHandle> {
        self.inner.event_create(device, flags)
    }

    unsafe fn event_destroy(&self, event: EventHandle) -> Result<()> {
        // SAFETY: the inner call asks that the handle is not used again. The caller of this method
        // promised that, and the log keeps no handle of an event.
        unsafe { self.inner.event_destroy(event) }
    }

    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.inner.event_record(event, stream)
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        self.inner.event_query(event)
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.inner.event_synchronize(event)
    }

    fn event_elapsed_ns(&self, start: EventHandle, end: EventHandle) -> Result<u64> {
        self.inner.event_elapsed_ns(start, end)
    }

    // ---- contents -----------------------------------------------------------------------------

    unsafe fn memset(&self, span: Span, value: u8, stream: StreamHandle) -> Result<()> {
        // SAFETY: the inner call asks that no other code or work uses the range until the stream
        // has passed the call; the caller of this method promised that.
        let call = |inner: &B| unsafe { inner.memset(span, value, stream) };
        let op = |part, stream| Op::Memset { part, value, stream };
        self.filled(span, stream, op, call)
    }

    unsafe fn memset_d16(&self, span: Span, value: u16, stream: StreamHandle) -> Result<()> {
        // SAFETY: the inner call asks that no other code or work uses the range until the stream
        // has passed the call; the caller of this method promised that.
        let call = |inner: &B| unsafe { inner.memset_d16(span, value, stream) };
        let op = |part, stream| Op::MemsetD16 { part, value, stream };
        self.filled(span, stream, op, call)
    }

    unsafe fn memset_d32(&self, span: Span, value: u32, stream: StreamHandle) -> Result<()> {
        // SAFETY: the inner call asks that no other code or work uses the range until the stream
        // has passed the call; the caller of this method promised that.
        let call = |inner: &B| unsafe { inner.memset_d32(span, value, stream) };
        let op = |part, stream| Op::MemsetD32 { part, value, stream };
        self.filled(span, stream, op, call)
    }

    unsafe fn memcpy(
        &self,
        destination: DevicePtr,
        source: DevicePtr,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        // SAFETY: the inner call asks that the ranges do not overlap, and that no other code or
        // work writes either or reads the destination until the stream has passed the call; the
        // caller of this method promised that.
        let call = |inner: &B| unsafe { inner.memcpy(destination, source, bytes, stream) };
        let copy = SpanCopy::new(destination, source, bytes);
        self.copied(&[copy], stream, |parts| copies::single(&parts, stream), call)
    }

    unsafe fn memcpy_batch(
        &self,
        copies: &[SpanCopy],
        attributes: &[CopyAttributes],
        attribute_starts: &[usize],
        stream: StreamHandle,
    ) -> Result<()> {
        let op = |parts| copies::batch(parts, attributes, attribute_starts, stream);
        self.copied(copies, stream, op, |inner| {
            // SAFETY: the inner call asks that ranges that are written overlap no others, and that
            // no other code or work uses them until they are copied; the caller of this method
            // promised that.
            unsafe { inner.memcpy_batch(copies, attributes, attribute_starts, stream) }
        })
    }

    unsafe fn host_touch(&self, touch: HostTouch) -> Result<u64> {
        let HostTouch { span, stride_bytes: stride, access } = touch;
        let mut log = self.next_call();
        let part = log.ids.part(span);
        // SAFETY: the inner call asks that no other code uses the range meanwhile; the caller of
        // this method promised that.
        let (answer, ns) = self.timed(|inner| unsafe { inner.host_touch(touch) });
        let value = match access {
            HostAccess::Read => None,
            HostAccess::Write(value) => Some(value),
        };
        let sum = answer.as_ref().ok().copied().filter(|_| value.is_none());
        let observed = Observed { sum, ..coded(&answer) };
        log.note(&self.inner, Op::HostTouch { part, stride, access, value }, observed, ns);
        answer
    }

    unsafe fn device_touch(&self, touch: DeviceTouch, stream: StreamHandle) -> Result<u64> {
        let DeviceTouch { device, span, stride_bytes: stride, access, blocks, threads } = touch;
        let value = match access {
            DeviceAccess::Write(value) => Some(value),
            _ => None,
        };
        self.streamed(
            stream,
            |log| {
                let (device, part) = (device.0, log.ids.part(span));
                Op::DeviceTouch { device, part, stride, access, value, blocks, threads }
            },
            // SAFETY: the inner call asks that no other code uses the range meanwhile; the caller
            // of this method promised that.
            |inner| unsafe { inner.device_touch(touch, stream) },
        )
    }

    // ---- kernels ------------------------------------------------------------------------------

    unsafe fn kernel_accesses(&self, kernel: &KernelAccesses, stream: StreamHandle) -> Result<()> {
        self.streamed(
            stream,
            |log| Op::KernelAccesses {
                device: kernel.device.0,
                blocks: kernel.blocks,
                threads: kernel.threads,
                walks: kernel.walks.iter().map(|noted| walk(log, noted)).collect(),
            },
            // SAFETY: the inner call asks that no other code uses the ranges meanwhile; the caller
            // of this method promised that.
            |inner| unsafe { inner.kernel_accesses(kernel, stream) },
        )
    }

    unsafe fn launch_recorded(&self, launch: &RecordedLaunch, stream: StreamHandle) -> Result<()> {
        self.streamed(
            stream,
            |log| Op::Launch(Box::new(launch_of(log, launch, stream))),
            // SAFETY: the inner call asks that no other code uses the ranges meanwhile; the caller
            // of this method promised that.
            |inner| unsafe { inner.launch_recorded(launch, stream) },
        )
    }

    unsafe fn module_load(&self, device: DeviceId, image: &[u8]) -> Result<ModuleHandle> {
        // SAFETY: the inner call asks that an image which is no text is whole; the caller of this
        // method promised that.
        unsafe { self.inner.module_load(device, image) }
    }

    unsafe fn module_unload(&self, module: ModuleHandle) -> Result<()> {
        // SAFETY: the inner call asks that no kernel of the module runs. The caller of this method
        // promised that, and the log keeps no handle of a module.
        unsafe { self.inner.module_unload(module) }
    }

    fn module_function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle> {
        self.inner.module_function(module, name)
    }

    fn module_global(&self, module: ModuleHandle, name: &str) -> Result<Span> {
        self.inner.module_global(module, name)
    }

    fn function_params(&self, function: FunctionHandle) -> Result<Vec<ParamInfo>> {
        self.inner.function_params(function)
    }

    fn function_attribute(
        &self,
        function: FunctionHandle,
        attribute: FunctionAttribute,
    ) -> Result<i32> {
        self.inner.function_attribute(function, attribute)
    }

    fn function_set_attribute(
        &self,
        function: FunctionHandle,
        attribute: FunctionAttribute,
        value: i32,
    ) -> Result<()> {
        self.inner.function_set_attribute(function, attribute, value)
    }

    fn occupancy_blocks(
        &self,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        self.inner.occupancy_blocks(function, block_threads, shared_bytes)
    }

    fn occupancy_best_block(
        &self,
        function: FunctionHandle,
        shared_bytes: u32,
        threads_max: u32,
    ) -> Result<BestBlock> {
        self.inner.occupancy_best_block(function, shared_bytes, threads_max)
    }

    unsafe fn launch(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        stream: StreamHandle,
    ) -> Result<()> {
        if self.inner.capabilities().traced_launches {
            // SAFETY: the caller of this method promised what the other one asks for.
            return unsafe { self.launch_traced(function, shape, params, stream) }.map(drop);
        }
        let mut log = self.next_call();
        // SAFETY: the inner call asks that the parameters are the kernel's and that it may use the
        // memory that it uses; the caller of this method promised that.
        let answer = unsafe { self.inner.launch(function, shape, params, stream) };
        if answer.is_ok() {
            // A kernel does not say what it accesses.
            log.leave_out();
        }
        answer
    }

    unsafe fn launch_traced(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        stream: StreamHandle,
    ) -> Result<RecordedLaunch> {
        self.launch_observed(stream, |inner| {
            // SAFETY: as for `launch`, by the caller's promise.
            let launch = unsafe { inner.launch_traced(function, shape, params, stream) }?;
            Ok((launch.clone(), launch))
        })
    }

    // ---- observation --------------------------------------------------------------------------

    fn host_page_map(&self, span: Span) -> Result<Vec<PageRun>> {
        self.inner.host_page_map(span)
    }

    fn take_events(&self) -> Result<Vec<MemoryEvent>> {
        self.locked().before_take(&self.inner);
        self.inner.take_events()
    }

    fn events_since(&self, position: u64) -> Result<EventsSince> {
        self.inner.events_since(position)
    }

    fn clock_ns(&self) -> u64 {
        self.inner.clock_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        let mut log = self.next_call();
        let ms = duration_ns / 1_000_000;
        if ms == 0 {
            return self.left(&mut log, |inner| inner.sleep_ns(duration_ns));
        }
        let ((), ns) = self.timed(|inner| inner.sleep_ns(duration_ns));
        let observed = Observed { code: Code::SUCCESS, ..Observed::default() };
        log.note(&self.inner, Op::Sleep { ms }, observed, ns);
    }
}
