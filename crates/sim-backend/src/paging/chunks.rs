//! The memory of one GPU: 2 MiB root chunks, the pages in them, and the order of their eviction.
//!
//! A full va_block takes one root chunk, known from a table (`whole`); a smaller one is tiled with
//! pieces of 64 KiB and 4 KiB, which share root chunks (`free` has the free ones). Pieces are known
//! by the absolute page that they begin with. Sizes in pages of 4 KiB. Decides only which chunk goes
//! first; `evict` empties it. EVICTION-1 to EVICTION-12 are the driver's rules.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "chunks and pages of one device, and slots of pages; a chunk that comes back was taken"
)]

mod free;
mod lists;
mod pieces;
mod root_id;
mod slot_masks;
mod tables;
mod turnover;
mod whole;

use std::ops::Range;

use free::{FreePieces, Slot};
pub(super) use lists::List;
use lists::{Lists, Place};
use pieces::{PieceRun, Pieces};
pub(super) use root_id::RootId;
use root_id::{BIG, ROOT};
use turnover::Turnover;
use whole::WholeBlocks;

/// Bytes in a root chunk.
pub(crate) const CHUNK_BYTES: u64 = ROOT as u64 * pagewise_hal::PAGE_BYTES;

#[derive(Debug, Clone)]
struct Root {
    used: u16,
    /// It was emptied by eviction, so its memory is not zero.
    evicted: bool,
    holds: Holds,
}

/// The contents of a root chunk.
#[derive(Debug, Clone)]
enum Holds {
    /// All of a full block, that begins with this page.
    Whole(u64),
    /// Smaller pieces.
    Pieces,
    Nothing,
}

/// Where the chunk of a full block stands among all chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    chunk: Option<Place>,
    in_use: u64,
}

/// The effect of a step on the chunk of a full block, and on no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Effect {
    taken: bool,
    /// It went to the end of this list.
    placed: Option<List>,
}

impl Standing {
    /// The effect since; `None` if other chunks were given up.
    pub(super) fn effect(&self, now: &Self) -> Option<Effect> {
        let taken = self.chunk.is_none() && now.chunk.is_some();
        if now.in_use != self.in_use + u64::from(taken) {
            return None;
        }
        let placed = now.chunk.filter(|_| now.chunk != self.chunk).map(Place::list);
        Some(Effect { taken, placed })
    }
}

/// The root chunks of one GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunks {
    capacity: u32,
    /// Chunks of the capacity that memory which does not migrate has taken.
    claimed: u32,
    roots: Vec<Root>,
    /// Roots with nothing in them.
    spare: Vec<RootId>,
    /// The pieces of split chunks.
    pieces: Pieces,
    /// The chunks of full blocks.
    whole: WholeBlocks,
    lists: Lists,
    /// Room for more pieces in chunks that are split.
    free: FreePieces,
    turnover: Turnover,
    /// Chunks in which a running step took memory: they are not given up before it ends.
    pinned: Vec<RootId>,
}

impl Chunks {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let roots = capacity_bytes / CHUNK_BYTES;
        Self { capacity: u32::try_from(roots).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// Leaves this much of the capacity to memory that does not migrate.
    pub(super) fn claim(&mut self, bytes: u64) {
        let roots = bytes.div_ceil(CHUNK_BYTES);
        self.claimed = u32::try_from(roots).unwrap_or(u32::MAX);
        self.turnover.reached(self.taken());
    }

    /// Root chunks in use or claimed, at most as many as there are.
    fn taken(&self) -> u64 {
        (self.in_use() + u64::from(self.claimed)).min(self.capacity.into())
    }

    /// All root chunks, also those that are claimed.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity.into()
    }

    /// The memory that eviction took so far, and that came back.
    pub(super) fn turnover(&self) -> &Turnover {
        &self.turnover
    }

    fn limit(&self) -> u64 {
        u64::from(self.capacity.saturating_sub(self.claimed))
    }

    /// Whether more is in use than there is.
    pub(super) fn is_over(&self) -> bool {
        self.in_use() > self.limit()
    }

