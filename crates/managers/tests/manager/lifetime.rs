//! Lifetimes: the instances that lose memory, when they lose it, and which of them are told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use pagewise::inject::FaultInjector;
use pagewise::intercept::Operation;
use pagewise::resource::{DeviceMemoryResource, ManagedMemoryResource, Statistics};
use pagewise::{Device, Machine, Stream};
use pagewise_managers::manager::{
    Allocator, ArrayMemory, InstanceId, ManagerError, ManagerOptions, MemoryManager, Registration,
    Result, Warning,
};

use crate::queue::{manager_of, runs, table};

/// Counts what a hook is called for.
#[derive(Debug, Default, Clone)]
struct Count(Arc<AtomicU64>);

impl Count {
    fn hook(&self) -> impl Fn() + Send + Sync + 'static {
        let count = self.0.clone();
        move || {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn hold(manager: &MemoryManager, id: InstanceId, bytes: u64) -> Result<()> {
    manager.queue_request(id, [("x", table(bytes))])?;
    manager.allocate_queue(id).map(drop)
}

fn held(manager: &MemoryManager, id: InstanceId) -> Result<u64> {
    manager.settings(id).map(|settings| settings.allocated_bytes())
}

#[test]
fn invalidation_frees_everything_and_tells_everybody() -> Result<()> {
    let manager = manager_of(1000)?;
    let count = Count::default();
    let a = manager.register(Registration::new().invalidate_hook(count.hook()))?;
    let b = manager.register(Registration::new().invalidate_hook(count.hook()))?;
    let c = manager.register(Registration::new())?;
    [a, b, c].into_iter().try_for_each(|id| hold(&manager, id, 10))?;
    manager.invalidate_all();
    assert_eq!(count.get(), 2);
    assert_eq!((held(&manager, a)?, held(&manager, b)?, held(&manager, c)?), (0, 0, 0));
    hold(&manager, a, 10)?;
    manager.free_all();
    assert_eq!((held(&manager, a)?, count.get()), (0, 2), "freeing tells nobody");
    Ok(())
}

#[test]
fn freeing_is_by_label_for_everybody_or_by_instance() -> Result<()> {
    let manager = manager_of(1000)?;
    let (a, b) = (manager.register(Registration::new())?, manager.register(Registration::new())?);
    hold(&manager, a, 10)?;
    hold(&manager, b, 20)?;
    assert_eq!(manager.free("x"), 2);
    assert_eq!(manager.free("x"), 0);
    let nothing = || Warning::NothingToFree { label: "x".to_owned() };
    assert_eq!(manager.take_warnings(), []);
    hold(&manager, a, 10)?;
    hold(&manager, b, 20)?;
    assert!(manager.free_array(a, "x")?);
    assert!(!manager.free_array(a, "x")?);
    assert_eq!((manager.take_warnings(), held(&manager, b)?), (vec![nothing()], 20));
    manager.free_instance(b)?;
    assert_eq!(held(&manager, b)?, 0);
    Ok(())
}

#[test]
fn the_manager_takes_everything_with_it() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let before = manager.get_memory_info()?;
    let count = Count::default();
    let id = manager.register(Registration::new().invalidate_hook(count.hook()))?;
    manager.queue_request(id, [("x", table(64 << 20)), ("y", runs(10, 4 << 20))])?;
    let arrays = manager.allocate_queue(id)?.responses[&id].arr.clone();
    assert!(manager.get_memory_info()?.free_bytes < before.free_bytes);
    drop(manager);
    assert_eq!(machine.backend().memory_info(Device::FIRST.id())?, before);
    assert!(arrays.values().all(|array| array.is_gone()));
    assert_eq!((count.get(), machine.failures_on_drop()), (0, 0));
    Ok(())
}

#[test]
fn hooks_may_call_the_manager() -> Result<()> {
    static MANAGER: OnceLock<MemoryManager> = OnceLock::new();
    let manager = MANAGER.get_or_init(|| manager_of(1000).expect("a simulated machine"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let id = manager.register(
        Registration::new()
            .invalidate_hook(move || {
                for id in manager.instances() {
                    let queued = manager.queue_request(id, [("again", table(7))]);
                    notes.lock().unwrap().push(queued);
                }
            })
            .allocation_ready_hook(move |response| {
                if response.arr.contains_key("x") {
                    manager.free("x");
                }
            }),
    )?;
    hold(manager, id, 10)?;
    assert_eq!(held(manager, id)?, 0, "the hook freed it");
    manager.invalidate_all();
    assert_eq!(*seen.lock().unwrap(), [Ok(())]);
    assert_eq!(manager.allocate_queue(id)?.responses[&id].arr["again"].nbytes(), 7);
    Ok(())
}

#[test]
fn a_hook_that_panics_keeps_nobody_else_from_being_told() -> Result<()> {
    let manager = manager_of(1000)?;
    let count = Count::default();
    let _bad = manager.register(Registration::new().invalidate_hook(|| panic!("on purpose")))?;
    let good = manager.register(Registration::new().invalidate_hook(count.hook()))?;
    hold(&manager, good, 10)?;
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| manager.invalidate_all()));
    assert!(panicked.is_err(), "it goes on to who called");
    assert_eq!((count.get(), held(&manager, good)?), (1, 0));
    Ok(())
}

/// The registry kept collected instances alive (issue 593).
#[test]
fn hooks_of_objects_do_not_keep_them() -> Result<()> {
    struct Solver(AtomicU64);
    let manager = manager_of(1000)?;
    let solver = Arc::new(Solver(AtomicU64::new(0)));
    let note = |solver: &Solver| {
        solver.0.fetch_add(1, Ordering::Relaxed);
    };
    let registration = Registration::new()
        .invalidate_hook_of(&solver, note)
        .allocation_ready_hook_of(&solver, move |solver, _| note(solver));
    let id = manager.register(registration)?;
    hold(&manager, id, 10)?;
    manager.invalidate_all();
    assert_eq!((solver.0.load(Ordering::Relaxed), Arc::strong_count(&solver)), (2, 1));
    drop(solver);
    manager.invalidate_all();
    hold(&manager, id, 10)?;
    assert_eq!(held(&manager, id)?, 10, "it is registered: only its hooks are gone");
    Ok(())
}

/// Buffers were freed only at the next registration (issue 620).
#[test]
fn an_instance_goes_with_its_object_at_the_next_call() -> Result<()> {
    let manager = manager_of(1000)?;
    let (solver, other) = (Arc::new("solver"), Arc::new("other"));
    let id = manager.register(Registration::new().proportion(0.5).object(&solver))?;
    let auto = manager.register(Registration::new().object(&other))?;
    let again = manager.register(Registration::new().object(&solver));
    assert_eq!(again, Err(ManagerError::AlreadyRegistered(id)));
    manager.queue_request(id, [("x", table(10))])?;
    let x = manager.allocate_queue(id)?.responses[&id].arr["x"].clone();
    manager.queue_request(id, [("y", table(10))])?;
    drop(solver);
    assert_eq!(manager.proportion(auto)?, 1.0, "its share is free");
    assert!(x.is_gone());
    assert_eq!(manager.instances(), [auto]);
    drop(other);
    assert_eq!((manager.auto_pool(), manager.manual_pool()), (vec![], vec![]));
    assert_eq!(manager.get_instances_in_group("default"), []);
    Ok(())
}

#[test]
fn a_destructor_can_release_whatever_it_runs_under() -> Result<()> {
    struct Solver {
        manager: Arc<MemoryManager>,
        id: InstanceId,
    }
    impl Drop for Solver {
        fn drop(&mut self) {
            self.manager.release_later(self.id);
            self.manager.release_later(self.id);
        }
    }
    let manager = Arc::new(manager_of(1000)?);
    let id = manager.register(Registration::new().proportion(0.5))?;
    let solver = Solver { manager: manager.clone(), id };
    // The hook owns it, so it is dropped by the manager's own call.
    let owner = manager.register(Registration::new().invalidate_hook(move || {
        let _ = &solver;
    }))?;
    manager.release_instance(owner)?;
    assert_eq!(manager.instances(), []);
    assert!(manager.register(Registration::new().proportion(1.0)).is_ok());
    Ok(())
}

#[test]
fn idle_owners_are_evicted_the_least_recently_used_first() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let free = manager.get_available_memory("default");
    assert!(free.is_err(), "the default group is made by its first member");
    let counts = [(); 3].map(|()| Count::default());
    let group = |name: &str, n: usize| {
        Registration::new().stream_group(name).invalidate_hook(counts[n].hook())
    };
    let a = manager.register(group("a", 0).owner(1))?;
    let a2 = manager.register(group("a", 0).owner(1))?;
    let b = manager.register(group("b", 1))?;
    let c = manager.register(group("c", 2).proportion(0.9))?;
    let third = manager.get_available_memory("a")? / 3 - (8 << 20);
    hold(&manager, a, third - (4 << 20))?;
    hold(&manager, a2, 4 << 20)?;
    hold(&manager, b, third)?;
    hold(&manager, c, third)?;
    manager.begin_submission(a)?;
    manager.end_submission(a, &manager.get_stream(a)?)?;
    // b was used least recently now. Room for one more needs one to go.
    manager.queue_request(c, [("y", table(third))])?;
    let allocated = manager.allocate_queue(c)?;
    assert_eq!(allocated.evicted, [b]);
    assert_eq!(counts.each_ref().map(Count::get), [0, 1, 0]);
    assert_eq!((held(&manager, b)?, held(&manager, c)?), (0, 2 * third));
    // The owner of a goes as a whole, and who asks never does.
    manager.queue_request(c, [("z", table(third / 2))])?;
    assert_eq!(manager.allocate_queue(c)?.evicted, [a, a2]);
    assert_eq!(counts.each_ref().map(Count::get), [2, 1, 0]);
    // Who lost it asks again, and may not make room: its share is 5 %.
    manager.queue_request(b, [("x", table(third))])?;
    let refused = manager.allocate_queue(b).unwrap_err();
    assert!(matches!(refused, ManagerError::NothingToChunk { .. }), "{refused}");
    Ok(())
}

