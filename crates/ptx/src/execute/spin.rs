//! Kernels that wait for a change of memory from outside: a word that the host writes, for one.

use super::block::Block;
use super::grid::Run;
use super::host::Host;
use super::memory::Memory;
use super::warp::{Fragment, Frame, Return, State, Warp};
use crate::code::WIDTH;

/// The longest loop, in instructions, in which a warp is seen to wait.
const LOOP_MAX: u32 = 256;

/// All that decides what a warp does next, but for memory.
#[derive(PartialEq)]
struct Snapshot {
    words: Vec<[u32; WIDTH]>,
    doubles: Vec<[u64; WIDTH]>,
    predicates: Vec<u32>,
    fragments: Vec<(u32, u32, Frame, Vec<Return>, State)>,
}

impl Snapshot {
    fn of(warp: &Warp) -> Self {
        let place = |f: &Fragment| (f.pc, f.mask, f.frame, f.stack.clone(), f.state);
        let mut fragments: Vec<_> = warp.fragments.iter().map(|f| place(f)).collect();
        fragments.sort_unstable_by_key(|(pc, mask, ..)| (*pc, *mask));
        let (words, doubles) = warp.lines.written(&warp.words, &warp.doubles);
        Self { words, doubles, predicates: warp.predicates.clone(), fragments }
    }
}

impl Run {
    /// Whether the grid waits for memory to change: every warp that can run is in a loop of at most
    /// 256 instructions that leaves its registers as they were. The warps execute such a loop once.
    ///
    /// A grid with a limit of instructions never says so: it ends at the limit. A kernel that ends
    /// meanwhile gives its end in the next [`step`](Self::step).
    pub fn is_spinning(&mut self, memory: &mut dyn Memory, host: &mut dyn Host) -> bool {
        self.forget_memory();
        if self.has_limit() {
            return false;
        }
        let Some(running) = self.begun().and_then(|blocks| running(&blocks)) else { return false };
        !running.is_empty() && running.into_iter().all(|at| self.comes_back(at, memory, host))
    }

    /// Whether a warp comes back to the state that it has.
    fn comes_back(
        &mut self,
        at: (usize, usize),
        memory: &mut dyn Memory,
        host: &mut dyn Host,
    ) -> bool {
        let state = |run: &Self| {
            let warp = run.block(at.0)?.warps.get(at.1)?;
            Some(Snapshot::of(warp))
        };
        let before = state(self);
        for _ in 0..LOOP_MAX {
            if !self.single(at, memory, host) || !self.outstanding().is_empty() {
                return false;
            }
            let now = state(self);
            if now.is_none() || now == before {
                return now.is_some();
            }
        }
        false
    }
}

/// The warps that can run, by their block. `None` if some have a barrier behind them and did not go on
/// yet: they do so together.
fn running(blocks: &[&Block]) -> Option<Vec<(usize, usize)>> {
    let mut running = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        for (index, warp) in block.warps.iter().enumerate() {
            if warp.fragments.iter().any(|f| block.common.is_over(f.state)) {
                return None;
            }
            if warp.fragments.iter().any(|f| f.state == State::Ready) {
                running.push((at, index));
            }
        }
    }
    Some(running)
}
