//! The meter: it counts the inputs of one call at a time.

use pagewise_hal::Processor;

use super::account::{self, Account, Input, whole};
use super::call::Call;
use super::calls;
use super::observation::{CostObservation, Observations};
use super::params::CostParams;
use super::resources::MemoryStep;
use super::single::SingleAccesses;
use super::state::{CallHistory, Class};
use crate::clock;
use crate::paging::{Covered, HeldBlocks, Walk, Work};

/// Measures calls, one at a time.
#[derive(Debug)]
pub(crate) struct Meter {
    params: CostParams,
    /// Times of calls that follow from the figures alone.
    single: SingleAccesses,
    further_devices: u64,
    history: CallHistory,
    account: Account,
    /// Inputs of the current call and the calls before it, if a caller wants to know them.
    observations: Option<Observations>,
}

impl Meter {
    pub(crate) fn new(params: CostParams) -> Self {
        Self {
            params,
            single: SingleAccesses::new(&params),
            further_devices: 0,
            history: CallHistory::default(),
            account: Account::default(),
            observations: None,
        }
    }

    /// The same on a machine with so many devices.
    pub(crate) fn with_devices(self, devices: u32) -> Self {
        Self { further_devices: u64::from(devices.saturating_sub(1)), ..self }
    }

    /// Keeps what calls take their time for, from the next call on.
    pub(crate) fn observe(&mut self) {
        self.observations.get_or_insert_default();
    }

