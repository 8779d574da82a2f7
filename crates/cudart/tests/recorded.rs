//! The runtime over the simulated driver answers as NVIDIA's did on an H200
//! (`tests/data/h200.tsv`).
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

use common::over_the_driver;
use pagewise_cudart::*;

/// The answer of the H200.
fn recorded(group: &str, question: &str) -> String {
    let table = include_str!("data/h200.tsv");
    let start = format!("{group}\t{question}\t");
    let found = table.lines().find_map(|line| line.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("no answer to {start:?}")).to_owned()
}

/// Compares an answer, which is written as Python writes it.
#[track_caller]
fn same(group: &str, question: &str, answer: impl std::fmt::Debug) {
    let answer = format!("{answer:?}").replace("true", "True").replace("false", "False");
    assert_eq!(answer, recorded(group, question), "{group}: {question}");
}

/// A call's code, and the last error after it.
fn and_last(code: c_int) -> (c_int, c_int) {
    (code, cudaGetLastError())
}

fn device_memory(bytes: usize) -> *mut c_void {
    let mut memory = null_mut();
    // SAFETY: the place is writable.
    assert_eq!(unsafe { cudaMalloc(&raw mut memory, bytes) }, 0);
    memory
}

fn managed_memory(bytes: usize) -> *mut c_void {
    let mut memory = null_mut();
    // SAFETY: the place is writable.
    assert_eq!(unsafe { cudaMallocManaged(&raw mut memory, bytes, 1) }, 0);
    memory
}

fn pinned_memory(bytes: usize) -> *mut c_void {
    let mut memory = null_mut();
    // SAFETY: the place is writable.
    assert_eq!(unsafe { cudaMallocHost(&raw mut memory, bytes) }, 0);
    memory
}

/// Numbers that release 13.0, which was recorded, lacks and release 13.5 has.
const NEWER: [c_int; 5] = [10, 227, 917, 918, 919];

#[test]
fn errors_have_nvidias_names_and_words() {
    for code in (-1..1002).filter(|code| !NEWER.contains(code)) {
        // SAFETY: the texts live for ever.
        let text = |text| unsafe { CStr::from_ptr(text) }.to_str().expect("ASCII").to_owned();
        let quoted = |text: String| match text.contains('\'') {
            true => format!("b\"{text}\""),
            false => format!("b'{text}'"),
        };
        let name = quoted(text(cudaGetErrorName(code)));
        assert_eq!(name, recorded("errors", &format!("cudaGetErrorName {code}")));
        let words = quoted(text(cudaGetErrorString(code)));
        assert_eq!(words, recorded("errors", &format!("cudaGetErrorString {code}")));
    }
}

#[test]
fn devices_are_counted_and_chosen() {
    over_the_driver("devices_are_counted_and_chosen", || {
        let mut number = 0;
        // SAFETY: places that are not null are writable.
        unsafe {
            same("device", "count", (cudaGetDeviceCount(&raw mut number), number));
            same("device", "count null", cudaGetDeviceCount(null_mut()));
            same("device", "last", cudaGetLastError());
            same("device", "last again", cudaGetLastError());
            let mut device = 9;
            same("device", "device", (cudaGetDevice(&raw mut device), device));
            same("device", "device null", cudaGetDevice(null_mut()));
            for chosen in [-1, 1, 77] {
                let code = cudaSetDevice(chosen);
                let last = (cudaPeekAtLastError(), cudaGetLastError(), cudaGetLastError());
                let question = format!("set {chosen}");
                same("device", &question, (code, last.0, last.1, last.2));
            }
            same("device", "set 0", cudaSetDevice(0));
            same("device", "init -1", cudaInitDevice(-1, 0, 0));
            same("device", "init 77", cudaInitDevice(77, 0, 0));
            same("device", "init flags 1", cudaInitDevice(0, 0, 1));
            same(
                "device",
                "properties 77",
                cudaGetDeviceProperties([0_u8; 1008].as_mut_ptr().cast(), 77),
            );
            same("device", "properties null", cudaGetDeviceProperties(null_mut(), 0));
            same("device", "attribute of 77", cudaDeviceGetAttribute(&raw mut number, 1, 77));
            same("device", "set flags 0", cudaSetDeviceFlags(0));
            same("device", "set flags 1000", cudaSetDeviceFlags(1000));
            same("device", "reset", cudaDeviceReset());
            let mut memory = null_mut();
            same("device", "after reset malloc", cudaMalloc(&raw mut memory, 16));
        }
    });
}

