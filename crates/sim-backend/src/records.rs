//! The engine's records: counted, kept in a ring, and passed to a listener.
//!
//! Counting is always on. The ring and the listener cost nothing unless they were asked for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use pagewise_hal::{EventLog, MemoryEvent};

use crate::config::EventCapture;

/// The records of one machine.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) log: EventLog,
    /// The current call's, for a listener; `None` if there is none.
    fresh: Option<Vec<MemoryEvent>>,
}

impl Records {
    pub(crate) fn new(capture: EventCapture) -> Self {
        let capacity = match capture {
            EventCapture::Off => 0,
            EventCapture::Ring { capacity } => capacity,
        };
        Self { log: EventLog::of_calls(capacity), fresh: None }
    }

    #[inline]
    pub(crate) fn push(&mut self, record: MemoryEvent) {
        self.log.push(record);
        if let Some(fresh) = &mut self.fresh {
            fresh.push(record);
        }
    }

    /// Whether a listener wants each call's records.
    pub(crate) fn listen(&mut self, on: bool) {
        self.fresh = on.then(Vec::new);
    }

    /// The records since the last call of this.
    pub(crate) fn take_fresh(&mut self) -> Vec<MemoryEvent> {
        self.fresh.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// A user's function for records.
pub(crate) type Listener = Box<dyn FnMut(&[MemoryEvent]) + Send>;

/// Hands records to a listener in the order of the calls, one batch at a time, with no lock held:
/// a listener may itself call the machine, and gets the records of that call afterwards.
#[derive(Default)]
pub(crate) struct Deliveries(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<MemoryEvent>>,
    /// `None` if there is none, or if it is at work.
    listener: Option<Listener>,
    /// Counts listeners, so that one that was replaced while at work does not come back.
    generation: u64,
}

impl Deliveries {
    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the listener. What waited for the last one is dropped.
    pub(crate) fn set(&self, listener: Option<Listener>) {
        let mut queue = self.queue();
        queue.generation += 1;
        queue.waiting.clear();
        queue.listener = listener;
    }

    /// Puts a call's records in line. Call it in the order of the calls.
    pub(crate) fn put(&self, records: Vec<MemoryEvent>) {
        if !records.is_empty() {
            self.queue().waiting.push_back(records);
        }
    }

    /// Hands over the waiting records, unless another thread is at it.
    pub(crate) fn deliver(&self) {
        loop {
            let mut queue = self.queue();
            if queue.waiting.is_empty() {
                return;
            }
            let Some(mut listener) = queue.listener.take() else { return };
            let generation = queue.generation;
            let records = queue.waiting.pop_front().unwrap_or_default();
            drop(queue);
            listener(&records);
            let mut queue = self.queue();
            if queue.generation == generation {
                queue.listener = Some(listener);
            }
        }
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries").finish_non_exhaustive()
    }
}
