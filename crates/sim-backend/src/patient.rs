//! A mutex for short calls: a thread that finds it taken looks again until it is free.
//!
//! A call holds the lock of its machine for some 20 ns to some us. A thread that sleeps until it is
//! woken costs the owner a call of the kernel, which is longer than most calls; and an owner that has
//! to know of such threads ends each call with an atomic exchange, which is a sixth of the shortest
//! calls. So no thread is woken: each looks for itself. The fewer times the lock changes hands, the
//! more calls find the state of the machine in their own cache: so it looks more and more rarely.
//! A thread that looked often in vain holds the others back until it had its turn.

use std::cell::UnsafeCell;
use std::fmt;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{sleep, yield_now};
use std::time::Duration;

/// How often a thread looks before it sleeps: first after 2, 4, 8 … pauses of the processor, then
/// between two other threads' turns.
const SPINS: u32 = 12;
const YIELDS: u32 = 4;

/// A thread that waits for longer sleeps for so long between its looks, each time for an eighth
/// longer.
const NAP: Duration = Duration::from_micros(50);
const NAP_GROWTH: f32 = 1.125;
const NAP_MAX: Duration = Duration::from_millis(1);

/// A value of one thread at a time. A panic of a thread that has it is no concern of the others.
#[derive(Default)]
pub(crate) struct Mutex<T> {
    turns: Turns,
    value: UnsafeCell<T>,
}

// SAFETY: threads have the value one after another, never two at once: see `Turns`. Each may move it
// out, so it has to be `Send`.
unsafe impl<T: Send> Sync for Mutex<T> {}
impl<T> RefUnwindSafe for Mutex<T> {}
impl<T> UnwindSafe for Mutex<T> {}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("turns", &self.turns).finish_non_exhaustive()
    }
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { turns: Turns::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the value; waits until it is free.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if !self.turns.take_unless_overdue() {
            self.turns.wait();
        }
        Guard { mutex: self, _stays_on_its_thread: PhantomData }
    }

    /// Takes the value if it is free and is no other thread's turn.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let taken = self.turns.take_unless_overdue();
        taken.then(|| Guard { mutex: self, _stays_on_its_thread: PhantomData })
    }
}

/// The value of a mutex, until the thread lets it go.
#[must_use]
pub(crate) struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists while its thread alone has the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread alone has the value, by one guard, which is borrowed for as long.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.turns.taken.store(false, Ordering::Release);
    }
}

/// Whether a mutex is taken, and how many threads have waited for so long that it is their turn.
///
/// Only the thread that changes `taken` to `true` has the mutex, until it clears it. What it wrote
/// before, the next such thread sees: release and acquire.
#[derive(Debug, Default)]
struct Turns {
    taken: AtomicBool,
    overdue: AtomicU32,
}

impl Turns {
    const fn new() -> Self {
        Self { taken: AtomicBool::new(false), overdue: AtomicU32::new(0) }
    }

    #[inline]
    fn take(&self) -> bool {
        self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn take_unless_overdue(&self) -> bool {
        self.overdue.load(Ordering::Relaxed) == 0 && self.take()
    }

    /// Waits, and takes the mutex.
    #[cold]
    fn wait(&self) {
        if look(&mut || self.take_unless_overdue().then_some(())).is_some() {
            return;
        }
        self.overdue.fetch_add(1, Ordering::Relaxed);
        until(|| self.take().then_some(()));
        self.overdue.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for something that other threads do not announce: looks until it is found.
#[cold]
pub(crate) fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let mut nap = NAP;
    loop {
        if let Some(found) = look(&mut found) {
            return found;
        }
        sleep(nap);
        nap = nap.mul_f32(NAP_GROWTH).min(NAP_MAX);
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
                        let mut count = count.lock();
                        let before = *count;
                        spin_loop();
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*count.lock(), 40_000);
    }

    #[test]
    fn nobody_takes_a_free_mutex_before_a_thread_that_waited_for_long() {
        for _ in 0..20 {
            let mutex = Mutex::new("nobody");
            scope(|scope| {
                let owner = mutex.lock();
                scope.spawn(|| *mutex.lock() = "the thread that waited");
                while mutex.turns.overdue.load(Ordering::Relaxed) == 0 {
                    yield_now();
                }
                drop(owner);
                // It sleeps between its looks, so it is late.
                let first = loop {
                    if let Some(guard) = mutex.try_lock() {
                        break *guard;
                    }
                    yield_now();
                };
                assert_eq!(first, "the thread that waited");
            });
        }
    }

    #[test]
    fn a_thread_that_waits_for_long_gets_the_mutex_when_it_is_free() {
        let mutex = Mutex::new("taken");
        scope(|scope| {
            let mut owner = mutex.lock();
            let waiting = scope.spawn(|| *mutex.lock());
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
            let owner = mutex.lock();
            let look = || mutex.try_lock().map(|mutex| *mutex).or_else(|| other.lock().take());
            let waiting = scope.spawn(move || until(look));
            *other.lock() = Some("the other");
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
                let _owner = mutex.lock();
                panic!("with the mutex");
            });
            owner.join().is_err()
        });
        assert!(panicked);
        assert_eq!(*mutex.lock(), 7);
    }
}
