//! The calls that use one live handle. Each thread counts its own; the thread that destroys the
//! handle adds them up.
//!
//! A use begins and ends with a plain store into a count that no other thread writes, so threads
//! that use one stream do not slow each other down. A thread that destroys the handle *takes* it:
//! it marks the counts of all threads as ended, passes the heavy half of a [`Barrier`], and reads
//! them.
//!
//! # Why no use is missed
//!
//! A use writes its count, passes the light half of the barrier, and reads the mark. Taking writes
//! the mark, passes the heavy half, and reads the count. So one of them sees the other: either the
//! use finds the mark and does not take place, or the taking thread finds the use.
//!
//! The same holds when a use ends and counts down: either the taking thread finds the count down,
//! or the use finds the mark, and then asks under the lock whether it was the last. The taking
//! thread holds that lock from its first write to its last read, so no thread adds up counts that
//! are not visible yet.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::barrier::Barrier;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, ThreadId, thread};

/// The outcome of taking a handle from its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// No call uses it: it can be destroyed.
    Free,
    /// The last call that uses it destroys it.
    InUse,
    /// The handle was not live.
    Unknown,
}

/// A handle with its uses.
#[derive(Debug)]
pub(crate) struct Entry {
    barrier: Barrier,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    of_threads: Vec<Arc<Count>>,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Live,
    /// The handle was taken while in use. The last use destroys it.
    Waits,
    /// A call destroys the handle, or has destroyed it.
    Over,
}

/// The number of uses of a handle that one thread is in.
#[derive(Debug)]
struct Count {
    /// Only the count's own thread writes it.
    uses: AtomicUsize,
    /// Whether the handle was taken from its set. Written under the lock of the counts.
    ended: AtomicBool,
    thread: ThreadId,
}

impl Entry {
    pub(crate) fn new(barrier: Barrier) -> Self {
        let counts = Counts { of_threads: Vec::new(), state: State::Live };
        Self { barrier, counts: Mutex::new(counts) }
    }

    /// A count for this thread; `None` if the handle is not live any more.
    pub(crate) fn counter(self: Arc<Self>) -> Option<Counter> {
        let mut counts = self.locked();
        if counts.state != State::Live {
            return None;
        }
        let count = Arc::new(Count {
            uses: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            thread: thread::current().id(),
        });
        counts.forget_unused();
        counts.of_threads.push(Arc::clone(&count));
        drop(counts);
        Some(Counter { barrier: self.barrier, count, entry: self })
    }

    /// Takes the handle: from now on no call can begin to use it. Call it once.
    pub(crate) fn take(&self) -> Taken {
        let mut counts = self.locked();
        counts.forget_unused();
        counts.state = State::Over;
        for count in &counts.of_threads {
            count.ended.store(true, Ordering::Release);
        }
        // A thread sees its own writes without a barrier.
        let this = thread::current().id();
        let others = counts.of_threads.iter().any(|count| count.thread != this);
        if others && !self.barrier.heavy() {
            // A thread may still use the handle, so it is not destroyed. The barrier was there when
            // the set was made, and systems do not lose it.
            return Taken::InUse;
        }
        if counts.is_used() {
            counts.state = State::Waits;
            return Taken::InUse;
        }
        Taken::Free
    }

    /// Whether a use that has just ended was the last of a handle that waits for it.
    #[cold]
    fn was_last(&self) -> bool {
        let mut counts = self.locked();
        let last = counts.state == State::Waits && !counts.is_used();
        if last {
            counts.state = State::Over;
        }
        last
    }

    fn locked(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Drops the counts of threads that do not remember the handle any more.
    fn forget_unused(&mut self) {
        self.of_threads.retain_mut(|count| Arc::get_mut(count).is_none());
    }

    fn is_used(&self) -> bool {
        self.of_threads.iter().any(|count| count.uses.load(Ordering::Acquire) > 0)
    }
}

/// The count of one thread, by which it uses a handle. It stays on its thread.
#[derive(Debug)]
pub(crate) struct Counter {
    /// A copy of the entry's barrier, so that calls do not read the entry.
    barrier: Barrier,
    count: Arc<Count>,
    entry: Arc<Entry>,
}

impl Counter {
    /// Begins a use. Returns whether the handle is live until [`end`](Self::end), which has to
    /// follow either way.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        let uses = &self.count.uses;
        uses.store(uses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.barrier.light();
        !self.count.ended.load(Ordering::Acquire)
    }

    /// Ends a use. Returns whether it was the last of a handle that was taken: then the caller
    /// destroys it.
    #[inline]
    pub(crate) fn end(&self) -> bool {
        let uses = &self.count.uses;
        uses.store(uses.load(Ordering::Relaxed) - 1, Ordering::Release);
        self.barrier.light();
        self.count.ended.load(Ordering::Acquire) && self.entry.was_last()
    }
}
