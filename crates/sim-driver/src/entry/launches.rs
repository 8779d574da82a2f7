//! Entry points that launch kernels.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{Code, DeviceId, EventHandle, LaunchShape, StreamHandle};

use crate::driver::{Driver, Outcome, has_place, in_context, in_context_after, load, stream};
use crate::entry::functions::function;
use crate::entry::libraries::function_of_kernel;
use crate::graphs::{KernelNode, Named};
use crate::image::parts::Kernel;
use crate::launch::{self, Launch, Request};
use crate::launching::launch_kernel;
use crate::programs::tables::Function;

/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`
const LAUNCH_OUT_OF_RESOURCES: c_int = 701;

/// `CU_LAUNCH_PARAM_END`, `CU_LAUNCH_PARAM_BUFFER_POINTER` and `CU_LAUNCH_PARAM_BUFFER_SIZE`
const END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// The most items of the `extra` array.
const EXTRA_MAX: usize = 16;

/// The most attributes of a launch.
const ATTRIBUTES_MAX: c_uint = 256;

/// The value of an attribute of a launch (`CUlaunchAttributeValue`).
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct LaunchAttributeValue(pub [u32; 16]);

/// `CUlaunchAttribute`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LaunchAttribute {
    /// The attribute.
    pub id: c_int,
    /// Its value.
    pub value: LaunchAttributeValue,
}

/// `CUlaunchConfig`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig {
    /// Blocks of the grid.
    pub grid: [c_uint; 3],
    /// Threads of a block.
    pub block: [c_uint; 3],
    /// Bytes of dynamic shared memory of each block.
    pub shared_bytes: c_uint,
    /// The stream.
    pub stream: *mut c_void,
    /// The attributes; may be null if there are none.
    pub attributes: *const LaunchAttribute,
    /// How many attributes there are.
    pub count: c_uint,
}

/// Parameters as a program passes them: an address each, or a buffer of all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arguments {
    pub(super) each: *mut *mut c_void,
    pub(super) extra: *mut *mut c_void,
}

/// Launches a kernel.
///
/// # Safety
/// The arguments must be those of the kernel. No thread, and no other work of a device, may use the
/// memory that it uses.
unsafe fn launch(
    driver: &Driver,
    device: DeviceId,
    handle: *mut c_void,
    on: *mut c_void,
    request: Request,
    arguments: Arguments,
) -> Outcome {
    let function = function(driver, handle)?;
    let on = stream(on);
    check_stream(driver, device, &function, on)?;
    let capturing = driver.capturing(on);
    // SAFETY: by this function's contract the arguments are those of the kernel.
    let launch = unsafe { launch_of(driver, device, function, request, arguments) };
    if launch.is_err() && capturing.is_some() {
        // A launch that is refused invalidates the capture, as driver 580 answered.
        _ = driver.submittable(on);
    }
    let launch = launch?;
    if let Some(key) = capturing {
        let named = match launch.function.context {
            Some(context) => Named { function: handle.addr(), kernel: 0, context },
            None => {
                let function = function_of_kernel(driver, handle.addr())?;
                Named { function, kernel: handle.addr(), context: driver.context_of_stream(on)? }
            }
        };
        let node = KernelNode::new(launch, named, !arguments.extra.is_null());
        return driver.graphs().capture(key, node.into()).map(drop);
    }
    driver.check_legacy(on)?;
    launch_kernel(driver, launch, on)
}

/// A launch that passes its checks, with the bytes of its parameters.
///
/// # Safety
/// The arguments must be those of the kernel.
pub(super) unsafe fn launch_of(
    driver: &Driver,
    device: DeviceId,
    function: Function,
    request: Request,
    arguments: Arguments,
) -> Outcome<Launch> {
    launch::check(driver, device, &function, &request)?;
    // SAFETY: by this function's contract the arguments are those of the kernel.
    let parameters = unsafe { arguments.read(function.kernel()?) }?;
    let module = match function.context {
        Some(_) => function.of,
        None => super::libraries::module(driver, function.of)?,
    };
    Ok(Launch { device, function, module, request, parameters })
}

/// Checks the stream, whatever the grid is (CONTRACT-101). It must belong to the context of the
/// function.
fn check_stream(
    driver: &Driver,
    device: DeviceId,
    function: &Function,
    on: StreamHandle,
) -> Outcome {
    let context = driver.context_of_stream(on)?;
    let is_of_context = function.context.is_none_or(|own| own == context);
    if driver.device_of_stream(on)? == device && is_of_context {
        Ok(())
    } else {
        Err(Code::INVALID_HANDLE)
    }
}

impl Arguments {
    /// The bytes of all parameters.
    ///
    /// # Safety
    /// Of the two arrays that are not null, one must be as `cuLaunchKernel` asks for this kernel.
    unsafe fn read(self, kernel: &Kernel) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; kernel.parameter_bytes() as usize];
        if !self.extra.is_null() {
            if !self.each.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            // SAFETY: by this function's contract the array is as `cuLaunchKernel` asks.
            unsafe { self.read_buffer(&mut bytes) }?;
            return Ok(bytes);
        }
        for (index, parameter) in kernel.parameters.iter().enumerate() {
            // SAFETY: by this function's contract the array has an item for each parameter, or is
            // null.
            let place = unsafe { load(self.each.wrapping_add(index)) };
            has_place(self.each)?;
            let place = place?.cast::<u8>();
            has_place(place)?;
            let start = parameter.offset as usize;
            let end = start.saturating_add(parameter.bytes as usize);
            let to = bytes.get_mut(start..end).ok_or(Code::INVALID_VALUE)?;
            // SAFETY: by this function's contract the item points to a value of the parameter's
            // size. The buffer is this function's.
            unsafe { place.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        }
        Ok(bytes)
    }

    /// Reads the form with one buffer. A shorter buffer leaves the rest 0, as far as is known.
    ///
    /// # Safety
    /// `extra` must be an array of names and values that ends with `CU_LAUNCH_PARAM_END`.
    unsafe fn read_buffer(self, bytes: &mut [u8]) -> Outcome {
        let (mut buffer, mut size) = (std::ptr::null::<u8>(), None);
        for index in (0..EXTRA_MAX).step_by(2) {
            // SAFETY: by this function's contract the array goes on until its end.
            let name = unsafe { load(self.extra.wrapping_add(index)) }?.addr();
            if name == END {
                break;
            }
            // SAFETY: by this function's contract a value comes after each name.
            let value = unsafe { load(self.extra.wrapping_add(index).wrapping_add(1)) }?;
            match name {
                BUFFER_POINTER => buffer = value.cast(),
                // SAFETY: by this function's contract the value points to the size.
                BUFFER_SIZE => size = Some(unsafe { load(value.cast::<usize>()) }?),
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        if bytes.is_empty() && (buffer.is_null() || size.is_none_or(|size| size == 0)) {
            return Ok(());
        }
        has_place(buffer)?;
        let size = size.ok_or(Code::INVALID_VALUE)?;
        let to = bytes.get_mut(..size).ok_or(LAUNCH_OUT_OF_RESOURCES)?;
        // SAFETY: by this function's contract the buffer is as long as its size says. The bytes are
        // the caller's of this function.
        unsafe { buffer.copy_to_nonoverlapping(to.as_mut_ptr(), size) };
        Ok(())
    }
}

/// `cuLaunchKernel`
///
/// # Safety
/// `parameters` must be null or point to the parameters of the kernel, and `extra` null or an array
/// that holds a buffer of them. No thread, and no other work of a device, may use the memory that
/// the kernel uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    on: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    in_context("cuLaunchKernel", |driver, device| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let shape = LaunchShape { grid, block, shared_bytes };
        let request = Request { shape, is_cooperative: false, cluster: None };
        // SAFETY: the caller promises that the arguments are those of the kernel, and that no other
        // code uses its memory.
        unsafe {
            launch(driver, device, function, on, request, Arguments { each: parameters, extra })
        }
    })
}

/// `cuLaunchCooperativeKernel`
///
/// # Safety
/// As `cuLaunchKernel`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchCooperativeKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    on: *mut c_void,
    parameters: *mut *mut c_void,
) -> c_int {
    in_context("cuLaunchCooperativeKernel", |driver, device| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let shape = LaunchShape { grid, block, shared_bytes };
        let request = Request { shape, is_cooperative: true, cluster: None };
        let arguments = Arguments { each: parameters, extra: std::ptr::null_mut() };
        // SAFETY: the caller promises that the arguments are those of the kernel, and that no other
        // code uses its memory.
        unsafe { launch(driver, device, function, on, request, arguments) }
    })
}

/// `cuLaunchKernelEx`
///
/// # Safety
/// `config` must be null or point to a configuration with as many attributes as it says. Everything
/// else as `cuLaunchKernel`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    function: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that the configuration is null or valid for reading.
    unsafe { launch_with(config, None, (function, parameters, extra)) }
}

/// `cuLaunchKernelEx` with the per-thread default stream in place of the null stream.
///
/// # Safety
/// As `cuLaunchKernelEx`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx_ptsz(
    config: *const LaunchConfig,
    function: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    let per_thread = StreamHandle::PER_THREAD;
    // SAFETY: the caller promises that the configuration is null or valid for reading.
    unsafe { launch_with(config, Some(per_thread), (function, parameters, extra)) }
}

/// Launches a kernel as a configuration says.
///
/// # Safety
/// As `cuLaunchKernelEx`.
unsafe fn launch_with(
    config: *const LaunchConfig,
    default: Option<StreamHandle>,
    (function, each, extra): (*mut c_void, *mut *mut c_void, *mut *mut c_void),
) -> c_int {
    let symbol = if default.is_some() { "cuLaunchKernelEx_ptsz" } else { "cuLaunchKernelEx" };
    in_context_after(symbol, has_place(config), |driver, device| {
        // SAFETY: by this function's contract the configuration is valid for reading, with as many
        // attributes as it says.
        let (config, request) = unsafe {
            let config = load(config)?;
            (config, requested(driver, function, &config)?)
        };
        let on = match default {
            Some(stands_in) if config.stream.is_null() => {
                std::ptr::without_provenance_mut(stands_in.as_raw() as usize)
            }
            _ => config.stream,
        };
        // SAFETY: the caller promises that the arguments are those of the kernel, and that no other
        // code uses its memory.
        unsafe { launch(driver, device, function, on, request, Arguments { each, extra }) }
    })
}

/// The request of a configuration.
///
/// # Safety
/// The configuration must have as many attributes as it says.
pub(super) unsafe fn requested(
    driver: &Driver,
    handle: *mut c_void,
    config: &LaunchConfig,
) -> Outcome<Request> {
    function(driver, handle)?;
    let LaunchConfig { grid, block, shared_bytes, count, .. } = *config;
    let shape = LaunchShape { grid, block, shared_bytes };
    let mut request = Request { shape, is_cooperative: false, cluster: None };
    if count > ATTRIBUTES_MAX {
        return Err(Code::INVALID_VALUE);
    }
    for index in 0..count as usize {
        // SAFETY: by this function's contract the array has an item of this index, or is null.
        let attribute = unsafe { load(config.attributes.wrapping_add(index)) };
        has_place(config.attributes)?;
        take(driver, &mut request, &attribute?)?;
    }
    Ok(request)
}

/// Takes an attribute into a request. Most are hints or concern other work, and change nothing here.
fn take(driver: &Driver, request: &mut Request, attribute: &LaunchAttribute) -> Outcome {
    let LaunchAttributeValue([first, second, third, ..]) = attribute.value;
    match attribute.id {
        // `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`
        2 => request.is_cooperative = first != 0,
        // `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`
        4 => request.cluster = Some([first, second, third]),
        // `CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE`
        5 if first > 2 => return Err(Code::INVALID_VALUE),
        // The events of `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT` and of
        // `CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT`
        7 | 12 => {
            let event = u64::from(second) << 32 | u64::from(first);
            check_event(driver, event)?;
        }
        0..=18 => {}
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

/// Refuses an event that does not exist. Recording one within a kernel is not implemented.
fn check_event(driver: &Driver, event: u64) -> Outcome {
    // SAFETY: `from_raw` asks for a handle that the back end can take. The number is looked up only.
    let event = unsafe { EventHandle::from_raw(event) };
    if !driver.contexts().events.contains_key(&(event.as_raw() as usize)) {
        return Err(Code::INVALID_HANDLE);
    }
    driver.refuse("an event as launch attribute of cuLaunchKernelEx")
}
