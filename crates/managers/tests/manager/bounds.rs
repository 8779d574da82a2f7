//! Claims at an exact bound: what just fits, what is just too much, and what is nothing at all.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{Code, Device, Machine};
use pagewise_managers::manager::{
    ChunkBufferPool, ChunkPolicy, Dtype, InstanceId, ManagerError, MemoryManager, Registration,
    Result, Warning,
};

use crate::queue::{manager_of, runs, table};

/// Far more than a call takes that waits for nothing.
const LONG: Duration = Duration::from_secs(20);

/// A manager of a whole device that counts each array's bytes and no more.
fn exact_manager() -> Result<MemoryManager> {
    let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    manager.set_chunk_policy(ChunkPolicy::exact());
    Ok(manager)
}

fn hold(manager: &MemoryManager, id: InstanceId, label: &str, bytes: u64) -> Result<()> {
    manager.queue_request(id, [(label, table(bytes))])?;
    manager.allocate_queue(id).map(drop)
}

fn free_bytes(manager: &MemoryManager) -> Result<u64> {
    Ok(manager.get_memory_info()?.free_bytes)
}

/// Headroom is rounded, so even a shortage of 0 bytes would ask for some.
#[test]
fn nothing_is_evicted_for_a_request_that_just_fits_in_place_of_an_array() -> Result<()> {
    for (bytes, evicts) in [(490, false), (491, true)] {
        let manager = manager_of(1000)?;
        manager.set_chunk_policy(ChunkPolicy::exact().headroom_permille(20));
        let group = |name: &str| Registration::new().stream_group(name).invalidate_hook(|| {});
        let idle = manager.register(group("idle").proportion(0.5))?;
        let asks = manager.register(group("asks"))?;
        hold(&manager, idle, "kept", 400)?;
        hold(&manager, asks, "x", 100)?;
        manager.queue_request(asks, [("x", table(bytes))])?;
        match manager.allocate_queue(asks) {
            Ok(allocated) => assert!(!evicts && allocated.evicted.is_empty(), "{bytes} bytes"),
            Err(error) => assert!(evicts, "{bytes} bytes: {error}"),
        }
    }
    Ok(())
}

#[test]
fn a_request_that_just_fits_in_place_of_an_array_warns_of_nothing() -> Result<()> {
    let manager = exact_manager()?;
    let id = manager.register(Registration::new())?;
    let part = free_bytes(&manager)? / 30 / (64 << 20) * (64 << 20);
    let most = free_bytes(&manager)? - part;
    hold(&manager, id, "x", most)?;
    let left = free_bytes(&manager)?;
    assert!(left > 0 && most > 20 * left);
    hold(&manager, id, "x", most + left)?;
    assert_eq!(manager.take_warnings(), [], "all of the device, once the old array has gone");
    Ok(())
}

#[test]
fn a_division_in_use_that_does_not_fit_is_refused_without_a_warning_of_size() -> Result<()> {
    let manager = exact_manager()?;
    let id = manager.register(Registration::new())?;
    let run = free_bytes(&manager)? / 104;
    manager.queue_request(id, [("x", runs(100, run))])?;
    assert_eq!(manager.allocate_queue(id)?.parameters.chunks(), 1);
    assert!(100 * run > 20 * free_bytes(&manager)?);
    manager.queue_request(id, [("y", runs(100, run))])?;
    let refused = manager.allocate_queue(id).unwrap_err();
    assert!(matches!(refused, ManagerError::PartitionDoesNotFit { .. }), "{refused}");
    assert_eq!(manager.take_warnings(), []);
    Ok(())
}

#[test]
fn the_size_of_a_request_is_warned_of_once_however_often_it_is_tried() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    manager.set_chunk_policy(ChunkPolicy::exact().retries(2));
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(2100, free_bytes(&manager)? / 100))])?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::AllocDevice));
    assert!(manager.allocate_queue(id)?.parameters.chunks() > 21, "it was tried again with less");
    assert_eq!(manager.take_warnings().len(), 1);
    Ok(())
}

#[test]
fn exactly_twenty_times_what_is_free_does_not_warn_and_a_full_device_never_does() -> Result<()> {
    let manager = exact_manager()?;
    let id = manager.register(Registration::new())?;
    let free = free_bytes(&manager)?;
    let ask = |extra: u64| {
        let (x, one) = (runs(20, free), table(extra));
        let divided = manager.get_chunk_parameters([("x", &x), ("one", &one)], 20, "default");
        (divided.is_ok(), manager.take_warnings().len())
    };
    assert_eq!(ask(0), (true, 0));
    assert_eq!(ask(1), (false, 1));
    hold(&manager, id, "all", free)?;
    assert_eq!(free_bytes(&manager)?, 0);
    assert_eq!(ask(1), (false, 0), "nothing is free to compare with");
    Ok(())
}

#[test]
fn idle_owners_with_exactly_what_is_short_are_evicted() -> Result<()> {
    let manager = exact_manager()?;
    let mute = manager.register(Registration::new().stream_group("mute"))?;
    let group = |name: &str| Registration::new().stream_group(name).invalidate_hook(|| {});
    let idle = manager.register(group("idle"))?;
    let asks = manager.register(group("asks").proportion(0.9))?;
    hold(&manager, mute, "x", free_bytes(&manager)? / 2)?;
    hold(&manager, idle, "x", 1 << 30)?;
    manager.queue_request(asks, [("y", table(free_bytes(&manager)? + (1 << 30)))])?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [idle]);
    Ok(())
}