#[test]
fn properties_fill_the_structure_up_to_its_reserved_members() {
    over_the_driver("properties_fill_the_structure_up_to_its_reserved_members", || {
        let mut bytes = [0xee_u8; 2048];
        // SAFETY: the buffer is larger than the structure.
        let code = unsafe { cudaGetDeviceProperties(bytes.as_mut_ptr().cast(), 0) };
        let end = bytes.iter().rposition(|byte| *byte != 0xee).map_or(0, |last| last + 1);
        same("device", "properties", (code, end));
        // SAFETY: the name ends in a null byte.
        let name = unsafe { CStr::from_ptr(bytes.as_ptr().cast()) };
        assert!(name.to_string_lossy().to_lowercase().contains("h200"), "{name:?}");
        let at = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        // The compute capability, the multiprocessors and the managed memory of an H200.
        assert_eq!([at(360), at(364), at(384), at(636)], [9, 0, 132, 1]);
        let mut older = [0xee_u8; 2048];
        // SAFETY: the buffer is larger than the structure.
        assert_eq!(unsafe { cudaGetDeviceProperties_12(older.as_mut_ptr().cast(), 0) }, 0);
        let at = |at: usize| i32::from_ne_bytes(older[at..at + 4].try_into().expect("four bytes"));
        assert_eq!([at(360), at(364), at(388), at(652)], [9, 0, 132, 1], "CUDA 12's places");
    });
}

#[test]
fn memory_is_allocated_and_freed() {
    over_the_driver("memory_is_allocated_and_freed", || {
        // SAFETY: places that are not null are writable.
        unsafe {
            let none: Option<()> = None;
            let mut memory = std::ptr::dangling_mut();
            same("memory", "free null before all", cudaFree(null_mut()));
            let code = cudaMalloc(&raw mut memory, 0);
            assert!(memory.is_null());
            same("memory", "malloc 0", (code, none));
            same("memory", "malloc null", cudaMalloc(null_mut(), 16));
            same("memory", "last", cudaGetLastError());
            memory = std::ptr::dangling_mut();
            let code = cudaMalloc(&raw mut memory, 1 << 50);
            assert!(memory.is_null());
            same("memory", "malloc too much", (code, none));
            same("memory", "peek", cudaPeekAtLastError());
            assert_eq!((cudaGetLastError(), cudaGetLastError()), (2, 0));
            let memory = device_memory(1 << 16);
            same("memory", "free inside", cudaFree(memory.wrapping_byte_add(4)));
            same("memory", "free", cudaFree(memory));
            same("memory", "free twice", cudaFree(memory));
            same("memory", "free wild", cudaFree(8 as *mut c_void));
            cudaGetLastError();
            for flags in 0..5 {
                let mut memory = null_mut();
                let question = format!("managed flags {flags}");
                same("memory", &question, and_last(cudaMallocManaged(&raw mut memory, 16, flags)));
            }
            let mut memory = null_mut();
            same("memory", "managed 0", and_last(cudaMallocManaged(&raw mut memory, 0, 1)));
            for flags in [0, 1, 2, 4, 7, 8, 16] {
                let question = format!("host alloc flags {flags}");
                same("memory", &question, and_last(cudaHostAlloc(&raw mut memory, 16, flags)));
            }
            let pinned = pinned_memory(64);
            same("memory", "free of pinned", and_last(cudaFree(pinned)));
            same("memory", "free host", cudaFreeHost(pinned));
            same("memory", "free host twice", and_last(cudaFreeHost(pinned)));
            same("memory", "free host null", cudaFreeHost(null_mut()));
            let device = device_memory(64);
            same("memory", "free host of device", and_last(cudaFreeHost(device)));
        }
    });
}

