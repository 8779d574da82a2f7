//! Modules of PTX: loading, kernels, variables, launches, and their errors.

use std::sync::{Arc, Mutex};

use pagewise_hal::{
    Backend, BackendExt, Code, DeviceId, DevicePtr, ErrorKind, FunctionAttribute, FunctionHandle,
    HostAccess, HostTouch, KernelParam, LaunchShape, ModuleHandle, ParamInfo, Result, Span,
    StreamHandle,
};
use pagewise_sim::{MemoryContents, SimBackend, SimConfig};

const DEVICE: DeviceId = DeviceId(0);

/// Kernels for the claims below.
const PTX: &str = r#"
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[4] = {104, 105, 10, 0};
.visible .global .align 8 .u64 start = 7;
.visible .global .align 4 .b8 zeros[64];
.visible .global .attribute(.managed) .align 4 .u32 total = 40;

.visible .entry store(.param .u64 to, .param .u32 value)
{
    .reg .b64 %d<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [value];
    st.global.u32 [%d1], %r1;
    ret;
}

.visible .entry mixed(.param .u8 a, .param .f64 b, .param .u32 c)
{
    ret;
}

.visible .entry forever()
{
AGAIN:
    bra AGAIN;
}

.visible .entry hand_over(.param .u64 page)
{
    .reg .pred %p;
    .reg .b64 %d<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %d1, [page];
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p, %r1, 0;
    @%p bra SPIN;
    ld.global.u32 %r2, [%d1];
    mov.u32 %r1, 1;
    st.volatile.global.u32 [zeros], %r1;
    ret;
SPIN:
    ld.volatile.global.u32 %r2, [zeros];
    setp.eq.u32 %p, %r2, 0;
    @%p bra SPIN;
    ret;
}

.visible .entry latch(.param .u64 word)
{
    .reg .pred %p;
    .reg .b64 %d<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %d1, [word];
WAIT:
    ld.volatile.global.u32 %r1, [%d1];
    setp.eq.u32 %p, %r1, 0;
    @%p bra WAIT;
    ret;
}

.visible .entry count()
{
    .reg .b32 %r<2>;
    atom.global.add.u32 %r1, [total], 1;
    ret;
}

.visible .entry hello()
{
    .reg .b64 %d<3>;
    mov.u64 %d1, text;
    cvta.global.u64 %d1, %d1;
    mov.u64 %d2, 0;
    {
    .param .b64 f;
    .param .b64 a;
    .param .b32 r;
    st.param.b64 [f], %d1;
    st.param.b64 [a], %d2;
    call.uni (r), vprintf, (f, a);
    }
    ret;
}
"#;

fn open(config: SimConfig) -> SimBackend {
    SimBackend::new(config).expect("room")
}

fn load(sim: &SimBackend) -> ModuleHandle {
    // SAFETY: text is no binary, so it need not be whole.
    unsafe { sim.module_load(DEVICE, PTX.as_bytes()) }.expect("PTX")
}

fn kernel(sim: &SimBackend, name: &str) -> FunctionHandle {
    sim.module_function(load(sim), name).expect("in the module")
}

/// Launches one thread.
fn run(sim: &SimBackend, kernel: FunctionHandle, params: &[KernelParam]) -> Result<()> {
    // SAFETY: no other code uses memory of the machine; the simulator checks parameters.
    unsafe { sim.launch(kernel, LaunchShape::linear(1, 1), params, StreamHandle::NULL) }
}

fn word(value: u32) -> KernelParam {
    KernelParam::new(value.to_ne_bytes())
}

#[test]
fn a_kernel_writes_managed_memory_which_moves_to_its_device() {
    let sim = open(SimConfig::h200());
    let span = sim.alloc(4096).expect("room");
    run(&sim, kernel(&sim, "store"), &[span.ptr.into(), word(7)]).expect("runs");
    assert_eq!(sim.resident_bytes(span, pagewise_hal::Processor::device(0)), 4096);
    let place = std::ptr::with_exposed_provenance::<u32>(span.ptr.0 as usize);
    // SAFETY: the word is live memory of the machine, which no other code uses.
    assert_eq!(unsafe { place.read_volatile() }, 7);
    assert!(sim.capabilities().kernels && sim.capabilities().declared_kernels);
}

