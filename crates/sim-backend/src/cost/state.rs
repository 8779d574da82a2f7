//! The state between calls that costs depend on: the last call of each class, and sleeps.

use super::params::WarmthCosts;

/// Calls that keep each other warm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Alloc,
    AllocPacked,
    Free,
    Query,
    Advice,
    Prefetch,
    Discard,
    HostTouch,
    DeviceTouch,
    Pool,
    Other,
}

const CLASSES: usize = Class::Other as usize + 1;

/// A pause after which calls no longer follow each other.
const ROW_NS: u64 = 30_000_000;

/// The state that a call finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Warmth {
    /// The call before was a sleep.
    AfterSleep {
        /// Calls of other classes since the last one of this class.
        others: u64,
        /// Whether the sleep was longer than 1 ms.
        long: bool,
    },
    /// No call of this class was made before, or none since a sleep.
    Cold {
        /// Whether it is the first call of the class at all.
        first: bool,
    },
    /// Anything else.
    Warm {
        /// Since the last call of the class.
        pause_ns: u64,
        /// How many calls of the class were made in a row before this one.
        row: u64,
    },
}

impl Default for Warmth {
    fn default() -> Self {
        Self::Cold { first: true }
    }
}

impl Warmth {
    /// A call that follows one of its class without a pause: its place in the row takes no time.
    pub(super) const IN_ROW: Self = Self::Warm { pause_ns: 0, row: 1 };

    /// Whether the machine idled or has not done the like yet.
    #[inline]
    pub(super) fn is_cold(self) -> bool {
        !matches!(self, Self::Warm { .. })
    }

    /// A share that only a call right after a sleep has.
    #[inline]
    pub(super) fn if_after_sleep(self, share: f64) -> f64 {
        if matches!(self, Self::AfterSleep { .. }) { share } else { 0.0 }
    }

    /// Whether there was a sleep since the last call of the class.
    pub(super) fn has_slept(self) -> bool {
        matches!(self, Self::AfterSleep { .. } | Self::Cold { first: false })
    }

