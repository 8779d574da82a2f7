//! The memory manager under random thread schedules.
//!
//! Only in builds with `--cfg pagewise_shuttle`, in which the manager's locks are shuttle's; `cargo
//! xtask ci` makes one. A schedule that fails is printed, to be replayed by `shuttle::replay`.
#![cfg(pagewise_shuttle)]

mod schedules;

use std::collections::BTreeSet;
use std::sync::Arc;

use pagewise::{Device, Machine};
use pagewise_managers::manager::{
    ArrayRequest, ChunkBufferPool, ChunkPolicy, Dtype, InstanceId, LimitMode, ManagerOptions,
    MemoryManager, Registration,
};
use schedules::check;
use shuttle::sync::Mutex;
use shuttle::thread;

fn manager(machine: &Machine) -> Arc<MemoryManager> {
    let options = ManagerOptions::new()
        .total_bytes(10_000)
        .limit_mode(LimitMode::Active)
        .chunk_policy(ChunkPolicy::exact());
    Arc::new(MemoryManager::with_options(machine, Device::FIRST, options).expect("it is made"))
}

fn table(bytes: u64) -> ArrayRequest {
    ArrayRequest::new(Dtype::U8, [bytes]).unchunkable(true)
}

/// Threads queue and allocate, together with others of the group: each request is allocated, and
/// told, exactly once.
#[test]
fn no_request_is_lost_or_allocated_twice() {
    check(|machine| {
        let manager = manager(machine);
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let threads: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|name| {
                let (manager, told) = (Arc::clone(&manager), Arc::clone(&told));
                thread::spawn(move || {
                    let registration = Registration::new().stream_group("g");
                    let registration = registration.allocation_ready_hook(move |response| {
                        told.lock().unwrap().extend(response.arr.keys().cloned());
                    });
                    let id = manager.register(registration).expect("there is room");
                    for round in 0..2 {
                        let label = format!("{name}{round}");
                        manager.queue_request(id, [(label, table(10))]).expect("it is good");
                        manager.allocate_queue(id).expect("there is room");
                    }
                    id
                })
            })
            .collect();
        let ids: Vec<InstanceId> =
            threads.into_iter().map(|t| t.join().expect("no panic")).collect();
        let told = told.lock().unwrap().clone();
        let once: BTreeSet<&String> = told.iter().collect();
        assert_eq!((told.len(), once.len()), (6, 6), "{told:?}");
        for id in ids {
            let settings = manager.settings(id).expect("it is there");
            assert_eq!((settings.allocations.len(), settings.queued.len()), (2, 0));
        }
    });
}

/// Hooks call the manager, groups change, memory is invalidated and freed, instances go: no thread
/// waits for ever, and everything comes back.
#[test]
fn nothing_deadlocks() {
    check(|machine| {
        let manager = manager(machine);
        let hooked = Arc::clone(&manager);
        let shared = manager
            .register(Registration::new().stream_group("g").invalidate_hook(move || {
                for id in hooked.instances() {
                    let _ = hooked.queue_request(id, [("again", table(5))]);
                }
            }))
            .expect("there is room");
        let others = [0, 1].map(|n| {
            let manager = Arc::clone(&manager);
            thread::spawn(move || {
                let id = manager.register(Registration::new().stream_group("g")).expect("room");
                manager.queue_request(id, [("x", table(20))]).expect("it is good");
                manager.change_stream_group(id, if n == 0 { "h" } else { "i" }).expect("room");
                let array = manager.allocate_queue(id).expect("room").responses[&id].clone();
                manager.invalidate_all();
                assert!(array.arr.values().all(|array| array.is_gone()));
                manager.release_later(id);
            })
        });
        let _ = manager.allocate_queue(shared);
        manager.free("x");
        let _ = manager.reinit_streams();
        others.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(manager.instances(), [shared]);
        // The hook holds the manager, and the manager the hook.
        manager.release_instance(shared).expect("it is there");
    });
}

/// Shares are right after any interleaving of changes.
#[test]
fn shares_hold_their_rules() {
    check(|machine| {
        let manager = manager(machine);
        let threads = [0.2, 0.3, 0.4].map(|share| {
            let manager = Arc::clone(&manager);
            thread::spawn(move || {
                let id = manager.register(Registration::new().proportion(share)).expect("room");
                manager.set_auto_limit_mode(id).expect("room");
                manager.set_manual_limit_mode(id, share).expect("room");
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(manager.manual_pool_proportion(), 0.9);
    });
}

/// A thread that waits for a buffer is woken.
#[test]
fn buffers_are_waited_for_and_come_back() {
    check(|machine| {
        let pool = ChunkBufferPool::new(&manager(machine)).limit_bytes(16);
        let threads = ["a", "a", "b"].map(|name| {
            let pool = pool.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    drop(pool.acquire(name, &[16], Dtype::U8).expect("there is room"));
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(pool.used_bytes(), 0);
    });
}
