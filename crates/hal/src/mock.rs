//! A mock of [`Backend`](crate::Backend) for tests of crates that use one.
//!
//! Use the simulator to test *behaviour*, and this to test *which calls are made* or how rare
//! errors are handled. Everything of mockall that a test needs is re-exported here, so that both
//! sides use the same version of it.
//!
//! ```
//! use pagewise_hal::mock::{MockBackend, predicate};
//! use pagewise_hal::{AttachFlags, Backend, DevicePtr};
//!
//! let mut mock = MockBackend::new();
//! mock.expect_alloc_managed()
//!     .with(predicate::eq(4096), predicate::eq(AttachFlags::GLOBAL))
//!     .times(1)
//!     .returning(|_, _| Ok(DevicePtr(0x1000)));
//! permit_free(&mut mock);
//!
//! let ptr = mock.alloc_managed(4096, AttachFlags::GLOBAL)?;
//! // SAFETY: `free` asks that no other code uses the allocation; a mock's address has no memory
//! // behind it.
//! unsafe { mock.free(ptr)? };
//! # use pagewise_hal::mock::permit_free;
//! # Ok::<(), pagewise_hal::Error>(())
//! ```
//!
//! # Traps
//!
//! - A test makes the addresses up, so the host cannot reach them: [`HostAddresses::host_views`] of
//!   a mock is `Absent` whatever its capabilities say.
//! - An early expectation without `times` shadows all later ones: add permissive ones *last*, and
//!   only for calls that may come any number of times.
//! - Counts are checked when the mock is dropped. A leaked `Arc` is never checked.
//! - A destructor that frees through a mock without an expectation panics, and aborts if the test
//!   was failing already: call [`permit_free`], or [`permit_machine`] for a mock that a machine
//!   holds.

use std::sync::atomic::{AtomicU64, Ordering};

pub use mockall::{Sequence, predicate};

pub use crate::backend::MockBackend;
use crate::{
    Capabilities, DevicePtr, DriverVersion, EventHandle, HostAddresses, HostViews, StreamHandle,
};

// SAFETY: the trait asks that views of the back end's memory be sound; a mock offers none
// (`HostViews::Absent`), and no expectation can change that. A test makes its addresses up.
unsafe impl HostAddresses for MockBackend {
    fn host_views(&self) -> HostViews {
        HostViews::Absent
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        ptr
    }
}

/// Lets any number of frees and synchronisations succeed. Call it after all other expectations.
pub fn permit_free(mock: &mut MockBackend) {
    mock.expect_free().returning(|_| Ok(()));
    mock.expect_free_pinned().returning(|_| Ok(()));
    mock.expect_free_async().returning(|_, _| Ok(()));
    mock.expect_stream_synchronize().returning(|_| Ok(()));
}

/// Lets a machine be held: one device and a driver of CUDA 13.0, streams, events, a clock that
/// stands still, frees. What a test is about it expects itself: allocations, prefetches, advice.
/// Call it after all other expectations, which come first then.
///
/// ```
/// use pagewise_hal::mock::{MockBackend, permit_machine};
/// use pagewise_hal::{Backend, DeviceId, Error, ErrorKind, StreamFlags};
///
/// let mut mock = MockBackend::new();
/// let refused = || Error::new("stream_create", ErrorKind::OutOfMemory);
/// mock.expect_stream_create().times(1).returning(move |_, _| Err(refused()));
/// permit_machine(&mut mock);
/// let stream = |mock: &MockBackend| mock.stream_create(DeviceId(0), StreamFlags::NON_BLOCKING);
/// assert!(stream(&mock).is_err(), "as expected first");
/// assert_ne!(stream(&mock)?, stream(&mock)?);
/// assert_eq!(mock.device_count()?, 1);
/// # Ok::<(), Error>(())
/// ```
pub fn permit_machine(mock: &mut MockBackend) {
    permit_free(mock);
    let version = DriverVersion::CUDA_13_0;
    mock.expect_capabilities().returning(move || Capabilities::of_driver("mock", version));
    mock.expect_driver_version().returning(move || Ok(version));
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_clock_ns().returning(|| 0);
    // Beyond the default streams.
    let streams = AtomicU64::new(0x100);
    let stream = move || StreamHandle::checked(streams.fetch_add(1, Ordering::Relaxed));
    mock.expect_stream_create().returning(move |_, _| Ok(stream()));
    mock.expect_stream_destroy().returning(|_| Ok(()));
    mock.expect_stream_wait_event().returning(|_, _| Ok(()));
    let events = AtomicU64::new(0x100);
    let event = move || EventHandle::checked(events.fetch_add(1, Ordering::Relaxed));
    mock.expect_event_create().returning(move |_, _| Ok(event()));
    mock.expect_event_destroy().returning(|_| Ok(()));
    mock.expect_event_record().returning(|_, _| Ok(()));
    mock.expect_event_query().returning(|_| Ok(true));
    mock.expect_event_synchronize().returning(|_| Ok(()));
    mock.expect_event_elapsed_ns().returning(|_, _| Ok(0));
}
