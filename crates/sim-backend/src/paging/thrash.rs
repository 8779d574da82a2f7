//! Thrashing: pages that go back and forth are held where they are for a while.
//!
//! Arrivals and revocations are *noted*; a fault asks for a *hint*. Per-page state exists only
//! once two processors met in a block within the window, and again after each fresh start. Times
//! are in nanoseconds; those that a page keeps are stamps, rounded down as the driver's are.
//! PAGING-120 to PAGING-136 are the driver's rules.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "events, resets and votes, which stop at bounds; times are below those of a profile"
)]

use std::ops::Range;

use pagewise_hal::{MemoryEvent, PAGE_BYTES};

use super::block::Block;
use super::context::Context;
use super::mask::PageMask;
use super::params::{LapseVote, ThrashingParams};
use super::processor::{ProcId, ProcSet};

pub(super) mod pages;
pub(super) mod pins;
#[cfg(test)]
mod steps;
#[cfg(test)]
pub(super) mod tests;
pub(super) mod window;

use pages::{PageState, Thrashing};
use pins::Pin;
use window::LapseWindow;

/// Counts of thrashing events stop here.
const EVENTS_MAX: u8 = 7;

/// The hint of thrashing detection to a fault.
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

/// A thrashing event of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThrashingEvent {
    /// It arrived on a processor.
    Migration,
    /// A processor lost permissions.
    Revocation,
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
    event: ThrashingEvent,
) {
    let params = &context.params.thrashing;
    if !params.enable {
        return;
    }
    let now_ns = context.now_ns;
    let lapse_ns = context.lapse.lapse_ns;
    let meets = meets(context.lapse, block, id, now_ns);
    block.note_thrashing_event(id, now_ns);
    let is_watched = block.thrashing().is_some_and(|thrashing| thrashing.pages.is_some());
    if !is_watched && !meets {
        return;
    }
    let thrashing = block.thrashing_or_new();
    let mut found = Vec::new();
    for page in run {
        let state = thrashing.pages.get_or_insert_default().watched(page);
        state.processors.insert(id);
        let Some(before) = state.last_ns.replace(stamp(params, now_ns)) else { continue };
        if now_ns.saturating_sub(before) > lapse_ns {
            if state.events >= params.threshold && state.pinned.is_none() {
                thrashing.reset(page);
            }
            continue;
        }
        state.revoked |= event == ThrashingEvent::Revocation;
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

/// Notes that runs of pages of a block in which no page is watched arrived on `id` together. `false`,
/// and nothing is done, where two processors meet: then pages are watched from now on.
pub(super) fn note_together(context: &Context<'_>, block: &mut Block, id: ProcId) -> bool {
    let (now_ns, enable) = (context.now_ns, context.params.thrashing.enable);
    let meets = enable && meets(context.lapse, block, id, now_ns);
    if enable && !meets {
        block.note_thrashing_event(id, now_ns);
    }
    !meets
}

/// Whether pages of a block arrive on a processor soon after an event of another one.
pub(super) fn meets(lapse: &LapseWindow, block: &Block, id: ProcId, now_ns: u64) -> bool {
    let soon = |at: u64| now_ns.saturating_sub(at) <= lapse.lapse_ns;
    block.last_thrashing_event().is_some_and(|(other, at)| other != id && soon(at))
}

/// Forgets what is known about pages that an explicit migration, an advice or a duplication
/// copied: only about those marked as thrashing (PAGING-136).
pub(super) fn forget_marked(context: &mut Context<'_>, block: &mut Block, run: &Range<usize>) {
    if block.thrashing().is_none() {
        return;
    }
    for page in (PageMask::range(run.clone()) & block.thrashing_pages()).pages() {
        release(context, block, page);
    }
}

/// The processors that access a thrashing page.
pub(super) fn processors(block: &Block, page: usize) -> ProcSet {
    let state = block.thrashing().and_then(|thrashing| thrashing.page(page));
    state.map_or(ProcSet::EMPTY, |state| state.processors)
}

/// Releases the page if it is pinned, and forgets what is known about it.
fn release(context: &mut Context<'_>, block: &mut Block, page: usize) {
    let Some(thrashing) = block.thrashing_mut() else { return };
    let was_pinned = thrashing.page(page).is_some_and(|s| s.pinned.is_some());
    thrashing.reset(page);
    if was_pinned {
        let holders = block.residents_of(page);
        for id in block.mappers().iter() {
            if !holders.contains(id) && !context.policy.accessed_by.contains(id) {
                context.unmap(block, id, PageMask::single(page));
            }
        }
    }
}

/// Releases a page with a pin that ran out, unless it was pinned again since.
pub(super) fn release_expired(context: &mut Context<'_>, block: &mut Block, pin: Pin) {
    let page = (pin.page - block.first_page()) as usize;
    let state = block.thrashing().and_then(|t| t.page(page));
    if state.is_some_and(|s| s.pinned.is_some_and(|(_, at)| at == pin.deadline_ns)) {
        release(context, block, page);
    }
}

/// The hint to a fault of `by` on a page, in the order of PAGING-126.
pub(super) fn hint(context: &mut Context<'_>, block: &mut Block, page: usize, by: ProcId) -> Hint {
    let params = &context.params.thrashing;
    let Some(thrashing) = block.thrashing_mut() else { return Hint::None };
    let now_ns = context.now_ns;
    // A quiet epoch: start afresh (PAGING-124).
    if thrashing.last_ns.is_some_and(|at| now_ns.saturating_sub(at) > params.epoch_ns)
        && !thrashing.ever_pinned
        && thrashing.resets < params.max_resets
    {
        *thrashing = Thrashing { resets: thrashing.resets + 1, ..Thrashing::default() };
        return Hint::None;
    }
    let Some(mut state) = thrashing.page(page).copied() else { return Hint::None };
    if state.events < params.threshold {
        return Hint::None;
    }
    // A throttled processor waits until its window ends.
    if state.throttled.contains(by) {
        if let Some(until_ns) = state.window_end_ns.filter(|end_ns| now_ns < *end_ns)
            && state.exempt != Some(by)
        {
            return Hint::Throttle { until_ns };
        }
        state.end_throttle(by);
    }
    let gap_ns = now_ns.saturating_sub(state.last_ns.unwrap_or(0));
    if params.lapse_vote != LapseVote::Constant {
        context.lapse.cast(params, gap_ns);
    }
    let hint = if gap_ns > context.lapse.lapse_ns && state.pinned.is_none() {
        Hint::None
    } else {
        let until_ns = open_window(&mut state, params, now_ns, by);
        decide(context, block, &state, page, by).unwrap_or(Hint::Throttle { until_ns })
    };
    settle(context, block, &mut state, hint, page, by);
    if let Some(thrashing) = block.thrashing_mut() {
        thrashing.ever_pinned |= matches!(hint, Hint::Pin(_));
        *thrashing.pages.get_or_insert_default().watched(page) = state;
    }
    hint
}

/// Opens a window and says which processor is exempt in it (PAGING-127). Returns its end.
fn open_window(state: &mut PageState, params: &ThrashingParams, now_ns: u64, by: ProcId) -> u64 {
    state.processors.insert(by);
    if let Some(end_ns) = state.window_end_ns.filter(|end_ns| now_ns <= *end_ns) {
        state.exempt.get_or_insert(by);
        return end_ns;
    }
    state.exempt = if state.exempt == Some(by) { None } else { Some(by) };
    *state.window_end_ns.insert(stamp(params, now_ns.saturating_add(params.nap_ns)))
}

/// Chooses the hint (PAGING-128 to PAGING-133). `None`: the processor waits.
fn decide(
    context: &Context<'_>,
    block: &Block,
    state: &PageState,
    page: usize,
    by: ProcId,
) -> Option<Hint> {
    let relations = context.relations;
    let exempt = state.exempt == Some(by);
    let pinned = state.pinned.map(|(at, _)| at);
    if pinned.is_some() && state.revoked && !exempt {
        return None; // PAGING-128
    }
    let common = relations.common_access(state.processors);
    let preferred = context.policy.preferred;
    if let Some(home) = preferred.filter(|home| common.contains(*home)) {
        return Some(Hint::Pin(home)); // PAGING-129
    }
    let tired = state.throttles >= context.params.thrashing.pin_threshold;
    if preferred.is_none_or(|home| !state.processors.contains(home))
        && let Some(current) = pinned.or_else(|| relations.closest(by, block.residents_of(page)))
        && state.processors.is_subset(relations.fast_link_to(current))
        && state.processors.is_subset(relations.native_atomics_on(current))
    {
        // PAGING-130
        return Some(match (current.is_host() && common.contains(by), by.is_host()) {
            (false, _) => Hint::Pin(current),
            (true, false) => Hint::Pin(by),
            (true, true) => Hint::None,
        });
    }
    if preferred == Some(by) {
        // PAGING-131
        return match pinned {
            Some(at) if at == by || exempt => Some(Hint::Pin(by)),
            Some(_) => None,
            None if !exempt => None,
            None if tired => Some(Hint::Pin(by)),
            None => Some(Hint::None),
        };
    }
    if let Some(at) = pinned {
        // PAGING-132
        return match (exempt, relations.can_access(by, at)) {
            (true, _) => Some(Hint::Pin(relations.closest(by, common).unwrap_or(by))),
            (false, true) => Some(Hint::Pin(at)),
            (false, false) => None,
        };
    }
    // PAGING-133
    match (exempt, tired) {
        (false, _) => None,
        (true, true) => Some(Hint::Pin(by)),
        (true, false) => Some(Hint::None),
    }
}

/// Notes the hint: counts a throttle, begins a pin (PAGING-134).
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
            let deadline_ns = match state.pinned {
                Some((_, deadline_ns)) => deadline_ns,
                None => begin_pin(context, state, block.first_page() + page as u64),
            };
            if !block.residents_of(page).contains(at) {
                state.end_throttles();
            }
            state.pinned = Some((at, deadline_ns));
        }
        Hint::None => {}
    }
}

/// Begins the pin of a page: ends what went before, and says when it is released.
fn begin_pin(context: &mut Context<'_>, state: &mut PageState, page: u64) -> u64 {
    state.end_throttles();
    state.throttles = 0;
    match context.params.thrashing.pin_ns {
        0 => u64::MAX,
        pin_ns => {
            let deadline_ns = context.now_ns.saturating_add(pin_ns);
            context.pins.push_back(Pin { deadline_ns, page });
            deadline_ns
        }
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
    context.emit(MemoryEvent::Throttling { address, processor: by.into(), duration_ns });
}
