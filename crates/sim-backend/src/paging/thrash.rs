//! Thrashing: pages that go back and forth are held where they are for a while.
//!
//! Arrivals and revocations are *noted*; a fault asks for a *hint*. Per-page state exists only
//! once two processors met in a block within the window. Times in nanoseconds, rounded down to the
//! resolution of the driver's stamps. Sources: uvm_policy 4 (the step numbers in comments are its),
//! rules_paging 2 rule 7 and detail 3.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use pagewise_hal::{MemoryEvent, PAGE_BYTES};

use super::block::Block;
use super::context::{Context, hal};
use super::mask::PageMask;
use super::params::{LapseVote, ThrashingParams};
use super::processor::{ProcId, ProcSet};

/// Counts of events stop here.
const EVENTS_MAX: u8 = 7;

/// What a fault is to do about thrashing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hint {
    /// Nothing.
    None,
    /// The page goes to, or stays on, this processor, and others map it there.
    Pin(ProcId),
    /// The processor waits.
    Throttle {
        /// Until this time.
        until_ns: u64,
    },
}

/// What happened to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It arrived on a processor.
    Migration,
    /// A processor lost permissions.
    Revocation,
}

/// A pinned page, in the queue of pages to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pin {
    pub(super) deadline_ns: u64,
    /// Absolute page number.
    pub(super) page: u64,
}

/// The window in which events count, with the votes to change it. One per address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LapseWindow {
    lapse_ns: u64,
    vote: i32,
}

impl LapseWindow {
    pub(super) fn new(params: &ThrashingParams) -> Self {
        Self { lapse_ns: params.lapse_ns, vote: 0 }
    }

    /// One vote (step 4): down if the page thrashes within the window, up if it does not.
    fn cast(&mut self, params: &ThrashingParams, gap_ns: u64) {
        let threshold = i32::from(params.vote_threshold);
        self.vote += if gap_ns < self.lapse_ns { -1 } else { 1 };
        let step = (self.lapse_ns / 8).min(params.lapse_max_ns / 10);
        let grow = match params.lapse_vote {
            LapseVote::Constant => return,
            LapseVote::Intended => self.vote >= threshold,
            // A negative vote is compared as a huge unsigned number.
            LapseVote::Compiled => self.vote < 0 || self.vote >= threshold,
        };
        if grow && self.lapse_ns < params.lapse_max_ns {
            self.lapse_ns = (self.lapse_ns + step).min(params.lapse_max_ns);
            self.vote = if self.vote < 0 { 0 } else { threshold / 2 };
        } else if params.lapse_vote == LapseVote::Intended && self.vote <= -threshold {
            self.lapse_ns = self.lapse_ns.saturating_sub(step).max(params.lapse_min_ns);
            self.vote = -threshold / 2;
        }
    }
}

/// What is known about one page.
#[derive(Debug, Clone, Copy, Default)]
struct PageState {
    processors: ProcSet,
    last_ns: Option<u64>,
    events: u8,
    revoked: bool,
    throttled: ProcSet,
    window_end_ns: u64,
    exempt: Option<ProcId>,
    throttles: u8,
    pinned: Option<(ProcId, u64)>,
}

/// What is known about the pages of one block.
#[derive(Debug, Clone, Default)]
pub(crate) struct Thrashing {
    pages: BTreeMap<u16, PageState>,
    marked: PageMask,
    last_ns: Option<u64>,
    resets: u8,
    ever_pinned: bool,
}

impl Thrashing {
    /// The pages found to thrash.
    pub(crate) fn marked(&self) -> PageMask {
        self.marked
    }

    fn forget(&mut self, page: usize) {
        self.pages.remove(&(page as u16));
        self.marked = self.marked.minus(PageMask::single(page));
    }
}

/// A time in the resolution of the driver's stamps.
fn stamp(params: &ThrashingParams, ns: u64) -> u64 {
    ns - ns % params.stamp_ns.max(1)
}

