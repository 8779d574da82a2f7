//! Warps of a block that do by compiled pieces just as the one before.
//!
//! Between two barriers most warps run the same piece, and leave it the same way. A lap runs that piece for
//! one warp after the other, and adds up once what all of them did.
//!
//! Many kernels are one such piece from their start to their end. Then one warp, the *sample*, stands for all
//! warps of a block in turn: its registers hold values of the warp before, which the kernel never reads. So
//! no warp of the block begins or ends.

use super::block::Common;
use super::engine::Engine;
use super::entrance::{Entrance, Same};
use super::pieces::Pieces;
use super::visit::Visit;
use super::warp::{Old, State as Waits, Warp};
use crate::code::WIDTH;
use crate::jit::Behind;

impl<'a> Engine<'a> {
    /// Turns of warps that do as the one before, in order, up to the first one that does not. Gives how
    /// many there are. The kernel executes fewer than `most` instructions in them, the last arrival at a
    /// barrier is not among them, and neither is the last warp's end: these have effects on others.
    #[inline(always)]
    pub(super) fn lap(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warps: &mut [Warp],
        most: u64,
    ) -> usize {
        let Some(same) = entrance.same.filter(|_| entrance.entered.is_none()) else { return 0 };
        let room = match same.left.behind() {
            Behind::Barrier(index) => common.room(index),
            _ => common.room_to_end(),
        };
        let room = u64::from(room).min(most.saturating_sub(1) / u64::from(same.spent));
        let mut done = 0;
        for warp in warps.iter_mut().take(room as usize) {
            if !is_at(common, warp, &same) {
                break;
            }
            self.approach(&mut entrance.state, warp);
            let state = &mut entrance.state;
            let Some(entered) = self.enter(state, common, (warp, None), same.found, same.quantum)
            else {
                break;
            };
            if !same.is_repeated(entered.left, &entrance.state) {
                entrance.entered = Some(entered);
                break;
            }
            match same.left.behind() {
                Behind::Barrier(index) => {
                    let Some(fragment) = warp.fragments.first_mut() else { break };
                    fragment.pc = same.left.position() + 1;
                    (fragment.state, fragment.alone) = (common.wait(index), false);
                }
                _ => warp.end(),
            }
            done += 1;
        }
        if done > 0 {
            self.add_up(entrance, common, &same, done);
        }
        done as usize
    }

    /// Turns of the warps of a block that has none yet, as far as each does as the one before: it runs one
    /// piece from the start of the kernel to its end. Gives how many there are; all of their threads have
    /// ended. The kernel executes fewer than `most` instructions in them.
    ///
    /// Where a warp does not, the entrance holds how it left the piece, and the sample is that warp.
    pub(super) fn at_once(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        sample: &mut Option<Box<Warp>>,
        most: u64,
    ) -> usize {
        let Some(same) = entrance.same.filter(|same| self.is_whole_kernel(same)) else { return 0 };
        let warps = self.rules.shape.threads / WIDTH as u32;
        let room = u64::from(warps).min(most.saturating_sub(1) / u64::from(same.spent)) as u32;
        let sample = sample.get_or_insert_with(|| {
            let mut sample = Box::<Warp>::default();
            sample.begin(self.program, 0, WIDTH as u32, Old::Any);
            sample
        });
        let state = &mut entrance.state;
        self.approach(state, sample);
        self.lay_out(state, sample, same.found.piece);
        let mut visit = Visit { engine: self, common, warp: sample, part: None, blocked: None };
        let mut done = 0;
        while done < room {
            visit.warp.index = done;
            state.thread = &raw const visit.engine.rules.shape.axes[done as usize];
            let left = visit.run(state, same.found.piece, same.quantum);
            if !same.is_repeated(left, state) {
                entrance.entered = (!left.is_unfit()).then(|| visit.end(state, same.found, left));
                break;
            }
            done += 1;
        }
        if done > 0 {
            self.add_up(entrance, common, &same, done);
        }
        done as usize
    }

    /// Whether a turn is all that a warp of the kernel does, and needs nothing of what a warp has when it
    /// begins.
    fn is_whole_kernel(&self, same: &Same<'_>) -> bool {
        let kernel = &self.program.functions[0];
        let is_whole = same.found.pc == kernel.start && same.left.behind() == Behind::End;
        is_whole && !same.is_short && kernel.frame == 0 && self.old_registers() == Old::Any
    }

    /// The values that registers need when a warp begins.
    pub(super) fn old_registers(&self) -> Old {
        let reads_none = |pieces: &Pieces<'_>| pieces.compiled.reads_nothing_old();
        if self.pieces.as_ref().is_some_and(reads_none) { Old::Any } else { Old::Zero }
    }

    /// Adds what warps did to the figures.
    #[inline(always)]
    fn add_up(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        same: &Same<'a>,
        warps: u32,
    ) {
        let (times, begin, pc) = (u64::from(warps), same.begin as u32, same.left.position());
        let counts = &mut self.reach.counts;
        counts.note_of(times, begin, begin + same.left.last());
        counts.note_of(times, pc, pc + 1);
        let (stats, executed) = (&mut *self.reach.stats, times * u64::from(same.spent));
        stats.warp_instructions += executed;
        stats.thread_instructions += WIDTH as u64 * executed;
        entrance.take_figures(stats);
        match same.left.behind() {
            Behind::Barrier(index) => {
                common.arrive(index.into(), 0, WIDTH as u32 * warps, (0, 0));
            }
            _ => common.live -= WIDTH as u32 * warps,
        }
    }
}

/// Whether all lanes of a warp can begin a turn like that of the warp before.
#[inline(always)]
fn is_at(common: &Common, warp: &Warp, same: &Same<'_>) -> bool {
    let [fragment] = &warp.fragments[..] else { return false };
    let may_go_on =
        common.is_over(fragment.state) || !same.is_short && fragment.state == Waits::Ready;
    may_go_on
        && fragment.pc == same.found.pc
        && fragment.mask == u32::MAX
        && fragment.is_kernel()
        && !warp.taking_turns()
}