#[test]
fn as_many_idle_owners_are_evicted_as_the_shortage_needs() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let group = |name: &str| Registration::new().stream_group(name).invalidate_hook(|| {});
    let [a, b] = [manager.register(group("a"))?, manager.register(group("b"))?];
    let asks = manager.register(group("asks").proportion(0.9))?;
    let third = manager.get_available_memory("a")? / 3 - (8 << 20);
    hold(&manager, a, third)?;
    hold(&manager, b, third)?;
    manager.queue_request(asks, [("y", table(2 * third + third / 2))])?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [a, b], "one is not enough");
    Ok(())
}

#[test]
fn an_instance_that_asks_is_not_evicted_though_it_worked_least_recently() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let group = |name: &str| Registration::new().stream_group(name).invalidate_hook(|| {});
    let asks = manager.register(group("asks").proportion(0.9))?;
    let other = manager.register(group("other"))?;
    let half = manager.get_available_memory("asks")? / 2 - (8 << 20);
    hold(&manager, asks, half)?;
    hold(&manager, other, half)?;
    manager.queue_request(asks, [("y", table(half / 2))])?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [other]);
    assert_eq!(held(&manager, asks)?, half + half / 2, "it keeps what it had");
    Ok(())
}

#[test]
fn who_works_has_no_hook_or_would_not_make_room_enough_stays() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let count = Count::default();
    let busy = manager.register(Registration::new().invalidate_hook(count.hook()))?;
    let mute = manager.register(Registration::new().stream_group("mute"))?;
    let asks = manager.register(Registration::new().stream_group("asks").proportion(0.9))?;
    let half = manager.get_available_memory("asks")? / 2 - (8 << 20);
    hold(&manager, busy, half)?;
    hold(&manager, mute, 4 << 20)?;
    manager.begin_submission(busy)?;
    manager.queue_request(asks, [("x", runs(100, half / 50))])?;
    let allocated = manager.allocate_queue(asks)?;
    assert!(allocated.evicted.is_empty() && allocated.parameters.chunks() > 1, "{allocated:?}");
    manager.free_instance(asks)?;
    manager.end_submission(busy, &manager.get_stream(busy)?)?;
    manager.queue_request(asks, [("x", runs(100, half / 25))])?;
    let allocated = manager.allocate_queue(asks)?;
    assert!(allocated.evicted.is_empty(), "it would not fit all the same");
    manager.free_instance(asks)?;
    manager.set_manual_proportion(asks, 0.3)?;
    manager.queue_request(asks, [("x", runs(100, half / 60))])?;
    assert!(manager.allocate_queue(asks)?.evicted.is_empty(), "beyond its share");
    manager.free_instance(asks)?;
    manager.set_manual_proportion(asks, 0.9)?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [], "nothing is queued any more");
    manager.queue_request(asks, [("x", runs(100, half / 60))])?;
    assert_eq!(manager.allocate_queue(asks)?.evicted, [busy]);
    assert_eq!(count.get(), 1);
    Ok(())
}

