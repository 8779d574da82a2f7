//! Choices of cubie that are ours too.

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{Code, Device, Machine};
use pagewise_managers::manager::{
    ArrayRequest, ChunkPolicy, Dtype, InstanceId, InstanceUpdate, LimitMode, ManagerError,
    ManagerOptions, MemoryManager, Registration, Result, Warning,
};

use crate::queue::{Told, listening, manager_of, runs, table};

/// Allocates arrays of an instance.
fn hold(manager: &MemoryManager, id: InstanceId, bytes: u64) -> Result<()> {
    manager.queue_request(id, [("x", table(bytes))])?;
    manager.allocate_queue(id).map(drop)
}

#[test]
fn a_small_cap_does_not_warn_while_memory_is_free() -> Result<()> {
    let manager = manager_of(79)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 40))])?;
    assert_eq!(manager.allocate_queue(id)?.parameters.chunk_length(), 1);
    let much = |warning: &Warning| matches!(warning, Warning::MuchLarger { .. });
    assert!(!manager.take_warnings().iter().any(much), "140 GB are free");
    Ok(())
}

#[test]
fn hooks_hear_the_last_division_after_everything_was_freed() -> Result<()> {
    let manager = manager_of(1000)?;
    let told = Told::default();
    let a = listening(&manager, &told, "a", Registration::new())?;
    manager.queue_request(a, [("x", runs(100, 20))])?;
    manager.allocate_queue(a)?;
    manager.free_all();
    told.lock().unwrap().clear();
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 50);
    assert_eq!(*told.lock().unwrap(), [("a", vec![], 2, 50)]);
    // It binds no later request: nothing is laid out for it.
    manager.queue_request(a, [("x", runs(100, 10))])?;
    assert_eq!(manager.allocate_queue(a)?.parameters.chunks(), 1);
    Ok(())
}

#[test]
fn a_response_lists_the_shapes_of_all_its_arrays() -> Result<()> {
    let manager = manager_of(1000)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(100, 10)), ("y", table(100))])?;
    let shapes = manager.allocate_queue(id)?.responses[&id].chunked_shapes.clone();
    assert_eq!((&shapes["x"][..], &shapes["y"][..]), (&[90, 10][..], &[100][..]));
    manager.queue_request(id, [("x", runs(10, 10))])?;
    let shapes = manager.allocate_queue(id)?.responses[&id].chunked_shapes.clone();
    assert_eq!(shapes["x"], [10, 10], "also where nothing is divided");
    Ok(())
}

#[test]
fn an_owner_that_worked_stays_before_one_that_only_registered_and_allocated() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let group = |name: &str| Registration::new().stream_group(name).invalidate_hook(|| {});
    let worked = manager.register(group("worked"))?;
    let third = manager.get_available_memory("worked")? / 3 - (8 << 20);
    hold(&manager, worked, third)?;
    manager.begin_submission(worked)?;
    manager.end_submission(worked, &manager.get_stream(worked)?)?;
    let idle = manager.register(group("idle"))?;
    hold(&manager, idle, third)?;
    let asks = manager.register(group("asks").proportion(0.9))?;
    manager.queue_request(asks, [("y", table(2 * third))])?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [idle]);
    Ok(())
}

/// cubie takes the oldest use of an owner's instances, and so one that registered late for idle.
#[test]
fn an_owner_is_as_recent_as_the_instance_that_worked_last() -> Result<()> {
    let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    let group = |name: &str| Registration::new().stream_group(name).invalidate_hook(|| {});
    let idle = manager.register(group("idle").owner(1))?;
    let worked = manager.register(group("worked").owner(2))?;
    let third = manager.get_available_memory("worked")? / 3 - (8 << 20);
    for id in [idle, worked] {
        hold(&manager, id, third)?;
        manager.begin_submission(id)?;
        manager.end_submission(id, &manager.get_stream(id)?)?;
    }
    manager.register(group("worked").owner(2))?;
    let asks = manager.register(group("asks").proportion(0.9))?;
    manager.queue_request(asks, [("y", table(2 * third))])?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [idle]);
    Ok(())
}