#[test]
fn pointers_are_described() {
    over_the_driver("pointers_are_described", || {
        let pageable = Box::leak(Box::new([0_u8; 64])).as_mut_ptr();
        let all = [
            ("device", device_memory(64)),
            ("managed", managed_memory(64)),
            ("pinned", pinned_memory(64)),
            ("pageable", pageable.cast()),
            ("null", null_mut()),
            ("wild", 8 as *mut c_void),
        ];
        for (name, address) in all {
            let known = PointerAttributes12 {
                kind: 9,
                device: 9,
                device_pointer: null_mut(),
                host_pointer: null_mut(),
            };
            let mut found = PointerAttributes { known, reserved: [9; 8] };
            // SAFETY: the place is writable.
            let code = unsafe { cudaPointerGetAttributes(&raw mut found, address) };
            assert_eq!(found.reserved, [0; 8]);
            let PointerAttributes12 { kind, device, device_pointer, host_pointer } = found.known;
            let places = (!device_pointer.is_null(), !host_pointer.is_null());
            let equal = (device_pointer == address, host_pointer == address);
            let answer =
                (code, kind, device, places.0, places.1, equal.0, equal.1, cudaGetLastError());
            same("memory", &format!("attributes {name}"), answer);
        }
        // SAFETY: the call refuses a null place.
        let code = unsafe { cudaPointerGetAttributes(null_mut(), all[0].1) };
        same("memory", "attributes no place", and_last(code));
    });
}

#[test]
fn copies_take_every_kind_that_fits_the_memory() {
    over_the_driver("copies_take_every_kind_that_fits_the_memory", || {
        let pageable = Box::leak(Box::new([0_u8; 64])).as_mut_ptr();
        let memory = [
            ("device", device_memory(64)),
            ("managed", managed_memory(64)),
            ("pinned", pinned_memory(64)),
            ("pageable", pageable.cast()),
            ("null", null_mut()),
        ];
        let at = |name| memory.iter().find(|(known, _)| *known == name).expect("known").1;
        let pairs = [
            ("device", "device"),
            ("device", "managed"),
            ("device", "pinned"),
            ("pinned", "pinned"),
            ("managed", "managed"),
            ("device", "null"),
            ("null", "device"),
        ];
        let fitting = [
            ("device", "pageable", [0, 1, 4]),
            ("managed", "pageable", [0, 1, 4]),
            ("pageable", "device", [0, 2, 4]),
            ("pageable", "pageable", [0, 4, 4]),
        ];
        let all =
            pairs.into_iter().flat_map(|(to, from)| (-1..6).map(move |kind| (to, from, kind)));
        let fitting =
            fitting.into_iter().flat_map(|(to, from, kinds)| kinds.map(|kind| (to, from, kind)));
        for (to, from, kind) in all.chain(fitting) {
            // SAFETY: the ranges are memory, or null, which the driver refuses.
            unsafe {
                let code = cudaMemcpy(at(to), at(from), 64, kind);
                same("memory", &format!("copy {to} from {from} kind {kind}"), and_last(code));
                let code = cudaMemcpyAsync(at(to), at(from), 64, kind, null_mut());
                same("memory", &format!("copy async {to} from {from} kind {kind}"), and_last(code));
            }
        }
        // SAFETY: there are no bytes.
        unsafe {
            same("memory", "copy 0 of null", and_last(cudaMemcpy(null_mut(), null(), 0, 4)));
            same("memory", "copy 0 kind 9", and_last(cudaMemcpy(null_mut(), null(), 0, 9)));
        }
    });
}

