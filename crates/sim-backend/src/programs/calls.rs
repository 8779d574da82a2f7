//! The calls of the trait about modules and their kernels.

use std::sync::Arc;

use pagewise_hal::{
    AttachFlags, Backend, BestBlock, Code, DeviceId, DevicePtr, Error, FunctionAttribute,
    FunctionHandle, HostAddresses, HostAllocFlags, KernelParam, LaunchShape, ModuleHandle,
    Operation, ParamInfo, RecordedLaunch, Result, Span, StreamFlags, StreamHandle,
};
use pagewise_ptx::LoadError;

use super::fault::KernelFault;
use super::launch::ProgramLaunch;
use super::limits::GridLimits;
use super::modules::{Function, LoadedModule, Variable};
use super::occupancy;
use super::program::LoweredProgram;
use super::text::Text;
use crate::backend::SimBackend;
use crate::config::MemoryContents;
use crate::cost::Call;
use crate::refusal::{Checked, invalid, refuse, unsupported};

/// `CUDA_ERROR_INVALID_IMAGE`, `CUDA_ERROR_INVALID_PTX`
const INVALID_IMAGE: i32 = 200;
const INVALID_PTX: i32 = 218;

/// `CU_LIMIT_STACK_SIZE` and `CU_LIMIT_MALLOC_HEAP_SIZE` of a new context.
const STACK_BYTES: u32 = 1024;
const HEAP_BYTES: u64 = 8 << 20;

/// The first bytes of a cubin, of a fat binary, and of the wrapper around one.
const BINARIES: [[u8; 4]; 3] =
    [[0x7F, b'E', b'L', b'F'], [0x50, 0xED, 0x55, 0xBA], [0xB1, 0x43, 0x62, 0x46]];

/// The text of an image.
fn text_of(image: &[u8]) -> Checked<&str> {
    if image.is_empty() {
        return invalid("the image is empty: give PTX");
    }
    if image.first_chunk().is_some_and(|first| BINARIES.contains(first)) {
        return unsupported("the simulator executes PTX and no machine code: give the text");
    }
    let end = image.iter().position(|byte| *byte == 0).unwrap_or(image.len());
    match std::str::from_utf8(image.get(..end).unwrap_or_default()) {
        Ok(text) => Ok(text),
        Err(_) => refuse(INVALID_IMAGE, "the image is no PTX: it is not UTF-8"),
    }
}

fn not_loaded(error: &LoadError) -> Error {
    let code = if error.is_unsupported() { Code::NOT_SUPPORTED } else { INVALID_PTX };
    Error::from_code(Operation::ModuleLoad.name(), code).with_detail(error.to_string())
}

/// The number of `sm_90` in the directive `.target`.
fn target_of(text: &str) -> i32 {
    let named = text.split_once(".target").and_then(|(_, rest)| rest.split_once("sm_"));
    let digits = named.map_or("", |(_, rest)| {
        rest.split(|one: char| !one.is_ascii_digit()).next().unwrap_or_default()
    });
    digits.parse().unwrap_or_default()
}

impl SimBackend {
    /// Hands the text that kernels print to a listener, when the program waits for the device.
    /// Without a listener it goes to standard output.
    ///
    /// Kernels that are launched by the calls of [`Backend`] print so. See
    /// [`begin_program`](Self::begin_program) for others.
    pub fn on_kernel_text(&self, listener: impl FnMut(&[u8]) + Send + 'static) {
        self.modules().text.listen(Some(Box::new(listener)));
    }

    fn limits(&self) -> GridLimits {
        GridLimits::of(self.config().gpu())
    }

    fn of_modules<T>(&self, operation: Operation, act: impl FnOnce() -> Checked<T>) -> Result<T> {
        self.call(operation, Call::Other, |_| act())
    }

