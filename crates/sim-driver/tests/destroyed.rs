//! Memory goes with its context. The driver belongs to the process, so tests beside this one would
//! change how much memory is free: this program has one test.

use std::ptr::null_mut;

use pagewise_driver::*;

#[test]
fn memory_of_a_destroyed_context_is_free_again() {
    assert_eq!(cuInit(0), 0);
    let (mut primary, mut context) = (null_mut(), null_mut());
    let (mut ptr, mut pinned) = (0, null_mut());
    let free = || {
        let mut free = 0;
        // SAFETY: the first place is a local, and the second is null.
        assert_eq!(unsafe { cuMemGetInfo_v2(&raw mut free, null_mut()) }, 0);
        free
    };
    // SAFETY: the driver writes its answers to locals that outlive the calls, and memory of the
    // context is not used after it was destroyed.
    unsafe {
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut primary, 0), 0);
        assert_eq!(cuCtxSetCurrent(primary), 0);
        let before = free();
        assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut ptr, 64 << 20), 0);
        assert_eq!(cuMemHostAlloc(&raw mut pinned, 4096, 0), 0);
        assert!(free() < before);
        assert_eq!(cuCtxDestroy_v2(context), 0);
        assert_eq!(free(), before);
        assert_eq!(cuMemFree_v2(ptr), 1);
        assert_eq!(cuMemFreeHost(pinned), 1);
    }
}
