//! Layers: a back end around a back end that sees every call that can fail.
//!
//! An [`Interceptor`] decides what happens around a call: count it, refuse it, put a span around
//! it. It cannot make up an answer, so the host reaches memory through it as through the back end
//! inside ([`HostAddresses`]). [`Intercepted`] is the back end that asks it. Capabilities and the clock are passed on
//! unseen. [`inject`](crate::inject) and `traced` are made of this.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use pagewise::intercept::{Call, Intercepted, Interceptor};
//! use pagewise::{Backend, Result};
//!
//! #[derive(Debug, Default)]
//! struct Count(AtomicU64);
//!
//! impl Interceptor for Count {
//!     fn around<T>(&self, _: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!         make()
//!     }
//! }
//!
//! let counted = Intercepted::new(pagewise::sim()?, Count::default());
//! counted.device_count()?;
//! assert_eq!(counted.interceptor().0.load(Ordering::Relaxed), 1);
//! # Ok::<(), pagewise::Error>(())
//! ```

mod call;

use std::fmt::Debug;

use pagewise_hal::{
    AccessFlags, Advice, AllocationType, AttachFlags, Backend, Capabilities, DeviceAttribute,
    DeviceId, DevicePtr, DeviceTouch, DriverVersion, EventFlags, EventHandle, ExportedPointer,
    HandleTypes, HostAddresses, HostAllocFlags, HostRegisterFlags, HostTouch, HostViews,
    IpcMemHandle, Location, LocationKind, MemoryEvent, MemoryInfo, PageRun, PointerAttribute,
    PoolAttribute, PoolHandle, PoolProps, RangeAttribute, Result, ShareableHandle, Span,
    StreamFlags, StreamHandle,
};

pub use call::{Call, Operation};

/// Code that runs around calls.
///
/// ```
/// use pagewise::intercept::{Call, Intercepted, Interceptor, Operation};
/// use pagewise::{Backend, Code, Error, Result};
///
/// #[derive(Debug)]
/// struct NoPools;
///
/// impl Interceptor for NoPools {
///     fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
///         match call.operation() {
///             Operation::PoolCreate => Err(Error::from_code("pool_create", Code::NOT_SUPPORTED)),
///             _ => make(),
///         }
///     }
/// }
///
/// let backend = Intercepted::new(pagewise::sim()?, NoPools);
/// assert!(backend.device_count().is_ok());
/// # Ok::<(), pagewise::Error>(())
/// ```
pub trait Interceptor: Debug + Send + Sync + 'static {
    /// Answers a call: by making it, or by refusing it. It is made at most once. A discard that was
    /// made counts as made even if this fails afterwards.
    ///
    /// # Errors
    /// Whatever the call is to fail with.
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T>;
}

/// A back end that sends its calls through an [`Interceptor`].
///
/// ```
/// use pagewise::inject::FaultInjector;
/// use pagewise::Backend;
///
/// let backend = FaultInjector::around(pagewise::sim()?);
/// assert_eq!(backend.inner().device_count()?, 1);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct Intercepted<B, I> {
    inner: B,
    interceptor: I,
    views: HostViews,
}

