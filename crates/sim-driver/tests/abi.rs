//! The C entry points, called as C calls them.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use pagewise_driver::{
    MemAccessDesc, MemAllocationProp, MemLocation, MemPoolProps, cuCtxGetCurrent, cuCtxSetCurrent,
    cuDeviceGet, cuDeviceGetCount, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain,
    cuDriverGetVersion, cuGetErrorName, cuGetProcAddress, cuGetProcAddress_v2, cuInit, cuMemAdvise,
    cuMemAdvise_v2, cuMemAllocManaged, cuMemCreate, cuMemDiscardAndPrefetchBatchAsync,
    cuMemDiscardBatchAsync, cuMemFree_v2, cuMemGetAllocationPropertiesFromHandle, cuMemPoolCreate,
    cuMemPoolDestroy, cuMemPoolGetAccess, cuMemPoolSetAccess, cuMemPrefetchAsync,
    cuMemPrefetchAsync_v2, cuMemPrefetchBatchAsync, cuMemRangeGetAttribute, cuMemRelease,
    cuMemcpyHtoDAsync_v2, cuPointerGetAttribute, cuPointerGetAttributes, cuStreamCreate,
    cuStreamSynchronize,
};

/// Starts the driver and makes device 0's context current on this thread.
fn start() -> *mut c_void {
    assert_eq!(cuInit(0), 0);
    let mut context = null_mut();
    // SAFETY: the driver writes the context to a local that outlives the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
    context
}

fn managed(bytes: usize) -> u64 {
    let mut ptr = 0;
    // SAFETY: the driver writes the address to a local that outlives the call.
    assert_eq!(unsafe { cuMemAllocManaged(&raw mut ptr, bytes, 1) }, 0);
    ptr
}