    /// Whether a piece of this length fits without giving up a chunk.
    pub(super) fn has_room(&self, len: u16) -> bool {
        self.in_use() < self.limit() || self.free.has(len)
    }

    fn root(&self, id: RootId) -> &Root {
        &self.roots[id.index()]
    }

    fn root_mut(&mut self, id: RootId) -> &mut Root {
        &mut self.roots[id.index()]
    }

    /// Takes memory for the piece that begins with this page; returns its chunk. More than the
    /// capacity is given if the caller found nothing to give up. A piece is a whole chunk, 64 KiB
    /// or one page.
    pub(super) fn allocate(&mut self, first_page: u64, len: u16) -> RootId {
        debug_assert!([ROOT, BIG, 1].contains(&len), "a piece of {len} pages");
        let id = if len == ROOT {
            let id = self.add_root();
            self.root_mut(id).holds = Holds::Whole(first_page);
            self.whole.insert(first_page, id);
            id
        } else {
            let slot = self.free.take(len).unwrap_or_else(|| {
                let id = self.add_root();
                let is_zero = !self.root(id).evicted;
                self.free.split_root(id, is_zero, len)
            });
            self.hold(first_page, PieceRun { len, count: 1, slot });
            slot.root
        };
        self.root_mut(id).used += len;
        self.lists.append(id, List::Used);
        self.turnover.given(&(first_page..first_page + u64::from(len)));
        self.turnover.reached(self.taken());
        id
    }

    fn hold(&mut self, first_page: u64, run: PieceRun) {
        self.root_mut(run.slot.root).holds = Holds::Pieces;
        self.pieces.add(first_page, run);
    }

    /// A block is cut at this page. Its memory stays where it is, in pieces as the two blocks take
    /// them, and the chunk keeps its place on its list (EVICTION-6).
    pub(super) fn split_at(&mut self, page: u64) {
        let start = page - page % u64::from(ROOT);
        if page == start {
            return;
        }
        if let Some(root) = self.whole.remove(start) {
            let slot = Slot { root, page: 0 };
            self.hold(start, PieceRun { len: BIG, count: ROOT / BIG, slot });
        }
        self.pieces.split_piece(page);
    }

    /// Keeps a chunk until [`unpin`](Self::unpin), as the step that is running uses it.
    #[inline]
    pub(super) fn pin(&mut self, id: RootId) {
        if !self.pinned.contains(&id) {
            self.pinned.push(id);
        }
    }

    /// The step that pinned chunks ends, or gives up what it took.
    #[inline]
    pub(super) fn unpin(&mut self) {
        self.pinned.clear();
    }

    fn add_root(&mut self) -> RootId {
        self.spare.pop().unwrap_or_else(|| {
            let id = RootId::new(self.roots.len() as u32);
            self.roots.push(Root { used: 0, evicted: false, holds: Holds::Nothing });
            self.lists.add();
            id
        })
    }

    /// Says what the chunk of a full block holds now: it goes to the end of that list, unless the
    /// running step took it (EVICTION-4).
    #[inline]
    pub(super) fn note(&mut self, first_page: u64, list: List) {
        if let Some(id) = self.whole.get(first_page)
            && !self.pinned.contains(&id)
        {
            self.lists.append(id, list);
        }
    }

    /// Where the chunk of a full block stands.
    pub(super) fn standing(&self, first_page: u64) -> Standing {
        let chunk = self.whole.get(first_page).and_then(|id| self.lists.place(id));
        Standing { chunk, in_use: self.in_use() }
    }

    /// Whether there is room for what happened to another chunk.
    pub(super) fn can(&self, effect: Effect) -> bool {
        !effect.taken || self.in_use() < self.limit()
    }

    /// Does to the chunk of a full block what happened to another one.
    pub(super) fn repeat(&mut self, first_page: u64, effect: Effect) {
        if effect.taken {
            self.allocate(first_page, ROOT);
        }
        if let (Some(list), Some(id)) = (effect.placed, self.whole.get(first_page)) {
            self.lists.append(id, list);
        }
    }

