//! Work that streams have yet to do: functions of the host, and all that was submitted behind them.
//!
//! A stream works in order. Work behind a function of the host that has not returned must wait, and
//! the call that submits it must not: the function may wait for what its program does next. So each
//! piece is kept as a value with all its arguments, and one thread carries it out when the work
//! before it is complete. A stream with nothing to wait for has no entry here; its calls are
//! complete when they return.
//!
//! One thread calls the functions, in the order in which they were submitted, as the driver's own
//! thread does. It carries out what became ready before it calls the next function. Every piece
//! waits for earlier ones only, so there is always one that can go on.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_int;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use pagewise_hal::Code;
use pagewise_sim::start_own_thread;

use crate::outcome::Outcome;

/// `CUDA_ERROR_NOT_READY`: queries return it for work that waits.
pub(crate) const NOT_READY: c_int = 600;

/// The time between two looks at work that waits for memory to change.
pub(crate) const PAUSE: Duration = Duration::from_micros(50);

thread_local! {
    /// Whether this is the thread that carries work out.
    static IS_SERVING: Cell<bool> = const { Cell::new(false) };
}

/// The order of a stream with the other streams of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// The legacy default stream: it waits for blocking streams, and they wait for it.
    Legacy,
    Blocking,
    /// A stream that waits for no other stream.
    Alone,
}

/// A stream as its order needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    pub(crate) context: usize,
    pub(crate) stream: u64,
    /// Tells the default streams of threads apart.
    pub(crate) thread: u64,
    pub(crate) order: Order,
}

impl Lane {
    /// Functions of user objects, which belong to no stream.
    pub(crate) const OBJECTS: Self =
        Self { context: 0, stream: u64::MAX, thread: 0, order: Order::Alone };

    /// Whether work of this stream waits for earlier work of the other one.
    fn waits_for(self, other: Self) -> bool {
        let are_ordered = matches!(
            (self.order, other.order),
            (Order::Legacy, Order::Blocking) | (Order::Blocking, Order::Legacy)
        );
        self == other || (are_ordered && self.context == other.context)
    }
}

/// The rest of an operation that waits for memory to change. It is asked again and again, and says
/// whether it is complete.
pub(crate) type Rest<D> = Box<dyn FnMut(&D) -> bool + Send>;

/// A request to the driver. It gives its rest, if it waits for memory to change.
pub(crate) type Operation<D> = Box<dyn FnOnce(&D) -> Option<Rest<D>> + Send>;

/// One piece of work.
pub(crate) enum Work<D> {
    /// Calls a function of the host.
    Function(Box<dyn FnOnce() + Send>),
    /// Asks something of the driver. It is complete if no rest is left.
    Operation(Operation<D>),
    Rest(Rest<D>),
}

/// Work with its place in the order.
pub(crate) struct Entry<D> {
    pub(crate) lane: Lane,
    pub(crate) work: Work<D>,
    /// The event that the work records. It is skipped if the event was recorded again or destroyed.
    pub(crate) records: Option<u64>,
    /// The event of which the work waits for the last record.
    pub(crate) waits_for: Option<u64>,
}

struct Waiting<D> {
    number: u64,
    after: BTreeSet<u64>,
    work: Work<D>,
    records: Option<u64>,
}

struct Queue<D> {
    waiting: VecDeque<Waiting<D>>,
    /// All work that is not complete, by its number.
    pending: BTreeMap<u64, Lane>,
    /// The last of each stream.
    last: BTreeMap<Lane, u64>,
    /// The last record of each event that waits to be recorded.
    events: BTreeMap<u64, u64>,
    next: u64,
    /// Whether the thread runs.
    is_served: bool,
}

impl<D> Queue<D> {
    /// The work that new work of a stream waits for.
    fn ahead(&self, lane: Lane) -> BTreeSet<u64> {
        let ahead = self.last.iter().filter(|(other, _)| lane.waits_for(**other));
        ahead.map(|(_, number)| *number).collect()
    }

    fn is_pending(&self, number: &u64) -> bool {
        self.pending.contains_key(number)
    }

