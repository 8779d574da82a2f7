//! Which handles are live, and which of them calls are using.
//!
//! A driver dereferences the handles that it is given, and handles are copied freely. So each call
//! looks its handles up, and is refused without asking the driver if one is not live: destroyed, of
//! another back end, or made up. Handles that unsafe code vouches for, and default streams, are not
//! looked up.
//!
//! A call keeps its handles live until it is over: destroying takes a handle from the set, and the
//! driver destroys when the last call that uses it is over, on the thread of that call. No lock is
//! held meanwhile, as a call may wait for work that another thread has yet to submit.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use pagewise_hal::{Code, Error, EventHandle, PoolHandle, Result, StreamHandle};

use crate::abi::handle;
use crate::backend::{CudaBackend, is_default};

const NO_STREAM: &str = "no live stream of this back end: destroyed, or of another one";
const NO_EVENT: &str = "no live event of this back end: null, destroyed, or of another one";
const NO_POOL: &str = "no live pool of this driver: null, destroyed, or of another one";

/// What a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Event,
    Pool,
}

/// A live handle. Its set has one reference, each call that uses it another.
#[derive(Debug)]
pub(crate) struct Entry {
    raw: u64,
    /// Whether it was taken from its set.
    ended: AtomicBool,
}

/// The entry that a thread found last, of each kind: most threads use one stream.
struct Last {
    set: u64,
    raw: u64,
    entry: Weak<Entry>,
}

thread_local! {
    static LAST: [RefCell<Last>; 3] =
        const { [const { RefCell::new(Last { set: 0, raw: 0, entry: Weak::new() }) }; 3] };
}

/// What taking a handle from its set comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nobody uses it: it can be destroyed.
    Free,
    /// The last call that uses it destroys it.
    InUse,
    /// It was not live.
    Unknown,
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
        Self { kind, id: NEXT.fetch_add(1, Ordering::Relaxed), entries: RwLock::default() }
    }

    /// The driver gave a handle out, for the first time or again.
    pub(crate) fn add(&self, raw: u64) {
        let entry = || Arc::new(Entry { raw, ended: AtomicBool::new(false) });
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.entry(raw).or_insert_with(entry);
    }

    /// Keeps a live handle from being destroyed; `None` if it is not live.
    #[inline]
    pub(crate) fn find<'a, O: Ending>(&self, raw: u64, owner: &'a O) -> Option<InUse<'a, O>> {
        let remembered = LAST.try_with(|last| {
            let last = last[self.kind as usize].borrow();
            let same = last.raw == raw && last.set == self.id;
            if same { last.entry.upgrade() } else { None }
        });
        let entry = match remembered {
            Ok(Some(entry)) => entry,
            _ => self.look_up(raw)?,
        };
        let found = InUse { kind: self.kind, owner, entry: Some(entry) };
        (!found.is_ended()).then_some(found)
    }

    #[cold]
    fn look_up(&self, raw: u64) -> Option<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = Arc::clone(entries.get(&raw)?);
        // A thread that is ending has no place to remember it, and looks the next one up again.
        _ = LAST.try_with(|last| {
            let entry = Arc::downgrade(&entry);
            *last[self.kind as usize].borrow_mut() = Last { set: self.id, raw, entry };
        });
        Some(entry)
    }

    /// Takes a handle from the set: from now on it is not live.
    pub(crate) fn take(&self, raw: u64) -> Taken {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.remove(&raw) else { return Taken::Unknown };
        drop(entries);
        entry.ended.store(true, Ordering::Release);
        match Arc::into_inner(entry) {
            Some(_) => Taken::Free,
            None => Taken::InUse,
        }
    }
}

/// What destroys handles that were taken from their set while calls used them.
pub(crate) trait Ending {
    /// No call uses the handle any more, and none will.
    fn end(&self, kind: Kind, raw: u64);
}

/// A handle that a call uses: it is not destroyed before this is dropped.
pub(crate) struct InUse<'a, O: Ending = CudaBackend> {
    kind: Kind,
    owner: &'a O,
    /// None if it needs no keeping.
    entry: Option<Arc<Entry>>,
}

impl<O: Ending> InUse<'_, O> {
    fn is_ended(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.ended.load(Ordering::Acquire))
    }
}

impl<O: Ending> Drop for InUse<'_, O> {
    #[inline]
    fn drop(&mut self) {
        // Of all references to an entry, that of its set included, exactly one is the last.
        if let Some(entry) = self.entry.take().and_then(Arc::into_inner) {
            self.owner.end(self.kind, entry.raw);
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
        InUse { kind, owner: self, entry: None }
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Ended(Mutex<Vec<u64>>);

    impl Ending for Ended {
        fn end(&self, _: Kind, raw: u64) {
            self.0.lock().unwrap().push(raw);
        }
    }

    #[test]
    fn a_handle_is_live_from_its_making_to_its_end() {
        let (set, ended) = (Live::new(Kind::Stream), Ended::default());
        assert!(set.find(0x20, &ended).is_none());
        set.add(0x20);
        assert!(set.find(0x20, &ended).is_some());
        assert!(set.find(0x20, &ended).is_some(), "as this thread remembers it");
        assert_eq!(set.take(0x20), Taken::Free);
        assert!(set.find(0x20, &ended).is_none());
        assert_eq!(set.take(0x20), Taken::Unknown);
        assert!(ended.0.into_inner().unwrap().is_empty(), "who takes a free one ends it");
    }

    #[test]
    fn what_a_call_uses_ends_with_that_call_and_is_refused_at_once() {
        let (set, ended) = (Live::new(Kind::Event), Ended::default());
        set.add(0x20);
        let uses = [set.find(0x20, &ended), set.find(0x20, &ended)];
        assert_eq!(set.take(0x20), Taken::InUse);
        assert!(set.find(0x20, &ended).is_none());
        let [first, second] = uses;
        drop(first);
        assert!(ended.0.lock().unwrap().is_empty());
        drop(second);
        assert_eq!(*ended.0.lock().unwrap(), [0x20]);
    }

    #[test]
    fn sets_do_not_know_each_others_handles_and_a_number_that_comes_again_is_new() {
        let (one, other) = (Live::new(Kind::Pool), Live::new(Kind::Pool));
        let ended = Ended::default();
        one.add(0x20);
        assert!(one.find(0x20, &ended).is_some());
        assert!(other.find(0x20, &ended).is_none());
        assert_eq!(one.take(0x20), Taken::Free);
        one.add(0x20);
        assert!(one.find(0x20, &ended).is_some());
    }

    #[test]
    fn each_handle_ends_once_however_threads_use_and_end_it() {
        const HANDLES: u64 = 2000;
        let (set, ended) = (Live::new(Kind::Stream), Ended::default());
        (1..=HANDLES).for_each(|raw| set.add(raw));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for raw in 1..=HANDLES {
                        let used = set.find(raw, &ended);
                        if set.take(raw) == Taken::Free {
                            ended.end(Kind::Stream, raw);
                        }
                        drop(used);
                    }
                });
            }
        });
        let mut ended = ended.0.into_inner().unwrap();
        ended.sort_unstable();
        assert!(ended.into_iter().eq(1..=HANDLES));
    }
}
