//! The trait that every back end and every wrapper implements.

use std::fmt::Debug;

use crate::{
    AccessFlags, Advice, AllocationType, AttachFlags, BestBlock, Capabilities, CopyAttributes,
    DeviceAttribute, DeviceId, DevicePtr, DeviceTouch, DriverVersion, EventFlags, EventHandle,
    EventsSince, ExportedPointer, FunctionAttribute, FunctionHandle, Granularity, HandleTypes,
    HostAddresses, HostAllocFlags, HostRegisterFlags, HostTouch, IpcMemHandle, KernelAccesses,
    KernelParam, LaunchShape, Location, MemoryAccess, MemoryEvent, MemoryHandle, MemoryInfo,
    MemoryProps, ModuleHandle, PageRun, ParamInfo, PointerAttribute, PoolAttribute, PoolHandle,
    PoolProps, RangeAttribute, RecordedLaunch, Result, ShareableHandle, Span, SpanCopy,
    StreamFlags, StreamHandle,
};

/// The calls of a CUDA driver for managed memory.
///
/// Object-safe; hold it as `Arc<dyn Backend>` and call through the reference. Methods mirror driver
/// entry points one to one, named in each method; argument checks, their order and their result
/// numbers are the driver's. Unless a method says otherwise:
///
/// - a failed call changes nothing, and its [`Error`](crate::Error) carries the driver's number;
/// - *managed range* means: at least 1 byte, starting in a live managed allocation and ending
///   within the same one, counted by the bytes requested for it; anything else is
///   [`InvalidValue`](crate::ErrorKind::InvalidValue);
/// - ranges of advice, prefetch and attribute reads are rounded outward to whole pages;
/// - the simulator carries out asynchronous calls before it returns; a driver, when the stream
///   reaches them.
///
/// A caller of an `unsafe` method makes its promises about memory and handles that *this* back end
/// gave it. A wrapper that passes such a call on promises the inner back end the same, because the
/// memory and handles that it gave out came from there.
///
/// Facts about result numbers are from recordings of driver 580 (CUDA 13.0) on an H200. An id such
/// as CONTRACT-22 names a rule of `docs/driver` in the repository, with what shows it.
#[cfg_attr(any(test, feature = "mock"), mockall::automock)]
#[auto_impl::auto_impl(Arc, Box)]
pub trait Backend: HostAddresses + Debug + Send + Sync + 'static {
    /// The abilities of this back end. Each call clones them, so ask once.
    fn capabilities(&self) -> Capabilities;

    /// The driver's own version (`cuDriverGetVersion`). It is at least
    /// [`Capabilities::driver_version`], which a ceiling may have lowered.
    fn driver_version(&self) -> Result<DriverVersion>;

    /// How many devices there are (`cuDeviceGetCount`).
    fn device_count(&self) -> Result<u32>;

    /// An attribute of a device (`cuDeviceGetAttribute`).
    ///
    /// # Errors
    /// `InvalidDevice` for an unknown device; `InvalidValue` for an attribute that this version
    /// does not know, which does not mean "no".
    fn device_attribute(&self, device: DeviceId, attribute: DeviceAttribute) -> Result<i32>;

    /// Whether a device can be let reach the memory of another one (`cuDeviceCanAccessPeer`). A
    /// device is no peer of itself.
    ///
    /// # Errors
    /// `InvalidDevice` for an unknown device.
    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool>;

    /// Free and total memory of a device (`cuMemGetInfo`).
    ///
    /// # Errors
    /// `InvalidDevice` for an unknown device.
    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo>;

    // ---- allocation ---------------------------------------------------------------------------

    /// Allocates managed memory (`cuMemAllocManaged`). Contents are indeterminate.
    ///
    /// An allocation of 2 MiB or more starts on a 2 MiB boundary. A smaller one shares a 2 MiB slab
    /// with others, at 512-byte steps, and so shares pages and faults with its neighbours.
    ///
    /// # Errors
    /// `InvalidValue` if `bytes` is 0 or `flags` is not exactly `GLOBAL` or `HOST`; `OutOfMemory`.
    fn alloc_managed(&self, bytes: u64, flags: AttachFlags) -> Result<DevicePtr>;

    /// Allocates device memory (`cuMemAlloc`), aligned to at least 512 bytes.
    ///
    /// # Errors
    /// `InvalidValue` if `bytes` is 0; `InvalidDevice`; `OutOfMemory`.
    fn alloc_device(&self, device: DeviceId, bytes: u64) -> Result<DevicePtr>;

    /// Allocates page-locked host memory (`cuMemHostAlloc`), mapped on every device. 0 bytes give
    /// the null pointer.
    ///
    /// # Errors
    /// `InvalidValue` if a flag is unknown; `OutOfMemory`.
    fn alloc_pinned(&self, bytes: u64, flags: HostAllocFlags) -> Result<DevicePtr>;

    /// Frees managed, device or pool memory (`cuMemFree`). Freeing null succeeds and does nothing.
    ///
    /// # Errors
    /// `InvalidValue` if `ptr` is not the first byte of such an allocation: interior, freed and
    /// pinned addresses are refused.
    ///
    /// # Safety
    /// No thread, and no work of a device, may use the allocation during or after the call. For
    /// pool memory all work that uses it must have completed.
    unsafe fn free(&self, ptr: DevicePtr) -> Result<()>;

    /// Frees page-locked host memory (`cuMemFreeHost`). Freeing null succeeds and does nothing.
    ///
    /// # Errors
    /// `InvalidValue` if `ptr` is not the first byte of a pinned allocation.
    ///
    /// # Safety
    /// No thread, and no work of a device, may use the allocation during or after the call.
    unsafe fn free_pinned(&self, ptr: DevicePtr) -> Result<()>;

    /// Page-locks host memory that other code owns and maps it on devices, at its own address
    /// (`cuMemHostRegister`). All pages that the range touches are registered.
    ///
    /// # Errors
    /// `InvalidValue` for the null pointer, 0 bytes, unknown flags, `IO_MEMORY` of ordinary memory,
    /// or memory that the driver gave; 712 (`HOST_MEMORY_ALREADY_REGISTERED`) if a page of the
    /// range is registered already. Facts about registered memory are from probes on driver 580.
    ///
    /// # Safety
    /// The memory is live and stays so until it is unregistered.
    unsafe fn host_register(&self, span: Span, flags: HostRegisterFlags) -> Result<()>;

    /// Unregisters host memory (`cuMemHostUnregister`).
    ///
    /// # Errors
    /// `InvalidValue` for an address inside registered memory, the null pointer, or memory that the
    /// driver gave; 713 (`HOST_MEMORY_NOT_REGISTERED`) for other memory.
    ///
    /// # Safety
    /// No device may use the memory during or after the call.
    unsafe fn host_unregister(&self, ptr: DevicePtr) -> Result<()>;

    // ---- advice and movement ------------------------------------------------------------------

    /// Advises by device ordinal (`cuMemAdvise`, the form of CUDA 8.0): -1 is the host.
    ///
    /// Takes effect at once, not in stream order.
    ///
    /// # Errors
    /// In this order: `InvalidValue` for unknown advice, a null pointer or 0 bytes;
    /// `InvalidDevice` for an ordinal that is neither -1 nor a device, if the advice uses it;
    /// `InvalidValue` if the range is not managed; `Unsupported` for memory of a managed pool.
    fn advise_ordinal(&self, span: Span, advice: Advice, ordinal: i32) -> Result<()>;

    /// Advises by location (`cuMemAdvise_v2`). Requires [`Capabilities::locations`].
    ///
    /// Advice with a host NUMA location never reaches the memory: accessed-by fails, and all other
    /// advice succeeds and does nothing, whatever the range (driver 580 on a host with one node).
    ///
    /// # Errors
    /// In this order: `InvalidValue` for unknown advice, a location type other than 1 to 4, a null
    /// pointer or 0 bytes, an unknown device if the advice uses it, a range that is not managed;
    /// `Unsupported` for memory of a managed pool, or without the entry point.
    fn advise(&self, span: Span, advice: Advice, location: Location) -> Result<()>;

    /// Asks for migration to a device ordinal, -1 for the host (`cuMemPrefetchAsync`, the form of
    /// CUDA 8.0), in stream order.
    ///
    /// # Errors
    /// In this order: `InvalidValue` for a null pointer or 0 bytes; `InvalidDevice` for an unknown
    /// ordinal; `InvalidValue` if the range is not managed.
    fn prefetch_ordinal(&self, span: Span, ordinal: i32, stream: StreamHandle) -> Result<()>;

    /// Asks for migration to a location (`cuMemPrefetchAsync_v2`), in stream order. Requires
    /// [`Capabilities::locations`].
    ///
    /// Success promises no residency. The location is recorded as the range's last prefetch
    /// location even if nothing moves.
    ///
    /// # Errors
    /// In this order: `InvalidValue` for a null pointer, 0 bytes or `flags` other than 0;
    /// `InvalidDevice` for an unknown device; `InvalidValue` for another unusable location or a
    /// range that is not managed; `Unsupported` without the entry point.
    fn prefetch(
        &self,
        span: Span,
        location: Location,
        flags: u32,
        stream: StreamHandle,
    ) -> Result<()>;

    /// Asks for migration of many ranges (`cuMemPrefetchBatchAsync`), in stream order.
    /// `locations[i]` is for the ranges from `location_starts[i]` to before `location_starts[i +
    /// 1]`. Starts that do not ascend pass too; [`locations_of_ranges`](crate::locations_of_ranges)
    /// says which locations serve then.
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | CUDA 13.0 and later, simulator at 13.0 and later | the driver's batch call |
    /// | CUDA 12 | a loop with the same checks, if [`Capabilities::prefetch_batch`] is `Loop` |
    /// | otherwise | `Unsupported` |
    ///
    /// # Errors
    /// `InvalidValue` for: the legacy default stream, `flags` other than 0, no ranges, no
    /// locations, `locations` and `location_starts` of different lengths, starts that do not begin
    /// at 0 or reach the number of ranges, an unusable location (an unknown device included), or a
    /// range that is not managed. A refused batch moves nothing. But the driver's batch call has already recorded the last prefetch location of the ranges
    /// before the refused one (CONTRACT-54).
    fn prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()>;

    /// Declares the contents of ranges worthless (`cuMemDiscardBatchAsync`). Requires
    /// [`Capabilities::discard`]. Nothing is copied; the pages are unmapped everywhere and the next
    /// touch populates them anew. Ranges are rounded *inward*: a page that is covered in part keeps
    /// its contents. If a range begins and ends inside one page, the driver succeeds and does not
    /// look at the ranges after it: leave such ranges out. In a va_block of read-mostly memory with
    /// duplicated pages, only those pages are unmapped. The others are marked as worthless and stay
    /// mapped. A later write to a page that is mapped for writing does not fault, so the mark
    /// stays, and the next migration loses the written bytes: unset read-mostly before the discard.
    /// (Recording `read-mostly-discard`; the simulator does the same.)
    ///
    /// # Errors
    /// `InvalidValue` for the legacy default stream, `flags` other than 0, no ranges, or a range
    /// that is not managed; `Unsupported` without the entry point.
    ///
    /// # Safety
    /// Contents are indeterminate until written. No thread, and no work of a device, may read,
    /// write or prefetch the ranges while the discard is in flight. On driver 580 no wait covers a
    /// discard that is queued behind a prefetch: it takes effect up to a millisecond after stream,
    /// event and context were waited for. The next migration then loses the bytes that the host or
    /// a device has written by that time (in 447 of 480 tries). So wait for the stream *before* the
    /// call, as the API does: then no bytes were lost in 300 tries.
    /// [`discard_prefetch_batch`](Self::discard_prefetch_batch) lost none in 360 tries.
    unsafe fn discard_batch(&self, spans: &[Span], flags: u64, stream: StreamHandle) -> Result<()>;

    /// Discards, then migrates without copying (`cuMemDiscardAndPrefetchBatchAsync`). Requires
    /// [`Capabilities::discard`]. The discard rounds inward, the migration outward, so a page that
    /// is covered in part moves with its contents (CONTRACT-22).
    ///
    /// # Errors
    /// As [`prefetch_batch`](Self::prefetch_batch).
    ///
    /// # Safety
    /// As [`discard_batch`](Self::discard_batch).
    unsafe fn discard_prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()>;

    // ---- attributes ---------------------------------------------------------------------------

    /// One attribute of a managed range (`cuMemRangeGetAttribute`).
    ///
    /// *None* and *mixed* give the same answer, -2 (0 for read-mostly and for types).
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | driver 580 | walks records and may report one value over pages that never had it |
    /// | simulator | per page, as documented, or as driver 580 reports, by configuration |
    ///
    /// # Errors
    /// `InvalidValue` if the range is not managed, for an unknown attribute, for
    /// [`RangeAttribute::ACCESSED_BY`], and for attributes 5 to 8 before CUDA 12.2.
    fn range_attribute(&self, span: Span, attribute: RangeAttribute) -> Result<i32>;

    /// The processors for which the *whole* range has accessed-by: device ordinals ascending, then
    /// -1 for the host, padded with -2. Give `out` one place more than there are devices, because
    /// the driver truncates.
    ///
    /// # Errors
    /// `InvalidValue` if `out` is empty or the range is not managed.
    fn range_accessed_by(&self, span: Span, out: &mut [i32]) -> Result<()>;

    /// One attribute of an address (`cuPointerGetAttribute`), as a 64-bit number.
    ///
    /// # Errors
    /// `InvalidValue` if the address belongs to no live allocation, or for an unknown attribute.
    fn pointer_attribute(&self, ptr: DevicePtr, attribute: PointerAttribute) -> Result<u64>;

    // ---- pools --------------------------------------------------------------------------------

    /// Makes a pool (`cuMemPoolCreate`).
    ///
    /// Driver 580 reserves 265 GiB of address space for each managed pool. When no address space is
    /// left, with some 460 managed pools alive, this call ends the process. For pools of pinned
    /// memory the call then fails with `OutOfMemory` (CONTRACT-94).
    ///
    /// # Errors
    /// `InvalidValue` for a combination that the type of memory does not take; see [`PoolProps`].
    fn pool_create(&self, props: PoolProps) -> Result<PoolHandle>;

    /// Destroys a pool (`cuMemPoolDestroy`). Its memory is released when the last allocation is
    /// freed.
    ///
    /// The driver back end empties a managed pool at once, and destroys it when no younger pool of
    /// its location is left: driver 580 ends the process in this call if an older pool with
    /// prefetched memory was destroyed before (CONTRACT-95).
    ///
    /// # Errors
    /// `InvalidValue` for no live pool, or for a default pool.
    ///
    /// # Safety
    /// The handle may not be used again.
    unsafe fn pool_destroy(&self, pool: PoolHandle) -> Result<()>;

    /// The default pool of a location (`cuMemGetDefaultMemPool`). Requires
    /// [`Capabilities::location_pools`].
    ///
    /// # Errors
    /// `Unsupported` for `HOST_NUMA_CURRENT`; `InvalidValue` for an unknown type or location.
    fn pool_default(&self, location: Location, kind: AllocationType) -> Result<PoolHandle>;

    /// The current pool of a location (`cuMemGetMemPool`); the default pool until
    /// [`pool_set_current`](Self::pool_set_current).
    ///
    /// # Errors
    /// As [`pool_default`](Self::pool_default).
    fn pool_current(&self, location: Location, kind: AllocationType) -> Result<PoolHandle>;

    /// Makes a pool the current one of a location (`cuMemSetMemPool`). Global to the process.
    ///
    /// # Errors
    /// `InvalidValue` unless location and type are the pool's own.
    fn pool_set_current(
        &self,
        location: Location,
        kind: AllocationType,
        pool: PoolHandle,
    ) -> Result<()>;

    /// An attribute of a pool (`cuMemPoolGetAttribute`), as a 64-bit number; bytes for sizes.
    ///
    /// # Errors
    /// `InvalidValue` for no live pool, or an attribute that this version does not know.
    fn pool_attribute(&self, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64>;

    /// Sets an attribute of a pool (`cuMemPoolSetAttribute`).
    ///
    /// # Errors
    /// `InvalidValue` for no live pool, a read-only attribute, or a high-water mark other than 0.
    fn pool_set_attribute(
        &self,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()>;

    /// Gives unused memory back (`cuMemPoolTrimTo`). At least `min_bytes_to_keep` bytes stay
    /// reserved.
    ///
    /// Memory that a managed pool gives back, by this call or after a wait, stays with the pool
    /// until it is destroyed. It is not reserved any more, and its contents are discarded. But
    /// `memory_info` does not count it as free, and processors that mapped it map it when it is
    /// allocated again (PAGING-271).
    ///
    /// # Errors
    /// `InvalidValue` for no live pool.
    fn pool_trim(&self, pool: PoolHandle, min_bytes_to_keep: u64) -> Result<()>;

    /// Gives a location access to a pool's memory, or takes it (`cuMemPoolSetAccess`).
    ///
    /// # Errors
    /// `Unsupported`, `InvalidDevice` or `InvalidValue`, by type and location of the pool;
    /// read-only access is supported for none.
    fn pool_set_access(
        &self,
        pool: PoolHandle,
        location: Location,
        access: AccessFlags,
    ) -> Result<()>;

    /// The access that a location has to a pool's memory (`cuMemPoolGetAccess`).
    ///
    /// # Errors
    /// `InvalidValue` for no live pool or an unusable location.
    fn pool_access(&self, pool: PoolHandle, location: Location) -> Result<AccessFlags>;

    /// Allocates from a pool in stream order (`cuMemAllocFromPoolAsync`). 0 bytes give the null
    /// pointer.
    ///
    /// Memory that a managed pool gives out again has discarded contents and is mapped as it was.
    /// If the pool has a location, driver 580 moves the memory there first. If it has none, a write
    /// to a mapped page does not fault, and the next migration loses the written bytes: prefetch
    /// the memory before it is written, as the API does. (Probed on an H200; the simulator does the
    /// same if it is configured to show the driver's discarded contents.)
    ///
    /// # Errors
    /// `InvalidValue` for no live pool; `OutOfMemory` past its size limit.
    fn pool_alloc(&self, pool: PoolHandle, bytes: u64, stream: StreamHandle) -> Result<DevicePtr>;

    /// Frees pool or device memory in stream order (`cuMemFreeAsync`). Freeing null succeeds and
    /// does nothing.
    ///
    /// # Errors
    /// `InvalidValue` if `ptr` is not the first byte of such an allocation; `Unsupported` for
    /// managed memory that does not come from a pool.
    ///
    /// # Safety
    /// No work submitted later, and none unordered with `stream`, may use the memory.
    unsafe fn free_async(&self, ptr: DevicePtr, stream: StreamHandle) -> Result<()>;

    // ---- other processes ----------------------------------------------------------------------

    /// A handle by which another process imports a pool (`cuMemPoolExportToShareableHandle`), of
    /// one of the types that the pool was made with. Each call makes a new descriptor, which the
    /// caller closes.
    ///
    /// # Errors
    /// `InvalidValue` for no live pool, one that does not have the type, or an imported one;
    /// `Unsupported` for types other than a file descriptor, which this crate does not carry.
    fn pool_export(&self, pool: PoolHandle, kind: HandleTypes) -> Result<ShareableHandle>;

    /// A pool of another process (`cuMemPoolImportFromShareableHandle`). The handle stays the
    /// caller's. Importing a pool again gives the same one. An imported pool allocates nothing, has
    /// no attributes, cannot become current and cannot be exported (`InvalidValue` each); access
    /// can be given, and it can be destroyed.
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | driver 580 | imports what another process exported; see Safety |
    /// | simulator | the same (on Linux on x86-64 and aarch64), and imports what the same machine exported |
    ///
    /// # Errors
    /// `InvalidValue` for no handle type; `Unsupported` for types other than a file descriptor; 999
    /// (`UNKNOWN`) for a handle that names no pool; `InvalidDevice` on the simulator for a pool of a
    /// place that the machine does not have.
    ///
    /// # Safety
    /// On a driver the handle is of another process. Driver 580 accepts a handle of its own
    /// process, and then crashes.
    unsafe fn pool_import(&self, handle: ShareableHandle, kind: HandleTypes) -> Result<PoolHandle>;

    /// Exports an allocation, so that another process can import it (`cuMemPoolExportPointer`).
    ///
    /// # Errors
    /// `InvalidValue` unless `ptr` is the first byte of live memory of a pool that was exported
    /// before.
    fn pool_export_pointer(&self, ptr: DevicePtr) -> Result<ExportedPointer>;

    /// An allocation of another process (`cuMemPoolImportPointer`), freed by
    /// [`free_async`](Self::free_async) here *before* the exporter frees it.
    ///
    /// # Errors
    /// `InvalidValue` for a pool that was not imported, or a blob that is not of it; 208
    /// (`ALREADY_MAPPED`) for memory on the host that is imported already. A second import of
    /// memory on a device gives the same address, and one free ends both: import once.
    ///
    /// # Safety
    /// The exporter's allocation has completed, and the exporter frees it after the import was
    /// freed here.
    unsafe fn pool_import_pointer(
        &self,
        pool: PoolHandle,
        exported: ExportedPointer,
    ) -> Result<DevicePtr>;

    /// A handle by which another process opens device memory (`cuIpcGetMemHandle`). Each address of
    /// an allocation gives the handle of the whole allocation.
    ///
    /// # Errors
    /// `InvalidValue` for anything but memory of [`alloc_device`](Self::alloc_device): managed,
    /// pinned and pool memory have none.
    fn ipc_mem_handle(&self, ptr: DevicePtr) -> Result<IpcMemHandle>;

    /// Device memory of another process, in a device's context (`cuIpcOpenMemHandle`). That device
    /// reaches it, and no other. Memory that the device opens again has the same address, and is
    /// closed as often; another device gets another address.
    ///
    /// # Errors
    /// 201 (`INVALID_CONTEXT`) for a handle of this process, on the simulator of this machine;
    /// `InvalidValue` for bytes that are no handle; `InvalidDevice`; 217 (`PEER_ACCESS_UNSUPPORTED`)
    /// for a device that does not reach the memory's. The simulator answers `InvalidValue` to a handle of memory or of a process that is gone.
    ///
    /// # Safety
    /// The exporter keeps the memory until it was closed here.
    unsafe fn ipc_open_mem_handle(
        &self,
        device: DeviceId,
        handle: IpcMemHandle,
    ) -> Result<DevicePtr>;

    /// Closes memory that was opened by its handle (`cuIpcCloseMemHandle`).
    ///
    /// # Errors
    /// `InvalidValue` for memory that was not opened.
    ///
    /// # Safety
    /// No thread, and no work of a device, may use the memory during or after the call.
    unsafe fn ipc_close_mem_handle(&self, ptr: DevicePtr) -> Result<()>;

    // ---- virtual memory management ------------------------------------------------------------

    /// The unit of sizes and addresses for physical memory of these properties, in bytes
    /// (`cuMemGetAllocationGranularity`). Requires [`Capabilities::virtual_memory`], as all calls
    /// of this group do; they answer `Unsupported` (801) without it. The codes of this group are
    /// those of an H200, but for the guesses that `docs/driver/contract.md` names. The properties
    /// are not checked: [`memory_create`](Self::memory_create) does that.
    ///
    /// # Errors
    /// `InvalidValue` for an unknown granularity.
    fn memory_granularity(&self, props: MemoryProps, which: Granularity) -> Result<u64>;

    /// Reserves addresses without memory behind them (`cuMemAddressReserve`). `align_bytes` is a
    /// power of two, or 0 for the driver's choice. `hint` is where the range should begin, null for
    /// anywhere; a hint that cannot be kept counts as none. Nothing may access the addresses before
    /// memory is mapped there.
    ///
    /// # Errors
    /// `InvalidValue` if `bytes` is 0, if `bytes` or `hint` is no multiple of 2 MiB, or for another
    /// alignment; `OutOfMemory` if no such range is free.
    fn address_reserve(&self, bytes: u64, align_bytes: u64, hint: DevicePtr) -> Result<DevicePtr>;

    /// Gives reserved addresses back (`cuMemAddressFree`): one whole reservation.
    ///
    /// # Errors
    /// `InvalidValue` unless the range is one whole reservation, or while memory is mapped in it.
    ///
    /// # Safety
    /// No code uses the addresses from now on: another allocation may get them.
    unsafe fn address_free(&self, span: Span) -> Result<()>;

    /// Makes physical memory without an address (`cuMemCreate`). It counts in
    /// [`memory_info`](Self::memory_info) of its device from now on. Contents are indeterminate.
    ///
    /// # Errors
    /// `InvalidValue` if `bytes` is 0 or no multiple of the minimum
    /// [granularity](Self::memory_granularity), for another type of memory than `PINNED`, for a
    /// location that has no such memory (host NUMA nodes before 12.2, the host before 13.0,
    /// `HOST_NUMA_CURRENT`), for handle types of the host as a whole, or of Windows;
    /// `InvalidDevice`; `Unsupported` for other handle types that the device does not have;
    /// `NotPermitted` (800) for fabric handles on a machine without an IMEX channel; `OutOfMemory`.
    fn memory_create(&self, bytes: u64, props: MemoryProps) -> Result<MemoryHandle>;

    /// Gives the handle of physical memory back (`cuMemRelease`). The memory stays as long as it is
    /// mapped anywhere.
    ///
    /// # Errors
    /// `InvalidValue` for no live handle of this back end. Drivers do not check that.
    ///
    /// # Safety
    /// The handle may not be used again.
    unsafe fn memory_release(&self, memory: MemoryHandle) -> Result<()>;

    /// Maps all of some physical memory at reserved addresses (`cuMemMap`). Memory may be mapped
    /// at several places, which then show the same bytes. No processor may access the addresses
    /// before [`memory_set_access`](Self::memory_set_access).
    ///
    /// | back end | memory of the host, mapped at several places |
    /// | --- | --- |
    /// | driver | the host's own accesses see the same bytes at all of them |
    /// | simulator | the host's own accesses see them at the latest; the calls of this trait, at all |
    ///
    /// # Errors
    /// `InvalidValue` if the memory is not live, or the range is empty, does not start at a
    /// multiple of the granularity, is not within one reservation (which drivers do not check at
    /// its end), or has memory in it already; `Unsupported` (801) if `offset_bytes` is not 0, or
    /// the range is not as long as the memory.
    ///
    /// # Safety
    /// If the memory is mapped elsewhere, no code counts on having its bytes alone.
    unsafe fn memory_map(&self, span: Span, offset_bytes: u64, memory: MemoryHandle) -> Result<()>;

    /// Takes memory away from its addresses (`cuMemUnmap`), which stay reserved. The range may hold
    /// several mappings, gaps, or nothing. Physical memory
    /// without handle and mapping goes back to its device. Drivers wait for work of devices in most
    /// cases, and promise that for none.
    ///
    /// # Errors
    /// `InvalidValue` if the range is empty, is not within one reservation (which drivers may not
    /// check), or holds a part of a mapping.
    ///
    /// # Safety
    /// No thread, and no work of a device, may use the range during or after the call.
    unsafe fn memory_unmap(&self, span: Span) -> Result<()>;

    /// Sets what places may do with mapped memory (`cuMemSetAccess`). Places that `wanted` does not
    /// name keep their access.
    ///
    /// # Errors
    /// `InvalidValue` unless the range is one or more whole mappings without a gap, for no places,
    /// unknown flags, or a place that is neither a device that exists nor on the host;
    /// `Unsupported` (801) for the host and memory of a device; `InvalidDevice` for a device that
    /// is no peer of the one that has the memory.
    ///
    /// # Safety
    /// No thread, and no work of a device, loses access to memory that it uses.
    unsafe fn memory_set_access(&self, span: Span, wanted: &[MemoryAccess]) -> Result<()>;

    /// The access that a place has to mapped memory (`cuMemGetAccess`).
    ///
    /// # Errors
    /// `InvalidDevice` for a place that is neither a device that exists nor on the host;
    /// `InvalidValue` if nothing is mapped at the address, or for the host before 12.2.
    fn memory_access(&self, ptr: DevicePtr, location: Location) -> Result<AccessFlags>;

    // ---- streams and events -------------------------------------------------------------------

    /// Makes a stream on a device (`cuStreamCreate`).
    ///
    /// # Errors
    /// `InvalidDevice`; `InvalidValue` for unknown flags.
    fn stream_create(&self, device: DeviceId, flags: StreamFlags) -> Result<StreamHandle>;

    /// Destroys a stream (`cuStreamDestroy`); its work still completes.
    ///
    /// # Errors
    /// `InvalidHandle` for a default stream or no live stream.
    ///
    /// # Safety
    /// The handle may not be used again.
    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()>;

    /// Waits for all work of a stream (`cuStreamSynchronize`). Reports failures of that work.
    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()>;

    /// Makes later work of a stream wait for an event (`cuStreamWaitEvent`).
    fn stream_wait_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Attaches managed memory to a stream, to the host or to all streams
    /// (`cuStreamAttachMemAsync`). The range is a whole allocation: `bytes` is 0 or its size.
    ///
    /// # Errors
    /// `InvalidValue` for flags other than one of `GLOBAL`, `HOST`, `SINGLE`, for `SINGLE` with the
    /// default stream, or a range that is not one whole managed allocation.
    ///
    /// # Safety
    /// Without concurrent managed access, the memory may from then on be accessed only as the
    /// attachment allows.
    unsafe fn stream_attach(
        &self,
        stream: StreamHandle,
        span: Span,
        flags: AttachFlags,
    ) -> Result<()>;

    /// Makes an event on a device (`cuEventCreate`).
    ///
    /// # Errors
    /// `InvalidDevice`; `InvalidValue` for unknown flags.
    fn event_create(&self, device: DeviceId, flags: EventFlags) -> Result<EventHandle>;

    /// Destroys an event (`cuEventDestroy`).
    ///
    /// # Errors
    /// `InvalidHandle` for no live event.
    ///
    /// # Safety
    /// The handle may not be used again.
    unsafe fn event_destroy(&self, event: EventHandle) -> Result<()>;

    /// Records an event at the present end of a stream (`cuEventRecord`).
    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()>;

    /// Whether all work before the event's record is done (`cuEventQuery`).
    fn event_query(&self, event: EventHandle) -> Result<bool>;

    /// Waits until all work before the event's record is done (`cuEventSynchronize`).
    fn event_synchronize(&self, event: EventHandle) -> Result<()>;

    /// Nanoseconds between the records of two events (`cuEventElapsedTime`, which has a resolution
    /// of 500 ns).
    ///
    /// # Errors
    /// `InvalidHandle` for an event that was not recorded or keeps no time; `NotReady`.
    fn event_elapsed_ns(&self, start: EventHandle, end: EventHandle) -> Result<u64>;

    // ---- contents -----------------------------------------------------------------------------

    /// Fills a range with one byte, on the device, in stream order (`cuMemsetD8Async`).
    ///
    /// # Errors
    /// `InvalidValue` if the range is not within one live allocation, or is memory of
    /// [`alloc_device`](Self::alloc_device) on another device than the stream's (device 0's, for
    /// the default streams); 100 (`NO_DEVICE`) on a simulated machine without devices.
    ///
    /// # Safety
    /// No thread, and no other work of a device, may use the range until the stream has passed the
    /// call.
    unsafe fn memset(&self, span: Span, value: u8, stream: StreamHandle) -> Result<()>;

    /// Copies between ranges, in stream order (`cuMemcpyAsync`).
    ///
    /// # Errors
    /// `InvalidValue` if a range is not within one live allocation; 100 (`NO_DEVICE`) on a
    /// simulated machine without devices.
    ///
    /// # Safety
    /// The ranges may not overlap. No thread, and no other work of a device, may write either, or
    /// read the destination, until the stream has passed the call.
    unsafe fn memcpy(
        &self,
        destination: DevicePtr,
        source: DevicePtr,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()>;

    /// Fills a range with a value of 2 bytes, on the device, in stream order (`cuMemsetD16Async`).
    ///
    /// # Errors
    /// As [`memset`](Self::memset); `InvalidValue` also if the range starts at an odd address or
    /// has an odd length.
    ///
    /// # Safety
    /// As [`memset`](Self::memset).
    unsafe fn memset_d16(&self, span: Span, value: u16, stream: StreamHandle) -> Result<()>;

    /// Fills a range with a value of 4 bytes, on the device, in stream order (`cuMemsetD32Async`).
    ///
    /// # Errors
    /// As [`memset`](Self::memset); `InvalidValue` also if address or length of the range are not
    /// multiples of 4.
    ///
    /// # Safety
    /// As [`memset`](Self::memset).
    unsafe fn memset_d32(&self, span: Span, value: u32, stream: StreamHandle) -> Result<()>;

    /// Copies between many ranges, in stream order (`cuMemcpyBatchAsync`). `attributes[i]` are
    /// those of the copies from `attribute_starts[i]` up to the next start.
    ///
    /// Before CUDA 12.8 a loop of [`memcpy`](Self::memcpy) with the same checks of the lists; it
    /// ignores hints and flags. If a copy of [`SourceOrder::DURING_CALL`](crate::SourceOrder) is
    /// among them, the loop waits for the stream before it returns.
    ///
    /// The copies are carried out in order. If one is refused, those before it are made, and neither
    /// it nor those after it (CONTRACT-105). The simulator moves the pages that the single calls
    /// move, and ignores hints and flags, which is a guess.
    ///
    /// # Errors
    /// `InvalidValue`, before anything is copied, if
    /// - the stream is the legacy default stream;
    /// - there is no copy, or the lists of attributes and starts differ in length or are empty;
    /// - the starts do not begin at 0, ascend, and stay below the number of copies;
    /// - [`CopyAttributes::check`] refuses attributes, or a hint names a device that does not exist
    ///   or an unknown kind of place (CONTRACT-106).
    ///
    /// `InvalidValue` with the copy ([`Error::item`](crate::Error::item)) for one of 0 bytes, or
    /// with a range that is not within one live allocation; a driver takes an address that it does
    /// not know for host memory instead. 100 (`NO_DEVICE`) on a simulated machine
    /// without devices.
    ///
    /// # Safety
    /// No range that one copy writes may overlap another range of the batch. No thread, and no
    /// other work of a device, may write a range, or read a destination, until the stream has
    /// passed the call. For sources of [`DURING_CALL`](crate::SourceOrder::DURING_CALL) the promise
    /// about the source ends when the call returns; for these and for
    /// [`ANY`](crate::SourceOrder::ANY) no earlier work of the stream may write the source.
    unsafe fn memcpy_batch(
        &self,
        copies: &[SpanCopy],
        attributes: &[CopyAttributes],
        attribute_starts: &[usize],
        stream: StreamHandle,
    ) -> Result<()>;

    /// Runs a host access program and returns the sum of the bytes that it read, 0 if it wrote.
    ///
    /// # Errors
    /// `IllegalAddress` if the range is not within one allocation that the host can reach. Without
    /// [`Capabilities::concurrent_managed_access`] also while work of a device has not been waited
    /// for, where a real process would end. `InvalidValue` if the stride is 0.
    ///
    /// # Safety
    /// No other thread, and no work of a device, may use the range meanwhile.
    unsafe fn host_touch(&self, touch: HostTouch) -> Result<u64>;

    /// Runs a device access program in stream order and returns the sum of the bytes that it read,
    /// 0 if it wrote. The result is final once the call returns: it waits for the program.
    ///
    /// # Errors
    /// In this order: `InvalidDevice`; `InvalidHandle` for a stream that was made on another device
    /// (each device has default streams of its own); `InvalidValue` for what
    /// [`DeviceTouch::check`] refuses: stride, blocks or threads of 0, and an atomic with words that
    /// are not wholly in the range; `IllegalAddress` if the range is not within one allocation that
    /// the device can reach.
    ///
    /// # Safety
    /// No thread, and no other work of a device, may use the range meanwhile.
    unsafe fn device_touch(&self, touch: DeviceTouch, stream: StreamHandle) -> Result<u64>;

    // ---- kernels ------------------------------------------------------------------------------

    /// Makes the accesses that a kernel is declared to make, in stream order, and waits for them.
    /// Pages fault, move and are mapped as by a kernel with these accesses. Contents stay as they
    /// are, except that discarded pages which are written count as written.
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | simulator | makes the accesses; no code runs |
    /// | CUDA | `Unsupported` (801): there only code runs, see [`launch`](Self::launch) |
    ///
    /// Requires [`Capabilities::declared_kernels`].
    ///
    /// # Errors
    /// In this order: `InvalidDevice`; `InvalidHandle` for a stream that was made on another
    /// device; `InvalidValue` for what [`KernelAccesses::check`] refuses; `IllegalAddress` if a
    /// range is not within one allocation that the device can reach.
    ///
    /// # Safety
    /// No thread, and no other work of a device, may use the ranges meanwhile.
    unsafe fn kernel_accesses(&self, kernel: &KernelAccesses, stream: StreamHandle) -> Result<()>;

    /// Carries out the accesses of a launch that was observed on some machine: pages move as they
    /// did there, as far as this machine is alike. Contents stay as they are.
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | simulator | makes the accesses; no code runs |
    /// | CUDA | `Unsupported` (801): there kernels run, see [`launch`](Self::launch) |
    ///
    /// # Errors
    /// In this order: `InvalidDevice`; `InvalidHandle` for a stream that was made on another
    /// device; `InvalidValue` for what [`RecordedLaunch::check`] refuses, and for accesses that
    /// cannot be read or leave their ranges; `IllegalAddress` if a range is not within one managed
    /// allocation that the device can reach. Nothing moves then.
    ///
    /// # Safety
    /// No thread, and no other work of a device, may use the ranges meanwhile.
    unsafe fn launch_recorded(&self, launch: &RecordedLaunch, stream: StreamHandle) -> Result<()>;

    /// Loads a module into a device's context (`cuModuleLoadData`). Requires
    /// [`Capabilities::kernels`]. `image` is PTX text, a cubin or a fatbin; a NUL after text is not
    /// needed. The module's global variables get memory, with their first values.
    ///
    /// | back end | behaviour |
    /// | --- | --- |
    /// | simulator | checks and lowers PTX; executes no machine code |
    /// | CUDA | the driver compiles PTX |
    ///
    /// # Errors
    /// `InvalidDevice`; `InvalidValue` for an empty image; the driver's, such as 200
    /// (`INVALID_IMAGE`) and 218 (`INVALID_PTX`), of which the simulator's detail names line and
    /// column. From the simulator `Unsupported` (801) for an image without PTX, and on a machine that
    /// keeps no contents.
    ///
    /// # Safety
    /// A cubin or fatbin must be whole: the driver reads as many bytes as its header says.
    unsafe fn module_load(&self, device: DeviceId, image: &[u8]) -> Result<ModuleHandle>;

    /// Unloads a module (`cuModuleUnload`). Its functions and variables are gone with it. While a
    /// call uses a function of the module, the module stays until that call ends.
    ///
    /// # Errors
    /// `InvalidHandle` if it is no live module that this back end loaded.
    ///
    /// # Safety
    /// No kernel of the module may be running or waiting in a stream, and no code may use its
    /// variables any more.
    unsafe fn module_unload(&self, module: ModuleHandle) -> Result<()>;

    /// A kernel of a module (`cuModuleGetFunction`).
    ///
    /// # Errors
    /// `InvalidHandle` if it is no live module that this back end loaded; `InvalidValue` for a name
    /// with a NUL; 500 (`NOT_FOUND`) if the module has no such kernel.
    fn module_function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle>;

    /// The memory of a global variable of a module (`cuModuleGetGlobal`): memory of the module's
    /// device, or managed memory.
    ///
    /// # Errors
    /// As [`module_function`](Self::module_function).
    fn module_global(&self, module: ModuleHandle, name: &str) -> Result<Span>;

    /// The parameters that a kernel declares, in their order (`cuFuncGetParamInfo`).
    ///
    /// # Errors
    /// `InvalidHandle` for a function of a module that is not live; `Unsupported` on drivers before
    /// CUDA 12.4, which do not tell.
    fn function_params(&self, function: FunctionHandle) -> Result<Vec<ParamInfo>>;

    /// An attribute of a kernel (`cuFuncGetAttribute`).
    ///
    /// # Errors
    /// `InvalidHandle` for a function of a module that is not live; `InvalidValue` for an attribute
    /// that the driver does not know.
    fn function_attribute(
        &self,
        function: FunctionHandle,
        attribute: FunctionAttribute,
    ) -> Result<i32>;

    /// Sets an attribute of a kernel (`cuFuncSetAttribute`).
    ///
    /// # Errors
    /// `InvalidHandle` for a function of a module that is not live; `InvalidValue` for an attribute
    /// that cannot be set, or a value that the device does not take.
    fn function_set_attribute(
        &self,
        function: FunctionHandle,
        attribute: FunctionAttribute,
        value: i32,
    ) -> Result<()>;

    /// Blocks of a kernel that a multiprocessor holds at once, with so many threads and so many
    /// bytes of dynamic shared memory each (`cuOccupancyMaxActiveBlocksPerMultiprocessor`); 0 if it
    /// cannot hold one. The simulator estimates the registers of a thread.
    ///
    /// # Errors
    /// `InvalidHandle` for a function of a module that is not live; `InvalidValue` for no threads.
    fn occupancy_blocks(
        &self,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32>;

    /// The block that keeps most threads of a multiprocessor busy, and a grid that fills the device
    /// (`cuOccupancyMaxPotentialBlockSize`). `threads_max` limits the block, unless it is 0.
    ///
    /// # Errors
    /// `InvalidHandle` for a function of a module that is not live.
    fn occupancy_best_block(
        &self,
        function: FunctionHandle,
        shared_bytes: u32,
        threads_max: u32,
    ) -> Result<BestBlock>;

    /// Launches a kernel in stream order (`cuLaunchKernel`), and does not wait for it. `params` are
    /// its parameters in their order.
    ///
    /// A kernel that ends early, by a wild access for one, is no error of this call: all later calls
    /// that need the device return its code, such as 700 (`ILLEGAL_ADDRESS`). The simulator's detail
    /// then is a report with the line of the PTX, the thread, the address and the memory near it.
    /// The simulator runs the kernel within this call. If all its threads wait for memory to change,
    /// other threads of the process may use the machine until it has changed.
    ///
    /// # Errors
    /// `InvalidHandle` if function or stream is not live, or of different devices; `InvalidValue`
    /// for a grid with 0 blocks or threads, or one that the device does not take, and from the
    /// simulator for other parameters than the kernel's; 701 (`LAUNCH_OUT_OF_RESOURCES`).
    ///
    /// # Safety
    /// `params` must be as many as the kernel declares, each of the size of its type. The kernel
    /// may use no memory that its device cannot reach, or that other code uses, until the stream
    /// has passed the call.
    unsafe fn launch(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        stream: StreamHandle,
    ) -> Result<()>;

    /// Launches a kernel as [`launch`](Self::launch) does, and says what it accessed: by page, and in
    /// the order in which its warps waited. [`launch_recorded`](Self::launch_recorded) moves the same
    /// pages without the kernel. Requires [`Capabilities::traced_launches`], which a driver lacks.
    ///
    /// A kernel that faults gives what it accessed until then. Its error is that of later calls, as
    /// after `launch`.
    ///
    /// # Errors
    /// Those of [`launch`](Self::launch). `Unsupported` (801) without the capability: nothing is
    /// launched then; and for a kernel that comes to wait for memory to change, which is given up.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn launch_traced(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        stream: StreamHandle,
    ) -> Result<RecordedLaunch>;

    // ---- observation --------------------------------------------------------------------------

    /// The host's page table for the pages of a range, as runs; adjacent runs differ.
    /// Requires [`Capabilities::host_page_map`].
    ///
    /// # Errors
    /// `Unsupported`; `InvalidValue` if the range is not within one live allocation.
    fn host_page_map(&self, span: Span) -> Result<Vec<PageRun>>;

    /// The records since the last call of this, in order. Requires [`Capabilities::events`].
    ///
    /// They leave the back end: an observer that uses [`events_since`](Self::events_since) and began
    /// before them finds them lost.
    ///
    /// # Errors
    /// `Unsupported`.
    fn take_events(&self) -> Result<Vec<MemoryEvent>>;

    /// Sums over all records since the back end was opened, and the records from a position on,
    /// which stay. So observers neither disturb each other nor need to know of each other: each
    /// remembers the position and the sums that it found when it began. A position after the last
    /// record, such as `u64::MAX`, asks for the sums and the present position alone.
    ///
    /// The simulator counts even if it keeps no records (`EventCapture::Off`): then all are lost. A
    /// driver needs an observer ([`Capabilities::events`]).
    ///
    /// The simulator also names the call of each record, with its stream and its thread
    /// ([`EventsSince::calls`]). A driver cannot tell.
    ///
    /// # Errors
    /// `Unsupported` where nothing counts.
    fn events_since(&self, position: u64) -> Result<EventsSince>;

    /// The back end's clock in nanoseconds since it was made: virtual on the simulator, monotonic
    /// on a driver.
    fn clock_ns(&self) -> u64;

    /// Lets time pass: virtual on the simulator, real on a driver. Virtual time ends after some 292
    /// years, and so do longer sleeps.
    fn sleep_ns(&self, duration_ns: u64);
}
