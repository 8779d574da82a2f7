//! Memory of replaced arrays that their successors take over.

use pagewise::{Device, Machine};
use pagewise_managers::manager::{
    Array, ArrayMemory, ArrayRequest, Dtype, HostMemory, InstanceId, ManagerOptions, MemoryManager,
    Registration, Result,
};

use crate::queue::{manager_of, runs, table};

/// Allocates one array, and says which it is.
fn allocated(manager: &MemoryManager, id: InstanceId, request: ArrayRequest) -> Result<Array> {
    manager.queue_request(id, [("x", request)])?;
    Ok(manager.allocate_queue(id)?.responses[&id].arr["x"].clone())
}

#[test]
fn an_array_that_fits_takes_over_the_memory_of_the_one_it_replaces() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    let first = allocated(&manager, id, table(100))?;
    let place = first.span()?;
    let second = allocated(&manager, id, table(60))?;
    assert!(first.is_gone());
    assert_eq!((second.span()?.ptr, second.span()?.bytes), (place.ptr, 60));
    assert_eq!((second.nbytes(), second.allocated_bytes()), (60, 100), "all of it is held");
    let third = allocated(&manager, id, table(100))?;
    assert_eq!(third.span()?, place, "what was left over is there still");
    let fourth = allocated(&manager, id, table(101))?;
    assert_eq!(fourth.allocated_bytes(), 101, "it did not fit");
    Ok(())
}

#[test]
fn memory_that_is_taken_over_keeps_its_copies_in_order() -> Result<()> {
    let manager = manager_of(1 << 20)?;
    let id = manager.register(Registration::new())?;
    let request = || ArrayRequest::new(Dtype::U8, [1000]).unchunkable(true);
    let first = allocated(&manager, id, request())?;
    let mut host = manager.create_host_array(&[1000], Dtype::U8, HostMemory::Pinned, None)?;
    host.as_mut_slice::<u8>()?.fill(7);
    manager.to_device(id, &[&host], &[&first])?;
    let second = allocated(&manager, id, request())?;
    manager.from_device(id, &[&second], &mut [&mut host])?;
    assert_eq!(host.as_slice::<u8>()?, [7; 1000]);
    manager.free_all();
    assert!(second.is_gone());
    assert_eq!(manager.machine().failures_on_drop(), 0);
    Ok(())
}

#[test]
fn a_small_array_does_not_keep_memory_that_another_needs() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", table(900)), ("y", table(10))])?;
    manager.allocate_queue(id)?;
    manager.queue_request(id, [("x", table(100)), ("y", table(850))])?;
    let arrays = manager.allocate_queue(id)?.responses[&id].arr.clone();
    assert_eq!((arrays["x"].allocated_bytes(), arrays["y"].allocated_bytes()), (100, 850));
    Ok(())
}

#[test]
fn what_fits_is_taken_over_while_what_does_not_is_freed_first() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", table(400)), ("y", table(300))])?;
    let old = manager.allocate_queue(id)?.responses[&id].arr.clone();
    let place = old["x"].span()?;
    manager.queue_request(id, [("x", table(400)), ("y", table(500))])?;
    let arrays = manager.allocate_queue(id)?.responses[&id].arr.clone();
    assert_eq!((arrays["x"].span()?, arrays["y"].allocated_bytes()), (place, 500));
    Ok(())
}

#[test]
fn a_repeated_request_fits_however_full_the_share_is() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    let first = allocated(&manager, id, runs(100, 9))?.span()?;
    manager.queue_request(id, [("x", runs(100, 9))])?;
    let again = manager.allocate_queue(id)?;
    assert_eq!((again.parameters.chunks(), again.responses[&id].arr["x"].span()?), (1, first));
    Ok(())
}

#[test]
fn only_device_memory_is_taken_over() -> Result<()> {
    let manager = manager_of(1 << 20)?;
    let id = manager.register(Registration::new())?;
    for memory in [ArrayMemory::Pinned, ArrayMemory::Managed] {
        allocated(&manager, id, table(100).memory(memory))?;
        let second = allocated(&manager, id, table(60).memory(memory))?;
        assert_eq!(second.allocated_bytes(), 60, "{memory:?}");
        allocated(&manager, id, table(100))?;
        let other = allocated(&manager, id, table(60).memory(memory))?;
        assert_eq!((other.memory(), other.allocated_bytes()), (memory, 60));
        allocated(&manager, id, table(100).memory(memory))?;
        let device = allocated(&manager, id, table(60))?;
        assert_eq!((device.memory(), device.allocated_bytes()), (ArrayMemory::Device, 60));
    }
    Ok(())
}

#[test]
fn nothing_is_taken_over_if_the_options_say_so() -> Result<()> {
    let options = ManagerOptions::new().reuse_buffers(false);
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    let id = manager.register(Registration::new())?;
    allocated(&manager, id, table(100))?;
    assert_eq!(allocated(&manager, id, table(60))?.allocated_bytes(), 60);
    Ok(())
}
