//! The budget that limits how many cases are in memory at a time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Text of the cases that may be in memory at a time. A larger case is carried out alone.
const BUDGET_BYTES: u64 = 64 << 20;

/// The bytes that the cases in progress take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    /// Text that they were read from.
    pub(super) text_bytes: u64,
    /// Memory that their contents may take.
    pub(super) memory_bytes: u64,
}

impl Share {
    fn with(self, other: Self) -> Self {
        Self {
            text_bytes: self.text_bytes.saturating_add(other.text_bytes),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            text_bytes: self.text_bytes.saturating_sub(other.text_bytes),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }
}

/// The budget of all cases in progress together.
#[derive(Default)]
pub(super) struct Budget {
    used: Mutex<Share>,
    freed: Condvar,
}

impl Budget {
    /// Waits until there is room, or nothing else is in progress.
    pub(super) fn take(self: &Arc<Self>, share: Share, most_memory_bytes: u64) -> Held {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |used: &mut Share| {
            let all = used.with(share);
            used.text_bytes > 0
                && (all.text_bytes > BUDGET_BYTES || all.memory_bytes > most_memory_bytes)
        };
        let used = self.freed.wait_while(used, full);
        let mut used = used.unwrap_or_else(PoisonError::into_inner);
        *used = used.with(share);
        Held { budget: Arc::clone(self), share }
    }
}

/// A share of the budget, given back when dropped.
pub(super) struct Held {
    budget: Arc<Budget>,
    share: Share,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = used.without(self.share);
        drop(used);
        self.budget.freed.notify_one();
    }
}
