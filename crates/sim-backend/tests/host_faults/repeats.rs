//! A launch that repeats one before is not executed, and no program can tell but by its speed.

use pagewise_hal::{
    AttachFlags, Backend, DevicePtr, EventFlags, FunctionHandle, HostAddresses, HostAllocFlags,
    KernelParam, LaunchShape, Result, Span, StreamHandle,
};
use pagewise_sim::{HostFaults, SimBackend, SimConfig};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::common::{DEVICE, peek};

const STREAM: StreamHandle = StreamHandle::PER_THREAD;

/// Device memory is mapped in pieces of 2 MiB, of which one allocation here fills one.
const BYTES: u64 = 2 << 20;
const THREADS: u32 = 256;

const PTX: &str = r#"
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[4] = {104, 105, 10, 0};

// to[i] = from[i] + add
.visible .entry plus(.param .u64 to, .param .u64 from, .param .u32 add)
{
    .reg .b64 %d<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %d1, [to];
    ld.param.u64 %d2, [from];
    ld.param.u32 %r1, [add];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d3, %r2, 4;
    add.u64 %d1, %d1, %d3;
    add.u64 %d2, %d2, %d3;
    ld.global.u32 %r3, [%d2];
    add.u32 %r3, %r3, %r1;
    st.global.u32 [%d1], %r3;
    ret;
}

// Each thread adds to the first word.
.visible .entry total(.param .u64 to, .param .u64 from, .param .u32 add)
{
    .reg .b64 %d<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [add];
    red.global.add.u32 [%d1], %r1;
    ret;
}

.visible .entry loud(.param .u64 to, .param .u64 from, .param .u32 add)
{
    .reg .b64 %d<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [add];
    st.global.u32 [%d1], %r1;
    {
        .param .b64 f;
        .param .b64 a;
        .param .b32 r;
        cvta.global.u64 %d2, text;
        st.param.b64 [f], %d2;
        mov.u64 %d2, 0;
        st.param.b64 [a], %d2;
        call.uni (r), vprintf, (f, a);
    }
    ret;
}
"#;

/// A machine with the kernels and three allocations of device memory.
struct Program {
    sim: SimBackend,
    kernels: [FunctionHandle; 3],
    buffers: Vec<DevicePtr>,
    /// Where contents are copied to, to be looked at.
    seen: DevicePtr,
}

#[derive(Debug, Clone, Copy)]
enum Kernel {
    Plus,
    Total,
    Loud,
}

impl Program {
    fn new(faults: HostFaults) -> Result<Self> {
        let sim = SimBackend::new(SimConfig::h200().host_faults(faults))?;
        sim.on_kernel_text(|_| {});
        // SAFETY: the kernels access memory that launches give them.
        let module = unsafe { sim.module_load(DEVICE, PTX.as_bytes()) }?;
        let kernels = ["plus", "total", "loud"].map(|name| sim.module_function(module, name));
        let [plus, total, loud] = kernels;
        let buffers = (0..3).map(|_| sim.alloc_device(DEVICE, BYTES)).collect::<Result<_>>()?;
        let seen = sim.alloc_pinned(BYTES, HostAllocFlags::empty())?;
        Ok(Self { kernels: [plus?, total?, loud?], buffers, seen, sim })
    }

    /// One that executes all launches, as code outside of the machine may write the memory.
    fn executing(faults: HostFaults) -> Result<Self> {
        let program = Self::new(faults)?;
        program.sim.kernel_address(program.buffers[0]);
        Ok(program)
    }

    fn launch(&self, kernel: Kernel, to: DevicePtr, from: DevicePtr, add: u32) {
        let shape = LaunchShape::linear(1, THREADS);
        self.launch_as(kernel, shape, [to, from], add);
    }

    fn launch_as(&self, kernel: Kernel, shape: LaunchShape, [to, from]: [DevicePtr; 2], add: u32) {
        let add = KernelParam::new(add.to_ne_bytes());
        let parameters = [KernelParam::from(to), KernelParam::from(from), add];
        // SAFETY: the kernels take two addresses of live memory, and a number.
        let ran =
            unsafe { self.sim.launch(self.kernels[kernel as usize], shape, &parameters, STREAM) };
        ran.expect("a launch");
    }

    /// The buffer of a number gets that of another, plus 1.
    fn plus(&self, to: usize, from: usize) {
        self.launch(Kernel::Plus, self.buffers[to], self.buffers[from], 1);
    }

    fn fill(&self, buffer: usize, value: u8) {
        let span = Span::new(self.buffers[buffer], BYTES);
        // SAFETY: only the test uses the memory.
        unsafe { self.sim.memset(span, value, STREAM) }.expect("a fill");
    }

    fn copy(&self, to: DevicePtr, from: DevicePtr) {
        // SAFETY: both are live, and only the test uses them.
        unsafe { self.sim.memcpy(to, from, BYTES, STREAM) }.expect("a copy");
    }

