//! Several threads of the system on one manager. `tests/manager_shuttle.rs` tries schedules of
//! them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{Code, Device, Machine};
use pagewise_managers::manager::{
    ArrayMemory, ArrayRequest, Dtype, HostMemory, InstanceId, MemoryManager, Registration, Result,
    StreamGroups,
};

use crate::queue::{runs, table};

const THREADS: u64 = 6;
const ROUNDS: u64 = 40;

fn in_threads(work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// 3.9.14: cubie has no locks, and keys that are used again.
#[test]
fn requests_of_many_threads_are_allocated_once_each() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let before = manager.get_memory_info()?;
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    in_threads(|n| {
        let told = Arc::clone(&told);
        let registration = Registration::new().stream_group(["a", "b"][(n % 2) as usize]);
        let id = manager.register(registration.allocation_ready_hook(move |response| {
            told.lock().unwrap().extend(response.arr.keys().cloned());
        }))?;
        for round in 0..ROUNDS {
            let memory = ArrayMemory::ALL[(round % 4) as usize];
            manager.queue_request(id, [(format!("{n} {round}"), table(64).memory(memory))])?;
            manager.allocate_queue(id)?;
        }
        assert_eq!(manager.settings(id)?.allocations.len() as u64, ROUNDS);
        Ok(())
    })?;
    let mut told = told.lock().unwrap().clone();
    told.sort();
    told.dedup();
    assert_eq!(told.len() as u64, THREADS * ROUNDS);
    manager.free_all();
    assert_eq!(manager.get_memory_info()?, before);
    Ok(())
}

#[test]
fn threads_that_take_each_other_s_memory_away_never_see_a_stranger_s() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let before = manager.get_memory_info()?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::AllocDevice).seeded(3, 50));
    let lost = AtomicU64::new(0);
    in_threads(|n| {
        let note =
            |_: pagewise_managers::manager::ManagerError| lost.fetch_add(1, Ordering::Relaxed);
        let id = manager.register(Registration::new().invalidate_hook(|| {}))?;
        for round in 0..ROUNDS {
            let value = (n * ROUNDS + round) as u8;
            manager.queue_request(id, [("x", runs(8, 128))])?;
            let Ok(allocated) = manager.allocate_queue(id).map_err(note) else { continue };
            // Another thread of the group may have allocated it.
            let Some(array) = allocated.responses[&id].arr.get("x") else { continue };
            let shape = array.shape();
            let mut host = manager.create_host_array(shape, Dtype::U8, HostMemory::Host, None)?;
            host.as_mut_slice::<u8>()?.fill(value);
            let there = manager.to_device(id, &[&host], &[array]);
            host.as_mut_slice::<u8>()?.fill(!value);
            let back = there.and_then(|()| manager.from_device(id, &[array], &mut [&mut host]));
            match back {
                Ok(()) => assert!(host.as_slice::<u8>()?.iter().all(|&byte| byte == value)),
                Err(error) => drop(note(error)),
            }
            match round % 5 {
                0 => manager.invalidate_all(),
                1 => drop(manager.free("x")),
                2 => manager.change_stream_group(id, &format!("g{}", round % 3))?,
                3 => manager.reinit_streams()?,
                _ => manager.set_limit_mode(Default::default()),
            }
        }
        manager.release_instance(id)
    })?;
    assert_eq!(manager.get_memory_info()?, before);
    assert_eq!((manager.instances(), machine.failures_on_drop()), (vec![], 0));
    Ok(())
}

#[test]
fn a_manager_and_its_parts_go_to_other_threads() {
    fn sendable<T: Send + Sync>() {}
    sendable::<MemoryManager>();
    sendable::<StreamGroups>();
    sendable::<Registration>();
    sendable::<pagewise_managers::manager::Array>();
    sendable::<pagewise_managers::manager::HostArray>();
    sendable::<pagewise_managers::manager::ChunkBufferPool>();
    sendable::<pagewise_managers::manager::ManagerError>();
}

/// 3.9.14: a manager is for one device, and there may be one for each.
#[test]
fn each_device_has_a_manager_of_its_own() -> Result<()> {
    let config = pagewise::SimConfig::h200().devices(2);
    let machine = Machine::from(Arc::new(pagewise::SimBackend::new(config)?));
    let manager = |n| MemoryManager::new(&machine, Device::new(n)?);
    let (first, second) = (manager(0)?, manager(1)?);
    let before = first.get_memory_info()?;
    let id = second.register(Registration::new())?;
    second.queue_request(id, [("x", ArrayRequest::new(Dtype::U8, [64 << 20]))])?;
    second.allocate_queue(id)?;
    assert_eq!(first.get_memory_info()?, before);
    assert!(second.get_memory_info()?.free_bytes < before.free_bytes);
    assert_eq!(second.get_stream(id)?.device(), Some(Device::new(1)?));
    let ids: [InstanceId; 2] = [first.register(Registration::new())?, id];
    assert_ne!(ids[0], ids[1], "ids are nobody else's, not even another manager's");
    Ok(())
}
