//! The windows that a run keeps, so that it asks for the same bytes once.

use super::memory::{Kind, Window};

/// Slots for windows by the 2 MiB that an address lies in, and by its page: large windows are found
/// by the first, and many small ones by the second.
const BLOCKS: usize = 64;
const PAGES: usize = 256;

/// The log of the bytes of a page: accesses wait for whole pages.
const PAGE: u32 = 12;

/// A window, and the round of the memory for which it holds.
#[derive(Debug, Clone, Copy)]
struct Entry {
    round: u64,
    window: Window,
}

/// Windows by kind of access.
#[derive(Debug, Default)]
pub(super) struct Kept {
    generation: Option<u64>,
    /// How often the generation has changed. No window holds in round 0.
    round: u64,
    entries: [Vec<Option<Entry>>; 3],
    /// Pages that an access waits for, with the round, by kind of access.
    missing: [Vec<(u64, u64)>; 3],
}

// SAFETY: the pointers of windows are used only inside of a step, with the memory that gave them;
// a step with another memory asks for its generation, and the caller keeps those apart.
unsafe impl Send for Kept {}

impl Kept {
    /// Forgets all windows if the memory has changed.
    #[inline(always)]
    pub(super) fn renew(&mut self, generation: u64) {
        if self.generation != Some(generation) {
            self.generation = Some(generation);
            self.round += 1;
        }
    }

    /// The round in which windows hold.
    #[inline(always)]
    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Forgets all windows: a step begins.
    pub(super) fn forget(&mut self) {
        self.round += 1;
    }

    /// Whether it is known that accesses to the page of an address wait in this round.
    pub(super) fn waits(&self, address: u64, kind: Kind) -> bool {
        let page = address >> PAGE;
        self.missing[kind as usize].get(page as usize % PAGES) == Some(&(page, self.round))
    }

    /// Notes that accesses to the page of an address wait.
    pub(super) fn note_wait(&mut self, address: u64, kind: Kind) {
        let page = address >> PAGE;
        let missing = &mut self.missing[kind as usize];
        missing.resize(PAGES, (0, 0));
        missing[page as usize % PAGES] = (page, self.round);
    }

    /// A window that holds the bytes.
    #[inline(always)]
    pub(super) fn find(&self, address: u64, bytes: u64, kind: Kind) -> Option<Window> {
        let entries = &self.entries[kind as usize];
        for slot in slots(address) {
            if let Some(Some(entry)) = entries.get(slot)
                && entry.round == self.round
                && entry.window.holds(address, bytes)
            {
                return Some(entry.window);
            }
        }
        None
    }

    /// Keeps the window that the memory gave for an address.
    pub(super) fn keep(&mut self, address: u64, kind: Kind, window: Window) {
        let round = self.round;
        let entries = &mut self.entries[kind as usize];
        if entries.is_empty() {
            entries.resize(BLOCKS + PAGES, None);
        }
        let entry = Some(Entry { round, window });
        let [block, page] = slots(address);
        entries[page] = entry;
        let is_larger = |old: &Entry| {
            old.round == round
                && old.window.start() >> 21 == address >> 21
                && old.window.bytes() > window.bytes()
        };
        if !entries[block].as_ref().is_some_and(is_larger) {
            entries[block] = entry;
        }
    }
}

/// The slots of an address.
#[inline(always)]
fn slots(address: u64) -> [usize; 2] {
    let (block, page) = (address >> 21, address >> PAGE);
    [(block ^ block >> 6) as usize % BLOCKS, BLOCKS + (page ^ page >> 8) as usize % PAGES]
}
