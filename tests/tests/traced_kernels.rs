//! Kernels in PTX in a recording: a replay moves the pages that they moved, without their code.

use std::sync::Arc;

use pagewise::{
    Backend, BackendExt, DeviceId, FaultAccess, HostAccess, HostTouch, LaunchShape, RecordedBlocks,
    RecordedStep, SimBackend, SimConfig, Span, StreamFlags, StreamHandle,
};
use pagewise_sim::{KernelOutput, LoweredProgram, Program, ProgramLaunch, Progress};
use pagewise_trace::compare::compare_case;
use pagewise_trace::format::{Case, Header, Op, OpLine, RecordedOn};
use pagewise_trace::reader::TraceReader;
use pagewise_trace::record::Recorder;
use pagewise_trace::replay::{CaseReplay, replay_case};
use pagewise_trace::writer::TraceWriter;

/// `square`: each thread squares a number. `sums`: each block adds up its numbers in shared memory,
/// and adds the sum to one that all blocks share. `follow`: each thread follows a chain of indices.
/// `pass`: each block of a cluster of four passes its numbers on to the next one, which squares them
/// and follows them to others.
const KERNELS: &str = r#"
.version 8.0
.target sm_60
.address_size 64
.visible .entry square(.param .u64 values, .param .u64 sum)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [values];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r6, [%rd4];
    mul.lo.u32 %r7, %r6, %r6;
    st.global.u32 [%rd4], %r7;
    ret;
}
.visible .entry sums(.param .u64 values, .param .u64 sum)
{
    .shared .align 4 .b8 part[1024];
    .reg .pred %p<2>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [values];
    ld.param.u64 %rd2, [sum];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r6, [%rd4];
    mov.u32 %r7, part;
    shl.b32 %r8, %r4, 2;
    add.u32 %r9, %r7, %r8;
    st.shared.u32 [%r9], %r6;
    mov.u32 %r10, 128;
halve:
    bar.sync 0;
    setp.ge.u32 %p0, %r4, %r10;
    @%p0 bra skip;
    shl.b32 %r11, %r10, 2;
    add.u32 %r12, %r9, %r11;
    ld.shared.u32 %r13, [%r12];
    ld.shared.u32 %r14, [%r9];
    add.u32 %r14, %r14, %r13;
    st.shared.u32 [%r9], %r14;
skip:
    shr.u32 %r10, %r10, 1;
    setp.ne.u32 %p1, %r10, 0;
    @%p1 bra halve;
    bar.sync 0;
    setp.ne.u32 %p0, %r4, 0;
    @%p0 bra done;
    red.global.add.u32 [%rd2], %r14;
    st.global.u32 [%rd4], %r14;
done:
    ret;
}
.visible .entry follow(.param .u64 values, .param .u64 sum)
{
    .reg .pred %p;
    .reg .b32 %r<12>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [values];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    and.b32 %r8, %r4, 7;
next:
    mul.lo.u32 %r6, %r5, 2654435761;
    shr.u32 %r6, %r6, 14;
    mul.wide.u32 %rd3, %r6, 4;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r7, [%rd4];
    add.u32 %r5, %r7, %r6;
    add.u32 %r5, %r5, 12345;
    setp.eq.u32 %p, %r8, 0;
    sub.u32 %r8, %r8, 1;
    @!%p bra next;
    st.global.u32 [%rd4], %r5;
    ret;
}
.visible .entry pass(.param .u64 values, .param .u64 sum) .reqnctapercluster 4
{
    .shared .align 4 .b8 passed[1024];
    .reg .b32 %r<16>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [values];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r6, [%rd4];
    mov.u32 %r7, passed;
    shl.b32 %r8, %r4, 2;
    add.u32 %r9, %r7, %r8;
    mov.u32 %r10, %cluster_ctarank;
    add.u32 %r10, %r10, 1;
    and.b32 %r10, %r10, 3;
    mapa.shared::cluster.u32 %r11, %r9, %r10;
    st.shared::cluster.u32 [%r11], %r6;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    ld.shared.u32 %r6, [%r9];
    mul.lo.u32 %r6, %r6, %r6;
    st.global.u32 [%rd4], %r6;
    add.u32 %r6, %r6, %r5;
    mul.lo.u32 %r6, %r6, 2654435761;
    shr.u32 %r6, %r6, 14;
    mul.wide.u32 %rd3, %r6, 4;
    add.u64 %rd4, %rd1, %rd3;
    red.global.add.u32 [%rd4], 1;
    ret;
}
"#;

