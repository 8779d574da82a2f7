//! Stream groups.

use std::sync::{Arc, Mutex};

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::mock::{MockBackend, permit_machine};
use pagewise::{Code, Device, DevicePtr, Machine, MemoryInfo};
use pagewise_managers::manager::{
    ArrayRequest, DEFAULT_GROUP, Dtype, InstanceId, ManagerError, MemoryManager, Registration,
    Result, StreamGroups,
};

use crate::pools::manager_of_8_gib;

fn groups() -> Result<StreamGroups> {
    Ok(StreamGroups::new(Machine::from(pagewise::sim()?), Device::FIRST))
}

#[test]
fn each_group_has_a_stream_of_its_own_and_never_a_default_one() -> Result<()> {
    let mut groups = groups()?;
    let ids = [(); 3].map(|()| InstanceId::unique());
    groups.add_instance(ids[0], DEFAULT_GROUP)?;
    groups.add_instance(ids[1], DEFAULT_GROUP)?;
    groups.add_instance(ids[2], "other")?;
    assert_eq!(groups.get_stream(ids[0])?, groups.get_stream(ids[1])?);
    assert_ne!(groups.get_stream(ids[0])?, groups.get_stream(ids[2])?);
    assert!(ids.iter().all(|&id| !groups.get_stream(id).is_ok_and(|s| s.is_legacy_default())));
    assert_eq!(groups.get_group_stream("other")?, groups.get_stream(ids[2])?);
    assert_eq!(groups.names().collect::<Vec<_>>(), ["default", "other"]);
    Ok(())
}

#[test]
fn members_come_go_and_change() -> Result<()> {
    let mut groups = groups()?;
    let (a, b) = (InstanceId::unique(), InstanceId::unique());
    groups.add_instance(a, "x")?;
    assert_eq!(groups.add_instance(a, "y"), Err(ManagerError::AlreadyInGroup(a, "x".into())));
    assert_eq!(groups.get_instances_in_group("y"), [], "no such group, nobody in it");
    assert_eq!(groups.get_group(b), Err(ManagerError::UnknownInstance(b)));
    assert_eq!(groups.change_group(b, "x"), Err(ManagerError::UnknownInstance(b)));
    groups.add_instance(b, "x")?;
    assert!(groups.is_grouped(a)?);
    groups.change_group(a, "y")?;
    assert_eq!((groups.get_group(a)?, groups.is_grouped(a)?), ("y", false));
    assert_eq!(groups.get_instances_in_group("x"), [b]);
    groups.remove_instance(a);
    groups.remove_instance(a);
    assert!(groups.is_grouped(a).is_err());
    groups.change_group(b, DEFAULT_GROUP)?;
    groups.add_instance(a, DEFAULT_GROUP)?;
    assert!(!groups.is_grouped(a)?, "company in the default group is none");
    Ok(())
}

#[test]
fn new_streams_come_after_the_old_ones_work_or_not_at_all() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let mut groups = StreamGroups::new(&backend, Device::FIRST);
    let (a, b) = (InstanceId::unique(), InstanceId::unique());
    groups.add_instance(a, "x")?;
    groups.add_instance(b, "y")?;
    let before = (groups.get_stream(a)?, groups.get_stream(b)?);
    for operation in [Operation::StreamCreate, Operation::StreamWaitEvent] {
        backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(operation).nth(1));
        assert!(groups.reinit_streams().is_err());
        assert_eq!((groups.get_stream(a)?, groups.get_stream(b)?), before);
    }
    drop(backend.take_calls());
    groups.reinit_streams()?;
    let waits =
        |call: &&_| pagewise::intercept::Call::operation(call) == Operation::StreamWaitEvent;
    assert_eq!(backend.take_calls().iter().filter(waits).count(), 2);
    assert!(groups.get_stream(a)? != before.0 && groups.get_stream(b)? != before.1);
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::StreamWaitEvent));
    assert!(groups.change_group(a, "z").is_err());
    assert_eq!((groups.get_group(a)?, groups.names().count()), ("x", 2), "no group is left");
    Ok(())
}

