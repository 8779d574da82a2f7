//! Host arrays, copies, spilling, and buffers that are used again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pagewise::inject::FaultInjector;
use pagewise::intercept::Operation;
use pagewise::{Device, Machine};
use pagewise_managers::manager::{
    ArrayMemory, ArrayRequest, ChunkBufferPool, ChunkPolicy, Dtype, HostMemory, ManagerError,
    ManagerOptions, MemoryManager, Registration, Result, SpillLevel,
};

use crate::queue::{manager_of, runs};

const MEMORIES: [HostMemory; 3] = [HostMemory::Pinned, HostMemory::Host, HostMemory::Memmap];

#[test]
fn host_arrays_are_zeros_or_like_another() -> Result<()> {
    let manager = manager_of(1000)?;
    for memory in MEMORIES {
        for shape in [&[6][..], &[2, 3], &[1, 2, 3]] {
            let mut array = manager.create_host_array(shape, Dtype::F32, memory, None)?;
            assert_eq!((array.shape(), array.nbytes(), array.memory()), (shape, 24, memory));
            assert_eq!(array.as_slice::<f32>()?, [0.0; 6]);
            array.as_mut_slice::<f32>()?[4] = 2.5;
            for other in MEMORIES {
                let like = manager.create_host_array(&[6], Dtype::F32, other, Some(&array))?;
                assert_eq!(like.as_slice::<f32>()?, [0.0, 0.0, 0.0, 0.0, 2.5, 0.0]);
            }
            assert!(matches!(array.as_slice::<f64>(), Err(ManagerError::Mismatch { .. })));
            let unlike = manager.create_host_array(&[7], Dtype::F32, memory, Some(&array));
            assert!(matches!(unlike, Err(ManagerError::Mismatch { .. })));
        }
        let empty = manager.create_host_array(&[0, u64::MAX, 9], Dtype::F64, memory, None)?;
        assert_eq!((empty.nbytes(), empty.as_slice::<f64>()?), (0, &[][..]));
        let huge = manager.create_host_array(&[u64::MAX, 9], Dtype::F64, memory, None);
        assert!(matches!(huge, Err(ManagerError::InvalidRequest { .. })));
    }
    assert!("managed".parse::<HostMemory>().is_err());
    Ok(())
}

#[test]
fn what_goes_to_a_device_comes_back() -> Result<()> {
    let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    // More than a staging buffer, and no multiple of one.
    let words = (65 << 20) / 4 + 3;
    for (memory, len) in [
        (ArrayMemory::Device, words),
        (ArrayMemory::Managed, 5000),
        (ArrayMemory::Pinned, 5000),
        (ArrayMemory::Mapped, 5000),
    ] {
        let request = ArrayRequest::new(Dtype::U32, [len]).memory(memory);
        manager.queue_request(id, [("x", request)])?;
        let array = manager.allocate_queue(id)?.responses[&id].arr["x"].clone();
        for (way, back) in [(0, 1), (1, 2), (2, 0)] {
            let make = |memory| manager.create_host_array(&[len], Dtype::U32, memory, None);
            let (mut from, mut to) = (make(MEMORIES[way])?, make(MEMORIES[back])?);
            for (n, value) in from.as_mut_slice::<u32>()?.iter_mut().enumerate() {
                *value = n as u32 ^ way as u32;
            }
            manager.to_device(id, &[&from], &[&array])?;
            manager.from_device(id, &[&array], &mut [&mut to])?;
            assert!(to.as_slice::<u32>()? == from.as_slice::<u32>()?, "{memory:?} {way}");
        }
        if memory != ArrayMemory::Device {
            assert_eq!(array.to_vec::<u32>()?[17], 17 ^ 2);
            array.write(&vec![5_u32; 5000])?;
            assert_eq!(array.to_vec::<u32>()?, vec![5; 5000]);
        }
    }
    Ok(())
}