/// The memory that the kernels work on: 1 MiB, all of which `follow` reaches.
const WORDS: u32 = 1 << 18;

struct Silent;

impl KernelOutput for Silent {
    fn print(&self, _: &[u8]) {}

    fn warn(&self, message: &str) {
        panic!("{message}");
    }
}

fn machine(profile: &str, seed: u64) -> SimBackend {
    let config = SimConfig::profile(profile).expect("a profile").seed(seed);
    SimBackend::new(config).expect("address space")
}

/// Launches a kernel under a recorder.
fn launch(
    (recorder, on): (&Recorder<Arc<SimBackend>>, StreamHandle),
    program: &Program,
    name: &str,
    memory: [Span; 2],
) {
    let kernel = program.kernel(name).expect("it is in the text");
    let parameters: Vec<u8> = memory.iter().flat_map(|span| span.ptr.0.to_le_bytes()).collect();
    let launch = ProgramLaunch {
        kernel: &kernel,
        device: DeviceId(0),
        shape: LaunchShape { grid: [WORDS / 256, 1, 1], block: [256, 1, 1], shared_bytes: 0 },
        parameters: &parameters,
        is_cooperative: false,
        cluster: None,
        stack_bytes: 1024,
        heap_bytes: 0,
    };
    let ended = recorder.launch_observed(on, |sim| {
        let mut kernel = sim.begin_program(&launch, &**sim, on)?;
        // SAFETY: nothing else uses the memory, and the program has no variables.
        unsafe { kernel.go_on_traced(sim, &Silent) }
    });
    assert_eq!(ended.expect("a live machine"), Progress::Ended(None), "{name}");
}

/// A program with kernels, recorded on an H200 with a seed.
fn recorded(seed: u64) -> Case {
    let sim = Arc::new(machine("h200", seed));
    let lowered = LoweredProgram::new((9, 0), KERNELS).expect("PTX");
    // SAFETY: the program has no variables.
    let program = unsafe { Program::place(&sim, &lowered, |_| None) }.expect("no variables");
    let recorder = Recorder::new(Arc::clone(&sim));
    let memory = [recorder.alloc(u64::from(WORDS) * 4), recorder.alloc(8192)];
    let memory = memory.map(|span| span.expect("memory"));
    let host = |span, access, stride_bytes| {
        let touch = HostTouch { span, stride_bytes, access };
        // SAFETY: nothing else uses the memory.
        unsafe { recorder.host_touch(touch) }.expect("managed");
    };
    host(memory[0], HostAccess::Write(3), 1);
    // A replay makes its stream here. The times of thrashing pages are rounded, so both clocks must
    // show the same.
    let on = recorder.stream_create(DeviceId(0), StreamFlags::NON_BLOCKING).expect("a stream");
    for name in ["square", "pass", "sums", "follow", "square"] {
        launch((&recorder, on), &program, name, memory);
        host(memory[0], HostAccess::Read, 70_000);
        host(memory[1], HostAccess::Write(0), 4096);
    }
    assert_eq!(recorder.left_out(), 0);
    recorder.take_case("kernels")
}

fn replayed(case: &Case, profile: &str, seed: u64) -> CaseReplay {
    replay_case(&machine(profile, seed), case, |_, _| ())
}

/// The case as it comes out of a file, and the bytes of the file.
fn written(case: &Case) -> (Case, u64) {
    let mut file = Vec::new();
    let header = Header::new("kernels", RecordedOn::new(1, 13_000));
    let mut writer = TraceWriter::plain(&mut file, &header).expect("memory");
    writer.whole_case(case).expect("memory");
    writer.finish().expect("memory");
    let mut reader = TraceReader::new("kernels", &file[..]).expect("a header");
    let read = reader.next_case().expect("a case").expect("one");
    (read, file.len() as u64)
}

#[test]
fn a_replay_of_kernels_gives_every_record_of_the_run() {
    for seed in [0, 7] {
        let (case, _) = written(&recorded(seed));
        let launches = case.ops.iter().filter(|line| matches!(line.recorded.op, Op::Launch(_)));
        assert_eq!(launches.count(), 5);
        let replay = replayed(&case, "h200", seed);
        let tally = compare_case(&case, &replay, false);
        assert!(tally.agrees(), "seed {seed}: {tally:?}");
        let pairs = case.ops.iter().zip(&replay.observed);
        for (line, observed) in pairs {
            assert_eq!(observed.events, line.recorded.observed.events, "line {}", line.line);
            let took = observed.ns.map(|ns| ns.median);
            assert_eq!(took, line.recorded.observed.ns_profiled, "line {}", line.line);
        }
    }
}

