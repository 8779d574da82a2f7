//! Contents that stay behind in memory that pages have left.
//!
//! A page's contents are in the arena. Memory that a processor once got for the page stays when
//! the page moves on, with what it held then; a discarded page that becomes resident again without
//! a copy shows *that*. Here is kept what each processor's memory holds where it differs from the
//! arena. Nothing is copied until a page that left memory behind is written.
//!
//! PAGING-195 is the rule: a page written by the host, then by the GPU, then discarded, reads as the
//! host wrote it on the host and as the GPU wrote it on the GPU. CUDA calls such contents
//! indeterminate; programs must not rely on them.

use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::{PAGES_PER_BLOCK, Processor, Span};

use crate::arena::{Arena, Page};
use crate::paging::{Holding, PageMask};

/// Pages of a slot in the memory of one processor.
#[derive(Debug, Default)]
struct Saved {
    which: PageMask,
    /// By their number in the slot, ascending.
    pages: Vec<(usize, Page)>,
}

impl Saved {
    /// Adds a page, or replaces it.
    fn insert(&mut self, page: usize, contents: Page) {
        match self.pages.binary_search_by_key(&page, |(page, _)| *page) {
            Ok(at) => self.pages[at].1 = contents,
            Err(at) => self.pages.insert(at, (page, contents)),
        }
        self.which.insert(page);
    }

    fn get(&self, page: usize) -> Option<&Page> {
        let at = self.pages.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        self.pages.get(at).map(|(_, contents)| contents)
    }

    fn remove(&mut self, pages: PageMask) {
        if self.which.intersects(&pages) {
            self.which = self.which.minus(pages);
            self.pages.retain(|(page, _)| !pages.contains(*page));
        }
    }
}

/// A change of what a processor's memory holds.
#[derive(Debug)]
pub(crate) struct HoldingChange {
    pub(crate) first_page: u64,
    pub(crate) pages: PageMask,
    pub(crate) processor: Processor,
    pub(crate) now: Holding,
}

/// Memory that pages have left.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// By va_block slot and processor: pages of which the memory there still holds the arena's bytes.
    same: BTreeMap<(u64, Processor), PageMask>,
    /// By the same: pages of which the memory holds something else.
    saved: BTreeMap<(u64, Processor), Saved>,
}

impl Contents {
    /// Follows what the engine reported, in its order.
    pub(crate) fn follow(&mut self, arena: &mut Arena, change: &HoldingChange) {
        let HoldingChange { first_page, pages, processor, now } = change;
        let slot = first_page / PAGES_PER_BLOCK;
        let within = shifted_up(*pages, (first_page % PAGES_PER_BLOCK) as usize);
        match now {
            Holding::Left => self.same.entry((slot, *processor)).or_default().insert_mask(within),
            Holding::Copied | Holding::Gone => self.forget(slot, within, *processor),
            Holding::Shown => {
                self.show(arena, slot, within, *processor);
                self.forget(slot, within, *processor);
            }
        }
    }

    /// Makes the arena hold what a processor's memory held of pages: zeros where it is new.
    fn show(&mut self, arena: &mut Arena, slot: u64, pages: PageMask, processor: Processor) {
        let same = self.same.get(&(slot, processor)).copied().unwrap_or_default();
        let others = pages.minus(same);
        if others.is_empty() {
            return;
        }
        // The arena can only hold contents if the memory of some processor does.
        let same = self.same.range(of_slot(slot)).map(|(_, mask)| *mask);
        let saved = self.saved.range(of_slot(slot)).map(|(_, saved)| saved.which);
        let shown = others & same.chain(saved).fold(PageMask::EMPTY, |any, mask| any | mask);
        if shown.is_empty() {
            return;
        }
        self.save(arena, slot, shown);
        let saved = self.saved.get(&(slot, processor));
        for page in shown.pages() {
            let held = saved.and_then(|saved| saved.get(page));
            arena.put_page(slot * PAGES_PER_BLOCK + page as u64, held.unwrap_or(&Page::ZERO));
        }
    }

    /// A range is about to be written: memory that still holds the same keeps its own copy.
    pub(crate) fn before_write(&mut self, arena: &Arena, span: Span) {
        let pages = span.pages_outward();
        for slot in slots_of(&pages) {
            self.save(arena, slot, within(slot, &pages));
        }
    }

    /// Copies the arena's pages for all processors with memory that holds the same.
    fn save(&mut self, arena: &Arena, slot: u64, pages: PageMask) {
        for (key, mask) in self.same.range_mut(of_slot(slot)) {
            let saving = *mask & pages;
            if saving.is_empty() {
                continue;
            }
            let saved = self.saved.entry(*key).or_default();
            for page in saving.pages() {
                saved.insert(page, arena.page(slot * PAGES_PER_BLOCK + page as u64));
            }
            *mask = mask.minus(saving);
        }
    }

    fn forget(&mut self, slot: u64, pages: PageMask, processor: Processor) {
        if let Some(mask) = self.same.get_mut(&(slot, processor)) {
            *mask = mask.minus(pages);
        }
        if let Some(saved) = self.saved.get_mut(&(slot, processor)) {
            saved.remove(pages);
        }
    }

