//! Work behind a function of the host that has not returned. An H200 with driver 580 was asked:
//! records of events, asynchronous copies and fills, prefetches, allocations and frees in stream
//! order, launches of kernels and graphs return 0 at once, queries say 600, and synchronous calls
//! wait.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use common::{function_of, module_of, start};
use pagewise_driver::*;

/// A function of the host that returns when it is let.
#[derive(Default)]
struct Gate {
    is_open: AtomicBool,
}

unsafe extern "C" fn wait(gate: *mut c_void) {
    // SAFETY: the test passes a gate that outlives the call.
    let gate = unsafe { &*gate.cast::<Gate>() };
    while !gate.is_open.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A test that fails must not hold up the others.
struct Opener(&'static Gate);

impl std::ops::Deref for Opener {
    type Target = Gate;

    fn deref(&self) -> &Gate {
        self.0
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.open();
    }
}

impl Gate {
    /// A gate that is closed. Its memory stays, as a function may look at it at any time.
    fn closed() -> Opener {
        Opener(Box::leak(Box::default()))
    }

    /// A stream with a function that waits for this gate.
    fn stream(&self, flags: u32) -> *mut c_void {
        let mut stream = null_mut();
        // SAFETY: the place is a local. Each test opens the gate and synchronizes before it ends.
        unsafe {
            assert_eq!(cuStreamCreate(&raw mut stream, flags), 0);
            let gate = std::ptr::from_ref(self).cast_mut().cast();
            assert_eq!(cuLaunchHostFunc(stream, Some(wait), gate), 0);
        }
        stream
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// A context of a test's own, for tests that use the legacy stream or a capture: others wait for all
/// work of the primary context. It goes with this value.
struct OwnContext(*mut c_void);

impl OwnContext {
    fn start() -> Self {
        start();
        let mut context = null_mut();
        // SAFETY: the place is a local.
        assert_eq!(unsafe { cuCtxCreate_v2(&raw mut context, 0, 0) }, 0);
        Self(context)
    }
}

impl Drop for OwnContext {
    fn drop(&mut self) {
        // SAFETY: nothing of the context is used afterwards.
        let code = unsafe { cuCtxDestroy_v2(self.0) };
        assert!(code == 0 || std::thread::panicking(), "{code}");
    }
}

const BYTES: usize = 4096;

fn allocate() -> u64 {
    let mut ptr = 0;
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut ptr, BYTES) }, 0);
    ptr
}

fn event() -> *mut c_void {
    let mut event = null_mut();
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuEventCreate(&raw mut event, 0) }, 0);
    event
}

fn bytes_at(ptr: u64) -> Vec<u8> {
    let mut bytes = vec![0_u8; BYTES];
    // SAFETY: the buffer has as many bytes.
    assert_eq!(unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), ptr, BYTES) }, 0);
    bytes
}

#[test]
fn copies_and_fills_return_at_once_and_run_in_the_order_of_their_stream() {
    start();
    let (gate, first, second) = (Gate::closed(), allocate(), allocate());
    let stream = gate.stream(1);
    let mut source = vec![5_u8; BYTES];
    // SAFETY: all memory is this test's and outlives the calls.
    unsafe {
        assert_eq!(cuMemsetD8_v2(first, 1, BYTES), 0, "another stream waits for nothing");
        assert_eq!(cuMemsetD8Async(first, 3, BYTES, stream), 0);
        assert_eq!(cuMemcpyDtoDAsync_v2(second, first, BYTES, stream), 0);
        let from = source.as_ptr().cast();
        assert_eq!(cuMemcpyHtoDAsync_v2(first, from, BYTES, stream), 0);
        assert_eq!(cuStreamQuery(stream), 600);
    }
    assert_eq!(bytes_at(first), [1; BYTES], "nothing ran yet");
    source.fill(9);
    gate.open();
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(cuStreamQuery(stream), 0);
    assert_eq!(bytes_at(second), [3; BYTES]);
    assert_eq!(bytes_at(first), [5; BYTES], "the source was read at once");
}

