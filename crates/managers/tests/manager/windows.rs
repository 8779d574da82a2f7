//! More managed memory than the device has, in windows.

use pagewise::{Backend, Device, DeviceAccess, DeviceTouch, Machine, MemoryAdvice, Place, observe};
use pagewise_managers::manager::{
    Array, ArrayMemory, ArrayRequest, ChunkParameters, ChunkPolicy, Dtype, Leaving, LimitMode,
    ManagerError, ManagerOptions, MemoryManager, Registration, Result,
};

use crate::queue::runs;

const CHUNK: u64 = 4 << 20;

/// 16 MiB of managed memory in a share of 8 MiB: two windows of 4 MiB.
fn oversubscribed() -> Result<(MemoryManager, Array, ChunkParameters)> {
    let options = ManagerOptions::new()
        .total_bytes(2 * CHUNK)
        .limit_mode(LimitMode::Active)
        .chunk_policy(ChunkPolicy::exact());
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    let id = manager.register(Registration::new())?;
    let request = runs(16, 1 << 20).memory(ArrayMemory::Managed).oversubscribe(true);
    manager.queue_request(id, [("x", request)])?;
    let allocated = manager.allocate_queue(id)?;
    let response = &allocated.responses[&id];
    assert_eq!(response.chunked_shapes["x"], [16, 1 << 20], "it keeps its shape");
    Ok((manager, response.arr["x"].clone(), allocated.parameters))
}

/// A kernel that adds 1 to each 4 KiB of a chunk.
fn work(manager: &MemoryManager, array: &Array, chunk: u64) -> Result<()> {
    let touch = DeviceTouch {
        device: Device::FIRST.id(),
        span: array.window(chunk)?,
        stride_bytes: 4096,
        access: DeviceAccess::AtomicAdd,
        blocks: 1,
        threads: 1,
    };
    let stream = manager.get_group_stream("default")?;
    let backend: &dyn Backend = manager.machine().backend();
    // SAFETY: the array is live, and no other code uses it.
    unsafe { backend.device_touch(touch, stream.handle())? };
    Ok(())
}

#[test]
fn windows_are_the_chunks_of_the_whole_array() -> Result<()> {
    let (manager, array, parameters) = oversubscribed()?;
    assert_eq!((parameters.chunks(), parameters.chunk_length()), (4, 4));
    assert_eq!((array.shape(), array.nbytes()), (&[16, 1 << 20][..], 16 << 20));
    assert!(array.is_windowed());
    let whole = array.span()?;
    let windows = [0, 1, 2, 3].map(|chunk| array.window(chunk).map(|window| window.bytes));
    assert_eq!(windows, [Ok(CHUNK), Ok(CHUNK), Ok(CHUNK), Ok(CHUNK)]);
    assert_eq!(array.window(3)?.ptr.0 + CHUNK, whole.ptr.0 + whole.bytes);
    assert!(matches!(array.window(4), Err(ManagerError::ChunkOutOfRange { .. })));
    assert_eq!(manager.get_available_memory("default")?, 0, "two windows are its share");
    Ok(())
}

#[test]
fn what_is_entered_in_order_costs_no_fault_and_keeps_its_contents() -> Result<()> {
    let (manager, array, parameters) = oversubscribed()?;
    let stream = manager.get_group_stream("default")?;
    array.write(&vec![1_u8; 16 << 20])?;
    let (answer, seen) = observe(manager.machine(), || {
        for chunk in 0..parameters.chunks() {
            array.enter_chunk(chunk, Leaving::Kept, &stream)?;
            work(&manager, &array, chunk)?;
        }
        Ok::<(), ManagerError>(())
    })?;
    answer?;
    assert_eq!(seen.counters.gpu_faults, 0);
    assert_eq!(seen.counters.to_device.bytes, 16 << 20, "each byte once");
    assert_eq!(seen.counters.to_host.bytes, 3 * CHUNK, "all but the last have left");
    let bytes = array.to_vec::<u8>()?;
    assert!(bytes.iter().step_by(4096).all(|&byte| byte == 2));
    assert!(bytes.iter().skip(1).step_by(4096).all(|&byte| byte == 1));
    Ok(())
}

#[test]
fn a_chunk_that_is_entered_brings_the_next_along() -> Result<()> {
    let (manager, array, _) = oversubscribed()?;
    let stream = manager.get_group_stream("default")?;
    array.write(&vec![1_u8; 16 << 20])?;
    let (answer, seen) = observe(manager.machine(), || {
        array.enter_chunk(0, Leaving::Kept, &stream)?;
        work(&manager, &array, 0)?;
        work(&manager, &array, 1)
    })?;
    answer?;
    assert_eq!((seen.counters.gpu_faults, seen.counters.to_device.bytes), (0, 2 * CHUNK));
    Ok(())
}

#[test]
fn worthless_contents_leave_without_a_copy_and_are_not_read() -> Result<()> {
    let (manager, array, parameters) = oversubscribed()?;
    let stream = manager.get_group_stream("default")?;
    array.write(&vec![1_u8; 16 << 20])?;
    let (answer, seen) = observe(manager.machine(), || {
        (0..parameters.chunks())
            .try_for_each(|chunk| array.enter_chunk(chunk, Leaving::Discarded, &stream))
    })?;
    answer?;
    assert_eq!((seen.counters.to_device.bytes, seen.counters.to_host.bytes), (16 << 20, 0));
    assert!(array.to_vec::<u8>().is_err(), "nobody has written it again");
    array.write(&vec![2_u8; 16 << 20])?;
    assert!(array.to_vec::<u8>().is_ok());
    Ok(())
}

#[test]
fn what_fits_is_not_in_windows() -> Result<()> {
    let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    let request = runs(16, 100).memory(ArrayMemory::Managed).oversubscribe(true);
    manager.queue_request(id, [("x", request)])?;
    let array = manager.allocate_queue(id)?.responses[&id].arr["x"].clone();
    assert!(!array.is_windowed());
    assert!(matches!(array.window(0), Err(ManagerError::WrongMemory { .. })));
    array.advise(MemoryAdvice::SetPreferredLocation(Place::HOST))?;
    array.prefetch(Device::FIRST, &manager.get_stream(id)?)?;
    manager.free("x");
    assert_eq!(array.advise(MemoryAdvice::SetReadMostly), Err(ManagerError::ArrayGone));
    Ok(())
}

#[test]
fn windows_and_chunks_are_divided_alike() -> Result<()> {
    let (manager, _, _) = oversubscribed()?;
    manager.free("x");
    let id = manager.instances()[0];
    let managed = runs(32, 1 << 20).memory(ArrayMemory::Managed).oversubscribe(true);
    let device = ArrayRequest::new(Dtype::U8, [1 << 20, 32]).chunk_axis(1).total_runs(32);
    manager.queue_request(id, [("m", managed), ("d", device)])?;
    let allocated = manager.allocate_queue(id)?;
    // 8 MiB for two windows and one chunk of 1 MiB for each run.
    assert_eq!(allocated.parameters.chunk_length(), 2);
    let arrays = &allocated.responses[&id].arr;
    assert_eq!(arrays["m"].shape(), [32, 1 << 20]);
    assert_eq!(arrays["d"].shape(), [1 << 20, 2]);
    assert_eq!(arrays["m"].window(15)?.bytes, 2 << 20);
    Ok(())
}
