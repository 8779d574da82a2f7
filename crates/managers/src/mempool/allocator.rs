//! The five functions that a framework's pluggable allocator calls, without the C around them.
//!
//! Integers in, integers out: 0 is success, other numbers are those of `cudaError_t`, which for all
//! that occur here are the driver's. Nothing unwinds. What went wrong last is kept per thread, in
//! words. There is no current device: nothing is switched, so nothing has to be switched back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pagewise::refuse::{invalid, unsupported};
use pagewise::resource::{Limit, MemoryKind, MemoryResource, ResourceCounters, Statistics};
use pagewise::{
    Advice, Code, DeviceId, DevicePtr, Error, ErrorKind, Location, Machine, MemoryAdvice, Place,
    Result, Rounding, Span, Stream, StreamHandle,
};

use super::device_index;
use super::pool::MempoolOptions;
use crate::sync::{Mutex, MutexGuard, lock};

/// The device number of the host, in Megatron-LM's functions and in the driver's by ordinal.
const HOST: i32 = -1;

/// `cudaErrorUnknown`: failures without a number of their own, panics included.
const UNKNOWN: i32 = 999;

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

/// The last error of a thread.
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::mempool::{LastError, ManagedAllocator};
/// use pagewise::{Machine, resource::ManagedMemoryResource};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let allocator = ManagedAllocator::new(Arc::new(ManagedMemoryResource::direct(&machine)))?;
/// assert!(allocator.managed_malloc(0, 0, std::ptr::null_mut()).is_null());
/// let error = LastError::take().expect("a refusal");
/// assert_eq!(error.number, 1);
/// assert!(LastError::take().is_none(), "it was taken");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastError {
    /// The number, as the function returned it or would have.
    pub number: i32,
    /// The error in words.
    pub text: String,
}

impl LastError {
    /// The last failure on this thread since it was last taken.
    #[must_use]
    pub fn take() -> Option<Self> {
        LAST.try_with(|last| last.take()).ok().flatten()
    }

    fn keep(error: &Error) -> i32 {
        let number = error_number(error);
        let last = Self { number, text: error.to_string() };
        // On a thread that is ending no code is left that could ask.
        let _ = LAST.try_with(|kept| kept.replace(Some(last)));
        number
    }
}

/// The number of an error: the driver's, or that which the driver has for its kind.
///
/// ```
/// use pagewise_managers::mempool::error_number;
/// use pagewise::{Rounding, Code, Error, ErrorKind};
///
/// assert_eq!(error_number(&Error::from_code("x", Code::NOT_PERMITTED)), 800);
/// assert_eq!(error_number(&Error::new("x", ErrorKind::OutOfMemory)), 2);
/// ```
#[must_use]
pub fn error_number(error: &Error) -> i32 {
    error.code().unwrap_or(match error.kind() {
        ErrorKind::InvalidValue => Code::INVALID_VALUE,
        ErrorKind::OutOfMemory => Code::OUT_OF_MEMORY,
        ErrorKind::InvalidDevice => Code::INVALID_DEVICE,
        ErrorKind::InvalidHandle => Code::INVALID_HANDLE,
        ErrorKind::NotReady => Code::NOT_READY,
        ErrorKind::IllegalAddress => Code::ILLEGAL_ADDRESS,
        ErrorKind::NotPermitted => Code::NOT_PERMITTED,
        ErrorKind::Unsupported => Code::NOT_SUPPORTED,
        // cudaErrorNoDevice and cudaErrorDevicesUnavailable.
        ErrorKind::LibraryMissing => 100,
        ErrorKind::DeviceLost => 46,
        _ => UNKNOWN,
    })
}

/// An allocator of managed memory with the functions, arguments and numbers of a pluggable one.
///
/// It knows what it gave: a pointer that it did not give, or gave and took back, is refused. Memory
/// that is outstanding when it goes stays allocated, since its holder may still use it.
///
/// ```
/// use std::ptr::null_mut;
/// use std::sync::Arc;
/// use pagewise_managers::mempool::ManagedAllocator;
/// use pagewise::{Machine, resource::ManagedMemoryResource};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let allocator = ManagedAllocator::new(Arc::new(ManagedMemoryResource::direct(&machine)))?;
/// let segment = allocator.managed_malloc(2 << 20, 0, null_mut());
/// assert!(!segment.is_null());
/// // SAFETY: the null pointer is the default stream, which lives for ever, and no work uses the
/// // memory.
/// unsafe {
///     assert_eq!(allocator.managed_prefetch(segment, 2 << 20, -1, null_mut()), 0);
///     allocator.managed_free(segment, 2 << 20, 0, null_mut());
/// }
/// assert_eq!(allocator.counters().bytes.current, 0);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub struct ManagedAllocator {
    resource: Arc<Statistics<Limit<Arc<dyn MemoryResource>>>>,
    /// Memory is given and taken back on the default stream, whatever stream the caller names: a
    /// framework reuses it on any.
    stream: Stream,
    given: Mutex<BTreeMap<u64, u64>>,
}