#[test]
fn work_of_one_instance_is_a_use_of_its_whole_owner() -> Result<()> {
    let manager = manager_of(1000)?;
    let [a, b] = [7, 7].map(|owner| manager.register(Registration::new().owner(owner)));
    let (a, b) = (a?, b?);
    manager.begin_submission(a)?;
    assert_eq!(manager.settings(b)?.last_used, manager.settings(a)?.last_used);
    assert_eq!(manager.settings(b)?.submitting, 0);
    Ok(())
}

#[test]
fn a_label_that_nobody_has_is_no_warning_when_it_is_freed_everywhere() -> Result<()> {
    let manager = manager_of(1000)?;
    assert_eq!(manager.free("unknown"), 0);
    assert_eq!(manager.take_warnings(), []);
    Ok(())
}

#[test]
fn the_members_of_an_owner_change_their_group_together() -> Result<()> {
    let manager = manager_of(1000)?;
    let told = Told::default();
    let of = |owner| Registration::new().stream_group("x").owner(owner);
    let a = listening(&manager, &told, "a", of(1))?;
    let b = listening(&manager, &told, "b", of(1))?;
    let other = manager.register(of(2))?;
    let elsewhere = manager.register(Registration::new().stream_group("y").owner(1))?;
    manager.queue_request(b, [("late", ArrayRequest::new(Dtype::F32, [4, 4, 4]))])?;
    manager.change_stream_group(a, "z")?;
    assert_eq!(manager.get_instances_in_group("z"), [a, b]);
    assert_eq!(manager.get_instances_in_group("x"), [other]);
    assert_eq!(manager.get_stream_group(elsewhere)?, "y", "it was in another group");
    assert!(manager.allocate_queue(a)?.responses[&b].arr.contains_key("late"));
    Ok(())
}

/// A manager with cubie's policy, of a device with so many bytes.
fn manager_like_cubie(total_bytes: u64) -> Result<MemoryManager> {
    let options = ManagerOptions::cubie().total_bytes(total_bytes).limit_mode(LimitMode::Active);
    MemoryManager::with_options(Machine::from(pagewise::sim()?), Device::FIRST, options)
}

#[test]
fn cubies_policy_leaves_2_percent_of_a_share_and_32_mib_of_the_device() -> Result<()> {
    let manager = manager_like_cubie(1000)?;
    let id = manager.register(Registration::new().invalidate_hook(|| {}))?;
    manager.queue_request(id, [("x", runs(100, 10))])?;
    let parameters = manager.allocate_queue(id)?.parameters;
    assert_eq!((parameters.chunks(), parameters.chunk_length()), (2, 50), "980 are allowed");
    manager.queue_request(id, [("x", runs(98, 10))])?;
    assert_eq!(manager.allocate_queue(id)?.parameters.chunks(), 1);
    manager.free_all();
    manager.set_limit_mode(LimitMode::Passive);
    // 50 times 32 MiB are 2 % and one granule.
    let free = manager.get_memory_info()?.free_bytes;
    let chunks = |bytes| {
        let request = runs(2, bytes / 2);
        manager.get_chunk_parameters([("x", &request)], 2, "default").map(|all| all.chunks())
    };
    assert_eq!((chunks(free / 50 * 49 - 200)?, chunks(free / 50 * 49 + 200)?), (1, 2));
    manager.set_chunk_policy(ChunkPolicy::exact().granule_bytes(32 << 20));
    assert_eq!((chunks(free - (32 << 20))?, chunks(free - (32 << 20) + 4)?), (1, 2));
    Ok(())
}

