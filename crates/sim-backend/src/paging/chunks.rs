//! The memory of one GPU: 2 MiB root chunks, the pages in them, and the order of their eviction.
//!
//! A full va_block takes one root chunk, known from a table; a smaller one is tiled with pieces of
//! 64 KiB and 4 KiB, which share root chunks. Pieces are known by the absolute page that they begin with, so a split
//! of a block changes nothing here. Sizes in pages of 4 KiB. Decides only which chunk goes first;
//! `evict` empties it. PAGING-210 to PAGING-213 are the driver's rules.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "chunks and pages of one device, and slots of pages; a chunk that comes back was taken"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Pages in a root chunk.
const ROOT: u16 = 512;

/// Bytes in a root chunk.
pub(crate) const CHUNK_BYTES: u64 = ROOT as u64 * pagewise_hal::PAGE_BYTES;

/// The lists of root chunks, in the order in which chunks are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    /// Chunks without resident pages.
    Unused,
    /// Only discarded pages.
    Discarded,
    /// Data.
    Used,
}

/// A root chunk of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RootId(u32);

impl RootId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone)]
struct Root {
    list: List,
    /// When it came to the list: larger is later. 0 if nothing is in the chunk.
    stamp: u64,
    used: u16,
    holds: Holds,
}

/// The contents of a root chunk.
#[derive(Debug, Clone)]
enum Holds {
    /// All of a full block, that begins with this page.
    Whole(u64),
    /// Smaller pieces that begin with these pages, if any.
    Pieces(BTreeSet<u64>),
}

impl Holds {
    const NOTHING: Self = Self::Pieces(BTreeSet::new());
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    len: u16,
    root: RootId,
}

/// Which chunk a full block has: a table for each GiB of the address space in which there is one,
/// so that going over a range stays within few cache lines.
#[derive(Debug, Clone, Default)]
struct WholeBlocks(BTreeMap<u64, Table>);

#[derive(Debug, Clone)]
struct Table {
    blocks: usize,
    roots: Box<[Option<RootId>]>,
}

impl WholeBlocks {
    /// Blocks that a table has room for.
    const SLOTS: u64 = 512;

    fn place(first_page: u64) -> (u64, usize) {
        let slot = first_page / u64::from(ROOT);
        (slot / Self::SLOTS, (slot % Self::SLOTS) as usize)
    }

    fn get(&self, first_page: u64) -> Option<RootId> {
        let (table, index) = Self::place(first_page);
        self.0.get(&table)?.roots[index]
    }

    fn insert(&mut self, first_page: u64, id: RootId) {
        let (table, index) = Self::place(first_page);
        let roots = || vec![None; Self::SLOTS as usize].into_boxed_slice();
        let table = self.0.entry(table).or_insert_with(|| Table { blocks: 0, roots: roots() });
        table.blocks += usize::from(table.roots[index].replace(id).is_none());
    }

    fn remove(&mut self, first_page: u64) -> Option<RootId> {
        let (key, index) = Self::place(first_page);
        let table = self.0.get_mut(&key)?;
        let id = table.roots[index].take()?;
        table.blocks -= 1;
        if table.blocks == 0 {
            self.0.remove(&key);
        }
        Some(id)
    }

    /// The first block that begins at one of these pages and has a chunk.
    fn first_within(&self, pages: &Range<u64>) -> Option<u64> {
        let mut slots = pages.start.div_ceil(u64::from(ROOT))..pages.end.div_ceil(u64::from(ROOT));
        while !slots.is_empty() {
            let (key, table) = self.0.range(slots.start / Self::SLOTS..).next()?;
            slots.start = slots.start.max(key * Self::SLOTS);
            let end = slots.end.min((key + 1) * Self::SLOTS);
            let mut here = slots.start..end;
            let has = |slot: &u64| table.roots[(slot % Self::SLOTS) as usize].is_some();
            if let Some(slot) = here.find(has) {
                return Some(slot * u64::from(ROOT));
            }
            slots.start = slots.start.max(end);
        }
        None
    }
}

/// Where the chunk of a full block stands among all chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    chunk: Option<(List, u64)>,
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
        let placed = now.chunk.filter(|_| now.chunk != self.chunk).map(|(list, _)| list);
        Some(Effect { taken, placed })
    }
}

