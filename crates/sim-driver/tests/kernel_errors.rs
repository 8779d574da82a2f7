//! A kernel that ends early, in a process of its own: no call works after it.

mod common;

use std::ptr::null_mut;

use common::{function_of, module_of, start};
use pagewise_driver::*;

const WILD: &str = "\
.version 8.0
.target sm_60
.address_size 64
.visible .entry wild(.param .u64 place)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [place];
    st.global.u32 [%rd1], 1;
    ret;
}
";

#[test]
fn a_wild_address_ends_the_kernel_and_all_later_calls_have_its_error() {
    start();
    let wild = function_of(module_of(WILD), "wild");
    let mut ptr = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuMemAllocManaged(&raw mut ptr, 4096, 1) }, 0);
    let launch = |mut place: u64| {
        let mut places = [std::ptr::from_mut(&mut place).cast()];
        let (places, none) = (places.as_mut_ptr(), null_mut());
        // SAFETY: the array has an item for the parameter, and nothing else uses the memory.
        unsafe { cuLaunchKernel(wild, 1, 1, 1, 32, 1, 1, 0, none, places, null_mut()) }
    };
    assert_eq!((launch(ptr), cuCtxSynchronize()), (0, 0));
    assert_eq!(launch(0x10), 0, "launches do not wait");
    assert_eq!(cuCtxSynchronize(), 700);
    assert_eq!(launch(ptr), 700);
    // SAFETY: the driver refuses the call.
    assert_eq!(unsafe { cuMemFree_v2(ptr) }, 700);
}
