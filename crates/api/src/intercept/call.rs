//! The description of a call that an interceptor gets.

use std::fmt;
use std::str::FromStr;

use pagewise_hal::{Error, Location, Result, Span};

use crate::refuse::invalid;

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A method of [`Backend`](crate::Backend) that can fail.
        ///
        /// ```
        /// use pagewise::intercept::Operation;
        ///
        /// assert_eq!(Operation::AllocManaged.name(), "alloc_managed");
        /// assert_eq!("prefetch".parse::<Operation>()?, Operation::Prefetch);
        /// assert!("fly".parse::<Operation>().is_err());
        /// # Ok::<(), pagewise::Error>(())
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum Operation {
            $($(#[$doc])* $variant,)*
        }

        impl Operation {
            /// All of them, in the trait's order.
            ///
            /// ```
            /// use pagewise::intercept::Operation;
            /// assert!(Operation::ALL.contains(&Operation::Free));
            /// ```
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The method's name.
            ///
            /// ```
            /// assert_eq!(pagewise::intercept::Operation::Free.name(), "free");
            /// ```
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

operations! {
    /// [`Backend::driver_version`](crate::Backend::driver_version)
    DriverVersion = "driver_version",
    /// [`Backend::device_count`](crate::Backend::device_count)
    DeviceCount = "device_count",
    /// [`Backend::device_attribute`](crate::Backend::device_attribute)
    DeviceAttribute = "device_attribute",
    /// [`Backend::memory_info`](crate::Backend::memory_info)
    MemoryInfo = "memory_info",
    /// [`Backend::alloc_managed`](crate::Backend::alloc_managed)
    AllocManaged = "alloc_managed",
    /// [`Backend::alloc_device`](crate::Backend::alloc_device)
    AllocDevice = "alloc_device",
    /// [`Backend::alloc_pinned`](crate::Backend::alloc_pinned)
    AllocPinned = "alloc_pinned",
    /// [`Backend::free`](crate::Backend::free)
    Free = "free",
    /// [`Backend::free_pinned`](crate::Backend::free_pinned)
    FreePinned = "free_pinned",
    /// [`Backend::host_register`](crate::Backend::host_register)
    HostRegister = "host_register",
    /// [`Backend::host_unregister`](crate::Backend::host_unregister)
    HostUnregister = "host_unregister",
    /// [`Backend::advise_ordinal`](crate::Backend::advise_ordinal)
    AdviseOrdinal = "advise_ordinal",
    /// [`Backend::advise`](crate::Backend::advise)
    Advise = "advise",
    /// [`Backend::prefetch_ordinal`](crate::Backend::prefetch_ordinal)
    PrefetchOrdinal = "prefetch_ordinal",
    /// [`Backend::prefetch`](crate::Backend::prefetch)
    Prefetch = "prefetch",
    /// [`Backend::prefetch_batch`](crate::Backend::prefetch_batch)
    PrefetchBatch = "prefetch_batch",
    /// [`Backend::discard_batch`](crate::Backend::discard_batch)
    DiscardBatch = "discard_batch",
    /// [`Backend::discard_prefetch_batch`](crate::Backend::discard_prefetch_batch)
    DiscardPrefetchBatch = "discard_prefetch_batch",
    /// [`Backend::range_attribute`](crate::Backend::range_attribute)
    RangeAttribute = "range_attribute",
    /// [`Backend::range_accessed_by`](crate::Backend::range_accessed_by)
    RangeAccessedBy = "range_accessed_by",
    /// [`Backend::pointer_attribute`](crate::Backend::pointer_attribute)
    PointerAttribute = "pointer_attribute",
    /// [`Backend::pool_create`](crate::Backend::pool_create)
    PoolCreate = "pool_create",
    /// [`Backend::pool_destroy`](crate::Backend::pool_destroy)
    PoolDestroy = "pool_destroy",
    /// [`Backend::pool_default`](crate::Backend::pool_default)
    PoolDefault = "pool_default",
    /// [`Backend::pool_current`](crate::Backend::pool_current)
    PoolCurrent = "pool_current",
    /// [`Backend::pool_set_current`](crate::Backend::pool_set_current)
    PoolSetCurrent = "pool_set_current",
    /// [`Backend::pool_attribute`](crate::Backend::pool_attribute)
    PoolAttribute = "pool_attribute",
    /// [`Backend::pool_set_attribute`](crate::Backend::pool_set_attribute)
    PoolSetAttribute = "pool_set_attribute",
    /// [`Backend::pool_trim`](crate::Backend::pool_trim)
    PoolTrim = "pool_trim",
    /// [`Backend::pool_set_access`](crate::Backend::pool_set_access)
    PoolSetAccess = "pool_set_access",
    /// [`Backend::pool_access`](crate::Backend::pool_access)
    PoolAccess = "pool_access",
    /// [`Backend::pool_alloc`](crate::Backend::pool_alloc)
    PoolAlloc = "pool_alloc",
    /// [`Backend::free_async`](crate::Backend::free_async)
    FreeAsync = "free_async",
    /// [`Backend::pool_export`](crate::Backend::pool_export)
    PoolExport = "pool_export",
    /// [`Backend::pool_import`](crate::Backend::pool_import)
    PoolImport = "pool_import",
    /// [`Backend::pool_export_pointer`](crate::Backend::pool_export_pointer)
    PoolExportPointer = "pool_export_pointer",
    /// [`Backend::pool_import_pointer`](crate::Backend::pool_import_pointer)
    PoolImportPointer = "pool_import_pointer",
    /// [`Backend::ipc_mem_handle`](crate::Backend::ipc_mem_handle)
    IpcMemHandle = "ipc_mem_handle",
    /// [`Backend::ipc_open_mem_handle`](crate::Backend::ipc_open_mem_handle)
    IpcOpenMemHandle = "ipc_open_mem_handle",
    /// [`Backend::ipc_close_mem_handle`](crate::Backend::ipc_close_mem_handle)
    IpcCloseMemHandle = "ipc_close_mem_handle",
    /// [`Backend::stream_create`](crate::Backend::stream_create)
    StreamCreate = "stream_create",
    /// [`Backend::stream_destroy`](crate::Backend::stream_destroy)
    StreamDestroy = "stream_destroy",
    /// [`Backend::stream_synchronize`](crate::Backend::stream_synchronize)
    StreamSynchronize = "stream_synchronize",
    /// [`Backend::stream_wait_event`](crate::Backend::stream_wait_event)
    StreamWaitEvent = "stream_wait_event",
    /// [`Backend::stream_attach`](crate::Backend::stream_attach)
    StreamAttach = "stream_attach",
    /// [`Backend::event_create`](crate::Backend::event_create)
    EventCreate = "event_create",
    /// [`Backend::event_destroy`](crate::Backend::event_destroy)
    EventDestroy = "event_destroy",
    /// [`Backend::event_record`](crate::Backend::event_record)
    EventRecord = "event_record",
    /// [`Backend::event_query`](crate::Backend::event_query)
    EventQuery = "event_query",
    /// [`Backend::event_synchronize`](crate::Backend::event_synchronize)
    EventSynchronize = "event_synchronize",
    /// [`Backend::event_elapsed_ns`](crate::Backend::event_elapsed_ns)
    EventElapsedNs = "event_elapsed_ns",
    /// [`Backend::memset`](crate::Backend::memset)
    Memset = "memset",
    /// [`Backend::memcpy`](crate::Backend::memcpy)
    Memcpy = "memcpy",
    /// [`Backend::host_touch`](crate::Backend::host_touch)
    HostTouch = "host_touch",
    /// [`Backend::device_touch`](crate::Backend::device_touch)
    DeviceTouch = "device_touch",
    /// [`Backend::host_page_map`](crate::Backend::host_page_map)
    HostPageMap = "host_page_map",
    /// [`Backend::take_events`](crate::Backend::take_events)
    TakeEvents = "take_events",
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|operation| operation.name() == name);
        found.copied().ok_or_else(|| invalid("operation", format!("no call is named {name:?}")))
    }
}

/// A call of a back end: which, and what it is about.
///
/// ```
/// use pagewise::Location;
/// use pagewise::intercept::{Call, Operation};
///
/// let call = Call::new(Operation::Prefetch).at(Location::HOST).bytes(4096);
/// assert_eq!((call.operation(), call.size_bytes()), (Operation::Prefetch, 4096));
/// assert_eq!(call.location(), Some(Location::HOST));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    operation: Operation,
    bytes: u64,
    span: Option<Span>,
    location: Option<Location>,
}