/// The root chunks of one GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunks {
    capacity: u32,
    /// Chunks of the capacity that memory which does not migrate has taken.
    claimed: u32,
    next_stamp: u64,
    roots: Vec<Root>,
    /// Roots with nothing in them.
    spare: Vec<RootId>,
    /// Pieces of chunks, by the first page of the block that they belong to.
    pieces: BTreeMap<u64, Piece>,
    /// The chunks of full blocks.
    whole: WholeBlocks,
    /// The lists, longest there first. An entry with another stamp than its chunk's is out of date:
    /// it is passed over, so that moving a chunk costs the same however many there are.
    lists: [VecDeque<(u64, RootId)>; 3],
    /// Chunks with room for more pieces.
    open: BTreeSet<RootId>,
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
        self.in_use() < self.limit() || self.open_for(len).is_some()
    }

    fn open_for(&self, len: u16) -> Option<RootId> {
        if len == ROOT {
            return None; // A chunk is open only if something is in it.
        }
        self.open.iter().find(|id| self.root(**id).used + len <= ROOT).copied()
    }

    fn root(&self, id: RootId) -> &Root {
        &self.roots[id.index()]
    }

    fn root_mut(&mut self, id: RootId) -> &mut Root {
        &mut self.roots[id.index()]
    }

    /// Takes memory for the piece that begins with this page; returns its chunk. More than the
    /// capacity is given if the caller found nothing to give up.
    pub(super) fn allocate(&mut self, first_page: u64, len: u16) -> RootId {
        let id = self.open_for(len).unwrap_or_else(|| self.add_root());
        let root = self.root_mut(id);
        root.used += len;
        let used = root.used;
        if len == ROOT {
            root.holds = Holds::Whole(first_page);
            self.whole.insert(first_page, id);
        } else {
            if let Holds::Pieces(pieces) = &mut root.holds {
                pieces.insert(first_page);
            }
            self.pieces.insert(first_page, Piece { len, root: id });
            if used == ROOT {
                self.open.remove(&id);
            } else {
                self.open.insert(id);
            }
        }
        self.place(id, List::Used);
        id
    }

    /// Keeps a chunk until [`unpin`](Self::unpin), as the step that is running uses it.
    pub(super) fn pin(&mut self, id: RootId) {
        if !self.pinned.contains(&id) {
            self.pinned.push(id);
        }
    }

    /// The step that pinned chunks ends, or gives up what it took.
    pub(super) fn unpin(&mut self) {
        self.pinned.clear();
    }

    fn add_root(&mut self) -> RootId {
        self.spare.pop().unwrap_or_else(|| {
            let id = RootId(self.roots.len() as u32);
            self.roots.push(Root { list: List::Used, stamp: 0, used: 0, holds: Holds::NOTHING });
            id
        })
    }

    /// Puts a chunk at the end of a list.
    fn place(&mut self, id: RootId, list: List) {
        self.next_stamp += 1;
        let stamp = self.next_stamp;
        let root = self.root_mut(id);
        (root.list, root.stamp) = (list, stamp);
        self.lists[list as usize].push_back((stamp, id));
        if self.lists[list as usize].len() > 2 * self.roots.len() + 64 {
            self.drop_outdated(list);
        }
    }

    fn drop_outdated(&mut self, list: List) {
        let mut entries = std::mem::take(&mut self.lists[list as usize]);
        entries.retain(|(stamp, id)| self.root(*id).stamp == *stamp);
        self.lists[list as usize] = entries;
    }

    /// Says what the chunk of a full block holds now. The chunk goes to the end of the list if
    /// that is another one than before, or if the block was serviced (PAGING-213).
    pub(super) fn note(&mut self, first_page: u64, list: List, serviced: bool) {
        if let Some(id) = self.whole.get(first_page)
            && (serviced || self.root(id).list != list)
        {
            self.place(id, list);
        }
    }

    /// Where the chunk of a full block stands.
    pub(super) fn standing(&self, first_page: u64) -> Standing {
        let chunk = self.whole.get(first_page).map(|id| (self.root(id).list, self.root(id).stamp));
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
            self.place(id, list);
        }
    }

    /// The chunk to give up next. Its pieces stay until they are [freed](Self::free).
    pub(super) fn next_to_give_up(&mut self) -> Option<RootId> {
        for list in &mut self.lists {
            let outdated = |entry: &(u64, RootId)| self.roots[entry.1.index()].stamp != entry.0;
            while list.front().is_some_and(outdated) {
                list.pop_front();
            }
        }
        let current = |entry: &&(u64, RootId)| self.root(entry.1).stamp == entry.0;
        let mut in_order = self.lists.iter().flatten().filter(current).map(|(_, id)| *id);
        in_order.find(|id| !self.pinned.contains(id))
    }

    /// Whether a piece in a chunk has one of these pages. It may begin below: a chunk of a block
    /// that was split since.
    pub(super) fn has_piece_in(&self, id: RootId, pages: &Range<u64>) -> bool {
        let last = match &self.root(id).holds {
            Holds::Whole(first) => Some(*first..*first + u64::from(ROOT)),
            Holds::Pieces(firsts) => firsts.range(..pages.end).next_back().map(|f| self.piece(*f)),
        };
        last.is_some_and(|last| last.start < pages.end && last.end > pages.start)
    }

    /// The pages of the piece smaller than a chunk that begins with this page.
    fn piece(&self, first_page: u64) -> Range<u64> {
        let len = self.pieces.get(&first_page).map_or(0, |piece| piece.len);
        first_page..first_page + u64::from(len)
    }

    /// The pages of the first piece in a chunk.
    pub(super) fn first_piece(&self, id: RootId) -> Option<Range<u64>> {
        match &self.root(id).holds {
            Holds::Whole(first) => Some(*first..*first + u64::from(ROOT)),
            Holds::Pieces(firsts) => firsts.first().map(|first| self.piece(*first)),
        }
    }

    /// Frees the pieces that begin within these pages.
    pub(super) fn free(&mut self, pages: &Range<u64>) {
        while let Some(first) = self.whole.first_within(pages) {
            if let Some(id) = self.whole.remove(first) {
                self.root_mut(id).holds = Holds::NOTHING;
                self.emptied(id);
            }
        }
        while let Some(first) = self.pieces.range(pages.clone()).next().map(|(first, _)| *first) {
            self.free_piece(first);
        }
    }

    /// Frees a piece smaller than a chunk.
    fn free_piece(&mut self, first_page: u64) {
        let Some(Piece { len, root: id }) = self.pieces.remove(&first_page) else { return };
        let root = self.root_mut(id);
        root.used -= len;
        if let Holds::Pieces(firsts) = &mut root.holds {
            firsts.remove(&first_page);
        }
        if root.used == 0 {
            self.emptied(id);
        } else {
            self.open.insert(id);
        }
    }

    fn emptied(&mut self, id: RootId) {
        let root = self.root_mut(id);
        (root.used, root.stamp) = (0, 0);
        self.open.remove(&id);
        self.spare.push(id);
    }

    /// Root chunks in use.
    pub(super) fn in_use(&self) -> u64 {
        (self.roots.len() - self.spare.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_of(chunks: &mut Chunks) -> u64 {
        let id = chunks.next_to_give_up().expect("something in use");
        chunks.first_piece(id).expect("a piece").start
    }

    #[test]
    fn unused_goes_before_discarded_before_least_recently_serviced() {
        let mut chunks = Chunks::new(8 << 20);
        for block in 0..4 {
            chunks.allocate(block * 512, 512);
        }
        assert!(!chunks.has_room(512));
        chunks.note(0, List::Used, true);
        assert_eq!(first_of(&mut chunks), 512);
        chunks.note(1536, List::Discarded, false);
        assert_eq!(first_of(&mut chunks), 1536);
        chunks.note(1024, List::Unused, false);
        assert_eq!(first_of(&mut chunks), 1024);
        chunks.free(&(1024..1536));
        assert!(chunks.has_room(512));
    }

    #[test]
    fn small_pieces_share_a_chunk_and_go_together() {
        let mut chunks = Chunks::new(2 << 20);
        chunks.allocate(0, 16);
        chunks.allocate(600, 1);
        assert!(chunks.has_room(495) && !chunks.has_room(496));
        let shared = chunks.next_to_give_up().expect("one chunk");
        assert_eq!((chunks.first_piece(shared), chunks.in_use()), (Some(0..16), 1));
        assert!(chunks.has_piece_in(shared, &(8..12)), "a piece that begins below");
        assert!(!chunks.has_piece_in(shared, &(16..600)));
        chunks.free(&(0..100));
        assert_eq!((chunks.in_use(), chunks.has_room(511)), (1, true));
        assert_eq!(chunks.first_piece(shared), Some(600..601));
        chunks.free(&(600..601));
        assert_eq!(chunks.in_use(), 0);
    }

    #[test]
    fn what_a_running_step_took_is_not_given_up() {
        let mut chunks = Chunks::new(4 << 20);
        let first = chunks.allocate(0, 512);
        let second = chunks.allocate(512, 512);
        chunks.pin(first);
        assert_eq!(chunks.next_to_give_up(), Some(second));
        chunks.pin(second);
        assert_eq!(chunks.next_to_give_up(), None);
        chunks.unpin();
        assert_eq!(chunks.next_to_give_up(), Some(first));
    }

    #[test]
    fn lists_stay_short_however_often_chunks_move() {
        let mut chunks = Chunks::new(8 << 20);
        for block in 0..4 {
            chunks.allocate(block * 512, 512);
        }
        for round in 0..10_000 {
            chunks.note(round % 3 * 512, List::Used, true);
        }
        assert!(chunks.lists.iter().all(|list| list.len() <= 2 * 4 + 65));
        assert_eq!(first_of(&mut chunks), 1536);
    }

    #[test]
    fn memory_that_does_not_migrate_leaves_less_room() {
        let mut chunks = Chunks::new(8 << 20);
        chunks.allocate(0, 512);
        chunks.allocate(512, 512);
        chunks.claim((4 << 20) + 1);
        assert!(chunks.is_over() && !chunks.has_room(512));
        chunks.claim(4 << 20);
        assert!(!chunks.is_over() && !chunks.has_room(512));
        chunks.claim(0);
        assert!(chunks.has_room(512));
    }
}
