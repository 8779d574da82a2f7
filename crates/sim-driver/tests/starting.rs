//! The start of the driver: a process of its own, as it is started once.

use std::ptr::null_mut;

use pagewise_driver::*;

#[test]
fn a_start_that_is_refused_starts_nothing() {
    let mut context = null_mut();
    assert_eq!(cuInit(1), 1);
    // SAFETY: the driver writes the context to a local.
    unsafe {
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 3);
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuInit(1), 1);
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
    }
}