#[test]
fn copies_are_checked_before_any_is_made() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    let request = |len: u64| ArrayRequest::new(Dtype::F32, [len]);
    manager.queue_request(id, [("x", request(10)), ("y", request(10)), ("z", request(0))])?;
    let arrays = manager.allocate_queue(id)?.responses[&id].arr.clone();
    let (x, y, z) = (&arrays["x"], &arrays["y"], &arrays["z"]);
    let host = |len: u64, dtype| manager.create_host_array(&[len], dtype, HostMemory::Pinned, None);
    let (ten, eleven) = (host(10, Dtype::F32)?, host(11, Dtype::F32)?);
    let (integers, mut empty) = (host(10, Dtype::I32)?, host(0, Dtype::F32)?);
    drop(backend.take_calls());
    let refused = |answer: Result<()>, at: usize| matches!(answer, Err(ManagerError::Mismatch { item, .. }) if item == at);
    assert!(refused(manager.to_device(id, &[&ten], &[x, y]), 1), "lists of different length");
    assert!(refused(manager.to_device(id, &[&ten, &eleven], &[x, y]), 1), "too large");
    assert!(refused(manager.to_device(id, &[&ten, &integers], &[x, y]), 1), "another type");
    let copied = |call: &pagewise::intercept::Call| call.operation() == Operation::Memcpy;
    assert!(!backend.take_calls().iter().any(copied), "nothing was copied");
    let five = host(5, Dtype::F32)?;
    manager.to_device(id, &[&five, &empty], &[x, z])?;
    manager.from_device(id, &[y], &mut [&mut empty])?;
    assert_eq!(backend.take_calls().iter().filter(|call| copied(call)).count(), 1);
    let elsewhere = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    let stranger = elsewhere.register(Registration::new())?;
    assert!(refused(elsewhere.to_device(stranger, &[&ten], &[x]), 0), "of another machine");
    manager.free("x");
    assert_eq!(manager.to_device(id, &[&ten], &[x]), Err(ManagerError::ArrayGone));
    let on_device = y.to_vec::<f32>();
    assert!(matches!(on_device, Err(ManagerError::WrongMemory { .. })));
    assert!(matches!(y.write(&[1.0_f32]), Err(ManagerError::Mismatch { .. })));
    assert!(y.prefetch(Device::FIRST, &manager.get_stream(id)?).is_err(), "it is not managed");
    Ok(())
}

#[test]
fn a_host_array_waits_for_its_copies() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", ArrayRequest::new(Dtype::U8, [100]))])?;
    let x = manager.allocate_queue(id)?.responses[&id].arr["x"].clone();
    let mut host = manager.create_host_array(&[100], Dtype::U8, HostMemory::Pinned, None)?;
    let waits = || {
        let calls = backend.take_calls();
        calls.iter().filter(|call| call.operation() == Operation::StreamSynchronize).count()
    };
    waits();
    manager.to_device(id, &[&host], &[&x])?;
    assert_eq!(waits(), 0, "the call does not wait");
    host.as_mut_slice::<u8>()?[0] = 1;
    assert_eq!(waits(), 1, "who writes does");
    host.as_mut_slice::<u8>()?[0] = 1;
    assert_eq!(waits(), 0, "once");
    manager.from_device(id, &[&x], &mut [&mut host])?;
    assert_eq!(host.as_slice::<u8>()?[0], 0);
    assert_eq!(waits(), 1);
    manager.from_device(id, &[&x], &mut [&mut host])?;
    drop(host);
    assert!(waits() >= 1, "and its end");
    Ok(())
}

#[test]
fn chunks_are_copied_to_their_slots() -> Result<()> {
    let manager = manager_of(1000)?;
    manager.set_chunk_policy(ChunkPolicy::exact().buffers(2));
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 20))])?;
    let allocated = manager.allocate_queue(id)?;
    assert_eq!(allocated.parameters.chunk_length(), 25);
    let x = &allocated.responses[&id].arr["x"];
    let host = |value: u8| -> Result<_> {
        let mut host = manager.create_host_array(&[25, 20], Dtype::U8, HostMemory::Host, None)?;
        host.as_mut_slice::<u8>()?.fill(value);
        Ok(host)
    };
    for chunk in 0..4 {
        manager.to_device_chunk(id, chunk, &[&host(chunk as u8 + 1)?], &[x])?;
    }
    for (chunk, value) in [(0, 3), (1, 4), (2, 3), (3, 4)] {
        let mut back = host(0)?;
        manager.from_device_chunk(id, chunk, &[x], &mut [&mut back])?;
        assert_eq!(back.as_slice::<u8>()?, [value; 500]);
    }
    Ok(())
}

