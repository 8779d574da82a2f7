//! Nodes of any type, and calls that choose and describe, over the simulated driver.
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use common::over_the_driver;
use pagewise_cudart::*;

/// A kernel that the simulator executes: it writes a value at places.
const WRITE: &std::ffi::CStr = c"\
.version 7.0
.target sm_52
.address_size 64
.visible .entry pagewise_write(.param .u64 a, .param .u64 n, .param .u64 s, .param .u32 v, .param .u64 r) { ret; }
";

fn graph() -> *mut c_void {
    let mut graph: *mut c_void = null_mut();
    // SAFETY: the place is writable.
    assert_eq!(unsafe { cudaGraphCreate((&raw mut graph).cast(), 0) }, 0);
    graph
}

fn node<T>(kind: c_int, body: T) -> NodeParameters {
    let mut node = NodeParameters { kind, reserved: [0; 3], body: [0; 29], reserved_after: 0 };
    assert!(size_of::<T>() <= size_of_val(&node.body));
    // SAFETY: the body has room for the parameters, which are plain C data.
    unsafe { (&raw mut node.body).cast::<T>().write_unaligned(body) };
    node
}

fn add(graph: *mut c_void, mut params: NodeParameters) -> (c_int, *mut c_void, NodeParameters) {
    let mut made = null_mut();
    // SAFETY: places are writable, and the memory of the node is the test's.
    let code =
        unsafe { cudaGraphAddNode(&raw mut made, graph, null(), null(), 0, &raw mut params) };
    (code, made, params)
}

fn run(graph: *mut c_void) -> c_int {
    let mut instance: *mut c_void = null_mut();
    // SAFETY: the place is writable, and the memory of the nodes is the test's.
    unsafe {
        assert_eq!(cudaGraphInstantiate((&raw mut instance).cast(), graph, 0), 0);
        match cudaGraphLaunch(instance, null_mut()) {
            0 => cudaDeviceSynchronize(),
            code => code,
        }
    }
}

fn managed() -> *mut u8 {
    let mut memory = null_mut();
    // SAFETY: the place is writable.
    assert_eq!(unsafe { cudaMallocManaged(&raw mut memory, 4096, 1) }, 0);
    memory.cast()
}

/// `cudaMemsetParams`: the target, the pitch, the value and the size of an element, width, height.
type Fill = (*mut u8, usize, [u32; 2], usize, usize);

#[test]
fn nodes_of_any_type_do_what_their_parameters_say() {
    over_the_driver("nodes_of_any_type_do_what_their_parameters_say", || {
        let (memory, filled) = (managed(), graph());
        let fill: Fill = (memory, 0, [7, 1], 64, 1);
        let (code, made, mut params) = add(filled, node(2, fill));
        assert_eq!((code, run(filled)), (0, 0));
        // SAFETY: the memory is the test's, and the device is done.
        assert_eq!(unsafe { memory.add(63).read_volatile() }, 7);
        let row = |ptr: *mut u8| PitchedPtr { ptr: ptr.cast(), pitch: 64, xsize: 64, ysize: 1 };
        let start = Position { x: 0, y: 0, z: 0 };
        let copy = Copy3dParameters {
            from_array: null_mut(),
            from_position: start,
            from: row(memory),
            to_array: null_mut(),
            to_position: start,
            to: row(memory.wrapping_add(64)),
            extent: Extent { width: 64, height: 1, depth: 1 },
            kind: 4,
        };
        let copied = graph();
        assert_eq!(add(copied, node(1, ([0_u64; 2], copy))).0, 0);
        assert_eq!(run(copied), 0);
        // SAFETY: the memory is the test's, and the device is done.
        assert_eq!(unsafe { memory.add(127).read_volatile() }, 7);
        // SAFETY: the parameters are readable; the handles are checked.
        unsafe {
            assert_eq!(cudaGraphNodeSetParams(made, &raw mut params), 0);
            params.kind = 3;
            assert_eq!(cudaGraphNodeSetParams(made, &raw mut params), 1, "another type");
        }
        assert_eq!((add(graph(), node(5, 0_u64)).0, add(graph(), node(99, 0_u64)).0), (0, 1));
    });
}