impl Call {
    /// A call about nothing in particular.
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// assert_eq!(Call::new(Operation::DeviceCount).size_bytes(), 0);
    /// ```
    #[must_use]
    pub const fn new(operation: Operation) -> Self {
        Self { operation, bytes: 0, span: None, location: None }
    }

    /// The same call about so many bytes.
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// assert_eq!(Call::new(Operation::AllocManaged).bytes(7).size_bytes(), 7);
    /// ```
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// The same call about a range.
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// use pagewise::{DevicePtr, Span};
    /// let span = Span::new(DevicePtr(4096), 8);
    /// assert_eq!(Call::new(Operation::Advise).on(span).span(), Some(span));
    /// ```
    #[must_use]
    pub const fn on(mut self, span: Span) -> Self {
        self.span = Some(span);
        self.bytes = span.bytes;
        self
    }

    /// The same call about a place.
    ///
    /// ```
    /// use pagewise::Location;
    /// use pagewise::intercept::{Call, Operation};
    /// let call = Call::new(Operation::Advise).at(Location::HOST);
    /// assert_eq!(call.location(), Some(Location::HOST));
    /// ```
    #[must_use]
    pub const fn at(mut self, location: Location) -> Self {
        self.location = Some(location);
        self
    }

    /// A batch: the bytes of all, the first range.
    pub(super) fn all(mut self, spans: &[Span]) -> Self {
        self.span = spans.first().copied();
        self.bytes = spans.iter().fold(0, |sum, span| sum.saturating_add(span.bytes));
        self
    }

    /// A batch: the first place.
    pub(super) fn first(mut self, locations: &[Location]) -> Self {
        self.location = locations.first().copied();
        self
    }

    /// Which call.
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// assert_eq!(Call::new(Operation::Free).operation(), Operation::Free);
    /// ```
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// How many bytes it is about, of all ranges of a batch together; 0 if none.
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// assert_eq!(Call::new(Operation::Free).size_bytes(), 0);
    /// ```
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.bytes
    }

    /// The range that it is about; of a batch, the first.
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// assert_eq!(Call::new(Operation::Free).span(), None);
    /// ```
    #[must_use]
    pub const fn span(&self) -> Option<Span> {
        self.span
    }

    /// The place that it is about; of a batch, the first. Ordinal forms count as what they name.
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// assert_eq!(Call::new(Operation::Free).location(), None);
    /// ```
    #[must_use]
    pub const fn location(&self) -> Option<Location> {
        self.location
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_no_two_are_the_same() {
        for (index, &operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation.name().parse(), Ok(operation));
            assert_eq!(Operation::ALL.iter().position(|&other| other == operation), Some(index));
        }
    }
}
