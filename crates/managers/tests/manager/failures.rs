//! Each call of the back end fails once: nothing changes, nothing leaks, nothing is freed twice,
//! and queued requests can be tried again.

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector, Sweep};
use pagewise::intercept::Operation;
use pagewise::{Code, Device, Error, ErrorKind, Machine, MemoryInfo, SimBackend};
use pagewise_managers::manager::{
    Allocator, Array, ArrayMemory, ArrayRequest, ChunkPolicy, Dtype, HostMemory, InstanceId,
    LimitMode, ManagerError, ManagerOptions, MemoryManager, Registration, Result,
};

use crate::queue::{runs, table};

type Failing = Arc<FaultInjector<Arc<SimBackend>>>;

/// The state of a manager, to be compared.
fn picture(manager: &MemoryManager) -> Result<Vec<String>> {
    let of = |id: InstanceId| {
        let settings = manager.settings(id)?;
        let spans: Vec<_> =
            settings.allocations.iter().map(|(label, array)| (label, array.span())).collect();
        let shares = (settings.proportion, settings.cap, settings.is_manual);
        let group = (settings.stream_group, settings.stream);
        Ok(format!("{id}: {shares:?} {group:?} {:?} {spans:?}", settings.queued))
    };
    manager.instances().into_iter().map(of).collect()
}

fn info(machine: &Machine) -> pagewise::Result<MemoryInfo> {
    machine.backend().memory_info(Device::FIRST.id())
}

/// How many more allocations than frees there were, and that none was freed twice or wrongly: the
/// simulator refuses that.
fn live(backend: &Failing) -> i64 {
    let failed = backend.failed();
    let calls = backend.take_calls();
    let count = |calls: &[pagewise::intercept::Call]| -> i64 {
        let weight = |operation| match operation {
            Operation::AllocDevice | Operation::AllocManaged | Operation::AllocPinned => 1,
            Operation::PoolAlloc | Operation::StreamCreate | Operation::PoolCreate => 1,
            Operation::EventCreate => 1,
            Operation::Free | Operation::FreePinned | Operation::FreeAsync => -1,
            Operation::StreamDestroy | Operation::PoolDestroy | Operation::EventDestroy => -1,
            _ => 0,
        };
        calls.iter().map(|call| weight(call.operation())).sum()
    };
    count(&calls) - count(&failed)
}

/// Two instances of a group with arrays and requests, one elsewhere that could be evicted.
struct Scene {
    manager: MemoryManager,
    a: InstanceId,
    b: InstanceId,
    x: Array,
}

fn scene(backend: &Failing, policy: ChunkPolicy) -> Result<Scene> {
    let options = ManagerOptions::new()
        .total_bytes(1 << 20)
        .limit_mode(LimitMode::Active)
        .chunk_policy(policy);
    let manager = MemoryManager::with_options(backend, Device::FIRST, options)?;
    let a = manager.register(Registration::new().stream_group("g").proportion(0.4))?;
    let b = manager.register(Registration::new().stream_group("g"))?;
    let other = manager.register(Registration::new().invalidate_hook(|| {}))?;
    let managed = table(100_000).memory(ArrayMemory::Managed);
    manager.queue_request(a, [("x", table(1000)), ("m", managed)])?;
    let x = manager.allocate_queue(a)?.responses[&a].arr["x"].clone();
    manager.queue_request(other, [("o", table(1000))])?;
    manager.allocate_queue(other)?;
    Ok(Scene { manager, a, b, x })
}

/// Queues what replaces one array and adds others, of each kind of memory.
fn queue(scene: &Scene, bytes: u64) -> Result<()> {
    let kinds = [
        ("x", table(2000)),
        ("d", runs(100, bytes)),
        ("p", table(500).memory(ArrayMemory::Pinned)),
        ("w", runs(100, bytes).memory(ArrayMemory::Managed)),
    ];
    scene.manager.queue_request(scene.a, kinds)?;
    scene.manager.queue_request(scene.b, [("y", runs(100, bytes))])
}

/// Sweeps one action, with what has to hold after it.
fn sweep_action(
    code: i32,
    policy: ChunkPolicy,
    prepare: impl Fn(&Scene) -> Result<()>,
    action: impl Fn(&Scene) -> Result<()>,
) -> Result<u64> {
    let every_call = Sweep::new(code).with_destructors();
    let swept = every_call.run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let free_at_first = info(&machine)?;
        let scene = scene(backend, policy)?;
        prepare(&scene)?;
        let (before, memory) = (picture(&scene.manager)?, info(&machine)?);
        let answer = backend.watch(|| action(&scene));
        let lost = backend.failed().iter().any(|call| is_release(call.operation()));
        if let Err(error) = &answer {
            let failing = failing.expect("nothing fails by itself");
            assert_eq!(picture(&scene.manager)?, before, "call {failing}: {error}");
            assert_eq!(error.kind(), ErrorKind::of_code(code), "{error}");
            if !lost {
                assert_eq!(info(&machine)?, memory, "call {failing}: {error}");
                assert_eq!(machine_failures(&scene), 0, "{error}");
            }
            action(&scene)?;
        }
        // Failures that no call could report are counted.
        let unseen = u64::from(answer.is_ok() && failing.is_some() && code != Code::OUT_OF_MEMORY);
        assert!(machine_failures(&scene) >= unseen.min(u64::from(lost)));
        drop(scene);
        if !lost {
            assert_eq!(info(&machine)?, free_at_first, "{failing:?}");
        }
        Ok(())
    })?;
    Ok(swept.calls)
}

