//! A stream of cudarc's in the hands of a machine's stream.

use std::fmt;
use std::sync::{Arc, Once};

use cudarc::driver::CudaStream;

use crate::Device;

/// A stream of cudarc's that a [`Stream`] keeps.
pub(crate) struct Adopted {
    stream: Arc<CudaStream>,
    device: Device,
    for_ever: Once,
}

impl Adopted {
    pub(super) fn new(stream: &Arc<CudaStream>, device: Device) -> Self {
        Self { stream: Arc::clone(stream), device, for_ever: Once::new() }
    }

    pub(super) fn stream(&self) -> Arc<CudaStream> {
        Arc::clone(&self.stream)
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Lets the stream live as long as the process: a copy of its handle has no end.
    pub(crate) fn keep_for_ever(&self) {
        self.for_ever.call_once(|| std::mem::forget(self.stream()));
    }
}

impl fmt::Debug for Adopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Adopted").field(&self.stream).finish()
    }
}