    /// The memory of a range is gone, with all that it held.
    pub(crate) fn remove(&mut self, pages: &Range<u64>) {
        let slots = slots_of(pages);
        let keys = (slots.start, Processor::HOST)..(slots.end, Processor::HOST);
        let mut gone: Vec<_> = self.same.range(keys.clone()).map(|(key, _)| *key).collect();
        gone.drain(..).for_each(|key| _ = self.same.remove(&key));
        for (key, saved) in self.saved.range_mut(keys) {
            saved.remove(within(key.0, pages));
            gone.extend(saved.pages.is_empty().then_some(*key));
        }
        gone.iter().for_each(|key| _ = self.saved.remove(key));
    }
}

/// Those of some pages that are in a slot, at least one, by their number there.
fn within(slot: u64, pages: &Range<u64>) -> PageMask {
    let base = slot * PAGES_PER_BLOCK;
    let start = pages.start.max(base) - base;
    let end = pages.end.min(base + PAGES_PER_BLOCK) - base;
    PageMask::range(start as usize..end as usize)
}

/// The keys of a slot, by processor.
fn of_slot(slot: u64) -> Range<(u64, Processor)> {
    (slot, Processor::HOST)..(slot + 1, Processor::HOST)
}

fn slots_of(pages: &Range<u64>) -> Range<u64> {
    pages.start / PAGES_PER_BLOCK..pages.end.div_ceil(PAGES_PER_BLOCK)
}

/// The pages of a mask, counted from a page that lies `by` pages earlier.
fn shifted_up(pages: PageMask, by: usize) -> PageMask {
    if by == 0 {
        return pages;
    }
    let mut shifted = PageMask::EMPTY;
    pages.runs().for_each(|run| shifted.insert_range(run.start + by..run.end + by));
    shifted
}

#[cfg(test)]
mod tests {
    use pagewise_hal::PAGE_BYTES;

    use super::*;
    use crate::arena::Zone;

    const GPU: Processor = Processor::device(0);

    /// A page of the arena, and what its first byte is.
    struct OnePage {
        arena: Arena,
        contents: Contents,
        number: u64,
    }

    impl OnePage {
        fn new() -> Self {
            let mut arena = Arena::default();
            let segment = arena.grow(Zone::Managed, 0, 1).expect("address space");
            let number = segment.start / PAGE_BYTES + 3;
            Self { arena, contents: Contents::default(), number }
        }

        fn follow(&mut self, processor: Processor, now: Holding) {
            let first_page = self.number;
            let pages = PageMask::single(0);
            let change = HoldingChange { first_page, pages, processor, now };
            self.contents.follow(&mut self.arena, &change);
        }

        fn write(&mut self, value: u8) {
            let ptr = pagewise_hal::DevicePtr(self.number * PAGE_BYTES);
            self.contents.before_write(&self.arena, Span::new(ptr, 1));
            self.arena.fill(ptr.0, PAGE_BYTES, &[value]);
        }

        fn value(&self) -> u8 {
            self.arena.byte(self.number * PAGE_BYTES)
        }
    }

    /// The host writes 5, the GPU 9, then the page is discarded (PAGING-195).
    fn discarded() -> OnePage {
        let mut page = OnePage::new();
        page.follow(Processor::HOST, Holding::Shown);
        page.write(5);
        page.follow(Processor::HOST, Holding::Left);
        page.follow(GPU, Holding::Copied);
        page.write(9);
        page.follow(GPU, Holding::Left);
        page
    }

    #[test]
    fn each_processor_finds_what_it_last_held() {
        let mut page = discarded();
        page.follow(Processor::HOST, Holding::Shown);
        assert_eq!(page.value(), 5);
        let mut page = discarded();
        page.follow(GPU, Holding::Shown);
        assert_eq!(page.value(), 9);
    }

    #[test]
    fn showing_one_memory_does_not_lose_the_other() {
        let mut page = discarded();
        page.follow(Processor::HOST, Holding::Shown);
        page.follow(Processor::HOST, Holding::Left);
        page.follow(GPU, Holding::Shown);
        assert_eq!(page.value(), 9);
        page.follow(GPU, Holding::Left);
        page.follow(Processor::HOST, Holding::Shown);
        assert_eq!(page.value(), 5);
    }

    #[test]
    fn new_memory_is_zero_even_if_a_write_passed_by() {
        let mut page = discarded();
        page.follow(Processor::device(1), Holding::Shown);
        assert_eq!(page.value(), 0);
        let mut page = discarded();
        let ptr = pagewise_hal::DevicePtr(page.number * PAGE_BYTES);
        page.contents.before_write(&page.arena, Span::new(ptr, 1));
        page.follow(Processor::device(1), Holding::Shown);
        assert_eq!(page.value(), 0, "recording discard, line 1349");
    }

    #[test]
    fn memory_that_is_gone_holds_nothing() {
        let mut page = discarded();
        page.follow(GPU, Holding::Gone);
        page.follow(GPU, Holding::Shown);
        assert_eq!(page.value(), 0);
        let mut page = discarded();
        page.follow(Processor::HOST, Holding::Gone);
        page.follow(Processor::HOST, Holding::Shown);
        assert_eq!(page.value(), 0, "nor what was put aside for it");
        let mut page = discarded();
        page.contents.remove(&(page.number..page.number + 512));
        assert!(page.contents.same.is_empty() && page.contents.saved.is_empty());
    }
}
