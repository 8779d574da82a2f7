//! The memory manager over every back end that needs no GPU: the same program, the same answers.
//!
//! The simulator, a recorder around it, and the CUDA back end over the simulated driver.
#![cfg(target_os = "linux")]

use std::fmt::Write;
use std::sync::Arc;

use pagewise::{Backend, Device, DeviceAccess, DeviceTouch, Machine, SimBackend, SimConfig};
use pagewise_cuda::CudaBackend;
use pagewise_managers::manager::{
    ArrayMemory, ArrayRequest, ChunkPolicy, Dtype, HostMemory, Leaving, LimitMode, ManagerOptions,
    MemoryManager, Registration, Result,
};
use pagewise_tests::driver::SimulatedDriver;
use pagewise_tests::gpu::gpu;
use pagewise_trace::record::Recorder;

/// Each run a MiB, along the first axis.
fn runs(runs: u64, memory: ArrayMemory) -> ArrayRequest {
    let request = ArrayRequest::new(Dtype::U8, [runs, 1 << 20]);
    request.chunk_axis(0).total_runs(runs).memory(memory)
}

/// Divides, copies, works, evicts and frees, and writes down what comes of it.
fn transcript(machine: &Machine) -> Result<String> {
    let free = || machine.backend().memory_info(Device::FIRST.id()).map(|info| info.free_bytes);
    let before = free()?;
    let mut text = String::new();
    for allocator in ["default", "cupy", "cupy_async"] {
        let options = ManagerOptions::new()
            .total_bytes(64 << 20)
            .limit_mode(LimitMode::Active)
            .allocator(allocator.parse()?)
            .chunk_policy(ChunkPolicy::default().buffers(2));
        let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
        let in_group = || Registration::new().stream_group("solver");
        let (a, b) = (manager.register(in_group())?, manager.register(in_group())?);
        let managed = runs(40, ArrayMemory::Managed);
        manager.queue_request(
            a,
            [
                ("device", runs(40, ArrayMemory::Device)),
                ("pinned", runs(2, ArrayMemory::Pinned).unchunkable(true).total_runs(1)),
            ],
        )?;
        manager.queue_request(b, [("window", managed.oversubscribe(true))])?;
        let allocated = manager.allocate_queue(b)?;
        writeln!(text, "{allocator} {:?}", allocated.parameters).expect("a string");
        let device = &allocated.responses[&a].arr["device"];
        let window = &allocated.responses[&b].arr["window"];
        let pinned = &allocated.responses[&a].arr["pinned"];
        pinned.write(&vec![9_u8; 2 << 20])?;
        writeln!(text, "{:?} {}", device.shape(), pinned.to_vec::<u8>()?[1 << 20])
            .expect("a string");
        let stream = manager.get_stream(a)?;
        for chunk in 0..allocated.parameters.chunks() {
            let shape = device.shape();
            let kind = [HostMemory::Pinned, HostMemory::Host, HostMemory::Memmap];
            let kind = kind[(chunk % 3) as usize];
            let mut host = manager.create_host_array(shape, Dtype::U8, kind, None)?;
            host.as_mut_slice::<u8>()?.fill(chunk as u8 + 1);
            manager.to_device_chunk(a, chunk, &[&host], &[device])?;
            host.as_mut_slice::<u8>()?.fill(0);
            manager.from_device_chunk(a, chunk, &[device], &mut [&mut host])?;
            writeln!(text, "{:?}", host.as_slice::<u8>()?.last()).expect("a string");
            window.enter_chunk(chunk, Leaving::Kept, &stream)?;
            let touch = DeviceTouch {
                device: Device::FIRST.id(),
                span: window.window(chunk)?,
                stride_bytes: 4096,
                access: DeviceAccess::Write(chunk as u8 + 1),
                blocks: 1,
                threads: 1,
            };
            // SAFETY: the array is live, and no other code uses it.
            unsafe { machine.backend().device_touch(touch, stream.handle())? };
        }
        stream.synchronize()?;
        let bytes = window.to_vec::<u8>()?;
        let sum: u64 = bytes.iter().step_by(4096).map(|&byte| u64::from(byte)).sum();
        writeln!(text, "{sum}").expect("a string");
        manager.queue_request(a, [("more", runs(40, ArrayMemory::Device).unchunkable(true))])?;
        let refused = manager.allocate_queue(a).unwrap_err();
        writeln!(text, "{refused}").expect("a string");
        manager.invalidate_all();
        writeln!(text, "{}", manager.allocate_queue(a)?.parameters.chunks()).expect("a string");
        manager.set_allocator("default".parse()?)?;
        // A pool gives unused memory back when a stream is waited for.
        manager.sync_stream(a)?;
    }
    if machine.capabilities().deterministic {
        assert_eq!(free()?, before, "of a real device others take memory too");
    }
    writeln!(text, "{}", machine.failures_on_drop()).expect("a string");
    Ok(text)
}

fn sim() -> Result<SimBackend> {
    Ok(SimBackend::new(SimConfig::h200())?)
}

#[test]
fn the_manager_does_the_same_on_every_back_end() -> Result<()> {
    let plain = transcript(&Machine::from(Arc::new(sim()?)))?;
    assert!(plain.ends_with("\n0\n"), "{plain}");
    let recorder = Recorder::new(sim()?);
    assert_eq!(transcript(&Machine::from(Arc::new(recorder)))?, plain);
    let driver = SimulatedDriver::load();
    let cuda: Arc<dyn Backend> = Arc::new(driver.fresh(""));
    assert_eq!(transcript(&Machine::from(cuda))?, plain);
    Ok(())
}

#[test]
fn the_manager_does_the_same_on_a_gpu() -> Result<()> {
    let Some(cuda) = gpu(CudaBackend::builder()) else { return Ok(()) };
    let plain = transcript(&Machine::from(Arc::new(sim()?)))?;
    assert_eq!(transcript(&Machine::from(Arc::new(cuda)))?, plain);
    Ok(())
}
