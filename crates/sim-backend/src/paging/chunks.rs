//! Memory of one GPU: 2 MiB root chunks, what is in them, and in which order they would go.
//!
//! A full va_block takes one root chunk; a smaller one is tiled with pieces of 64 KiB and 4 KiB,
//! which share root chunks. Pieces are known by the absolute page that they begin with, so a split
//! of a block changes nothing here. Sizes in pages of 4 KiB. Decides only which chunk goes first;
//! `evict` empties it. Source: uvm_policy 1.3, 1.4, 7.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Pages in a root chunk.
const ROOT: u16 = 512;

/// What a root chunk holds, in the order in which chunks are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    /// Nothing resident.
    Unused,
    /// Only discarded pages.
    Discarded,
    /// Data.
    Used,
}

#[derive(Debug, Clone)]
struct Root {
    list: List,
    /// Place in the list: larger is later.
    stamp: u64,
    used: u16,
    /// First pages of the pieces.
    pieces: BTreeSet<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    len: u16,
    root: u32,
}

/// The root chunks of one GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunks {
    capacity: u32,
    next_stamp: u64,
    next_root: u32,
    roots: BTreeMap<u32, Root>,
    pieces: BTreeMap<u64, Piece>,
    /// Chunks in the order in which they would be given up.
    order: BTreeMap<(List, u64), u32>,
    /// Chunks with room for more pieces.
    open: BTreeSet<u32>,
}

impl Chunks {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let roots = capacity_bytes / (u64::from(ROOT) * pagewise_hal::PAGE_BYTES);
        Self { capacity: u32::try_from(roots).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// Whether a piece of this length fits without giving up a chunk.
    pub(super) fn has_room(&self, len: u16) -> bool {
        (self.roots.len() as u64) < u64::from(self.capacity) || self.open_for(len).is_some()
    }

    fn open_for(&self, len: u16) -> Option<u32> {
        let fits = |id: &&u32| self.roots.get(id).is_some_and(|root| root.used + len <= ROOT);
        self.open.iter().find(fits).copied()
    }

    /// Takes memory for the piece that begins with this page. More than the capacity is given if
    /// the caller found nothing to give up.
    pub(super) fn allocate(&mut self, first_page: u64, len: u16) {
        let id = self.open_for(len).unwrap_or_else(|| self.add_root());
        if let Some(root) = self.roots.get_mut(&id) {
            root.used += len;
            root.pieces.insert(first_page);
            if root.used == ROOT {
                self.open.remove(&id);
            }
        }
        self.pieces.insert(first_page, Piece { len, root: id });
        self.place(id, List::Used);
    }

    fn add_root(&mut self) -> u32 {
        let id = self.next_root;
        self.next_root += 1;
        let (list, stamp) = (List::Used, self.next_stamp);
        self.next_stamp += 1;
        self.roots.insert(id, Root { list, stamp, used: 0, pieces: BTreeSet::new() });
        self.order.insert((list, stamp), id);
        self.open.insert(id);
        id
    }

    /// Puts a chunk at the end of a list.
    fn place(&mut self, id: u32, list: List) {
        if let Some(root) = self.roots.get_mut(&id) {
            self.order.remove(&(root.list, root.stamp));
            (root.list, root.stamp) = (list, self.next_stamp);
            self.next_stamp += 1;
            self.order.insert((root.list, root.stamp), id);
        }
    }

    /// Says what a full block's chunk holds now. The chunk goes to the end of the list if that is
    /// another one than before, or if the block was serviced (uvm_policy 2.5 step 5).
    pub(super) fn note(&mut self, first_page: u64, list: List, serviced: bool) {
        if let Some(piece) = self.pieces.get(&first_page).filter(|piece| piece.len == ROOT) {
            let id = piece.root;
            if serviced || self.roots.get(&id).is_some_and(|root| root.list != list) {
                self.place(id, list);
            }
        }
    }

    /// The pages of the pieces in the chunk to give up next, leaving out chunks with a piece in
    /// `keep`. The pieces stay until they are [freed](Self::free).
    pub(super) fn next_to_give_up(&self, keep: &Range<u64>) -> Option<Vec<Range<u64>>> {
        // A piece may begin below: a chunk of a block that was split since.
        let below = self.pieces.range(..keep.start).next_back();
        let below = below.filter(|(first, piece)| **first + u64::from(piece.len) > keep.start);
        let within = self.pieces.range(keep.clone());
        let kept: BTreeSet<u32> = below.into_iter().chain(within).map(|(_, p)| p.root).collect();
        let id = self.order.values().find(|id| !kept.contains(id))?;
        let pieces = self.roots.get(id)?.pieces.iter();
        Some(pieces.map(|first| *first..first + u64::from(self.pieces[first].len)).collect())
    }

    /// Frees the pieces that begin within these pages.
    pub(super) fn free(&mut self, pages: &Range<u64>) {
        let firsts: Vec<u64> = self.pieces.range(pages.clone()).map(|(first, _)| *first).collect();
        for first in firsts {
            let Some(piece) = self.pieces.remove(&first) else { continue };
            let Some(root) = self.roots.get_mut(&piece.root) else { continue };
            root.pieces.remove(&first);
            root.used -= piece.len;
            if root.pieces.is_empty() {
                self.order.remove(&(root.list, root.stamp));
                self.roots.remove(&piece.root);
                self.open.remove(&piece.root);
            } else {
                self.open.insert(piece.root);
            }
        }
    }

    /// Root chunks in use.
    pub(super) fn in_use(&self) -> u64 {
        self.roots.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Range<u64> = 0..0;

    fn first_of(chunks: &Chunks) -> u64 {
        chunks.next_to_give_up(&NONE).expect("something in use")[0].start
    }

    #[test]
    fn unused_goes_before_discarded_before_least_recently_serviced() {
        let mut chunks = Chunks::new(8 << 20);
        for block in 0..4 {
            chunks.allocate(block * 512, 512);
        }
        assert!(!chunks.has_room(512));
        chunks.note(0, List::Used, true);
        assert_eq!(first_of(&chunks), 512);
        chunks.note(1536, List::Discarded, false);
        assert_eq!(first_of(&chunks), 1536);
        chunks.note(1024, List::Unused, false);
        assert_eq!(first_of(&chunks), 1024);
        chunks.free(&(1024..1536));
        assert!(chunks.has_room(512));
    }

    #[test]
    fn small_pieces_share_a_chunk_and_go_together() {
        let mut chunks = Chunks::new(2 << 20);
        chunks.allocate(0, 16);
        chunks.allocate(600, 1);
        assert!(chunks.has_room(495) && !chunks.has_room(496));
        assert_eq!(chunks.next_to_give_up(&NONE), Some(vec![0..16, 600..601]));
        assert_eq!(chunks.next_to_give_up(&(0..100)), None, "kept by its first piece");
        assert_eq!(chunks.next_to_give_up(&(8..12)), None, "kept by a piece that begins below");
        chunks.free(&(0..100));
        assert_eq!((chunks.in_use(), chunks.has_room(511)), (1, true));
        chunks.free(&(600..601));
        assert_eq!(chunks.in_use(), 0);
    }
}
