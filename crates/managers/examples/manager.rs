// 96 runs of 2 MiB each, for a device with room for 128 MiB: what faults and moves if managed
// memory is left to itself, and if the memory manager divides the work. No GPU is needed:
// `cargo run --example manager`.
use std::sync::Arc;

use pagewise::{
    Device, DeviceAccess, DeviceTouch, GpuProfile, Machine, ManagedBuffer, Result, SimBackend,
    SimConfig, Span, Stream, observe,
};
use pagewise_managers::manager::{
    Array, ArrayMemory, ArrayRequest, Dtype, HostMemory, Leaving, MemoryManager, Registration,
};

const RUNS: u64 = 96;
const RUN_BYTES: u64 = 2 << 20;
const PASSES: u64 = 2;

/// The outcome of a way of doing it.
#[derive(Debug)]
struct Outcome {
    faults: u64,
    moved_bytes: u64,
    milliseconds: u64,
}

fn small_gpu() -> Result<Machine> {
    let mut gpu = GpuProfile::h200();
    gpu.memory_bytes = gpu.context_bytes + (128 << 20);
    Ok(Machine::from(Arc::new(SimBackend::new(SimConfig::new(gpu))?)))
}

/// A kernel that writes to each page of some memory.
fn kernel(span: Span, stream: &Stream) -> Result<()> {
    let access = DeviceAccess::Write(1);
    let device = Device::FIRST.id();
    let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
    // SAFETY: the memory is live, and no other code uses it before the stream is done.
    unsafe { stream.machine().backend().device_touch(touch, stream.handle()).map(drop) }
}

/// Runs it, and counts. Copies between arrays are counted by the code that makes them.
fn measure(machine: &Machine, work: impl FnOnce() -> Result<u64>) -> Result<Outcome> {
    let (copied, seen) = observe(machine, work)?;
    Ok(Outcome {
        faults: seen.counters.faults(),
        moved_bytes: seen.counters.migrated_bytes() + copied?,
        milliseconds: seen.elapsed_ns / 1_000_000,
    })
}

/// Managed memory, left to itself.
fn left_alone() -> Result<Outcome> {
    let machine = small_gpu()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let all = ManagedBuffer::<u8>::zeroed(&machine, (RUNS * RUN_BYTES) as usize)?;
    measure(&machine, || (0..PASSES).try_for_each(|_| kernel(all.span(), &stream)).map(|()| 0))
}

/// The manager's answer to a request for all runs: the array, and how many chunks there are.
fn ask(manager: &MemoryManager, request: ArrayRequest) -> Result<(Array, u64)> {
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("state", request.chunk_axis(0).total_runs(RUNS))])?;
    let allocated = manager.allocate_queue(id)?;
    let array = allocated.responses[&id].arr["state"].clone();
    let chunks = allocated.parameters;
    println!("  {} chunks of {} runs", chunks.chunks(), chunks.chunk_length());
    Ok((array, chunks.chunks()))
}

/// Memory of the device for a chunk, which is copied there and back.
fn in_chunks() -> Result<Outcome> {
    let machine = small_gpu()?;
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let (array, chunks) = ask(&manager, ArrayRequest::new(Dtype::U8, [RUNS, RUN_BYTES]))?;
    let (id, stream) = (manager.instances()[0], manager.get_group_stream("default")?);
    let mut hosts = Vec::new();
    for _ in 0..chunks {
        let host = manager.create_host_array(array.shape(), Dtype::U8, HostMemory::Pinned, None)?;
        hosts.push(host);
    }
    measure(&machine, || {
        for host in (0..PASSES).flat_map(|_| 0..chunks as usize) {
            manager.to_device(id, &[&hosts[host]], &[&array])?;
            kernel(array.span()?, &stream)?;
            manager.from_device(id, &[&array], &mut [&mut hosts[host]])?;
        }
        stream.synchronize()?;
        Ok(2 * PASSES * chunks * array.nbytes())
    })
}

/// Managed memory for everything, of which two chunks at a time are on the device.
fn in_windows() -> Result<Outcome> {
    let machine = small_gpu()?;
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let request = ArrayRequest::new(Dtype::U8, [RUNS, RUN_BYTES]);
    let request = request.memory(ArrayMemory::Managed).oversubscribe(true);
    let (array, chunks) = ask(&manager, request)?;
    let stream = manager.get_group_stream("default")?;
    array.write(&vec![0_u8; (RUNS * RUN_BYTES) as usize])?;
    measure(&machine, || {
        for chunk in (0..PASSES).flat_map(|_| 0..chunks) {
            array.enter_chunk(chunk, Leaving::Kept, &stream)?;
            kernel(array.window(chunk)?, &stream)?;
        }
        Ok(0)
    })
}

fn main() -> Result<()> {
    println!("{} MiB, {PASSES} times, with room for 128 MiB", (RUNS * RUN_BYTES) >> 20);
    for (name, way) in [
        ("managed memory left alone", left_alone as fn() -> Result<Outcome>),
        ("chunks of device memory", in_chunks),
        ("windows of managed memory", in_windows),
    ] {
        println!("{name}:");
        let Outcome { faults, moved_bytes, milliseconds } = way()?;
        println!("  {faults} faults, {} MiB moved, {milliseconds} ms", moved_bytes >> 20);
    }
    Ok(())
}