#[test]
fn rows_of_the_host_are_read_at_once_too() {
    start();
    let (gate, to) = (Gate::closed(), allocate());
    let stream = gate.stream(1);
    let mut source: Vec<u8> = (0..64).collect();
    let copy = Memcpy2D {
        source_x: 0,
        source_y: 0,
        source_kind: 1,
        source_host: source.as_ptr().cast(),
        source_device: 0,
        source_array: null_mut(),
        source_pitch: 16,
        destination_x: 0,
        destination_y: 0,
        destination_kind: 2,
        destination_host: null_mut(),
        destination_device: to,
        destination_array: null_mut(),
        destination_pitch: 8,
        width: 8,
        height: 4,
    };
    // SAFETY: all memory is this test's and outlives the calls.
    unsafe {
        assert_eq!(cuMemsetD8_v2(to, 0, BYTES), 0);
        assert_eq!(cuMemcpy2DAsync_v2(&raw const copy, stream), 0);
    }
    source.fill(0);
    gate.open();
    assert_eq!(cuStreamSynchronize(stream), 0);
    let rows: Vec<u8> = (0..4).flat_map(|row| row * 16..row * 16 + 8).collect();
    assert_eq!(bytes_at(to)[..32], rows);
}

#[test]
fn events_behind_a_function_are_not_ready_until_it_returned() {
    start();
    let (gate, recorded, idle) = (Gate::closed(), event(), event());
    let stream = gate.stream(1);
    let mut milliseconds = 0_f32;
    // SAFETY: the places are locals.
    unsafe {
        assert_eq!(cuEventRecord(idle, null_mut()), 0);
        assert_eq!(cuEventQuery(idle), 0);
        assert_eq!(cuEventRecord(recorded, stream), 0);
        assert_eq!(cuEventQuery(recorded), 600);
        assert_eq!(cuEventElapsedTime_v2(&raw mut milliseconds, idle, recorded), 600);
        gate.open();
        assert_eq!(cuEventSynchronize(recorded), 0);
        assert_eq!(cuEventQuery(recorded), 0);
        assert_eq!(cuEventElapsedTime_v2(&raw mut milliseconds, idle, recorded), 0);
    }
}

#[test]
fn an_event_that_is_recorded_again_elsewhere_is_that_record() {
    start();
    let (gate, event) = (Gate::closed(), event());
    let stream = gate.stream(1);
    assert_eq!(cuEventRecord(event, stream), 0);
    assert_eq!(cuEventQuery(event), 600);
    let mut other = null_mut();
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuStreamCreate(&raw mut other, 1) }, 0);
    assert_eq!(cuEventRecord(event, other), 0);
    assert_eq!(cuEventQuery(event), 0);
    gate.open();
    assert_eq!(cuStreamSynchronize(stream), 0);
}

#[test]
fn a_stream_that_waits_for_such_an_event_waits_for_its_work_even_if_the_event_goes() {
    start();
    let (gate, event, ptr) = (Gate::closed(), event(), allocate());
    let stream = gate.stream(1);
    let mut other = null_mut();
    // SAFETY: all memory is this test's; the event is not used after it is destroyed.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut other, 1), 0);
        assert_eq!(cuMemsetD8Async(ptr, 1, BYTES, stream), 0);
        assert_eq!(cuEventRecord(event, stream), 0);
        assert_eq!(cuStreamQuery(other), 0);
        assert_eq!(cuStreamWaitEvent(other, event, 0), 0);
        assert_eq!(cuStreamQuery(other), 600);
        assert_eq!(cuMemsetD8Async(ptr, 2, 1, other), 0);
        assert_eq!(cuEventDestroy_v2(event), 0);
        assert_eq!(cuEventQuery(event), 400);
    }
    gate.open();
    assert_eq!(cuStreamSynchronize(other), 0);
    assert_eq!(bytes_at(ptr)[..2], [2, 1]);
}

