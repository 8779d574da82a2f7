//! Contents without memory: what calls wrote, as a description.
//!
//! Calls write whole ranges: one value over and over, or one byte on each page. So 2 MiB of equal
//! pages take one entry, and others an array with a few bytes a page. Only pages with several
//! different bytes take memory as large as they are. Memory without an entry is zero.

use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::{BLOCK_BYTES, PAGE_BYTES, PAGES_PER_BLOCK};

use super::page::{LENGTH, Page, Places};

const PAGES: usize = PAGES_PER_BLOCK as usize;

/// The contents of memory, by address.
#[derive(Debug, Default)]
pub(super) struct Described {
    /// By va_block slot.
    blocks: BTreeMap<u64, Block>,
}

/// The pages of 2 MiB.
#[derive(Debug, Clone)]
enum Block {
    Alike(Page),
    Pages(Box<[Page; PAGES]>),
}

/// Pages on which a walk has the same places: every so many of a range.
struct Stroke {
    pages: Range<u64>,
    every: u64,
    places: Places,
}

impl Block {
    fn page(&self, at: u64) -> &Page {
        match self {
            Self::Alike(page) => page,
            Self::Pages(pages) => &pages[at as usize],
        }
    }

    fn page_mut(&mut self, at: u64) -> &mut Page {
        if let Self::Alike(page) = self {
            *self = Self::Pages(Box::new(std::array::from_fn(|_| page.clone())));
        }
        match self {
            Self::Pages(pages) => &mut pages[at as usize],
            Self::Alike(_) => unreachable!("it has pages now"),
        }
    }

    fn change_all(&mut self, act: impl Fn(&mut Page)) {
        match self {
            Self::Alike(page) => act(page),
            Self::Pages(pages) => {
                pages.iter_mut().for_each(act);
                let [first, others @ ..] = &**pages;
                if others.iter().all(|page| page == first) {
                    *self = Self::Alike(first.clone());
                }
            }
        }
    }
}

impl Described {
    /// The bytes of a page, by its number.
    pub(super) fn page(&self, number: u64) -> Page {
        let block = self.blocks.get(&(number / PAGES_PER_BLOCK));
        block.map_or(Page::ZERO, |block| block.page(number % PAGES_PER_BLOCK).clone())
    }

    pub(super) fn put_page(&mut self, number: u64, page: &Page) {
        self.change(number..number + 1, 1, |old| old.clone_from(page));
    }

    /// All pages that are not zero, by number. Nothing is described any more.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u64, Page)> + use<> {
        let blocks = std::mem::take(&mut self.blocks).into_iter();
        let pages = |(slot, block): (u64, Block)| {
            let numbered = move |at| (slot * PAGES_PER_BLOCK + at, block.page(at).clone());
            (0..PAGES_PER_BLOCK).map(numbered)
        };
        blocks.flat_map(pages).filter(|(_, page)| *page != Page::ZERO)
    }

    /// Whole pages are zero from now on.
    pub(super) fn clear(&mut self, address: u64, bytes: u64) {
        let (first, end) = (address / PAGE_BYTES, (address + bytes) / PAGE_BYTES);
        let inside = first.div_ceil(PAGES_PER_BLOCK)..end / PAGES_PER_BLOCK;
        if inside.is_empty() {
            return self.clear_pages(first..end);
        }
        self.clear_pages(first..inside.start * PAGES_PER_BLOCK);
        while let Some((&slot, _)) = self.blocks.range(inside.clone()).next() {
            self.blocks.remove(&slot);
        }
        self.clear_pages(inside.end * PAGES_PER_BLOCK..end);
    }

    /// Pages of one or two blocks.
    fn clear_pages(&mut self, pages: Range<u64>) {
        let slots = pages.start / PAGES_PER_BLOCK..pages.end.div_ceil(PAGES_PER_BLOCK);
        if self.blocks.range(slots).next().is_some() {
            self.change(pages, 1, |page| *page = Page::ZERO);
        }
    }

    pub(super) fn sum_strided(&self, address: u64, bytes: u64, stride: u64) -> u64 {
        let sum_of = |stroke: Stroke| self.sum(&stroke);
        strokes(address, bytes, stride).map(sum_of).sum()
    }

    fn sum(&self, Stroke { pages, every, places }: &Stroke) -> u64 {
        let slots = pages.start / PAGES_PER_BLOCK..pages.end.div_ceil(PAGES_PER_BLOCK);
        let of_block = |(slot, block): (&u64, &Block)| {
            let first = slot * PAGES_PER_BLOCK;
            let skipped = first.saturating_sub(pages.start).next_multiple_of(*every);
            let start = pages.start + skipped;
            let inside = (start..pages.end.min(first + PAGES_PER_BLOCK)).step_by(*every as usize);
            match block {
                Block::Alike(page) => inside.count() as u64 * page.sum(*places),
                Block::Pages(_) => inside.map(|page| block.page(page - first).sum(*places)).sum(),
            }
        };
        self.blocks.range(slots).map(of_block).sum()
    }

    pub(super) fn write_strided(&mut self, address: u64, bytes: u64, stride: u64, value: u8) {
        for Stroke { pages, every, places } in strokes(address, bytes, stride) {
            self.change(pages, every, |page| page.write(places, value));
        }
    }

    pub(super) fn add_strided(&mut self, address: u64, bytes: u64, stride: u64) {
        for Stroke { pages, every, places } in strokes(address, bytes, stride) {
            self.change(pages, every, |page| page.add(places));
        }
    }

    /// Writes a value of 1, 2 or 4 bytes over and over. The address is a multiple of its size.
    pub(super) fn fill(&mut self, address: u64, bytes: u64, pattern: &[u8]) {
        for Stroke { pages, every, places } in strokes(address, bytes, 1) {
            self.change(pages, every, |page| page.fill(places.first..places.end, pattern));
        }
    }

    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) {
        let mut left = bytes;
        for Stroke { pages, places, .. } in pages_of(address, left.len() as u64) {
            let page = self.page(pages.start).bytes();
            let (part, rest) = left.split_at_mut(places.end - places.first);
            part.copy_from_slice(&page[places.first..places.end]);
            left = rest;
        }
    }

    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) {
        let mut left = bytes;
        for Stroke { pages, places, .. } in pages_of(address, bytes.len() as u64) {
            let (part, rest) = left.split_at(places.end - places.first);
            self.change(pages, 1, |page| page.put(places.first, part));
            left = rest;
        }
    }

    /// Copies between ranges, which may overlap.
    pub(super) fn copy(&mut self, to: u64, from: u64, bytes: u64) {
        let pieces = pieces(to, from, bytes);
        if to > from && to - from < bytes {
            // The end first, or the source would be overwritten before it is copied.
            let mut pieces: Vec<Range<u64>> = pieces.collect();
            pieces.reverse();
            pieces.into_iter().for_each(|piece| self.copy_piece(to, from, &piece));
        } else {
            pieces.for_each(|piece| self.copy_piece(to, from, &piece));
        }
    }

    fn copy_piece(&mut self, to: u64, from: u64, piece: &Range<u64>) {
        let (to, from) = (to + piece.start, from + piece.start);
        match piece.end - piece.start {
            BLOCK_BYTES => match self.blocks.get(&(from / BLOCK_BYTES)).cloned() {
                Some(block) => _ = self.blocks.insert(to / BLOCK_BYTES, block),
                None => _ = self.blocks.remove(&(to / BLOCK_BYTES)),
            },
            PAGE_BYTES => self.put_page(to / PAGE_BYTES, &self.page(from / PAGE_BYTES)),
            length => {
                let mut buffer = [0; LENGTH];
                let bytes = &mut buffer[..length as usize];
                self.read(from, bytes);
                self.write(to, bytes);
            }
        }
    }

    /// Changes every so many pages of a range, all in the same way.
    fn change(&mut self, pages: Range<u64>, every: u64, act: impl Fn(&mut Page)) {
        let mut page = pages.start;
        while page < pages.end {
            let slot = page / PAGES_PER_BLOCK;
            let first = slot * PAGES_PER_BLOCK;
            let end = pages.end.min(first + PAGES_PER_BLOCK);
            let block = self.blocks.entry(slot).or_insert(Block::Alike(Page::ZERO));
            if every == 1 && end - page == PAGES_PER_BLOCK {
                block.change_all(&act);
                page = end;
            } else {
                while page < end {
                    act(block.page_mut(page - first));
                    page += every;
                }
            }
            if matches!(block, Block::Alike(page) if *page == Page::ZERO) {
                self.blocks.remove(&slot);
            }
        }
    }
}