impl ManagedAllocator {
    /// An allocator over a resource of managed memory.
    ///
    /// # Errors
    /// `Unsupported` (no CUDA code) if the resource's memory is not managed.
    pub fn new(resource: Arc<dyn MemoryResource>) -> Result<Self> {
        Self::with_limit(resource, MempoolOptions::default().limit_bytes)
    }

    /// An allocator with a limit on the bytes that are allocated at once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise_managers::mempool::ManagedAllocator;
    /// # use pagewise::{Machine, resource::ManagedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Arc::new(ManagedMemoryResource::direct(&machine));
    /// let allocator = ManagedAllocator::with_limit(resource, 100)?;
    /// assert!(allocator.managed_malloc(101, 0, std::ptr::null_mut()).is_null());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn with_limit(resource: Arc<dyn MemoryResource>, limit_bytes: u64) -> Result<Self> {
        if resource.memory_kind() != MemoryKind::Managed {
            let why = format!("the resource's memory is {:?}, not managed", resource.memory_kind());
            return Err(unsupported("managed_malloc", why));
        }
        let stream = Stream::legacy_default(resource.machine());
        let resource = Arc::new(Statistics::new(Limit::new(resource, limit_bytes)));
        Ok(Self { resource, stream, given: Mutex::default() })
    }

    /// Bytes and allocations: outstanding now, at most, and given in all.
    #[must_use]
    pub fn counters(&self) -> ResourceCounters {
        self.resource.counters()
    }

    /// `void* managed_malloc(size_t size, int device, void* stream)`: managed memory for all
    /// devices, or null. For a device (0 and above) it is advised to prefer it and to be mapped by
    /// it; if a device refuses that the memory is given all the same, and [`LastError`] says why.
    /// A negative `device` names none: the memory is given without advice. The stream means
    /// nothing.
    #[must_use]
    pub fn managed_malloc(&self, size: usize, device: i32, _stream: *mut c_void) -> *mut c_void {
        let given = answer(|| self.allocate(size as u64, device)).unwrap_or_default();
        std::ptr::with_exposed_provenance_mut(given.0 as usize)
    }

    /// `void managed_free(void* ptr, size_t size, int device, void* stream)`: takes back what
    /// [`managed_malloc`](Self::managed_malloc) gave, by the pointer alone. Null is nothing to do;
    /// a pointer that is not out is left alone, and [`LastError`] says so.
    ///
    /// # Safety
    /// No thread, and no work of a device, may use the memory during or after the call.
    pub unsafe fn managed_free(&self, ptr: *mut c_void, _: usize, _: i32, _: *mut c_void) {
        // SAFETY: the caller promised that no work uses the memory any more. An address that this
        // allocator did not give is refused.
        let _ = answer(|| unsafe { self.free(address(ptr)) });
    }

    /// `int managed_prefetch(void* ptr, size_t size, int device, void* stream)`: asks for migration
    /// to a device, or with -1 to the host. The number is the driver's answer: 1 for 0 bytes and
    /// for memory that is not managed, else 101 for a device that does not exist.
    ///
    /// # Safety
    /// `stream` must be a live stream of the machine, or null.
    #[must_use]
    pub unsafe fn managed_prefetch(
        &self,
        ptr: *mut c_void,
        size: usize,
        device: i32,
        stream: *mut c_void,
    ) -> i32 {
        // SAFETY: `stream_of` asks for a live stream; the caller of this method promised that.
        let stream = unsafe { stream_of(stream) };
        self.on(ptr, size, |span| {
            let backend = self.machine().backend();
            if backend.capabilities().locations {
                backend.prefetch(span, location(device), 0, stream)
            } else {
                backend.prefetch_ordinal(span, device, stream)
            }
        })
    }

    /// `int managed_advise_preferred_location(void* ptr, size_t size, int device)`: -1 is the host.
    /// The number is the driver's answer: 1 for 0 bytes, for memory that is not managed, and for a
    /// device that does not exist.
    #[must_use]
    pub fn managed_advise_preferred_location(
        &self,
        ptr: *mut c_void,
        size: usize,
        device: i32,
    ) -> i32 {
        self.advise(ptr, size, device, Advice::SET_PREFERRED_LOCATION)
    }

    /// `int managed_advise_accessed_by(void* ptr, size_t size, int device)`: -1 is the host, on
    /// every driver.
    #[must_use]
    pub fn managed_advise_accessed_by(&self, ptr: *mut c_void, size: usize, device: i32) -> i32 {
        self.advise(ptr, size, device, Advice::SET_ACCESSED_BY)
    }

    /// Forgets the preferred location.
    #[must_use]
    pub fn managed_unadvise_preferred_location(&self, ptr: *mut c_void, size: usize) -> i32 {
        self.advise(ptr, size, HOST, Advice::UNSET_PREFERRED_LOCATION)
    }

    /// Ends what [`managed_advise_accessed_by`](Self::managed_advise_accessed_by) began.
    #[must_use]
    pub fn managed_unadvise_accessed_by(&self, ptr: *mut c_void, size: usize, device: i32) -> i32 {
        self.advise(ptr, size, device, Advice::UNSET_ACCESSED_BY)
    }

    /// Reads duplicate pages on the reader, or with `on` 0 not any more.
    #[must_use]
    pub fn managed_advise_read_mostly(&self, ptr: *mut c_void, size: usize, on: i32) -> i32 {
        let advice = if on == 0 { Advice::UNSET_READ_MOSTLY } else { Advice::SET_READ_MOSTLY };
        self.advise(ptr, size, HOST, advice)
    }

    /// Asks for migration of many ranges, in one call where the driver has one and takes the
    /// stream. Ranges of 0 bytes are left out.
    ///
    /// # Safety
    /// As [`managed_prefetch`](Self::managed_prefetch).
    ///
    /// ```
    /// # use std::{ptr::null_mut, sync::Arc};
    /// # use pagewise_managers::mempool::ManagedAllocator;
    /// # use pagewise::{Machine, resource::ManagedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let allocator = ManagedAllocator::new(Arc::new(ManagedMemoryResource::direct(&machine)))?;
    /// let two = [(); 2].map(|()| allocator.managed_malloc(4096, 0, null_mut()));
    /// // SAFETY: the null pointer is the default stream, which lives for ever, and no work uses
    /// // the memory.
    /// unsafe {
    ///     assert_eq!(allocator.managed_prefetch_batch(&two, &[4096; 2], -1, null_mut()), 0);
    ///     two.into_iter().for_each(|ptr| allocator.managed_free(ptr, 4096, 0, null_mut()));
    /// }
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub unsafe fn managed_prefetch_batch(
        &self,
        ptrs: &[*mut c_void],
        sizes: &[usize],
        device: i32,
        stream: *mut c_void,
    ) -> i32 {
        const OPERATION: &str = "managed_prefetch_batch";
        // SAFETY: `stream_of` asks for a live stream; the caller of this method promised that.
        let stream = unsafe { stream_of(stream) };
        number(|| {
            let place = self.place(OPERATION, device)?;
            if ptrs.len() != sizes.len() {
                let why = format!("{} addresses for {} sizes", ptrs.len(), sizes.len());
                return Err(invalid(OPERATION, why));
            }
            let ranges = ptrs.iter().zip(sizes).filter(|&(_, &size)| size > 0);
            let spans: Vec<Span> =
                ranges.map(|(&ptr, &size)| Span::new(address(ptr), size as u64)).collect();
            self.machine().prefetch_spans(&spans, place, stream)
        })
    }

    /// Declares the contents of a range worthless: of its whole pages, of which 0 bytes have none.
    ///
    /// # Safety
    /// As [`managed_prefetch`](Self::managed_prefetch); and no other code or work may use the range
    /// until the stream has come to this, or read it after that before it was written.
    ///
    /// ```
    /// # use std::{ptr::null_mut, sync::Arc};
    /// # use pagewise_managers::mempool::ManagedAllocator;
    /// # use pagewise::{Device, Machine, Stream, resource::ManagedMemoryResource};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let raw = std::ptr::with_exposed_provenance_mut(stream.handle().as_raw() as usize);
    /// let allocator = ManagedAllocator::new(Arc::new(ManagedMemoryResource::direct(&machine)))?;
    /// let cache = allocator.managed_malloc(2 << 20, 0, null_mut());
    /// // SAFETY: `raw` is a live stream, and no work uses the memory.
    /// unsafe {
    ///     assert_eq!(allocator.managed_discard(cache, 2 << 20, raw), 0);
    ///     assert_eq!(allocator.managed_discard_prefetch(cache, 2 << 20, 0, raw), 0);
    ///     allocator.managed_free(cache, 2 << 20, 0, null_mut());
    /// }
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub unsafe fn managed_discard(
        &self,
        ptr: *mut c_void,
        size: usize,
        stream: *mut c_void,
    ) -> i32 {
        // SAFETY: `stream_of` asks for a live stream; the caller of this method promised that.
        let stream = unsafe { stream_of(stream) };
        self.on(ptr, size, |span| match Rounding::Inward.apply("managed_discard", span)? {
            Span { bytes: 0, .. } => Ok(()),
            // SAFETY: the caller promised that no code reads the contents until they are written
            // again. Only whole pages within the range are discarded.
            whole => unsafe { self.machine().discard_spans(&[whole], stream) },
        })
    }

    /// Discards a range as [`managed_discard`](Self::managed_discard) does, and then migrates it
    /// without copying discarded contents. 0 bytes are nothing to do.
    ///
    /// # Safety
    /// As [`managed_discard`](Self::managed_discard).
    #[must_use]
    pub unsafe fn managed_discard_prefetch(
        &self,
        ptr: *mut c_void,
        size: usize,
        device: i32,
        stream: *mut c_void,
    ) -> i32 {
        // SAFETY: `stream_of` asks for a live stream; the caller of this method promised that.
        let stream = unsafe { stream_of(stream) };
        self.on(ptr, size, |span| {
            if span.bytes == 0 {
                return Ok(());
            }
            let to = [self.place("managed_discard_prefetch", device)?.into()];
            let backend = self.machine().backend();
            // SAFETY: the caller promised that no code reads the contents until they are written
            // again. The driver discards only whole pages within the range.
            unsafe { backend.discard_prefetch_batch(&[span], &to, &[0], 0, stream) }
        })
    }

    fn machine(&self) -> &Machine {
        self.resource.machine()
    }

    /// The map is as good as it was if a thread panicked while holding it.
    fn given(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        lock(&self.given)
    }

    fn place(&self, operation: &'static str, device: i32) -> Result<Place> {
        // The driver's own answer to an ordinal that it does not know.
        let place = device_index(device.into()).map_err(|error| {
            Error::new(operation, ErrorKind::InvalidDevice).with_detail(error.detail().to_owned())
        })?;
        self.machine().check_place(operation, place).map(|_| place)
    }

    fn allocate(&self, bytes: u64, device: i32) -> Result<DevicePtr> {
        // A negative number names no device, so there is nothing to check and nothing to advise.
        let preferred = (device >= 0).then(|| self.place("managed_malloc", device)).transpose()?;
        let ptr = self.resource.allocate(bytes, &self.stream)?;
        self.given().insert(ptr.0, bytes);
        if let Some(place) = preferred {
            let advice = [MemoryAdvice::SetPreferredLocation, MemoryAdvice::SetAccessedBy];
            for advice in advice.map(|advice| advice(place)) {
                // The memory serves without it, as on devices without concurrent managed access.
                if let Err(error) = self.machine().advise(Span::new(ptr, bytes), advice) {
                    LastError::keep(&error);
                }
            }
        }
        Ok(ptr)
    }

    /// # Safety
    /// No thread, and no work of a device, may use the memory.
    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let Some(bytes) = self.given().remove(&ptr.0) else {
            let why = format!("{ptr} is not out: it was freed before, or never given here");
            return Err(invalid("managed_free", why));
        };
        // SAFETY: the resource gave the memory with so many bytes, and it is taken out of the list,
        // so it goes back once. The caller promised that no work uses it.
        unsafe { self.resource.deallocate(ptr, bytes, &self.stream) }
    }

    fn advise(&self, ptr: *mut c_void, size: usize, device: i32, advice: Advice) -> i32 {
        self.on(ptr, size, |span| {
            let backend = self.machine().backend();
            if backend.capabilities().locations {
                backend.advise(span, advice, location(device))
            } else {
                backend.advise_ordinal(span, advice, device)
            }
        })
    }

    fn on(&self, ptr: *mut c_void, size: usize, act: impl FnOnce(Span) -> Result<()>) -> i32 {
        number(|| act(Span::new(address(ptr), size as u64)))
    }
}