#[test]
fn a_block_that_spins_goes_on_when_the_page_of_another_has_come() {
    let sim = open(SimConfig::h200().instruction_limit(Some(200_000_000)));
    let span = sim.alloc(4096).expect("room");
    let kernel = kernel(&sim, "hand_over");
    let params = [span.ptr.into()];
    // SAFETY: no other code uses memory of the machine; the simulator checks parameters.
    let ran = unsafe { sim.launch(kernel, LaunchShape::linear(2, 1), &params, StreamHandle::NULL) };
    assert_eq!(ran, Ok(()));
    assert_eq!(sim.stream_synchronize(StreamHandle::NULL), Ok(()));
}

#[test]
fn a_kernel_that_waits_for_another_thread_leaves_the_machine_to_it() {
    let sim = open(SimConfig::h200());
    let latch = kernel(&sim, "latch");
    let managed = sim.alloc(4096).expect("memory");
    let write =
        |value| HostTouch { span: managed, access: HostAccess::Write(value), stride_bytes: 1 };
    // SAFETY: the kernel reads the word by volatile accesses until it has changed.
    unsafe {
        sim.host_touch(write(0)).expect("managed");
        std::thread::scope(|threads| {
            let begun_ns = sim.clock_ns();
            let waits = threads.spawn(|| run(&sim, latch, &[managed.ptr.into()]));
            while !waits.is_finished() {
                if sim.clock_ns() > begun_ns {
                    sim.host_touch(write(1)).expect("the machine is free");
                }
            }
            assert_eq!(waits.join().expect("no panic"), Ok(()));
        });
    }
}

#[test]
fn a_launch_that_waits_for_memory_to_change_is_not_traced() {
    let sim = open(SimConfig::h200());
    let latch = kernel(&sim, "latch");
    let device = sim.alloc_device(DEVICE, 4096).expect("memory");
    let one = LaunchShape::linear(1, 1);
    // SAFETY: nothing else uses the memory.
    let traced = unsafe {
        sim.memset(Span::new(device, 4096), 0, StreamHandle::NULL).expect("memory");
        sim.launch_traced(latch, one, &[device.into()], StreamHandle::NULL)
    };
    let error = traced.expect_err("nothing changes the word");
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, Some(801)), "{error}");
    assert_eq!(run(&sim, kernel(&sim, "count"), &[]), Ok(()), "the device is not lost");
}

#[test]
fn a_kernel_reports_its_parameters_and_figures() {
    let sim = open(SimConfig::h200());
    let mixed = kernel(&sim, "mixed");
    let place = |offset_bytes, bytes| ParamInfo { offset_bytes, bytes };
    assert_eq!(sim.function_params(mixed), Ok(vec![place(0, 1), place(8, 8), place(16, 4)]));
    let ask = |attribute| sim.function_attribute(mixed, attribute);
    assert_eq!(ask(FunctionAttribute::MAX_THREADS_PER_BLOCK), Ok(1024));
    assert_eq!(ask(FunctionAttribute::PTX_VERSION), Ok(70));
    assert_eq!(ask(FunctionAttribute::BINARY_VERSION), Ok(90));
    assert_eq!(ask(FunctionAttribute(99)).expect_err("unknown").code(), Some(1));
    let shared = FunctionAttribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(ask(shared), Ok(48 << 10));
    assert!(sim.function_set_attribute(mixed, shared, 232_449).is_err());
    assert_eq!(sim.function_set_attribute(mixed, shared, 100_000), Ok(()));
    assert_eq!(ask(shared), Ok(100_000));
    assert!(sim.function_set_attribute(mixed, FunctionAttribute::NUM_REGS, 1).is_err());
}