#[test]
fn rows_are_allocated_filled_and_copied() {
    over_the_driver("rows_are_allocated_filled_and_copied", || {
        let (mut memory, mut pitch) = (null_mut(), 1);
        // SAFETY: the places are writable, and the ranges are memory.
        unsafe {
            let code = cudaMallocPitch(&raw mut memory, &raw mut pitch, 100, 10);
            same("memory", "pitch 100x10", (code, pitch));
            let mut rows = [[0_u8; 100]; 10];
            let host: *mut c_void = rows.as_mut_ptr().cast();
            assert_eq!(cudaMemset2D(memory, pitch, 0x107, 100, 10), 0);
            same("memory", "copy 2d", cudaMemcpy2D(host, 100, memory, pitch, 100, 10, 2));
            assert_eq!(rows, [[7; 100]; 10]);
            let code = cudaMemcpy2D(host, 100, memory, pitch, 101, 10, 2);
            same("memory", "copy 2d width over pitch", and_last(code));
            same("memory", "copy 2d width 0", cudaMemcpy2D(host, 100, memory, pitch, 0, 10, 2));
            let mut cube = PitchedPtr { ptr: null_mut(), pitch: 0, xsize: 0, ysize: 0 };
            let extent = Extent { width: 100, height: 4, depth: 3 };
            let code = cudaMalloc3D(&raw mut cube, extent);
            same("memory", "malloc 3d", (code, cube.pitch, cube.xsize, cube.ysize));
            same("memory", "memset 3d", cudaMemset3D(cube, 5, extent));
            let mut bytes = [0_u8; 1200];
            let start = Position { x: 0, y: 0, z: 0 };
            let to =
                PitchedPtr { ptr: bytes.as_mut_ptr().cast(), pitch: 100, xsize: 100, ysize: 4 };
            let copy = Copy3dParameters {
                from_array: null_mut(),
                from_position: start,
                from: cube,
                to_array: null_mut(),
                to_position: start,
                to,
                extent,
                kind: 2,
            };
            same("memory", "copy 3d", cudaMemcpy3D(&raw const copy));
            assert_eq!(bytes, [5; 1200]);
        }
    });
}

#[test]
fn streams_and_events_are_created_and_timed() {
    over_the_driver("streams_and_events_are_created_and_timed", || {
        let (mut stream, mut start, mut end) = (null_mut(), null_mut(), null_mut());
        // SAFETY: places that are not null are writable, and the handles are live.
        unsafe {
            same("streams", "create", cudaStreamCreate(&raw mut stream));
            same("streams", "create null", and_last(cudaStreamCreate(null_mut())));
            let mut other: *mut c_void = null_mut();
            for flags in 0..3 {
                let code = cudaStreamCreateWithFlags((&raw mut other).cast(), flags);
                same("streams", &format!("flags {flags}"), and_last(code));
            }
            assert_eq!((cudaEventCreate(&raw mut start), cudaEventCreate(&raw mut end)), (0, 0));
            let mut ms = 0_f32;
            let code = cudaEventElapsedTime((&raw mut ms).cast(), start, end);
            same("streams", "elapsed never recorded", and_last(code));
            same("streams", "query never recorded", cudaEventQuery(start));
            same("streams", "record", cudaEventRecord(start, stream));
            assert_eq!(cudaMemsetAsync(managed_memory(1 << 22), 1, 1 << 22, stream), 0);
            assert_eq!(cudaEventRecord(end, stream), 0);
            same("streams", "wait", cudaStreamWaitEvent(stream, end, 0));
            same("streams", "wait flags 4", and_last(cudaStreamWaitEvent(stream, end, 4)));
            assert_eq!(cudaEventSynchronize(end), 0);
            let code = cudaEventElapsedTime((&raw mut ms).cast(), start, end);
            same("streams", "elapsed", (code, ms > 0.0));
            same("streams", "destroy", cudaStreamDestroy(stream));
        }
    });
}

#[test]
fn launches_of_nothing_are_refused() {
    over_the_driver("launches_of_nothing_are_refused", || {
        let one = Dim3 { x: 1, y: 1, z: 1 };
        let pageable = [0_u8; 8];
        let not: *const c_void = pageable.as_ptr().cast();
        // SAFETY: there is nothing that could run.
        unsafe {
            let code = cudaLaunchKernel(null(), one, one, null_mut(), 0, null_mut());
            let answer = (code, cudaPeekAtLastError(), cudaGetLastError());
            assert_eq!(format!("{answer:?}"), "(98, 98, 98)");
            assert!(recorded("kernels", "launch null").starts_with("(98, 98, 98"));
            let code = cudaLaunchKernel(not, one, one, null_mut(), 0, null_mut());
            assert!(recorded("kernels", "launch not a function").starts_with("(400, 400, 400"));
            assert_eq!(and_last(code), (400, 400));
            let mut address = null_mut();
            let code = cudaGetSymbolAddress(&raw mut address, not);
            same("kernels", "symbol address of no symbol", and_last(code));
            same("kernels", "copy to no symbol", and_last(cudaMemcpyToSymbol(not, not, 4, 0, 1)));
        }
    });
}

