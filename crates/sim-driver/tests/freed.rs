//! Memory that is gone is refused: freed memory, and variables of an unloaded module. The driver belongs
//! to the process, so a test beside this one could get the same address: this program has one test.

mod common;

use std::ptr::null_mut;

use common::{module_of, start};
use pagewise_driver::*;

const VARIABLE: &str = ".version 8.0\n.target sm_60\n.address_size 64\n\
    .visible .global .align 4 .u32 number = 5;\n.visible .entry kernel() { ret; }\n";

#[test]
fn memory_that_is_gone_is_neither_freed_again_nor_copied() {
    start();
    let mut ptr = 0;
    // SAFETY: the driver writes its answers to locals that outlive the calls.
    unsafe {
        assert_eq!(cuMemAllocManaged(&raw mut ptr, 2 << 20, 1), 0);
        assert_eq!(cuMemFree_v2(ptr), 0);
        assert_eq!(cuMemFree_v2(ptr), 1);
    }
    let module = module_of(VARIABLE);
    let (mut number, mut value) = (0, 0_u32);
    let (name, none) = (c"number".as_ptr(), null_mut());
    // SAFETY: the places are locals that outlive the calls, and the name is NUL-terminated.
    unsafe {
        assert_eq!(cuModuleGetGlobal_v2(&raw mut number, none, module, name), 0);
        assert_eq!(cuMemcpyDtoH_v2((&raw mut value).cast(), number, 4), 0);
        assert_eq!(cuModuleUnload(module), 0);
        assert_eq!(cuMemcpyDtoH_v2((&raw mut value).cast(), number, 4), 1);
    }
    assert_eq!(value, 5);
}
