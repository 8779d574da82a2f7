//! Calls beside a capture, as driver 580 on an H200 answered them. `data/captures.tsv` was recorded
//! there with CUDA 13.0 on 23 November 2026: which streams captured and how, the call, its answer,
//! the state of the capture after it, the answer of the capture's end, and the types of the nodes.
//!
//! A capture in global mode refuses calls of all threads: this program has one test.

use std::ffi::{c_int, c_void};
use std::fmt::Display;
use std::ptr::{null, null_mut, without_provenance_mut};

use pagewise_driver::*;

/// The memory, streams and events that calls use.
struct Bench {
    device: [u64; 2],
    managed: u64,
    pinned: *mut c_void,
    pool: *mut c_void,
    other: *mut c_void,
    blocking: *mut c_void,
    /// Streams that one call may draw into a capture.
    forked: [*mut c_void; 2],
    recorded: *mut c_void,
    /// Memory that calls may free.
    spare: [u64; 2],
    spare_pinned: *mut c_void,
    pageable: [u8; 64],
    page: Box<[u8; 4096]>,
}

const BYTES: usize = 1 << 16;

unsafe extern "C" fn nothing(_: *mut c_void) {}
unsafe extern "C" fn no_callback(_: *mut c_void, _: c_int, _: *mut c_void) {}

fn stream(flags: u32) -> *mut c_void {
    let mut made = null_mut();
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    assert_eq!(unsafe { cuStreamCreate(&raw mut made, flags) }, 0);
    made
}

fn event() -> *mut c_void {
    let mut made = null_mut();
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    assert_eq!(unsafe { cuEventCreate(&raw mut made, 0) }, 0);
    made
}

fn place(kind: c_int, id: c_int) -> MemLocation {
    MemLocation { kind, id }
}

impl Bench {
    fn new() -> Self {
        let (mut device, mut managed, mut pinned) = ([0; 2], 0, null_mut());
        let mut pool = null_mut();
        // SAFETY: places are locals that outlive the call, and handles may be any numbers.
        unsafe {
            for ptr in &mut device {
                assert_eq!(cuMemAlloc_v2(ptr, BYTES), 0);
            }
            assert_eq!(cuMemAllocManaged(&raw mut managed, BYTES, 1), 0);
            assert_eq!(cuMemAllocHost_v2(&raw mut pinned, BYTES), 0);
            assert_eq!(cuDeviceGetDefaultMemPool(&raw mut pool, 0), 0);
        }
        let (other, blocking) = (stream(1), stream(0));
        let forked = [stream(1), stream(0)];
        let recorded = event();
        let (spare, spare_pinned) = ([0; 2], null_mut());
        let (pageable, page) = ([0; 64], Box::new([0; 4096]));
        Self {
            device,
            managed,
            pinned,
            pool,
            other,
            blocking,
            forked,
            recorded,
            spare,
            spare_pinned,
            pageable,
            page,
        }
    }

    /// Prepares a row: new streams to fork to, an event that was recorded, and memory to free.
    fn renew(&mut self) {
        self.forked = [stream(1), stream(0)];
        assert_eq!(cuEventRecord(self.recorded, self.other), 0);
        // SAFETY: places are locals that outlive the call, and handles may be any numbers.
        unsafe {
            assert_eq!(cuMemAlloc_v2(&raw mut self.spare[0], BYTES), 0);
            assert_eq!(cuMemAllocManaged(&raw mut self.spare[1], BYTES, 1), 0);
            assert_eq!(cuMemAllocHost_v2(&raw mut self.spare_pinned, BYTES), 0);
        }
    }

    /// Makes a call of the table. `None` for a name that is not known.
    fn call(&mut self, name: &str, on: *mut c_void) -> Option<String> {
        let said = self.memory(name).or_else(|| self.wait(name, on));
        said.map(|code| code.to_string())
            .or_else(|| self.submit(name, on).map(|code| code.to_string()))
            .or_else(|| self.events(name, on))
            .or_else(|| self.describe(name, on))
    }