    pub(crate) fn load_module(&self, device: DeviceId, image: &[u8]) -> Result<ModuleHandle> {
        // An image in managed memory that faults would wait for the machine's lock.
        let image = image.to_vec();
        let text = self.call(Operation::ModuleLoad, Call::Other, |sim| {
            sim.check_device(device)?;
            let text = text_of(&image)?;
            match sim.config.contents {
                MemoryContents::Real | MemoryContents::Described => Ok(text),
                MemoryContents::Skipped => {
                    unsupported("the machine keeps no contents, which code would compute with")
                }
            }
        })?;
        let capability = self.config().gpu().compute_capability;
        let lowered = LoweredProgram::new(capability, text).map_err(|error| not_loaded(&error))?;
        let mut places = Vec::new();
        let loaded = self.place_variables(device, &lowered, &mut places).and_then(|program| {
            self.fill_variables(device, &program, &places)?;
            let named = lowered.module.variables().iter().zip(&places);
            let variables = named.filter_map(|(one, span)| {
                Some(Variable { name: one.name.clone(), span: (*span)? })
            });
            let variables = variables.collect();
            Ok(LoadedModule { device, program, variables, target: target_of(text) })
        });
        if loaded.is_err() {
            places.iter().flatten().for_each(|span| self.free_variable(*span));
        }
        Ok(ModuleHandle::checked(self.modules().add(loaded?)))
    }

    /// Gives each variable of a module memory, in their order.
    fn place_variables(
        &self,
        device: DeviceId,
        lowered: &LoweredProgram,
        places: &mut Vec<Option<Span>>,
    ) -> Result<super::Program> {
        for variable in lowered.module.variables() {
            let bytes = variable.bytes;
            let span = match (variable.defined && bytes > 0, variable.managed) {
                (false, _) => None,
                (true, true) => Some(self.alloc_managed(bytes, AttachFlags::GLOBAL)?),
                (true, false) => Some(self.alloc_device(device, bytes)?),
            };
            places.push(span.map(|ptr| Span::new(ptr, bytes)));
        }
        let addresses = places.iter().map(|place| place.map(|span| span.ptr.0));
        lowered.at(addresses).map_err(|error| {
            Error::from_code(Operation::ModuleLoad.name(), INVALID_PTX)
                .with_detail(error.to_string())
        })
    }

    /// Gives the variables of a module their first values, as a driver does: by copies.
    fn fill_variables(
        &self,
        device: DeviceId,
        program: &super::Program,
        places: &[Option<Span>],
    ) -> Result<()> {
        let on = self.stream_create(device, StreamFlags::NON_BLOCKING)?;
        let filled = places.iter().enumerate().try_for_each(|(index, span)| {
            let Some(span) = *span else { return Ok(()) };
            // SAFETY: the variable is new, so no other code uses it.
            unsafe { self.memset(span, 0, on) }?;
            let contents = program.contents(index);
            if contents.is_empty() { Ok(()) } else { self.copy_in(span.ptr, &contents, on) }
        });
        // SAFETY: this function made the stream, and gave it to no other code.
        unsafe { self.stream_destroy(on) }?;
        filled
    }

    fn copy_in(&self, to: DevicePtr, bytes: &[u8], on: StreamHandle) -> Result<()> {
        let from = self.alloc_pinned(bytes.len() as u64, HostAllocFlags::empty())?;
        let place = self.kernel_address(from).0;
        let place = std::ptr::with_exposed_provenance_mut::<u8>(place as usize);
        // SAFETY: the memory is new and as long as the bytes, at an address of the engine's view,
        // which this process always reaches.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: no other code uses the new memory on either side.
        let copied = unsafe { self.memcpy(to, from, bytes.len() as u64, on) };
        // SAFETY: the copy is complete: calls are when they return.
        unsafe { self.free_pinned(from) }?;
        copied
    }

    fn free_variable(&self, span: Span) {
        // SAFETY: the memory is of a module that is being unloaded or was never loaded; the caller
        // of `module_unload` promised that no code uses it any more.
        _ = unsafe { self.free(span.ptr) };
    }

    pub(crate) fn unload_module(&self, module: ModuleHandle) -> Result<()> {
        let removed =
            self.of_modules(Operation::ModuleUnload, || self.modules().remove(module.as_raw()))?;
        removed.variables.iter().for_each(|variable| self.free_variable(variable.span));
        Ok(())
    }

    pub(crate) fn find_function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle> {
        let find = || self.modules().function(module.as_raw(), name);
        self.of_modules(Operation::ModuleFunction, find).map(FunctionHandle::checked)
    }

    pub(crate) fn find_global(&self, module: ModuleHandle, name: &str) -> Result<Span> {
        let find = || self.modules().global(module.as_raw(), name);
        self.of_modules(Operation::ModuleGlobal, find)
    }

    pub(crate) fn params_of(&self, function: FunctionHandle) -> Result<Vec<ParamInfo>> {
        self.about(Operation::FunctionParams, function, |found| Ok(found.params()))
    }