/// The order of cubie is the other way round: it frees what its context took along.
#[test]
fn another_allocator_comes_after_all_memory_has_gone() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let count = Count::default();
    let id = manager.register(Registration::new().invalidate_hook(count.hook()))?;
    hold(&manager, id, 1000)?;
    let stream = manager.get_stream(id)?;
    drop(backend.take_calls());
    manager.set_allocator("cupy_async".parse()?)?;
    let calls: Vec<_> = backend.take_calls().iter().map(|call| call.operation()).collect();
    assert!(calls.contains(&Operation::Free) && !calls.contains(&Operation::FreeAsync));
    assert_eq!((count.get(), held(&manager, id)?), (1, 0));
    assert_ne!(manager.get_stream(id)?, stream);
    hold(&manager, id, 1000)?;
    let calls: Vec<_> = backend.take_calls().iter().map(|call| call.operation()).collect();
    assert!(calls.contains(&Operation::PoolAlloc));
    for name in ["cupy", "default"] {
        manager.set_allocator(name.parse()?)?;
        hold(&manager, id, 1000)?;
    }
    assert!("numba".parse::<Allocator>().is_err());
    assert_eq!((count.get(), machine.failures_on_drop()), (3, 0));
    Ok(())
}

#[test]
fn what_a_pool_keeps_counts_as_free() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let pool = DeviceMemoryResource::current_pool(&machine, Device::FIRST)?;
    pool.pool().expect("it has one").set_release_threshold(u64::MAX)?;
    let options = ManagerOptions::new().allocator(Allocator::CurrentPool);
    let manager = MemoryManager::with_options(&machine, Device::FIRST, options)?;
    let id = manager.register(Registration::new())?;
    let before = manager.get_available_memory("default")?;
    hold(&manager, id, before / 4 * 3)?;
    manager.free("x");
    assert!(manager.get_memory_info()?.free_bytes < before / 2, "the driver says");
    assert_eq!(manager.get_available_memory("default")?, before);
    hold(&manager, id, before / 4 * 3)?;
    Ok(())
}