    /// Calls that no stream takes part in.
    fn memory(&mut self, name: &str) -> Option<c_int> {
        let [d, d2] = self.device;
        let (mut ptr, mut out, mut bytes) = (0, null_mut(), [0; 2]);
        let props = MemPoolProps {
            allocation_type: 1,
            handle_types: 0,
            location: place(1, 0),
            win32_security_attributes: null_mut(),
            max_bytes: 0,
            reserved: [0; 56],
        };
        let pageable = self.pageable.as_mut_ptr().cast::<c_void>();
        // SAFETY: places are locals that outlive the call, and handles may be any numbers.
        Some(unsafe {
            match name {
                "nothing" => 0,
                "cuMemAlloc" => cuMemAlloc_v2(&raw mut ptr, 4096),
                "cuMemAllocManaged" => cuMemAllocManaged(&raw mut ptr, 4096, 1),
                "cuMemAllocHost" => cuMemAllocHost_v2(&raw mut out, 4096),
                "cuMemFree device" => cuMemFree_v2(self.spare[0]),
                "cuMemFree managed" => cuMemFree_v2(self.spare[1]),
                "cuMemFreeHost" => cuMemFreeHost(self.spare_pinned),
                "cuMemcpyHtoD" => cuMemcpyHtoD_v2(d, pageable, 64),
                "cuMemcpyDtoH" => cuMemcpyDtoH_v2(pageable, d, 64),
                "cuMemcpyDtoD" => cuMemcpyDtoD_v2(d, d2, 64),
                "cuMemcpy" => cuMemcpy(d, d2, 64),
                "cuMemsetD8" => cuMemsetD8_v2(d, 1, 64),
                "cuStreamDestroy other" => cuStreamDestroy_v2(stream(1)),
                "cuStreamCreate" => cuStreamCreate(&raw mut out, 1),
                "cuEventCreate" => cuEventCreate(&raw mut out, 0),
                "cuMemPoolCreate" => cuMemPoolCreate(&raw mut out, &raw const props),
                "cuMemGetInfo" => cuMemGetInfo_v2(&raw mut bytes[0], &raw mut bytes[1]),
                "cuModuleLoadData" => {
                    let image = c".version 8.0\n.target sm_80\n.address_size 64\n";
                    cuModuleLoadData(&raw mut out, image.as_ptr().cast())
                }
                "cuMemHostRegister" => {
                    let page = self.page.as_mut_ptr().cast();
                    let code = cuMemHostRegister_v2(page, 4096, 0);
                    if code == 0 {
                        assert_eq!(cuMemHostUnregister(page), 0);
                    }
                    code
                }
                "cuMemAdvise" => cuMemAdvise_v2(self.managed, 4096, 3, place(1, 0)),
                "cuPointerGetAttribute" => cuPointerGetAttribute((&raw mut ptr).cast(), 2, d),
                "cuMemRangeGetAttribute" => {
                    cuMemRangeGetAttribute((&raw mut ptr).cast(), 4, 1, self.managed, 4096)
                }
                "cuMemPoolTrimTo" => cuMemPoolTrimTo(self.pool, 0),
                _ => return None,
            }
        })
    }