    /// The next piece that can be carried out: operations first, then the first function, and then
    /// what waits for memory to change.
    fn take(&mut self) -> Option<Waiting<D>> {
        let is_ready = |one: &&Waiting<D>| !one.after.iter().any(|number| self.is_pending(number));
        let find = |is_wanted: fn(&Work<D>) -> bool| {
            let mut all = self.waiting.iter().enumerate();
            all.find(|(_, one)| is_wanted(&one.work) && is_ready(one)).map(|(at, _)| at)
        };
        let at = find(|work| matches!(work, Work::Operation(_)))
            .or_else(|| find(|work| matches!(work, Work::Function(_))))
            .or_else(|| find(|_| true))?;
        self.waiting.remove(at)
    }

    fn push(&mut self, Entry { lane, work, records, waits_for }: Entry<D>) {
        let mut after = self.ahead(lane);
        after.extend(waits_for.and_then(|event| self.events.get(&event)));
        let number = self.next;
        self.next = number.saturating_add(1);
        self.pending.insert(number, lane);
        self.last.insert(lane, number);
        self.events.extend(records.map(|event| (event, number)));
        self.waiting.push_back(Waiting { number, after, work, records });
    }

    /// Keeps the rest of work that has begun.
    fn push_rest(&mut self, number: u64, rest: Rest<D>, records: Option<u64>) {
        let work = Work::Rest(rest);
        self.waiting.push_back(Waiting { number, after: BTreeSet::new(), work, records });
    }

    /// Whether a record is still the last one of its event.
    fn is_last(&self, number: u64, event: u64) -> bool {
        self.events.get(&event) == Some(&number)
    }

    fn complete(&mut self, number: u64, records: Option<u64>) {
        if let Some(lane) = self.pending.remove(&number)
            && self.last.get(&lane) == Some(&number)
        {
            self.last.remove(&lane);
        }
        if let Some(event) = records
            && self.is_last(number, event)
        {
            self.events.remove(&event);
        }
    }
}

struct Shared<D> {
    queue: Mutex<Queue<D>>,
    completed: Condvar,
    /// The driver that operations ask. Without one they are dropped.
    driver: OnceLock<Weak<D>>,
}

impl<D> Shared<D> {
    fn queue(&self) -> MutexGuard<'_, Queue<D>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries work out until none is left.
    fn serve(&self) {
        IS_SERVING.set(true);
        loop {
            let mut queue = self.queue();
            let Some(Waiting { number, work, records, .. }) = queue.take() else {
                queue.is_served = false;
                return;
            };
            let is_wanted = records.is_none_or(|event| queue.is_last(number, event));
            drop(queue);
            if let Some(rest) = self.carry_out(work, is_wanted) {
                self.queue().push_rest(number, rest, records);
                continue;
            }
            self.queue().complete(number, records);
            self.completed.notify_all();
        }
    }

    /// Carries one piece of work out, as far as it goes. Gives its rest.
    fn carry_out(&self, work: Work<D>, is_wanted: bool) -> Option<Rest<D>> {
        let driver = || self.driver.get().and_then(Weak::upgrade).filter(|_| is_wanted);
        match work {
            Work::Function(call) => {
                call();
                None
            }
            Work::Operation(call) => call(&*driver()?),
            Work::Rest(mut rest) => {
                if rest(&*driver()?) {
                    return None;
                }
                std::thread::sleep(PAUSE);
                Some(rest)
            }
        }
    }
}

/// The work that streams of a driver have yet to do.
pub(crate) struct Deferred<D>(Arc<Shared<D>>);

impl<D> Default for Deferred<D> {
    fn default() -> Self {
        let queue = Mutex::new(Queue {
            waiting: VecDeque::new(),
            pending: BTreeMap::new(),
            last: BTreeMap::new(),
            events: BTreeMap::new(),
            next: 0,
            is_served: false,
        });
        Self(Arc::new(Shared { queue, completed: Condvar::new(), driver: OnceLock::new() }))
    }
}

impl<D> fmt::Debug for Deferred<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Deferred").field(&self.0.queue().pending).finish()
    }
}