/// Notes that a run of pages arrived on `id`, or that `id` lost permissions on it.
pub(super) fn note(
    context: &mut Context<'_>,
    block: &mut Block,
    run: Range<usize>,
    id: ProcId,
    kind: Kind,
) {
    let params = &context.params.thrashing;
    if !params.enable {
        return;
    }
    let now_ns = stamp(params, context.now_ns);
    let lapse_ns = context.lapse.lapse_ns;
    let last = block.note_event(id, now_ns);
    if block.thrashing().is_none() {
        let meets =
            last.is_some_and(|(other, at)| other != id && now_ns.saturating_sub(at) <= lapse_ns);
        if !meets {
            return;
        }
        block.set_thrashing(Some(Thrashing::default()));
    }
    let Some(thrashing) = block.thrashing_mut() else { return };
    let mut found = Vec::new();
    for page in run {
        let state = thrashing.pages.entry(page as u16).or_default();
        state.processors.insert(id);
        let Some(before) = state.last_ns.replace(now_ns) else { continue };
        if now_ns.saturating_sub(before) > lapse_ns {
            if state.events >= params.threshold && state.pinned.is_none() {
                thrashing.forget(page);
            }
            continue;
        }
        state.revoked |= kind == Kind::Revocation;
        let events = (state.events + 1).min(EVENTS_MAX);
        let is_new = state.events < params.threshold && events >= params.threshold;
        state.events = events;
        if events >= params.threshold {
            thrashing.last_ns = Some(now_ns);
        }
        if is_new {
            thrashing.marked.insert(page);
            found.push((page, state.processors));
        }
    }
    for (page, processors) in found {
        context.emit(MemoryEvent::Thrashing {
            address: block.address(page),
            bytes: PAGE_BYTES,
            gpus: processors.gpu_bits(),
            host: processors.contains(ProcId::HOST),
        });
    }
}

/// Forgets what is known about pages that an explicit migration, an advice or a duplication
/// copied: only about those marked as thrashing (rules_paging 2, detail 3).
pub(super) fn forget_marked(context: &mut Context<'_>, block: &mut Block, run: &Range<usize>) {
    if block.thrashing().is_none() {
        return;
    }
    for page in (PageMask::range(run.clone()) & block.thrashing_pages()).pages() {
        release(context, block, page);
    }
}

/// Releases the page if it is pinned, and forgets what is known about it.
fn release(context: &mut Context<'_>, block: &mut Block, page: usize) {
    let Some(thrashing) = block.thrashing_mut() else { return };
    let was_pinned = thrashing.pages.get(&(page as u16)).is_some_and(|s| s.pinned.is_some());
    thrashing.forget(page);
    if was_pinned {
        let holders = block.residents_of(page);
        for id in block.mappers().iter() {
            if !holders.contains(id) && !context.policy.accessed_by.contains(id) {
                context.unmap(block, id, PageMask::single(page));
            }
        }
    }
}

/// Releases a page whose pin ran out, unless it was pinned again since.
pub(super) fn release_expired(context: &mut Context<'_>, block: &mut Block, pin: Pin) {
    let page = (pin.page - block.first_page()) as usize;
    let state = block.thrashing().and_then(|t| t.pages.get(&(page as u16)));
    if state.is_some_and(|s| s.pinned.is_some_and(|(_, at)| at == pin.deadline_ns)) {
        release(context, block, page);
    }
}

/// The pins that run out by `now_ns`, taken off the queue.
pub(super) fn expired(
    pins: &mut VecDeque<Pin>,
    params: &ThrashingParams,
    now_ns: u64,
) -> Option<Pin> {
    let first = pins.front()?;
    if first.deadline_ns > now_ns.saturating_add(params.unpin_slack_ns) {
        return None;
    }
    pins.pop_front()
}

/// What a fault of `by` on a page is to do.
pub(super) fn hint(context: &mut Context<'_>, block: &mut Block, page: usize, by: ProcId) -> Hint {
    let params = &context.params.thrashing;
    let Some(thrashing) = block.thrashing_mut() else { return Hint::None };
    let now_ns = stamp(params, context.now_ns);
    // 1
    if thrashing.last_ns.is_some_and(|at| now_ns.saturating_sub(at) > params.epoch_ns)
        && !thrashing.ever_pinned
        && thrashing.resets < params.max_resets
    {
        *thrashing = Thrashing { resets: thrashing.resets + 1, ..Thrashing::default() };
        return Hint::None;
    }
    let Some(mut state) = thrashing.pages.get(&(page as u16)).copied() else { return Hint::None };
    if state.events < params.threshold {
        return Hint::None; // 2
    }
    // 3
    if state.throttled.contains(by) {
        if now_ns < state.window_end_ns && state.exempt != Some(by) {
            return Hint::Throttle { until_ns: state.window_end_ns };
        }
        state.throttled.remove(by);
    }
    let gap_ns = now_ns.saturating_sub(state.last_ns.unwrap_or(0));
    if params.lapse_vote != LapseVote::Constant {
        context.lapse.cast(params, gap_ns); // 4
    }
    let hint = if gap_ns > context.lapse.lapse_ns && state.pinned.is_none() {
        Hint::None // 5
    } else {
        open_window(&mut state, params, now_ns, by); // 6
        decide(context, block, &mut state, page, by)
    };
    settle(context, block, &mut state, hint, page, by);
    if let Some(thrashing) = block.thrashing_mut() {
        thrashing.ever_pinned |= matches!(hint, Hint::Pin(_));
        thrashing.pages.insert(page as u16, state);
    }
    hint
}

