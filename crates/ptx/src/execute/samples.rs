//! Blocks of a kernel that is one piece from its start to its end.
//!
//! One warp, the *sample*, stands for all warps of a block in turn: its registers hold values of the warp before,
//! which the kernel never reads. So no warp of the block begins or ends. Where all warps of a block ended so, those
//! of the next one are likely to: its block *repeats* the one before, and what it did is added up later.

use super::block::Common;
use super::engine::Engine;
use super::entrance::{Entrance, Repeated, Whole};
use super::registers::fill_kernel_lines;
use super::tally::Way;
use super::turns::Ended;
use super::visit::{Visit, Warps};
use super::warp::{Old, Warp};
use crate::code::WIDTH;

impl<'a> Engine<'a> {
    /// Turns of the warps of a block that has none yet, as far as each does as the one before: it runs one
    /// piece from the start of the kernel to its end. All of their threads have ended. The kernel executes
    /// fewer than `most` instructions in them.
    ///
    /// Where a warp does not, the entrance holds how it left the piece, and the sample is that warp.
    #[inline(always)]
    pub(super) fn at_once(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        sample: &mut Option<Box<Warp>>,
        most: u64,
    ) -> Ended {
        let mut ended = Ended::default();
        let Some(whole) = entrance.whole else { return ended };
        let warps = self.rules.shape.threads as usize / WIDTH;
        let is_like_the_last = whole.is_ready && !whole.found.piece.is_retired();
        if is_like_the_last
            && warps as u64 * u64::from(whole.quantum) < most
            && let Some(sample) = sample
        {
            self.samples(entrance, common, sample, (&whole, warps), &mut ended);
            if ended.warps == warps {
                common.live = 0;
                entrance.repeated.add(whole.way, warps as u64, ended.executed);
                return ended;
            }
        }
        self.at_once_unlike(entrance, common, sample, (whole, most), &mut ended);
        ended
    }

    /// As [`Self::at_once`], of a block that does not repeat the one before, or only in the warps that have ended.
    #[inline(never)]
    fn at_once_unlike(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        sample: &mut Option<Box<Warp>>,
        (whole, most): (Whole<'a>, u64),
        ended: &mut Ended,
    ) {
        self.settle(entrance);
        if !self.may_begin_so(&whole) {
            return;
        }
        let warps = self.rules.shape.threads / WIDTH as u32;
        let room = entrance.tally.expect(common, self.reach.counts, whole.way).min(warps);
        let most = most.saturating_sub(1) / u64::from(whole.quantum);
        let count = u64::from(room).min(most) as usize;
        if count == 0 {
            return;
        }
        let sample = sample.get_or_insert_with(|| {
            let mut sample = Box::<Warp>::default();
            sample.begin(self.program, 0, WIDTH as u32, Old::ANY);
            sample
        });
        if !whole.is_ready {
            self.line_up_sample(entrance, sample, warps);
            entrance.state.sites = self.sites_of(whole.found.piece);
            fill_kernel_lines(self.program, sample, whole.found.piece.lanes);
        }
        while ended.warps < count && entrance.whole.is_some() {
            self.samples(entrance, common, sample, (&whole, count), ended);
        }
        if let Some(whole) = &mut entrance.whole {
            // Others run before the next block if they have not all ended.
            whole.is_ready = ended.warps == warps as usize;
        }
        entrance.tally.add_expected(ended.warps as u32);
        self.add_up(entrance, common, ended.executed);
    }

    /// Turns of the warps that a sample stands for, behind those that have ended, up to so many and the first that
    /// does not as the one before.
    #[inline(always)]
    fn samples(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        sample: &mut Warp,
        (whole, count): (&Whole<'a>, usize),
        ended: &mut Ended,
    ) {
        let Whole { found, way: likely, quantum, .. } = *whole;
        let (state, owns) = (&mut entrance.state, &entrance.of_sample);
        state.go_through(&owns[ended.warps..count], (likely.left, likely.begin));
        let warps = Warps::Sample(&mut *sample);
        let visit = Visit { engine: self, common, warps, part: None, found };
        let left = visit.run(state, (quantum, quantum));
        let (mut done, mut executed) = state.passed(&owns[ended.warps..]);
        let spent = quantum - state.left as u32 + likely.left.last();
        let way = left.map(|left| Way { left, begin: state.begin as u32 });
        if way == Some(likely) && spent < quantum {
            (done, executed) = (done + 1, executed + u64::from(spent) + 1);
        } else {
            sample.index = (ended.warps + done) as u32;
            (entrance.entered, entrance.whole) = (left, None);
        }
        (ended.warps, ended.executed) = (ended.warps + done, ended.executed + executed);
    }

    /// The figures get what warps of repeated blocks did, but for the instructions of warps.
    #[inline(always)]
    pub(super) fn settle(&mut self, entrance: &mut Entrance<'a>) {
        let Repeated { way, warps, executed } = std::mem::take(&mut entrance.repeated);
        if warps > 0 {
            way.note(self.reach.counts, warps);
            self.add_figures(entrance, executed);
        }
    }

    /// The entrance gets the registers of the sample as those of each warp of the block.
    #[inline(always)]
    fn line_up_sample(&self, entrance: &mut Entrance<'_>, sample: &mut Warp, warps: u32) {
        let mut owns = (0..warps).map(|index| self.own(sample, index as usize, index));
        let first = owns.next();
        if entrance.of_sample.first() != first.as_ref() {
            entrance.of_sample.clear();
            entrance.of_sample.extend(first.into_iter().chain(owns));
        }
    }

    /// Whether warps of the kernel can begin without what a warp has when it begins.
    fn may_begin_so(&self, whole: &Whole<'_>) -> bool {
        let may_run = !whole.found.piece.is_retired();
        may_run && self.program.functions[0].frame == 0 && self.old_registers() == Old::ANY
    }

    /// The values that registers need when a warp begins.
    pub(super) fn old_registers(&self) -> Old<'a> {
        let read = self.pieces.as_ref().and_then(|pieces| pieces.compiled.read_at_start());
        read.map_or(Old::Zero, Old::ZeroIn)
    }
}
