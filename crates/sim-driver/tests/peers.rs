//! Memory of one device that another one accesses, as two H100s with driver 580 answered
//! (CONTRACT-103, CONTRACT-125). The driver belongs to the process: this program has one test.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::{add_one, module_of, primary, with_options};
use pagewise_driver::*;

type Context = *mut c_void;

const VARIABLE: &str = ".version 7.0\n.target sm_52\n.address_size 64\n\
    .visible .global .align 4 .u32 number = 5;\n";

fn memory_in(context: Context) -> u64 {
    assert_eq!(cuCtxSetCurrent(context), 0);
    let mut ptr = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut ptr, 4096) }, 0);
    ptr
}

fn another(device: i32) -> Context {
    let mut context = null_mut();
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuCtxCreate_v2(&raw mut context, 0, device) }, 0);
    context
}

fn enable(context: Context, peer: Context) -> i32 {
    assert_eq!(cuCtxSetCurrent(context), 0);
    cuCtxEnablePeerAccess(peer, 0)
}

fn disable(context: Context, peer: Context) -> i32 {
    assert_eq!(cuCtxSetCurrent(context), 0);
    cuCtxDisablePeerAccess(peer)
}

fn destroy(context: Context) -> i32 {
    // SAFETY: nothing uses the context and its memory any more.
    unsafe { cuCtxDestroy_v2(context) }
}

fn fill(context: Context, ptr: u64) -> i32 {
    assert_eq!(cuCtxSetCurrent(context), 0);
    // SAFETY: the memory has the byte, and nothing else uses it.
    unsafe { cuMemsetD8_v2(ptr, 1, 1) }
}

/// Access is of a device, to the memory of a context that was and will be allocated there.
fn access_is_one_way_and_to_a_contexts_memory(first: Context, second: Context) {
    let (before, own) = (memory_in(second), memory_in(first));
    assert_eq!((add_one(first, before), fill(first, before)), (700, 1));
    assert_eq!((enable(first, second), enable(first, second)), (0, 704));
    let behind = memory_in(second);
    assert_eq!((add_one(first, before), add_one(first, behind), fill(first, before)), (0, 0, 0));
    assert_eq!(add_one(second, own), 700, "access is one-way");

    let beside = another(0);
    assert_eq!(add_one(beside, before), 0, "all contexts of the device reach it");
    assert_eq!(add_one(first, memory_in(another(1))), 700, "each context has memory of its own");
    assert_eq!((enable(first, beside), add_one(first, memory_in(beside))), (217, 0));
    assert_eq!((disable(first, second), add_one(first, before)), (0, 700));
    assert_eq!(disable(first, second), 705);
}

/// A device reaches memory as long as one of its contexts has it enabled, and both contexts live.
fn access_ends_with_the_contexts(first: Context, second: Context) {
    let (beside, ptr) = (another(0), memory_in(second));
    assert_eq!((enable(beside, second), enable(first, second)), (0, 0));
    assert_eq!((disable(first, second), add_one(first, ptr)), (0, 0));
    assert_eq!((destroy(beside), add_one(first, ptr)), (0, 700));

    let peer = another(1);
    assert_eq!((enable(first, peer), destroy(peer), disable(first, peer)), (0, 0, 709));
    assert_eq!(enable(first, second), 0);
    // SAFETY: nothing uses the context and its memory any more.
    assert_eq!(unsafe { cuDevicePrimaryCtxReset_v2(1) }, 0);
    let second = primary(1);
    assert_eq!(add_one(first, memory_in(second)), 700, "it is another context");
    assert_eq!((enable(first, second), add_one(first, memory_in(second))), (0, 0));
}

/// Memory that is not of `cuMemAlloc` has other rules.
fn other_memory_is_not_reached(first: Context, second: Context) {
    assert_eq!(cuCtxSetCurrent(second), 0);
    let (mut number, mut pooled) = (0, 0);
    let (module, name) = (module_of(VARIABLE), c"number".as_ptr());
    // SAFETY: the places are locals, and the name is NUL-terminated.
    unsafe {
        assert_eq!(cuModuleGetGlobal_v2(&raw mut number, null_mut(), module, name), 0);
        assert_eq!(cuMemAllocAsync(&raw mut pooled, 4096, null_mut()), 0);
    }
    assert_eq!((add_one(first, number), add_one(first, pooled)), (700, 700));
}

#[test]
fn a_device_reaches_the_memory_of_contexts_to_which_it_enabled_access() {
    with_options(c"devices=2");
    let [first, second] = [0, 1].map(primary);
    access_is_one_way_and_to_a_contexts_memory(first, second);
    access_ends_with_the_contexts(first, second);
    other_memory_is_not_reached(first, second);
    assert_eq!(pagewise_driver_panics(), 0);
}