    pub(crate) fn attribute_of(
        &self,
        function: FunctionHandle,
        attribute: FunctionAttribute,
    ) -> Result<i32> {
        let capability = self.config().gpu().compute_capability;
        self.about(Operation::FunctionAttribute, function, |found| {
            found.attribute(attribute, capability)
        })
    }

    pub(crate) fn set_attribute_of(
        &self,
        function: FunctionHandle,
        attribute: FunctionAttribute,
        value: i32,
    ) -> Result<()> {
        let limits = self.limits();
        self.about(Operation::FunctionSetAttribute, function, |found| {
            found.set_attribute(attribute, value, &limits)
        })
    }

    pub(crate) fn occupancy_of(
        &self,
        function: FunctionHandle,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        let limits = self.limits();
        self.about(Operation::OccupancyBlocks, function, |found| match threads {
            0 => invalid("a block has at least one thread"),
            _ if shared_bytes > found.dynamic_shared() => Ok(0),
            _ => Ok(occupancy::blocks(&limits, found.info(), threads, shared_bytes)),
        })
    }

    pub(crate) fn best_block_of(
        &self,
        function: FunctionHandle,
        shared_bytes: u32,
        threads_max: u32,
    ) -> Result<BestBlock> {
        let limits = self.limits();
        self.about(Operation::OccupancyBestBlock, function, |found| {
            if shared_bytes > found.dynamic_shared() {
                return Ok(BestBlock { grid_blocks: 0, block_threads: 0 });
            }
            Ok(occupancy::best_block(&limits, found.info(), shared_bytes, threads_max))
        })
    }

    /// Carries out a call about a live kernel.
    fn about<T>(
        &self,
        operation: Operation,
        function: FunctionHandle,
        act: impl FnOnce(&Function) -> Checked<T>,
    ) -> Result<T> {
        self.of_modules(operation, || act(&*self.modules().live(function.as_raw())?))
    }

    /// # Safety
    /// As [`Backend::launch`], but for the parameters, which are checked.
    pub(crate) unsafe fn launch_function(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        on: StreamHandle,
    ) -> Result<()> {
        self.launch_checked(Operation::Launch, function, (shape, params), |launch, text| {
            let kernel = self.begin_program(launch, self, on)?;
            // SAFETY: the caller promised that no other code uses the memory that the kernel uses, and
            // that the module outlives the launch.
            Ok((unsafe { kernel.finish(self, text) }?, ()))
        })
    }

    /// # Safety
    /// As [`Backend::launch_traced`], but for the parameters, which are checked.
    pub(crate) unsafe fn trace_function(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        on: StreamHandle,
    ) -> Result<RecordedLaunch> {
        self.launch_checked(Operation::LaunchTraced, function, (shape, params), |launch, text| {
            let kernel = self.begin_program(launch, self, on)?;
            // SAFETY: the caller's promise, as for `launch_function`.
            unsafe { kernel.finish_traced(self, text) }
        })
    }

    /// Checks a launch and lets `carry_out` carry it out. The device is lost if the kernel faults.
    fn launch_checked<T>(
        &self,
        operation: Operation,
        function: FunctionHandle,
        (shape, params): (LaunchShape, &[KernelParam]),
        carry_out: impl FnOnce(&ProgramLaunch<'_>, &Text) -> Result<(Option<KernelFault>, T)>,
    ) -> Result<T> {
        self.check_not_lost(operation)?;
        let limits = self.limits();
        let found: Checked<Arc<Function>> = self.modules().live(function.as_raw());
        let checked = found.and_then(|found| {
            found.check_shape(&shape, &limits)?;
            Ok(found)
        });
        let found = checked.map_err(|refusal| crate::machine::error(operation.name(), refusal))?;
        let parameters = found.pack(params).map_err(|why| {
            Error::from_code(operation.name(), Code::INVALID_VALUE).with_detail(why)
        })?;
        let launch = ProgramLaunch {
            kernel: &found.kernel,
            device: found.device,
            shape,
            parameters: &parameters,
            is_cooperative: false,
            cluster: None,
            stack_bytes: STACK_BYTES,
            heap_bytes: HEAP_BYTES,
        };
        let text = &self.modules().text;
        let (fault, answer) = carry_out(&launch, text)?;
        if let Some(fault) = fault {
            // Text from before is not lost with the device.
            text.flush();
            self.lose(fault);
        }
        Ok(answer)
    }
}
