//! The calls of the driver.
//!
//! A call is: the context, the driver's function, its number. Where the driver checks, it checks;
//! the checks made here are those that it leaves out, those of entry points that the version in
//! use does not have, and those that keep wrong values from becoming undefined behaviour.

use pagewise_hal::{
    AccessFlags, Advice, AllocationType, AttachFlags, Code, DeviceAttribute, DeviceId, DevicePtr,
    DeviceTouch, DriverVersion, Error, ErrorKind, EventFlags, EventHandle, EventsSince,
    HostAllocFlags, HostTouch, Location, MemoryEvent, MemoryInfo, PageRun, PointerAttribute,
    PoolHandle, RangeAttribute, Result, Span, StreamFlags, StreamHandle,
};

use crate::abi::{AccessDesc, handle};
use crate::backend::CudaBackend;
use crate::batches::Moves;
use crate::observe::ObserverLog;

#[cold]
fn invalid<T>(operation: &'static str, why: &'static str) -> Result<T> {
    Err(Error::from_code(operation, Code::INVALID_VALUE).with_detail(why))
}

impl CudaBackend {
    pub(crate) fn driver_version(&self) -> Result<DriverVersion> {
        Ok(self.driver.library.version)
    }

    pub(crate) fn device_count(&self) -> Result<u32> {
        Ok(self.driver.devices)
    }

    pub(crate) fn device_attribute(
        &self,
        device: DeviceId,
        attribute: DeviceAttribute,
    ) -> Result<i32> {
        const OPERATION: &str = "device_attribute";
        self.check_device(OPERATION, device)?;
        let since = match attribute {
            DeviceAttribute::HOST_NUMA_ID => DriverVersion::CUDA_12_2,
            DeviceAttribute::HOST_NUMA_MEMORY_POOLS_SUPPORTED => DriverVersion::CUDA_12_9,
            DeviceAttribute::HOST_MEMORY_POOLS_SUPPORTED => DriverVersion::CUDA_13_0,
            _ => DriverVersion::CUDA_12_0,
        };
        if !self.driver.has(since) {
            return invalid(OPERATION, "the version in use does not know the device attribute");
        }
        let mut value = 0;
        let get = self.driver.table.device_get_attribute;
        // SAFETY: the driver checks attribute and device, and writes one `int` to a local that
        // outlives the call.
        let code = unsafe { get(&raw mut value, attribute.0, device.0) };
        self.driver.check(OPERATION, code).map(|()| value)
    }

    pub(crate) fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool> {
        const OPERATION: &str = "can_access_peer";
        self.check_device(OPERATION, device)?;
        self.check_device(OPERATION, peer)?;
        let mut can = 0;
        let ask = self.driver.table.device_can_access_peer;
        // SAFETY: both devices were checked above, and the driver writes one `int` to a local that
        // outlives the call.
        let code = unsafe { ask(&raw mut can, device.0, peer.0) };
        self.driver.check(OPERATION, code).map(|()| can != 0)
    }