impl<B: Backend, I: Interceptor> Intercepted<B, I> {
    /// Puts an interceptor around a back end.
    ///
    /// ```
    /// # use pagewise::intercept::{Call, Intercepted, Interceptor};
    /// # use pagewise::{Backend, Result};
    /// # #[derive(Debug)]
    /// # struct Plain;
    /// # impl Interceptor for Plain {
    /// #     fn around<T>(&self, _: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> { make() }
    /// # }
    /// let backend = Intercepted::new(pagewise::sim()?, Plain);
    /// assert_eq!(backend.device_count()?, 1);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new(inner: B, interceptor: I) -> Self {
        let views = inner.host_views();
        Self { inner, interceptor, views }
    }

    /// The same, with a promise of how the host reaches the memory, which `inner` does not make
    /// itself: for tests with a [mock](crate::mock) that has addresses in memory of the test.
    ///
    /// # Safety
    /// `inner` keeps what [`HostAddresses`] asks of a back end that answers `views`.
    ///
    /// ```
    /// use pagewise::inject::Injector;
    /// use pagewise::intercept::Intercepted;
    /// use pagewise::{HostAddresses, HostViews};
    ///
    /// // SAFETY: the simulator promises the same itself.
    /// let backend = unsafe {
    ///     Intercepted::with_host_views(pagewise::sim()?, Injector::default(), HostViews::Declared)
    /// };
    /// assert_eq!(backend.host_views(), HostViews::Declared);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn with_host_views(inner: B, interceptor: I, views: HostViews) -> Self {
        Self { inner, interceptor, views }
    }

    /// The back end inside.
    ///
    /// ```
    /// # use pagewise::{Backend, inject::Injector, intercept::Intercepted};
    /// let backend = Intercepted::new(pagewise::sim()?, Injector::default());
    /// assert_eq!(backend.inner().capabilities().backend, "sim");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// The interceptor.
    ///
    /// ```
    /// # use pagewise::{inject::Injector, intercept::Intercepted};
    /// let backend = Intercepted::new(pagewise::sim()?, Injector::default());
    /// assert_eq!(backend.interceptor().calls(), 0);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn interceptor(&self) -> &I {
        &self.interceptor
    }

    /// The back end inside, without the interceptor.
    ///
    /// ```
    /// # use pagewise::{Backend, inject::Injector, intercept::Intercepted};
    /// let backend = Intercepted::new(pagewise::sim()?, Injector::default());
    /// assert_eq!(backend.into_inner().device_count()?, 1);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn into_inner(self) -> B {
        self.inner
    }

    /// Asks about a discard. One that was made is reported as made, whatever the interceptor says:
    /// who is told that it failed would go on reading what is not there any more.
    fn discard(&self, call: &Call, make: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut was_made = false;
        let answer = self.interceptor.around(call, || make().inspect(|()| was_made = true));
        if was_made { Ok(()) } else { answer }
    }
}

fn of_ordinal(ordinal: i32) -> Location {
    match ordinal {
        Location::ORDINAL_HOST => Location::HOST,
        id => Location { kind: LocationKind::DEVICE, id },
    }
}

// SAFETY: addresses come from the inner back end as they are: an interceptor can neither make nor
// look at what a call answers, as its type is any `T`. So the promise of the inner back end holds,
// or the one that was made in `with_host_views`.
unsafe impl<B: Backend, I: Interceptor> HostAddresses for Intercepted<B, I> {
    fn host_views(&self) -> HostViews {
        self.views
    }
}

