//! Modules and their kernels, loaded and launched for a caller.
//!
//! A launch keeps the module of its kernel live until the call is over.

use std::ffi::{CString, c_void};

use pagewise_hal::{
    Code, DeviceId, Error, FunctionHandle, KernelAccesses, KernelParam, LaunchShape, ModuleHandle,
    RecordedLaunch, Result, StreamHandle,
};

use crate::abi::handle;
use crate::backend::CudaBackend;
use crate::context::Context;
use crate::live::InUse;
use crate::uses::Taken;

pub(crate) const NO_MODULE: &str = "no live module of this back end: unloaded, or of another one";
const NO_FUNCTION: &str =
    "no kernel of a live module of this back end: the module was unloaded, or is of another one";

fn refuse<T>(operation: &'static str, code: i32, why: &'static str) -> Result<T> {
    Err(Error::from_code(operation, code).with_detail(why))
}

impl CudaBackend {
    /// # Safety
    /// As [`Backend::kernel_accesses`](pagewise_hal::Backend::kernel_accesses).
    pub(crate) unsafe fn kernel_accesses(&self, _: &KernelAccesses, _: StreamHandle) -> Result<()> {
        refuse(
            "kernel_accesses",
            Code::NOT_SUPPORTED,
            "a driver runs kernels and carries out no declared accesses: load a module and launch \
             its kernel",
        )
    }

    /// # Safety
    /// As [`Backend::launch_recorded`](pagewise_hal::Backend::launch_recorded).
    pub(crate) unsafe fn launch_recorded(&self, _: &RecordedLaunch, _: StreamHandle) -> Result<()> {
        refuse(
            "launch_recorded",
            Code::NOT_SUPPORTED,
            "a driver runs kernels and carries out no recorded accesses: load a module and launch \
             its kernel",
        )
    }

    /// # Safety
    /// As [`Backend::launch_traced`](pagewise_hal::Backend::launch_traced).
    pub(crate) unsafe fn launch_traced(
        &self,
        _: FunctionHandle,
        _: LaunchShape,
        _: &[KernelParam],
        _: StreamHandle,
    ) -> Result<RecordedLaunch> {
        refuse(
            "launch_traced",
            Code::NOT_SUPPORTED,
            "a driver does not say what a kernel accessed: launch it without a trace, or on the \
             simulator",
        )
    }

    /// # Safety
    /// As [`Backend::module_load`](pagewise_hal::Backend::module_load).
    pub(crate) unsafe fn module_load(
        &self,
        device: DeviceId,
        image: &[u8],
    ) -> Result<ModuleHandle> {
        const OPERATION: &str = "module_load";
        let context = &self.device(OPERATION, device)?.context;
        if image.is_empty() {
            return refuse(
                OPERATION,
                Code::INVALID_VALUE,
                "the image is empty: give PTX or a cubin",
            );
        }
        // PTX ends with a NUL, which a caller's text need not have.
        let image = [image, &[0]].concat();
        let mut module = std::ptr::null_mut();
        let load = self.driver.table.module_load_data;
        // SAFETY: the driver reads text up to its NUL, which was just added, and other images as
        // far as their header says, which the caller promised to be all there. It writes the
        // module to a local that outlives the call.
        context.call(OPERATION, || unsafe { load(&raw mut module, image.as_ptr().cast()) })?;
        let raw = module.addr() as u64;
        self.modules.add(raw, device);
        Ok(ModuleHandle::checked(raw))
    }

    /// # Safety
    /// As [`Backend::module_unload`](pagewise_hal::Backend::module_unload).
    pub(crate) unsafe fn module_unload(&self, module: ModuleHandle) -> Result<()> {
        const OPERATION: &str = "module_unload";
        match self.modules.live.take(module.as_raw()) {
            Taken::InUse => Ok(()),
            Taken::Unknown => refuse(OPERATION, Code::INVALID_HANDLE, NO_MODULE),
            Taken::Free => self.module_end(module),
        }
    }