#[test]
fn a_stream_that_is_destroyed_does_its_work_and_takes_no_more() {
    start();
    let (gate, ptr) = (Gate::closed(), allocate());
    let stream = gate.stream(1);
    // SAFETY: all memory is this test's. The handle is used to see that it is refused.
    unsafe {
        assert_eq!(cuMemsetD8_v2(ptr, 0, BYTES), 0);
        assert_eq!(cuMemsetD8Async(ptr, 7, BYTES, stream), 0);
        assert_eq!(cuStreamDestroy_v2(stream), 0);
        assert_eq!(cuStreamDestroy_v2(stream), 400);
        assert_eq!(cuStreamQuery(stream), 400);
        assert_eq!(cuMemsetD8Async(ptr, 8, BYTES, stream), 400);
        assert_eq!(cuMemPrefetchAsync(ptr, BYTES, 0, stream), 400);
    }
    gate.open();
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(bytes_at(ptr), [7; BYTES]);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_wait_for_it() {
    let _context = OwnContext::start();
    let (gate, ptr) = (Gate::closed(), allocate());
    let stream = gate.stream(0);
    let (mut other, mut apart) = (null_mut(), null_mut());
    // SAFETY: all memory is this test's and outlives the calls.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut other, 0), 0);
        assert_eq!(cuStreamCreate(&raw mut apart, 1), 0);
        assert_eq!(cuMemsetD8Async(ptr, 1, BYTES, stream), 0);
        assert_eq!(cuStreamQuery(other), 0);
        assert_eq!(cuMemsetD8Async(ptr, 2, BYTES, null_mut()), 0, "the legacy stream, deferred");
        assert_eq!(cuMemsetD8Async(ptr, 3, 1, other), 0);
        assert_eq!(cuStreamQuery(other), 600);
        assert_eq!(cuStreamQuery(apart), 0);
    }
    gate.open();
    assert_eq!(cuStreamSynchronize(null_mut()), 0);
    assert_eq!(bytes_at(ptr)[..2], [3, 2]);
}

#[test]
fn memory_is_allocated_at_once_and_freed_in_order_and_only_once() {
    start();
    let gate = Gate::closed();
    let stream = gate.stream(1);
    let (mut ptr, mut managed) = (0, 0);
    // SAFETY: all memory is this test's and outlives the calls.
    unsafe {
        assert_eq!(cuMemAllocManaged(&raw mut managed, BYTES, 1), 0);
        assert_eq!(cuMemAllocAsync(&raw mut ptr, BYTES, stream), 0);
        assert_eq!(cuMemsetD8Async(ptr, 4, BYTES, stream), 0);
        assert_eq!(cuMemcpyAsync(managed, ptr, BYTES, stream), 0);
        assert_eq!(cuMemPrefetchAsync(managed, BYTES, 0, stream), 0);
        assert_eq!(cuMemFreeAsync(ptr, stream), 0);
        assert_eq!(cuMemFreeAsync(ptr, stream), 1);
    }
    gate.open();
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(bytes_at(managed), [4; BYTES]);
    // SAFETY: the memory was freed, which is refused.
    assert_eq!(unsafe { cuMemFreeAsync(ptr, stream) }, 1);
}

#[test]
fn wrong_arguments_are_refused_at_once() {
    start();
    let (gate, ptr) = (Gate::closed(), allocate());
    let stream = gate.stream(1);
    // SAFETY: every call is refused.
    unsafe {
        assert_eq!(cuMemsetD8Async(ptr, 0, BYTES + 1, stream), 1);
        assert_eq!(cuMemcpyDtoDAsync_v2(ptr, 64, BYTES, stream), 1);
        assert_eq!(cuMemPrefetchAsync(ptr, BYTES, 0, stream), 1);
        assert_eq!(cuMemFreeAsync(ptr + 1, stream), 1);
        assert_eq!(cuEventRecord(null_mut(), stream), 400);
    }
    gate.open();
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(cuCtxSynchronize(), 0, "nothing failed later");
}

/// A kernel that adds 1 to a word.
const PTX: &str = "\
.version 7.0
.target sm_52
.address_size 64
.visible .entry count(.param .u64 place) {
  .reg .u64 %p; .reg .u32 %v;
  ld.param.u64 %p, [place]; ld.global.u32 %v, [%p]; add.u32 %v, %v, 1; st.global.u32 [%p], %v; ret;
}
";