#[test]
fn a_program_allocates_advises_prefetches_asks_and_frees() {
    start();
    let (mut version, mut count, mut device) = (0, 0, -1);
    // SAFETY: the driver writes its answers to locals that outlive the calls.
    unsafe {
        assert_eq!(cuDriverGetVersion(&raw mut version), 0);
        assert_eq!(cuDeviceGetCount(&raw mut count), 0);
        assert_eq!(cuDeviceGet(&raw mut device, 0), 0);
        assert_eq!(cuDeviceGet(&raw mut device, 1), 101);
    }
    assert_eq!((version, count, device), (13000, 1, 0));
    let bytes = 2 << 20;
    let ptr = managed(bytes);
    assert_eq!(cuMemAdvise(ptr, bytes, 1, 0), 0);
    assert_eq!(cuMemPrefetchAsync(ptr, bytes, 0, null_mut()), 0);
    let (mut read_mostly, mut last) = (0, 0);
    let mut by = [0; 2];
    let host = MemLocation { kind: 2, id: 0 };
    assert_eq!(cuMemAdvise_v2(ptr, bytes, 5, host), 0);
    assert_eq!(cuMemPrefetchAsync_v2(ptr, bytes, host, 0, null_mut()), 0);
    // SAFETY: the driver writes as many bytes as it is told, which are the sizes of the locals.
    unsafe {
        assert_eq!(cuMemRangeGetAttribute(&raw mut read_mostly, 4, 1, ptr, bytes), 0);
        assert_eq!(cuMemRangeGetAttribute(&raw mut last, 4, 4, ptr, bytes), 0);
        assert_eq!(cuMemRangeGetAttribute(by.as_mut_ptr(), 8, 3, ptr, bytes), 0);
        assert_eq!(cuMemRangeGetAttribute(&raw mut last, 8, 4, ptr, bytes), 1);
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
    assert_eq!((read_mostly, last, by), (1, -1, [-1, -2]));
}

/// As an H200 with driver 580.159.04 answers.
#[test]
fn without_a_context_only_a_stream_of_ones_own_serves() {
    let context = start();
    let (mut own, mut ptr) = (null_mut(), managed(4096));
    // SAFETY: the driver writes the handle to a local that outlives the call.
    assert_eq!(unsafe { cuStreamCreate(&raw mut own, 1) }, 0);
    let (null, legacy, per_thread) =
        (null_mut(), without_provenance_mut(1), without_provenance_mut(2));
    let (mut bytes, mut host, mut start) = (4096, MemLocation { kind: 2, id: 0 }, 0);
    let mut codes = |on| {
        let (ptrs, bytes) = (&raw mut ptr, &raw mut bytes);
        let (to, starts) = (&raw mut host, &raw mut start);
        // SAFETY: each array has one item and outlives the call, and the test does not read the
        // contents that a call discards.
        let batches = unsafe {
            [
                cuMemPrefetchBatchAsync(ptrs, bytes, 1, to, starts, 1, 0, on),
                cuMemDiscardBatchAsync(ptrs, bytes, 1, 0, on),
                cuMemDiscardAndPrefetchBatchAsync(ptrs, bytes, 1, to, starts, 1, 0, on),
            ]
        };
        // SAFETY: the range and the stream are live while the calls run.
        let others = unsafe {
            [
                cuMemPrefetchAsync(*ptrs, 4096, -1, on),
                cuMemPrefetchAsync_v2(*ptrs, 4096, *to, 0, on),
                cuStreamSynchronize(on),
            ]
        };
        (batches, others)
    };
    assert_eq!(cuCtxSetCurrent(null_mut()), 0);
    assert_eq!(codes(null), ([1; 3], [201; 3]));
    assert_eq!(codes(legacy), ([1; 3], [201; 3]));
    assert_eq!(codes(per_thread), ([201; 3], [201; 3]));
    assert_eq!(codes(own), ([0; 3], [0; 3]));
    let mut value = 0;
    // SAFETY: the driver writes 4 bytes, as it is told, to a local of 4.
    assert_eq!(unsafe { cuMemRangeGetAttribute(&raw mut value, 4, 1, ptr, 4096) }, 201);
    assert_eq!((cuMemAdvise(ptr, 4096, 1, -1), cuMemAdvise_v2(ptr, 4096, 1, host)), (201, 201));
    // SAFETY: the memory is live, and the test does not use it again.
    assert_eq!(unsafe { cuMemFree_v2(ptr) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
}

#[test]
fn null_results_and_wrong_arguments_are_invalid_values() {
    start();
    // SAFETY: the functions accept null for a result and refuse it, which is the claim.
    unsafe {
        assert_eq!(cuMemAllocManaged(null_mut(), 4096, 1), 1);
        assert_eq!(cuDriverGetVersion(null_mut()), 1);
        assert_eq!(cuGetErrorName(1, null_mut()), 1);
        assert_eq!(cuMemRangeGetAttribute(null_mut(), 4, 1, 0, 0), 1);
        assert_eq!(cuGetProcAddress_v2(null(), null_mut(), 12000, 0, null_mut()), 1);
    }
    assert_eq!(cuInit(1), 1);
    assert_eq!(cuMemAdvise(0, 4096, 1, 0), 1);
}

#[test]
fn memory_needs_a_context_and_a_context_is_one_threads_alone() {
    let context = start();
    let elsewhere = context.addr();
    std::thread::spawn(move || {
        let (mut ptr, mut current) = (0, null_mut());
        // SAFETY: the driver writes its answers to locals that outlive the calls.
        unsafe {
            assert_eq!(cuMemAllocManaged(&raw mut ptr, 4096, 1), 201);
            assert_eq!(cuCtxGetCurrent(&raw mut current), 0);
            assert!(current.is_null());
        }
        assert_eq!(cuCtxSetCurrent(elsewhere as *mut c_void), 0);
        let ptr = managed(4096);
        // SAFETY: the memory is live, and the test does not use it again.
        assert_eq!(unsafe { cuMemFree_v2(ptr) }, 0);
    })
    .join()
    .expect("no assertion fails");
    assert_eq!(cuCtxSetCurrent(0x123 as *mut c_void), 201, "no context");
    assert_eq!(cuDevicePrimaryCtxRelease_v2(7), 101);
}

#[test]
fn an_error_has_the_drivers_name() {
    let mut name = null();
    // SAFETY: the driver writes the text's address to a local that outlives the call, and the text
    // itself is static.
    unsafe {
        assert_eq!(cuGetErrorName(801, &raw mut name), 0);
        assert_eq!(CStr::from_ptr(name), c"CUDA_ERROR_NOT_SUPPORTED");
        assert_eq!(cuGetErrorName(-5, &raw mut name), 1);
    }
}

fn lookup(name: &CStr, version: c_int) -> (c_int, *mut c_void, c_int) {
    let (mut function, mut status) = (null_mut(), -1);
    // SAFETY: the driver reads the name up to its NUL, and writes its answers to locals that
    // outlive the call.
    let code = unsafe {
        cuGetProcAddress_v2(name.as_ptr(), &raw mut function, version, 0, &raw mut status)
    };
    (code, function, status)
}

#[test]
fn one_name_gives_the_form_of_the_version_asked_for() {
    let (_, old, status) = lookup(c"cuMemAdvise", 12010);
    let (_, new, _) = lookup(c"cuMemAdvise", 13000);
    assert_eq!(status, 0);
    assert_eq!(old, cuMemAdvise as *mut c_void);
    assert_eq!(new, cuMemAdvise_v2 as *mut c_void);
}

#[test]
fn what_is_missing_is_a_success_without_a_function() {
    assert_eq!(lookup(c"cuMemAdvise", 7000), (0, null_mut(), 2));
    assert_eq!(lookup(c"cuNoSuchFunction", 13000), (0, null_mut(), 1));
    assert_eq!(lookup(c"cuMemAdvise", 13010).0, 1, "newer than the driver");
}

#[test]
fn an_ordinal_that_is_no_device_is_refused_whatever_its_sign() {
    start();
    for ordinal in [-1, 1, c_int::MIN, c_int::MAX] {
        let mut context = null_mut();
        // SAFETY: the driver writes the context, if any, to a local that outlives the call.
        assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, ordinal) }, 101);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(ordinal), 101);
        assert!(context.is_null());
    }
}

