//! Which handles are live, and which of them calls are using.
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

use pagewise_hal::{Code, Error, EventHandle, PoolHandle, Result, StreamHandle};

use crate::abi::handle;
use crate::backend::{CudaBackend, is_default};
use crate::barrier::Barrier;
use crate::sync::{RwLock, thread_local};
use crate::uses::{Counter, Entry, Taken};

const NO_STREAM: &str = "no live stream of this back end: destroyed, or of another one";
const NO_EVENT: &str = "no live event of this back end: null, destroyed, or of another one";
const NO_POOL: &str = "no live pool of this driver: null, destroyed, or of another one";

/// The kind of thing that a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Event,
    Pool,
}

/// How many handles a thread remembers: most use a few streams and events. A power of two.
const REMEMBERED: usize = 8;

/// A handle that this thread found before.
struct Known {
    set: u64,
    raw: u64,
    counter: Option<Rc<Counter>>,
}

thread_local! {
    static KNOWN: [RefCell<Known>; REMEMBERED] =
        const { [const { RefCell::new(Known { set: 0, raw: 0, counter: None }) }; REMEMBERED] };
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
        (mixed >> (u64::BITS - REMEMBERED.ilog2())) as usize
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
pub(crate) struct InUse<'a, O: Ending = CudaBackend> {
    kind: Kind,
    raw: u64,
    owner: &'a O,
    /// None if it needs no keeping.
    counter: Option<Rc<Counter>>,
}

impl<O: Ending> Drop for InUse<'_, O> {
    #[inline]
    fn drop(&mut self) {
        if self.counter.as_ref().is_some_and(|counter| counter.end()) {
            self.owner.end(self.kind, self.raw);
        }
    }
}

impl Ending for CudaBackend {
    #[cold]
    fn end(&self, kind: Kind, raw: u64) {
        // Its user was told that it is destroyed.
        _ = match kind {
            Kind::Stream => self.stream_end(StreamHandle::checked(raw)),
            Kind::Event => self.event_end(EventHandle::checked(raw)),
            Kind::Pool => self.pool_end(PoolHandle::checked(raw)),
        };
    }
}

#[cold]
fn refuse<T>(operation: &'static str, code: i32, why: &'static str) -> Result<T> {
    Err(Error::from_code(operation, code).with_detail(why))
}

impl CudaBackend {
    fn unkept(&self, kind: Kind) -> InUse<'_> {
        InUse { kind, raw: 0, owner: self, counter: None }
    }

    /// Keeps a stream live for a call.
    #[inline]
    pub(crate) fn use_stream(
        &self,
        operation: &'static str,
        stream: StreamHandle,
    ) -> Result<InUse<'_>> {
        if is_default(stream) || stream.is_vouched() {
            return Ok(self.unkept(Kind::Stream));
        }
        match self.streams.find(stream.as_raw(), self) {
            Some(found) => Ok(found),
            None => refuse(operation, Code::INVALID_HANDLE, NO_STREAM),
        }
    }

    /// Keeps an event live for a call.
    #[inline]
    pub(crate) fn use_event(
        &self,
        operation: &'static str,
        event: EventHandle,
    ) -> Result<InUse<'_>> {
        if event.is_vouched() {
            return Ok(self.unkept(Kind::Event));
        }
        match self.events.find(event.as_raw(), self) {
            Some(found) => Ok(found),
            None => refuse(operation, Code::INVALID_HANDLE, NO_EVENT),
        }
    }

    /// Keeps a pool live for a call.
    pub(crate) fn use_pool(&self, operation: &'static str, pool: PoolHandle) -> Result<InUse<'_>> {
        if pool.is_vouched() {
            return Ok(self.unkept(Kind::Pool));
        }
        match self.driver.pools.live.find(pool.as_raw(), self) {
            Some(found) => Ok(found),
            None => refuse(operation, Code::INVALID_VALUE, NO_POOL),
        }
    }

    pub(crate) fn stream_destroy_of(&self, stream: StreamHandle) -> Result<()> {
        const OPERATION: &str = "stream_destroy";
        if is_default(stream) {
            return refuse(OPERATION, Code::INVALID_HANDLE, "default streams cannot be destroyed");
        }
        match self.streams.take(stream.as_raw()) {
            Taken::InUse => Ok(()),
            Taken::Unknown if !stream.is_vouched() => {
                refuse(OPERATION, Code::INVALID_HANDLE, NO_STREAM)
            }
            _ => self.stream_end(stream),
        }
    }

    /// Destroys a stream that is in the set no more. It stays out of it if the driver answers with
    /// an error, which may be one of earlier work.
    fn stream_end(&self, stream: StreamHandle) -> Result<()> {
        const OPERATION: &str = "stream_destroy";
        let destroy = self.driver.table.stream_destroy;
        // SAFETY: the stream was live until it was taken from the set, which happens once, and no
        // call uses it; or the caller of `stream_destroy` vouches for it.
        self.context_of(OPERATION, stream)?
            .call(OPERATION, || unsafe { destroy(handle(stream.as_raw())) })
    }

    pub(crate) fn event_destroy_of(&self, event: EventHandle) -> Result<()> {
        match self.events.take(event.as_raw()) {
            Taken::InUse => Ok(()),
            Taken::Unknown if !event.is_vouched() => {
                refuse("event_destroy", Code::INVALID_HANDLE, NO_EVENT)
            }
            _ => self.event_end(event),
        }
    }

    /// Destroys an event that is in the set no more, in the same way.
    fn event_end(&self, event: EventHandle) -> Result<()> {
        let destroy = self.driver.table.event_destroy;
        // SAFETY: the event was live until it was taken from the set, which happens once, and no
        // call uses it; or the caller of `event_destroy` vouches for it.
        self.home.context.call("event_destroy", || unsafe { destroy(handle(event.as_raw())) })
    }

    pub(crate) fn pool_destroy_of(&self, pool: PoolHandle) -> Result<()> {
        match self.driver.pools.live.take(pool.as_raw()) {
            Taken::InUse => Ok(()),
            Taken::Unknown if !pool.is_vouched() => {
                refuse("pool_destroy", Code::INVALID_VALUE, NO_POOL)
            }
            _ => self.pool_end(pool),
        }
    }
}

#[cfg(all(test, pagewise_shuttle))]
mod schedules;
#[cfg(all(test, not(pagewise_shuttle)))]
mod tests;
