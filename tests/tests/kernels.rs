//! Kernels of modules answer alike on the simulator, on the simulated driver, and on a GPU.
#![cfg(target_os = "linux")]

#[path = "../../crates/ptx/tests/random/mod.rs"]
#[allow(dead_code, reason = "the generator is also that of another test")]
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewise::launch::Module;
use pagewise::{
    Device, DeviceBuffer, DriverVersion, ErrorKind, FunctionAttribute, Machine, ManagedBuffer,
    Result, Stream, copy,
};
use pagewise_cuda::CudaBackend;
use pagewise_tests::driver::SimulatedDriver;
use pagewise_tests::gpu::gpu;

/// No parameter has the name of a kernel: ptxas 13.0 and the compiler of driver 580 crash on that.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 8 .u64 start = 7;
.visible .global .attribute(.managed) .align 4 .u32 total = 40;
.visible .entry scale(.param .u64 values, .param .f32 factor, .param .u32 length)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .f32 %f<3>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [values];
    ld.param.f32 %f1, [factor];
    ld.param.u32 %r4, [length];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    setp.ge.u32 %p, %r1, %r4;
    @%p ret;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d1, %d1, %d2;
    ld.global.f32 %f2, [%d1];
    mul.f32 %f2, %f2, %f1;
    st.global.f32 [%d1], %f2;
    ret;
}
.visible .entry count(.param .u32 more)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<3>;
    ld.param.u32 %r1, [more];
    atom.global.add.u32 %r2, [total], %r1;
    atom.global.add.u64 %d1, [start], 1;
    ret;
}
";

/// The machines of this host, by name: the last one only where there is a GPU.
fn machines(driver: &Arc<SimulatedDriver>) -> Vec<(&'static str, Machine)> {
    let mut machines = vec![
        ("simulator", Machine::from(pagewise::sim().expect("room"))),
        ("simulated driver", Machine::from(Arc::new(driver.fresh("log=off")))),
    ];
    let gpu = gpu(CudaBackend::builder());
    machines.extend(gpu.map(|driver| ("GPU", Machine::from(Arc::new(driver)))));
    machines
}

/// Makes a claim about a module on every machine.
fn on_each(claim: impl Fn(&Machine, &Stream, &Module) -> Result<()>) {
    let driver = SimulatedDriver::load();
    for (name, machine) in machines(&driver) {
        let made = Stream::new(&machine, Device::FIRST).and_then(|stream| {
            let module = Module::from_ptx(&machine, Device::FIRST, PTX)?;
            claim(&machine, &stream, &module)
        });
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(machine.failures_on_drop(), 0, "{name}");
    }
}

#[test]
fn a_kernel_scales_managed_and_device_memory() {
    on_each(|machine, stream, module| {
        let scale = module.kernel("scale")?;
        let values: Vec<f32> = (0..5000).map(|n| n as f32).collect();
        let mut managed = ManagedBuffer::from_slice(machine, &values)?;
        let mut device = DeviceBuffer::<f32>::new(machine, Device::FIRST, 5000)?;
        copy(&mut device, &managed, stream)?;
        // SAFETY: the kernel changes `count` floats, each by one thread.
        unsafe {
            scale.launch(stream, 20, 256, (&mut managed, 2.0_f32, 5000_u32))?;
            scale.launch(stream, (20, 1), (256, 1, 1), (&mut device, 3.0_f32, 5000_u32))?;
        }
        let twice: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
        assert_eq!(managed.read()?, twice);
        copy(&mut managed, &device, stream)?;
        let thrice: Vec<f32> = values.iter().map(|value| 3.0 * value).collect();
        assert_eq!(managed.read()?, thrice);
        // SAFETY: the kernel changes the floats of the second half, each by one thread.
        unsafe { scale.launch(stream, 20, 256, (managed.range_mut(2500..)?, 0.0_f32, 2500_u32)) }?;
        assert!(managed.range(2500..)?.read()?.iter().all(|value| *value == 0.0));
        assert_eq!(managed.range(..2500)?.read()?, &thrice[..2500]);
        Ok(())
    });
}

