//! The budget of page-locked memory, and blocks that are used again.

use std::sync::Arc;
use std::time::Duration;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{Code, Device, Machine};
use pagewise_managers::manager::{
    ArrayMemory, ChunkBufferPool, Dtype, HostArray, HostMemory, ManagerError, ManagerOptions,
    MemoryManager, Registration, Result,
};

use crate::queue::table;

/// A manager with a budget of 1000 bytes.
fn manager() -> Result<MemoryManager> {
    let options = ManagerOptions::new().pinned_max_bytes(1000);
    MemoryManager::with_options(Machine::from(pagewise::sim()?), Device::FIRST, options)
}

fn pinned(manager: &MemoryManager, bytes: u64) -> Result<HostArray> {
    manager.create_host_array(&[bytes], Dtype::U8, HostMemory::Pinned, None)
}

/// The page-locked bytes of a manager: in use, and idle.
fn bytes(manager: &MemoryManager) -> (u64, u64) {
    (manager.pinned_live_bytes(), manager.pinned_idle_bytes())
}

#[test]
fn host_arrays_share_one_budget_and_go_beyond_it_without_page_locks() -> Result<()> {
    let manager = manager()?;
    assert_eq!(manager.pinned_budget_bytes()?, 1000);
    let first = pinned(&manager, 600)?;
    let second = pinned(&manager, 401)?;
    assert_eq!((first.memory(), second.memory()), (HostMemory::Pinned, HostMemory::Host));
    assert_eq!(second.as_slice::<u8>()?, [0; 401]);
    let third = pinned(&manager, 400)?;
    assert_eq!((third.memory(), bytes(&manager)), (HostMemory::Pinned, (1000, 0)));
    assert_eq!(manager.choose_host_memory_type(None, 1000, true)?, HostMemory::Pinned);
    assert_eq!(manager.choose_host_memory_type(None, 1001, true)?, HostMemory::Host);
    Ok(())
}

#[test]
fn the_budget_is_what_the_device_has_unless_the_options_say_otherwise() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::with_options(
        &backend,
        Device::FIRST,
        ManagerOptions::new().total_bytes(1000),
    )?;
    backend.arm(Fault::new(Code::NO_DEVICE).on(Operation::MemoryInfo));
    assert!(matches!(pinned(&manager, 10), Err(ManagerError::TotalUnknown(_))));
    let total = manager.get_memory_info()?.total_bytes;
    let budget = manager.pinned_budget_bytes()?;
    assert!(budget > 1000 && budget <= total, "at most 80 % of the system's memory");
    Ok(())
}

#[test]
fn a_block_that_is_idle_serves_the_next_array_that_fits() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let options = ManagerOptions::new().pinned_max_bytes(1000);
    let manager = MemoryManager::with_options(&backend, Device::FIRST, options)?;
    let mut first = pinned(&manager, 300)?;
    first.as_mut_slice::<u8>()?.fill(7);
    let second = pinned(&manager, 500)?;
    drop((first, second));
    assert_eq!(bytes(&manager), (0, 800));
    drop(backend.take_calls());
    let again = pinned(&manager, 200)?;
    assert_eq!(bytes(&manager), (300, 500), "the smallest that fits, whole");
    assert_eq!(again.as_slice::<u8>()?, [0; 200], "nothing of the last one is left");
    let made = |call: &&_| pagewise::intercept::Call::operation(call) == Operation::AllocPinned;
    assert_eq!(backend.take_calls().iter().filter(made).count(), 0);
    // Idle blocks make room for what does not fit into them.
    let large = pinned(&manager, 600)?;
    assert_eq!((large.memory(), bytes(&manager)), (HostMemory::Pinned, (900, 0)));
    Ok(())
}

#[test]
fn idle_memory_is_released_at_once_or_when_it_was_idle_for_long() -> Result<()> {
    let manager = manager()?;
    drop(pinned(&manager, 100)?);
    assert_eq!((manager.release_idle_memory(true), bytes(&manager)), (0, (0, 100)));
    let array = pinned(&manager, 200)?;
    drop(array);
    assert_eq!((manager.release_idle_memory(true), bytes(&manager)), (100, (0, 200)));
    drop(pinned(&manager, 200)?);
    assert_eq!(manager.release_idle_memory(true), 0, "it was used in between");
    assert_eq!((manager.release_idle_memory(false), bytes(&manager)), (200, (0, 0)));
    assert_eq!(manager.machine().failures_on_drop(), 0);
    Ok(())
}

#[test]
fn arrays_of_instances_count_and_are_never_refused_by_the_budget() -> Result<()> {
    let manager = manager()?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", table(5000).memory(ArrayMemory::Pinned))])?;
    manager.allocate_queue(id)?;
    assert_eq!(bytes(&manager), (5000, 0));
    assert_eq!(pinned(&manager, 1)?.memory(), HostMemory::Host);
    manager.free_all();
    assert_eq!(pinned(&manager, 1)?.memory(), HostMemory::Pinned);
    Ok(())
}

#[test]
fn without_page_locks_left_in_the_driver_a_host_array_is_ordinary_memory() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::AllocPinned));
    assert_eq!((pinned(&manager, 10)?.memory(), bytes(&manager)), (HostMemory::Host, (0, 0)));
    backend.arm(Fault::new(Code::NOT_PERMITTED).on(Operation::AllocPinned));
    assert!(pinned(&manager, 10).is_err(), "that is no want of memory");
    assert_eq!(bytes(&manager), (0, 0));
    Ok(())
}

#[test]
fn a_second_staging_buffer_waits_for_the_budget_and_a_first_does_not() -> Result<()> {
    let manager = Arc::new(manager()?);
    let taken = pinned(&manager, 900)?;
    let pool = ChunkBufferPool::new(&manager);
    let first = pool.acquire("x", &[200], Dtype::U8)?;
    assert_eq!((first.memory(), manager.pinned_live_bytes()), (HostMemory::Pinned, 1100));
    let second = std::thread::spawn({
        let pool = pool.clone();
        move || pool.acquire("x", &[200], Dtype::U8).map(|buffer| buffer.memory())
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!second.is_finished());
    drop(first);
    assert_eq!(second.join().expect("no panic"), Ok(HostMemory::Pinned));
    drop(taken);
    Ok(())
}

#[test]
fn blocks_outlive_their_manager_until_their_arrays_end() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let array = pinned(&manager, 100)?;
    drop(pinned(&manager, 50)?);
    drop(manager);
    assert_eq!(array.as_slice::<u8>()?, [0; 100]);
    drop(array);
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

#[test]
fn idle_blocks_stay_while_the_budget_has_room_for_them_and_what_is_in_use() -> Result<()> {
    for (more, idle) in [(600, 400), (601, 0)] {
        let manager = manager()?;
        drop(pinned(&manager, 400)?);
        let _used = pinned(&manager, more)?;
        assert_eq!(bytes(&manager), (more, idle));
    }
    Ok(())
}

/// Four fifths of the memory that the system has, where it says how much that is.
#[cfg(target_os = "linux")]
#[test]
fn the_systems_memory_bounds_the_budget_and_what_does_not_go_to_files() -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").expect("Linux has it");
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("a figure");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    let most = kibibytes * 1024 / 5 * 4;
    let options = ManagerOptions::new().pinned_max_bytes(u64::MAX);
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    assert_eq!(manager.pinned_budget_bytes()?, most);
    let chosen = |bytes| manager.choose_host_memory_type(None, bytes, false);
    assert_eq!((chosen(most)?, chosen(most + 1)?), (HostMemory::Host, HostMemory::Memmap));
    Ok(())
}
