//! Streams, which order work.
//!
//! A [`Stream`] is a shared handle: buffers keep the streams of work that they have to wait for.
//! The stream is destroyed with its last handle.

use std::fmt;
use std::sync::Arc;

use pagewise_hal::{EventFlags, Result, StreamFlags, StreamHandle};

use crate::refuse::invalid;
use crate::{Device, Machine};

/// A stream of a machine.
///
/// | back end | behaviour |
/// | --- | --- |
/// | CUDA | work is done when the stream reaches it |
/// | simulator | work is done when the call returns; without concurrent managed access it counts as in flight until a call waits for it |
///
/// ```
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// stream.synchronize()?;
/// assert!(!stream.is_legacy_default());
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    machine: Machine,
    handle: StreamHandle,
    /// Made here, on this device, and to be destroyed here.
    owned_on: Option<Device>,
    /// A stream of cudarc's, which is kept for as long as it can be used.
    #[cfg(feature = "cudarc")]
    adopted: Option<crate::interop::Adopted>,
}

impl Stream {
    /// A new stream that does not synchronise with the legacy default stream.
    ///
    /// # Errors
    /// `InvalidDevice` (101) if the device does not exist.
    ///
    /// ```
    /// use pagewise::{Device, ErrorKind, Machine, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let error = Stream::new(&machine, Device::new(9)?).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidDevice);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new(machine: &Machine, device: Device) -> Result<Self> {
        let handle = machine.backend().stream_create(device.id(), StreamFlags::NON_BLOCKING)?;
        Ok(Self::of(machine, handle, Some(device)))
    }

    /// The legacy default stream. It waits for all ordinary streams of a device, and they wait for
    /// it. Batches and discards refuse it.
    #[must_use]
    pub fn legacy_default(machine: &Machine) -> Self {
        Self::of(machine, StreamHandle::NULL, None)
    }

    /// Uses a stream that other code owns, such as one of cudarc's. It is never destroyed here.
    ///
    /// # Safety
    /// `handle` must be a live stream of the machine's back end. It must stay live until the last
    /// clone of this value and every buffer that got one is dropped. It must not be
    /// [`StreamHandle::PER_THREAD`], which names another stream on each thread.
    ///
    /// ```
    /// use pagewise::{Machine, Stream, StreamHandle};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// // SAFETY: the stream has to live as long as the value, and a default stream lives for ever.
    /// let stream = unsafe { Stream::from_raw(&machine, StreamHandle::LEGACY) };
    /// assert_eq!(stream.handle(), StreamHandle::LEGACY);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub unsafe fn from_raw(machine: &Machine, handle: StreamHandle) -> Self {
        Self::of(machine, handle, None)
    }

    fn of(machine: &Machine, handle: StreamHandle, owned_on: Option<Device>) -> Self {
        if let Some(device) = owned_on {
            machine.note_stream(handle, device);
        }
        Self(Arc::new(Inner {
            machine: machine.clone(),
            handle,
            owned_on,
            #[cfg(feature = "cudarc")]
            adopted: None,
        }))
    }

    /// A stream of cudarc's, which lives as long as this one.
    ///
    /// # Safety
    /// `handle` is the adopted stream, of the driver that the machine's back end uses.
    #[cfg(feature = "cudarc")]
    pub(crate) unsafe fn adopt(
        machine: &Machine,
        handle: StreamHandle,
        adopted: crate::interop::Adopted,
    ) -> Self {
        let machine = machine.clone();
        Self(Arc::new(Inner { machine, handle, owned_on: None, adopted: Some(adopted) }))
    }

    /// The stream of cudarc's that this one is.
    #[cfg(feature = "cudarc")]
    pub(crate) fn adopted(&self) -> Option<&crate::interop::Adopted> {
        self.0.adopted.as_ref()
    }

    /// The stream as back ends name it, for calls that are over before this value is.
    #[inline]
    pub(crate) fn raw(&self) -> StreamHandle {
        self.0.handle
    }

    /// The device that it was made on, here or by cudarc; `None` for default streams, which every device has, and for
    /// streams from elsewhere.
    ///
    /// ```
    /// # use pagewise::{Device, Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// assert_eq!(Stream::new(&machine, Device::FIRST)?.device(), Some(Device::FIRST));
    /// assert_eq!(Stream::legacy_default(&machine).device(), None);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        #[cfg(feature = "cudarc")]
        if let Some(adopted) = self.adopted() {
            return Some(adopted.device());
        }
        self.0.owned_on
    }

    /// Waits for all work of the stream.
    ///
    /// # Errors
    /// Failures of that work, with the driver's code.
    pub fn synchronize(&self) -> Result<()> {
        self.0.machine.backend().stream_synchronize(self.0.handle)
    }

    /// Makes all later work of this stream wait for the present work of another.
    ///
    /// # Errors
    /// Errors of the back end's calls on events.
    ///
    /// ```
    /// # use pagewise::{Device, Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let (first, second) =
    ///     (Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?);
    /// second.wait_for(&first)?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn wait_for(&self, other: &Self) -> Result<()> {
        if self == other {
            return Ok(());
        }
        let backend = self.0.machine.backend();
        // An event marks streams of its own device only; any stream may wait for it.
        let device = other.device().unwrap_or(Device::FIRST);
        let event = backend.event_create(device.id(), EventFlags::DISABLE_TIMING)?;
        let recorded = backend.event_record(event, other.0.handle);
        let waits = recorded.and_then(|()| backend.stream_wait_event(self.0.handle, event));
        // SAFETY: the event was made above and its handle is used nowhere else. A wait that is
        // already in a stream does not need the handle. If the event cannot be destroyed, the
        // stream waits all the same.
        self.0.machine.on_drop(|| unsafe { backend.event_destroy(event) });
        waits
    }

    /// Comes after the present work of another stream. If this stream cannot wait for it, the host
    /// does.
    pub(crate) fn follow(&self, other: &Self) -> Result<()> {
        self.wait_for(other).or_else(|_| other.synchronize())
    }

    /// The stream as back ends name it.
    ///
    /// A copy can be used for as long as the process runs. So a stream of cudarc's of which the
    /// handle was asked for is never destroyed.
    #[must_use]
    pub fn handle(&self) -> StreamHandle {
        #[cfg(feature = "cudarc")]
        if let Some(adopted) = self.adopted() {
            adopted.keep_for_ever();
        }
        self.0.handle
    }

    /// The machine that it is a stream of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.0.machine
    }

    /// Whether this is the legacy default stream.
    #[must_use]
    pub fn is_legacy_default(&self) -> bool {
        self.0.handle.is_legacy()
    }
}

