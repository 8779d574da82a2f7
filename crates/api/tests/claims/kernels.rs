//! Kernels of modules: launches wait and are waited for, and each call can fail.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::{Sweep, sweep};
use pagewise::launch::Module;
use pagewise::{
    Code, Device, ErrorKind, Machine, ManagedBuffer, Result, SimBackend, SimConfig, Stream,
};

const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 total = 1;
.visible .entry add(.param .u64 to, .param .u32 value)
{
    .reg .b64 %d<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [value];
    atom.global.add.u32 %r2, [%d1], %r1;
    ret;
}
.visible .entry forever()
{
AGAIN:
    bra AGAIN;
}
";

#[test]
fn every_call_that_fails_is_reported_and_runs_no_kernel() -> Result<()> {
    let calls = sweep(Code::OUT_OF_MEMORY, pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend.clone());
        let stream = Stream::new(&machine, Device::FIRST)?;
        let mut sum = ManagedBuffer::from_slice(&machine, &[5_u32])?;
        let answer = backend.watch(|| {
            let module = Module::from_ptx(&machine, Device::FIRST, PTX)?;
            let add = module.kernel("add")?;
            let total = module.managed_variable::<u32>("total")?;
            assert!(add.occupancy(32, 0)? > 0 && add.best_block(0)?.block_threads > 0);
            add.set_dynamic_shared_max(1024)?;
            add.attribute(pagewise::FunctionAttribute::NUM_REGS)?;
            drop(total);
            // SAFETY: the kernel adds to the one word.
            unsafe { add.launch(&stream, 2, 2, (&mut sum, 2_u32)) }
        });
        assert_eq!(answer.is_err(), failing.is_some(), "{:?}", backend.failed());
        assert_eq!(sum.read()?, [if failing.is_some() { 5 } else { 13 }]);
        Ok(())
    })?;
    assert!(calls >= 9, "{calls}");
    Ok(())
}

#[test]
fn a_module_that_cannot_be_unloaded_counts_as_a_failure_on_drop() -> Result<()> {
    Sweep::new(Code::UNKNOWN).with_destructors().run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend.clone());
        let answer = backend.watch(|| Module::from_ptx(&machine, Device::FIRST, PTX).map(drop));
        let reported = u64::from(answer.is_err()) + machine.failures_on_drop();
        assert_eq!(reported, u64::from(failing.is_some()));
        Ok(())
    })?;
    Ok(())
}

#[test]
fn a_view_and_another_stream_come_after_the_kernel_that_has_the_memory() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let streams = [Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?];
    let add = Module::from_ptx(&machine, Device::FIRST, PTX)?.kernel("add")?;
    let mut sum = ManagedBuffer::from_slice(&machine, &[0_u32; 2048])?;
    for round in 0..10 {
        // SAFETY: the kernel adds to the one word, atomically.
        unsafe { add.launch(&streams[round % 2], 1, 32, (&mut sum, 1_u32)) }?;
    }
    assert_eq!(sum.range(..1)?.read()?, [320]);
    drop(sum.discard(&streams[0])?);
    // SAFETY: no kernel starts, because the contents are discarded and the kernel is to read them.
    let error = unsafe { add.launch(&streams[0], 1, 1, (&sum, 1_u32)) }.expect_err("discarded");
    assert_eq!(error.kind(), ErrorKind::InvalidValue, "{error}");
    Ok(())
}

#[test]
fn a_stream_of_another_device_or_machine_is_refused() -> Result<()> {
    let machine = Machine::from(Arc::new(SimBackend::new(SimConfig::h200().devices(2))?));
    let add = Module::from_ptx(&machine, Device::FIRST, PTX)?.kernel("add")?;
    let mut sum = ManagedBuffer::from_slice(&machine, &[0_u32])?;
    let other = Machine::from(pagewise::sim()?);
    for stream in [Stream::new(&machine, Device::new(1)?)?, Stream::new(&other, Device::FIRST)?] {
        // SAFETY: the launch is refused before its kernel starts, so no memory is used.
        let error = unsafe { add.launch(&stream, 1, 1, (&mut sum, 1_u32)) }.expect_err("refused");
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None), "{error}");
    }
    assert_eq!(sum.read()?, [0]);
    Ok(())
}

#[test]
fn a_kernel_without_end_ends_at_the_limit_with_a_report() -> Result<()> {
    let config = SimConfig::h200().instruction_limit(Some(1 << 16));
    let machine = Machine::from(Arc::new(SimBackend::new(config)?));
    let stream = Stream::new(&machine, Device::FIRST)?;
    let forever = Module::from_ptx(&machine, Device::FIRST, PTX)?.kernel("forever")?;
    // SAFETY: the kernel accesses no memory.
    unsafe { forever.launch(&stream, 1, 1, ()) }?;
    let error = stream.synchronize().expect_err("ended");
    assert_eq!(error.code_name(), Some("CUDA_ERROR_LAUNCH_TIMEOUT"));
    assert!(error.detail().contains("kernel forever"), "{error}");
    Ok(())
}
