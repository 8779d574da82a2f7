//! Modules of code for devices, and their kernels.

use std::sync::Arc;

use pagewise_hal::{FunctionHandle, ModuleHandle, Result};

use crate::refuse::invalid;
use crate::{Device, Machine};

/// A module that is loaded on a device. It is unloaded with the last handle and the last
/// [`Function`] of it.
///
/// | back end | behaviour |
/// | --- | --- |
/// | CUDA | `cuModuleLoadData`; the driver compiles PTX |
/// | simulator | `Unsupported` (801): it runs no kernels |
#[derive(Debug, Clone)]
pub struct Module(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    machine: Machine,
    device: Device,
    handle: ModuleHandle,
}

impl Module {
    /// Loads a module from PTX.
    ///
    /// # Errors
    /// `InvalidDevice` and `InvalidValue` without a CUDA code, the latter for text with a NUL or
    /// that is no PTX but a binary; the driver's, such as 218 (`INVALID_PTX`); `Unsupported` (801)
    /// from the simulator.
    ///
    /// ```
    /// use pagewise::{Device, ErrorKind, Machine, launch::Module};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let error = Module::from_ptx(&machine, Device::FIRST, ".version 6.0").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unsupported, "the simulator runs no kernels");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn from_ptx(machine: &Machine, device: Device, ptx: &str) -> Result<Self> {
        // The driver takes these for binaries, and reads on behind them.
        if ptx.contains('\0') || ptx.starts_with('\x7f') {
            let why = "the text is no PTX: load a cubin with `Module::from_image`";
            return Err(invalid("load module", why));
        }
        // SAFETY: `module_load` asks that a binary is whole. A binary begins with 0x7f (ELF) or
        // with bytes that are not UTF-8 (fatbin), so this is text, which the back end ends.
        unsafe { Self::from_image(machine, device, ptx.as_bytes()) }
    }

    /// Loads a module from a cubin or a fatbin.
    ///
    /// # Errors
    /// As [`from_ptx`](Self::from_ptx); also the driver's 200 (`INVALID_IMAGE`) and 209
    /// (`NO_BINARY_FOR_GPU`).
    ///
    /// # Safety
    /// The image is whole: the driver reads as many bytes as its header says.
    pub unsafe fn from_image(machine: &Machine, device: Device, image: &[u8]) -> Result<Self> {
        machine.check_device("load module", device)?;
        // SAFETY: the caller promised that the image is whole.
        let handle = unsafe { machine.backend().module_load(device.id(), image) }?;
        Ok(Self(Arc::new(Loaded { machine: machine.clone(), device, handle })))
    }

    /// A kernel of the module.
    ///
    /// # Errors
    /// The driver's: 500 (`NOT_FOUND`) if the module has no kernel of this name, `InvalidValue` for
    /// a name with a NUL.
    pub fn function(&self, name: &str) -> Result<Function> {
        let handle = self.0.machine.backend().module_function(self.0.handle, name)?;
        Ok(Function { module: Arc::clone(&self.0), handle })
    }

    /// The module as back ends name it.
    #[must_use]
    pub fn handle(&self) -> ModuleHandle {
        self.0.handle
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let backend = self.machine.backend();
        // SAFETY: `from_image` loaded the module, and this is its last handle. Launches of this
        // crate wait for their kernel; other code that launches one has promised, by its own
        // `unsafe` call, that the module outlives it.
        self.machine.on_drop(|| unsafe { backend.module_unload(self.handle) });
    }
}

/// A kernel of a [`Module`], which it keeps loaded.
#[derive(Debug, Clone)]
pub struct Function {
    module: Arc<Loaded>,
    handle: FunctionHandle,
}

impl Function {
    /// The device that the module is loaded on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.module.device
    }

    /// The machine that the module is of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.module.machine
    }

    /// The kernel as back ends name it.
    #[must_use]
    pub fn handle(&self) -> FunctionHandle {
        self.handle
    }
}
