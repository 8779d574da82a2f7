//! A log of unified-memory records that several observers read, each from a position of its own.

use std::collections::VecDeque;

use crate::call_log::CallLog;
use crate::{CallName, CallRecords, Counters, MemoryEvent};

/// The answer of [`Backend::events_since`](crate::Backend::events_since): sums of all records, and
/// the records from a position on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct EventsSince {
    /// Sums over every record since the back end was opened, also over those that were not kept.
    pub counters: Counters,
    /// The records from the position on, in order, as far as the back end still has them.
    pub events: Vec<MemoryEvent>,
    /// The calls that made these records, in order: their numbers of records add up to all of
    /// `events`. `None` if the back end cannot tell, as a driver, which reports records later.
    pub calls: Option<Vec<CallRecords>>,
    /// The number of records from the position on that the back end no longer has, or never kept.
    pub lost: u64,
    /// The position after the last record: how many there were since the back end was opened.
    pub position: u64,
}

/// Records in their order. All are counted, and the last ones are kept.
///
/// Authors of back ends use it to answer [`Backend::events_since`](crate::Backend::events_since)
/// and [`Backend::take_events`](crate::Backend::take_events).
///
/// ```
/// use pagewise_hal::{EventLog, FaultAccess, MemoryEvent};
///
/// let mut log = EventLog::new(2);
/// let fault = |address| MemoryEvent::CpuFault { address, access: FaultAccess::Read };
/// let begin = log.since(u64::MAX).position;
/// (0..3).for_each(|page| log.push(fault(page * 4096)));
/// let seen = log.since(begin);
/// assert_eq!((seen.counters.cpu_faults, seen.lost), (3, 1));
/// assert_eq!(seen.events, [fault(4096), fault(8192)]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct EventLog {
    counters: Counters,
    capacity: usize,
    kept: VecDeque<MemoryEvent>,
    /// The calls of the records that are kept; `None` if they are not known.
    calls: Option<CallLog>,
    /// The number of records so far.
    end: u64,
    /// Records that were pushed out since the last [`take`](Self::take).
    pushed_out: u64,
}

impl EventLog {
    /// The number of records that back ends keep unless told otherwise, of 64 bytes each.
    pub const DEFAULT_CAPACITY: usize = 1 << 22;

    /// A log that keeps the last `capacity` records. Room is taken as they come.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// A log that also knows the calls of its records, at most 48 bytes for each call that made
    /// some. Say each call by [`begin_call`](Self::begin_call) before its records.
    ///
    /// ```
    /// use pagewise_hal::{EventLog, FaultAccess, MemoryEvent, Operation, StreamHandle};
    ///
    /// let mut log = EventLog::of_calls(16);
    /// let fault = MemoryEvent::CpuFault { address: 4096, access: FaultAccess::Read };
    /// log.begin_call((Operation::Prefetch, StreamHandle::NULL));
    /// log.begin_call(Operation::HostTouch);
    /// log.push(fault);
    /// let calls = log.since(0).calls.expect("the log knows them");
    /// assert_eq!(calls.len(), 1, "the prefetch made no record");
    /// assert_eq!((calls[0].call, calls[0].records), (Operation::HostTouch.into(), 1));
    /// ```
    #[must_use]
    pub fn of_calls(capacity: usize) -> Self {
        Self { calls: Some(CallLog::default()), ..Self::new(capacity) }
    }

    /// The records from now on are of a call of the present thread. It does nothing unless the log
    /// is one [`of_calls`](Self::of_calls).
    pub fn begin_call(&mut self, call: impl Into<CallName>) {
        if let Some(calls) = &mut self.calls {
            calls.begin(call.into());
        }
    }

    /// Adds a record. The oldest one goes if there is no room. A record before the first call
    /// makes the calls of the log unknown.
    #[inline]
    pub fn push(&mut self, event: MemoryEvent) {
        self.counters.count(&event);
        self.end = self.end.saturating_add(1);
        if self.capacity > 0 {
            self.keep(event);
        }
    }