#[test]
fn memory_of_each_kind_may_come_from_a_resource() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let counted = Arc::new(Statistics::new(ManagedMemoryResource::new_pool(&machine, None)?));
    let options = pagewise_managers::manager::ManagerOptions::new();
    let managed = options.clone().resource(ArrayMemory::Managed, counted.clone());
    let manager = MemoryManager::with_options(&machine, Device::FIRST, managed)?;
    let id = manager.register(Registration::new())?;
    manager.queue_request(id, [("x", table(500).memory(ArrayMemory::Managed))])?;
    let x = manager.allocate_queue(id)?.responses[&id].arr["x"].clone();
    assert_eq!(counted.counters().bytes.current, 500);
    x.prefetch(Device::FIRST, &manager.get_stream(id)?)?;
    drop(manager);
    assert_eq!(counted.counters().bytes.current, 0);
    let wrong = options.clone().resource(ArrayMemory::Device, counted.clone());
    let refused = MemoryManager::with_options(&machine, Device::FIRST, wrong).map(drop);
    assert!(matches!(refused, Err(ManagerError::WrongMemory { .. })));
    let elsewhere = Machine::from(pagewise::sim()?);
    let other = options.resource(ArrayMemory::Managed, counted);
    let refused = MemoryManager::with_options(&elsewhere, Device::FIRST, other).map(drop);
    assert!(matches!(refused, Err(ManagerError::WrongMemory { .. })));
    Ok(())
}

#[test]
fn an_array_of_nobody_goes_with_its_last_handle() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let manager = MemoryManager::new(&machine, Device::FIRST)?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let before = manager.get_memory_info()?;
    let array = manager.allocate(&table(64 << 20), &stream)?;
    let clone = array.clone();
    drop(array);
    assert_eq!(clone.span()?.bytes, 64 << 20);
    manager.invalidate_all();
    assert!(!clone.is_gone());
    drop(clone);
    assert_eq!(manager.get_memory_info()?, before);
    let other = Stream::legacy_default(&Machine::from(pagewise::sim()?));
    assert!(manager.allocate(&table(1), &other).is_err(), "a stream of another machine");
    Ok(())
}