#[test]
fn nobody_is_evicted_where_that_would_not_make_room_enough() -> Result<()> {
    let manager = exact_manager()?;
    let mute = manager.register(Registration::new().stream_group("mute"))?;
    let hook = || Registration::new().invalidate_hook(|| {});
    let idle = manager.register(hook().stream_group("idle"))?;
    let asks = manager.register(hook().stream_group("asks").proportion(0.9))?;
    let free = free_bytes(&manager)?;
    hold(&manager, mute, "x", free / 2)?;
    hold(&manager, idle, "x", 1 << 30)?;
    manager.queue_request(asks, [("y", runs(100, free / 125))])?;
    let allocated = manager.allocate_queue(asks)?;
    assert!(allocated.evicted.is_empty() && allocated.parameters.chunks() > 1, "{allocated:?}");
    assert_eq!(manager.settings(idle)?.allocated_bytes(), 1 << 30);
    Ok(())
}

#[test]
fn an_empty_array_takes_no_memory_over() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    hold(&manager, id, "x", 100)?;
    hold(&manager, id, "x", 0)?;
    assert_eq!(manager.settings(id)?.allocated_bytes(), 0);
    Ok(())
}

#[test]
fn a_single_buffer_of_a_chunk_is_not_rounded() -> Result<()> {
    let manager = manager_of(1 << 20)?;
    manager.set_chunk_policy(ChunkPolicy::exact().granularity_bytes(512));
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 11_111))])?;
    let allocated = manager.allocate_queue(id)?;
    let length = allocated.parameters.chunk_length();
    assert_eq!((length, length * 11_111 % 512 == 0), (94, false));
    assert_eq!(allocated.responses[&id].arr["x"].allocated_bytes(), length * 11_111);
    Ok(())
}

#[test]
fn only_a_lack_of_memory_is_answered_by_another_try() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 1000))])?;
    backend.arm(Fault::new(Code::NOT_PERMITTED).on(Operation::AllocDevice));
    let refused = manager.allocate_queue(id).unwrap_err();
    assert!(matches!(&refused, ManagerError::Driver(e) if e.code() == Some(Code::NOT_PERMITTED)));
    Ok(())
}

#[test]
fn submissions_nest_and_only_marks_that_were_reached_are_forgotten() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    manager.begin_submission(id)?;
    manager.begin_submission(id)?;
    assert_eq!(manager.settings(id)?.submitting, 2);
    let stream = manager.get_stream(id)?;
    let marks_destroyed_at_the_end = || -> Result<usize> {
        manager.begin_submission(id)?;
        drop(backend.take_calls());
        manager.end_submission(id, &stream)?;
        let calls = backend.take_calls();
        Ok(calls.iter().filter(|call| call.operation() == Operation::EventDestroy).count())
    };
    assert_eq!(marks_destroyed_at_the_end()?, 0, "there is none yet");
    backend.arm(Fault::new(Code::NOT_READY).on(Operation::EventQuery).always());
    assert_eq!(marks_destroyed_at_the_end()?, 0, "the work is not done");
    backend.disarm();
    assert_eq!(marks_destroyed_at_the_end()?, 2);
    assert_eq!(manager.settings(id)?.submitting, 2);
    Ok(())
}

#[test]
fn waiting_for_an_instance_waits_for_its_groups_stream() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::StreamSynchronize));
    assert!(manager.sync_stream(id).is_err());
    assert!(manager.sync_stream(id).is_ok());
    Ok(())
}

#[test]
fn the_last_256_warnings_are_kept() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    let label = |n: usize| format!("{n}");
    for n in 0..258 {
        assert!(!manager.free_array(id, &label(n))?);
    }
    let nothing = |n| Warning::NothingToFree { label: label(n) };
    assert_eq!(manager.take_warnings(), (2..258).map(nothing).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_pool_lends_up_to_its_limit_without_waiting() -> Result<()> {
    let manager = Arc::new(manager_of(1000)?);
    let pool = ChunkBufferPool::new(&manager).limit_bytes(200);
    let (done, is_done) = channel();
    let worker = thread::spawn(move || {
        let lent = [(); 2].map(|()| pool.acquire("state", &[100], Dtype::U8));
        done.send(lent.iter().all(std::result::Result::is_ok)).expect("the test waits for it");
    });
    assert_eq!(is_done.recv_timeout(LONG), Ok(true), "the second is lent at once");
    worker.join().expect("it has ended well");
    Ok(())
}

/// A hook owns values. Their destructors may call the manager.
#[test]
fn the_hooks_of_a_released_instance_are_dropped_outside_the_managers_lock() -> Result<()> {
    struct Calls(Arc<MemoryManager>);
    impl Drop for Calls {
        fn drop(&mut self) {
            assert_eq!(self.0.instances(), []);
        }
    }
    let manager = Arc::new(manager_of(1000)?);
    let calls = Calls(Arc::clone(&manager));
    let id = manager.register(Registration::new().invalidate_hook(move || {
        let _ = &calls;
    }))?;
    let (done, is_done) = channel();
    let worker = thread::spawn(move || done.send(manager.release_instance(id)));
    assert_eq!(is_done.recv_timeout(LONG), Ok(Ok(())), "the call came back");
    worker.join().expect("it has ended well").expect("the test waited for it");
    Ok(())
}