    /// Whether it keeps records. A log without room only counts them.
    #[inline]
    #[must_use]
    pub const fn keeps_records(&self) -> bool {
        self.capacity > 0
    }

    /// Adds so many records that are only counted: `count` adds them to the sums. Later observers
    /// see them as lost, so this is for a log that [keeps none](Self::keeps_records).
    ///
    /// ```
    /// use pagewise_hal::{CopyCause, EventLog, Processor};
    ///
    /// let mut log = EventLog::new(0);
    /// let way = (Processor::HOST, Processor::device(0));
    /// log.push_counted(3, |sums| sums.count_copies(way, CopyCause::User, 3, 12288));
    /// assert_eq!((log.since(0).lost, log.counters().to_device.runs), (3, 3));
    /// ```
    #[inline]
    pub fn push_counted(&mut self, records: u64, count: impl FnOnce(&mut Counters)) {
        count(&mut self.counters);
        self.end = self.end.saturating_add(records);
    }

    fn keep(&mut self, event: MemoryEvent) {
        if self.kept.len() == self.capacity {
            self.kept.pop_front();
            self.pushed_out = self.pushed_out.saturating_add(1);
            if let Some(calls) = &mut self.calls {
                calls.forget_oldest();
            }
        }
        self.kept.push_back(event);
        if self.calls.as_mut().is_some_and(|calls| !calls.count()) {
            self.calls = None;
        }
    }

    /// Sums over every record.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// How many records the log holds.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// How many records were pushed out since the last [`take`](Self::take).
    #[must_use]
    pub const fn pushed_out(&self) -> u64 {
        self.pushed_out
    }

    /// The records from a position on, which stay. A position after the last record has none.
    #[must_use]
    pub fn since(&self, position: u64) -> EventsSince {
        let first_kept = self.end.saturating_sub(self.kept.len() as u64);
        let from = position.clamp(first_kept, self.end);
        let skipped = from.saturating_sub(first_kept);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let wanted = self.end.saturating_sub(from);
        EventsSince {
            counters: self.counters,
            events: self.kept.iter().skip(skipped).copied().collect(),
            calls: self.calls.as_ref().map(|calls| calls.of_last(wanted)),
            lost: from.saturating_sub(position),
            position: self.end,
        }
    }

    /// The records that are kept, which leave the log. They count as lost for observers that
    /// began before them.
    pub fn take(&mut self) -> Vec<MemoryEvent> {
        self.pushed_out = 0;
        if let Some(calls) = &mut self.calls {
            calls.clear();
        }
        std::mem::take(&mut self.kept).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultAccess, Operation};

    fn fault(page: u64) -> MemoryEvent {
        MemoryEvent::CpuFault { address: page * 4096, access: FaultAccess::Read }
    }

    fn log(capacity: usize, records: u64) -> EventLog {
        let mut log = EventLog::new(capacity);
        (0..records).for_each(|page| log.push(fault(page)));
        log
    }

    #[test]
    fn each_observer_has_the_records_from_its_own_position_on() {
        let log = log(8, 5);
        for position in 0..=5 {
            let seen = log.since(position);
            let expected: Vec<_> = (position..5).map(fault).collect();
            assert_eq!((seen.events, seen.lost, seen.position), (expected, 0, 5));
            assert_eq!(seen.counters.cpu_faults, 5);
        }
        let later = log.since(u64::MAX);
        assert_eq!((later.events, later.lost, later.position), (Vec::new(), 0, 5));
    }