#[test]
fn a_small_kernel_fills_a_multiprocessor_and_shared_memory_limits_it() {
    let sim = open(SimConfig::h200());
    let mixed = kernel(&sim, "mixed");
    assert_eq!(sim.occupancy_blocks(mixed, 256, 0), Ok(8));
    assert_eq!(sim.occupancy_blocks(mixed, 32, 0), Ok(32));
    assert_eq!(sim.occupancy_blocks(mixed, 256, 48 << 10), Ok(4));
    assert_eq!(sim.occupancy_blocks(mixed, 2048, 0), Ok(0));
    assert_eq!(sim.occupancy_blocks(mixed, 0, 0).expect_err("none").code(), Some(1));
    let best = sim.occupancy_best_block(mixed, 0, 0).expect("a kernel");
    assert_eq!((best.grid_blocks, best.block_threads), (264, 1024));
    let best = sim.occupancy_best_block(mixed, 0, 100).expect("a kernel");
    assert!(best.block_threads <= 100 && best.grid_blocks > 264);
}

#[test]
fn variables_have_memory_with_their_first_values_until_the_module_goes() {
    let sim = open(SimConfig::h200());
    let module = load(&sim);
    let read = |name, bytes| {
        let span = sim.module_global(module, name).expect("a variable");
        assert_eq!(span.bytes, bytes);
        let host = sim.alloc_pinned(bytes, pagewise_hal::HostAllocFlags::empty()).expect("room");
        // SAFETY: no other code uses either range; the copy is complete when it returns, and the
        // bytes are live then.
        unsafe {
            sim.memcpy(host, span.ptr, bytes, StreamHandle::NULL).expect("live");
            let first = std::ptr::with_exposed_provenance::<u8>(host.0 as usize);
            std::slice::from_raw_parts(first, bytes as usize).to_vec()
        }
    };
    assert_eq!(read("start", 8), 7_u64.to_ne_bytes());
    assert_eq!(read("zeros", 64), [0; 64]);
    assert_eq!(read("total", 4), 40_u32.to_ne_bytes());
    let total = sim.module_global(module, "total").expect("a variable");
    assert_eq!(sim.live_managed(), [total]);
    let count = sim.module_function(module, "count").expect("a kernel");
    run(&sim, count, &[]).expect("runs");
    assert_eq!(read("total", 4), 41_u32.to_ne_bytes());
    assert_eq!(sim.module_global(module, "none").expect_err("unknown").code(), Some(500));
    // SAFETY: no kernel of the module runs, and no code uses its variables.
    unsafe { sim.module_unload(module) }.expect("live");
    assert_eq!(sim.live_managed(), []);
    let gone = [
        sim.module_global(module, "total").map(drop),
        sim.module_function(module, "count").map(drop),
        sim.function_params(count).map(drop),
        run(&sim, count, &[]),
    ];
    for answer in gone {
        assert_eq!(answer.expect_err("unloaded").kind(), ErrorKind::InvalidHandle);
    }
}