#[test]
fn kernels_and_graphs_are_launched_at_once_and_run_later() {
    let _context = OwnContext::start();
    let (gate, mut ptr) = (Gate::closed(), allocate());
    let function = function_of(module_of(PTX), "count");
    let stream = gate.stream(1);
    let (mut other, mut graph, mut executable) = (null_mut(), null_mut(), null_mut());
    let mut parameters = [(&raw mut ptr).cast::<c_void>()];
    let mut launch = |on| {
        let parameters = parameters.as_mut_ptr();
        // SAFETY: the kernel has one parameter, an address of memory of this test.
        unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, parameters, null_mut()) }
    };
    // SAFETY: all memory is this test's and outlives the calls.
    unsafe {
        assert_eq!(cuMemsetD8_v2(ptr, 0, BYTES), 0);
        assert_eq!(cuStreamCreate(&raw mut other, 1), 0);
        assert_eq!(cuStreamBeginCapture_v2(other, 2), 0);
        assert_eq!(launch(other), 0);
        assert_eq!(launch(other), 0);
        assert_eq!(cuStreamEndCapture(other, &raw mut graph), 0);
        assert_eq!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0), 0);
        assert_eq!(launch(stream), 0);
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(cuGraphExecDestroy(executable), 0);
    }
    assert_eq!(bytes_at(ptr)[0], 0);
    gate.open();
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(bytes_at(ptr)[0], 3);
}

/// A kernel of `pagewise-cuda`, which touches places of memory.
const TOUCH: &str = "\
.version 7.0
.target sm_52
.address_size 64
.entry pagewise_write(.param .u64 a, .param .u64 n, .param .u64 s, .param .u32 v, .param .u64 r) { ret; }
";

#[test]
fn a_launch_that_would_be_refused_now_is_refused_before_it_waits() {
    start();
    let (gate, memory) = (Gate::closed(), allocate());
    let function = function_of(module_of(TOUCH), "pagewise_write");
    let stream = gate.stream(1);
    let launch = |(mut address, mut places): (u64, u64), on| {
        let (mut stride, mut value, mut none) = (512_u64, 7_u32, 0_u64);
        let mut parameters = [
            (&raw mut address).cast::<c_void>(),
            (&raw mut places).cast(),
            (&raw mut stride).cast(),
            (&raw mut value).cast(),
            (&raw mut none).cast(),
        ];
        let parameters = parameters.as_mut_ptr();
        // SAFETY: the kernel has these five parameters, and no other code uses the memory.
        unsafe { cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, on, parameters, null_mut()) }
    };
    for wrong in [(0x10, 8), (memory, 9), (memory, u64::MAX)] {
        let now = launch(wrong, std::ptr::without_provenance_mut(2));
        assert_ne!(now, 0, "{wrong:?}");
        assert_eq!(launch(wrong, stream), now, "{wrong:?}");
    }
    assert_eq!(launch((memory, 8), stream), 0);
    gate.open();
    assert_eq!(cuStreamSynchronize(stream), 0, "the device is not lost");
    assert!(bytes_at(memory).chunks(512).all(|chunk| chunk[0] == 7));
}

#[test]
fn a_function_of_the_host_is_refused_to_wait_for_its_own_stream() {
    static ANSWER: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn wait_for(stream: *mut c_void) {
        ANSWER.store(cuStreamSynchronize(stream).cast_unsigned(), Ordering::SeqCst);
    }
    start();
    let mut stream = null_mut();
    // SAFETY: the place is a local; the function gets the stream, which outlives it.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        assert_eq!(cuLaunchHostFunc(stream, Some(wait_for), stream), 0);
    }
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(ANSWER.load(Ordering::SeqCst), 800);
}

#[test]
fn a_context_goes_when_its_work_is_done() {
    start();
    let (gate, mut context, mut ptr) = (Gate::closed(), null_mut(), 0);
    // SAFETY: the managed memory belongs to no context that goes; all else is this test's.
    unsafe {
        assert_eq!(cuMemAllocHost_v2((&raw mut ptr).cast(), BYTES), 0);
        assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
        let stream = gate.stream(1);
        assert_eq!(cuMemsetD8Async(ptr, 6, BYTES, stream), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                gate.open();
            });
            assert_eq!(cuCtxDestroy_v2(context), 0);
        });
        assert_eq!(bytes_at(ptr), [6; BYTES]);
    }
}