impl Machine {
    /// Refuses a stream of another machine, because its handle has no meaning on this one.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code).
    ///
    /// ```
    /// use pagewise::{Machine, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let other = Machine::from(pagewise::sim()?);
    /// assert!(machine.check_stream("copy", &Stream::legacy_default(&other)).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[inline]
    pub fn check_stream(&self, operation: &'static str, stream: &Stream) -> Result<()> {
        if stream.machine() == self {
            return Ok(());
        }
        Err(invalid(operation, "the stream is of another machine than the memory"))
    }
}

/// Two are equal that name the same stream of the same machine.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.0.handle == other.0.handle && self.0.machine == other.0.machine
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:#x})", self.0.handle.as_raw())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned_on.is_none() {
            return;
        }
        let backend = self.machine.backend();
        // Destroying does not wait. Without concurrent managed access the host may touch managed
        // memory only once the work is done, and a destroyed stream cannot be waited for.
        if !self.machine.capabilities().concurrent_managed_access {
            self.machine.on_drop(|| backend.stream_synchronize(self.handle));
        }
        self.machine.forget_stream(self.handle);
        // SAFETY: `Stream::new` made the stream, and this is the last handle of it.
        self.machine.on_drop(|| unsafe { backend.stream_destroy(self.handle) });
    }
}
