//! The list of the calls of a back end, for code that treats them all alike.

/// Gives every call of [`Backend`](crate::Backend) that can fail to another macro, in the trait's
/// order: `Name = [unsafe] fn name(argument: Type, …) -> Answer;`, with `[]` for calls that are not
/// `unsafe`. Each method takes `&self` besides and returns a [`Result`](crate::Result) of the
/// answer.
///
/// Wrappers are generated from the list, so that a call is added in one place. `capabilities`,
/// `clock_ns` and `sleep_ns` cannot fail and are not in it. An implementation of the trait that is
/// generated from the list does not compile if a call is missing.
///
/// ```
/// macro_rules! names {
///     ($($call:ident = [$($unsafe:tt)?] fn $name:ident(
///         $($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
///         const NAMES: &[&str] = &[$(stringify!($name)),*];
///     };
/// }
/// pagewise_hal::with_calls!(names);
/// assert_eq!(NAMES[..2], ["driver_version", "device_count"]);
/// assert!(NAMES.contains(&"discard_prefetch_batch"));
/// ```
#[macro_export]
macro_rules! with_calls {
    ($then:ident) => {
        $then! {
            DriverVersion = [] fn driver_version() -> $crate::DriverVersion;
            DeviceCount = [] fn device_count() -> u32;
            DeviceAttribute = [] fn device_attribute(
                device: $crate::DeviceId,
                attribute: $crate::DeviceAttribute
            ) -> i32;
            CanAccessPeer = [] fn can_access_peer(
                device: $crate::DeviceId,
                peer: $crate::DeviceId
            ) -> bool;
            MemoryInfo = [] fn memory_info(device: $crate::DeviceId) -> $crate::MemoryInfo;
            AllocManaged = [] fn alloc_managed(
                bytes: u64,
                flags: $crate::AttachFlags
            ) -> $crate::DevicePtr;
            AllocDevice = [] fn alloc_device(
                device: $crate::DeviceId,
                bytes: u64
            ) -> $crate::DevicePtr;
            AllocPinned = [] fn alloc_pinned(
                bytes: u64,
                flags: $crate::HostAllocFlags
            ) -> $crate::DevicePtr;
            Free = [unsafe] fn free(ptr: $crate::DevicePtr) -> ();
            FreePinned = [unsafe] fn free_pinned(ptr: $crate::DevicePtr) -> ();
            HostRegister = [unsafe] fn host_register(
                span: $crate::Span,
                flags: $crate::HostRegisterFlags
            ) -> ();
            HostUnregister = [unsafe] fn host_unregister(ptr: $crate::DevicePtr) -> ();
            AdviseOrdinal = [] fn advise_ordinal(
                span: $crate::Span,
                advice: $crate::Advice,
                ordinal: i32
            ) -> ();
            Advise = [] fn advise(
                span: $crate::Span,
                advice: $crate::Advice,
                location: $crate::Location
            ) -> ();
            PrefetchOrdinal = [] fn prefetch_ordinal(
                span: $crate::Span,
                ordinal: i32,
                stream: $crate::StreamHandle
            ) -> ();
            Prefetch = [] fn prefetch(
                span: $crate::Span,
                location: $crate::Location,
                flags: u32,
                stream: $crate::StreamHandle
            ) -> ();
            PrefetchBatch = [] fn prefetch_batch(
                spans: &[$crate::Span],
                locations: &[$crate::Location],
                location_starts: &[usize],
                flags: u64,
                stream: $crate::StreamHandle
            ) -> ();
            DiscardBatch = [unsafe] fn discard_batch(
                spans: &[$crate::Span],
                flags: u64,
                stream: $crate::StreamHandle
            ) -> ();
            DiscardPrefetchBatch = [unsafe] fn discard_prefetch_batch(
                spans: &[$crate::Span],
                locations: &[$crate::Location],
                location_starts: &[usize],
                flags: u64,
                stream: $crate::StreamHandle
            ) -> ();
            RangeAttribute = [] fn range_attribute(
                span: $crate::Span,
                attribute: $crate::RangeAttribute
            ) -> i32;
            RangeAccessedBy = [] fn range_accessed_by(span: $crate::Span, out: &mut [i32]) -> ();
            PointerAttribute = [] fn pointer_attribute(
                ptr: $crate::DevicePtr,
                attribute: $crate::PointerAttribute
            ) -> u64;
            PoolCreate = [] fn pool_create(props: $crate::PoolProps) -> $crate::PoolHandle;
            PoolDestroy = [unsafe] fn pool_destroy(pool: $crate::PoolHandle) -> ();
            PoolDefault = [] fn pool_default(
                location: $crate::Location,
                kind: $crate::AllocationType
            ) -> $crate::PoolHandle;
            PoolCurrent = [] fn pool_current(
                location: $crate::Location,
                kind: $crate::AllocationType
            ) -> $crate::PoolHandle;
            PoolSetCurrent = [] fn pool_set_current(
                location: $crate::Location,
                kind: $crate::AllocationType,
                pool: $crate::PoolHandle
            ) -> ();
            PoolAttribute = [] fn pool_attribute(
                pool: $crate::PoolHandle,
                attribute: $crate::PoolAttribute
            ) -> u64;
            PoolSetAttribute = [] fn pool_set_attribute(
                pool: $crate::PoolHandle,
                attribute: $crate::PoolAttribute,
                value: u64
            ) -> ();
            PoolTrim = [] fn pool_trim(pool: $crate::PoolHandle, min_bytes_to_keep: u64) -> ();
            PoolSetAccess = [] fn pool_set_access(
                pool: $crate::PoolHandle,
                location: $crate::Location,
                access: $crate::AccessFlags
            ) -> ();
            PoolAccess = [] fn pool_access(
                pool: $crate::PoolHandle,
                location: $crate::Location
            ) -> $crate::AccessFlags;
            PoolAlloc = [] fn pool_alloc(
                pool: $crate::PoolHandle,
                bytes: u64,
                stream: $crate::StreamHandle
            ) -> $crate::DevicePtr;
            FreeAsync = [unsafe] fn free_async(
                ptr: $crate::DevicePtr,
                stream: $crate::StreamHandle
            ) -> ();
            PoolExport = [] fn pool_export(
                pool: $crate::PoolHandle,
                kind: $crate::HandleTypes
            ) -> $crate::ShareableHandle;
            PoolImport = [unsafe] fn pool_import(
                handle: $crate::ShareableHandle,
                kind: $crate::HandleTypes
            ) -> $crate::PoolHandle;
            PoolExportPointer = [] fn pool_export_pointer(
                ptr: $crate::DevicePtr
            ) -> $crate::ExportedPointer;
            PoolImportPointer = [unsafe] fn pool_import_pointer(
                pool: $crate::PoolHandle,
                exported: $crate::ExportedPointer
            ) -> $crate::DevicePtr;
            IpcMemHandle = [] fn ipc_mem_handle(ptr: $crate::DevicePtr) -> $crate::IpcMemHandle;
            IpcOpenMemHandle = [unsafe] fn ipc_open_mem_handle(
                device: $crate::DeviceId,
                handle: $crate::IpcMemHandle
            ) -> $crate::DevicePtr;
            IpcCloseMemHandle = [unsafe] fn ipc_close_mem_handle(ptr: $crate::DevicePtr) -> ();
            MemoryGranularity = [] fn memory_granularity(
                props: $crate::MemoryProps,
                which: $crate::Granularity
            ) -> u64;
            AddressReserve = [] fn address_reserve(
                bytes: u64,
                align_bytes: u64,
                hint: $crate::DevicePtr
            ) -> $crate::DevicePtr;
            AddressFree = [unsafe] fn address_free(span: $crate::Span) -> ();
            MemoryCreate = [] fn memory_create(
                bytes: u64,
                props: $crate::MemoryProps
            ) -> $crate::MemoryHandle;
            MemoryRelease = [unsafe] fn memory_release(memory: $crate::MemoryHandle) -> ();
            MemoryMap = [unsafe] fn memory_map(
                span: $crate::Span,
                offset_bytes: u64,
                memory: $crate::MemoryHandle
            ) -> ();
            MemoryUnmap = [unsafe] fn memory_unmap(span: $crate::Span) -> ();
            MemorySetAccess = [unsafe] fn memory_set_access(
                span: $crate::Span,
                wanted: &[$crate::MemoryAccess]
            ) -> ();
            MemoryAccess = [] fn memory_access(
                ptr: $crate::DevicePtr,
                location: $crate::Location
            ) -> $crate::AccessFlags;
            StreamCreate = [] fn stream_create(
                device: $crate::DeviceId,
                flags: $crate::StreamFlags
            ) -> $crate::StreamHandle;
            StreamDestroy = [unsafe] fn stream_destroy(stream: $crate::StreamHandle) -> ();
            StreamSynchronize = [] fn stream_synchronize(stream: $crate::StreamHandle) -> ();
            StreamWaitEvent = [] fn stream_wait_event(
                stream: $crate::StreamHandle,
                event: $crate::EventHandle
            ) -> ();
            StreamAttach = [unsafe] fn stream_attach(
                stream: $crate::StreamHandle,
                span: $crate::Span,
                flags: $crate::AttachFlags
            ) -> ();
            EventCreate = [] fn event_create(
                device: $crate::DeviceId,
                flags: $crate::EventFlags
            ) -> $crate::EventHandle;
            EventDestroy = [unsafe] fn event_destroy(event: $crate::EventHandle) -> ();
            EventRecord = [] fn event_record(
                event: $crate::EventHandle,
                stream: $crate::StreamHandle
            ) -> ();
            EventQuery = [] fn event_query(event: $crate::EventHandle) -> bool;
            EventSynchronize = [] fn event_synchronize(event: $crate::EventHandle) -> ();
            EventElapsedNs = [] fn event_elapsed_ns(
                start: $crate::EventHandle,
                end: $crate::EventHandle
            ) -> u64;
            Memset = [unsafe] fn memset(
                span: $crate::Span,
                value: u8,
                stream: $crate::StreamHandle
            ) -> ();
            Memcpy = [unsafe] fn memcpy(
                destination: $crate::DevicePtr,
                source: $crate::DevicePtr,
                bytes: u64,
                stream: $crate::StreamHandle
            ) -> ();
            MemsetD16 = [unsafe] fn memset_d16(
                span: $crate::Span,
                value: u16,
                stream: $crate::StreamHandle
            ) -> ();
            MemsetD32 = [unsafe] fn memset_d32(
                span: $crate::Span,
                value: u32,
                stream: $crate::StreamHandle
            ) -> ();
            MemcpyBatch = [unsafe] fn memcpy_batch(
                copies: &[$crate::SpanCopy],
                attributes: &[$crate::CopyAttributes],
                attribute_starts: &[usize],
                stream: $crate::StreamHandle
            ) -> ();
            HostTouch = [unsafe] fn host_touch(touch: $crate::HostTouch) -> u64;
            DeviceTouch = [unsafe] fn device_touch(
                touch: $crate::DeviceTouch,
                stream: $crate::StreamHandle
            ) -> u64;
            KernelAccesses = [unsafe] fn kernel_accesses(
                kernel: &$crate::KernelAccesses,
                stream: $crate::StreamHandle
            ) -> ();
            LaunchRecorded = [unsafe] fn launch_recorded(
                kernel: &$crate::RecordedLaunch,
                stream: $crate::StreamHandle
            ) -> ();
            ModuleLoad = [unsafe] fn module_load(
                device: $crate::DeviceId,
                image: &[u8]
            ) -> $crate::ModuleHandle;
            ModuleUnload = [unsafe] fn module_unload(module: $crate::ModuleHandle) -> ();
            ModuleFunction = [] fn module_function(
                module: $crate::ModuleHandle,
                name: &str
            ) -> $crate::FunctionHandle;
            ModuleGlobal = [] fn module_global(
                module: $crate::ModuleHandle,
                name: &str
            ) -> $crate::Span;
            FunctionParams = [] fn function_params(
                function: $crate::FunctionHandle
            ) -> Vec<$crate::ParamInfo>;
            FunctionAttribute = [] fn function_attribute(
                function: $crate::FunctionHandle,
                attribute: $crate::FunctionAttribute
            ) -> i32;
            FunctionSetAttribute = [] fn function_set_attribute(
                function: $crate::FunctionHandle,
                attribute: $crate::FunctionAttribute,
                value: i32
            ) -> ();
            OccupancyBlocks = [] fn occupancy_blocks(
                function: $crate::FunctionHandle,
                block_threads: u32,
                shared_bytes: u32
            ) -> u32;
            OccupancyBestBlock = [] fn occupancy_best_block(
                function: $crate::FunctionHandle,
                shared_bytes: u32,
                threads_max: u32
            ) -> $crate::BestBlock;
            Launch = [unsafe] fn launch(
                function: $crate::FunctionHandle,
                shape: $crate::LaunchShape,
                params: &[$crate::KernelParam],
                stream: $crate::StreamHandle
            ) -> ();
            LaunchTraced = [unsafe] fn launch_traced(
                function: $crate::FunctionHandle,
                shape: $crate::LaunchShape,
                params: &[$crate::KernelParam],
                stream: $crate::StreamHandle
            ) -> $crate::RecordedLaunch;
            HostPageMap = [] fn host_page_map(span: $crate::Span) -> Vec<$crate::PageRun>;
            TakeEvents = [] fn take_events() -> Vec<$crate::MemoryEvent>;
            EventsSince = [] fn events_since(position: u64) -> $crate::EventsSince;
        }
    };
}
