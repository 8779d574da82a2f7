//! A device in use: its context, and the touch kernels once a call needs them.

use std::sync::OnceLock;

use pagewise_hal::{DeviceAccess, Result, StreamHandle};

use crate::abi::handle;
use crate::cells::Cells;
use crate::context::Context;
use crate::kernels::{Kernels, Launch};

/// A device in use. Every call reads its context, which therefore comes first.
#[repr(C)]
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

impl Device {
    /// Loads what touch programs need: the driver may put off loading a kernel until its first
    /// launch, so each is launched once with nothing to do.
    pub(crate) fn prepare(&self, cells: &Cells) -> Result<()> {
        let context = &self.context;
        let cell = cells.take(context)?;
        let kernels = self.kernels()?;
        let stream = handle(StreamHandle::NULL.as_raw());
        for access in [DeviceAccess::Read, DeviceAccess::Write(0), DeviceAccess::AtomicAdd] {
            for fenced in [false, true] {
                let (address, result) = (cell.address(), cell.address());
                let (blocks, threads, places, stride_bytes) = (1, 1, 0, 1);
                let launch = Launch {
                    access,
                    fenced,
                    blocks,
                    threads,
                    address,
                    places,
                    stride_bytes,
                    result,
                };
                // SAFETY: `launch` asks that the kernel may touch its range and its cell. This
                // launch touches no range, and the cell belongs to this call.
                unsafe { kernels.launch(context, stream, launch) }?;
            }
        }
        let wait = context.table().stream_synchronize;
        // SAFETY: the driver dereferences the stream, and the default stream always lives.
        context.call("prepare_device", || unsafe { wait(stream) })?;
        cells.put(cell);
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(kernels) = self.kernels.take() {
            kernels.unload(&self.context);
        }
    }
}
