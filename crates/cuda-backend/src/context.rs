//! Primary contexts: retained once per device, current on whichever thread calls.
//!
//! The driver keeps one current context per thread. Asking it on every call would cost more than
//! many calls do, so each thread remembers which context this crate made current last. The memory
//! is wrong when other code on the thread changes the context; then either the driver says so
//! (a call without a context fails, and is repeated once with it) or the caller has announced it
//! with [`CudaBuilder::foreign_contexts`](crate::CudaBuilder::foreign_contexts).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise_hal::{Code, DeviceId, Error, Result};

use crate::abi::{Handle, handle};
use crate::driver::Driver;
use crate::table::Table;

thread_local! {
    /// [`Context::id`] of the context that this thread was given last; 0 for none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// This thread's context may be another one by now.
#[cfg(feature = "cudarc")]
pub(crate) fn forget_current() {
    CURRENT.set(0);
}

/// Whether a call says that no usable context was current: none, or a destroyed one.
fn is_context_lost(code: i32) -> bool {
    [201, 709].contains(&code)
}

/// The id of a context that no thread may take for current without asking the driver.
const NEVER_REMEMBERED: u64 = u64::MAX;

/// A retained primary context.
#[derive(Debug)]
pub(crate) struct Context {
    driver: Arc<Driver>,
    device: i32,
    /// Unique in the process: the address of a context may come back, this does not. Or
    /// [`NEVER_REMEMBERED`].
    id: AtomicU64,
    raw: usize,
}

impl Context {
    /// Retains a device's primary context.
    pub(crate) fn retain(driver: Arc<Driver>, device: DeviceId) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut ordinal = 0;
        // SAFETY: the driver checks the number of the device, and writes one `int` to a local that
        // outlives the call.
        driver.check("cuDeviceGet", unsafe {
            (driver.table.device_get)(&raw mut ordinal, device.0)
        })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the driver itself named the device in the call before, and writes the context to
        // a local that outlives this call.
        driver.check("cuDevicePrimaryCtxRetain", unsafe {
            (driver.table.primary_ctx_retain)(&raw mut raw, ordinal)
        })?;
        let context = Self {
            id: AtomicU64::new(NEXT.fetch_add(1, Ordering::Relaxed)),
            device: ordinal,
            raw: raw as usize,
            driver,
        };
        if context.driver.expects_foreign_contexts() {
            context.forget();
        }
        Ok(context)
    }

    /// From now on every call asks whether the context is current: other code changes it.
    pub(crate) fn forget(&self) {
        self.id.store(NEVER_REMEMBERED, Ordering::Relaxed);
    }

    /// No thread keeps the id that stands for never.
    fn remember(&self) {
        let id = self.id.load(Ordering::Relaxed);
        CURRENT.set(if id == NEVER_REMEMBERED { 0 } else { id });
    }

    pub(crate) fn table(&self) -> &Table {
        &self.driver.table
    }

    pub(crate) fn as_raw(&self) -> Handle {
        handle(self.raw as u64)
    }

    /// Whether the context is current on this thread, for all that is known here.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        CURRENT.get() == self.id.load(Ordering::Relaxed)
    }

    /// Makes a call with this context current and turns its number into an error. The call is
    /// repeated once if it found no usable context: then it did nothing.
    #[inline]
    pub(crate) fn call(
        &self,
        operation: &'static str,
        mut call: impl FnMut() -> i32,
    ) -> Result<()> {
        if !self.is_current() {
            self.enter(operation)?;
        }
        match call() {
            Code::SUCCESS => Ok(()),
            code => self.refused(operation, code, &mut call),
        }
    }

    /// The answer to a call that was refused.
    #[cold]
    pub(crate) fn refused(
        &self,
        operation: &'static str,
        code: i32,
        call: &mut dyn FnMut() -> i32,
    ) -> Result<()> {
        if !is_context_lost(code) {
            return Err(self.driver.error(operation, code));
        }
        self.set(operation)?;
        self.driver.check(operation, call())
    }

    /// [`call`](Self::call) with the number as the answer.
    pub(crate) fn number(
        &self,
        operation: &'static str,
        mut call: impl FnMut() -> i32,
    ) -> Result<i32> {
        if !self.is_current() {
            self.enter(operation)?;
        }
        match call() {
            code if is_context_lost(code) => {
                self.set(operation)?;
                Ok(call())
            }
            code => Ok(code),
        }
    }

    /// Makes the context current unless it is.
    #[cold]
    fn enter(&self, operation: &'static str) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: the driver writes the context to a local that outlives the call.
        let code = unsafe { (self.driver.table.ctx_get_current)(&raw mut current) };
        if code == Code::SUCCESS && current as usize == self.raw {
            self.remember();
            return Ok(());
        }
        self.set(operation)
    }

    fn set(&self, operation: &'static str) -> Result<()> {
        // SAFETY: the context is live: `self` retained it, and releases it only when `self` is
        // dropped.
        let code = unsafe { (self.driver.table.ctx_set_current)(self.as_raw()) };
        if code != Code::SUCCESS {
            return Err(self.cannot_enter(operation, code));
        }
        self.remember();
        Ok(())
    }

    #[cold]
    fn cannot_enter(&self, operation: &'static str, code: i32) -> Error {
        Error::from_code(operation, code).with_detail(format!(
            "the context of device {} could not be made current: was the device reset?",
            self.device
        ))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `retain` retained the context once, and this drop releases it once. A failure
        // leaves nothing to do, because then the driver is shutting down.
        unsafe { (self.driver.table.primary_ctx_release)(self.device) };
    }
}
