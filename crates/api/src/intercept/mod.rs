//! Layers: a back end around a back end that sees every call that can fail.
//!
//! An [`Interceptor`] counts a call, refuses it, or puts a span around it. It cannot make up an
//! answer, so the host reaches memory through it as through the back end inside
//! ([`HostAddresses`]). [`Intercepted`] is the back end that asks it. Capabilities and the clock do
//! not go through it. [`inject`](crate::inject) and `traced` are built on this module.
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
mod forward;

use std::fmt::Debug;

use pagewise_hal::{Backend, DevicePtr, HostAddresses, HostViews, Result};

pub use call::Call;
pub use pagewise_hal::Operation;

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
    /// Answers a call, by making it or by refusing it. It is made at most once. If the interceptor
    /// fails a discard after it was made, the discard counts as made.
    ///
    /// # Errors
    /// The error that the call is to fail with.
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
    pub fn new(inner: B, interceptor: I) -> Self {
        let views = inner.host_views();
        Self { inner, interceptor, views }
    }

    /// Puts an interceptor around a back end that makes no promise of how the host reaches its
    /// memory, and makes that promise for it. It is for tests with a `MockBackend` that has
    /// addresses in memory of the test.
    ///
    /// # Safety
    /// `inner` keeps what [`HostAddresses`] asks of a back end that answers `views`.
    ///
    /// ```
    /// use pagewise::inject::Injector;
    /// use pagewise::intercept::Intercepted;
    /// use pagewise::{HostAddresses, HostViews};
    ///
    /// // SAFETY: the simulator itself promises these views, and the injector changes no address.
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
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// The interceptor.
    pub fn interceptor(&self) -> &I {
        &self.interceptor
    }

    /// The back end inside, without the interceptor.
    pub fn into_inner(self) -> B {
        self.inner
    }

    /// Asks about a discard. One that was made is reported as made, whatever the interceptor says:
    /// a caller that gets an error would go on reading contents that are lost.
    fn discard(&self, call: &Call, make: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut was_made = false;
        let answer = self.interceptor.around(call, || make().inspect(|()| was_made = true));
        if was_made { Ok(()) } else { answer }
    }
}

// SAFETY: addresses come from the inner back end as they are: an interceptor gets a call's answer
// as a value of any type `T`, which it can neither make nor look into. So the promise of the inner
// back end holds, or the one that was made in `with_host_views`.
unsafe impl<B: Backend, I: Interceptor> HostAddresses for Intercepted<B, I> {
    fn host_views(&self) -> HostViews {
        self.views
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        self.inner.kernel_address(ptr)
    }
}