#[test]
fn a_replay_of_kernels_on_another_gpu_brings_what_the_first_launch_accesses() {
    let case = recorded(0);
    let launch = |line: &OpLine| matches!(line.recorded.op, Op::Launch(_));
    let first = case.ops.iter().position(launch).expect("a launch");
    let copied = |replay: &CaseReplay, ops: std::ops::Range<usize>| -> u64 {
        let events = replay.observed[ops].iter().flat_map(|observed| &observed.events);
        let to_device = events.filter(|event| event.kind.as_str() == "copy_h2d");
        to_device.map(|event| event.value).sum()
    };
    let all = 0..case.ops.len();
    let here = replayed(&case, "h200", 0);
    for profile in ["a100", "l4", "v100", "rtx4060ti-16gb"] {
        let there = replayed(&case, profile, 3);
        assert!(there.observed.iter().all(|observed| observed.code == 0), "{profile}");
        let brought = [&there, &here].map(|one| copied(one, first..first + 1));
        assert_eq!(brought, [u64::from(WORDS) * 4; 2], "{profile}");
        // The host takes pages back between the launches, and which of them thrash then depends on
        // time.
        let [there_bytes, here_bytes] = [&there, &here].map(|one| copied(one, all.clone()));
        let ratio = there_bytes as f64 / here_bytes as f64;
        assert!((0.5..2.0).contains(&ratio), "{profile}: {there_bytes}, here {here_bytes}");
        let slower = there.elapsed_ns as f64 / here.elapsed_ns as f64;
        assert!((0.5..20.0).contains(&slower), "{profile}: {slower} times as long");
    }
}

#[test]
fn a_launch_takes_far_less_than_a_byte_of_the_trace_for_each_thread() {
    let case = recorded(0);
    for line in &case.ops {
        let Op::Launch(launch) = &line.recorded.op else { continue };
        let bytes = launch.accesses.text_bytes();
        // Accesses that data decide have no pattern to compress.
        if !["follow", "pass"].contains(&launch.shape.kernel.as_str()) {
            assert!(bytes < u64::from(WORDS) / 20, "{}: {bytes} bytes", launch.shape.kernel);
        }
        let accesses = launch.accesses.unpack().expect("packed here");
        let blocks: Vec<_> = RecordedBlocks::new(&accesses).map(Result::unwrap).collect();
        assert_eq!(blocks.len() as u32, WORDS / 256);
        let writes = |step: &RecordedStep| match step {
            RecordedStep::Access { access, .. } => *access != FaultAccess::Read,
            _ => false,
        };
        let steps = blocks.iter().flat_map(|block| &block.warps).flat_map(|(_, steps)| steps);
        assert!(steps.into_iter().any(writes));
    }
}

#[test]
fn a_damaged_launch_is_refused_by_its_line() {
    let (case, _) = written(&recorded(0));
    let line = case.ops.iter().find(|line| matches!(line.recorded.op, Op::Launch(_)));
    let json = line.expect("a launch").recorded.op.to_json();
    let header = r#"{"format":"pagewise-trace","version":1,"family":"bad","recorded_on":{"gpus":1,"cuda_driver_version":13000}}"#;
    let read = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = json.clone();
        json["code"] = 0.into();
        change(&mut json);
        let text = format!("{header}\n{{\"case\":\"one\"}}\n{json}\n");
        let mut reader = TraceReader::new("bad", text.as_bytes()).expect("a header");
        reader.next_case().map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(read(&|_| ()), Ok(()));
    let refused = |change: &dyn Fn(&mut serde_json::Value), why: &str| {
        let error = read(change).expect_err(why);
        assert!(error.starts_with("bad:3: ") && error.contains(why), "{error}");
    };
    refused(&|json| json["accesses"]["packed"] = "AAAA".into(), "not zstd in base64");
    refused(&|json| json["accesses"]["packed"] = "%".into(), "not zstd in base64");
    refused(&|json| json["accesses"]["bytes"] = 3.into(), "not as long as they say");
    refused(&|json| json["accesses"]["bytes"] = (1_u64 << 30).into(), "more than 32 MiB");
    refused(&|json| json["launch"]["grid"] = vec![0, 1, 1].into(), "at least 1");
    refused(&|json| json["launch"]["multiprocessors"] = 0.into(), "no block");
    refused(&|json| _ = json.as_object_mut().expect("a line").remove("launch"), "launch");
}
