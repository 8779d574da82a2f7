//! A memory barrier of two halves: one is passed often and costs next to nothing, the other pays
//! for both.
//!
//! Two threads each write one value and then read the other's. That at least one of them sees what
//! the other wrote takes a full barrier between write and read on both sides, and such a barrier
//! costs as much as the call into the driver that it protects. Linux offers another way
//! (`membarrier(2)`): one thread makes every running thread of the process pass a barrier. Then the
//! other side needs only to keep the compiler from moving its read before its write. Where the
//! system offers nothing of the kind, both halves are ordinary fences.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// How the two halves are made. Both sides of one exchange have to use the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// Each side has a fence.
    Fences,
    /// The system makes all threads pass a barrier when the heavy side asks.
    System,
}

impl Barrier {
    /// The cheapest that this system has. The answer is the same in the whole process.
    pub(crate) fn of_system() -> Self {
        static FOUND: OnceLock<Barrier> = OnceLock::new();
        *FOUND.get_or_init(|| {
            if system::register() && system::barrier() { Self::System } else { Self::Fences }
        })
    }

    /// The half of the side that is passed often.
    #[inline]
    pub(crate) fn light(self) {
        match self {
            Self::Fences => fence(Ordering::SeqCst),
            Self::System => compiler_fence(Ordering::SeqCst),
        }
    }

    /// The half of the other side. Returns whether it took place: if not, nothing is known of what
    /// other threads wrote.
    #[cold]
    pub(crate) fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        self == Self::Fences || system::barrier()
    }
}

#[cfg(all(target_os = "linux", not(miri), not(pagewise_shuttle)))]
mod system {
    use rustix::thread::{MembarrierCommand, membarrier};

    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn barrier() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

/// Miri has no such call, and shuttle's schedules need none.
#[cfg(not(all(target_os = "linux", not(miri), not(pagewise_shuttle))))]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn barrier() -> bool {
        false
    }
}

#[cfg(all(test, not(pagewise_shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    const EXCHANGES: usize = if cfg!(miri) { 100 } else { 3_000 };

    /// One side of the exchanges.
    struct Side {
        written: Vec<AtomicBool>,
        /// How many exchanges it has begun.
        begun: AtomicUsize,
    }

    impl Side {
        fn new() -> Self {
            let written = (0..EXCHANGES).map(|_| AtomicBool::new(false)).collect();
            Self { written, begun: AtomicUsize::new(0) }
        }

        /// Writes, passes and reads, at the same time as the other. Returns what it read.
        fn exchange(&self, other: &Self, pass: impl Fn()) -> Vec<bool> {
            let at = |at: usize| {
                self.begun.store(at + 1, Ordering::SeqCst);
                // Both leave at the same moment, unless they share a processor.
                let waited = || other.begun.load(Ordering::SeqCst) > at;
                while !(0..1000).any(|_| waited()) {
                    std::thread::yield_now();
                }
                self.written[at].store(true, Ordering::Relaxed);
                pass();
                other.written[at].load(Ordering::Relaxed)
            };
            (0..EXCHANGES).map(at).collect()
        }
    }

    /// Makes exchanges and returns in how many neither side saw the other.
    fn missed(barrier: Barrier) -> usize {
        let (often, seldom) = (Side::new(), Side::new());
        let (light, heavy) = std::thread::scope(|scope| {
            let light = scope.spawn(|| often.exchange(&seldom, || barrier.light()));
            let heavy = seldom.exchange(&often, || assert!(barrier.heavy()));
            (light.join().expect("no panic"), heavy)
        });
        light.iter().zip(heavy).filter(|(light, heavy)| !*light && !heavy).count()
    }

    #[test]
    fn of_two_threads_that_write_and_then_read_one_sees_the_other() {
        assert_eq!(missed(Barrier::Fences), 0);
        assert_eq!(missed(Barrier::of_system()), 0);
    }
}
