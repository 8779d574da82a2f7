//! The sets of live handles, each with its uses by calls.
//!
//! A driver dereferences the handles that it is given, and handles are copied freely. So each call
//! looks its handles up, and is refused without asking the driver if one is not live: destroyed, of
//! another back end, or made up. Handles that unsafe code vouches for, and default streams, are not
//! looked up.
//!
//! A call keeps its handles live until it is over: destroying takes a handle from the set, and the
//! driver destroys when the last call that uses it is over, on the thread of that call. No lock is
//! held meanwhile, as a call may wait for work that another thread has yet to submit. How uses are
//! counted is in [`uses`](crate::uses).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use crate::barrier::Barrier;
use crate::sync::{RwLock, thread_local};
use crate::uses::{Counter, Entry, Taken};

/// The kind of thing that a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Event,
    Pool,
    Memory,
    Module,
}

/// How many handles of a kind a thread remembers: most use a few streams and events. A power of two.
const REMEMBERED: usize = 8;
/// Each kind has places of its own, so that the stream and the event of one call never share one:
/// every such call would look both up again.
const PLACES: usize = 5 * REMEMBERED;

/// A handle that this thread found before.
struct Known {
    set: u64,
    raw: u64,
    counter: Option<Rc<Counter>>,
}

thread_local! {
    static KNOWN: [RefCell<Known>; PLACES] =
        const { [const { RefCell::new(Known { set: 0, raw: 0, counter: None }) }; PLACES] };
}

/// The live handles of one kind.
#[derive(Debug)]
pub(crate) struct Live {
    kind: Kind,
    /// Unique in the process.
    id: u64,
    entries: RwLock<BTreeMap<u64, Arc<Entry>>>,
}

impl Live {
    pub(crate) fn new(kind: Kind) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { kind, id, entries: RwLock::new(BTreeMap::new()) }
    }

    /// The driver gave a handle out, for the first time or again.
    pub(crate) fn add(&self, raw: u64) {
        let entry = || Arc::new(Entry::new(Barrier::of_system()));
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.entry(raw).or_insert_with(entry);
    }

    /// Keeps a live handle from being destroyed; `None` if it is not live.
    #[inline]
    pub(crate) fn find<'a, O: Ending>(&self, raw: u64, owner: &'a O) -> Option<InUse<'a, O>> {
        let remembered = KNOWN.try_with(|known| {
            let known = known[self.place_of(raw)].borrow();
            let same = known.raw == raw && known.set == self.id;
            if same { known.counter.clone() } else { None }
        });
        if let Ok(Some(counter)) = remembered
            && let Some(found) = self.begin(raw, counter, owner)
        {
            return Some(found);
        }
        // The number may be another handle's by now.
        self.begin(raw, self.look_up(raw)?, owner)
    }

    #[inline]
    fn begin<'a, O: Ending>(
        &self,
        raw: u64,
        counter: Rc<Counter>,
        owner: &'a O,
    ) -> Option<InUse<'a, O>> {
        let live = counter.begin();
        let found = InUse { kind: self.kind, raw, owner, counter: Some(counter) };
        live.then_some(found)
    }

    #[cold]
    fn look_up(&self, raw: u64) -> Option<Rc<Counter>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = Arc::clone(entries.get(&raw)?);
        drop(entries);
        let counter = Rc::new(entry.counter()?);
        // A thread that is ending has no place to remember it, and looks the next one up again.
        _ = KNOWN.try_with(|known| {
            let counter = Some(Rc::clone(&counter));
            known[self.place_of(raw)].replace(Known { set: self.id, raw, counter })
        });
        Some(counter)
    }

    /// Where a thread remembers a handle: the high bits of a product, which hangs on all bits of
    /// its factor (2^64 divided by the golden ratio, as in Fibonacci hashing).
    #[inline]
    fn place_of(&self, raw: u64) -> usize {
        let mixed = (raw ^ self.id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed >> (u64::BITS - REMEMBERED.ilog2())) as usize;
        self.kind as usize * REMEMBERED + place
    }

    /// Takes a handle from the set: from now on it is not live.
    pub(crate) fn take(&self, raw: u64) -> Taken {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.remove(&raw) else { return Taken::Unknown };
        drop(entries);
        entry.take()
    }
}

/// The destruction of handles that were taken from their set while calls used them.
pub(crate) trait Ending {
    /// No call uses the handle any more, and none will.
    fn end(&self, kind: Kind, raw: u64);
}

/// A handle that a call uses: it is not destroyed before this is dropped. It stays on its thread.
pub(crate) struct InUse<'a, O: Ending> {
    pub(crate) kind: Kind,
    pub(crate) raw: u64,
    pub(crate) owner: &'a O,
    /// `None` for a handle that need not be kept live, such as a default stream.
    pub(crate) counter: Option<Rc<Counter>>,
}

impl<O: Ending> Drop for InUse<'_, O> {
    #[inline]
    fn drop(&mut self) {
        if self.counter.as_ref().is_some_and(|counter| counter.end()) {
            self.owner.end(self.kind, self.raw);
        }
    }
}

#[cfg(all(test, pagewise_shuttle))]
mod schedules;
#[cfg(all(test, not(pagewise_shuttle)))]
mod tests;