#[test]
fn headroom_is_freed_too_when_owners_are_evicted() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let options = ManagerOptions::new().chunk_policy(ChunkPolicy::default().headroom_permille(500));
    let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    let group = |name: &str| Registration::new().stream_group(name).invalidate_hook(|| {});
    let [a, b] = [manager.register(group("a"))?, manager.register(group("b"))?];
    let asks = manager.register(group("asks").proportion(0.9))?;
    let free = manager.get_memory_info()?.free_bytes;
    hold(&manager, a, free / 8)?;
    hold(&manager, b, free / 8)?;
    // Three quarters are free, half of them may be used: 1/16 is missing, so 1/8 has to go.
    manager.queue_request(asks, [("y", table(free / 16 * 7 - (8 << 20)))])?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [a]);
    Ok(())
}

#[test]
fn an_owner_allocates_for_itself_if_the_queue_is_by_owner() -> Result<()> {
    let manager = manager_like_cubie(1000)?;
    let told = Told::default();
    let of = |owner| Registration::new().stream_group("g").owner(owner).invalidate_hook(|| {});
    let a = listening(&manager, &told, "a", of(1))?;
    let b = listening(&manager, &told, "b", of(2))?;
    let _peer = listening(&manager, &told, "peer", of(1))?;
    manager.queue_request(a, [("x", runs(100, 4))])?;
    manager.queue_request(b, [("y", runs(50, 4))])?;
    let allocated = manager.allocate_queue(a)?;
    assert_eq!(allocated.responses.len(), 2, "{allocated:?}");
    let expected = [("a", vec!["x".to_owned()], 1, 100), ("peer", vec![], 1, 100)];
    assert_eq!(*told.lock().unwrap(), expected);
    assert_eq!(manager.settings(b)?.queued, ["y"]);
    told.lock().unwrap().clear();
    assert_eq!(manager.allocate_queue(a)?.parameters.chunk_length(), 100);
    assert!(told.lock().unwrap().is_empty(), "nothing was queued");
    assert!(manager.allocate_queue(b)?.responses[&b].arr.contains_key("y"));
    Ok(())
}

#[test]
fn chunks_are_of_the_axis_that_is_asked_for() -> Result<()> {
    let manager = manager_of(1000)?;
    manager.register(Registration::new())?;
    let along = ArrayRequest::new(Dtype::U8, [200, 10]).chunk_axis(0);
    let chunks = |length| manager.get_chunk_parameters([("x", &along)], length, "default");
    assert_eq!((chunks(200)?.chunks(), chunks(200)?.chunk_length()), (2, 100));
    assert!(matches!(chunks(100), Err(ManagerError::RunsDiffer { .. })));
    Ok(())
}

#[test]
fn an_update_changes_all_that_it_names_or_nothing() -> Result<()> {
    let manager = manager_of(1000)?;
    let a = manager.register(Registration::new())?;
    let b = manager.register(Registration::new().proportion(0.5))?;
    manager.update(a, InstanceUpdate::new())?;
    assert_eq!(manager.settings(a)?.stream_group, "default", "nothing was named");
    manager.update(a, InstanceUpdate::new().stream_group("g").proportion(0.25))?;
    let settings = manager.settings(a)?;
    assert_eq!((&settings.stream_group[..], settings.proportion), ("g", 0.25));
    manager.update(b, InstanceUpdate::new().proportion(None))?;
    assert_eq!(manager.proportion(b)?, 0.75);
    let refused = manager.update(a, InstanceUpdate::new().stream_group("h").proportion(0.99));
    assert!(matches!(refused, Err(ManagerError::AutoPoolTooSmall { .. })));
    let settings = manager.settings(a)?;
    assert_eq!((&settings.stream_group[..], settings.proportion), ("g", 0.25));
    let stranger = InstanceId::unique();
    let unknown = Err(ManagerError::UnknownInstance(stranger));
    assert_eq!(manager.update(stranger, InstanceUpdate::new()), unknown);
    Ok(())
}

#[test]
fn an_update_that_cannot_make_its_group_changes_no_share() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::StreamCreate));
    let update = InstanceUpdate::new().stream_group("g").proportion(0.25);
    assert!(manager.update(id, update).is_err());
    assert_eq!(manager.proportion(id)?, 1.0);
    Ok(())
}