    /// Whether the costs of calls are observed.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.observations.is_some()
    }

    /// The calls since this was last asked; none unless [`observe`](Self::observe) was called.
    pub(crate) fn take_observations(&mut self) -> Vec<CostObservation> {
        self.observations.as_mut().map(Observations::take).unwrap_or_default()
    }

    /// A call begins.
    #[inline]
    pub(crate) fn begin(&mut self, call: Call, now_ns: u64) {
        let warmth = self.history.warmth(call.class(false), now_ns);
        self.account.begin(call, warmth);
        self.account.continues = self.history.continues(Class::Query);
        self.account.recycled_pages = self.history.recycled_pages();
        if let Some(observations) = &mut self.observations {
            observations.begin(&self.account);
        }
    }

    /// A call that is an access program of one access and one thread, and nothing else: what
    /// [`begin`](Self::begin), [`walks`](Self::walks), [`walked`](Self::walked), [`end`](Self::end)
    /// and [`remember`](Self::remember) come to, for a program without a fault, and without the
    /// first write of the host to a page. It takes `pace_ns` if that is given. Returns the time of
    /// its end. Calls are not observed.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        call: Call,
        walk: &Walk,
        covered: Covered,
        (start_ns, pace_ns): (u64, Option<u64>),
    ) -> u64 {
        debug_assert!(!self.is_observed());
        let class = call.class(false);
        if !self.history.is_in_row(class, start_ns) {
            return self.walk_after_pause(call, walk, covered, (start_ns, pace_ns));
        }
        let taken_ns = pace_ns
            .unwrap_or_else(|| self.single.ns(class == Class::DeviceTouch, walk.access, covered));
        let end_ns = clock::after(start_ns, taken_ns);
        self.history.done_in_row(class, end_ns);
        end_ns
    }

    #[inline(never)]
    fn walk_after_pause(
        &mut self,
        call: Call,
        walk: &Walk,
        covered: Covered,
        (start_ns, pace_ns): (u64, Option<u64>),
    ) -> u64 {
        let class = call.class(false);
        let warmth = self.history.warmth(class, start_ns);
        let taken_ns = pace_ns
            .unwrap_or_else(|| whole(account::of_walk(&self.params, call, warmth, walk, covered)));
        let end_ns = clock::after(start_ns, taken_ns);
        self.history.done(class, warmth, end_ns);
        end_ns
    }

    /// It ends, `now_ns` being its start and what its faults took. Returns the time of its end.
    #[inline]
    pub(crate) fn end(&mut self, start_ns: u64, now_ns: u64, refused: bool) -> u64 {
        let account = &mut self.account;
        account.refused = refused;
        account.warmth = self.history.warmth(account.class(), start_ns);
        if let Some(observations) = &mut self.observations {
            observations.end(account);
        }
        clock::after(now_ns, whole(account.rest(&self.params)))
    }

    /// Remembers the call, which ended at `end_ns`.
    #[inline]
    pub(crate) fn remember(&mut self, end_ns: u64) {
        self.history.set_recycled_pages(self.account.recycled_pages);
        if self.account.call.is_remembered() {
            self.history.done(self.account.class(), self.account.warmth, end_ns);
        }
    }

    /// Calls of one kind that do nothing but ask, one after another from `now_ns` on. Returns the
    /// time of the end of the last.
    pub(crate) fn alike(&mut self, call: Call, refused: bool, times: u64, now_ns: u64) -> u64 {
        // The second call follows one of its kind, and so do all after it.
        let singly = if self.is_observed() { times } else { times.min(2) };
        let mut now_ns = now_ns;
        for _ in 0..singly {
            self.begin(call, now_ns);
            now_ns = self.end(now_ns, now_ns, refused);
            self.remember(now_ns);
        }
        let others = times.saturating_sub(singly);
        if others > 0 {
            let each_ns = whole(self.account.rest(&self.params));
            now_ns = clock::after(now_ns, each_ns.saturating_mul(others));
            self.history.repeated(self.account.class(), others, now_ns);
        }
        now_ns
    }

    /// A sleep of this length; returns how long it really takes.
    pub(crate) fn sleep(&mut self, duration_ns: u64) -> u64 {
        self.history.slept(duration_ns);
        if let Some(observations) = &mut self.observations {
            observations.slept(duration_ns);
        }
        // A sleep never ends early.
        whole(calls::sleep(&self.params.fixed, duration_ns)).max(duration_ns)
    }

    // ---- inputs of a call ---------------------------------------------------------------------

    /// The engine did something; returns what it took, if that is charged at once.
    pub(crate) fn work(&mut self, work: &Work) -> u64 {
        // Happens most often and is the largest: not copied unless it is kept.
        if self.observations.is_some() {
            return self.count(&Input::Work(*work));
        }
        whole(self.account.work(&self.params, work))
    }

    /// The program's access with this number faults: the time until the driver looks at it.
    #[inline]
    pub(crate) fn fault_latency_ns(&mut self, by: Processor, access: u64) -> u64 {
        if self.observations.is_some() {
            return self.count(&Input::Fault { by, access });
        }
        whole(self.account.fault_latency(&self.params, by, access))
    }

    /// An access program is about to begin: what it does between faults matters.
    #[inline]
    pub(crate) fn walks(&mut self, walk: &Walk) {
        if let Some(observations) = &mut self.observations {
            observations.input(&Input::Walks(*walk));
        }
        self.account.walks(&self.params, walk);
    }

    /// An access program went over this.
    #[inline]
    pub(crate) fn walked(&mut self, walk: &Walk, covered: Covered) {
        if let Some(observations) = &mut self.observations {
            observations.input(&Input::Walked(*walk, covered));
        }
        self.account.walked(&self.params, walk, covered);
    }

    pub(crate) fn range_made(&mut self) {
        self.count(&Input::RangeMade { further_devices: self.further_devices });
    }

    pub(crate) fn range_gone(&mut self, held: &HeldBlocks) {
        self.count(&Input::RangeGone(*held));
    }

    /// Memory appeared or went that the engine knows nothing of.
    pub(crate) fn memory(&mut self, step: MemoryStep) {
        self.count(&Input::Memory(step));
    }

    fn count(&mut self, input: &Input) -> u64 {
        if let Some(observations) = &mut self.observations {
            observations.input(input);
        }
        whole(self.account.count(&self.params, input))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::GpuProfile;

    const READS: [Call; 2] = [Call::RangeAttribute, Call::PointerAttribute];

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Reads { call: Call, refused: bool, times: u64 },
        Sleep(u64),
        Pause(u64),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..2usize, any::<bool>(), 1..9u64).prop_map(|(call, refused, times)| {
                Step::Reads { call: READS[call], refused, times }
            }),
            1 => (1..3_000_000u64).prop_map(Step::Sleep),
            1 => prop_oneof![1..90_000_000u64, Just(clock::END_NS)].prop_map(Step::Pause),
        ]
    }

    proptest! {
        #[test]
        fn calls_alike_take_and_leave_what_each_by_itself_does(
            steps in prop::collection::vec(steps(), 1..20),
        ) {
            let params = GpuProfile::h200().cost;
            let [mut together, mut singly] = [(); 2].map(|()| Meter::new(params));
            let mut now_ns = 0;
            for step in steps {
                match step {
                    Step::Reads { call, refused, times } => {
                        let end_ns = together.alike(call, refused, times, now_ns);
                        for _ in 0..times {
                            now_ns = singly.alike(call, refused, 1, now_ns);
                        }
                        prop_assert_eq!(end_ns, now_ns);
                    }
                    Step::Sleep(ns) => {
                        now_ns = clock::after(now_ns, together.sleep(ns));
                        singly.sleep(ns);
                    }
                    Step::Pause(ns) => now_ns = clock::after(now_ns, ns),
                }
                let left = [&together, &singly].map(|meter| format!("{:?}", meter.history));
                prop_assert_eq!(&left[0], &left[1]);
            }
        }
    }
}
