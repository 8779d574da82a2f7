//! A machine: a back end, with its capabilities asked once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pagewise_hal::{
    Backend, Capabilities, Error, ErrorKind, EventFlags, HostViews, Location, Result, StreamHandle,
};

use crate::refuse::unsupported;
use crate::{BackendKind, Device, Place};

/// A back end as buffers, streams and memory resources hold it. Cloning is cheap; clones are one
/// machine.
///
/// Whatever takes `impl Into<Machine>` takes an `Arc` of a back end, by value or by reference, and
/// a `&Machine`. Make the `Machine` once if many buffers are made: it asks the back end for its
/// capabilities.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer};
///
/// let machine = Machine::from(pagewise::sim()?);
/// assert_eq!(machine.devices()?, [Device::FIRST]);
/// let buffer = ManagedBuffer::<f32>::zeroed(&machine, 1000)?;
/// assert_eq!(buffer.machine(), &machine);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone)]
pub struct Machine(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    capabilities: Capabilities,
    host_views: HostViews,
    devices: OnceLock<u32>,
    /// Streams that this crate made, to be asked where the host has to keep away from work.
    streams: Mutex<BTreeMap<StreamHandle, Device>>,
    failures: AtomicU64,
}

impl Machine {
    /// Holds a back end. It asks for the capabilities and for the host's way to reach the memory,
    /// and makes no other call.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let (capabilities, host_views) = (backend.capabilities(), backend.host_views());
        Self(Arc::new(Inner {
            backend,
            capabilities,
            host_views,
            devices: OnceLock::new(),
            streams: Mutex::default(),
            failures: AtomicU64::new(0),
        }))
    }

    /// Opens the back end that the environment chooses, else the only one that is compiled in, else
    /// the driver, as [`open`](crate::open) does.
    ///
    /// # Errors
    /// As [`Builder::open`](crate::Builder::open).
    ///
    /// ```no_run
    /// // PAGEWISE_BACKEND=sim cargo run
    /// let machine = pagewise::Machine::open()?;
    /// println!("{machine:?}");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn open() -> Result<Self> {
        crate::open().map(Self::new)
    }

    /// The back end.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// The back end, for another machine around it.
    #[cfg(any(feature = "record", feature = "tracing"))]
    pub(crate) fn shared_backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.0.backend)
    }

    /// The kind of the back end, also through wrappers. `None` for a back end of another kind, such
    /// as a mock.
    ///
    /// ```
    /// use pagewise::{BackendKind, Machine};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// assert_eq!(machine.backend_kind(), Some(BackendKind::Sim));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn backend_kind(&self) -> Option<BackendKind> {
        self.0.capabilities.backend.parse().ok()
    }

    /// The abilities of the back end.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// The host's way to reach the memory of this machine. It is `Absent`, and typed views are
    /// refused, unless the back end promised otherwise by [`HostAddresses`](crate::HostAddresses).
    #[must_use]
    pub fn host_views(&self) -> HostViews {
        self.0.host_views
    }

    /// How many devices there are. The back end is asked until it has answered once.
    ///
    /// # Errors
    /// As [`Backend::device_count`].
    pub fn device_count(&self) -> Result<u32> {
        if let Some(&count) = self.0.devices.get() {
            return Ok(count);
        }
        let count = self.backend().device_count()?;
        Ok(*self.0.devices.get_or_init(|| count))
    }

    /// A device that exists.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) if it does not; as [`device_count`](Self::device_count).
    ///
    /// ```
    /// use pagewise::{ErrorKind, Machine};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// assert_eq!(machine.device(0)?.ordinal(), 0);
    /// assert_eq!(machine.device(1).unwrap_err().kind(), ErrorKind::InvalidDevice);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn device(&self, ordinal: u32) -> Result<Device> {
        let device = Device::new(ordinal)?;
        self.check_device("device", device)?;
        Ok(device)
    }

    /// All devices, by ordinal.
    ///
    /// # Errors
    /// As [`device_count`](Self::device_count).
    pub fn devices(&self) -> Result<Vec<Device>> {
        (0..self.device_count()?).map(Device::new).collect()
    }

    /// The number of times that memory or a handle could not be freed when its owner went out of
    /// scope, which a destructor cannot report. It is 0 in a healthy program, and a test may claim
    /// that.
    #[must_use]
    pub fn failures_on_drop(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Counts a failure of a destructor.
    pub(crate) fn count_failure(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Refuses a device that does not exist.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) in the operation's name; as
    /// [`device_count`](Self::device_count).
    ///
    /// ```
    /// use pagewise::{Device, Machine};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// machine.check_device("open", Device::FIRST)?;
    /// assert!(machine.check_device("open", Device::new(9)?).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[inline]
    pub fn check_device(&self, operation: &'static str, device: Device) -> Result<()> {
        let count = self.device_count()?;
        if device.ordinal() < count {
            return Ok(());
        }
        Err(Error::new(operation, ErrorKind::InvalidDevice)
            .with_detail(format!("{device} does not exist: the machine has {count}")))
    }

    /// Checks a place as far as this is possible without asking about memory, and returns it in the
    /// back end's form.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidDevice` for a device that does not exist; `Unsupported` for a
    /// NUMA node before CUDA 12.2.
    #[inline]
    pub fn check_place(&self, operation: &'static str, place: Place) -> Result<Location> {
        match place {
            Place::Device(device) => self.check_device(operation, device)?,
            Place::Host(_) if place.is_numa() && !self.capabilities().locations => {
                return Err(unsupported(
                    operation,
                    format!(
                        "{place} needs a driver of CUDA 12.2 or later, this one is of {}: use the \
                         host as a whole",
                        self.capabilities().driver_version
                    ),
                ));
            }
            Place::Host(_) => {}
        }
        Ok(place.into())
    }

    pub(crate) fn note_stream(&self, stream: StreamHandle, device: Device) {
        self.streams().insert(stream, device);
    }

    pub(crate) fn forget_stream(&self, stream: StreamHandle) {
        self.streams().remove(&stream);
    }

    /// A panic elsewhere leaves a set of handles as good as it was.
    fn streams(&self) -> std::sync::MutexGuard<'_, BTreeMap<StreamHandle, Device>> {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether work that the host would have to wait for is still running: on the legacy default
    /// stream, which waits for all ordinary ones, or on a stream that this crate made.
    pub(crate) fn has_work_in_flight(&self) -> Result<bool> {
        // Held throughout: a stream is taken out of the set before it is destroyed.
        let own = self.streams();
        let legacy = (&StreamHandle::NULL, &Device::FIRST);
        for (&stream, &device) in std::iter::once(legacy).chain(own.iter()) {
            if !self.has_finished(stream, device)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_finished(&self, stream: StreamHandle, device: Device) -> Result<bool> {
        let backend = self.backend();
        let event = backend.event_create(device.id(), EventFlags::DISABLE_TIMING)?;
        let answer = backend.event_record(event, stream).and_then(|()| backend.event_query(event));
        // SAFETY: the event was made above, and its handle is used nowhere else.
        self.on_drop(|| unsafe { backend.event_destroy(event) });
        answer
    }
}

/// Two are equal that hold the same back end.
impl PartialEq for Machine {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || std::ptr::addr_eq(Arc::as_ptr(&self.0.backend), Arc::as_ptr(&other.0.backend))
    }
}

impl Eq for Machine {}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capabilities { backend, driver_version, .. } = self.capabilities();
        write!(f, "Machine({backend}, CUDA {driver_version})")
    }
}

impl From<&Self> for Machine {
    fn from(machine: &Self) -> Self {
        machine.clone()
    }
}

impl<B: Backend> From<Arc<B>> for Machine {
    fn from(backend: Arc<B>) -> Self {
        Self::new(backend)
    }
}

impl<B: Backend> From<&Arc<B>> for Machine {
    fn from(backend: &Arc<B>) -> Self {
        Self::new(Arc::<B>::clone(backend))
    }
}

impl From<Arc<dyn Backend>> for Machine {
    fn from(backend: Arc<dyn Backend>) -> Self {
        Self::new(backend)
    }
}

impl From<&Arc<dyn Backend>> for Machine {
    fn from(backend: &Arc<dyn Backend>) -> Self {
        Self::new(Arc::clone(backend))
    }
}

/// Macros borrow their argument, which may be a reference already.
impl From<&&Self> for Machine {
    fn from(machine: &&Self) -> Self {
        (*machine).clone()
    }
}

/// Macros borrow their argument, which may be a reference already.
impl<B: Backend> From<&&Arc<B>> for Machine {
    fn from(backend: &&Arc<B>) -> Self {
        Self::from(*backend)
    }
}