/// Step 6: whose turn it is.
fn open_window(state: &mut PageState, params: &ThrashingParams, now_ns: u64, by: ProcId) {
    state.processors.insert(by);
    if now_ns > state.window_end_ns {
        state.window_end_ns = now_ns + params.nap_ns;
        state.exempt = if state.exempt == Some(by) { None } else { Some(by) };
    } else if state.exempt.is_none() {
        state.exempt = Some(by);
    }
}

/// Steps 7 and 8.
fn decide(
    context: &Context<'_>,
    block: &Block,
    state: &mut PageState,
    page: usize,
    by: ProcId,
) -> Hint {
    let relations = context.relations;
    let throttle = Hint::Throttle { until_ns: state.window_end_ns };
    let exempt = state.exempt == Some(by);
    let pinned = state.pinned.map(|(at, _)| at);
    if pinned.is_some() && state.revoked && !exempt {
        return throttle; // 7
    }
    let common = relations.common_access(state.processors);
    let preferred = context.policy.preferred;
    if let Some(home) = preferred.filter(|home| common.contains(*home)) {
        return Hint::Pin(home); // 8a
    }
    let tired = state.throttles >= context.params.thrashing.pin_threshold;
    if preferred.is_none_or(|home| !state.processors.contains(home))
        && let Some(current) = pinned.or_else(|| relations.closest(by, block.residents_of(page)))
        && state.processors.is_subset(relations.fast_link_to(current))
        && state.processors.is_subset(relations.native_atomics_on(current))
    {
        // 8b
        return match (current.is_host() && common.contains(by), by.is_host()) {
            (false, _) => Hint::Pin(current),
            (true, false) => Hint::Pin(by),
            (true, true) => Hint::None,
        };
    }
    if preferred == Some(by) {
        // 8c
        return match pinned {
            Some(at) if at == by || exempt => Hint::Pin(by),
            Some(_) => throttle,
            None if !exempt => throttle,
            None if tired => Hint::Pin(by),
            None => Hint::None,
        };
    }
    if let Some(at) = pinned {
        // 8d
        return match (exempt, relations.can_access(by, at)) {
            (true, _) if common.contains(by) => Hint::Pin(by),
            (true, _) => Hint::Pin(relations.closest(by, common).unwrap_or(by)),
            (false, true) => Hint::Pin(at),
            (false, false) => throttle,
        };
    }
    // 8e
    match (exempt, tired) {
        (false, _) => throttle,
        (true, true) => Hint::Pin(by),
        (true, false) => Hint::None,
    }
}

/// Step 9: what the hint leaves behind.
fn settle(
    context: &mut Context<'_>,
    block: &Block,
    state: &mut PageState,
    hint: Hint,
    page: usize,
    by: ProcId,
) {
    match hint {
        Hint::Throttle { .. } => {
            if !state.throttled.contains(by) && state.pinned.is_none() {
                state.throttles = state.throttles.saturating_add(1);
            }
            state.throttled.insert(by);
        }
        Hint::Pin(at) => {
            state.throttled = ProcSet::EMPTY;
            state.throttles = 0;
            let pin_ns = context.params.thrashing.pin_ns;
            let deadline_ns = if pin_ns == 0 { u64::MAX } else { context.now_ns + pin_ns };
            state.pinned = Some((at, deadline_ns));
            if pin_ns != 0 {
                let page = block.first_page() + page as u64;
                context.pins.push_back(Pin { deadline_ns, page });
            }
        }
        Hint::None => {}
    }
}

/// The record of a throttle that ended.
pub(super) fn report_throttle(
    context: &mut Context<'_>,
    block: &Block,
    page: usize,
    by: ProcId,
    duration_ns: u64,
) {
    let address = block.address(page);
    context.emit(MemoryEvent::Throttling { address, processor: hal(by), duration_ns });
}

#[cfg(test)]
mod tests {
    use super::super::{Access, GpuMemory, Paging, PagingParams, Relations};
    use super::*;
    use pagewise_hal::Processor;

