//! The budget that limits how many cases are in memory at a time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Text of the cases that may be in memory at a time. A larger case is carried out alone.
const BUDGET_BYTES: u64 = 64 << 20;

/// The bytes that the cases in progress take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CaseBytes {
    /// Text that they were read from.
    pub(super) text_bytes: u64,
    /// Memory that their contents may take.
    pub(super) memory_bytes: u64,
}

impl CaseBytes {
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
    used: Mutex<CaseBytes>,
    freed: Condvar,
}

impl Budget {
    /// Waits until there is room, or nothing else is in progress.
    pub(super) fn take(self: &Arc<Self>, bytes: CaseBytes, most_memory_bytes: u64) -> Held {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |used: &mut CaseBytes| {
            let all = used.with(bytes);
            used.text_bytes > 0
                && (all.text_bytes > BUDGET_BYTES || all.memory_bytes > most_memory_bytes)
        };
        let used = self.freed.wait_while(used, full);
        let mut used = used.unwrap_or_else(PoisonError::into_inner);
        *used = used.with(bytes);
        Held { budget: Arc::clone(self), bytes }
    }
}

/// The bytes of a case, given back to the budget when dropped.
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: CaseBytes,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = used.without(self.bytes);
        drop(used);
        self.budget.freed.notify_one();
    }
}
