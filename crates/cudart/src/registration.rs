//! The functions that code from nvcc calls before `main` and around each launch.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

use crate::contexts::enter;
use crate::outcome::{Error, api, write};
use crate::registry::{
    add_function, add_image, add_variable, address_of, function, load, remove_image,
};
use crate::types::{Dim3, Handle};

/// Registers an image of device code: the wrapper that nvcc lays around a fat binary. Returns a
/// handle for the other registrations, or null without an image.
pub unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *mut c_void) -> *const c_void {
    if wrapper.is_null() {
        return null();
    }
    // SAFETY: code from nvcc passes a wrapper.
    catch_unwind(|| unsafe { add_image(wrapper) }).unwrap_or(null())
}

/// Ends the registrations of an image. There is nothing to do: images are loaded when used.
pub extern "C" fn __cudaRegisterFatBinaryEnd(_image: *mut c_void) {}

/// Removes an image, with its functions and variables.
pub extern "C" fn __cudaUnregisterFatBinary(image: *mut c_void) {
    let _removed = catch_unwind(|| remove_image(image));
}

/// Registers a device function, which the program calls by the address of a function of the host.
pub unsafe extern "C" fn __cudaRegisterFunction(
    image: *mut c_void,
    host: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_extent: *mut Dim3,
    _grid_extent: *mut Dim3,
    _warp_size: *mut c_int,
) {
    if name.is_null() {
        return;
    }
    // SAFETY: code from nvcc passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let _added = catch_unwind(|| add_function(image, host, name));
}

/// Registers a device variable, which the program names by the address of a variable of the host.
pub unsafe extern "C" fn __cudaRegisterVar(
    image: *mut c_void,
    host: *mut c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    if name.is_null() {
        return;
    }
    // SAFETY: code from nvcc passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let _added = catch_unwind(|| add_variable(image, host, name, false));
}

/// Registers a managed variable. `host` is the place of a pointer, which gets the variable's
/// address when the image is loaded.
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    image: *mut c_void,
    host: *mut *mut c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    if name.is_null() || host.is_null() {
        return;
    }
    // SAFETY: code from nvcc passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let host: *const *mut c_void = host;
    let _added = catch_unwind(|| add_variable(image, host.cast(), name, true));
}

/// Loads an image, so that its managed variables have addresses. Returns 1, or 0 if it cannot be
/// loaded.
pub extern "C" fn __cudaInitModule(image: *mut c_void) -> c_char {
    let code = api(|| {
        enter()?;
        load(image)
    });
    c_char::from(code == 0)
}

/// Writes what stands for a function in `__cudaLaunchKernel`. It does not load the image.
pub unsafe extern "C" fn __cudaGetKernel(to: *mut Handle, host: *const c_void) -> c_int {
    api(|| {
        let function = function(host).ok_or(Error::INVALID_DEVICE_FUNCTION)?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, address_of(function) as Handle) }
    })
}

/// The arguments of a launch between `<<<` and `>>>`.
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
}

thread_local! {
    /// Launches with arguments that are still being evaluated, which may launch too.
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the arguments of a launch between `<<<` and `>>>` for this thread. Returns 0.
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: *mut c_void,
) -> c_uint {
    let configuration = Configuration { grid, block, shared_bytes, stream };
    let push = AssertUnwindSafe(|| CONFIGURATIONS.with_borrow_mut(|all| all.push(configuration)));
    c_uint::from(catch_unwind(push).is_err())
}

/// Gives back the newest kept arguments. Returns 52 (`cudaErrorMissingConfiguration`) if there are
/// none.
pub unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared_bytes: *mut usize,
    stream: *mut Handle,
) -> c_int {
    api(|| {
        let newest = CONFIGURATIONS.with_borrow_mut(Vec::pop);
        let newest = newest.ok_or(Error::MISSING_CONFIGURATION)?;
        // SAFETY: code from nvcc passes writable places.
        unsafe {
            write(grid, newest.grid)?;
            write(block, newest.block)?;
            write(shared_bytes, newest.shared_bytes)?;
            write(stream, newest.stream)
        }
    })
}