#[test]
fn large_host_arrays_go_to_files_by_the_closest_threshold() -> Result<()> {
    let options = ManagerOptions::new().host_spill_threshold(3 << 30).pinned_max_bytes(1 << 30);
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    let a = manager.register(Registration::new().owner(1))?;
    let b = manager.register(Registration::new().owner(1))?;
    let chosen = |id, bytes| manager.choose_host_memory_type(id, bytes, true);
    assert_eq!(chosen(None, 1 << 30)?, HostMemory::Pinned);
    assert_eq!(chosen(None, (1 << 30) + 1)?, HostMemory::Host, "too much to lock");
    assert_eq!(manager.choose_host_memory_type(None, 1, false)?, HostMemory::Host);
    assert_eq!(chosen(None, 3 << 30)?, HostMemory::Host, "not more than the threshold");
    assert_eq!(chosen(None, (3 << 30) + 1)?, HostMemory::Memmap);
    manager.set_host_spill_threshold(SpillLevel::Owner(1), Some(1000))?;
    manager.set_host_spill_threshold(SpillLevel::Instance(b), Some(10))?;
    assert_eq!(
        (chosen(Some(a), 1000)?, chosen(Some(a), 1001)?),
        (HostMemory::Pinned, HostMemory::Memmap)
    );
    assert_eq!(
        (chosen(Some(b), 10)?, chosen(Some(b), 11)?),
        (HostMemory::Pinned, HostMemory::Memmap)
    );
    manager.set_host_spill_threshold(SpillLevel::Instance(b), None)?;
    assert_eq!(chosen(Some(b), 11)?, HostMemory::Pinned);
    manager.set_host_spill_threshold(SpillLevel::Manager, None)?;
    assert_eq!(chosen(None, (3 << 30) + 1)?, HostMemory::Host, "80 % of the system's memory");
    assert_eq!(chosen(None, u64::MAX)?, HostMemory::Memmap);
    Ok(())
}

#[test]
fn spilled_arrays_leave_no_file_behind() -> Result<()> {
    let directory =
        std::env::temp_dir().join(format!("pagewise-spill-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for temporary files");
    let files = || std::fs::read_dir(&directory).expect("it is there").count();
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.set_host_spill_threshold(SpillLevel::Instance(id), Some(1 << 20))?;
    manager.set_spill_directory(SpillLevel::Instance(id), Some(directory.clone()))?;
    let mut array = manager.create_host_array_for(id, &[3 << 20], Dtype::U8, None)?;
    assert_eq!(array.memory(), HostMemory::Memmap);
    array.as_mut_slice::<u8>()?[2 << 20] = 7;
    assert_eq!(array.as_slice::<u8>()?.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 7);
    drop(array);
    assert_eq!(files(), 0);
    let small = manager.create_host_array_for(id, &[3], Dtype::U8, None)?;
    assert_eq!(small.memory(), HostMemory::Pinned);
    let nowhere = PathBuf::from("/nonexistent/pagewise");
    manager.set_spill_directory(SpillLevel::Manager, Some(nowhere))?;
    let refused = manager.create_host_array(&[8], Dtype::U8, HostMemory::Memmap, None);
    assert!(matches!(&refused, Err(ManagerError::Spill { .. })), "{refused:?}");
    std::fs::remove_dir(&directory).expect("it is empty");
    Ok(())
}

fn pool() -> Result<ChunkBufferPool> {
    Ok(ChunkBufferPool::new(&Arc::new(manager_of(1000)?)))
}

#[test]
fn buffers_are_used_again_by_name_where_they_fit() -> Result<()> {
    let pool = pool()?;
    let mut first = pool.acquire("x", &[4], Dtype::F32)?;
    first.as_mut_slice::<f32>()?[0] = 3.0;
    let second = pool.acquire("x", &[4], Dtype::F32)?;
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (32, 0), "it grows");
    assert_eq!(second.as_slice::<f32>()?[0], 0.0);
    drop(first);
    let again = pool.acquire("x", &[4], Dtype::F32)?;
    assert_eq!(again.as_slice::<f32>()?[0], 3.0, "the same one");
    drop(again);
    for (shape, dtype) in [(&[2, 2][..], Dtype::F32), (&[4], Dtype::I32), (&[3], Dtype::U8)] {
        let other = pool.acquire("x", shape, dtype)?;
        assert_eq!((other.shape(), other.dtype()), (shape, dtype));
        assert_eq!((pool.used_bytes(), pool.free_bytes()), (32, 0), "all of it is in use");
    }
    let elsewhere = pool.acquire("y", &[4], Dtype::F32)?;
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (32, 16), "another name, another buffer");
    drop(elsewhere);
    let larger = pool.acquire("x", &[5], Dtype::F32)?;
    assert_eq!(larger.as_slice::<f32>()?, [0.0; 5]);
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (36, 16), "the one too small is gone");
    pool.clear();
    assert_eq!((pool.free_bytes(), pool.used_bytes()), (0, 36));
    Ok(())
}