fn machine_failures(scene: &Scene) -> u64 {
    scene.manager.machine().failures_on_drop()
}

fn is_release(operation: Operation) -> bool {
    use Operation::{EventDestroy, Free, FreeAsync, FreePinned, PoolDestroy, StreamDestroy};
    [Free, FreePinned, FreeAsync, EventDestroy, StreamDestroy, PoolDestroy].contains(&operation)
}

/// 3.9.7: cubie leaves partial allocations, instances that were not told, and an empty queue.
#[test]
fn an_allocation_that_fails_anywhere_changes_nothing() -> Result<()> {
    let allocate = |scene: &Scene| scene.manager.allocate_queue(scene.b).map(drop);
    for code in [Code::NOT_PERMITTED, Code::ILLEGAL_ADDRESS] {
        // Everything fits.
        let sites =
            sweep_action(code, ChunkPolicy::default(), |scene| queue(scene, 100), allocate)?;
        assert!(sites >= 6, "{sites}: memory, five allocations");
        // It has to be divided.
        let exact = ChunkPolicy::exact().buffers(2);
        let prepare = |scene: &Scene| {
            scene.manager.queue_request(scene.a, [("d", runs(100, 9000))])?;
            scene.manager.queue_request(scene.b, [("y", runs(100, 9000)), ("z", table(100))])
        };
        assert!(sweep_action(code, exact, prepare, allocate)? >= 4);
    }
    Ok(())
}

/// 3.9.11: the free amount is a guess, so running out of memory is answered by asking for less.
#[test]
fn memory_that_runs_out_after_all_is_asked_for_again_with_shorter_chunks() -> Result<()> {
    let allocate = |scene: &Scene| scene.manager.allocate_queue(scene.b).map(drop);
    let policy = ChunkPolicy::default();
    sweep_action(Code::OUT_OF_MEMORY, policy, |scene| queue(scene, 100), allocate)?;
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", runs(800, 512)), ("y", runs(800, 512))])?;
    backend
        .arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::AllocDevice).at_least(400_000).always());
    let allocated = manager.allocate_queue(id)?;
    assert_eq!((allocated.parameters.chunks(), allocated.parameters.chunk_length()), (2, 699));
    // A request that cannot be divided reports the driver's error.
    backend.disarm();
    manager.queue_request(id, [("z", table(1000))])?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::AllocDevice).always());
    let refused = manager.allocate_queue(id).unwrap_err();
    assert!(matches!(&refused, ManagerError::Driver(e) if e.code() == Some(Code::OUT_OF_MEMORY)));
    backend.disarm();
    manager.set_chunk_policy(ChunkPolicy::exact());
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::AllocDevice));
    assert!(manager.allocate_queue(id).is_err(), "exactly one try");
    assert!(manager.allocate_queue(id).is_ok());
    Ok(())
}

/// The one change that a failed call makes is named by its error.
#[test]
fn what_was_freed_to_make_room_is_named_if_that_was_in_vain() -> Result<()> {
    let every_call = Sweep::new(Code::NOT_PERMITTED).with_destructors();
    let swept = every_call.run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let free_at_first = info(&machine)?;
        let scene = scene(backend, ChunkPolicy::exact())?;
        let (manager, a) = (&scene.manager, scene.a);
        manager.queue_request(a, [("x", table(500_000))])?;
        manager.allocate_queue(a)?;
        manager.queue_request(a, [("x", table(600_000))])?;
        let answer = backend.watch(|| manager.allocate_queue(a));
        let released = |operation: Operation| {
            is_release(operation) || operation == Operation::StreamSynchronize
        };
        let hidden = backend.failed().iter().any(|call| released(call.operation()));
        assert_eq!(answer.is_err(), failing.is_some() && !hidden, "{answer:?}");
        match answer {
            Err(ManagerError::AfterFreeing { cause, freed }) => {
                assert_eq!(cause.code(), Some(Code::NOT_PERMITTED));
                assert_eq!(freed, [(a, "x".to_owned())]);
                let settings = manager.settings(a)?;
                assert!(!settings.allocations.contains_key("x"));
                assert_eq!(settings.queued, ["x"]);
            }
            Err(_) => assert!(manager.settings(a)?.allocations.contains_key("x")),
            Ok(_) => {}
        }
        manager.allocate_queue(a)?;
        assert_eq!(manager.settings(a)?.allocations["x"].nbytes(), 600_000);
        drop(scene);
        if !hidden {
            assert_eq!(info(&machine)?, free_at_first);
        }
        Ok(())
    })?;
    assert_eq!(swept.calls, 4, "memory, wait, free, allocate");
    Ok(())
}