    /// Its share of a call's time.
    #[inline]
    pub(super) fn ns(self, costs: &WarmthCosts) -> f64 {
        match self {
            Self::AfterSleep { others, long } => {
                let long = if long { costs.after_long_sleep } else { 0.0 };
                costs.after_sleep[others.min(2) as usize] + long
            }
            Self::Cold { first: true } => costs.first,
            Self::Cold { first: false } => costs.cold,
            // What the figures below come to.
            Self::Warm { pause_ns: 0, .. } => 0.0,
            Self::Warm { pause_ns, row } => {
                let share = |of_ns: f64| (pause_ns as f64 / of_ns).min(1.0);
                costs.paused * share(200e3) / row.max(1) as f64
                    + costs.forgotten * share(100e6).sqrt()
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Last {
    end_ns: u64,
    /// The number of the call among all but sleeps.
    number: u64,
    /// Sleeps before it.
    sleeps: u64,
    row: u64,
}

/// The calls so far, as far as the time of the next one depends on them.
#[derive(Debug, Default)]
pub(super) struct CallHistory {
    last: [Option<Last>; CLASSES],
    calls: u64,
    sleeps: u64,
    /// Whether the sleep was long, if the call before was one.
    slept: Option<bool>,
    before: Option<Class>,
    /// Host pages that frees gave back and that no allocation has got since.
    recycled_pages: u64,
}

impl CallHistory {
    /// The state that a call finds if it begins now.
    #[inline]
    pub(super) fn warmth(&self, class: Class, now_ns: u64) -> Warmth {
        let last = self.last[class as usize];
        match (self.slept, last) {
            (Some(long), last) => {
                let since = |last: Last| self.calls.saturating_sub(last.number).saturating_sub(1);
                let others = last.map_or(u64::MAX, since);
                Warmth::AfterSleep { others, long }
            }
            (None, None) => Warmth::Cold { first: true },
            (None, Some(last)) if last.sleeps < self.sleeps => Warmth::Cold { first: false },
            (None, Some(last)) => {
                let pause_ns = now_ns.saturating_sub(last.end_ns);
                Warmth::Warm { pause_ns, row: if pause_ns > ROW_NS { 1 } else { last.row } }
            }
        }
    }

    /// Whether a call that begins now follows one of its class without a pause or a sleep.
    #[inline]
    pub(super) fn is_in_row(&self, class: Class, now_ns: u64) -> bool {
        let follows = |last: &Last| last.end_ns == now_ns && last.sleeps == self.sleeps;
        self.slept.is_none() && self.last[class as usize].as_ref().is_some_and(follows)
    }

    /// A call that [is in a row](Self::is_in_row) has ended: what [`done`](Self::done) comes to, but
    /// for reads of attributes.
    #[inline]
    pub(super) fn done_in_row(&mut self, class: Class, end_ns: u64) {
        debug_assert!(class != Class::Query);
        if let Some(last) = &mut self.last[class as usize] {
            last.end_ns = end_ns;
            last.number = self.calls;
            last.row = last.row.saturating_add(1);
        }
        self.calls = self.calls.saturating_add(1);
        self.before = Some(class);
    }

    /// Whether the call before was of this class.
    #[inline]
    pub(super) fn continues(&self, class: Class) -> bool {
        self.before == Some(class)
    }

    /// A call that found `warmth` has ended.
    #[inline]
    pub(super) fn done(&mut self, class: Class, warmth: Warmth, now_ns: u64) {
        let row = match warmth {
            Warmth::Warm { pause_ns, row } if pause_ns <= ROW_NS => row.saturating_add(1),
            _ => 1,
        };
        // The reads of one query count as one call.
        let continued = class == Class::Query && self.continues(class);
        let number = if continued { self.calls.saturating_sub(1) } else { self.calls };
        let sleeps = self.sleeps;
        self.last[class as usize] = Some(Last { end_ns: now_ns, number, sleeps, row });
        self.calls = number.saturating_add(1);
        self.slept = None;
        self.before = Some(class);
    }

    /// The last call, one that is remembered, was made so many times more without a pause, and the
    /// last of them has ended.
    pub(super) fn repeated(&mut self, class: Class, times: u64, now_ns: u64) {
        // The reads of one query count as one call.
        let counted = if class == Class::Query { 0 } else { times };
        if let Some(last) = &mut self.last[class as usize] {
            last.end_ns = now_ns;
            last.number = last.number.saturating_add(counted);
            last.row = last.row.saturating_add(times);
        }
        self.calls = self.calls.saturating_add(counted);
    }

    #[inline]
    pub(super) fn recycled_pages(&self) -> u64 {
        self.recycled_pages
    }

    #[inline]
    pub(super) fn set_recycled_pages(&mut self, pages: u64) {
        self.recycled_pages = pages;
    }

    /// A sleep has ended.
    pub(super) fn slept(&mut self, duration_ns: u64) {
        self.slept = Some(duration_ns > 1_000_000);
        self.sleeps = self.sleeps.saturating_add(1);
        self.before = None;
        self.recycled_pages = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(calls: &[Class]) -> CallHistory {
        let mut state = CallHistory::default();
        for &class in calls {
            let warmth = state.warmth(class, 0);
            state.done(class, warmth, 0);
        }
        state
    }

    #[test]
    fn the_first_call_is_cold_and_the_next_of_its_class_warm() {
        let state = after(&[Class::Free]);
        assert_eq!(state.warmth(Class::Advice, 5), Warmth::Cold { first: true });
        assert_eq!(state.warmth(Class::Free, 5), Warmth::Warm { pause_ns: 5, row: 1 });
    }

    #[test]
    fn after_a_sleep_it_counts_how_many_other_calls_came_since() {
        let mut state = after(&[Class::Free, Class::Advice]);
        state.slept(2_000_000);
        let others = |state: &CallHistory, class| match state.warmth(class, 0) {
            Warmth::AfterSleep { others, long: true } => others,
            other => panic!("{other:?}"),
        };
        assert_eq!(others(&state, Class::Advice), 0);
        assert_eq!(others(&state, Class::Free), 1);
        let warmth = state.warmth(Class::Advice, 0);
        state.done(Class::Advice, warmth, 0);
        assert_eq!(state.warmth(Class::Free, 0), Warmth::Cold { first: false });
    }

    #[test]
    fn reads_that_follow_one_another_count_as_one_call() {
        let mut state = after(&[Class::Free, Class::Query, Class::Query, Class::Query]);
        state.slept(1);
        let warmth = state.warmth(Class::Free, 0);
        assert_eq!(warmth, Warmth::AfterSleep { others: 1, long: false });
    }

    #[test]
    fn a_row_lasts_until_a_pause_of_more_than_30_ms() {
        let row = |pause_ns: u64| {
            let mut state = CallHistory::default();
            let mut now_ns = 0;
            for _ in 0..3 {
                now_ns += pause_ns;
                let warmth = state.warmth(Class::Free, now_ns);
                state.done(Class::Free, warmth, now_ns);
            }
            state.warmth(Class::Free, now_ns)
        };
        assert_eq!(row(30_000_000), Warmth::Warm { pause_ns: 0, row: 3 });
        assert_eq!(row(30_000_001), Warmth::Warm { pause_ns: 0, row: 1 });
        let state = after(&[Class::Free, Class::Free]);
        let after_pause = |pause_ns| state.warmth(Class::Free, pause_ns);
        let exactly = Warmth::Warm { pause_ns: 30_000_000, row: 2 };
        assert_eq!(after_pause(30_000_000), exactly);
        let longer = Warmth::Warm { pause_ns: 30_000_001, row: 1 };
        assert_eq!(after_pause(30_000_001), longer);
    }

    #[test]
    fn a_sleep_of_more_than_1_ms_is_long() {
        for (duration_ns, is_long) in [(1_000_000, false), (1_000_001, true)] {
            let mut state = after(&[Class::Free]);
            state.slept(duration_ns);
            let expected = Warmth::AfterSleep { others: 0, long: is_long };
            assert_eq!(state.warmth(Class::Free, 0), expected);
        }
    }

    #[test]
    fn what_was_never_called_is_as_cold_after_a_sleep_as_can_be() {
        let mut state = after(&[Class::Free]);
        state.slept(1);
        let expected = Warmth::AfterSleep { others: u64::MAX, long: false };
        assert_eq!(state.warmth(Class::Advice, 0), expected);
    }

    #[test]
    fn a_sleep_ends_a_series_of_reads_and_takes_what_frees_gave_back() {
        let mut state = after(&[Class::Query]);
        state.set_recycled_pages(7);
        assert!(state.continues(Class::Query) && !state.continues(Class::Free));
        assert_eq!(state.recycled_pages(), 7);
        state.slept(1);
        assert!(!state.continues(Class::Query));
        assert_eq!(state.recycled_pages(), 0);
    }
}