#[test]
fn eight_buffers_of_a_name_are_outstanding_at_most() -> Result<()> {
    let pool = pool()?;
    let mut buffers = Vec::new();
    for _ in 0..8 {
        buffers.push(pool.acquire("x", &[4], Dtype::F32)?);
    }
    let other = pool.acquire("y", &[4], Dtype::F32)?;
    let ninth = std::thread::spawn({
        let pool = pool.clone();
        move || pool.acquire("x", &[4], Dtype::F32).map(drop)
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!ninth.is_finished());
    drop(other);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!ninth.is_finished(), "it has another name");
    buffers.pop();
    assert_eq!(ninth.join().expect("no panic"), Ok(()));
    let deeper = pool.clone().depth(9);
    buffers.push(deeper.acquire("x", &[4], Dtype::F32)?);
    buffers.push(deeper.acquire("x", &[4], Dtype::F32)?);
    assert_eq!(buffers.len(), 9);
    Ok(())
}

#[test]
fn who_asks_for_too_much_waits_but_never_for_himself() -> Result<()> {
    let pool = pool()?.limit_bytes(100);
    let first = pool.acquire("x", &[100], Dtype::U8)?;
    let other = pool.acquire("y", &[100], Dtype::U8)?;
    assert_eq!(pool.used_bytes(), 200, "a first one of each name is always there");
    let second = std::thread::spawn({
        let pool = pool.clone();
        move || pool.acquire("x", &[50], Dtype::U8).map(|buffer| buffer.nbytes())
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!second.is_finished());
    drop(other);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!second.is_finished(), "150 is more than 100");
    drop(first);
    assert_eq!(second.join().expect("no panic"), Ok(50));
    assert_eq!(pool.used_bytes(), 0);
    assert!(pool.free_bytes() <= 100, "what nobody uses makes room");
    Ok(())
}

#[test]
fn buffers_of_many_threads_are_all_given_back() -> Result<()> {
    let pool = pool()?.limit_bytes(256);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..50 {
                    let mut buffer = pool.acquire(name, &[1 + round % 3], Dtype::U64)?;
                    buffer.as_mut_slice::<u64>()?.fill(round);
                    assert!(buffer.as_slice::<u64>()?.iter().all(|&value| value == round));
                }
                Ok::<(), ManagerError>(())
            });
        }
    });
    assert_eq!(pool.used_bytes(), 0);
    Ok(())
}

#[test]
fn files_go_to_the_directory_that_the_options_name() -> Result<()> {
    let options = ManagerOptions::new().spill_directory("/nowhere/at/all");
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    let made = manager.create_host_array(&[8], Dtype::U8, HostMemory::Memmap, None).map(drop);
    assert!(
        matches!(&made, Err(ManagerError::Spill { path, .. }) if path.starts_with("/nowhere/at/all")),
        "{made:?}"
    );
    Ok(())
}