    #[test]
    fn records_without_room_are_counted_and_lost_to_earlier_observers() {
        for (capacity, kept) in [(0, 0), (1, 1), (3, 3), (5, 5), (9, 5)] {
            let log = log(capacity, 5);
            let seen = log.since(1);
            assert_eq!(seen.events.len() as u64, kept.min(4), "capacity {capacity}");
            assert_eq!(seen.lost, 4 - kept.min(4), "capacity {capacity}");
            assert_eq!((seen.counters.cpu_faults, log.kept() as u64), (5, kept));
        }
        assert_eq!([log(3, 5).pushed_out(), log(5, 5).pushed_out()], [2, 0]);
    }

    #[test]
    fn taken_records_leave_the_log_and_are_lost_to_earlier_observers() {
        let mut log = log(3, 5);
        assert_eq!(log.take(), [fault(2), fault(3), fault(4)]);
        assert_eq!((log.kept(), log.pushed_out()), (0, 0));
        log.push(fault(5));
        let seen = log.since(4);
        assert_eq!((seen.events, seen.lost, seen.position), (vec![fault(5)], 1, 6));
        assert_eq!(seen.counters.cpu_faults, 6);
    }

    /// The operations of the calls, each with its number of records.
    fn calls(seen: &EventsSince) -> Option<Vec<(Operation, u64)>> {
        let calls = seen.calls.as_ref()?;
        Some(calls.iter().map(|call| (call.call.operation, call.records)).collect())
    }

    /// A prefetch with three records, an advice without any, two touches of one record each.
    fn log_of_calls(capacity: usize) -> EventLog {
        let mut log = EventLog::of_calls(capacity);
        let program = [
            (Operation::Prefetch, 0..3),
            (Operation::Advise, 3..3),
            (Operation::HostTouch, 3..4),
            (Operation::HostTouch, 4..5),
        ];
        for (operation, pages) in program {
            log.begin_call(operation);
            pages.map(fault).for_each(|event| log.push(event));
        }
        log
    }

    #[test]
    fn the_calls_of_each_observer_are_those_of_its_records() {
        let log = log_of_calls(8);
        let (prefetch, touch) = (Operation::Prefetch, (Operation::HostTouch, 1));
        let all = [(prefetch, 3), touch, touch];
        assert_eq!(calls(&log.since(0)).as_deref(), Some(&all[..]));
        assert_eq!(calls(&log.since(2)), Some(vec![(prefetch, 1), touch, touch]));
        assert_eq!(calls(&log.since(4)), Some(vec![touch]));
        assert_eq!(calls(&log.since(u64::MAX)), Some(vec![]));
        assert_eq!(self::log(8, 5).since(0).calls, None, "a log that was told no calls");
    }

    #[test]
    fn a_call_goes_with_its_last_record() {
        let touch = (Operation::HostTouch, 1);
        for capacity in 0..=6 {
            let seen = log_of_calls(capacity).since(0);
            let counted: u64 = calls(&seen).unwrap().iter().map(|(_, records)| records).sum();
            assert_eq!(counted, seen.events.len() as u64, "capacity {capacity}");
        }
        assert_eq!(calls(&log_of_calls(2).since(0)), Some(vec![touch, touch]));
        let mut log = log_of_calls(8);
        assert_eq!(log.take().len(), 5);
        log.push(fault(9));
        let seen = log.since(0);
        assert_eq!((calls(&seen), seen.lost), (Some(vec![touch]), 5), "the call goes on");
    }

    #[test]
    fn a_call_with_more_records_than_there_is_room_for_keeps_the_last_ones() {
        let mut log = EventLog::of_calls(1);
        log.begin_call(Operation::Prefetch);
        (0..3).map(fault).for_each(|event| log.push(event));
        assert_eq!(calls(&log.since(0)), Some(vec![(Operation::Prefetch, 1)]));
    }

    #[test]
    fn a_record_before_every_call_makes_the_calls_unknown() {
        let mut log = EventLog::of_calls(8);
        assert_eq!(log.since(0).calls, Some(vec![]));
        log.push(fault(0));
        log.begin_call(Operation::Free);
        assert_eq!(log.since(0).calls, None);
    }
}