    /// Calls that wait, or ask whether there is anything to wait for.
    fn wait(&self, name: &str, on: *mut c_void) -> Option<c_int> {
        Some(match name {
            "cuStreamSynchronize captured" => cuStreamSynchronize(on),
            "cuStreamSynchronize other" => cuStreamSynchronize(self.other),
            "cuStreamSynchronize blocking" => cuStreamSynchronize(self.blocking),
            "cuStreamSynchronize legacy" => cuStreamSynchronize(null_mut()),
            "cuStreamQuery captured" => cuStreamQuery(on),
            "cuStreamQuery other" => cuStreamQuery(self.other),
            "cuStreamQuery legacy" => cuStreamQuery(null_mut()),
            "cuCtxSynchronize" => cuCtxSynchronize(),
            "cuEventSynchronize before" => cuEventSynchronize(self.recorded),
            "cuEventQuery before" => cuEventQuery(self.recorded),
            "cuEventRecord on other" => cuEventRecord(self.recorded, self.other),
            "cuEventRecordWithFlags external" => cuEventRecordWithFlags(event(), on, 1),
            "cuStreamWaitEvent recorded before" => cuStreamWaitEvent(on, self.recorded, 0),
            "cuStreamWaitEvent never recorded" => cuStreamWaitEvent(on, event(), 0),
            // SAFETY: places are locals that outlive the call, and handles may be any numbers.
            "cuStreamDestroy captured" => unsafe { cuStreamDestroy_v2(on) },
            _ => return None,
        })
    }

    /// Work of streams.
    fn submit(&mut self, name: &str, on: *mut c_void) -> Option<c_int> {
        let [d, d2] = self.device;
        let pageable = self.pageable.as_mut_ptr().cast::<c_void>();
        let (mut ptr, mut range, mut bytes) = (0, self.managed, 4096);
        let (mut to, mut start) = (place(1, 0), 0);
        let per_thread = without_provenance_mut(2);
        // SAFETY: places are locals that outlive the call, and handles may be any numbers.
        Some(unsafe {
            match name {
                "cuMemPrefetchAsync device" => cuMemPrefetchAsync_v2(range, 4096, to, 0, on),
                "cuMemPrefetchAsync host" => cuMemPrefetchAsync_v2(range, 4096, place(2, 0), 0, on),
                "cuMemPrefetchAsync bad" => cuMemPrefetchAsync_v2(range, 4096, place(1, 77), 0, on),
                "cuMemPrefetchBatchAsync" | "cuMemDiscardAndPrefetchBatchAsync" => {
                    let call = match name {
                        "cuMemPrefetchBatchAsync" => cuMemPrefetchBatchAsync,
                        _ => cuMemDiscardAndPrefetchBatchAsync,
                    };
                    let (ptrs, sizes) = (&raw mut range, &raw mut bytes);
                    call(ptrs, sizes, 1, &raw mut to, &raw mut start, 1, 0, on)
                }
                "cuMemDiscardBatchAsync" => {
                    cuMemDiscardBatchAsync(&raw mut range, &raw mut bytes, 1, 0, on)
                }
                "cuMemAllocAsync" => cuMemAllocAsync(&raw mut ptr, 4096, on),
                "cuMemAllocFromPoolAsync" => {
                    cuMemAllocFromPoolAsync(&raw mut ptr, 4096, self.pool, on)
                }
                "cuMemFreeAsync cuMemAlloc" => cuMemFreeAsync(d, on),
                "cuLaunchHostFunc" => cuLaunchHostFunc(on, Some(nothing), null_mut()),
                "cuLaunchHostFunc null" => cuLaunchHostFunc(on, None, null_mut()),
                "cuStreamAddCallback" => cuStreamAddCallback(on, Some(no_callback), null_mut(), 0),
                "cuMemcpyHtoDAsync pageable" => cuMemcpyHtoDAsync_v2(d, pageable, 64, on),
                "cuMemcpyHtoDAsync pinned" => cuMemcpyHtoDAsync_v2(d, self.pinned, 64, on),
                "cuMemcpyDtoHAsync pageable" => cuMemcpyDtoHAsync_v2(pageable, d, 64, on),
                "cuMemcpyAsync devices" => cuMemcpyAsync(d, d2, 64, on),
                "cuMemcpyAsync managed" => cuMemcpyAsync(d, range, 64, on),
                "cuMemcpyAsync too long" => cuMemcpyAsync(d, d2, 1 << 40, on),
                "cuMemcpyAsync nothing" => cuMemcpyAsync(d, d2, 0, on),
                "cuMemsetD8Async" => cuMemsetD8Async(d, 1, 64, on),
                "cuMemsetD8Async nothing" => cuMemsetD8Async(d, 1, 0, on),
                "cuMemsetD32Async" => cuMemsetD32Async(d, 1, 64, on),
                "cuMemsetD2D8Async" => cuMemsetD2D8Async(d, 64, 1, 16, 4, on),
                "cuMemsetD8Async wild" => cuMemsetD8Async(8, 1, 64, on),
                "cuMemsetD8Async other" => cuMemsetD8Async(d, 1, 64, self.other),
                "cuMemsetD8Async blocking" => cuMemsetD8Async(d, 1, 64, self.blocking),
                "cuMemsetD8Async legacy" => cuMemsetD8Async(d, 1, 64, null_mut()),
                "cuMemsetD8Async per-thread" => cuMemsetD8Async(d, 1, 64, per_thread),
                "cuStreamAttachMemAsync" => cuStreamAttachMemAsync(on, range, 0, 1),
                "cuStreamBeginCapture again" => cuStreamBeginCapture_v2(on, 0),
                "cuStreamBeginCapture other" => cuStreamBeginCapture_v2(self.other, 0),
                "cuStreamEndCapture other" => cuStreamEndCapture(self.other, &mut null_mut()),
                "cuStreamGetPriority" => cuStreamGetPriority(on, &mut 0),
                _ => return None,
            }
        })
    }

