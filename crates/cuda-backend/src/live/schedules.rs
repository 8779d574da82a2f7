//! Sets of live handles under random thread schedules: one thread destroys while others use.
//!
//! Only in builds with `--cfg pagewise_shuttle`; `cargo xtask ci` makes one. Shuttle makes every
//! store visible at once, so these tests show that the steps are right in any order of threads;
//! that the barrier between them holds on real processors is for `tests` and for those of
//! [`barrier`](crate::barrier).

use shuttle::sync::atomic::{AtomicBool, AtomicUsize};
use shuttle::thread;

use super::*;

/// How many schedules each test tries.
const SCHEDULES: usize = 4000;

/// The handle that all threads use.
const RAW: u64 = 0x20;

/// A driver with one stream at a time.
#[derive(Default)]
struct Stream {
    made: AtomicUsize,
    destroyed: AtomicUsize,
    exists: AtomicBool,
}

impl Ending for Stream {
    fn end(&self, _: Kind, raw: u64) {
        assert_eq!(raw, RAW);
        assert!(self.exists.swap(false, Ordering::SeqCst), "destroyed twice");
        self.destroyed.fetch_add(1, Ordering::SeqCst);
    }
}

/// A set and its driver, which threads share.
struct Shared {
    set: Live,
    driver: Stream,
}

impl Shared {
    fn make(&self) {
        self.driver.made.fetch_add(1, Ordering::SeqCst);
        assert!(!self.driver.exists.swap(true, Ordering::SeqCst), "the driver reuses dead ones");
        self.set.add(RAW);
    }

    /// A call: the stream exists from its beginning to its end.
    fn call(&self) {
        if let Some(_used) = self.set.find(RAW, &self.driver) {
            assert!(self.driver.exists.load(Ordering::SeqCst), "used after it was destroyed");
            thread::yield_now();
            assert!(self.driver.exists.load(Ordering::SeqCst), "destroyed while in use");
        }
    }

    fn destroy(&self) {
        if self.set.take(RAW) == Taken::Free {
            self.driver.end(Kind::Stream, RAW);
        }
    }

    fn exists(&self) -> bool {
        self.driver.exists.load(Ordering::SeqCst)
    }
}

/// Runs threads on a set with one live handle, in many schedules. At the end each handle that was
/// made is destroyed, once.
fn check(threads: &'static [fn(&Shared)]) {
    let run = move || {
        let set = Live::new(Kind::Stream);
        let shared = Arc::new(Shared { set, driver: Stream::default() });
        shared.make();
        let spawned = threads.iter().map(|act| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || act(&shared))
        });
        let spawned: Vec<_> = spawned.collect();
        spawned.into_iter().for_each(|thread| thread.join().expect("no panic"));
        shared.destroy();
        assert!(!shared.exists(), "left behind");
        let Stream { made, destroyed, .. } = &shared.driver;
        assert_eq!(made.load(Ordering::SeqCst), destroyed.load(Ordering::SeqCst));
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

#[test]
fn a_stream_is_destroyed_once_and_not_while_a_call_uses_it() {
    check(&[
        |shared| (0..2).for_each(|_| shared.call()),
        |shared| (0..2).for_each(|_| shared.call()),
        |shared| shared.destroy(),
    ]);
}

#[test]
fn of_two_that_destroy_one_does() {
    check(&[|shared| shared.call(), |shared| shared.destroy(), |shared| shared.destroy()]);
}

#[test]
fn who_destroys_may_use_it_meanwhile() {
    check(&[
        |shared| shared.call(),
        |shared| {
            let used = shared.set.find(RAW, &shared.driver);
            shared.destroy();
            assert!(used.is_none() || shared.exists());
        },
    ]);
}

#[test]
fn a_number_that_comes_again_is_another_handle() {
    check(&[
        |shared| (0..3).for_each(|_| shared.call()),
        |shared| {
            shared.call();
            shared.destroy();
            // The driver gives a number out again when nothing has it any more.
            if !shared.exists() {
                shared.make();
            }
            shared.call();
        },
    ]);
}