    pub(crate) fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        const OPERATION: &str = "memory_info";
        let (mut free, mut total) = (0, 0);
        let get = self.driver.table.mem_get_info;
        let context = &self.device(OPERATION, device)?.context;
        // SAFETY: the driver writes two sizes, each to a local that outlives the call.
        context.call(OPERATION, || unsafe { get(&raw mut free, &raw mut total) })?;
        Ok(MemoryInfo { free_bytes: free as u64, total_bytes: total as u64 })
    }

    pub(crate) fn alloc_managed(&self, bytes: u64, flags: AttachFlags) -> Result<DevicePtr> {
        let mut ptr = 0;
        let alloc = self.driver.table.mem_alloc_managed;
        // SAFETY: the driver checks size and flags, and writes the address to a local that outlives
        // the call.
        self.home.context.call("alloc_managed", || unsafe {
            alloc(&raw mut ptr, bytes as usize, flags.bits())
        })?;
        Ok(DevicePtr(ptr))
    }

    pub(crate) fn alloc_device(&self, device: DeviceId, bytes: u64) -> Result<DevicePtr> {
        const OPERATION: &str = "alloc_device";
        let mut ptr = 0;
        let alloc = self.driver.table.mem_alloc;
        let context = &self.device(OPERATION, device)?.context;
        // SAFETY: the driver checks the size, and writes the address to a local that outlives the
        // call.
        context.call(OPERATION, || unsafe { alloc(&raw mut ptr, bytes as usize) })?;
        Ok(DevicePtr(ptr))
    }

    pub(crate) fn alloc_pinned(&self, bytes: u64, flags: HostAllocFlags) -> Result<DevicePtr> {
        let mut ptr = std::ptr::null_mut();
        let alloc = self.driver.table.mem_host_alloc;
        // SAFETY: the driver checks size and flags, and writes the address to a local that outlives
        // the call.
        self.home.context.call("alloc_pinned", || unsafe {
            alloc(&raw mut ptr, bytes as usize, flags.bits())
        })?;
        Ok(DevicePtr(ptr.expose_provenance() as u64))
    }

    /// # Safety
    /// As [`Backend::free`](pagewise_hal::Backend::free).
    pub(crate) unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = self.driver.table.mem_free;
        // SAFETY: the caller promised that no code and no work uses the memory any more. The driver
        // refuses an address that is not the start of a live allocation.
        self.home.context.call("free", || unsafe { free(ptr.0) })
    }

    /// # Safety
    /// As [`Backend::free_pinned`](pagewise_hal::Backend::free_pinned).
    pub(crate) unsafe fn free_pinned(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = self.driver.table.mem_free_host;
        // SAFETY: the caller promised that no code and no work uses the memory any more. The driver
        // refuses an address that is not the start of a live allocation.
        self.home.context.call("free_pinned", || unsafe { free(handle(ptr.0)) })
    }

    pub(crate) fn advise_ordinal(&self, span: Span, advice: Advice, ordinal: i32) -> Result<()> {
        let advise = self.driver.table.mem_advise_ordinal;
        self.home
            .context
            // SAFETY: the driver takes numbers, and checks that the range is managed memory before
            // it does anything. Advice leaves the contents as they are.
            .call("advise_ordinal", || unsafe {
                advise(span.ptr.0, span.bytes as usize, advice.0, ordinal)
            })
            .map_err(|error| self.about(error, span))
    }

    pub(crate) fn advise(&self, span: Span, advice: Advice, location: Location) -> Result<()> {
        const OPERATION: &str = "advise";
        let Some(advise) = self.driver.table.mem_advise else {
            return Err(self.no_locations(OPERATION, location).with_span(span));
        };
        self.home
            .context
            // SAFETY: the driver takes numbers, and checks that the range is managed memory before
            // it does anything. Advice leaves the contents as they are.
            .call(OPERATION, || unsafe {
                advise(span.ptr.0, span.bytes as usize, advice.0, location.into())
            })
            .map_err(|error| self.about(error, span))
    }

    pub(crate) fn prefetch_ordinal(
        &self,
        span: Span,
        ordinal: i32,
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "prefetch_ordinal";
        let _stream = self.use_stream(OPERATION, stream)?;
        let prefetch = self.driver.table.mem_prefetch_ordinal;
        self.context_of(OPERATION, stream)?
            // SAFETY: the driver checks that the range is managed memory before it does anything,
            // and a prefetch leaves the contents as they are. The stream is live because this call
            // uses it.
            .call(OPERATION, || unsafe {
                let stream = handle(stream.as_raw());
                prefetch(span.ptr.0, span.bytes as usize, ordinal, stream)
            })
            .map_err(|error| self.about(error, span))
    }

    pub(crate) fn prefetch(
        &self,
        span: Span,
        location: Location,
        flags: u32,
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "prefetch";
        let Some(prefetch) = self.driver.table.mem_prefetch else {
            return Err(self.no_locations(OPERATION, location).with_span(span));
        };
        let _stream = self.use_stream(OPERATION, stream)?;
        self.context_of(OPERATION, stream)?
            // SAFETY: the driver checks that the range is managed memory before it does anything,
            // and a prefetch leaves the contents as they are. The stream is live because this call
            // uses it.
            .call(OPERATION, || unsafe {
                let stream = handle(stream.as_raw());
                prefetch(span.ptr.0, span.bytes as usize, location.into(), flags, stream)
            })
            .map_err(|error| self.about(error, span))
    }

    pub(crate) fn prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let moves = Moves { spans, locations, location_starts, flags, stream };
        let call = self.driver.table.mem_prefetch_batch;
        if let Some(answer) = self.move_one("prefetch_batch", call, moves) {
            return answer;
        }
        self.prefetch_many(spans, locations, location_starts, flags, stream)
    }

    /// # Safety
    /// As [`Backend::discard_batch`](pagewise_hal::Backend::discard_batch).
    pub(crate) unsafe fn discard_batch(
        &self,
        spans: &[Span],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        // SAFETY: `discard_one` and `discard_many` ask that no thread and no work uses the ranges
        // while they are discarded, nor reads them before they are written. The caller of this
        // method promised that.
        unsafe {
            if let Some(answer) = self.discard_one("discard_batch", spans, flags, stream) {
                return answer;
            }
            self.discard_many(spans, flags, stream)
        }
    }

    /// # Safety
    /// As [`Backend::discard_prefetch_batch`](pagewise_hal::Backend::discard_prefetch_batch).
    pub(crate) unsafe fn discard_prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let moves = Moves { spans, locations, location_starts, flags, stream };
        let call = self.driver.table.mem_discard_prefetch_batch;
        if let Some(answer) = self.move_one("discard_prefetch_batch", call, moves) {
            return answer;
        }
        // SAFETY: the function asks that no thread and no work uses the ranges while they are
        // discarded, nor reads them before they are written. The caller of this method promised
        // that.
        unsafe { self.discard_prefetch_many(spans, locations, location_starts, flags, stream) }
    }

    pub(crate) fn range_attribute(&self, span: Span, attribute: RangeAttribute) -> Result<i32> {
        const OPERATION: &str = "range_attribute";
        if attribute == RangeAttribute::ACCESSED_BY {
            return invalid(OPERATION, "accessed-by is a list: use range_accessed_by");
        }
        if (5..=8).contains(&attribute.0) && !self.has_locations() {
            return invalid(OPERATION, "attributes 5 to 8 need a driver of CUDA 12.2 or later");
        }
        let mut value = 0_i32;
        let get = self.driver.table.mem_range_get_attribute;
        self.home
            .context
            // SAFETY: the driver checks the size against the attribute, checks the range, and
            // writes 4 bytes to a local that outlives the call.
            .call(OPERATION, || unsafe {
                let data = (&raw mut value).cast();
                get(data, size_of::<i32>(), attribute.0, span.ptr.0, span.bytes as usize)
            })
            .map_err(|error| self.about(error, span))?;
        Ok(value)
    }

    pub(crate) fn range_accessed_by(&self, span: Span, out: &mut [i32]) -> Result<()> {
        const OPERATION: &str = "range_accessed_by";
        if out.is_empty() {
            return invalid(OPERATION, "give room for at least one processor");
        }
        let get = self.driver.table.mem_range_get_attribute;
        let attribute = RangeAttribute::ACCESSED_BY.0;
        self.home
            .context
            // SAFETY: the driver checks the range, and writes no more bytes than the length that it
            // is given, which is that of the borrowed list `out`.
            .call(OPERATION, || unsafe {
                let bytes = size_of_val(out);
                get(out.as_mut_ptr().cast(), bytes, attribute, span.ptr.0, span.bytes as usize)
            })
            .map_err(|error| self.about(error, span))
    }

    pub(crate) fn pointer_attribute(
        &self,
        ptr: DevicePtr,
        attribute: PointerAttribute,
    ) -> Result<u64> {
        /// `CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL`, the last one of CUDA 13.5.
        const LAST: i32 = 22;
        const OPERATION: &str = "pointer_attribute";
        if !(1..=LAST).contains(&attribute.0) {
            return invalid(OPERATION, "the pointer attribute is unknown");
        }
        // The largest known attribute, the tokens for GPUDirect, takes 16 bytes.
        let mut value = [0_u64; 4];
        let get = self.driver.table.pointer_get_attribute;
        self.home
            .context
            // SAFETY: the driver checks the address, and writes to a local that outlives the call
            // and has room for the largest of the attributes that pass the check above.
            .call(OPERATION, || unsafe { get(value.as_mut_ptr().cast(), attribute.0, ptr.0) })?;
        Ok(value[0])
    }

    pub(crate) fn pool_default(
        &self,
        location: Location,
        kind: AllocationType,
    ) -> Result<PoolHandle> {
        let table = &self.driver.table;
        let (by_location, by_device) =
            (table.mem_get_default_mem_pool, table.device_get_default_mem_pool);
        self.pool_found("pool_default", location, kind, by_location, by_device)
    }

    pub(crate) fn pool_current(
        &self,
        location: Location,
        kind: AllocationType,
    ) -> Result<PoolHandle> {
        let table = &self.driver.table;
        let (by_location, by_device) = (table.mem_get_mem_pool, table.device_get_mem_pool);
        self.pool_found("pool_current", location, kind, by_location, by_device)
    }

    pub(crate) fn pool_trim(&self, pool: PoolHandle, min_bytes_to_keep: u64) -> Result<()> {
        let _pool = self.use_pool("pool_trim", pool)?;
        let trim = self.driver.table.mem_pool_trim_to;
        // SAFETY: the pool is live because this call uses it. Trimming gives back only memory that
        // is not allocated.
        self.home.context.call("pool_trim", || unsafe {
            trim(handle(pool.as_raw()), min_bytes_to_keep as usize)
        })
    }

    pub(crate) fn pool_set_access(
        &self,
        pool: PoolHandle,
        location: Location,
        access: AccessFlags,
    ) -> Result<()> {
        let _pool = self.use_pool("pool_set_access", pool)?;
        let wanted = AccessDesc { location: location.into(), flags: access.0 };
        let set = self.driver.table.mem_pool_set_access;
        // SAFETY: the pool is live because this call uses it. The driver reads one description,
        // which is a local that outlives the call.
        self.home
            .context
            .call("pool_set_access", || unsafe { set(handle(pool.as_raw()), &raw const wanted, 1) })
    }

    pub(crate) fn pool_alloc(
        &self,
        pool: PoolHandle,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<DevicePtr> {
        const OPERATION: &str = "pool_alloc";
        let _stream = self.use_stream(OPERATION, stream)?;
        let _pool = self.use_pool(OPERATION, pool)?;
        let mut ptr = 0;
        let alloc = self.driver.table.mem_alloc_from_pool_async;
        // SAFETY: pool and stream are live because this call uses them. The driver writes the
        // address to a local that outlives the call.
        self.context_of(OPERATION, stream)?.call(OPERATION, || unsafe {
            let (pool, stream) = (handle(pool.as_raw()), handle(stream.as_raw()));
            alloc(&raw mut ptr, bytes as usize, pool, stream)
        })?;
        Ok(DevicePtr(ptr))
    }

    /// # Safety
    /// As [`Backend::free_async`](pagewise_hal::Backend::free_async).
    pub(crate) unsafe fn free_async(&self, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        const OPERATION: &str = "free_async";
        if ptr.is_null() {
            return Ok(());
        }
        let _stream = self.use_stream(OPERATION, stream)?;
        let free = self.driver.table.mem_free_async;
        // SAFETY: the caller promised that no work uses the memory except what comes before in the
        // stream. The driver refuses an address that is not the start of a live allocation. The
        // stream is live because this call uses it.
        self.context_of(OPERATION, stream)?
            .call(OPERATION, || unsafe { free(ptr.0, handle(stream.as_raw())) })
    }

    pub(crate) fn stream_create(
        &self,
        device: DeviceId,
        flags: StreamFlags,
    ) -> Result<StreamHandle> {
        const OPERATION: &str = "stream_create";
        let mut stream = std::ptr::null_mut();
        let create = self.driver.table.stream_create;
        let context = &self.device(OPERATION, device)?.context;
        // SAFETY: the driver checks the flags, and writes the handle to a local that outlives the
        // call.
        context.call(OPERATION, || unsafe { create(&raw mut stream, flags.bits()) })?;
        self.streams.add(stream.addr() as u64);
        Ok(StreamHandle::checked(stream.addr() as u64))
    }

    pub(crate) fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        const OPERATION: &str = "stream_synchronize";
        let _stream = self.use_stream(OPERATION, stream)?;
        let wait = self.driver.table.stream_synchronize;
        // SAFETY: the driver dereferences the stream, which is live because this call uses it.
        self.context_of(OPERATION, stream)?
            .call(OPERATION, || unsafe { wait(handle(stream.as_raw())) })
    }

    pub(crate) fn stream_wait_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        const OPERATION: &str = "stream_wait_event";
        let _stream = self.use_stream(OPERATION, stream)?;
        let _event = self.use_event(OPERATION, event)?;
        let wait = self.driver.table.stream_wait_event;
        // SAFETY: the driver dereferences stream and event, which are live because this call uses
        // them.
        self.context_of(OPERATION, stream)?
            .call(OPERATION, || unsafe { wait(handle(stream.as_raw()), handle(event.as_raw()), 0) })
    }

    /// # Safety
    /// As [`Backend::stream_attach`](pagewise_hal::Backend::stream_attach).
    pub(crate) unsafe fn stream_attach(
        &self,
        stream: StreamHandle,
        span: Span,
        flags: AttachFlags,
    ) -> Result<()> {
        const OPERATION: &str = "stream_attach";
        let _stream = self.use_stream(OPERATION, stream)?;
        let attach = self.driver.table.stream_attach_mem_async;
        self.context_of(OPERATION, stream)?
            // SAFETY: the caller promised to access the range only as the attachment allows. The
            // driver checks the range. The stream is live because this call uses it.
            .call(OPERATION, || unsafe {
                let stream = handle(stream.as_raw());
                attach(stream, span.ptr.0, span.bytes as usize, flags.bits())
            })
            .map_err(|error| error.with_span(span))
    }

    pub(crate) fn event_create(&self, device: DeviceId, flags: EventFlags) -> Result<EventHandle> {
        const OPERATION: &str = "event_create";
        let mut event = std::ptr::null_mut();
        let create = self.driver.table.event_create;
        let context = &self.device(OPERATION, device)?.context;
        // SAFETY: the driver checks the flags, and writes the handle to a local that outlives the
        // call.
        context.call(OPERATION, || unsafe { create(&raw mut event, flags.bits()) })?;
        self.events.add(event.addr() as u64);
        Ok(EventHandle::checked(event.addr() as u64))
    }

    pub(crate) fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        const OPERATION: &str = "event_record";
        let _stream = self.use_stream(OPERATION, stream)?;
        let _event = self.use_event(OPERATION, event)?;
        let record = self.driver.table.event_record;
        // SAFETY: the driver dereferences stream and event, which are live because this call uses
        // them.
        self.context_of(OPERATION, stream)?
            .call(OPERATION, || unsafe { record(handle(event.as_raw()), handle(stream.as_raw())) })
    }

    pub(crate) fn event_query(&self, event: EventHandle) -> Result<bool> {
        const OPERATION: &str = "event_query";
        let _event = self.use_event(OPERATION, event)?;
        let query = self.driver.table.event_query;
        // SAFETY: the driver dereferences the event, which is live because this call uses it.
        let code =
            self.home.context.number(OPERATION, || unsafe { query(handle(event.as_raw())) })?;
        match code {
            Code::NOT_READY => Ok(false),
            code => self.driver.check(OPERATION, code).map(|()| true),
        }
    }

    pub(crate) fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        const OPERATION: &str = "event_synchronize";
        let _event = self.use_event(OPERATION, event)?;
        let wait = self.driver.table.event_synchronize;
        // SAFETY: the driver dereferences the event, which is live because this call uses it.
        self.home.context.call(OPERATION, || unsafe { wait(handle(event.as_raw())) })
    }

    pub(crate) fn event_elapsed_ns(&self, start: EventHandle, end: EventHandle) -> Result<u64> {
        const OPERATION: &str = "event_elapsed_ns";
        let _start = self.use_event(OPERATION, start)?;
        let _end = self.use_event(OPERATION, end)?;
        let mut milliseconds = 0.0_f32;
        let elapsed = self.driver.table.event_elapsed_time;
        // SAFETY: both events are live because this call uses them. The driver writes the time to a
        // local that outlives the call.
        self.home.context.call(OPERATION, || unsafe {
            elapsed(&raw mut milliseconds, handle(start.as_raw()), handle(end.as_raw()))
        })?;
        // Negative if `end` came first; a cast to an unsigned integer makes that 0.
        Ok((f64::from(milliseconds) * 1e6).round() as u64)
    }

    /// # Safety
    /// As [`Backend::host_touch`](pagewise_hal::Backend::host_touch).
    pub(crate) unsafe fn host_touch(&self, touch: HostTouch) -> Result<u64> {
        // SAFETY: the function asks that no other code uses the range meanwhile, which the caller
        // of this method promised. It checks by itself that the host reaches the memory.
        unsafe { self.touch_on_host(touch) }.map_err(|error| error.with_span(touch.span))
    }

    /// # Safety
    /// As [`Backend::device_touch`](pagewise_hal::Backend::device_touch).
    pub(crate) unsafe fn device_touch(
        &self,
        touch: DeviceTouch,
        stream: StreamHandle,
    ) -> Result<u64> {
        // SAFETY: the function asks that no other code uses the range meanwhile, which the caller
        // of this method promised. It checks by itself that the device reaches the memory.
        unsafe { self.touch_on_device(touch, stream) }.map_err(|error| error.with_span(touch.span))
    }

    pub(crate) fn host_page_map(&self, span: Span) -> Result<Vec<PageRun>> {
        const OPERATION: &str = "host_page_map";
        if !self.host.shows_pages() {
            return Err(Error::new(OPERATION, ErrorKind::Unsupported)
                .with_detail("this system does not show the page table of a process"));
        }
        let allocation = self.allocation_at(span.ptr).ok();
        if allocation.is_none_or(|allocation| !allocation.contains(span)) {
            return invalid(OPERATION, "the range is not within one live allocation")
                .map_err(|error| error.with_span(span));
        }
        self.host.page_map(span).map_err(|error| {
            Error::new(OPERATION, ErrorKind::NotPermitted)
                .with_span(span)
                .with_detail(format!("the page table of the process cannot be read: {error}"))
        })
    }

    pub(crate) fn take_events(&self) -> Result<Vec<MemoryEvent>> {
        self.observer("take_events")?.take()
    }

    pub(crate) fn events_since(&self, position: u64) -> Result<EventsSince> {
        self.observer("events_since")?.since(position)
    }

    fn observer(&self, operation: &'static str) -> Result<&ObserverLog> {
        self.observer.as_ref().ok_or_else(|| {
            Error::new(operation, ErrorKind::Unsupported)
                .with_detail("the back end was opened without an observer")
        })
    }
}