    /// An event that is recorded in the capture, and what is done with it then.
    fn events(&self, name: &str, on: *mut c_void) -> Option<String> {
        let then = name.strip_prefix("cuEventRecord")?;
        let made = event();
        let recorded = cuEventRecord(made, on);
        let [fork, blocking] = self.forked;
        let fill = || {
            // SAFETY: places are locals that outlive the call, and handles may be any numbers.
            unsafe { cuMemsetD8Async(self.device[1], 1, 16, fork) }
        };
        let second = match then.trim_start() {
            "" => "0".to_owned(),
            "cuEventQuery" => cuEventQuery(made).to_string(),
            "cuEventSynchronize" => cuEventSynchronize(made).to_string(),
            // SAFETY: places are locals that outlive the call, and handles may be any numbers.
            "cuEventElapsedTime" => unsafe { cuEventElapsedTime(&mut 0.0, made, made) }.to_string(),
            // SAFETY: places are locals that outlive the call, and handles may be any numbers.
            "cuEventDestroy" => unsafe { cuEventDestroy_v2(made) }.to_string(),
            "fork joined" => {
                let end = event();
                let codes = [
                    cuStreamWaitEvent(fork, made, 0),
                    fill(),
                    cuEventRecord(end, fork),
                    cuStreamWaitEvent(on, end, 0),
                ];
                tuple(codes)
            }
            "fork unjoined" => tuple([cuStreamWaitEvent(fork, made, 0), fill()]),
            "fork end on the fork" => {
                let forked = cuStreamWaitEvent(fork, made, 0);
                // SAFETY: places are locals that outlive the call, and handles may be any numbers.
                tuple([forked, unsafe { cuStreamEndCapture(fork, &mut null_mut()) }])
            }
            "wait on blocking" => cuStreamWaitEvent(blocking, made, 0).to_string(),
            "wait on legacy" => cuStreamWaitEvent(null_mut(), made, 0).to_string(),
            "wait external" => cuStreamWaitEvent(on, made, 1).to_string(),
            _ => return None,
        };
        Some(format!("({recorded}, {second})"))
    }