    /// The lowest bytes of the first two words.
    fn words(&self, of: usize) -> [u8; 2] {
        self.copy(self.seen, self.buffers[of]);
        [0, 4].map(|at| peek(self.seen.0 + at))
    }

    /// How many of some launches are not executed.
    fn repeated(&self, launches: impl FnOnce()) -> u64 {
        let before = self.sim.repeated_launches();
        launches();
        self.sim.repeated_launches() - before
    }
}

fn program() -> Program {
    Program::new(HostFaults::Real).expect("genuine faults of the host")
}

#[test]
fn a_loop_of_launches_is_executed_once_and_takes_the_time_of_all() -> Result<()> {
    let times = [program(), Program::executing(HostFaults::Real)?].map(|program| {
        program.fill(0, 3);
        let begin = program.sim.clock_ns();
        for _ in 0..10 {
            program.plus(1, 0);
            program.plus(2, 1);
        }
        (program.sim.repeated_launches(), program.sim.clock_ns() - begin, program.words(2))
    });
    let [(repeated, time_ns, words), (none, executed_ns, executed)] = times;
    assert_eq!((repeated, none), (18, 0));
    assert_eq!(time_ns, executed_ns);
    assert_eq!((words, executed), ([5; 2], [5; 2]));
    Ok(())
}

#[test]
fn calls_that_ask_and_wait_come_between_repeated_launches() -> Result<()> {
    let program = program();
    let event = program.sim.event_create(DEVICE, EventFlags::empty())?;
    let repeated = program.repeated(|| {
        for _ in 0..3 {
            program.plus(1, 0);
            program.sim.event_record(event, STREAM).expect("an event");
            program.sim.event_synchronize(event).expect("an event");
            program.sim.stream_synchronize(STREAM).expect("a stream");
            program.sim.memory_info(DEVICE).expect("a device");
        }
    });
    assert_eq!(repeated, 2);
    Ok(())
}

#[test]
fn a_launch_runs_again_after_its_memory_may_have_changed() {
    let program = program();
    let [a, b, c] = program.buffers[..] else { panic!("three buffers") };
    let changes: [(&str, &dyn Fn()); 7] = [
        ("a fill of what it reads", &|| program.fill(0, 7)),
        ("a fill of what it writes", &|| program.fill(1, 7)),
        ("a copy to what it reads", &|| program.copy(a, c)),
        ("a copy to what it writes", &|| program.copy(b, c)),
        ("a kernel that writes what it reads", &|| program.plus(0, 2)),
        ("a kernel that writes what it writes", &|| program.plus(1, 2)),
        ("an atomic on what it writes", &|| program.launch(Kernel::Total, b, c, 1)),
    ];
    for (name, change) in changes {
        program.fill(0, 1);
        program.fill(2, 5);
        program.plus(1, 0);
        assert_eq!(program.repeated(|| program.plus(1, 0)), 1, "{name}: without it");
        change();
        assert_eq!(program.repeated(|| program.plus(1, 0)), 0, "{name}");
        program.copy(program.seen, a);
        let expected = peek(program.seen.0) + 1;
        assert_eq!(program.words(1), [expected; 2], "{name}");
    }
}

#[test]
fn a_kernel_that_writes_other_memory_leaves_a_launch_repeated() {
    let program = program();
    program.plus(1, 0);
    program.launch(Kernel::Total, program.buffers[2], program.buffers[2], 1);
    assert_eq!(program.repeated(|| program.plus(1, 0)), 1);
}

#[test]
fn launches_that_differ_are_executed() {
    let program = program();
    let [a, b, c] = program.buffers[..] else { panic!("three buffers") };
    let others: [(&str, &dyn Fn()); 5] = [
        ("other parameters", &|| program.launch(Kernel::Plus, b, a, 2)),
        ("other memory", &|| program.launch(Kernel::Plus, b, c, 1)),
        ("another kernel", &|| program.launch(Kernel::Loud, b, a, 1)),
        ("another grid", &|| {
            program.launch_as(Kernel::Plus, LaunchShape::linear(2, THREADS), [b, a], 1);
        }),
        ("another block", &|| {
            program.launch_as(Kernel::Plus, LaunchShape::linear(1, 32), [b, a], 1);
        }),
    ];
    for (name, other) in others {
        program.plus(1, 0);
        assert_eq!(program.repeated(other), 0, "{name}");
    }
}