/// 3.9.6: cubie strands the request in the old group.
#[test]
fn requests_and_memory_follow_to_another_group() -> Result<()> {
    let manager = manager_of_8_gib()?;
    let a = manager.register(Registration::new().stream_group("x"))?;
    let b = manager.register(Registration::new().stream_group("y"))?;
    assert!(!manager.is_grouped(a)?, "it is alone");
    let request = || [("a", ArrayRequest::new(Dtype::F32, [4, 4, 4]))];
    manager.queue_request(a, request())?;
    let first = manager.allocate_queue(a)?.responses[&a].arr["a"].clone();
    manager.queue_request(a, [("late", ArrayRequest::default())])?;
    manager.change_stream_group(a, "y")?;
    let allocated = manager.allocate_queue(b)?;
    assert!(allocated.responses[&a].arr.contains_key("late"), "{allocated:?}");
    assert!(!first.is_gone());
    assert_eq!(manager.get_stream(a)?, manager.get_stream(b)?);
    assert_eq!(manager.get_instances_in_group("x"), []);
    assert!(manager.is_grouped(a)?);
    manager.reinit_streams()?;
    assert_eq!(manager.free("a"), 1);
    assert_eq!(manager.machine().failures_on_drop(), 0);
    Ok(())
}

/// Memory goes back in the order of the group that its owner is in by then: direct memory waits
/// for that group's stream, and for no other.
#[test]
fn memory_goes_back_on_the_stream_of_the_group_that_its_owner_moved_to() -> Result<()> {
    let waited = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&waited);
    let mut mock = MockBackend::new();
    mock.expect_memory_info()
        .returning(|_| Ok(MemoryInfo { free_bytes: 8 << 30, total_bytes: 8 << 30 }));
    mock.expect_alloc_device().returning(|_, _| Ok(DevicePtr(1 << 20)));
    mock.expect_stream_synchronize().returning(move |stream| {
        seen.lock().expect("no test panics while it holds this").push(stream);
        Ok(())
    });
    permit_machine(&mut mock);
    let manager = MemoryManager::new(Machine::from(Arc::new(mock)), Device::FIRST)?;
    let a = manager.register(Registration::new().stream_group("x"))?;
    manager.queue_request(a, [("a", ArrayRequest::new(Dtype::F32, [4, 4, 4]))])?;
    drop(manager.allocate_queue(a)?);
    let before = manager.get_stream(a)?.handle();
    manager.change_stream_group(a, "y")?;
    let after = manager.get_stream(a)?.handle();
    waited.lock().expect("no test panics while it holds this").clear();
    assert_eq!(manager.free("a"), 1);
    let waited = waited.lock().expect("no test panics while it holds this");
    assert!(waited.contains(&after) && !waited.contains(&before), "{waited:?}, {after:?}");
    Ok(())
}

#[test]
fn streams_of_the_manager_are_those_of_its_groups() -> Result<()> {
    let manager = manager_of_8_gib()?;
    let a = manager.register(Registration::new())?;
    let b = manager.register(Registration::new().stream_group("solver"))?;
    assert_eq!(manager.get_stream_group(a)?, DEFAULT_GROUP);
    assert_ne!(manager.get_stream(a)?, manager.get_stream(b)?);
    assert_eq!(manager.get_group_stream("solver")?, manager.get_stream(b)?);
    assert_eq!(manager.get_instances_in_group("solver"), [b]);
    let before = manager.get_stream(b)?;
    manager.reinit_streams()?;
    assert_ne!(manager.get_stream(b)?, before);
    manager.sync_stream(b)?;
    manager.release_instance(b)?;
    assert_eq!(manager.get_instances_in_group("solver"), []);
    let _: &MemoryManager = &manager;
    Ok(())
}
