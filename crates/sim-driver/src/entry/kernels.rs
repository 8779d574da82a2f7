//! Entry points for modules and kernels.
//!
//! No code of a device is run. Modules are accepted, and of their functions the *touch kernels* of
//! `pagewise-cuda`, by name: what they do is known, so launching one is an access program.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use pagewise_hal::{Backend, Code, DeviceAccess, DevicePtr, DeviceTouch, Span};

use crate::driver::{Driver, Outcome, answer, has_place, in_context, load, started, store, stream};
use crate::entry::span_is_live;

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
    in_context("cuModuleLoadData", |_, _| {
        has_place(image)?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(MODULE)) }
    })
}

/// `cuModuleUnload`
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: *mut c_void) -> c_int {
    started("cuModuleUnload", |driver| {
        check_module(module)?;
        driver.device().map(drop)
    })
}

/// Checked before the context, as in driver 580.
fn check_module(module: *mut c_void) -> Outcome {
    if module.addr() == MODULE { Ok(()) } else { Err(Code::INVALID_HANDLE) }
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
    started("cuModuleGetFunction", |driver| {
        check_module(module)?;
        driver.device()?;
        has_place(name)?;
        // SAFETY: `name` is not null, so the caller promises that it is NUL-terminated. The text is
        // used within this call only.
        let name = unsafe { CStr::from_ptr(name) };
        let index = TOUCH_KERNELS.iter().position(|(known, _)| *known == name);
        let handle = FUNCTIONS.saturating_add(index.ok_or(Code::NOT_FOUND)?);
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, std::ptr::without_provenance_mut(handle)) }
    })
}

/// `cuLaunchKernel`
///
/// # Safety
/// `parameters` must be null or point to the parameters of the kernel. No thread, and no other work
/// of a device, may use the memory that it touches.
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
    in_context("cuLaunchKernel", |driver, device| {
        let index = function.addr().checked_sub(FUNCTIONS);
        let kernel = index.and_then(|index| TOUCH_KERNELS.get(index));
        let &(_, access) = kernel.ok_or(Code::INVALID_HANDLE)?;
        // The stream first, whatever the grid is (CONTRACT-101).
        if driver.device_of_stream(stream(on))? != device {
            return Err(Code::INVALID_HANDLE);
        }
        driver.wait_for_host(stream(on));
        let flat = [grid_y, grid_z, block_y, block_z] == [1; 4];
        has_place(parameters)?;
        if !flat || block_x > 1024 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: `parameters` is not null, so the caller promises that it points to the parameters
        // of the kernel. Every touch kernel has these five, of these types.
        let [address, places, stride, value, result] = unsafe {
            [
                parameter::<u64>(parameters, 0)?,
                parameter::<u64>(parameters, 1)?,
                parameter::<u64>(parameters, 2)?,
                u64::from(parameter::<u32>(parameters, 3)?),
                parameter::<u64>(parameters, 4)?,
            ]
        };
        if places == 0 {
            return Ok(());
        }
        // The sum is added to the result's place, which has to be there before anything
        // moves.
        if matches!(access, DeviceAccess::Read) {
            check_result(driver, result)?;
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
        // SAFETY: `device_touch` asks that no other code uses the range; the caller of this
        // function promised that. The simulator refuses ranges outside of live allocations.
        let sum = answer(unsafe { driver.sim.device_touch(touch, stream(on)) })?;
        if sum == 0 { Ok(()) } else { add(driver, result, sum) }
    })
}

/// The bytes that a kernel touches: up to its last place, and of an atomic the whole word there.
/// `None` if there is no place, if they pass the end of the address space, or if that word holds
/// places after the last.
fn touched(address: u64, places: u64, stride: u64, access: DeviceAccess) -> Option<Span> {
    let last = address.checked_add(places.checked_sub(1)?.checked_mul(stride)?)?;
    let end = match access {
        DeviceAccess::AtomicAdd => (last & !3).checked_add(4)?,
        _ => last.checked_add(1)?,
    };
    let bytes = end.checked_sub(address)?;
    (stride == 0 || bytes.div_ceil(stride) == places)
        .then_some(Span::new(DevicePtr(address), bytes))
}

/// One parameter of a kernel.
///
/// # Safety
/// `parameters` must have more than `index` items, this one pointing to a `T`.
unsafe fn parameter<T: Copy>(parameters: *mut *mut c_void, index: usize) -> Outcome<T> {
    // SAFETY: by this function's contract the array has an item of this index, which is null or
    // points to a `T`, a plain number.
    unsafe { load(load(parameters.wrapping_add(index))?.cast::<T>()) }
}

/// Whether 8 aligned bytes of a live allocation are there.
fn check_result(driver: &Driver, address: u64) -> Outcome {
    let is_there = address.is_multiple_of(8) && span_is_live(driver, address, 8);
    if is_there { Ok(()) } else { Err(Code::ILLEGAL_ADDRESS) }
}

/// Adds to 8 bytes of simulated memory, which is memory of this process.
fn add(driver: &Driver, address: u64, sum: u64) -> Outcome {
    check_result(driver, address)?;
    let place = std::ptr::with_exposed_provenance_mut::<u64>(address as usize);
    // SAFETY: `place` is 8 aligned bytes of a live allocation, and a simulator's addresses are
    // those of the bytes in this process, mapped for reading and writing. The caller that launched
    // the kernel promised that no other code uses the place, nor frees it, until the launch
    // returns.
    unsafe { place.write_volatile(place.read_volatile().wrapping_add(sum)) };
    Ok(())
}