#[test]
fn a_refused_image_names_its_line_and_leaves_no_memory() {
    let sim = open(SimConfig::h200());
    let before = sim.live();
    let refused = |image: &[u8]| {
        // SAFETY: the simulator reads no more than the slice.
        let error = unsafe { sim.module_load(DEVICE, image) }.expect_err("refused");
        (error.code(), error.detail().to_owned())
    };
    let (code, detail) = refused(PTX.replace("ret;", "ret").as_bytes());
    assert_eq!(code, Some(218), "{detail}");
    assert!(detail.contains("line "), "{detail}");
    let (code, detail) = refused(PTX.replace("st.global.u32", "wgmma.fence").as_bytes());
    assert_eq!(code, Some(801), "{detail}");
    assert!(detail.contains("line 17") && detail.contains("wgmma"), "{detail}");
    assert_eq!(refused(PTX.replace("sm_70", "sm_100").as_bytes()).0, Some(218));
    assert_eq!(refused(b"").0, Some(1));
    assert_eq!(refused(b"\x7fELF and more").0, Some(801));
    assert_eq!(sim.live(), before);
    // SAFETY: the simulator reads no more than the slice.
    let nowhere = unsafe { sim.module_load(DeviceId(1), PTX.as_bytes()) }.expect_err("no device");
    assert_eq!(nowhere.kind(), ErrorKind::InvalidDevice);
    let empty = open(SimConfig::h200().contents(MemoryContents::Skipped));
    assert!(!empty.capabilities().kernels);
    // SAFETY: the simulator reads no more than the slice.
    let error = unsafe { empty.module_load(DEVICE, PTX.as_bytes()) }.expect_err("no contents");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_wrong_launch_is_refused_and_runs_nothing() {
    let sim = open(SimConfig::h200().devices(2));
    let store = kernel(&sim, "store");
    let span = sim.alloc(4 << 20).expect("room");
    let right = [span.ptr.into(), word(1)];
    let shaped = |grid, block, shared_bytes| {
        let shape = LaunchShape { grid, block, shared_bytes };
        // SAFETY: no other code uses the memory.
        unsafe { sim.launch(store, shape, &right, StreamHandle::NULL) }
    };
    let other = sim.stream_create(DeviceId(1), pagewise_hal::StreamFlags::NON_BLOCKING);
    // SAFETY: no other code uses the memory.
    let elsewhere =
        unsafe { sim.launch(store, LaunchShape::linear(1, 1), &right, other.expect("a stream")) };
    assert_eq!(elsewhere.expect_err("of device 1").kind(), ErrorKind::InvalidHandle);
    for answer in [
        shaped([0, 1, 1], [1; 3], 0),
        shaped([1, 65536, 1], [1; 3], 0),
        shaped([1; 3], [1025, 1, 1], 0),
        shaped([1; 3], [64, 64, 1], 0),
        shaped([1; 3], [1; 3], 48 << 10 | 1),
        run(&sim, store, &right[..1]),
        run(&sim, store, &[span.ptr.into(), KernelParam::new([0; 8])]),
    ] {
        assert_eq!(answer.expect_err("refused").code(), Some(Code::INVALID_VALUE));
    }
    assert_eq!(sim.resident_bytes(span, pagewise_hal::Processor::device(0)), 0);
    assert_eq!(run(&sim, store, &right), Ok(()));
}

#[test]
fn a_wild_access_loses_the_device_with_a_report_and_a_launch_itself_succeeds() {
    let sim = open(SimConfig::h200());
    let store = kernel(&sim, "store");
    let span = sim.alloc_device(DEVICE, 2 << 20).expect("room");
    let wild = DevicePtr(span.0 + (2 << 20) + 4);
    assert_eq!(run(&sim, store, &[wild.into(), word(1)]), Ok(()));
    let error = sim.stream_synchronize(StreamHandle::NULL).expect_err("sticky");
    assert_eq!((error.code(), error.code_name()), (Some(700), Some("CUDA_ERROR_ILLEGAL_ADDRESS")));
    for part in ["kernel store", "PTX line 17", "block [0, 0, 0]", "4 bytes behind"] {
        assert!(error.detail().contains(part), "{part}: {error}");
    }
    assert_eq!(run(&sim, store, &[]).expect_err("lost").code(), Some(700));
    assert_eq!(sim.alloc(1).expect_err("lost").code(), Some(700));
    // SAFETY: no other code uses the memory.
    assert_eq!(unsafe { sim.free(span) }.expect_err("lost").code(), Some(700));
    assert_eq!(sim.device_count(), Ok(1));
}

#[test]
fn a_kernel_without_end_is_ended_by_the_instruction_limit() {
    let sim = open(SimConfig::h200().instruction_limit(Some(10_000)));
    let span = sim.alloc(4096).expect("room");
    run(&sim, kernel(&sim, "store"), &[span.ptr.into(), word(1)]).expect("short enough");
    run(&sim, kernel(&sim, "forever"), &[]).expect("a launch succeeds");
    let error = sim.stream_synchronize(StreamHandle::NULL).expect_err("ended");
    assert_eq!(error.code_name(), Some("CUDA_ERROR_LAUNCH_TIMEOUT"));
    assert!(error.detail().contains("kernel forever") && error.detail().contains("limit"));
}

#[test]
fn text_of_kernels_comes_when_the_program_waits() {
    let sim = open(SimConfig::h200());
    let text = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&text);
    sim.on_kernel_text(move |part| heard.lock().expect("no panic").extend_from_slice(part));
    run(&sim, kernel(&sim, "hello"), &[]).expect("runs");
    assert_eq!(*text.lock().expect("no panic"), b"");
    sim.stream_synchronize(StreamHandle::NULL).expect("a stream");
    assert_eq!(*text.lock().expect("no panic"), b"hi\n");
}
