//! Helpers of the tests of modules and libraries.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use pagewise_driver::{
    cuCtxSetCurrent, cuCtxSynchronize, cuDevicePrimaryCtxRetain, cuInit, cuLaunchKernel,
    cuModuleGetFunction, cuModuleLoadData, pagewise_driver_recover, pagewise_driver_reset,
};

/// The program that an H200 was asked about.
#[allow(dead_code, reason = "tests of kernels have programs of their own")]
pub(crate) const PTX: &str = "\
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .global .align 8 .b8 table[64];
.visible .const .align 4 .u32 constant = 9;
.visible .entry empty() { ret; }
.visible .entry two(.param .u64 two_param_0, .param .u32 two_param_1) { ret; }
.visible .entry aligned(.param .u8 a0, .param .u64 a1, .param .align 16 .b8 a2[48], .param .u16 a3) { ret; }
.visible .entry bounded() .maxntid 64, 2, 1 { ret; }
.visible .entry required() .reqntid 32, 1, 1 { ret; }
.visible .entry shares() { .shared .align 4 .b8 buffer[1024]; .reg .u64 %r<2>; mov.u64 %r1, buffer; st.shared.u32 [%r1], 1; ret; }
";

/// Starts the driver and makes device 0's context current on this thread.
#[allow(dead_code, reason = "tests with several devices start one by its options")]
pub(crate) fn start() -> *mut c_void {
    assert_eq!(cuInit(0), 0);
    let mut context = null_mut();
    // SAFETY: the driver writes the context to a local that outlives the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
    context
}

/// A driver with these options in place of the one that the process had.
#[allow(dead_code, reason = "most tests take the default driver")]
pub(crate) fn with_options(options: &std::ffi::CStr) {
    // SAFETY: the text is NUL-terminated, and no thread of the test uses the old driver.
    assert_eq!(unsafe { pagewise_driver_reset(options.as_ptr()) }, 0);
    assert_eq!(cuInit(0), 0);
}

/// The primary context of a device.
#[allow(dead_code, reason = "most tests have one device")]
pub(crate) fn primary(device: i32) -> *mut c_void {
    let mut context = null_mut();
    // SAFETY: the driver writes the context to a local that outlives the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) }, 0);
    context
}

/// How a kernel of one thread in a context ends that adds 1 to a word; a device that it lost is given
/// back.
#[allow(dead_code, reason = "most tests have one device")]
pub(crate) fn add_one(context: *mut c_void, mut word: u64) -> i32 {
    const ADD: &str = ".version 7.0\n.target sm_52\n.address_size 64\n\
        .visible .entry add(.param .u64 word) { .reg .u64 %d; .reg .u32 %r;\n\
        ld.param.u64 %d, [word]; ld.global.u32 %r, [%d]; add.u32 %r, %r, 1;\n\
        st.global.u32 [%d], %r; ret; }\n";
    assert_eq!(cuCtxSetCurrent(context), 0);
    let add = function_of(module_of(ADD), "add");
    let (mut places, none) = ([(&raw mut word).cast()], null_mut());
    // SAFETY: the array has an item for the parameter, and the kernel stays within the word or fails.
    let launched =
        unsafe { cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, none, places.as_mut_ptr(), null_mut()) };
    assert_eq!(launched, 0);
    let ended = cuCtxSynchronize();
    assert_eq!(pagewise_driver_recover(), ended);
    ended
}

/// A module of PTX text.
#[allow(dead_code, reason = "not every test has kernels")]
pub(crate) fn module_of(text: &str) -> *mut c_void {
    let text = CString::new(text).expect("PTX has no NUL");
    let mut module = null_mut();
    // SAFETY: the text is NUL-terminated, and the driver writes the module to a local.
    assert_eq!(unsafe { cuModuleLoadData(&raw mut module, text.as_ptr().cast()) }, 0);
    module
}

/// A function of a module.
#[allow(dead_code, reason = "not every test has kernels")]
pub(crate) fn function_of(module: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).expect("a name has no NUL");
    let mut function = null_mut();
    // SAFETY: the name is NUL-terminated, and the driver writes the function to a local.
    assert_eq!(unsafe { cuModuleGetFunction(&raw mut function, module, name.as_ptr()) }, 0);
    function
}
