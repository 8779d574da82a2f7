//! Helpers of the tests of modules and libraries.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use pagewise_driver::{
    cuCtxSetCurrent, cuDevicePrimaryCtxRetain, cuInit, cuModuleGetFunction, cuModuleLoadData,
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
pub(crate) fn start() -> *mut c_void {
    assert_eq!(cuInit(0), 0);
    let mut context = null_mut();
    // SAFETY: the driver writes the context to a local that outlives the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
    context
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