#[test]
fn entry_points_of_the_driver_are_found_by_name_and_version() {
    over_the_driver("entry_points_of_the_driver_are_found_by_name_and_version", || {
        let ask = |name: &CStr, version, flags| {
            let (mut address, mut status) = (null_mut(), 9);
            let (to, found) = (&raw mut address, &raw mut status);
            // SAFETY: the name is a C string, and the places are writable.
            let code = unsafe {
                cudaGetDriverEntryPointByVersion(name.as_ptr(), to, version, flags, found)
            };
            (code, !address.is_null(), status)
        };
        let names =
            [c"cuMemAlloc", c"cuMemPrefetchAsync", c"cuNoSuch", c"", c"cuStreamGetCaptureInfo"];
        for name in names {
            for flags in 0..4 {
                let question = format!("entry point {} {flags}", name.to_str().expect("ASCII"));
                same("device", &question, ask(name, 13_000, flags));
            }
        }
        for version in [11_000, 12_000, 12_020, 13_000, 13_010, 99_000] {
            let answer = ask(c"cuMemPrefetchAsync", version, 0);
            same("device", &format!("entry point at {version}"), answer);
        }
    });
}

/// The device code that was recorded.
const PTX: &CStr = c".version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry empty() { ret; }
.visible .entry two(.param .u64 two_param_0, .param .u32 two_param_1) { ret; }
.visible .entry bounded() .maxntid 64, 2, 1 { ret; }
.visible .entry shares() { .shared .align 4 .b8 buffer[1024]; .reg .u64 %r<2>; mov.u64 %r1, buffer; \
st.shared.u32 [%r1], 1; ret; }
";

#[test]
fn kernels_of_libraries_are_described_and_their_launches_checked() {
    over_the_driver("kernels_of_libraries_are_described_and_their_launches_checked", || {
        let (mut library, mut count, none) = (null_mut::<c_void>(), 0_u32, null_mut::<c_void>());
        let code = PTX.as_ptr().cast_mut().cast();
        // SAFETY: the code is PTX, and the places are writable.
        unsafe {
            let loaded =
                cudaLibraryLoadData((&raw mut library).cast(), code, none, none, 0, none, none, 0);
            same("kernels", "library", loaded);
            let counted = cudaLibraryGetKernelCount((&raw mut count).cast(), library);
            same("kernels", "count", (counted, count));
        }
        let kernel = |name: &CStr| {
            let mut kernel = null_mut();
            // SAFETY: the place is writable, and the name is a C string.
            let code = unsafe { cudaLibraryGetKernel(&raw mut kernel, library, name.as_ptr()) };
            let question = format!("kernel {}", name.to_str().expect("ASCII"));
            same("kernels", &question, (code, !kernel.is_null(), cudaGetLastError()));
            kernel
        };
        kernel(c"missing");
        let one = Dim3 { x: 1, y: 1, z: 1 };
        let launched = |kernel, grid, block, shared| {
            // SAFETY: the kernel has no parameters.
            unsafe {
                let code = cudaLaunchKernel(kernel, grid, block, null_mut(), shared, null_mut());
                let last = (cudaPeekAtLastError(), cudaGetLastError());
                (code, last.0, last.1, cudaDeviceSynchronize(), cudaGetLastError())
            }
        };
        for name in [c"empty", c"two", c"bounded", c"shares"] {
            let (kernel, mut blocks) = (kernel(name), 0);
            let name = name.to_str().expect("ASCII");
            // SAFETY: the place is writable.
            let code = unsafe {
                cudaOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, kernel, 128, 0)
            };
            same("kernels", &format!("occupancy {name}"), (code, blocks));
            if name == "empty" {
                let (grid, wide) = (Dim3 { x: 0, ..one }, Dim3 { x: 1025, ..one });
                same("kernels", "launch grid 0", launched(kernel, grid, one, 0));
                same("kernels", "launch 1025", launched(kernel, one, wide, 0));
                same("kernels", "launch shared", launched(kernel, one, one, 49_153));
            }
            if name == "bounded" {
                let block = Dim3 { x: 256, ..one };
                same("kernels", "launch bounded", launched(kernel, one, block, 0));
            }
        }
    });
}