#[test]
fn launches_that_do_more_than_write_what_they_do_not_read_run_each_time() -> Result<()> {
    let program = program();
    let sim = &program.sim;
    let [a, b, _] = program.buffers[..] else { panic!("three buffers") };
    let managed = sim.alloc_managed(BYTES, AttachFlags::GLOBAL)?;
    let shared = sim.alloc_device(DEVICE, BYTES)?;
    sim.ipc_mem_handle(shared)?;
    let cases: [(&str, Kernel, DevicePtr, DevicePtr); 8] = [
        ("reads what it writes", Kernel::Plus, a, a),
        ("atomics", Kernel::Total, a, b),
        ("text", Kernel::Loud, a, b),
        ("reads managed memory", Kernel::Plus, a, managed),
        ("writes managed memory", Kernel::Plus, managed, a),
        ("reads pinned memory", Kernel::Plus, a, program.seen),
        ("writes pinned memory", Kernel::Plus, program.seen, a),
        ("memory of several processes", Kernel::Plus, a, shared),
    ];
    for (name, kernel, to, from) in cases {
        let repeated =
            program.repeated(|| (0..3).for_each(|_| program.launch(kernel, to, from, 1)));
        assert_eq!(repeated, 0, "{name}");
    }
    Ok(())
}

#[test]
fn launches_run_each_time_where_the_host_is_not_seen_or_has_an_address() -> Result<()> {
    for program in [Program::new(HostFaults::Declared)?, Program::executing(HostFaults::Real)?] {
        assert_eq!(program.repeated(|| (0..3).for_each(|_| program.plus(1, 0))), 0);
    }
    Ok(())
}

#[test]
fn a_recorded_launch_is_executed() -> Result<()> {
    let program = program();
    program.plus(1, 0);
    let trace = || {
        let [to, from] = [1, 0].map(|buffer| KernelParam::from(program.buffers[buffer]));
        let parameters = [to, from, KernelParam::new(1_u32.to_ne_bytes())];
        let (shape, kernel) = (LaunchShape::linear(1, THREADS), program.kernels[0]);
        // SAFETY: the kernel takes two addresses of live memory, and a number.
        unsafe { program.sim.launch_traced(kernel, shape, &parameters, STREAM) }
    };
    let traced = trace()?;
    assert_eq!(trace()?, traced);
    assert_eq!(program.sim.repeated_launches(), 0);
    assert!(traced.work.bytes_read > 0);
    Ok(())
}

/// A step of a program that launches kernels.
#[derive(Debug, Clone, Copy)]
enum Step {
    Launch(Kernel, usize, usize, u32),
    Fill(usize, u8),
    Copy(usize, usize),
    /// Frees a buffer and allocates it again.
    Renew(usize),
    Look(usize),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    let buffer = 0..3_usize;
    let kernel =
        prop_oneof![8 => Just(Kernel::Plus), 1 => Just(Kernel::Total), 1 => Just(Kernel::Loud)];
    prop_oneof![
        12 => (kernel, buffer.clone(), buffer.clone(), 1..3_u32)
            .prop_map(|(kernel, to, from, add)| Step::Launch(kernel, to, from, add)),
        1 => (buffer.clone(), 0..3_u8).prop_map(|(buffer, value)| Step::Fill(buffer, value)),
        1 => (buffer.clone(), buffer.clone()).prop_map(|(to, from)| Step::Copy(to, from)),
        1 => buffer.clone().prop_map(Step::Renew),
        1 => buffer.prop_map(Step::Look),
        3 => Just(Step::Wait),
    ]
}

impl Program {
    /// Carries out a step, and says how the machine looks then.
    fn act(&mut self, step: Step) -> (u64, Option<[u8; 2]>) {
        let mut seen = None;
        match step {
            Step::Launch(kernel, to, from, add) => {
                self.launch(kernel, self.buffers[to], self.buffers[from], add);
            }
            Step::Fill(buffer, value) => self.fill(buffer, value),
            Step::Copy(to, from) if to != from => self.copy(self.buffers[to], self.buffers[from]),
            Step::Copy(..) => {}
            Step::Renew(buffer) => {
                // SAFETY: nothing uses the memory.
                unsafe { self.sim.free(self.buffers[buffer]) }.expect("live memory");
                self.buffers[buffer] = self.sim.alloc_device(DEVICE, BYTES).expect("memory");
            }
            Step::Look(buffer) => seen = Some(self.words(buffer)),
            Step::Wait => self.sim.stream_synchronize(STREAM).expect("a stream"),
        }
        (self.sim.clock_ns(), seen)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn programs_run_as_if_each_launch_were_executed(
        steps in prop::collection::vec((step(), 1..4_usize), 1..40),
    ) {
        let mut programs =
            [program(), Program::executing(HostFaults::Real).expect("a machine")];
        for (step, times) in steps {
            for _ in 0..times {
                let [here, there] = &mut programs;
                prop_assert_eq!(here.act(step), there.act(step), "{:?}", step);
            }
        }
        let [here, there] = &mut programs;
        for buffer in 0..3 {
            prop_assert_eq!(here.words(buffer), there.words(buffer));
        }
        prop_assert_eq!(here.sim.take_events()?, there.sim.take_events()?);
        prop_assert_eq!(there.sim.repeated_launches(), 0);
    }
}
