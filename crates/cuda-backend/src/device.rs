//! A device in use: its context, and the touch kernels once somebody needs them.

use std::sync::OnceLock;

use pagewise_hal::Result;

use crate::context::Context;
use crate::kernels::Kernels;

/// A device in use.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) context: Context,
    kernels: OnceLock<Kernels>,
}

impl Device {
    pub(crate) fn new(context: Context) -> Self {
        Self { context, kernels: OnceLock::new() }
    }

    /// The touch kernels, loaded at the first call.
    pub(crate) fn kernels(&self) -> Result<&Kernels> {
        if let Some(kernels) = self.kernels.get() {
            return Ok(kernels);
        }
        let loaded = Kernels::load(&self.context)?;
        if let Err(late) = self.kernels.set(loaded) {
            // Another thread was faster.
            late.unload(&self.context);
        }
        Ok(self.kernels.wait())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(kernels) = self.kernels.take() {
            kernels.unload(&self.context);
        }
    }
}
