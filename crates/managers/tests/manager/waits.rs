//! Waits: the host for copies, streams for each other, evictions for work; and calls without any.

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{Code, Device, SimBackend, Stream};
use pagewise_managers::manager::{
    Allocator, Array, ArrayMemory, ArrayRequest, ChunkBufferPool, ChunkPolicy, Dtype, HostArray,
    HostMemory, InstanceId, Leaving, LimitMode, ManagerError, ManagerOptions, MemoryManager,
    Registration, Result,
};

use crate::queue::{runs, table};

type Watched = Arc<FaultInjector<Arc<SimBackend>>>;

fn watched(options: ManagerOptions) -> Result<(Watched, MemoryManager)> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::with_options(&backend, Device::FIRST, options)?;
    Ok((backend, manager))
}

/// How many of the calls since this was last asked were of one operation.
fn count(backend: &Watched, operation: Operation) -> usize {
    backend.take_calls().iter().filter(|call| call.operation() == operation).count()
}

fn allocated(manager: &MemoryManager, id: InstanceId, request: ArrayRequest) -> Result<Array> {
    manager.queue_request(id, [("x", request)])?;
    Ok(manager.allocate_queue(id)?.responses[&id].arr["x"].clone())
}

fn pinned(manager: &MemoryManager, bytes: u64, value: u8) -> Result<HostArray> {
    let mut host = manager.create_host_array(&[bytes], Dtype::U8, HostMemory::Pinned, None)?;
    host.as_mut_slice::<u8>()?.fill(value);
    Ok(host)
}

#[test]
fn the_host_waits_for_copies_before_it_reads_or_writes_an_array() -> Result<()> {
    let (backend, manager) = watched(ManagerOptions::new())?;
    let id = manager.register(Registration::new())?;
    for memory in [ArrayMemory::Managed, ArrayMemory::Pinned] {
        let array = allocated(&manager, id, table(100).memory(memory))?;
        let host = pinned(&manager, 100, 1)?;
        for reads in [true, false] {
            let uses = || match reads {
                true => array.to_vec::<u8>().map(drop),
                false => array.write(&[2_u8; 100]),
            };
            uses()?;
            count(&backend, Operation::StreamSynchronize);
            manager.to_device(id, &[&host], &[&array])?;
            backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::StreamSynchronize));
            assert!(uses().is_err(), "{memory:?}: the copy cannot be waited for");
            backend.disarm();
            uses()?;
        }
    }
    Ok(())
}

#[test]
fn a_stream_waits_for_copies_of_the_same_memory_in_another_and_for_no_other() -> Result<()> {
    let (backend, manager) = watched(ManagerOptions::new())?;
    let a = manager.register(Registration::new().stream_group("a"))?;
    let b = manager.register(Registration::new().stream_group("b"))?;
    let x = allocated(&manager, a, table(100))?;
    let (one, other) = (pinned(&manager, 100, 1)?, pinned(&manager, 100, 1)?);
    let waits = |id, host: &HostArray| -> Result<usize> {
        count(&backend, Operation::StreamWaitEvent);
        manager.to_device(id, &[host], &[&x])?;
        Ok(count(&backend, Operation::StreamWaitEvent))
    };
    assert_eq!(waits(a, &one)?, 0);
    assert_eq!(waits(a, &one)?, 0, "all in one stream");
    waits(b, &other)?;
    assert_eq!(waits(a, &one)?, 1, "for the array's copies in the other stream");
    waits(b, &one)?;
    assert_eq!(waits(a, &one)?, 2, "for the array's and for the host's");
    assert_eq!(waits(a, &one)?, 0);
    Ok(())
}

