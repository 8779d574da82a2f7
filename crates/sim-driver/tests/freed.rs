//! A second free of the same memory is refused. The driver belongs to the process, so a test beside
//! this one could get the same address between two frees: this program has one test.

use std::ptr::null_mut;

use pagewise_driver::*;

#[test]
fn memory_that_was_freed_cannot_be_freed_again() {
    assert_eq!(cuInit(0), 0);
    let (mut context, mut ptr) = (null_mut(), 0);
    // SAFETY: the driver writes its answers to locals that outlive the calls.
    unsafe {
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
        assert_eq!(cuMemAllocManaged(&raw mut ptr, 2 << 20, 1), 0);
        assert_eq!(cuMemFree_v2(ptr), 0);
        assert_eq!(cuMemFree_v2(ptr), 1);
    }
}