#[test]
fn a_batch_that_no_memory_holds_is_out_of_memory_before_it_is_read() {
    start();
    let (ptr, bytes, host, first) = (managed(4096), 4096, MemLocation { kind: 2, id: 0 }, 0);
    let per_thread = without_provenance_mut(2);
    for count in [1 << 33, usize::MAX] {
        // SAFETY: the driver refuses the count before it reads an item of the arrays.
        let codes = unsafe {
            let (ptrs, bytes) = (&raw const ptr, &raw const bytes);
            let (to, starts) = (&raw const host, &raw const first);
            [
                cuMemPrefetchBatchAsync(ptrs, bytes, count, to, starts, 1, 0, per_thread),
                cuMemPrefetchBatchAsync(ptrs, bytes, 1, to, starts, count, 0, per_thread),
                cuMemDiscardBatchAsync(ptrs, bytes, count, 0, per_thread),
            ]
        };
        assert_eq!(codes, [2; 3]);
    }
    // SAFETY: the memory is live, and the test does not use it again.
    assert_eq!(unsafe { cuMemFree_v2(ptr) }, 0);
}

#[test]
fn access_is_set_for_all_locations_or_for_none() {
    start();
    let device = MemLocation { kind: 1, id: 0 };
    let host = MemLocation { kind: 2, id: 0 };
    let props = MemPoolProps {
        allocation_type: 2,
        handle_types: 0,
        location: device,
        win32_security_attributes: null_mut(),
        max_bytes: 0,
        reserved: [0; 56],
    };
    let (mut pool, mut flags) = (null_mut(), -1);
    let good = MemAccessDesc { location: host, flags: 3 };
    let wrong = MemAccessDesc { location: MemLocation { kind: 1, id: 99 }, flags: 3 };
    // SAFETY: the driver reads its arguments from locals and writes its answers to locals, all of
    // which outlive the calls.
    unsafe {
        assert_eq!(cuMemPoolCreate(&raw mut pool, &raw const props), 0);
        assert_eq!(cuMemPoolSetAccess(pool, [good, wrong].as_ptr(), 2), 101);
        assert_eq!(cuMemPoolGetAccess(&raw mut flags, pool, &raw const host), 0);
        assert_eq!(flags, 0, "nothing was given");
        assert_eq!(cuMemPoolSetAccess(pool, [good, good].as_ptr(), 2), 0);
        assert_eq!(cuMemPoolGetAccess(&raw mut flags, pool, &raw const host), 0);
        assert_eq!(flags, 3);
        assert_eq!(cuMemPoolDestroy(pool), 0);
    }
}

#[test]
fn an_attribute_is_written_in_its_own_size_by_both_forms() {
    start();
    let ptr = managed(4096);
    // Attributes that the simulator does not know have a size, too.
    for (mut attribute, bytes) in
        [(2, 4), (7, 8), (8, 4), (9, 4), (12, 8), (13, 4), (6, 4), (16, 4)]
    {
        let mut written = [0xA5_u8; 16];
        let mut place = written.as_mut_ptr().cast::<c_void>();
        // SAFETY: each array has one item, and the place that it names has room for the longest
        // attribute.
        let code = unsafe { cuPointerGetAttributes(1, &raw mut attribute, &raw mut place, ptr) };
        assert_eq!(code, 0);
        assert_eq!(written.iter().rposition(|byte| *byte != 0xA5), Some(bytes - 1), "{attribute}");
        let mut single = [0xA5_u8; 16];
        // SAFETY: the place has room for the longest attribute.
        let code = unsafe { cuPointerGetAttribute(single.as_mut_ptr().cast(), attribute, ptr) };
        assert!(code != 0 || single == written, "attribute {attribute}");
    }
    // SAFETY: the memory is live, and the test does not use it again.
    assert_eq!(unsafe { cuMemFree_v2(ptr) }, 0);
}

#[test]
fn a_wrong_size_is_refused_before_the_callers_memory_is_read() {
    start();
    let (ptr, byte) = (managed(4096), 7_u8);
    // SAFETY: the driver refuses the device's range, which is too long, before it reads the host's.
    let code = unsafe {
        cuMemcpyHtoDAsync_v2(ptr, (&raw const byte).cast(), 1 << 40, without_provenance_mut(2))
    };
    assert_eq!(code, 1);
    // SAFETY: the memory is live, and the test does not use it again.
    assert_eq!(unsafe { cuMemFree_v2(ptr) }, 0);
}