#[deny(clippy::missing_trait_methods)]
impl<B: Backend, I: Interceptor> Backend for Intercepted<B, I> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn driver_version(&self) -> Result<DriverVersion> {
        let call = Call::new(Operation::DriverVersion);
        self.interceptor.around(&call, || self.inner.driver_version())
    }

    fn device_count(&self) -> Result<u32> {
        let call = Call::new(Operation::DeviceCount);
        self.interceptor.around(&call, || self.inner.device_count())
    }

    fn device_attribute(&self, device: DeviceId, attribute: DeviceAttribute) -> Result<i32> {
        let call = Call::new(Operation::DeviceAttribute).at(Location::device(device));
        self.interceptor.around(&call, || self.inner.device_attribute(device, attribute))
    }

    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        let call = Call::new(Operation::MemoryInfo).at(Location::device(device));
        self.interceptor.around(&call, || self.inner.memory_info(device))
    }

    fn alloc_managed(&self, bytes: u64, flags: AttachFlags) -> Result<DevicePtr> {
        let call = Call::new(Operation::AllocManaged).bytes(bytes);
        self.interceptor.around(&call, || self.inner.alloc_managed(bytes, flags))
    }

    fn alloc_device(&self, device: DeviceId, bytes: u64) -> Result<DevicePtr> {
        let call = Call::new(Operation::AllocDevice).bytes(bytes).at(Location::device(device));
        self.interceptor.around(&call, || self.inner.alloc_device(device, bytes))
    }

    fn alloc_pinned(&self, bytes: u64, flags: HostAllocFlags) -> Result<DevicePtr> {
        let call = Call::new(Operation::AllocPinned).bytes(bytes);
        self.interceptor.around(&call, || self.inner.alloc_pinned(bytes, flags))
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        let call = Call::new(Operation::Free);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.free(ptr) })
    }

    unsafe fn free_pinned(&self, ptr: DevicePtr) -> Result<()> {
        let call = Call::new(Operation::FreePinned);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.free_pinned(ptr) })
    }

    fn advise_ordinal(&self, span: Span, advice: Advice, ordinal: i32) -> Result<()> {
        let call = Call::new(Operation::AdviseOrdinal).on(span).at(of_ordinal(ordinal));
        self.interceptor.around(&call, || self.inner.advise_ordinal(span, advice, ordinal))
    }

    fn advise(&self, span: Span, advice: Advice, location: Location) -> Result<()> {
        let call = Call::new(Operation::Advise).on(span).at(location);
        self.interceptor.around(&call, || self.inner.advise(span, advice, location))
    }

    fn prefetch_ordinal(&self, span: Span, ordinal: i32, stream: StreamHandle) -> Result<()> {
        let call = Call::new(Operation::PrefetchOrdinal).on(span).at(of_ordinal(ordinal));
        self.interceptor.around(&call, || self.inner.prefetch_ordinal(span, ordinal, stream))
    }

    fn prefetch(
        &self,
        span: Span,
        location: Location,
        flags: u32,
        stream: StreamHandle,
    ) -> Result<()> {
        let call = Call::new(Operation::Prefetch).on(span).at(location);
        self.interceptor.around(&call, || self.inner.prefetch(span, location, flags, stream))
    }

    fn prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let call = Call::new(Operation::PrefetchBatch).all(spans).first(locations);
        self.interceptor.around(&call, || {
            self.inner.prefetch_batch(spans, locations, location_starts, flags, stream)
        })
    }

    unsafe fn discard_batch(&self, spans: &[Span], flags: u64, stream: StreamHandle) -> Result<()> {
        let call = Call::new(Operation::DiscardBatch).all(spans);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.discard(&call, || unsafe { self.inner.discard_batch(spans, flags, stream) })
    }

    unsafe fn discard_prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let call = Call::new(Operation::DiscardPrefetchBatch).all(spans).first(locations);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.discard(&call, || unsafe {
            self.inner.discard_prefetch_batch(spans, locations, location_starts, flags, stream)
        })
    }

    fn range_attribute(&self, span: Span, attribute: RangeAttribute) -> Result<i32> {
        let call = Call::new(Operation::RangeAttribute).on(span);
        self.interceptor.around(&call, || self.inner.range_attribute(span, attribute))
    }

    fn range_accessed_by(&self, span: Span, out: &mut [i32]) -> Result<()> {
        let call = Call::new(Operation::RangeAccessedBy).on(span);
        self.interceptor.around(&call, || self.inner.range_accessed_by(span, out))
    }

    fn pointer_attribute(&self, ptr: DevicePtr, attribute: PointerAttribute) -> Result<u64> {
        let call = Call::new(Operation::PointerAttribute);
        self.interceptor.around(&call, || self.inner.pointer_attribute(ptr, attribute))
    }

    fn pool_create(&self, props: PoolProps) -> Result<PoolHandle> {
        let call = Call::new(Operation::PoolCreate).at(props.location);
        self.interceptor.around(&call, || self.inner.pool_create(props))
    }

    unsafe fn pool_destroy(&self, pool: PoolHandle) -> Result<()> {
        let call = Call::new(Operation::PoolDestroy);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.pool_destroy(pool) })
    }

    fn pool_default(&self, location: Location, kind: AllocationType) -> Result<PoolHandle> {
        let call = Call::new(Operation::PoolDefault).at(location);
        self.interceptor.around(&call, || self.inner.pool_default(location, kind))
    }

    fn pool_current(&self, location: Location, kind: AllocationType) -> Result<PoolHandle> {
        let call = Call::new(Operation::PoolCurrent).at(location);
        self.interceptor.around(&call, || self.inner.pool_current(location, kind))
    }

    fn pool_set_current(
        &self,
        location: Location,
        kind: AllocationType,
        pool: PoolHandle,
    ) -> Result<()> {
        let call = Call::new(Operation::PoolSetCurrent).at(location);
        self.interceptor.around(&call, || self.inner.pool_set_current(location, kind, pool))
    }

    fn pool_attribute(&self, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64> {
        let call = Call::new(Operation::PoolAttribute);
        self.interceptor.around(&call, || self.inner.pool_attribute(pool, attribute))
    }

    fn pool_set_attribute(
        &self,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()> {
        let call = Call::new(Operation::PoolSetAttribute);
        self.interceptor.around(&call, || self.inner.pool_set_attribute(pool, attribute, value))
    }

    fn pool_trim(&self, pool: PoolHandle, min_bytes_to_keep: u64) -> Result<()> {
        let call = Call::new(Operation::PoolTrim);
        self.interceptor.around(&call, || self.inner.pool_trim(pool, min_bytes_to_keep))
    }

    fn pool_set_access(
        &self,
        pool: PoolHandle,
        location: Location,
        access: AccessFlags,
    ) -> Result<()> {
        let call = Call::new(Operation::PoolSetAccess).at(location);
        self.interceptor.around(&call, || self.inner.pool_set_access(pool, location, access))
    }

    fn pool_access(&self, pool: PoolHandle, location: Location) -> Result<AccessFlags> {
        let call = Call::new(Operation::PoolAccess).at(location);
        self.interceptor.around(&call, || self.inner.pool_access(pool, location))
    }

    fn pool_alloc(&self, pool: PoolHandle, bytes: u64, stream: StreamHandle) -> Result<DevicePtr> {
        let call = Call::new(Operation::PoolAlloc).bytes(bytes);
        self.interceptor.around(&call, || self.inner.pool_alloc(pool, bytes, stream))
    }

    unsafe fn free_async(&self, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        let call = Call::new(Operation::FreeAsync);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.free_async(ptr, stream) })
    }

    unsafe fn host_register(&self, span: Span, flags: HostRegisterFlags) -> Result<()> {
        let call = Call::new(Operation::HostRegister).on(span);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.host_register(span, flags) })
    }

    unsafe fn host_unregister(&self, ptr: DevicePtr) -> Result<()> {
        let call = Call::new(Operation::HostUnregister);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.host_unregister(ptr) })
    }

    fn pool_export(&self, pool: PoolHandle, kind: HandleTypes) -> Result<ShareableHandle> {
        let call = Call::new(Operation::PoolExport);
        self.interceptor.around(&call, || self.inner.pool_export(pool, kind))
    }

    unsafe fn pool_import(&self, handle: ShareableHandle, kind: HandleTypes) -> Result<PoolHandle> {
        let call = Call::new(Operation::PoolImport);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.pool_import(handle, kind) })
    }

    fn pool_export_pointer(&self, ptr: DevicePtr) -> Result<ExportedPointer> {
        let call = Call::new(Operation::PoolExportPointer);
        self.interceptor.around(&call, || self.inner.pool_export_pointer(ptr))
    }

    unsafe fn pool_import_pointer(
        &self,
        pool: PoolHandle,
        exported: ExportedPointer,
    ) -> Result<DevicePtr> {
        let call = Call::new(Operation::PoolImportPointer);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.pool_import_pointer(pool, exported) })
    }

    fn ipc_mem_handle(&self, ptr: DevicePtr) -> Result<IpcMemHandle> {
        let call = Call::new(Operation::IpcMemHandle);
        self.interceptor.around(&call, || self.inner.ipc_mem_handle(ptr))
    }

    unsafe fn ipc_open_mem_handle(
        &self,
        device: DeviceId,
        handle: IpcMemHandle,
    ) -> Result<DevicePtr> {
        let call = Call::new(Operation::IpcOpenMemHandle).at(Location::device(device));
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.ipc_open_mem_handle(device, handle) })
    }

    unsafe fn ipc_close_mem_handle(&self, ptr: DevicePtr) -> Result<()> {
        let call = Call::new(Operation::IpcCloseMemHandle);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.ipc_close_mem_handle(ptr) })
    }

    fn stream_create(&self, device: DeviceId, flags: StreamFlags) -> Result<StreamHandle> {
        let call = Call::new(Operation::StreamCreate).at(Location::device(device));
        self.interceptor.around(&call, || self.inner.stream_create(device, flags))
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        let call = Call::new(Operation::StreamDestroy);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.stream_destroy(stream) })
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        let call = Call::new(Operation::StreamSynchronize);
        self.interceptor.around(&call, || self.inner.stream_synchronize(stream))
    }

    fn stream_wait_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let call = Call::new(Operation::StreamWaitEvent);
        self.interceptor.around(&call, || self.inner.stream_wait_event(stream, event))
    }

    unsafe fn stream_attach(
        &self,
        stream: StreamHandle,
        span: Span,
        flags: AttachFlags,
    ) -> Result<()> {
        let call = Call::new(Operation::StreamAttach).on(span);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.stream_attach(stream, span, flags) })
    }

    fn event_create(&self, device: DeviceId, flags: EventFlags) -> Result<EventHandle> {
        let call = Call::new(Operation::EventCreate).at(Location::device(device));
        self.interceptor.around(&call, || self.inner.event_create(device, flags))
    }

    unsafe fn event_destroy(&self, event: EventHandle) -> Result<()> {
        let call = Call::new(Operation::EventDestroy);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.event_destroy(event) })
    }

    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let call = Call::new(Operation::EventRecord);
        self.interceptor.around(&call, || self.inner.event_record(event, stream))
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        let call = Call::new(Operation::EventQuery);
        self.interceptor.around(&call, || self.inner.event_query(event))
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        let call = Call::new(Operation::EventSynchronize);
        self.interceptor.around(&call, || self.inner.event_synchronize(event))
    }

    fn event_elapsed_ns(&self, start: EventHandle, end: EventHandle) -> Result<u64> {
        let call = Call::new(Operation::EventElapsedNs);
        self.interceptor.around(&call, || self.inner.event_elapsed_ns(start, end))
    }

    unsafe fn memset(&self, span: Span, value: u8, stream: StreamHandle) -> Result<()> {
        let call = Call::new(Operation::Memset).on(span);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.memset(span, value, stream) })
    }

    unsafe fn memcpy(
        &self,
        destination: DevicePtr,
        source: DevicePtr,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let call = Call::new(Operation::Memcpy).on(Span::new(destination, bytes));
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor
            .around(&call, || unsafe { self.inner.memcpy(destination, source, bytes, stream) })
    }

    unsafe fn host_touch(&self, touch: HostTouch) -> Result<u64> {
        let call = Call::new(Operation::HostTouch).on(touch.span);
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.host_touch(touch) })
    }

    unsafe fn device_touch(&self, touch: DeviceTouch, stream: StreamHandle) -> Result<u64> {
        let call =
            Call::new(Operation::DeviceTouch).on(touch.span).at(Location::device(touch.device));
        // SAFETY: the caller promised what the inner call asks for; it is passed on unchanged.
        self.interceptor.around(&call, || unsafe { self.inner.device_touch(touch, stream) })
    }

    fn host_page_map(&self, span: Span) -> Result<Vec<PageRun>> {
        let call = Call::new(Operation::HostPageMap).on(span);
        self.interceptor.around(&call, || self.inner.host_page_map(span))
    }

    fn take_events(&self) -> Result<Vec<MemoryEvent>> {
        let call = Call::new(Operation::TakeEvents);
        self.interceptor.around(&call, || self.inner.take_events())
    }

    fn clock_ns(&self) -> u64 {
        self.inner.clock_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.inner.sleep_ns(duration_ns)
    }
}
