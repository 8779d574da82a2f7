//! One step carried out on many blocks that are alike.
//!
//! A call over a large range finds block after block in the same state, and does the same to each.
//! The first of them is worked out and watched; the others get the same outcome, records and work
//! included. So there is one place that knows the policy, and a whole range costs little more than
//! a look at each of its blocks.
//!
//! That is sound because the outcome of a migration, a discard or an advice depends on the call,
//! the policy of the range and the state of the block, and changes nothing but the block and its
//! chunk. Blocks with pages that thrashing detection watches, and steps that made room by eviction,
//! are left to the general way.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "pieces of live memory are measured and counted"
)]

use std::ops::Range;

use pagewise_hal::{MemoryEvent, PAGE_BYTES, Processor};

use super::block::Block;
use super::chunks::{Effect, Standing};
use super::engine::Paging;
use super::mask::{PAGES, PageMask};
use super::range::Policy;
use super::report::{Holding, ReportSink, Work};
use super::totals::Totals;

/// After this many outcomes that fitted no other block, a call no longer watches.
const MISSES_MAX: u32 = 4;

/// The effect of a step on a full block.
#[derive(Debug)]
struct Outcome {
    policy: Policy,
    /// The block before; `None` if there was none yet.
    before: Option<Block>,
    after: Block,
    /// Pages that came to each processor, less those that left it.
    totals: Totals,
    /// The effect on the block's chunk on each GPU.
    chunks: Vec<Effect>,
    tape: Tape,
}

/// The reports of a step about the block that begins with a page.
#[derive(Debug, Default)]
struct Tape {
    records: Vec<MemoryEvent>,
    work: Vec<Work>,
    holdings: Vec<(PageMask, Processor, Holding)>,
}

impl Tape {
    /// Reports the same about the block at `to` as about the one at `from`.
    fn play(&self, from: u64, to: u64, sink: &mut dyn ReportSink) {
        let further = to.wrapping_sub(from).wrapping_mul(PAGE_BYTES);
        for record in &self.records {
            sink.record(record.with_address(record.address().wrapping_add(further)));
        }
        for (pages, processor, now) in &self.holdings {
            sink.holding(to, *pages, *processor, *now);
        }
        for work in &self.work {
            sink.work(&Work { block: to, ..*work });
        }
    }
}

/// Passes on what a step reports, and keeps it.
struct Watch<'a> {
    tape: Tape,
    sink: &'a mut dyn ReportSink,
}

impl ReportSink for Watch<'_> {
    fn record(&mut self, record: MemoryEvent) {
        self.tape.records.push(record);
        self.sink.record(record);
    }

    fn work(&mut self, work: &Work) -> u64 {
        self.tape.work.push(*work);
        self.sink.work(work)
    }

    fn fault_latency_ns(&mut self, by: Processor, access: u64) -> u64 {
        self.sink.fault_latency_ns(by, access)
    }

    fn holding(&mut self, first_page: u64, pages: PageMask, processor: Processor, now: Holding) {
        self.tape.holdings.push((pages, processor, now));
        self.sink.holding(first_page, pages, processor, now);
    }
}

fn is_full(piece: &Range<u64>) -> bool {
    piece.end - piece.start == PAGES as u64 && piece.start.is_multiple_of(PAGES as u64)
}

impl Outcome {
    /// Whether the step does the same to this block.
    fn fits(&self, piece: &Range<u64>, block: Option<&Block>) -> bool {
        is_full(piece)
            && match (&self.before, block) {
                (None, None) => true,
                (Some(before), Some(block)) => block.is_like(before),
                _ => false,
            }
    }
}

impl Paging {
    /// Runs a step on each piece: the first of pieces that are alike is worked out by `act`.
    pub(super) fn on_each(
        &mut self,
        pieces: &[Range<u64>],
        sink: &mut dyn ReportSink,
        mut act: impl FnMut(&mut Self, &Range<u64>, &mut dyn ReportSink),
    ) {
        let mut rest = pieces;
        let mut misses = 0;
        while let Some((piece, further)) = rest.split_first() {
            rest = further;
            if rest.is_empty() || misses > MISSES_MAX || !is_full(piece) {
                act(self, piece, sink);
            } else if let Some(outcome) = self.watch(piece, sink, &mut act) {
                let repeated = self.repeat(&outcome, rest, sink);
                misses += u32::from(repeated == 0);
                rest = &rest[repeated..];
            }
        }
    }

    /// Runs a step on a full block; returns its outcome if that can be had again.
    fn watch(
        &mut self,
        piece: &Range<u64>,
        sink: &mut dyn ReportSink,
        act: &mut impl FnMut(&mut Self, &Range<u64>, &mut dyn ReportSink),
    ) -> Option<Outcome> {
        let before = self.share(piece.start);
        let totals = self.totals.clone();
        let standings: Vec<Standing> = self.standings(piece.start).collect();
        let mut watch = Watch { tape: Tape::default(), sink };
        act(self, piece, &mut watch);
        let tape = watch.tape;
        let after = self.share(piece.start)?;
        let now = self.standings(piece.start);
        let chunks = standings.iter().zip(now).map(|(then, now)| then.effect(&now));
        let chunks = chunks.collect::<Option<Vec<Effect>>>()?;
        let policy = self.ranges.containing(piece.start)?.policy;
        let totals = self.totals.since(&totals);
        after.thrashing().is_none().then_some(Outcome {
            policy,
            before,
            after,
            totals,
            chunks,
            tape,
        })
    }

    /// Makes the state of a block one that others can share; returns the block.
    fn share(&mut self, page: u64) -> Option<Block> {
        let block = self.ranges.containing_mut(page)?.slot_mut(page).as_mut()?;
        block.share();
        Some(block.clone())
    }

    fn standings(&self, first_page: u64) -> impl Iterator<Item = Standing> {
        self.chunks.iter().map(move |chunks| chunks.standing(first_page))
    }

    /// Gives the first of these pieces the outcome, as many as are in the same state; returns how
    /// many.
    fn repeat(
        &mut self,
        outcome: &Outcome,
        pieces: &[Range<u64>],
        sink: &mut dyn ReportSink,
    ) -> usize {
        let mut done = 0;
        #[cfg(test)]
        if !self.shortcuts {
            return 0;
        }
        while let Some(next) = pieces.get(done) {
            let Some(range) = self.ranges.containing_mut(next.start) else { break };
            if range.policy != outcome.policy {
                break;
            }
            let end = range.pages().end;
            for piece in pieces[done..].iter().take_while(|piece| piece.end <= end) {
                let place = range.slot_mut(piece.start);
                let has_room =
                    self.chunks.iter().zip(&outcome.chunks).all(|(c, effect)| c.can(*effect));
                if !outcome.fits(piece, place.as_ref()) || !has_room {
                    return done;
                }
                for (chunks, effect) in self.chunks.iter_mut().zip(&outcome.chunks) {
                    chunks.repeat(piece.start, *effect);
                }
                *place = Some(outcome.after.at(piece.start));
                self.changed_slots.note(piece.start);
                self.totals.add(&outcome.totals);
                outcome.tape.play(outcome.after.first_page(), piece.start, sink);
                done += 1;
            }
        }
        done
    }
}