    /// Questions about captures.
    fn describe(&self, name: &str, on: *mut c_void) -> Option<String> {
        let on = match name.rsplit(' ').next()? {
            "other" => self.other,
            "legacy" => null_mut(),
            _ => on,
        };
        Some(match name.split(' ').next()? {
            "cuStreamIsCapturing" => status(on),
            "cuStreamGetCaptureInfo" => {
                let (mut state, mut id, mut graph) = (0, 0, null_mut());
                let (mut nodes, mut count) = (null(), 0);
                // SAFETY: places are locals that outlive the call, and handles may be any numbers.
                let code = unsafe {
                    cuStreamGetCaptureInfo_v2(
                        on,
                        &raw mut state,
                        &raw mut id,
                        &raw mut graph,
                        &raw mut nodes,
                        &raw mut count,
                    )
                };
                let (id, graph) = (truth(id != 0), truth(!graph.is_null()));
                format!("({code}, {state}, {id}, {graph}, {count})")
            }
            "cuMemAllocAsync" => {
                let mut ptr = 0;
                // SAFETY: places are locals that outlive the call, and handles may be any numbers.
                let codes =
                    unsafe { [cuMemAllocAsync(&raw mut ptr, 4096, on), cuMemFreeAsync(ptr, on)] };
                tuple(codes)
            }
            _ => return None,
        })
    }
}

fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn tuple<T: Display, const COUNT: usize>(of: [T; COUNT]) -> String {
    let items: Vec<String> = of.iter().map(T::to_string).collect();
    format!("({})", items.join(", "))
}

fn status(on: *mut c_void) -> String {
    let mut status = 0;
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    let code = unsafe { cuStreamIsCapturing(on, &raw mut status) };
    tuple([code, status])
}

/// The types of a graph's nodes, in their order.
fn types(graph: *mut c_void) -> Vec<c_int> {
    let (mut nodes, mut count) = ([null_mut(); 8], 8);
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count), 0);
        let kind = |node: &*mut c_void| {
            let mut kind = -1;
            assert_eq!(cuGraphNodeGetType(*node, &raw mut kind), 0);
            kind
        };
        nodes[..count].iter().map(kind).collect()
    }
}

/// One row: a capture, the call, and the end of the capture.
fn answer(bench: &mut Bench, mode: c_int, flags: u32, name: &str) -> String {
    let on = stream(flags);
    bench.renew();
    let begun = cuStreamBeginCapture_v2(on, mode);
    let call = bench.call(name, on).unwrap_or_else(|| panic!("no such call: {name}"));
    if name == "cuStreamDestroy captured" {
        return format!("begin {begun} call {call} capturing None end None graph False nodes []");
    }
    let (capturing, mut graph) = (status(on), null_mut());
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    let end = unsafe { cuStreamEndCapture(on, &raw mut graph) };
    let kinds = if graph.is_null() { Vec::new() } else { types(graph) };
    for on in [bench.other, bench.forked[0], bench.forked[1]] {
        if status(on) != "(0, 0)" {
            // SAFETY: places are locals that outlive the call, and handles may be any numbers.
            unsafe { cuStreamEndCapture(on, &mut null_mut()) };
        }
    }
    let graph = truth(!graph.is_null());
    format!(
        "begin {begun} call {call} capturing {capturing} end {end} graph {graph} nodes {kinds:?}"
    )
}

#[test]
fn calls_beside_a_capture_answer_as_an_h200_did() {
    assert_eq!(cuInit(0), 0);
    let mut context = null_mut();
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
    let mut bench = Bench::new();
    let mut rows = 0;
    for line in include_str!("data/captures.tsv").lines().skip(1) {
        let [streams, name, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("a row has three fields: {line}");
        };
        let mode = ["global", "thread", "relaxed"]
            .iter()
            .position(|mode| streams.starts_with(mode))
            .expect("each row names the mode");
        let flags = u32::from(streams.ends_with("non-blocking"));
        // The simulator has done its work when a call returns, so the event is not pending.
        let expected = match (streams, name) {
            ("relaxed non-blocking", "cuEventQuery before") => &expected.replace("600", "0"),
            _ => expected,
        };
        let said = answer(&mut bench, mode as c_int, flags, name);
        assert_eq!(said, expected, "{streams}: {name}");
        rows += 1;
    }
    assert_eq!(rows, 356);
}
