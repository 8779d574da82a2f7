//! A mutex for short calls: a thread that finds it taken tries again for a while before it sleeps.
//!
//! A call holds the lock of its machine for some 50 ns to some us. A thread that sleeps until then
//! costs the owner a call of the kernel to wake it, which is longer than most calls. And the fewer
//! times the lock changes hands, the more calls find the state of the machine in their own cache: so
//! a waiting thread looks more and more rarely.

use std::hint::spin_loop;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{sleep, yield_now};
use std::time::Duration;

/// How often a thread looks: first after 2, 4, 8 … pauses of the processor, then between two other
/// threads' turns.
const SPINS: u32 = 12;
const YIELDS: u32 = 4;

/// A thread that may have one of two things looks for both again after so long.
const NAP: Duration = Duration::from_micros(50);

/// Takes a mutex. A panic of another thread while it had the mutex is no concern of this one.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Written out here: most calls find the mutex free.
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => wait(mutex),
    }
}

/// Takes a mutex if it is free.
#[inline]
pub(crate) fn taken<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cold]
fn wait<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let found = look(&mut || taken(mutex));
    found.unwrap_or_else(|| mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Waits for one of several things, of which a mutex is one at most. A thread that slept in its line
/// would not see the others.
#[cold]
pub(crate) fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = found().or_else(|| look(&mut found)) {
            return found;
        }
        sleep(NAP);
    }
}

/// Looks several times.
fn look<T>(found: &mut impl FnMut() -> Option<T>) -> Option<T> {
    (1..=SPINS + YIELDS).find_map(|round| {
        if round <= SPINS {
            (0..1 << round).for_each(|_| spin_loop());
        } else {
            yield_now();
        }
        found()
    })
}

#[cfg(test)]
mod tests {
    use std::thread::{scope, sleep};
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_thread_has_the_mutex_at_a_time() {
        let count = Mutex::new(0);
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut count = lock(&count);
                        let before = *count;
                        spin_loop();
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock(&count), 40_000);
    }

    #[test]
    fn a_thread_that_waits_for_long_gets_the_mutex_when_it_is_free() {
        let mutex = Mutex::new("taken");
        scope(|scope| {
            let mut owner = lock(&mutex);
            let waiting = scope.spawn(|| *lock(&mutex));
            sleep(Duration::from_millis(50));
            *owner = "free";
            drop(owner);
            assert_eq!(waiting.join().ok(), Some("free"));
        });
    }

    #[test]
    fn a_thread_that_waits_for_one_of_two_things_takes_the_other_while_a_mutex_is_taken() {
        let (mutex, other) = (Mutex::new("taken"), Mutex::new(None));
        scope(|scope| {
            let owner = lock(&mutex);
            let look = || taken(&mutex).map(|mutex| *mutex).or_else(|| lock(&other).take());
            let waiting = scope.spawn(move || until(look));
            *lock(&other) = Some("the other");
            assert_eq!(waiting.join().ok(), Some("the other"));
            drop(owner);
            assert_eq!(until(look), "taken");
        });
    }

    #[test]
    fn a_panic_with_the_mutex_is_no_concern_of_others() {
        let mutex = Mutex::new(7);
        let panicked = scope(|scope| {
            let owner = scope.spawn(|| {
                let _owner = lock(&mutex);
                panic!("with the mutex");
            });
            owner.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 7);
    }
}