impl<D: Send + Sync + 'static> Deferred<D> {
    /// Names the driver that operations ask.
    pub(crate) fn ask(&self, driver: Weak<D>) {
        // A driver is made once.
        _ = self.0.driver.set(driver);
    }

    /// Lets the thread carry work out, after what it waits for.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the system refuses a thread.
    pub(crate) fn submit(&self, entry: Entry<D>) -> Outcome {
        let mut queue = self.0.queue();
        if !queue.is_served {
            let shared = Arc::clone(&self.0);
            let started = start_own_thread("cuda-host-functions", move || shared.serve());
            started.map_err(|_| Code::OUT_OF_MEMORY)?;
            queue.is_served = true;
        }
        queue.push(entry);
        Ok(())
    }

    /// Whether new work of a stream has to wait.
    pub(crate) fn is_behind(&self, lane: Lane) -> bool {
        !self.0.queue().ahead(lane).is_empty()
    }

    /// Whether a stream has work that is not complete.
    pub(crate) fn is_pending(&self, lane: Lane) -> bool {
        self.0.queue().last.contains_key(&lane)
    }

    /// Whether a stream of this handle, destroyed or not, has work that is not complete.
    pub(crate) fn is_stream_pending(&self, stream: u64) -> bool {
        self.0.queue().last.keys().any(|lane| lane.stream == stream)
    }

    /// Whether the last record of an event waits.
    pub(crate) fn is_event_pending(&self, event: u64) -> bool {
        self.0.queue().events.contains_key(&event)
    }

    /// Forgets the records of an event that wait: it was recorded since, or destroyed.
    pub(crate) fn forget_event(&self, event: u64) {
        self.0.queue().events.remove(&event);
    }

    /// Waits until all that new work of a stream would wait for is complete.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_PERMITTED` in a function of the host, which would wait for itself.
    pub(crate) fn wait_ahead(&self, lane: Lane) -> Outcome {
        self.wait_for(|queue| queue.ahead(lane))
    }

    /// Waits until the work of a stream is complete.
    ///
    /// # Errors
    /// As [`wait_ahead`](Self::wait_ahead).
    pub(crate) fn wait_lane(&self, lane: Lane) -> Outcome {
        self.wait_for(|queue| queue.last.get(&lane).copied().into_iter().collect())
    }

    /// Waits until the last record of an event is complete.
    ///
    /// # Errors
    /// As [`wait_ahead`](Self::wait_ahead).
    pub(crate) fn wait_event(&self, event: u64) -> Outcome {
        self.wait_for(|queue| queue.events.get(&event).copied().into_iter().collect())
    }

    /// Waits until the work of a context is complete, with functions of user objects, which belong to
    /// no context.
    ///
    /// # Errors
    /// As [`wait_ahead`](Self::wait_ahead).
    pub(crate) fn wait_context(&self, context: usize) -> Outcome {
        self.wait_for(|queue| {
            let of_context = queue
                .last
                .iter()
                .filter(|(lane, _)| lane.context == context || **lane == Lane::OBJECTS);
            of_context.map(|(_, number)| *number).collect()
        })
    }

    /// Waits until all work is complete.
    ///
    /// # Errors
    /// As [`wait_ahead`](Self::wait_ahead).
    pub(crate) fn wait(&self) -> Outcome {
        self.wait_for(|queue| queue.last.values().copied().collect())
    }

    /// Waits until some of the work that is there now is complete.
    fn wait_for(&self, which: impl FnOnce(&Queue<D>) -> BTreeSet<u64>) -> Outcome {
        let mut queue = self.0.queue();
        let wanted = which(&queue);
        while wanted.iter().any(|number| queue.is_pending(number)) {
            if IS_SERVING.get() {
                return Err(Code::NOT_PERMITTED);
            }
            queue = self.0.completed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LEGACY: Lane = Lane { context: 1, stream: 0, thread: 0, order: Order::Legacy };

    fn lane(stream: u64, order: Order) -> Lane {
        Lane { context: 1, stream, thread: 0, order }
    }

    type Log = Mutex<Vec<u32>>;

    fn note(of: u32) -> Work<Log> {
        Work::Operation(Box::new(move |log: &Log| {
            log.lock().unwrap().push(of);
            None
        }))
    }

    fn entry(lane: Lane, work: Work<Log>) -> Entry<Log> {
        Entry { lane, work, records: None, waits_for: None }
    }

    /// Work behind a function that waits for the sender.
    fn blocked() -> (Arc<Log>, Deferred<Log>, mpsc::Sender<()>, Lane) {
        let (log, work) = (Arc::new(Log::default()), Deferred::default());
        work.ask(Arc::downgrade(&log));
        let (release, wait) = mpsc::channel();
        let on = lane(9, Order::Blocking);
        let call = Work::Function(Box::new(move || wait.recv().unwrap_or_default()));
        work.submit(entry(on, call)).unwrap();
        (log, work, release, on)
    }

    #[test]
    fn functions_are_called_in_their_order_and_waited_for() {
        let (log, work) = (Arc::new(Log::default()), Deferred::<Log>::default());
        for turn in 0..100 {
            let log = Arc::clone(&log);
            let call = Work::Function(Box::new(move || log.lock().unwrap().push(turn)));
            work.submit(entry(lane(u64::from(turn % 3), Order::Alone), call)).unwrap();
        }
        work.wait_lane(lane(99 % 3, Order::Alone)).unwrap();
        assert_eq!(*log.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn work_waits_for_its_stream_and_the_legacy_stream_for_blocking_ones() {
        let (log, work, release, on) = blocked();
        assert!(work.is_behind(on) && work.is_behind(LEGACY));
        assert!(!work.is_behind(lane(3, Order::Blocking)), "blocking streams are not ordered");
        work.submit(entry(on, note(1))).unwrap();
        work.submit(entry(LEGACY, note(2))).unwrap();
        assert!(work.is_behind(lane(3, Order::Blocking)), "the legacy stream waits now");
        assert!(!work.is_behind(lane(3, Order::Alone)));
        assert!(!work.is_behind(Lane { context: 2, ..LEGACY }));
        work.submit(entry(lane(3, Order::Blocking), note(3))).unwrap();
        assert!(log.lock().unwrap().is_empty());
        release.send(()).unwrap();
        work.wait().unwrap();
        assert_eq!(*log.lock().unwrap(), [1, 2, 3]);
        assert!(!work.is_behind(on));
    }

    #[test]
    fn a_stream_waits_for_the_record_of_an_event_that_was_last_when_it_was_asked_to() {
        let (log, work, release, on) = blocked();
        let other = lane(3, Order::Alone);
        work.submit(Entry { records: Some(7), ..entry(on, note(1)) }).unwrap();
        assert!(work.is_event_pending(7));
        work.submit(Entry { waits_for: Some(7), ..entry(other, note(2)) }).unwrap();
        work.forget_event(7);
        assert!(!work.is_event_pending(7) && work.is_pending(other));
        release.send(()).unwrap();
        work.wait().unwrap();
        assert_eq!(*log.lock().unwrap(), [2], "a record that is not the last is skipped");
    }

    #[test]
    fn what_waits_for_memory_holds_its_stream_up_and_no_other() {
        let (log, work) = (Arc::new(Log::default()), Deferred::default());
        work.ask(Arc::downgrade(&log));
        let (on, other) = (lane(3, Order::Alone), lane(4, Order::Alone));
        let begun = |log: &Log| {
            log.lock().unwrap().push(1);
            let rest = |log: &Log| log.lock().unwrap().contains(&2);
            Some(Box::new(rest) as Rest<Log>)
        };
        work.submit(entry(on, Work::Operation(Box::new(begun)))).unwrap();
        work.submit(entry(on, note(3))).unwrap();
        assert!(work.is_pending(on), "nothing changes what it waits for");
        let log_of_function = Arc::clone(&log);
        let call = Work::Function(Box::new(move || log_of_function.lock().unwrap().push(2)));
        work.submit(entry(other, call)).unwrap();
        work.wait().unwrap();
        assert_eq!(*log.lock().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_function_that_waits_for_itself_is_refused() {
        let work = Arc::new(Deferred::<Log>::default());
        let (answer, asked) = mpsc::channel();
        let waiting = Arc::clone(&work);
        let call = Work::Function(Box::new(move || answer.send(waiting.wait()).unwrap()));
        work.submit(entry(LEGACY, call)).unwrap();
        assert_eq!(asked.recv().unwrap(), Err(Code::NOT_PERMITTED));
    }
}