#[test]
fn a_node_of_a_kernel_launches_a_kernel_of_a_library() {
    over_the_driver("a_node_of_a_kernel_launches_a_kernel_of_a_library", || {
        let (mut library, mut kernel, none) =
            (null_mut::<c_void>(), null_mut(), null_mut::<c_void>());
        let code = WRITE.as_ptr().cast_mut().cast();
        // SAFETY: the code is PTX, the name is a C string, and the places are writable.
        unsafe {
            let loaded =
                cudaLibraryLoadData((&raw mut library).cast(), code, none, none, 0, none, none, 0);
            assert_eq!(loaded, 0);
            let name = c"pagewise_write".as_ptr();
            assert_eq!(cudaLibraryGetKernel(&raw mut kernel, library, name), 0);
        }
        let memory = managed();
        let (mut at, mut places, mut stride) = (memory as u64, 1_u64, 64_u64);
        let (mut value, mut result) = (9_u32, 0_u64);
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut at).cast(),
            (&raw mut places).cast(),
            (&raw mut stride).cast(),
            (&raw mut value).cast(),
            (&raw mut result).cast(),
        ];
        let one = Dim3 { x: 1, y: 1, z: 1 };
        let launch = KernelNode {
            function: kernel,
            grid: one,
            block: one,
            shared_bytes: 0,
            arguments: arguments.as_mut_ptr(),
            extra: null_mut(),
        };
        let graph = graph();
        let (code, made, _) = add(graph, node(0, launch));
        assert_eq!((code, run(graph)), (0, 0));
        // SAFETY: the memory is the test's, and the device is done.
        assert_eq!(unsafe { memory.read_volatile() }, 9);
        let mut found = KernelNode { function: null_mut(), ..launch };
        // SAFETY: the place is writable.
        assert_eq!(unsafe { cudaGraphKernelNodeGetParams(made, &raw mut found) }, 98);
        assert!(found.function.is_null(), "a kernel of a library is no function of the program");
    });
}

#[test]
fn a_device_is_chosen_by_its_properties() {
    over_the_driver("a_device_is_chosen_by_its_properties", || {
        let (mut properties, mut device) = ([0_u8; 1008], -1);
        // SAFETY: the places are writable, and the structure has room for the layout.
        unsafe {
            assert_eq!(cudaGetDeviceProperties(properties.as_mut_ptr().cast(), 0), 0);
            assert_eq!(cudaChooseDevice(&raw mut device, properties.as_ptr().cast()), 0);
            assert_eq!(device, 0);
            assert_eq!(cudaChooseDevice(null_mut(), properties.as_ptr().cast()), 1);
            assert_eq!(cudaChooseDevice(&raw mut device, null()), 1);
        }
        let four = cudaCreateChannelDesc(8, 8, 8, 8, 1);
        assert_eq!((four.x, four.w, four.kind), (8, 8, 1));
        // SAFETY: the calls take no places.
        unsafe { assert_eq!((cudaProfilerStart(), cudaProfilerStop()), (0, 0)) };
    });
}

/// The answer of the H200.
fn recorded(group: &str, question: &str) -> &'static str {
    let start = format!("{group}\t{question}\t");
    let mut rows = include_str!("data/h200.tsv").lines();
    rows.find_map(|line| line.strip_prefix(&start)).expect("the question was asked")
}

#[test]
fn graphs_are_instantiated_and_elements_described_as_recorded() {
    over_the_driver("graphs_are_instantiated_and_elements_described_as_recorded", || {
        let with_empty = graph();
        assert_eq!(add(with_empty, node(5, 0_u64)).0, 0);
        for flags in [0, 1, 2, 4, 8, 16] {
            let mut instance: *mut c_void = null_mut();
            // SAFETY: the place is writable.
            let code =
                unsafe { cudaGraphInstantiate((&raw mut instance).cast(), with_empty, flags) };
            let answer = format!("{:?}", (code, cudaGetLastError()));
            assert_eq!(answer, recorded("more graphs", &format!("instantiate flags {flags}")));
        }
        for [x, y, z, w, kind] in
            [[8, 8, 8, 8, 1], [32, 0, 0, 0, 2], [1, 2, 3, 4, 99], [-1, 0, 0, 0, 3]]
        {
            let found = cudaCreateChannelDesc(x, y, z, w, kind);
            let last = cudaGetLastError();
            let answer = (found.x, found.y, found.z, found.w, found.kind, last);
            let question = format!("channel {x} {y} {z} {w} {kind}");
            assert_eq!(format!("{answer:?}"), recorded("choice", &question));
        }
    });
}