    const HOST: Processor = Processor::HOST;
    const GPU0: Processor = Processor::device(0);
    const US: u64 = 1000;

    fn paging() -> Paging {
        paging_with(PagingParams::default())
    }

    fn paging_with(params: PagingParams) -> Paging {
        let gpus = [GpuMemory { capacity_bytes: 1 << 30 }];
        let mut paging = Paging::new(params, &gpus, Relations::pcie_with_nvlink(1));
        paging.create_range(0, 512);
        paging
    }

    /// Host and GPU write page 0 in turn, `gap_ns` apart; returns the records and the time after.
    fn ping_pong(paging: &mut Paging, turns: usize, gap_ns: u64) -> (Vec<MemoryEvent>, u64) {
        let mut events = Vec::new();
        let mut now_ns = 10_000 * US;
        for turn in 0..turns {
            let by = if turn % 2 == 0 { HOST } else { GPU0 };
            now_ns = paging.touch(by, 0, Access::Write, now_ns, &mut events).now_ns + gap_ns;
        }
        (events, now_ns)
    }

    fn found(events: &[MemoryEvent]) -> bool {
        events.iter().any(|event| matches!(event, MemoryEvent::Thrashing { .. }))
    }

    fn throttled(events: &[MemoryEvent]) -> usize {
        let is = |event: &&MemoryEvent| matches!(event, MemoryEvent::Throttling { .. });
        events.iter().filter(is).count()
    }

    #[test]
    fn moves_within_the_window_count_and_slower_ones_do_not() {
        assert!(found(&ping_pong(&mut paging(), 8, 100 * US).0));
        assert!(!found(&ping_pong(&mut paging(), 30, 600 * US).0));
    }

    #[test]
    fn one_processor_alone_never_thrashes() {
        let mut paging = paging();
        let mut events = Vec::new();
        for turn in 0..20 {
            let now_ns = turn * 100 * US;
            paging.touch(GPU0, 0, Access::Write, now_ns, &mut events);
            paging.discard(0..512, super::super::Discard::Eager, now_ns, &mut events);
        }
        assert!(!found(&events));
    }

    #[test]
    fn with_the_default_window_every_wait_ends_the_burst_so_nothing_is_pinned() {
        // Who waits to the end of a 500 us nap arrives more than 500 us after the last arrival.
        let (events, _) = ping_pong(&mut paging(), 200, 50 * US);
        assert!(throttled(&events) > 10);
        assert!(!events.iter().any(|event| matches!(event, MemoryEvent::RemoteMap { .. })));
    }

    #[test]
    fn with_a_wider_window_a_page_is_throttled_then_pinned_to_the_host_then_released() {
        let thrashing = ThrashingParams { lapse_ns: 1000 * US, ..ThrashingParams::default() };
        let mut paging = paging_with(PagingParams { thrashing, ..PagingParams::default() });
        let (events, now_ns) = ping_pong(&mut paging, 200, 50 * US);
        assert!(throttled(&events) >= 9);
        assert_eq!(paging.resident_on(0), [HOST]);
        assert!(paging.mapping(0, GPU0).is_some() && paging.mapping(0, HOST).is_some());
        paging.advance(now_ns + 200_000 * US, &mut Vec::new());
        assert_eq!(paging.mapping(0, GPU0), None, "the pin ran out");
        assert!(paging.mapping(0, HOST).is_some());
    }

    #[test]
    fn a_migration_ends_the_thrashing_of_its_pages() {
        let mut paging = paging();
        let (events, now_ns) = ping_pong(&mut paging, 6, 100 * US);
        assert!(found(&events));
        for to in [HOST, GPU0] {
            paging.migrate(0..512, to, now_ns, &mut Vec::new());
        }
        let mut events = Vec::new();
        paging.touch(HOST, 0, Access::Write, now_ns, &mut events);
        assert_eq!(throttled(&events), 0);
    }

    #[test]
    fn the_compiled_vote_grows_the_window_to_half_a_second_in_59_evaluations() {
        // uvm_policy 4, hint step 4.
        let vote = |kind| {
            let params = ThrashingParams { lapse_vote: kind, ..ThrashingParams::default() };
            let mut window = LapseWindow::new(&params);
            (0..59).for_each(|_| window.cast(&params, 0));
            window.lapse_ns
        };
        assert!(vote(LapseVote::Compiled) > 490_000_000);
        assert!(vote(LapseVote::Intended) < 500_000);
        assert_eq!(vote(LapseVote::Constant), 500_000);
    }
}