#[test]
fn the_first_look_up_reports_what_is_missing_as_an_error() {
    let mut function = null_mut();
    // SAFETY: the driver reads the name up to its NUL, and writes the function to a local that
    // outlives the call.
    unsafe {
        let name = c"cuNoSuchFunction".as_ptr();
        assert_eq!(cuGetProcAddress(name, &raw mut function, 13000, 0), 500);
        assert_eq!(cuGetProcAddress(c"cuInit".as_ptr(), &raw mut function, 13000, 0), 0);
    }
    assert_eq!(function, cuInit as *mut c_void);
    assert_eq!(lookup(c"cuGetProcAddress", 11030).1, cuGetProcAddress as *mut c_void);
}

#[test]
fn the_null_stream_of_a_per_thread_form_is_the_threads_own() {
    start();
    let ask = |flags| {
        let (mut function, mut status) = (null_mut(), -1);
        let name = c"cuMemDiscardBatchAsync".as_ptr();
        // SAFETY: the driver reads the name up to its NUL, and writes its answers to locals that
        // outlive the call.
        let code =
            unsafe { cuGetProcAddress_v2(name, &raw mut function, 13000, flags, &raw mut status) };
        assert_eq!((code, status), (0, 0));
        function
    };
    type Discard = unsafe extern "C" fn(*const u64, *const usize, usize, u64, *mut c_void) -> c_int;
    // SAFETY: the look-up gives a form of this function, of which all have this signature.
    let [legacy, per_thread] =
        [1, 2].map(|flags| unsafe { std::mem::transmute::<*mut c_void, Discard>(ask(flags)) });
    let (ptr, bytes) = (managed(4096), 4096);
    let discard = |form: Discard| {
        // SAFETY: each array has one item and outlives the call, and the test does not read the
        // contents that the call discards.
        unsafe { form(&raw const ptr, &raw const bytes, 1, 0, null_mut()) }
    };
    assert_eq!((discard(legacy), discard(per_thread)), (1, 0), "batches refuse the legacy stream");
    assert_eq!(ask(0), ask(1));
    // SAFETY: the memory is live, and the test does not use it again.
    assert_eq!(unsafe { cuMemFree_v2(ptr) }, 0);
}

#[test]
fn a_function_that_is_not_implemented_is_found_and_refuses() {
    start();
    let (code, function, status) = lookup(c"cuTexRefCreate", 10000);
    assert_eq!((code, status), (0, 0));
    // SAFETY: the look-up gives a function of this signature.
    let create = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut *mut c_void) -> c_int>(
            function,
        )
    };
    let mut texture = null_mut();
    // SAFETY: the place is a local that outlives the call.
    assert_eq!(unsafe { create(&raw mut texture) }, 801);
    assert!(texture.is_null(), "a refused call changes nothing");
}

#[test]
fn physical_memory_says_what_it_was_made_as() {
    start();
    let made = |handle_types: c_int, compression: u8| MemAllocationProp {
        allocation_type: 1,
        handle_types,
        location: MemLocation { kind: 1, id: 0 },
        win32_handle_meta_data: null_mut(),
        alloc_flags: [compression, 0, 0, 0, 0, 0, 0, 0],
    };
    for (handle_types, compression) in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)] {
        let (props, mut said, mut memory) = (made(handle_types, compression), made(9, 9), 0);
        // SAFETY: places are null or locals that outlive the calls.
        unsafe {
            assert_eq!(cuMemCreate(&raw mut memory, 2 << 20, &raw const props, 0), 0);
            assert_eq!(cuMemGetAllocationPropertiesFromHandle(&raw mut said, memory), 0);
            assert_eq!(cuMemGetAllocationPropertiesFromHandle(null_mut(), memory), 1);
            assert_eq!(cuMemRelease(memory), 0);
        }
        assert_eq!(format!("{said:?}"), format!("{props:?}"));
        said = made(9, 9);
        // SAFETY: the place is a local that outlives the call.
        let refused = unsafe { cuMemGetAllocationPropertiesFromHandle(&raw mut said, memory) };
        assert_eq!((refused, said.handle_types), (1, 9));
    }
    // As an H200 answered: there is one compression, and none of memory of the host.
    let of_host = MemAllocationProp { location: MemLocation { kind: 3, id: 0 }, ..made(0, 1) };
    for props in [made(0, 2), made(0, 3), of_host] {
        let mut memory = 0;
        // SAFETY: the places are locals that outlive the call.
        assert_eq!(unsafe { cuMemCreate(&raw mut memory, 2 << 20, &raw const props, 0) }, 1);
        assert_eq!(memory, 0, "a refused call changes nothing");
    }
}
