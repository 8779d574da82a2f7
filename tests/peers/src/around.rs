//! A device around the simulator: some calls are answered by figures of its own, which its user sees
//! too, and all others by the simulator.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_hal::{Backend, DevicePtr, HostAddresses, HostViews};

/// The figures of a device, for the device and its user.
#[derive(Debug, Default)]
pub(crate) struct Figures<T>(Arc<Mutex<T>>);

impl<T> Clone for Figures<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> From<T> for Figures<T> {
    fn from(figures: T) -> Self {
        Self(Arc::new(Mutex::new(figures)))
    }
}

impl<T> Figures<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A back end with such figures. Each type of figures implements [`Backend`] for it.
#[derive(Debug)]
pub(crate) struct DeviceAround<B, T> {
    pub(crate) inner: B,
    pub(crate) figures: Figures<T>,
}

impl<B, T> DeviceAround<B, T> {
    pub(crate) fn new(inner: B, figures: Figures<T>) -> Self {
        Self { inner, figures }
    }
}

// SAFETY: addresses come from the inner back end as they are, and that back end made the promise.
unsafe impl<B: Backend, T> HostAddresses for DeviceAround<B, T>
where
    Self: Backend,
{
    fn host_views(&self) -> HostViews {
        self.inner.host_views()
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        self.inner.kernel_address(ptr)
    }
}

/// A method of [`Backend`] that the inner back end answers; without one, the methods that
/// `with_calls!` does not list.
macro_rules! passed_on {
    () => {
        fn capabilities(&self) -> pagewise_hal::Capabilities {
            self.inner.capabilities()
        }

        fn clock_ns(&self) -> u64 {
            self.inner.clock_ns()
        }

        fn sleep_ns(&self, duration_ns: u64) {
            self.inner.sleep_ns(duration_ns)
        }
    };
    (fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $name(&self, $($argument: $type),*) -> pagewise_hal::Result<$answer> {
            self.inner.$name($($argument),*)
        }
    };
    (unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        unsafe fn $name(&self, $($argument: $type),*) -> pagewise_hal::Result<$answer> {
            // SAFETY: the inner method asks for the same as this one, and the caller of this one
            // promised it. All arguments are passed on unchanged.
            unsafe { self.inner.$name($($argument),*) }
        }
    };
}
pub(crate) use passed_on;
