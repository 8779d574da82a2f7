//! Work that fails after its call has returned: a process of its own, as the device is lost.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, channel};

use common::start;
use pagewise_driver::*;

unsafe extern "C" fn wait(receiver: *mut c_void) {
    // SAFETY: the test passes a receiver that outlives the call.
    let receiver = unsafe { &*receiver.cast::<Receiver<()>>() };
    receiver.recv().expect("the test sends");
}

#[test]
fn work_that_fails_later_is_an_error_of_every_call_after_it() {
    start();
    let (release, receiver) = channel::<()>();
    let (mut stream, mut other, mut ptr) = (null_mut(), null_mut(), 0);
    // SAFETY: the places are locals. The fill of freed memory is refused when its turn comes.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        assert_eq!(cuStreamCreate(&raw mut other, 1), 0);
        assert_eq!(cuMemAllocAsync(&raw mut ptr, 4096, other), 0);
        let data = (&raw const receiver).cast_mut().cast();
        assert_eq!(cuLaunchHostFunc(stream, Some(wait), data), 0);
        assert_eq!(cuMemsetD8Async(ptr, 1, 4096, stream), 0);
        assert_eq!(cuMemFreeAsync(ptr, other), 0);
        assert_eq!(cuStreamQuery(stream), 600);
    }
    release.send(()).expect("the function waits");
    assert_eq!(cuStreamSynchronize(stream), 700, "an illegal address");
    assert_eq!(cuCtxSynchronize(), 700);
    assert_eq!(pagewise_driver_recover(), 700);
    assert_eq!((cuCtxSynchronize(), pagewise_driver_recover()), (0, 0));
}