/// The location that a device number names. The driver refuses the ones that name none.
fn location(device: i32) -> Location {
    if device == HOST { Location::HOST } else { Location::device(DeviceId(device)) }
}

fn address(ptr: *mut c_void) -> DevicePtr {
    DevicePtr(ptr.expose_provenance() as u64)
}

/// # Safety
/// It must be a live stream of the machine, or null.
unsafe fn stream_of(stream: *mut c_void) -> StreamHandle {
    // SAFETY: `from_raw` asks for a live stream of the machine; the caller of this function
    // promised that.
    unsafe { StreamHandle::from_raw(address(stream).0) }
}

fn number(run: impl FnOnce() -> Result<()>) -> i32 {
    answer(run).map_or_else(|number| number, |()| Code::SUCCESS)
}

/// Runs something that must not unwind; a failure is kept, and its number is the answer.
fn answer<T>(run: impl FnOnce() -> Result<T>) -> Result<T, i32> {
    // Locks recover from panics, and nothing else outlives one.
    let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let why = "a back end or resource panicked";
        Err(Error::new("managed memory", ErrorKind::Driver).with_detail(why))
    });
    answer.map_err(|error| LastError::keep(&error))
}

impl fmt::Debug for ManagedAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = self.given().len();
        write!(f, "ManagedAllocator({out} out, {:?})", self.machine())
    }
}
