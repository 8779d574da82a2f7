//! The memory that a manager has given and not taken back.

use std::collections::BTreeMap;
use std::fmt;

use pagewise::{DevicePtr, Error, ErrorKind, Result, Span};

use super::pointer::PointerKind;
use crate::sync::{Mutex, MutexGuard, lock};

/// Memory that was still out when its manager was reset. It stays valid, and goes with its pointer.
///
/// ```
/// use pagewise_managers::emm::{Leak, PointerKind};
/// use pagewise::{DevicePtr, Span};
/// let leak = Leak { span: Span::new(DevicePtr(4096), 10), kind: PointerKind::Mapped };
/// assert_eq!(leak.to_string(), "0x1000+10 (Mapped)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Leak {
    /// The bytes.
    pub span: Span,
    /// The kind of pointer that it was given as.
    pub kind: PointerKind,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.span, self.kind)
    }
}

pub(super) struct Ledger {
    limit_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    out: BTreeMap<u64, (Leak, u64)>,
    used_bytes: u64,
    /// Grows with each reset: what an older one gave has been reported.
    generation: u64,
}

impl Ledger {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, state: Mutex::default() }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes bytes first, so that two threads cannot pass the limit together.
    pub(super) fn reserve(&self, operation: &'static str, bytes: u64) -> Result<()> {
        let mut state = self.locked();
        let used = state.used_bytes;
        match used.checked_add(bytes).filter(|&after| after <= self.limit_bytes) {
            Some(after) => {
                state.used_bytes = after;
                Ok(())
            }
            None => Err(Error::new(operation, ErrorKind::OutOfMemory).with_detail(format!(
                "{bytes} bytes more than the {used} in use would pass the limit of {}",
                self.limit_bytes
            ))),
        }
    }

    pub(super) fn unreserve(&self, bytes: u64) {
        self.locked().used_bytes -= bytes;
    }

    /// Notes memory of which the bytes were reserved; false if the address is outstanding already.
    pub(super) fn insert(&self, span: Span, kind: PointerKind) -> bool {
        let mut state = self.locked();
        let entry = (Leak { span, kind }, state.generation);
        match state.out.entry(span.ptr.0) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(entry);
                true
            }
            std::collections::btree_map::Entry::Occupied(_) => false,
        }
    }

    /// Forgets memory that is about to be given back: before it is, because another thread may be
    /// given the same address at once.
    pub(super) fn remove(&self, ptr: DevicePtr) {
        let mut state = self.locked();
        if let Some((leak, _)) = state.out.remove(&ptr.0) {
            state.used_bytes -= leak.span.bytes;
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.locked().used_bytes
    }

    pub(super) fn count(&self) -> usize {
        self.locked().out.len()
    }

    /// Outstanding memory that was given since the last turn.
    pub(super) fn turn(&self) -> Vec<Leak> {
        let mut state = self.locked();
        let now = state.generation;
        state.generation += 1;
        state.out.values().filter(|entry| entry.1 == now).map(|entry| entry.0).collect()
    }
}
