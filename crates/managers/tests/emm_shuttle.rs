//! Managers of external memory and unified pools under random thread schedules.
//!
//! Only in builds with `--cfg pagewise_shuttle`, in which their locks are shuttle's; `cargo xtask
//! ci` makes one. A schedule that fails is printed, to be replayed by `shuttle::replay`.
#![cfg(pagewise_shuttle)]

mod schedules;

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagewise::resource::ManagedMemoryResource;
use pagewise::{Device, DevicePtr, ErrorKind, Place, Span, Stream};
use pagewise_managers::emm::{
    Contexts, EmmOptions, ExternalMemoryManager, MemoryPointer, PendingDeallocations,
    PendingLimits, Plugin, PointerKind, ResourceManager,
};
use pagewise_managers::mempool::{ManagedAllocator, MempoolOptions, TensorLayout, UnifiedMempool};
use schedules::check;
use shuttle::thread;

/// Runs the same on several threads, each with a number.
fn on_threads(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..count)
        .map(|n| {
            let work = Arc::clone(&work);
            thread::spawn(move || work(n))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

// ---- deallocations that wait ------------------------------------------------------------------

fn counts(done: &Arc<AtomicUsize>) -> Box<dyn FnOnce() -> pagewise::Result<()> + Send> {
    let done = Arc::clone(done);
    Box::new(move || {
        done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

#[test]
fn each_deallocation_runs_once() {
    check(|machine| {
        let limits = PendingLimits { count_max: 2, ..PendingLimits::default() };
        let queue = PendingDeallocations::new(machine, limits).expect("good limits");
        queue.set_capacity(100);
        let done = Arc::<AtomicUsize>::default();
        let (shared, count) = (queue.clone(), Arc::clone(&done));
        on_threads(3, move |n| {
            for step in 0..3 {
                let deferred = (step == n).then(|| shared.defer());
                shared.add(Some(9), counts(&count)).expect("none fails");
                if n == 0 {
                    shared.flush().expect("none fails");
                }
                drop(deferred);
            }
        });
        assert!(!queue.is_deferred() && queue.count() <= 2);
        assert_eq!(queue.bytes(), 9 * queue.count() as u64, "bytes are exact");
        drop(queue);
        assert_eq!(done.load(Ordering::Relaxed), 9);
    });
}

#[test]
fn what_is_added_while_cleanup_is_deferred_runs_when_nobody_defers_any_more() {
    check(|machine| {
        let limits = PendingLimits { count_max: 0, ..PendingLimits::default() };
        let queue = PendingDeallocations::new(machine, limits).expect("good limits");
        let shared = queue.clone();
        on_threads(3, move |_| {
            let done = Arc::<AtomicUsize>::default();
            let deferred = shared.defer();
            shared.add(Some(1), counts(&done)).expect("none fails");
            shared.flush().expect("none fails");
            thread::yield_now();
            assert_eq!(done.load(Ordering::Relaxed), 0, "whoever else stops to defer");
            deferred.end().expect("none fails");
        });
        assert_eq!((queue.count(), queue.bytes(), queue.is_deferred()), (0, 0, false));
    });
}

#[test]
fn memory_is_freed_once_whoever_frees_it() {
    check(|machine| {
        for kind in [PointerKind::Memory, PointerKind::Managed] {
            let done = Arc::<AtomicUsize>::default();
            let span = Span::new(DevicePtr(4096), 100);
            let pointer = MemoryPointer::new(machine, kind, span, Some(counts(&done)));
            let frees = Arc::<AtomicUsize>::default();
            let said = Arc::clone(&frees);
            on_threads(3, move |n| {
                let owned = pointer.own();
                let view = pointer.view(n as u64, None);
                drop(owned);
                let answer = view.and_then(|view| view.free());
                said.fetch_add(usize::from(answer.is_ok()), Ordering::Relaxed);
            });
            assert_eq!(done.load(Ordering::Relaxed), 1);
            assert!(frees.load(Ordering::Relaxed) <= 1, "one hears that it did it");
        }
    });
}

// ---- managers ---------------------------------------------------------------------------------

#[test]
fn a_limit_holds_and_nothing_is_lost_between_resets() {
    check(|machine| {
        let pending = PendingLimits { count_max: 1, ..PendingLimits::default() };
        let options = EmmOptions { limit_bytes: 100, pending };
        let manager = ResourceManager::direct(machine, Device::FIRST, options).expect("good");
        let manager = Arc::new(manager);
        let shared = Arc::clone(&manager);
        on_threads(3, move |n| {
            shared.initialize().expect("a device");
            for _ in 0..2 {
                let deferred = (n == 2).then(|| shared.defer_cleanup());
                match shared.memalloc(60) {
                    Ok(memory) => assert!(!memory.is_freed()),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory),
                }
                assert!(shared.base().used_bytes() <= 100);
                drop(deferred);
                shared.reset().expect("nothing fails");
            }
        });
        assert!(manager.reset().expect("nothing fails").is_empty());
        assert_eq!((manager.base().used_bytes(), manager.base().count()), (0, 0));
        assert!(manager.memalloc(100).is_ok());
    });
}

#[test]
fn contexts_have_one_manager_each_and_nothing_deadlocks() {
    check(|machine| {
        let contexts = Arc::new(Contexts::new(machine));
        let shared = Arc::clone(&contexts);
        on_threads(3, move |n| {
            if n == 2 {
                // Refused while a context exists or is being made.
                let _ = shared.set_memory_manager(Plugin::default());
                shared.close().expect("nothing fails");
                return;
            }
            let manager = shared.enter(Device::FIRST).expect("a device");
            manager.memallocmanaged(64, true).expect("memory").free().expect("once");
            manager.reset().expect("nothing fails");
        });
        let [one, two] = [(); 2].map(|()| contexts.enter(Device::FIRST).expect("a device"));
        assert!(Arc::ptr_eq(&one, &two));
        assert!(contexts.set_memory_manager(Plugin::default()).is_err());
        contexts.close().expect("nothing fails");
        contexts.set_memory_manager(Plugin::default()).expect("none exists");
    });
}

// ---- unified pools ----------------------------------------------------------------------------

fn page() -> TensorLayout {
    TensorLayout::contiguous(&[4096], 1).expect("few")
}

#[test]
fn a_pool_is_moved_by_one_thread_at_a_time() {
    check(|machine| {
        let direct = Arc::new(ManagedMemoryResource::direct(machine));
        let pool = UnifiedMempool::over(direct, MempoolOptions::default()).expect("managed");
        let stream = Stream::new(machine, Device::FIRST).expect("a stream");
        let kept = pool.tensor("kept", page(), &stream).expect("memory");
        let moves = Arc::<AtomicUsize>::default();
        let (shared, count) = (pool.clone(), Arc::clone(&moves));
        on_threads(3, move |n| {
            let stream = Stream::new(shared.machine(), Device::FIRST).expect("a stream");
            let tensor = shared.tensor(&n.to_string(), page(), &stream).expect("memory");
            match shared.suspend(Place::HOST, &stream) {
                Ok(away) => {
                    assert!(away.moved.tensors >= 2, "its own and the one that was there");
                    count.fetch_add(1, Ordering::Relaxed);
                    // No other thread resumes a pool.
                    shared.resume(Device::FIRST, &stream).expect("it is suspended");
                }
                Err(error) => {
                    let kinds = [ErrorKind::NotReady, ErrorKind::InvalidValue];
                    assert!(kinds.contains(&error.kind()), "{error}");
                }
            }
            drop(tensor);
        });
        assert!(moves.load(Ordering::Relaxed) > 0 && !pool.is_suspended());
        assert_eq!(pool.counters().allocations.current, 1);
        drop((pool, kept));
    });
}

#[test]
fn the_table_of_an_allocator_takes_each_pointer_back_once() {
    check(|machine| {
        let direct = Arc::new(ManagedMemoryResource::direct(machine));
        let allocator = Arc::new(ManagedAllocator::new(direct).expect("managed"));
        let both = allocator.managed_malloc(4096, 0, null_mut()).expose_provenance();
        let shared = Arc::clone(&allocator);
        on_threads(3, move |_| {
            let free = |address| {
                let ptr = std::ptr::with_exposed_provenance_mut(address);
                // SAFETY: no work uses the memory, and it is freed once.
                unsafe { shared.managed_free(ptr, 4096, 0, null_mut()) }
            };
            let own = shared.managed_malloc(4096, 0, null_mut());
            assert!(!own.is_null());
            free(own.expose_provenance());
        });
        let shared = Arc::clone(&allocator);
        on_threads(2, move |_| {
            let ptr = std::ptr::with_exposed_provenance_mut(both);
            // SAFETY: no work uses the memory, and it is freed once.
            unsafe { shared.managed_free(ptr, 4096, 0, null_mut()) }
        });
        let counters = allocator.counters();
        assert_eq!((counters.bytes.current, counters.allocations.current), (0, 0));
        assert_eq!(counters.allocations.total, 4);
    });
}