#[test]
fn memory_of_a_dropped_array_goes_back_after_copies_in_another_stream() -> Result<()> {
    let (backend, manager) = watched(ManagerOptions::new().allocator(Allocator::CurrentPool))?;
    let id = manager.register(Registration::new())?;
    let own = Stream::new(manager.machine(), Device::FIRST)?;
    let host = pinned(&manager, 100, 1)?;
    let array = manager.allocate(&table(100), &own)?;
    manager.to_device(id, &[&host], &[&array])?;
    drop(backend.take_calls());
    drop(array);
    let calls: Vec<_> = backend.take_calls().iter().map(|call| call.operation()).collect();
    let at = |operation| calls.iter().position(|&call| call == operation);
    let freed = at(Operation::FreeAsync).expect("it goes back");
    assert!(at(Operation::StreamWaitEvent).is_some_and(|waits| waits < freed), "{calls:?}");
    Ok(())
}

#[test]
fn a_copy_to_the_device_makes_discarded_bytes_readable_and_no_others() -> Result<()> {
    const MIB: u64 = 1 << 20;
    let options = ManagerOptions::new().total_bytes(8 * MIB).limit_mode(LimitMode::Active);
    let (_, manager) = watched(options.chunk_policy(ChunkPolicy::exact()))?;
    let id = manager.register(Registration::new())?;
    let request = runs(16, MIB).memory(ArrayMemory::Managed).oversubscribe(true);
    let array = allocated(&manager, id, request)?;
    let stream = manager.get_stream(id)?;
    array.write(&vec![1_u8; 16 << 20])?;
    for chunk in 0..4 {
        array.enter_chunk(chunk, Leaving::Discarded, &stream)?;
    }
    manager.to_device(id, &[&pinned(&manager, 8 * MIB, 2)?], &[&array])?;
    assert!(array.to_vec::<u8>().is_err(), "12 MiB were discarded, 8 are written");
    manager.to_device(id, &[&pinned(&manager, 16 * MIB, 3)?], &[&array])?;
    assert_eq!(array.to_vec::<u8>()?, vec![3; 16 << 20]);
    Ok(())
}

#[test]
fn an_empty_host_array_is_passed_over_whatever_it_is_paired_with() -> Result<()> {
    let (_, manager) = watched(ManagerOptions::new())?;
    let id = manager.register(Registration::new())?;
    let gone = allocated(&manager, id, table(100))?;
    manager.free_all();
    let mut empty = manager.create_host_array(&[0], Dtype::U8, HostMemory::Host, None)?;
    manager.to_device(id, &[&empty], &[&gone])?;
    manager.from_device(id, &[&gone], &mut [&mut empty])?;
    let refused = manager.to_device(id, &[&pinned(&manager, 1, 1)?], &[&gone]);
    assert_eq!(refused, Err(ManagerError::ArrayGone));
    Ok(())
}

/// A copy may still use it.
#[test]
fn page_locked_memory_with_a_copy_that_cannot_be_waited_for_is_not_used_again() -> Result<()> {
    for (fails, idle) in [(false, 100), (true, 0)] {
        let (backend, manager) = watched(ManagerOptions::new())?;
        let id = manager.register(Registration::new())?;
        let x = allocated(&manager, id, table(100))?;
        let host = pinned(&manager, 100, 1)?;
        manager.to_device(id, &[&host], &[&x])?;
        if fails {
            backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::StreamSynchronize));
        }
        drop(host);
        assert_eq!((manager.pinned_live_bytes(), manager.pinned_idle_bytes()), (0, idle));
        assert_eq!(manager.machine().failures_on_drop(), u64::from(fails));
    }
    Ok(())
}

#[test]
fn host_arrays_of_another_machine_are_refused() -> Result<()> {
    let (_, manager) = watched(ManagerOptions::new())?;
    let (_, elsewhere) = watched(ManagerOptions::new())?;
    let id = manager.register(Registration::new())?;
    let x = allocated(&manager, id, table(100))?;
    let refused = manager.to_device(id, &[&pinned(&elsewhere, 100, 1)?], &[&x]);
    assert!(matches!(refused, Err(ManagerError::Mismatch { item: 0, .. })), "{refused:?}");
    Ok(())
}