#[test]
fn a_default_stream_is_not_destroyed_also_while_it_waits() {
    let _context = OwnContext::start();
    let gate = Gate::closed();
    let stream = gate.stream(0);
    let (legacy, memory) = (std::ptr::without_provenance_mut::<c_void>(1), allocate());
    // SAFETY: the memory is this test's; a refused handle is not used.
    unsafe {
        assert_eq!(cuMemsetD8Async(memory, 3, BYTES, legacy), 0, "it waits for the stream");
        assert_eq!(cuStreamQuery(legacy), 600);
        assert_eq!(cuStreamDestroy_v2(legacy), 400);
        gate.open();
        assert_eq!(cuStreamSynchronize(legacy), 0);
        assert_eq!(cuStreamDestroy_v2(stream), 0);
    }
    assert_eq!(bytes_at(memory), [3; BYTES]);
}

#[test]
fn an_event_that_is_destroyed_while_it_is_recorded_fails_nothing() {
    start();
    for _ in 0..200 {
        let gate = Gate::closed();
        let (stream, recorded) = (gate.stream(1), event());
        // SAFETY: the event is not used after it was destroyed.
        unsafe {
            assert_eq!(cuEventRecord(recorded, stream), 0);
            gate.open();
            assert_eq!(cuEventDestroy_v2(recorded), 0);
            assert_eq!(cuStreamSynchronize(stream), 0);
            assert_eq!(cuStreamDestroy_v2(stream), 0);
        }
    }
}

/// Waits until the word at its first parameter is not zero, and adds it to the word at its second.
const LATCH: &str = ".version 8.6\n.target sm_90\n.address_size 64\n
.visible .entry latch(.param .u64 p_word, .param .u64 p_sum) {
  .reg .pred %p; .reg .b32 %v, %s; .reg .b64 %word, %sum;
  ld.param.u64 %word, [p_word]; ld.param.u64 %sum, [p_sum];
again: ld.volatile.u32 %v, [%word]; setp.eq.u32 %p, %v, 0; @%p bra again;
  ld.u32 %s, [%sum]; add.u32 %s, %s, %v; st.u32 [%sum], %s; ret;
}";

/// Launches the latch twice in a stream, before anything changes its word.
fn launch_latches(latch: *mut c_void, on: *mut c_void, mut word: u64, mut sum: u64) {
    let mut params = [(&raw mut word).cast::<c_void>(), (&raw mut sum).cast()];
    for _ in 0..2 {
        // SAFETY: the parameters are the kernel's, and their memory outlives its work.
        let code = unsafe {
            cuLaunchKernel(latch, 1, 1, 1, 1, 1, 1, 0, on, params.as_mut_ptr(), null_mut())
        };
        assert_eq!(code, 0);
    }
}

#[test]
fn kernels_that_wait_for_the_host_hold_up_their_stream_and_let_the_host_go_on() {
    let _context = OwnContext::start();
    let latch = function_of(module_of(LATCH), "latch");
    let (mut on, mut managed, mut locked) = (null_mut(), 0, null_mut());
    let sum = allocate();
    // SAFETY: the places are locals; nothing else uses the memory, but for the words that the kernels
    // wait for, which the host writes by volatile accesses.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut on, 1), 0);
        assert_eq!(cuMemAllocManaged(&raw mut managed, BYTES, 1), 0);
        assert_eq!(cuMemHostAlloc(&raw mut locked, BYTES, 2), 0);
        let of_managed = std::ptr::with_exposed_provenance_mut::<u32>(managed as usize);
        for (turn, word) in [of_managed, locked.cast::<u32>()].into_iter().enumerate() {
            assert_eq!(cuMemsetD8_v2(sum, 0, BYTES), 0);
            word.write_volatile(0);
            let (recorded, other) = (event(), allocate());
            launch_latches(latch, on, word.expose_provenance() as u64, sum);
            assert_eq!(cuEventRecord(recorded, on), 0);
            assert_eq!((cuStreamQuery(on), cuEventQuery(recorded)), (600, 600));
            assert_eq!(cuMemsetD8_v2(other, 3, BYTES), 0, "the machine is free");
            assert_eq!(bytes_at(other)[0], 3);
            word.write_volatile(5 + turn as u32);
            assert_eq!((cuStreamSynchronize(on), cuEventQuery(recorded)), (0, 0));
            assert_eq!(bytes_at(sum)[0], 2 * (5 + turn as u8));
            assert_eq!(cuMemFree_v2(other), 0);
        }
        assert_eq!(cuMemFree_v2(managed), 0);
        assert_eq!(cuMemFreeHost(locked), 0);
        assert_eq!(cuStreamDestroy_v2(on), 0);
    }
}
