//! An access beyond a cluster, in a process of its own: no call works after it.

mod common;

use std::ptr::null_mut;

use common::{function_of, module_of, start};
use pagewise_driver::*;

const BEYOND: &str = "\
.version 8.0
.target sm_90
.address_size 64
.visible .entry beyond() .reqnctapercluster 2
{
    .shared .align 4 .b32 word;
    .reg .b32 %r<3>;
    mov.u32 %r1, 2;
    mapa.shared::cluster.u32 %r2, word, %r1;
    st.shared::cluster.u32 [%r2], %r1;
    ret;
}
";

#[test]
fn an_access_to_a_block_that_the_cluster_does_not_have_fails_the_launch() {
    start();
    let beyond = function_of(module_of(BEYOND), "beyond");
    let none = null_mut();
    // SAFETY: the kernel takes no parameters.
    let launch = |grid| unsafe {
        cuLaunchKernel(beyond, grid, 1, 1, 32, 1, 1, 0, none, null_mut(), null_mut())
    };
    assert_eq!(launch(3), 912, "the grid holds no whole number of clusters");
    assert_eq!((launch(2), cuCtxSynchronize(), launch(2)), (0, 719, 719));
}
