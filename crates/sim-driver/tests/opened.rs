//! Memory that another process allocated on another device, as two H100s with driver 580 answered
//! (CONTRACT-126). The driver belongs to the process: this program has one test.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod common;
#[path = "processes/peer.rs"]
#[allow(dead_code, reason = "other tests count what is left over")]
mod peer;

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::ptr::null_mut;

use common::{add_one, primary, with_options};
use pagewise_driver::*;

const NAME: &str = "memory_of_another_process_is_for_the_device_that_opened_it";

/// Exports memory on the second device, until the other process ends.
fn child() {
    let mut socket = peer::socket_of_parent();
    let (mut ptr, mut blob) = (0, [0_u8; 64]);
    assert_eq!(cuCtxSetCurrent(primary(1)), 0);
    // SAFETY: the places are locals, and a handle has 64 bytes.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&raw mut ptr, 4096), 0);
        assert_eq!(cuIpcGetMemHandle((&raw mut blob).cast(), ptr), 0);
    }
    socket.write_all(&blob).expect("the other process");
    _ = socket.read(&mut blob);
}

fn open(context: *mut c_void, blob: Blob) -> (i32, u64) {
    assert_eq!(cuCtxSetCurrent(context), 0);
    let mut ptr = 0;
    // SAFETY: the place is a local.
    (unsafe { cuIpcOpenMemHandle_v2(&raw mut ptr, blob, 1) }, ptr)
}

fn fill(context: *mut c_void, ptr: u64) -> i32 {
    assert_eq!(cuCtxSetCurrent(context), 0);
    // SAFETY: the memory has the byte, and the other process does not use it.
    unsafe { cuMemsetD8_v2(ptr, 1, 1) }
}

fn device_of(ptr: u64) -> c_int {
    let mut device: c_int = -1;
    // SAFETY: the ordinal of a device is a `c_int`.
    assert_eq!(unsafe { cuPointerGetAttribute((&raw mut device).cast(), 9, ptr) }, 0);
    device
}

#[test]
fn memory_of_another_process_is_for_the_device_that_opened_it() {
    with_options(c"devices=2");
    if peer::told().is_some() {
        return child();
    }
    let (mut process, mut socket) = peer::spawn(NAME, 0);
    let mut blob = Blob([0; 64]);
    socket.read_exact(&mut blob.0).expect("a handle");
    let [first, second] = [0, 1].map(primary);

    let (code, ptr) = open(first, blob);
    assert_eq!((code, device_of(ptr)), (0, 0));
    assert_eq!((add_one(first, ptr), fill(first, ptr)), (0, 0));
    assert_eq!((add_one(second, ptr), fill(second, ptr)), (700, 1), "its device is no other");
    assert_eq!(open(first, blob), (0, ptr));
    let mut beside = null_mut();
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuCtxCreate_v2(&raw mut beside, 0, 0) }, 0);
    assert_eq!(open(beside, blob).0, 400, "one context of a device has it");

    assert_eq!(cuCtxSetCurrent(first), 0);
    assert_eq!(cuCtxDisablePeerAccess(second), 705, "nothing was enabled");
    assert_eq!((cuCtxEnablePeerAccess(second, 0), add_one(second, ptr)), (0, 700));
    let (code, other) = open(second, blob);
    assert_eq!((code, other == ptr, device_of(other)), (0, false, 1));
    assert_eq!((add_one(second, other), add_one(first, other)), (0, 700));
    // SAFETY: nothing uses the memory any more.
    let close = |ptr| unsafe { cuIpcCloseMemHandle(ptr) };
    assert_eq!([ptr, ptr, ptr, other, other].map(close), [0, 0, 1, 0, 1]);
    assert_eq!(pagewise_driver_panics(), 0);

    drop(socket);
    assert!(process.wait().expect("a process").success());
}