#[test]
fn arguments_that_the_kernel_does_not_declare_are_refused_before_anything_runs() {
    on_each(|machine, stream, module| {
        let scale = module.kernel("scale")?;
        if scale.params()?.is_none() {
            return Ok(()); // A driver before CUDA 12.4.
        }
        let mut values = ManagedBuffer::from_slice(machine, &[1.0_f32; 4])?;
        let mut other = ManagedBuffer::<f32>::zeroed(pagewise::sim()?, 4)?;
        // SAFETY: no launch starts a kernel.
        let answers = unsafe {
            [
                (scale.launch(stream, 1, 4, (&mut values, 2.0_f32)), "takes 3 arguments, and 2"),
                (scale.launch(stream, 1, 4, ()), "takes 3 arguments, and 0"),
                (scale.launch(stream, 1, 4, (&mut values, 2.0_f64, 4_u32)), "has 4 bytes, and"),
                (scale.launch(stream, 1, 4, (4_u32, 2.0_f32, 4_u32)), "has 8 bytes, and"),
                (scale.launch(stream, 1, 4, (&mut other, 2.0_f32, 4_u32)), "another machine"),
            ]
        };
        for (answer, why) in answers {
            let error = answer.expect_err(why);
            assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None), "{error}");
            assert!(error.to_string().contains(why), "{why}: {error}");
        }
        assert_eq!(values.read()?, [1.0; 4]);
        // SAFETY: no kernel starts: a grid has at least one block.
        let error = unsafe { scale.launch(stream, 0, 4, (&mut values, 2.0_f32, 4_u32)) };
        assert_eq!(error.expect_err("no block").code(), Some(1));
        Ok(())
    });
}

#[test]
fn a_variable_is_one_buffer_at_a_time_and_has_what_kernels_leave() {
    on_each(|machine, stream, module| {
        let total = module.managed_variable::<u32>("total")?;
        let again = module.managed_variable::<u32>("total").expect_err("a buffer holds it");
        assert!(again.to_string().contains("`total`"), "{again}");
        // SAFETY: the kernel adds to the two variables, atomically, and `read` comes after.
        unsafe { module.kernel("count")?.launch(stream, 2, 32, (1_u32,)) }?;
        stream.synchronize()?;
        assert_eq!(total.read()?, [104]);
        drop(total);
        assert_eq!(module.managed_variable::<u8>("total")?.len(), 4);
        let start = module.device_variable::<u64>("start")?;
        let mut host = ManagedBuffer::<u64>::zeroed(machine, 1)?;
        copy(&mut host, &start, stream)?;
        assert_eq!(host.read()?, [71]);
        drop(start);
        for (answer, why) in [
            (module.device_variable::<[u8; 3]>("start").map(drop), "whole"),
            (module.managed_variable::<u64>("start").map(drop), "managed"),
            (module.device_variable::<u32>("total").map(drop), "managed"),
            (module.managed_variable::<u32>("none").map(drop), "none"),
        ] {
            let error = answer.expect_err(why);
            assert!(error.to_string().contains(why), "{why}: {error}");
        }
        Ok(())
    });
}

#[test]
fn a_kernel_has_the_figures_of_its_text() {
    on_each(|_, _, module| {
        let scale = module.kernel("scale")?;
        assert_eq!(scale.attribute(FunctionAttribute::PTX_VERSION)?, 70);
        assert_eq!(scale.attribute(FunctionAttribute::SHARED_SIZE_BYTES)?, 0);
        assert_eq!(scale.attribute(FunctionAttribute::MAX_THREADS_PER_BLOCK)?, 1024);
        scale.set_dynamic_shared_max(64 << 10)?;
        assert_eq!(scale.attribute(FunctionAttribute::MAX_DYNAMIC_SHARED_SIZE_BYTES)?, 64 << 10);
        assert_eq!(scale.set_dynamic_shared_max(u32::MAX).expect_err("").code(), None);
        assert_eq!(scale.set_dynamic_shared_max(1 << 30).expect_err("").code(), Some(1));
        let best = scale.best_block(0)?;
        let blocks = scale.occupancy(best.block_threads, 0)?;
        assert!(blocks > 0 && best.grid_blocks.is_multiple_of(blocks), "{best:?} {blocks}");
        assert!(scale.occupancy(256, 64 << 10)? < scale.occupancy(256, 0)?);
        assert_eq!(scale.occupancy(2048, 0)?, 0);
        Ok(())
    });
}