    /// Unloads a module that is in the set no more.
    pub(crate) fn module_end(&self, module: ModuleHandle) -> Result<()> {
        const OPERATION: &str = "module_unload";
        let raw = module.as_raw();
        let device = self.modules.forget(raw).unwrap_or_default();
        let unload = self.driver.table.module_unload;
        // SAFETY: the driver asks for a loaded module of which no kernel runs. It was taken from
        // the set of live ones, which succeeds once and only while no call uses it; that none of
        // its kernels runs, the caller of `module_unload` promised.
        self.device(OPERATION, device)?.context.call(OPERATION, || unsafe { unload(handle(raw)) })
    }

    pub(crate) fn module_function(
        &self,
        module: ModuleHandle,
        name: &str,
    ) -> Result<FunctionHandle> {
        const OPERATION: &str = "module_function";
        let raw = module.as_raw();
        let _module = self.use_module(OPERATION, raw, NO_MODULE)?;
        let Ok(name) = CString::new(name) else {
            return refuse(OPERATION, Code::INVALID_VALUE, "the name of a kernel has no NUL");
        };
        let device = self.modules.device(raw).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        let find = self.driver.table.module_get_function;
        self.device(OPERATION, device)?
            .context
            // SAFETY: the module is live because this call uses it. The driver reads the name up to
            // its NUL, and writes the function to a local that outlives the call.
            .call(OPERATION, || unsafe { find(&raw mut function, handle(raw), name.as_ptr()) })?;
        let function = function.addr() as u64;
        self.modules.add_function(function, raw);
        Ok(FunctionHandle::checked(function))
    }

    /// # Safety
    /// As [`Backend::launch`](pagewise_hal::Backend::launch).
    pub(crate) unsafe fn launch(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        stream: StreamHandle,
    ) -> Result<()> {
        const OPERATION: &str = "launch";
        let _stream = self.use_stream(OPERATION, stream)?;
        let (_module, device) = self.use_function(OPERATION, function)?;
        let context = self.context_of_launch(OPERATION, device, stream)?;
        // The driver copies each parameter during the call and writes none.
        let mut pointers: Vec<*mut c_void> =
            params.iter().map(|param| param.bytes().as_ptr().cast_mut().cast()).collect();
        let LaunchShape { grid: [x, y, z], block: [bx, by, bz], shared_bytes } = shape;
        let start = self.driver.table.launch_kernel;
        let none = std::ptr::null_mut();
        // SAFETY: the caller promised that the parameters are those that the kernel declares, and
        // that the kernel may use the memory that it uses. The driver reads the parameters during
        // the call, while `params` is borrowed. Function and stream are live because this call uses
        // them, or because the code that vouched for them promised it.
        context.call(OPERATION, || unsafe {
            let (function, stream) = (handle(function.as_raw()), handle(stream.as_raw()));
            let params = pointers.as_mut_ptr();
            start(function, x, y, z, bx, by, bz, shared_bytes, stream, params, none)
        })
    }

    /// The context of a launch: that of the stream, or for default streams, which every context
    /// has, that of the kernel.
    fn context_of_launch(
        &self,
        operation: &'static str,
        device: Option<DeviceId>,
        stream: StreamHandle,
    ) -> Result<&Context> {
        match device.filter(|_| stream.is_default()) {
            Some(device) => Ok(&self.device(operation, device)?.context),
            None => self.context_of(operation, stream),
        }
    }

    pub(crate) fn use_module(
        &self,
        operation: &'static str,
        raw: u64,
        why: &'static str,
    ) -> Result<InUse<'_, Self>> {
        match self.modules.live.find(raw, self) {
            Some(found) => Ok(found),
            None => refuse(operation, Code::INVALID_HANDLE, why),
        }
    }

    /// Keeps the module of a kernel live for a call; says on which device it is. A kernel from
    /// elsewhere is of no module that is known here.
    pub(crate) fn use_function(
        &self,
        operation: &'static str,
        function: FunctionHandle,
    ) -> Result<(Option<InUse<'_, Self>>, Option<DeviceId>)> {
        let Some(module) = self.modules.module_of(function.as_raw()) else {
            if function.is_vouched() {
                return Ok((None, None));
            }
            return refuse(operation, Code::INVALID_HANDLE, NO_FUNCTION);
        };
        let used = self.use_module(operation, module, NO_FUNCTION)?;
        Ok((Some(used), self.modules.device(module)))
    }
}
