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

    /// Whether each record is kept or passed on, and not only counted.
    #[inline]
    pub(crate) fn are_wanted(&self) -> bool {
        self.log.keeps_records() || self.fresh.is_some()
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

#[cfg(test)]
mod tests {
    use pagewise_hal::{
        Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, HostAccess, HostTouch, Span,
        StreamHandle,
    };

    use crate::{EventCapture, GpuProfile, SimBackend, SimConfig};

    /// A machine with room for three blocks of the four that it uses.
    fn after_touches(events: EventCapture) -> SimBackend {
        let memory_bytes = GpuProfile::h200().context_bytes + (6 << 20);
        let text = format!("base = 'h200'\nname = 'small'\nmemory_bytes = {memory_bytes}");
        let gpu = GpuProfile::from_toml(&text).unwrap();
        let sim = SimBackend::new(SimConfig::new(gpu).events(events)).unwrap();
        let span = sim.alloc(8 << 20).unwrap();
        for nth in 0..300 {
            let span = Span::new(span.ptr.offset(nth * 7919 % 2048 * 4096), 4);
            let (device, access) = (DeviceId(0), DeviceAccess::Read);
            let touch =
                DeviceTouch { device, span, stride_bytes: 4, access, blocks: 1, threads: 1 };
            // SAFETY: one thread uses the memory.
            unsafe { sim.device_touch(touch, StreamHandle::NULL) }.unwrap();
            if nth % 3 == 0 {
                let touch = HostTouch { span, stride_bytes: 4, access: HostAccess::Write(1) };
                // SAFETY: one thread uses the memory.
                unsafe { sim.host_touch(touch) }.unwrap();
            }
        }
        sim
    }

    #[test]
    fn a_machine_that_keeps_no_records_counts_those_of_one_that_does() {
        let [none, some] = [EventCapture::Off, EventCapture::Ring { capacity: 1 << 16 }];
        let [none, some] = [none, some].map(after_touches);
        let counters = some.counters();
        assert!(counters.by_eviction.runs > 0 && counters.by_prefetcher.runs > 0);
        assert!(counters.thrashing_pages > 0);
        assert_eq!((none.counters(), none.clock_ns()), (counters, some.clock_ns()));
        let [none, some] = [none, some].map(|sim| sim.events_since(0).unwrap());
        assert_eq!((none.position, none.lost), (some.position, some.position));
    }
}
