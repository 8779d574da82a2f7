//! A launch on a driver runs the kernel of a module over the operands that it declares.
#![cfg(target_os = "linux")]

use std::sync::Arc;

use pagewise::launch::{Module, read, write};
use pagewise::{Device, ErrorKind, KernelParam, Launch, Machine, ManagedBuffer, Result, Stream};
use pagewise_cuda::CudaBackend;
use pagewise_tests::driver::{SimulatedDriver, WRITE_KERNEL};
use pagewise_tests::gpu::gpu;

/// `c[i] = a[i] + b[i]` for each `i` below `n`, by a grid-stride loop.
const VECTOR_ADD: &str = "
.version 6.0
.target sm_60
.address_size 64
.visible .entry vector_add(
    .param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [a];
    ld.param.u64 %d2, [b];
    ld.param.u64 %d3, [c];
    ld.param.u32 %r6, [n];
    cvta.to.global.u64 %d1, %d1;
    cvta.to.global.u64 %d2, %d2;
    cvta.to.global.u64 %d3, %d3;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r5, %nctaid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.lo.u32 %r5, %r5, %r2;
NEXT:
    setp.ge.u32 %p1, %r4, %r6;
    @%p1 bra DONE;
    mul.wide.u32 %d4, %r4, 4;
    add.u64 %d5, %d1, %d4;
    add.u64 %d6, %d2, %d4;
    add.u64 %d7, %d3, %d4;
    ld.global.f32 %f1, [%d5];
    ld.global.f32 %f2, [%d6];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%d7], %f3;
    add.u32 %r4, %r4, %r5;
    bra NEXT;
DONE:
    ret;
}
";

const LENGTH: usize = 1 << 20;

/// The sums of two vectors, by one declaration for any back end.
fn sums(machine: &Machine, launch: &Launch) -> Result<Vec<f32>> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let a: Vec<f32> = (0..LENGTH).map(|n| n as f32).collect();
    let a = ManagedBuffer::from_slice(machine, &a)?;
    let b = ManagedBuffer::from_slice(machine, &vec![0.5_f32; LENGTH])?;
    let mut c = ManagedBuffer::<f32>::zeroed(machine, LENGTH)?;
    launch.run(&stream, (read(&a), read(&b), write(&mut c)), |(a, b, c)| {
        (0..c.len()).for_each(|i| c[i] = a[i] + b[i]);
    })?;
    Ok(c.read()?.to_vec())
}

fn add() -> Launch {
    Launch::new(Device::FIRST).grid(132, 256)
}

#[test]
fn one_declaration_adds_vectors_on_the_simulator_and_on_a_gpu() -> Result<()> {
    let expected: Vec<f32> = (0..LENGTH).map(|n| n as f32 + 0.5).collect();
    assert_eq!(sums(&Machine::from(pagewise::sim()?), &add())?, expected);
    let Some(driver) = gpu(CudaBackend::builder()) else { return Ok(()) };
    let machine = Machine::from(Arc::new(driver));
    let without = sums(&machine, &add()).expect_err("a driver runs kernels");
    assert_eq!(without.kind(), ErrorKind::Unsupported, "{without}");
    let kernel = Module::from_ptx(&machine, Device::FIRST, VECTOR_ADD)?.kernel("vector_add")?;
    let length = KernelParam::new((LENGTH as u32).to_ne_bytes());
    // SAFETY: the kernel takes three pointers and a length. It reads `length` floats from each of
    // the first two and writes as many to the third, one thread each.
    let launch = unsafe { add().kernel(&kernel, [length]) };
    assert_eq!(sums(&machine, &launch)?, expected);
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

/// The simulated driver runs the touch kernels alone: `pagewise_write` writes a byte to each place.
#[test]
fn a_driver_runs_the_kernel_and_not_the_closure() -> Result<()> {
    let driver = SimulatedDriver::load();
    let machine = Machine::from(Arc::new(driver.fresh("devices=2")));
    let module = Module::from_ptx(&machine, Device::FIRST, WRITE_KERNEL)?;
    let kernel = module.kernel("pagewise_write")?;
    drop(module);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut bytes = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    let mut result = ManagedBuffer::<u64>::zeroed(&machine, 1)?;
    drop(bytes.discard(&stream)?);
    let value = KernelParam::new(7_u32.to_ne_bytes());
    let numbers = [8192_u64, 1].map(|number| KernelParam::new(number.to_ne_bytes()));
    let address = KernelParam::from(result.region().span().ptr);
    let params = numbers.into_iter().chain([value, address]);
    // SAFETY: the kernel takes an address, the number of places, their stride, a value and the
    // address of a number that it does not use. It writes each of the 8192 bytes.
    let launch = unsafe { Launch::new(Device::FIRST).grid(2, 32).kernel(&kernel, params) };
    launch.run(&stream, (write(&mut bytes),), |_| panic!("the kernel runs instead"))?;
    assert_eq!(bytes.read()?, [7; 8192], "written, so the discard is settled");
    result.write()?[0] = 1;

    let missing = Launch::new(Device::FIRST).run(&stream, (write(&mut bytes),), |_| ());
    let error = missing.expect_err("no kernel");
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
    assert!(error.detail().contains("Launch::kernel"), "{error}");
    let second = Device::new(1)?;
    let there = Stream::new(&machine, second)?;
    // SAFETY: the launch is refused, so no kernel runs.
    let elsewhere = unsafe { Launch::new(second).kernel(&kernel, []) };
    let error = elsewhere.run(&there, (write(&mut bytes),), |_| ()).expect_err("of device 0");
    assert_eq!(error.kind(), ErrorKind::InvalidValue, "{error}");
    assert!(machine.backend().capabilities().kernels);
    Ok(())
}

#[test]
fn text_that_is_no_ptx_does_not_reach_the_driver() -> Result<()> {
    let driver = SimulatedDriver::load();
    let machine = Machine::from(Arc::new(driver.fresh("devices=1")));
    for text in ["\u{7f}ELF", ".version 6.0\0"] {
        let error = Module::from_ptx(&machine, Device::FIRST, text).expect_err("a binary");
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    }
    Ok(())
}
