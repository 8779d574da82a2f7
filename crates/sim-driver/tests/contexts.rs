//! Contexts, streams, events and devices, as an H200 with driver 580 (CUDA 13.0) answered a probe on
//! 22 November 2026.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use pagewise_driver::*;

/// Starts the driver and makes device 0's primary context current on this thread.
fn start() -> *mut c_void {
    assert_eq!(cuInit(0), 0);
    let mut context = null_mut();
    // SAFETY: the driver writes the context to a local that outlives the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
    context
}

fn current() -> *mut c_void {
    let mut context = null_mut();
    // SAFETY: the driver writes the context to a local that outlives the call.
    assert_eq!(unsafe { cuCtxGetCurrent(&raw mut context) }, 0);
    context
}

fn create(flags: u32) -> (c_int, *mut c_void) {
    let mut context = null_mut();
    // SAFETY: the driver writes the context to a local that outlives the call.
    (unsafe { cuCtxCreate_v2(&raw mut context, flags, 0) }, context)
}

#[test]
fn a_context_that_is_created_is_current_until_it_is_destroyed() {
    let primary = start();
    let (code, context) = create(0);
    assert_eq!((code, current()), (0, context));
    assert_ne!(context, primary);
    // SAFETY: nothing of the contexts is used afterwards.
    unsafe {
        assert_eq!(cuCtxDestroy_v2(null_mut()), 1);
        assert_eq!(cuCtxDestroy_v2(primary), 201, "primary contexts are released");
        assert_eq!(cuCtxDestroy_v2(context), 0);
        assert_eq!(cuCtxDestroy_v2(context), 709);
    }
    assert_eq!(current(), primary);
    assert_eq!(cuCtxPushCurrent_v2(context), 709);
    assert_eq!(cuCtxPushCurrent_v2(null_mut()), 1);
}

#[test]
fn the_stack_of_contexts_ends_with_none() {
    let primary = start();
    assert_eq!(cuCtxPushCurrent_v2(primary), 0);
    let mut popped = null_mut();
    // SAFETY: the place is null or a local.
    unsafe {
        assert_eq!(cuCtxPopCurrent_v2(null_mut()), 0);
        assert_eq!(cuCtxPopCurrent_v2(&raw mut popped), 0);
        assert_eq!(popped, primary);
        assert_eq!(cuCtxPopCurrent_v2(&raw mut popped), 201);
    }
    assert_eq!((current(), cuCtxSynchronize()), (null_mut(), 201));
}

#[test]
fn a_context_has_one_way_to_wait_and_reports_its_flags() {
    start();
    let reported = |flags| {
        let (code, context) = create(flags);
        let mut read = u32::MAX;
        // SAFETY: the place is a local, and the context is not used afterwards.
        unsafe {
            let asked = code == 0 && cuCtxGetFlags(&raw mut read) == 0;
            assert_eq!(asked, code == 0);
            assert!(code != 0 || cuCtxDestroy_v2(context) == 0);
        }
        (code, read)
    };
    for flags in [0, 1, 2, 4, 8, 16, 32, 128] {
        assert_eq!(reported(flags), (0, flags));
    }
    assert_eq!(reported(64), (0, 32));
    for flags in [3, 5, 6, 7, 256] {
        assert_eq!(reported(flags).0, 1, "{flags}");
    }
    let mut of_primary = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuCtxGetFlags(&raw mut of_primary) }, 0);
    assert_eq!(of_primary, 8);
}

#[test]
fn a_stream_goes_with_its_context() {
    start();
    let (_, context) = create(0);
    let mut stream = null_mut();
    // SAFETY: the place is a local, and nothing of the context is used afterwards.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut stream, 0), 0);
        assert_eq!(cuCtxDestroy_v2(context), 0);
    }
    assert_eq!(cuStreamSynchronize(stream), 400);
}

#[test]
fn a_stream_has_the_priority_that_is_nearest_to_the_one_asked_for() {
    start();
    for (asked, given) in [(-99, -5), (-5, -5), (-3, -3), (0, 0), (99, 0)] {
        let (mut stream, mut priority) = (null_mut(), 7);
        // SAFETY: the places are locals, and the stream is not used afterwards.
        unsafe {
            assert_eq!(cuStreamCreateWithPriority(&raw mut stream, 1, asked), 0);
            assert_eq!(cuStreamGetPriority(stream, &raw mut priority), 0);
            assert_eq!(cuStreamDestroy_v2(stream), 0);
            assert_eq!(cuStreamGetPriority(stream, &raw mut priority), 400);
        }
        assert_eq!(priority, given);
    }
}

#[test]
fn default_streams_have_a_number_and_the_context_and_do_not_capture() {
    let primary = start();
    let ids = [0, 1, 2].map(|handle| {
        let stream = without_provenance_mut(handle);
        let (mut capturing, mut flags, mut id, mut context) = (7, 7, 0, null_mut());
        // SAFETY: the places are locals.
        unsafe {
            assert_eq!(cuStreamIsCapturing(stream, &raw mut capturing), 0);
            assert_eq!(cuStreamGetFlags(stream, &raw mut flags), 0);
            assert_eq!(cuStreamGetId(stream, &raw mut id), 0);
            assert_eq!(cuStreamGetCtx(stream, &raw mut context), 0);
        }
        assert_eq!((capturing, flags, context), (0, 0, primary));
        id
    });
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
}

