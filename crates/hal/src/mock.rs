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
//!   was failing already: call [`permit_free`].

pub use mockall::{Sequence, predicate};

pub use crate::backend::MockBackend;
use crate::{HostAddresses, HostViews};

// SAFETY: the trait asks that views of the back end's memory be sound; a mock offers none
// (`HostViews::Absent`), and no expectation can change that. A test makes its addresses up.
unsafe impl HostAddresses for MockBackend {
    fn host_views(&self) -> HostViews {
        HostViews::Absent
    }
}

/// Lets any number of frees and synchronisations succeed. Call it after all other expectations.
pub fn permit_free(mock: &mut MockBackend) {
    mock.expect_free().returning(|_| Ok(()));
    mock.expect_free_pinned().returning(|_| Ok(()));
    mock.expect_free_async().returning(|_, _| Ok(()));
    mock.expect_stream_synchronize().returning(|_| Ok(()));
}
