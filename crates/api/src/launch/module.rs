//! Modules of code for devices, and their variables.

use std::sync::Arc;

use bytemuck::Pod;
use pagewise_hal::{ModuleHandle, Result, Span};

use super::kernel::Kernel;
use super::loaded::{Hold, Loaded};
use crate::refuse::invalid;
use crate::{Device, DeviceBuffer, Machine, ManagedBuffer};

/// A module that is loaded on a device. It is unloaded with the last handle, the last [`Kernel`] and
/// the last variable of it.
///
/// | back end | behaviour |
/// | --- | --- |
/// | CUDA | `cuModuleLoadData`; the driver compiles PTX |
/// | simulator | checks PTX and executes it; machine code is `Unsupported` (801) |
#[derive(Debug, Clone)]
pub struct Module(Arc<Loaded>);

impl Module {
    /// Loads a module from PTX.
    ///
    /// # Errors
    /// `InvalidDevice` and `InvalidValue` without a CUDA code, the latter for text with a NUL or
    /// that is no PTX but a binary; the driver's, such as 218 (`INVALID_PTX`), of which the
    /// simulator's detail names line and column. `Unsupported` (801) from the simulator for an
    /// instruction that it does not execute.
    ///
    /// ```
    /// use pagewise::{Device, Machine, launch::Module};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let wrong = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f( { ret; }";
    /// let error = Module::from_ptx(&machine, Device::FIRST, wrong).unwrap_err();
    /// assert_eq!(error.code_name(), Some("CUDA_ERROR_INVALID_PTX"));
    /// assert!(error.detail().contains("line 4"), "{error}");
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
        Ok(Self(Arc::new(Loaded::new(machine.clone(), device, handle))))
    }

    /// A kernel of the module.
    ///
    /// # Errors
    /// The driver's: 500 (`NOT_FOUND`) if the module has no kernel of this name, `InvalidValue` for
    /// a name with a NUL.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let backend = self.0.machine.backend();
        let found = backend.module_function(self.0.handle, name);
        let handle = found.map_err(|error| error.with_name(name))?;
        Ok(Kernel::new(Arc::clone(&self.0), handle, name))
    }

    /// A `__managed__` variable, as elements of `T`. Kernels of the module name the same memory. The
    /// buffer keeps the module loaded; another buffer of the variable can be had when it is dropped.
    ///
    /// # Errors
    /// The driver's 500 (`NOT_FOUND`). `InvalidValue` without a CUDA code if the variable is not
    /// managed or not whole elements of `T`, or if a buffer of it exists.
    ///
    /// ```
    /// use pagewise::{Device, Machine, Stream, launch::Module};
    ///
    /// const PTX: &str = "
    /// .version 7.0
    /// .target sm_70
    /// .address_size 64
    /// .visible .global .attribute(.managed) .align 4 .u32 total = 40;
    /// .visible .entry add(.param .u32 more)
    /// {
    ///     .reg .b32 %r<3>;
    ///     ld.param.u32 %r1, [more];
    ///     atom.global.add.u32 %r2, [total], %r1;
    ///     ret;
    /// }";
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let module = Module::from_ptx(&machine, Device::FIRST, PTX)?;
    /// let total = module.managed_variable::<u32>("total")?;
    /// // SAFETY: the kernel adds to `total` alone, which is read after the stream was waited for.
    /// unsafe { module.kernel("add")?.launch(&stream, 1, 2, (1_u32,)) }?;
    /// stream.synchronize()?;
    /// assert_eq!(total.read()?, [42]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn managed_variable<T: Pod>(&self, name: &str) -> Result<ManagedBuffer<T>> {
        let (span, len, hold) = self.hold::<T>(name)?;
        // SAFETY: the variable lives as long as the module, which `hold` keeps. No other buffer has
        // it. Who launches kernels of the module promises that they use it in turn.
        unsafe { ManagedBuffer::from_raw(&self.0.machine, span.ptr, len, hold) }
    }

    /// A `__device__` or `__constant__` variable, as elements of `T`: as
    /// [`managed_variable`](Self::managed_variable), in memory of the device.
    ///
    /// # Errors
    /// As [`managed_variable`](Self::managed_variable), of a variable that is managed.
    pub fn device_variable<T: Pod>(&self, name: &str) -> Result<DeviceBuffer<T>> {
        let (span, len, hold) = self.hold::<T>(name)?;
        // SAFETY: the variable lives as long as the module, which `hold` keeps, and no other buffer
        // has it. Who launches kernels of the module promises that they use it in turn.
        unsafe { DeviceBuffer::from_raw(&self.0.machine, span.ptr, len, hold) }
    }

    /// The memory of a variable, and its elements, held for one buffer.
    fn hold<T: Pod>(&self, name: &str) -> Result<(Span, usize, Hold)> {
        let found = self.0.machine.backend().module_global(self.0.handle, name);
        let span = found.map_err(|error| error.with_name(name))?;
        let size = size_of::<T>() as u64;
        if span.bytes.checked_rem(size) != Some(0) {
            let (bytes, of) = (span.bytes, std::any::type_name::<T>());
            let why = format!("the variable `{name}` has {bytes} bytes, which are no whole {of}");
            return Err(invalid("module variable", why));
        }
        let Some(hold) = Hold::new(&self.0, name) else {
            let why = format!("a buffer of the variable `{name}` exists: drop it first");
            return Err(invalid("module variable", why));
        };
        Ok((span, span.bytes.checked_div(size).unwrap_or(0) as usize, hold))
    }

    /// The module as back ends name it.
    #[must_use]
    pub fn handle(&self) -> ModuleHandle {
        self.0.handle
    }
}
