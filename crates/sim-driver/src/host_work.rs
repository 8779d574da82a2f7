//! Functions of the host that streams call: `cuLaunchHostFunc` and `cuStreamAddCallback`.
//!
//! One thread calls them, in the order in which they were submitted, as the driver's own thread
//! does: a caller may hold a lock that its function takes. Work that is submitted to a stream later
//! waits until the stream's functions have returned. So a function may wait for nothing that its
//! program does after submitting more work to the same stream; a driver would let that work wait.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// One call of a function of the host.
type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(usize, Work)>,
    /// How many functions of each stream have not returned yet.
    pending: BTreeMap<usize, usize>,
    /// Whether the thread runs.
    is_served: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    returned: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls functions until none is left.
    fn serve(&self) {
        loop {
            let mut queue = self.queue();
            let Some((stream, work)) = queue.waiting.pop_front() else {
                queue.is_served = false;
                return;
            };
            drop(queue);
            work();
            let mut queue = self.queue();
            let left = queue.pending.remove(&stream).and_then(|count| count.checked_sub(1));
            if let Some(left @ 1..) = left {
                queue.pending.insert(stream, left);
            }
            self.returned.notify_all();
        }
    }
}

/// The functions that streams have yet to call.
#[derive(Default)]
pub(crate) struct HostWork(Arc<Shared>);

impl fmt::Debug for HostWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostWork").field(&self.0.queue().pending).finish()
    }
}

impl HostWork {
    /// Lets the thread call a function, after those that were submitted before. The answer is
    /// whether there is a thread: the system may refuse one.
    pub(crate) fn submit(&self, stream: usize, work: Work) -> bool {
        let mut queue = self.0.queue();
        if !queue.is_served {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("cuda-host-functions".to_owned());
            if thread.spawn(move || shared.serve()).is_err() {
                return false;
            }
            queue.is_served = true;
        }
        queue.waiting.push_back((stream, work));
        let pending = queue.pending.entry(stream).or_default();
        *pending = pending.saturating_add(1);
        true
    }

    /// Whether a stream has functions that have not returned.
    pub(crate) fn is_pending(&self, stream: usize) -> bool {
        self.0.queue().pending.contains_key(&stream)
    }

    /// Waits until all functions of a stream have returned.
    pub(crate) fn wait_for(&self, stream: usize) {
        self.wait_until(|queue| !queue.pending.contains_key(&stream));
    }

    /// Waits until all functions have returned.
    pub(crate) fn wait(&self) {
        self.wait_until(|queue| queue.pending.is_empty());
    }

    fn wait_until(&self, done: impl Fn(&Queue) -> bool) {
        let mut queue = self.0.queue();
        while !done(&queue) {
            queue = self.0.returned.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn functions_are_called_in_their_order_and_waited_for() {
        let (work, calls) = (HostWork::default(), Arc::new(AtomicUsize::new(0)));
        for turn in 0..100 {
            let calls = Arc::clone(&calls);
            let call = move || assert_eq!(calls.fetch_add(1, Ordering::SeqCst), turn);
            assert!(work.submit(turn % 3, Box::new(call)));
        }
        work.wait_for(99 % 3);
        assert_eq!(calls.load(Ordering::SeqCst), 100, "the last function was of this stream");
        assert!(!work.is_pending(0));
    }
}