/// A walk over the places of a range at a stride, in their order.
fn strokes(address: u64, bytes: u64, stride: u64) -> impl Iterator<Item = Stroke> {
    let end = address + bytes;
    let mut place = address;
    std::iter::from_fn(move || {
        if place >= end {
            return None;
        }
        let (page, at) = (place / PAGE_BYTES, place % PAGE_BYTES);
        let base = page * PAGE_BYTES;
        if stride.is_multiple_of(PAGE_BYTES) {
            let last = (end - 1 - place) / stride * stride + place;
            place = end;
            let places = Places { first: at as usize, end: at as usize + 1, stride: 1 };
            return Some(Stroke {
                pages: page..last / PAGE_BYTES + 1,
                every: stride / PAGE_BYTES,
                places,
            });
        }
        let whole = (end - base) / PAGE_BYTES;
        let is_even = PAGE_BYTES.is_multiple_of(stride) && at < stride && whole > 0;
        let (pages, until) =
            if is_even { (whole, PAGE_BYTES) } else { (1, (end - base).min(PAGE_BYTES)) };
        place = match is_even {
            true => place + pages * PAGE_BYTES,
            false => place.saturating_add((until - at).div_ceil(stride) * stride),
        };
        let stride = usize::try_from(stride).unwrap_or(usize::MAX);
        let places = Places { first: at as usize, end: until as usize, stride };
        Some(Stroke { pages: page..page + pages, every: 1, places })
    })
}

/// The parts of a range by its pages.
fn pages_of(address: u64, bytes: u64) -> impl Iterator<Item = Stroke> {
    let each = |Stroke { pages, places, .. }| {
        pages.map(move |page| Stroke { pages: page..page + 1, every: 1, places })
    };
    strokes(address, bytes, 1).flat_map(each)
}

/// The offsets of a copy in parts: whole blocks or pages on both sides, or bytes of one page.
fn pieces(to: u64, from: u64, bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let left = bytes - done;
        let holds = |unit: u64| {
            let is_whole = (to + done).is_multiple_of(unit) && (from + done).is_multiple_of(unit);
            is_whole && left >= unit
        };
        let in_page = |address: u64| PAGE_BYTES - (address + done) % PAGE_BYTES;
        let length =
            if holds(BLOCK_BYTES) { BLOCK_BYTES } else { left.min(in_page(to)).min(in_page(from)) };
        let piece = done..done + length;
        done += length;
        (length > 0).then_some(piece)
    })
}