#[test]
fn registrations_and_groups_that_fail_anywhere_change_nothing() -> Result<()> {
    let policy = ChunkPolicy::default();
    let code = Code::OUT_OF_MEMORY;
    let nothing = |_: &Scene| Ok(());
    let register = |scene: &Scene| {
        let id = scene.manager.register(Registration::new().stream_group("new"))?;
        scene.manager.release_instance(id)
    };
    assert_eq!(sweep_action(code, policy, nothing, register)?, 1);
    let change = |scene: &Scene| scene.manager.change_stream_group(scene.a, "new");
    assert!(sweep_action(code, policy, |scene| queue(scene, 10), change)? >= 4);
    let streams = |scene: &Scene| scene.manager.reinit_streams();
    assert!(sweep_action(code, policy, nothing, streams)? >= 8);
    let end = |scene: &Scene| {
        let stream = scene.manager.get_stream(scene.a)?;
        scene.manager.end_submission(scene.a, &stream)
    };
    assert!(sweep_action(code, policy, nothing, end)? >= 2);
    Ok(())
}

#[test]
fn another_allocator_or_none() -> Result<()> {
    let change = |scene: &Scene| scene.manager.set_allocator(Allocator::OwnPool);
    let every_call = Sweep::new(Code::NOT_PERMITTED).with_destructors();
    let swept = every_call.run(pagewise::sim, |backend, _| {
        let scene = scene(backend, ChunkPolicy::default())?;
        let before = picture(&scene.manager)?;
        match backend.watch(|| change(&scene)) {
            Err(_) => assert_eq!(picture(&scene.manager)?, before),
            Ok(()) => assert!(scene.x.is_gone()),
        }
        change(&scene)?;
        queue(&scene, 100)?;
        scene.manager.allocate_queue(scene.a)?;
        Ok(())
    })?;
    assert!(swept.calls > 10);
    Ok(())
}

#[test]
fn copies_and_host_arrays_that_fail_leave_nothing_behind() -> Result<()> {
    for memory in [HostMemory::Pinned, HostMemory::Host, HostMemory::Memmap] {
        let copy = |scene: &Scene| {
            let manager = &scene.manager;
            let mut host = manager.create_host_array(&[1000], Dtype::U8, memory, None)?;
            manager.to_device(scene.a, &[&host], &[&scene.x])?;
            manager.from_device(scene.a, &[&scene.x], &mut [&mut host])?;
            host.as_slice::<u8>().map(drop)
        };
        let every_call = Sweep::new(Code::NOT_PERMITTED).with_destructors();
        let swept = every_call.run(pagewise::sim, |backend, failing| {
            let machine = Machine::from(backend);
            let scene = scene(backend, ChunkPolicy::default())?;
            let before = (picture(&scene.manager)?, info(&machine)?);
            let answer = backend.watch(|| copy(&scene));
            assert!(answer.is_err() <= failing.is_some());
            let after = (picture(&scene.manager)?, info(&machine)?);
            assert_eq!(after, before);
            copy(&scene)?;
            let lost = u64::from(answer.is_ok() && failing.is_some());
            assert!(machine_failures(&scene) >= lost, "{:?}", backend.failed());
            Ok(())
        })?;
        assert!(swept.calls >= 5, "{memory:?}: {swept}");
    }
    Ok(())
}

#[test]
fn as_many_are_destroyed_as_were_made() -> Result<()> {
    let backend: Failing = Arc::new(FaultInjector::around(pagewise::sim()?));
    let scene = scene(&backend, ChunkPolicy::default())?;
    queue(&scene, 100)?;
    scene.manager.allocate_queue(scene.a)?;
    scene.manager.begin_submission(scene.a)?;
    scene.manager.end_submission(scene.a, &scene.manager.get_stream(scene.a)?)?;
    scene.manager.set_allocator(Allocator::OwnPool)?;
    queue(&scene, 5000)?;
    scene.manager.allocate_queue(scene.b)?;
    scene.manager.invalidate_all();
    drop(scene);
    assert_eq!(live(&backend), 0);
    Ok(())
}

#[test]
fn errors_become_the_crate_s_own() -> Result<()> {
    let driver = Error::from_code("x", Code::NOT_PERMITTED);
    assert_eq!(Error::from(ManagerError::Driver(driver.clone())), driver);
    let error = Error::from(ManagerError::ArrayGone);
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidHandle, None));
    assert!(error.to_string().contains("given back"), "{error}");
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(Registration::new())?;
    backend.arm(Fault::new(719).always());
    manager.queue_request(id, [("x", ArrayRequest::default())])?;
    assert_eq!(manager.allocate_queue(id).map(drop).unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(manager.get_memory_info().unwrap_err().kind(), ErrorKind::DeviceLost);
    Ok(())
}