    /// The chunk to give up next. Its pieces stay until they are [freed](Self::free).
    pub(super) fn next_to_give_up(&self) -> Option<RootId> {
        self.lists.first(|id| !self.pinned.contains(&id))
    }

    /// The first page of the full block that has a chunk to itself.
    pub(super) fn whole_block(&self, id: RootId) -> Option<u64> {
        match self.root(id).holds {
            Holds::Whole(first) => Some(first),
            Holds::Pieces | Holds::Nothing => None,
        }
    }

    /// Whether a chunk holds one of these pages, which are of one block.
    pub(super) fn has_piece_in(&self, id: RootId, pages: &Range<u64>) -> bool {
        match self.whole_block(id) {
            Some(first) => pages.start == first,
            None => !self.pieces_in(id, pages).is_empty(),
        }
    }

    /// The pieces that a chunk holds of a block with these pages, in their order.
    pub(super) fn pieces_in(&self, id: RootId, block: &Range<u64>) -> Vec<Range<u64>> {
        if let Some(first) = self.whole_block(id) {
            return (block.start == first).then(|| block.clone()).into_iter().collect();
        }
        self.pieces.of_root(id, block)
    }

    /// The first page of the piece that lies first in a chunk.
    pub(super) fn first_piece(&self, id: RootId) -> Option<u64> {
        match self.root(id).holds {
            Holds::Whole(first) => Some(first),
            Holds::Pieces => self.pieces.first_of_root(id),
            Holds::Nothing => None,
        }
    }

    /// Frees a piece of a chunk that is being given up.
    pub(super) fn evict(&mut self, piece: &Range<u64>) {
        let whole = self.whole.remove(piece.start);
        let root = if let Some(id) = whole {
            self.emptied(id);
            whole
        } else {
            let root = self.pieces.root_of(piece.start);
            self.free(piece);
            root
        };
        self.turnover.evicted(piece);
        if let Some(root) = root {
            self.root_mut(root).evicted = true;
        }
    }

    /// Frees the pieces that begin within these pages.
    pub(super) fn free(&mut self, pages: &Range<u64>) {
        self.turnover.forget(pages);
        while let Some(first) = self.whole.first_within(pages) {
            if let Some(id) = self.whole.remove(first) {
                self.emptied(id);
            }
        }
        while let Some((id, firsts)) = self.pieces.first_within(pages) {
            self.free_runs(id, &firsts);
        }
    }

    /// Frees runs of pieces of one chunk.
    fn free_runs(&mut self, id: RootId, firsts: &[u64]) {
        let runs = firsts.iter().filter_map(|first| self.pieces.get(*first));
        if runs.map(PieceRun::pages).sum::<u16>() < self.root(id).used {
            firsts.iter().for_each(|first| self.free_run(*first));
            return;
        }
        // Nothing is left in the chunk, so its pieces need not become free one by one.
        for first in firsts {
            self.pieces.remove(*first);
        }
        self.free.merge_root(id);
        self.emptied(id);
    }

    /// Frees pieces of a chunk that has others. The chunk goes to the end of USED (EVICTION-5).
    fn free_run(&mut self, first_page: u64) {
        let Some(mut run) = self.pieces.remove(first_page) else { return };
        let (root, len) = (run.slot.root, run.len);
        self.root_mut(root).used -= run.pages();
        while let Some(slot) = run.pop() {
            let is_taken =
                |places: Range<u16>| run.touches(&places) || self.pieces.is_taken(root, &places);
            self.free.give(slot, len, is_taken);
        }
        self.lists.append(root, List::Used);
    }

    /// A chunk has nothing in it any more.
    fn emptied(&mut self, id: RootId) {
        let root = self.root_mut(id);
        (root.used, root.evicted, root.holds) = (0, false, Holds::Nothing);
        self.lists.remove(id);
        self.spare.push(id);
    }

    /// Root chunks in use.
    pub(super) fn in_use(&self) -> u64 {
        (self.roots.len() - self.spare.len()) as u64
    }
}

#[cfg(test)]
mod tests;
