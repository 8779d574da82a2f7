//! The module of a hostile program, and its kernels.

use std::ffi::CStr;
use std::ptr::{null_mut, without_provenance_mut};

use pagewise_driver::{cuModuleGetFunction, cuModuleGetFunctionCount, cuModuleLoadData};

use super::made::Made;

/// The touch kernels that are called.
pub(super) const IMAGE: &CStr = c".version 6.0
.target sm_60
.address_size 64
.entry pagewise_read(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d, .param .u64 e)
{ ret; }
.entry pagewise_write(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d, .param .u64 e)
{ ret; }
.entry pagewise_add_fenced(
    .param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d, .param .u64 e)
{ ret; }
";

/// The kernels of the image.
pub(super) const NAMES: [&CStr; 3] = [c"pagewise_read", c"pagewise_write", c"pagewise_add_fenced"];

/// The types of the handles in C.
pub(super) const MODULES: &str = "CUmodule";
pub(super) const FUNCTIONS: &str = "CUfunction";

/// The program has a module and its functions afterwards, if it has a context.
pub(super) fn furnish(made: &mut Made) {
    let mut count = 0;
    // SAFETY: the result goes to a local that outlives the call.
    let is_live = |&module: &u64| unsafe {
        cuModuleGetFunctionCount(&raw mut count, without_provenance_mut(module as usize)) == 0
    };
    if made.of(MODULES).iter().any(is_live) {
        return;
    }
    let (mut module, mut function) = (null_mut(), null_mut());
    // SAFETY: the result goes to a local that outlives the call, and the image is NUL-terminated.
    if unsafe { cuModuleLoadData(&raw mut module, IMAGE.as_ptr().cast()) } != 0 {
        return;
    }
    made.keep(MODULES, module.addr() as u64);
    for name in NAMES {
        // SAFETY: the result goes to a local that outlives the call, and the name is NUL-terminated.
        if unsafe { cuModuleGetFunction(&raw mut function, module, name.as_ptr()) } == 0 {
            made.keep(FUNCTIONS, function.addr() as u64);
        }
    }
}
