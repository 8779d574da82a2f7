//! Copies and fills between memory of every kind, called as C calls them.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

use pagewise_driver::*;

/// Starts the driver with device 0's context and gives memory of the device.
fn device(bytes: usize) -> u64 {
    assert_eq!(cuInit(0), 0);
    let (mut context, mut ptr) = (null_mut(), 0);
    // SAFETY: the driver writes its answers to locals that outlive the calls.
    unsafe {
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut ptr, bytes), 0);
    }
    ptr
}

/// Bytes of the device's memory, as a copy without a stream reads them.
fn read<const BYTES: usize>(ptr: u64) -> [u8; BYTES] {
    let mut bytes = [0xEE; BYTES];
    // SAFETY: the destination is a local with as many bytes.
    assert_eq!(unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), ptr, BYTES) }, 0);
    bytes
}

fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

#[test]
fn memory_that_was_never_registered_is_copied_both_ways() {
    let ptr = device(4096);
    let (source, mut back) = (*b"pageable memory!", [0; 16]);
    // SAFETY: both locals have 16 bytes.
    unsafe {
        assert_eq!(cuMemcpyAsync(ptr, address(&raw const source), 16, null_mut()), 0);
        assert_eq!(cuMemcpy(address(&raw mut back), ptr, 16), 0);
        assert_eq!((back, read(ptr)), (source, source));
        let mut other = [0_u8; 16];
        assert_eq!(cuMemcpy(address(&raw mut other), address(&raw const source), 16), 0);
        assert_eq!(other, source);
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn a_first_copy_of_pageable_memory_takes_the_time_of_the_link_and_of_the_host() {
    const BYTES: usize = 16 << 20;
    let (ptr, mut memory) = (device(BYTES), vec![1_u8; BYTES]);
    let place = memory.as_mut_ptr().cast::<c_void>();
    let [mut begin, mut end] = [null_mut(); 2];
    let mut took_ns = |copy: &dyn Fn() -> i32| {
        let mut ms = 0.0;
        // SAFETY: the driver writes its answers to locals that outlive the calls.
        unsafe {
            assert_eq!(cuEventCreate(&raw mut begin, 0), 0);
            assert_eq!(cuEventCreate(&raw mut end, 0), 0);
            assert_eq!(cuEventRecord(begin, null_mut()), 0);
            assert_eq!(copy(), 0);
            assert_eq!(cuEventRecord(end, null_mut()), 0);
            assert_eq!(cuEventElapsedTime(&raw mut ms, begin, end), 0);
        }
        f64::from(ms) * 1e6
    };
    // SAFETY: the memory has as many bytes, as the device's has.
    let to_device = took_ns(&|| unsafe { cuMemcpyHtoD_v2(ptr, place, BYTES) });
    // SAFETY: both memories have as many bytes.
    let to_host = took_ns(&|| unsafe { cuMemcpyDtoH_v2(place, ptr, BYTES) });
    // TIMING-56, and some 25 us for the first call.
    for (took, byte_ns) in [(to_device, 0.018_04 + 0.091), (to_host, 0.018_09 + 0.067)] {
        let expected = byte_ns * BYTES as f64;
        assert!((expected..expected + 30_000.0).contains(&took), "{took} ns, not {expected}");
    }
}

#[test]
fn an_address_of_nothing_is_refused_and_not_followed() {
    let ptr = device(4096);
    let constant = "a constant of this program";
    // SAFETY: the driver refuses each of the addresses.
    unsafe {
        for wild in [8, 0xdead_0000, u64::MAX - 4096, 1 << 46] {
            assert_eq!(cuMemcpy(ptr, wild, 16), 1, "{wild:#x}");
            assert_eq!(cuMemcpy(wild, ptr, 16), 1, "{wild:#x}");
        }
        assert_eq!(cuMemcpy(address(constant.as_ptr()), ptr, 16), 1, "constants are not written");
        assert_eq!(cuMemcpy(ptr + 4090, ptr, 16), 1, "past the end");
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn elements_of_each_width_are_filled_in_rows_too() {
    let ptr = device(4096);
    // SAFETY: no other code uses the memory.
    unsafe {
        assert_eq!(cuMemsetD8_v2(ptr, 0x11, 16), 0);
        assert_eq!(cuMemsetD16_v2(ptr, 0x2233, 2), 0);
        assert_eq!(cuMemsetD32_v2(ptr + 8, 0x4455_6677, 1), 0);
        let expected = [0x33, 0x22, 0x33, 0x22, 0x11, 0x11, 0x11, 0x11, 0x77, 0x66, 0x55, 0x44];
        assert_eq!(read(ptr), expected);
        assert_eq!(cuMemsetD2D8_v2(ptr, 8, 0, 2, 2), 0);
        assert_eq!(read(ptr), [0, 0, 0x33, 0x22, 0x11, 0x11, 0x11, 0x11, 0, 0, 0x55, 0x44]);
        assert_eq!(cuMemsetD2D32Async(ptr, 4096, 1, 4, 2, null_mut()), 1, "past the end");
        assert_eq!(cuMemsetD2D8_v2(ptr, 1, 0, 2, 2), 1, "rows overlap");
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn rows_are_copied_between_the_host_and_pitched_memory() {
    device(1);
    let (mut ptr, mut pitch, mut back) = (0, 0, [0_u8; 6]);
    let source = *b"abcdefghijkl";
    // SAFETY: the places are locals, and each copy stays within them.
    unsafe {
        assert_eq!(cuMemAllocPitch_v2(&raw mut ptr, &raw mut pitch, 6, 2, 4), 0);
        assert_eq!(pitch, 512);
        let mut copy = Memcpy2D {
            source_x: 1,
            source_y: 0,
            source_kind: 1,
            source_host: source.as_ptr().cast(),
            source_device: 0,
            source_array: null_mut(),
            source_pitch: 6,
            destination_x: 0,
            destination_y: 0,
            destination_kind: 2,
            destination_host: null_mut(),
            destination_device: ptr,
            destination_array: null_mut(),
            destination_pitch: pitch,
            width: 3,
            height: 2,
        };
        assert_eq!(cuMemcpy2D_v2(&raw const copy), 0);
        assert_eq!((read(ptr), read(ptr + 512)), (*b"bcd", *b"hij"));
        (copy.source_x, copy.source_kind, copy.source_device) = (0, 4, ptr);
        (copy.source_pitch, copy.destination_kind, copy.destination_pitch) = (pitch, 1, 3);
        copy.destination_host = back.as_mut_ptr().cast();
        assert_eq!(cuMemcpy2DAsync_v2(&raw const copy, null_mut()), 0);
        assert_eq!(back, *b"bcdhij");
        copy.height = 3;
        assert_eq!(cuMemcpy2D_v2(&raw const copy), 1, "past the end");
        copy.source_kind = 3;
        assert_eq!(cuMemcpy2D_v2(&raw const copy), 801, "arrays are not implemented");
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn page_locked_memory_has_flags_and_the_devices_address() {
    let ptr = device(4096);
    let (mut pinned, mut flags, mut mapped) = (null_mut(), 0, 0);
    let plain = 0_u8;
    // SAFETY: the places are locals that outlive the calls.
    unsafe {
        assert_eq!(cuMemHostAlloc(&raw mut pinned, 4096, 5), 0);
        assert_eq!(cuMemHostGetFlags(&raw mut flags, pinned), 0);
        assert_eq!(flags, 7);
        assert_eq!(cuMemHostGetDevicePointer_v2(&raw mut mapped, pinned, 0), 0);
        assert_eq!(mapped, pinned.addr() as u64);
        for other in [without_provenance_mut::<c_void>(ptr as usize), null_mut()] {
            assert_eq!(cuMemHostGetFlags(&raw mut flags, other), 1);
            assert_eq!(cuMemHostGetDevicePointer_v2(&raw mut mapped, other, 0), 1);
        }
        assert_eq!(cuMemHostGetDevicePointer_v2(&raw mut mapped, pinned, 1), 1);
        assert_eq!(cuMemFreeHost(pinned), 0);
        let (mut base, mut size) = (0, 0);
        assert_eq!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, ptr + 5), 0);
        assert_eq!((base, size), (ptr, 4096));
        let plain = address(&raw const plain);
        assert_eq!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, plain), 500);
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn memory_in_stream_order_comes_from_the_devices_pool() {
    device(1);
    let mut ptr = 0;
    // SAFETY: the place is a local, and the memory is not used after it was freed.
    unsafe {
        assert_eq!(cuMemAllocAsync(&raw mut ptr, 4096, null_mut()), 0);
        assert_eq!(cuMemsetD8Async(ptr, 7, 4096, null_mut()), 0);
        assert_eq!(read(ptr + 4090), [7; 6]);
        assert_eq!(cuMemFreeAsync(ptr, null_mut()), 0);
    }
}