#[test]
fn wrong_text_and_unknown_names_are_refused() {
    on_each(|machine, _, module| {
        let error = module.kernel("none").expect_err("no such kernel");
        assert_eq!((error.code(), error.name()), (Some(500), Some("none")), "{error}");
        let wrong = PTX.replace(".entry scale(", ".entry scale((");
        let error = Module::from_ptx(machine, Device::FIRST, &wrong).expect_err("no PTX");
        assert_eq!(error.code_name(), Some("CUDA_ERROR_INVALID_PTX"), "{error}");
        Ok(())
    });
}

#[test]
fn a_wild_access_is_the_error_of_all_later_calls() {
    let driver = SimulatedDriver::load();
    let machines = [
        Machine::from(pagewise::sim().expect("room")),
        Machine::from(Arc::new(driver.fresh("log=off"))),
    ];
    for machine in machines {
        let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
        let module = Module::from_ptx(&machine, Device::FIRST, PTX).expect("PTX");
        let scale = module.kernel("scale").expect("a kernel");
        // SAFETY: the kernel accesses address 64, where no memory is.
        let launched = unsafe { scale.launch(&stream, 1, 1, (64_u64, 2.0_f32, 1_u32)) };
        launched.expect("launches are asynchronous");
        let error = stream.synchronize().expect_err("illegal address");
        assert_eq!(error.code(), Some(700), "{error}");
        let later = ManagedBuffer::<u8>::zeroed(&machine, 1).expect_err("lost");
        assert_eq!(later.code(), Some(700), "{later}");
        drop((scale, module, stream));
        assert!(machine.failures_on_drop() > 0, "the module could not be unloaded");
    }
}

#[test]
fn a_driver_that_does_not_tell_parameters_launches_unchecked() {
    let driver = SimulatedDriver::load();
    let ceiling = driver.builder().max_version(DriverVersion::CUDA_12_2);
    let machine = Machine::from(Arc::new(ceiling.open().expect("opens")));
    let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
    let module = Module::from_ptx(&machine, Device::FIRST, PTX).expect("PTX");
    let scale = module.kernel("scale").expect("a kernel");
    assert_eq!(scale.params(), Ok(None));
    let mut values = ManagedBuffer::from_slice(&machine, &[1.0_f32; 4]).expect("room");
    // SAFETY: the kernel changes 4 floats, each by one thread.
    unsafe { scale.launch(&stream, 1, 4, (&mut values, 2.0_f32, 4_u32)) }.expect("starts");
    assert_eq!(values.read().expect("done"), [2.0; 4]);
}

/// The hash of what the random kernel of a seed leaves in managed memory.
fn left_behind(machine: &Machine, stream: &Stream, seed: u64) -> Result<u64> {
    let module = Module::from_ptx(machine, Device::FIRST, &random::kernel(seed))?;
    let mut numbers = random::Random::new(seed);
    let input: Vec<u32> = (0..random::INPUT_WORDS).map(|_| numbers.next() as u32).collect();
    let input = ManagedBuffer::from_slice(machine, &input)?;
    let bytes = (random::THREADS * random::THREAD_BYTES) as usize;
    let mut output = ManagedBuffer::<u8>::zeroed(machine, bytes)?;
    let kernel = module.kernel("random")?;
    // SAFETY: the kernel reads the input and writes its threads' parts of the output.
    unsafe { kernel.launch(stream, 1, random::THREADS, (&input, &mut output)) }?;
    Ok(output.read()?.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    }))
}

/// Kernels that the optimiser of `ptxas` breaks leave on the simulator what an H200 left without
/// optimisations; a GPU is not asked about them.
#[test]
fn random_kernels_leave_the_bytes_that_an_h200_left() -> Result<()> {
    let recorded = include_str!("../corpus/expected/random.txt");
    let unoptimised = include_str!("../corpus/expected/random_unoptimised.txt");
    let broken: BTreeMap<&str, &str> =
        unoptimised.lines().filter_map(|line| line.split_once(' ')).collect();
    let driver = SimulatedDriver::load();
    for (name, machine) in machines(&driver) {
        let stream = Stream::new(&machine, Device::FIRST)?;
        for (seed, hash) in (0..).zip(recorded.lines()) {
            let broken = broken.get(&*seed.to_string()).copied();
            if broken.is_some() && name == "GPU" {
                continue;
            }
            let left = left_behind(&machine, &stream, seed)?;
            assert_eq!(format!("{left:016x}"), broken.unwrap_or(hash), "{name}, seed {seed}");
        }
    }
    Ok(())
}