#[test]
fn an_empty_buffer_needs_no_page_locked_memory() -> Result<()> {
    let (backend, manager) = watched(ManagerOptions::new())?;
    let pool = ChunkBufferPool::new(&Arc::new(manager));
    count(&backend, Operation::AllocPinned);
    assert_eq!(pool.acquire("x", &[0, 9], Dtype::F64)?.nbytes(), 0);
    assert_eq!(count(&backend, Operation::AllocPinned), 0);
    Ok(())
}

/// One gibibyte is idle or not, and is short.
#[test]
fn an_instance_is_idle_once_it_submits_nothing_and_its_work_is_done() -> Result<()> {
    const GIB: u64 = 1 << 30;
    let (backend, manager) = watched(ManagerOptions::new())?;
    let works = Registration::new().stream_group("works").invalidate_hook(|| {});
    let works = manager.register(works)?;
    let asks = manager.register(Registration::new().proportion(0.9))?;
    let mute = manager.register(Registration::new().stream_group("mute"))?;
    manager.queue_request(mute, [("x", table(manager.get_memory_info()?.free_bytes / 2))])?;
    manager.allocate_queue(mute)?;
    manager.queue_request(works, [("x", table(GIB))])?;
    manager.allocate_queue(works)?;
    let rest = manager.get_memory_info()?.free_bytes;
    let evicted = || -> Result<Vec<InstanceId>> {
        manager.queue_request(asks, [("y", runs(64, (rest + GIB / 2) / 64))])?;
        let evicted = manager.allocate_queue(asks)?.evicted;
        manager.free_instance(asks)?;
        Ok(evicted)
    };
    manager.begin_submission(works)?;
    assert_eq!(evicted()?, [], "work is being submitted");
    manager.end_submission(works, &manager.get_stream(works)?)?;
    backend.arm(Fault::new(Code::NOT_READY).on(Operation::EventQuery).always());
    assert_eq!(evicted()?, [], "work is not done");
    backend.disarm();
    assert_eq!(evicted()?, [works]);
    Ok(())
}

#[test]
fn of_two_owners_that_worked_the_one_goes_that_worked_first() -> Result<()> {
    let (_, manager) = watched(ManagerOptions::new())?;
    let group = |name: &str| Registration::new().stream_group(name).invalidate_hook(|| {});
    let [a, b] = [manager.register(group("a"))?, manager.register(group("b"))?];
    let asks = manager.register(group("asks").proportion(0.9))?;
    let third = manager.get_available_memory("a")? / 3 - (8 << 20);
    for id in [a, b] {
        manager.queue_request(id, [("x", table(third))])?;
        manager.allocate_queue(id)?;
    }
    for id in [b, a] {
        manager.begin_submission(id)?;
        manager.end_submission(id, &manager.get_stream(id)?)?;
    }
    manager.queue_request(asks, [("y", table(third + third / 2))])?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [b], "though it registered later");
    Ok(())
}

#[test]
fn an_error_says_what_can_be_done_about_it() {
    use pagewise::ErrorKind as Kind;
    let (needed, available) = (2, 1);
    let nothing = ManagerError::NothingToChunk { needed, available };
    let fixed = ManagerError::UnchunkableTooLarge { needed, available };
    let run = ManagerError::SingleRunTooLarge { needed, available };
    let part = ManagerError::PartitionDoesNotFit { chunk_length: 1, needed, available };
    for error in [nothing, fixed, run, part] {
        assert_eq!(error.kind(), Kind::OutOfMemory, "{error}");
    }
    let memory = ArrayMemory::Device;
    assert_eq!(ManagerError::WrongMemory { memory, why: "" }.kind(), Kind::Unsupported);
    let (path, why) = (String::new(), String::new());
    assert_eq!(ManagerError::Spill { path, why }.kind(), Kind::NotPermitted);
    assert_eq!(ManagerError::ArrayGone.kind(), Kind::InvalidHandle);
    assert_eq!(ManagerError::UnknownGroup(String::new()).kind(), Kind::InvalidValue);
}