#[test]
fn an_event_of_other_processes_has_no_timing() {
    start();
    for flags in 0..18 {
        let mut event = null_mut();
        // SAFETY: the place is a local.
        let code = unsafe { cuEventCreate(&raw mut event, flags) };
        assert_eq!(code == 0, [0, 1, 2, 3, 6, 7].contains(&flags), "{flags}");
        let mut handle = Blob([0; 64]);
        if code == 0 {
            // SAFETY: the place is a local, and the event is not used afterwards.
            unsafe {
                let expected = if flags & 4 == 0 { 400 } else { 0 };
                assert_eq!(cuIpcGetEventHandle(&raw mut handle, event), expected);
                assert_eq!(cuEventDestroy_v2(event), 0);
            }
        }
    }
}

#[test]
fn a_device_has_a_place_on_the_pci_and_an_id() {
    start();
    let (mut text, mut device, mut id) = ([0x7F_i8; 16], -1, [0_u8; 16]);
    // SAFETY: the places are locals with as many bytes as announced; the text ends with a NUL.
    unsafe {
        assert_eq!(cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), 5, 0), 1);
        assert_eq!(text[..6], [48, 48, 48, 48, 0, 0x7F], "cut, and refused");
        assert_eq!(cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), 13, 0), 0);
        assert_eq!(cuDeviceGetByPCIBusId(&raw mut device, text.as_ptr().cast()), 0);
        assert_eq!(cuDeviceGetByPCIBusId(&raw mut device, c"ff:1f.0".as_ptr()), 101);
        assert_eq!(cuDeviceGetByPCIBusId(&raw mut device, c"here".as_ptr()), 1);
        assert_eq!(cuDeviceGetUuid_v2(&raw mut id, 0), 0);
    }
    assert_eq!(device, 0);
    assert_ne!(id, [0; 16]);
}

#[test]
fn a_device_has_the_attributes_of_an_h200() {
    start();
    let attribute = |number| {
        let mut value = -77;
        // SAFETY: the place is a local.
        (unsafe { cuDeviceGetAttribute(&raw mut value, number, 0) }, value)
    };
    // Multiprocessors, the bytes of the L2 cache, threads of a block.
    assert_eq!([16, 38, 1].map(attribute), [(0, 132), (0, 62_914_560), (0, 1024)]);
    assert_eq!((attribute(147), attribute(148)), ((0, 0), (1, -77)));
    assert!((1..=147).all(|number| attribute(number).0 == 0));
}

#[test]
fn an_error_has_the_drivers_words() {
    let mut words = std::ptr::null();
    // SAFETY: the driver writes the text's address to a local, and the text itself is static.
    unsafe {
        assert_eq!(cuGetErrorString(700, &raw mut words), 0);
        assert_eq!(CStr::from_ptr(words), c"an illegal memory access was encountered");
        assert_eq!(cuGetErrorString(4711, &raw mut words), 1);
        assert!(words.is_null());
    }
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test passes a counter that outlives the call.
    let counter = unsafe { &*data.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_function_of_the_host_has_returned_when_its_stream_is_synchronized() {
    start();
    let counter = AtomicU32::new(0);
    let data = (&raw const counter).cast_mut().cast();
    let mut stream = null_mut();
    // SAFETY: the places are locals; the counter outlives the calls, as the stream is synchronized.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        for turn in 1..=20 {
            assert_eq!(cuLaunchHostFunc(stream, Some(count), data), 0);
            assert_eq!(cuStreamSynchronize(stream), 0);
            assert_eq!(counter.load(Ordering::SeqCst), turn);
        }
        assert_eq!(cuLaunchHostFunc(stream, None, data), 1);
        assert_eq!(cuStreamDestroy_v2(stream), 0);
        assert_eq!(cuLaunchHostFunc(stream, Some(count), data), 400);
    }
}

#[test]
fn memory_has_the_context_that_it_was_allocated_or_registered_in() {
    start();
    let mut context = null_mut();
    let mut own = vec![0_u8; 1 << 16];
    let registered = own.as_mut_ptr().cast::<c_void>();
    let (mut ptr, mut of, mut is_capable, mut flags) = (0, null_mut::<c_void>(), 7_u32, 0);
    // SAFETY: the driver writes locals of the right sizes. The memory is registered until the
    // context goes, which is before it is freed.
    unsafe {
        assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut ptr, 4096), 0);
        assert_eq!(cuMemHostRegister_v2(registered, 1 << 16, 0), 0);
        for address in [ptr, ptr + 5, registered.addr() as u64] {
            assert_eq!(cuPointerGetAttribute((&raw mut of).cast(), 1, address), 0);
            assert_eq!(of, context);
        }
        assert_eq!(cuPointerGetAttribute((&raw mut is_capable).cast(), 10, ptr), 0);
        assert_eq!(is_capable, 1);
        // As an H200 answers.
        assert_eq!(cuMemHostGetFlags(&raw mut flags, registered), 0);
        assert_eq!(flags, 2);
        assert_eq!(cuCtxDestroy_v2(context), 0);
        assert_eq!(cuPointerGetAttribute((&raw mut of).cast(), 1, registered.addr() as u64), 1);
    }
}
