//! A log of unified-memory records that several observers read, each from a position of its own.

use std::collections::VecDeque;

use crate::{Counters, MemoryEvent};

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

    /// Adds a record. The oldest one goes if there is no room.
    pub fn push(&mut self, event: MemoryEvent) {
        self.counters.count(&event);
        self.end = self.end.saturating_add(1);
        if self.capacity == 0 {
            return;
        }
        if self.kept.len() == self.capacity {
            self.kept.pop_front();
            self.pushed_out = self.pushed_out.saturating_add(1);
        }
        self.kept.push_back(event);
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
        EventsSince {
            counters: self.counters,
            events: self.kept.iter().skip(skipped).copied().collect(),
            lost: from.saturating_sub(position),
            position: self.end,
        }
    }

    /// The records that are kept, which leave the log. They count as lost for observers that
    /// began before them.
    pub fn take(&mut self) -> Vec<MemoryEvent> {
        self.pushed_out = 0;
        std::mem::take(&mut self.kept).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FaultAccess;

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
}
