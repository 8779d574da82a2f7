//! Modules and kernels.
//!
//! No code of a device is run. Modules are accepted, and of their functions the *touch kernels* of
//! `pagewise-cuda`, by name: what they do is known, so launching one is an access program.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use pagewise::{Backend, Code, DeviceAccess, DevicePtr, DeviceTouch, PointerAttribute, Span};

use crate::machine::{Machine, Outcome, answer, in_context, store, stream};

/// `CUDA_ERROR_INVALID_IMAGE`
const INVALID_IMAGE: c_int = 200;

/// The handle of every module: modules have no state.
const MODULE: usize = 0x40;

/// Handles of functions are this and the index into [`TOUCH_KERNELS`].
const FUNCTIONS: usize = 0x80;

/// Names of the touch kernels, and what each does at a place; the value comes at launch.
const TOUCH_KERNELS: [(&CStr, DeviceAccess); 6] = [
    (c"pagewise_read", DeviceAccess::Read),
    (c"pagewise_write", DeviceAccess::Write(0)),
    (c"pagewise_add", DeviceAccess::AtomicAdd),
    (c"pagewise_read_fenced", DeviceAccess::Read),
    (c"pagewise_write_fenced", DeviceAccess::Write(0)),
    (c"pagewise_add_fenced", DeviceAccess::AtomicAdd),
];

/// `cuModuleLoadData`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(out: *mut *mut c_void, image: *const c_void) -> c_int {
    in_context(|_, _| {
        if image.is_null() {
            return Err(INVALID_IMAGE);
        }
        // SAFETY: the caller vouches for the place.
        unsafe { store(out, std::ptr::without_provenance_mut(MODULE)) }
    })
}

/// `cuModuleUnload`
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: *mut c_void) -> c_int {
    in_context(|_, _| if module.addr() == MODULE { Ok(()) } else { Err(Code::INVALID_HANDLE) })
}

/// `cuModuleGetFunction`
///
/// # Safety
/// `name` must be null or NUL-terminated; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    out: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> c_int {
    in_context(|_, _| {
        if module.addr() != MODULE {
            return Err(Code::INVALID_HANDLE);
        }
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and NUL-terminated by the caller's word.
        let name = unsafe { CStr::from_ptr(name) };
        let index = TOUCH_KERNELS.iter().position(|(known, _)| *known == name);
        let handle = FUNCTIONS + index.ok_or(Code::NOT_FOUND)?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(out, std::ptr::without_provenance_mut(handle)) }
    })
}

/// `cuLaunchKernel`
///
/// # Safety
/// `parameters` must be null or point to the parameters of the kernel; nobody else may use what it
/// touches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared_bytes: c_uint,
    on: *mut c_void,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    in_context(|machine, device| {
        let index = function.addr().checked_sub(FUNCTIONS);
        let kernel = index.and_then(|index| TOUCH_KERNELS.get(index));
        let &(_, access) = kernel.ok_or(Code::INVALID_HANDLE)?;
        // The stream first, whatever the grid is (probed on two H200s under driver 580).
        if machine.device_of_stream(stream(on))? != device {
            return Err(Code::INVALID_HANDLE);
        }
        let flat = [grid_y, grid_z, block_y, block_z] == [1; 4];
        if !flat || block_x > 1024 || parameters.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller vouches for the parameters, whose types are the kernels'.
        let [address, places, stride, value, result] = unsafe {
            [
                parameter::<u64>(parameters, 0),
                parameter::<u64>(parameters, 1),
                parameter::<u64>(parameters, 2),
                u64::from(parameter::<u32>(parameters, 3)),
                parameter::<u64>(parameters, 4),
            ]
        };
        if places == 0 {
            return Ok(());
        }
        let touch = DeviceTouch {
            device,
            span: touched(address, places, stride, access).ok_or(Code::ILLEGAL_ADDRESS)?,
            stride_bytes: stride,
            access: match access {
                DeviceAccess::Write(_) => DeviceAccess::Write(value as u8),
                other => other,
            },
            blocks: grid_x,
            threads: block_x,
        };
        // SAFETY: the caller's duty is the same.
        let sum = answer(unsafe { machine.sim.device_touch(touch, stream(on)) })?;
        if sum == 0 {
            return Ok(());
        }
        add(machine, result, sum)
    })
}

/// The bytes that a kernel touches: up to its last place, and of an atomic the whole word there.
/// `None` if they pass the end of the address space, or if that word holds places after the last.
fn touched(address: u64, places: u64, stride: u64, access: DeviceAccess) -> Option<Span> {
    let last = address.checked_add((places - 1).checked_mul(stride)?)?;
    let end = match access {
        DeviceAccess::AtomicAdd => (last & !3).checked_add(4)?,
        _ => last.checked_add(1)?,
    };
    let bytes = end - address;
    (stride == 0 || bytes.div_ceil(stride) == places)
        .then_some(Span::new(DevicePtr(address), bytes))
}

/// One parameter of a kernel.
///
/// # Safety
/// `parameters` must have more than `index` items, this one pointing to a `T`.
unsafe fn parameter<T: Copy>(parameters: *mut *mut c_void, index: usize) -> T {
    // SAFETY: the caller vouches for both.
    unsafe { (*parameters.add(index)).cast::<T>().read_unaligned() }
}

/// Adds to 8 bytes of simulated memory, which is memory of this process.
fn add(machine: &Machine, address: u64, sum: u64) -> Outcome {
    let allocation = |attribute| machine.sim.pointer_attribute(DevicePtr(address), attribute);
    let start = allocation(PointerAttribute::RANGE_START_ADDR);
    let bytes = allocation(PointerAttribute::RANGE_SIZE);
    let (Ok(start), Ok(bytes)) = (start, bytes) else { return Err(Code::ILLEGAL_ADDRESS) };
    if address - start + 8 > bytes || !address.is_multiple_of(8) {
        return Err(Code::ILLEGAL_ADDRESS);
    }
    let place = std::ptr::with_exposed_provenance_mut::<u64>(address as usize);
    // SAFETY: 8 aligned bytes of a live allocation, whose address is the host's; whoever launched
    // the kernel promised that nobody else uses them.
    unsafe { place.write_volatile(place.read_volatile().wrapping_add(sum)) };
    Ok(())
}
