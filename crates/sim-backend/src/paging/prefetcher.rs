//! The driver's density prefetcher: a tree that gives the pages a fault brings along.
//!
//! The leaves of the tree are the pages of one va_block, shifted so that 64 KiB pages fall on
//! nodes. A node is prefetched if more than a threshold of it is at the destination already or
//! faulted now; the largest such node wins. PAGING-100 to PAGING-109 are the driver's rules.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "leaves and nodes of a tree over 512 pages; percentages of them"
)]

use std::ops::Range;

use super::block::Block;
use super::groups::Groups;
use super::mask::{PAGES, PageMask, SIXTEENS};
use super::params::PagingParams;
use super::presence::Presence;
use super::processor::ProcId;
use super::protection::Protection;
use super::range::Policy;

/// Pages in a 64 KiB page.
const BIG: usize = 16;

/// Shape of a block as the tree sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tree {
    /// Pages of the block.
    pages: usize,
    /// Pages before the first 64 KiB boundary inside the block.
    prefix: usize,
    /// Leaves before page 0.
    offset: usize,
}

impl Tree {
    fn new(first_page: u64, pages: usize) -> Self {
        let prefix = (BIG - first_page as usize % BIG) % BIG;
        let has_big_page = prefix + BIG <= pages;
        let offset = if prefix > 0 && has_big_page { BIG - prefix } else { 0 };
        Self { pages, prefix, offset }
    }

    fn leaves(&self) -> usize {
        self.pages + self.offset
    }

    /// The unit of growth that holds a page: its 64 KiB page, the pages before the first or after
    /// the last one, or the whole block if it has none.
    fn unit(&self, page: usize) -> Range<usize> {
        if self.prefix + BIG > self.pages {
            return 0..self.pages;
        }
        if page < self.prefix {
            return 0..self.prefix;
        }
        let start = page - (page - self.prefix) % BIG;
        start..(start + BIG).min(self.pages)
    }

    /// The units of growth that hold one of these pages.
    fn units(&self, pages: PageMask) -> PageMask {
        if self.prefix == 0 && self.pages == PAGES {
            return pages.aligned_sixteens();
        }
        let mut units = PageMask::EMPTY;
        for page in pages.pages() {
            if !units.contains(page) {
                units.insert_range(self.unit(page));
            }
        }
        units
    }

    /// The pages of the largest node over a page of which more than `threshold` percent is in
    /// `counted`.
    fn node(&self, counted: &PageMask, page: usize, threshold: usize, quirk: bool) -> Range<usize> {
        let (leaf, leaves) = (page + self.offset, self.leaves());
        let all = counted.count();
        let mut found = leaf..leaf;
        let mut size = leaves.next_power_of_two();
        while size > 0 {
            let start = leaf & !(size - 1);
            let node = start..(start + size).min(leaves);
            let covered =
                node.start.max(self.offset) - self.offset..node.end.max(self.offset) - self.offset;
            let reaches = |count: usize| count * 100 > node.len() * threshold;
            // Most nodes are larger than all that is counted would fill.
            if reaches(all) && reaches(counted.count_in(covered)) {
                found = node;
                break;
            }
            size /= 2;
        }
        // The driver takes the offset itself for the first page of a node that starts before page
        // 0, and so loses the pages below it (PAGING-106).
        let back = |leaf: usize| match leaf.checked_sub(self.offset) {
            Some(page) => page,
            None if quirk => self.offset,
            None => 0,
        };
        back(found.start)..back(found.end).min(self.pages)
    }
}

/// The pages to bring along when `faulted` go to `destination`; none of them is in `faulted`.
pub(super) fn pages_to_prefetch(
    (params, groups, policy): (&PagingParams, &Groups, Policy),
    block: &mut Block,
    faulted: PageMask,
    destination: ProcId,
) -> PageMask {
    if !params.prefetch_enable {
        return PageMask::EMPTY;
    }
    let only = faulted.only();
    let count = block.count_faults(destination, only.map_or_else(|| faulted.count() as u32, |_| 1));
    if count < params.prefetch_min_faults {
        return PageMask::EMPTY;
    }
    let preferred = policy.preferred;
    let at_home = preferred == Some(destination);
    let mut candidate = if at_home && block.resident_anywhere().is_empty() {
        // First touch at home takes the whole block (PAGING-101).
        block.all()
    } else if params.prefetch_gated_by_preferred && preferred.is_some() && !at_home {
        PageMask::EMPTY
    } else {
        let is_whole = block.is_full_size() && block.thrashing().is_none();
        match only.filter(|_| is_whole) {
            Some(page) => PageMask::range(dense_node(params, block, page, destination)),
            None if is_whole => dense_big_pages(params, block, &faulted, destination),
            None => dense_nodes(params, block, faulted, destination),
        }
    };
    candidate = candidate.minus(faulted);
    if block.thrashing().is_some() {
        candidate = candidate.minus(block.thrashing_pages());
    }
    if !groups.is_empty() {
        candidate = candidate.minus(groups.left_alone(block, faulted));
    }
    if destination.is_host() {
        let there = block.resident(destination) & block.mapped(destination, Protection::Read);
        candidate = candidate.minus(there);
    }
    candidate
}

/// The pages that come with one faulted page, and itself, in a full block without advice or pages that
/// thrash.
pub(super) fn node_with(
    params: &PagingParams,
    block: &mut Block,
    page: usize,
    destination: ProcId,
) -> Range<usize> {
    let alone = page..page + 1;
    if !params.prefetch_enable || block.count_faults(destination, 1) < params.prefetch_min_faults {
        return alone;
    }
    let node = dense_node(params, block, page, destination);
    if node.is_empty() { alone } else { node }
}

/// The node that a single faulted page reaches, in a full block in which no page thrashes.
fn dense_node(
    params: &PagingParams,
    block: &Block,
    page: usize,
    destination: ProcId,
) -> Range<usize> {
    let threshold = params.prefetch_threshold_percent as usize;
    let none = PageMask::EMPTY;
    let resident = block.of(destination).map_or(&none, Presence::held);
    let [of_16, of_32, of_64] = resident.counts_around(page);
    // Beside what is resident, all of the page's 64 KiB page counts.
    let added = BIG - of_16;
    let all = resident.count() + added;
    let node = |size: usize| page & !(size - 1)..(page & !(size - 1)) + size;
    let reaches = |count: usize, size: usize| count * 100 > size * threshold;
    for size in [512, 256, 128] {
        // Few blocks hold as many pages.
        if reaches(all, size) {
            let count = resident.count_aligned(node(size).start, size);
            if reaches(count + added, size) {
                return node(size);
            }
        }
    }
    for (count, size) in [(of_64, 64), (of_32, 32), (of_16, BIG)] {
        if reaches(count + added, size) {
            return node(size);
        }
    }
    page..page
}

/// The union of the nodes that faulted pages reach, in a full block in which no page thrashes: all of
/// a page's 64 KiB page counts.
#[inline(never)]
fn dense_big_pages(
    params: &PagingParams,
    block: &Block,
    faulted: &PageMask,
    destination: ProcId,
) -> PageMask {
    let threshold = params.prefetch_threshold_percent as usize;
    let reaches = |count: usize, size: usize| count * 100 > size * threshold;
    if !reaches(BIG, BIG) {
        return PageMask::EMPTY;
    }
    let none = PageMask::EMPTY;
    let resident = block.of(destination).map_or(&none, Presence::held);
    let before = resident.counts_before_sixteens(faulted);
    let count = |start: usize, size: usize| usize::from(before[start + size] - before[start]);
    // Most nodes are larger than all that counts would fill.
    let mut most = SIXTEENS;
    while most > 1 && !reaches(count(0, SIXTEENS), most * BIG) {
        most /= 2;
    }
    let (mut left, mut nodes) = (faulted.sixteens(), 0);
    while left != 0 {
        let (big, mut size) = (left.trailing_zeros() as usize, most);
        while !reaches(count(big & !(size - 1), size), size * BIG) {
            size /= 2;
        }
        nodes |= u32::MAX >> (SIXTEENS - size) << (big & !(size - 1));
        left &= !nodes;
    }
    PageMask::of_sixteens(nodes)
}

/// The union of the nodes that the faulted pages reach.
fn dense_nodes(
    params: &PagingParams,
    block: &Block,
    faulted: PageMask,
    destination: ProcId,
) -> PageMask {
    let tree = Tree::new(block.first_page(), block.len());
    let thrashing = block.thrashing_pages();
    let units = tree.units(faulted).minus(tree.units(thrashing));
    let counted = block.resident(destination) | faulted | units;
    let threshold = params.prefetch_threshold_percent as usize;
    let node = |page| tree.node(&counted, page, threshold, params.prefetch_unaligned_quirk);
    let mut nodes = PageMask::EMPTY;
    for page in faulted.minus(thrashing).pages() {
        // All pages of a node have that node: no larger one over them is full enough.
        if nodes.contains(page) {
            continue;
        }
        let node = node(page);
        if !node.is_empty() {
            nodes.insert_range(node);
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::super::PagingParams;
    use super::super::mask::tests::irregular;
    use super::super::range::Policy;
    use super::super::testing::heard_in;
    use super::super::thrash::tests::make_thrashing;
    use super::*;
    use crate::GpuProfile;

    /// Sequential faults on a block: for each, the page and how many pages are there afterwards.
    fn sequence(first_page: u64, pages: usize, quirk: bool) -> Vec<(usize, usize)> {
        let tree = Tree::new(first_page, pages);
        let mut resident = PageMask::EMPTY;
        let mut steps = Vec::new();
        while resident.next_clear(0) < pages {
            let page = resident.next_clear(0);
            resident.insert(page);
            let mut counted = resident;
            counted.insert_range(tree.unit(page));
            let node = tree.node(&counted, page, 51, quirk);
            if node.start < node.end {
                resident.insert_range(node);
            }
            steps.push((page, resident.count()));
        }
        steps
    }

    #[test]
    fn a_full_block_is_read_in_six_faults() {
        // PAGING-103, PAGING-104.
        let steps = [(0, 16), (16, 32), (32, 64), (64, 128), (128, 256), (256, 512)];
        assert_eq!(sequence(0, 512, true), steps);
    }

    #[test]
    fn nodes_are_clipped_to_a_short_block() {
        // PAGING-105.
        assert_eq!(sequence(0, 48, true), [(0, 16), (16, 48)]);
        assert_eq!(sequence(0, 64, true), [(0, 16), (16, 32), (32, 64)]);
    }

    #[test]
    fn exactly_half_does_not_grow_and_one_more_does() {
        // PAGING-103: one fault in every second 64 KiB page, then a 17th.
        let tree = Tree::new(0, 512);
        let mut counted = PageMask::EMPTY;
        (0..16).for_each(|n| counted.insert_range(tree.unit(n * 32)));
        assert_eq!(tree.node(&counted, 0, 51, true), 0..16);
        let mut counted = PageMask::range(0..272);
        assert_eq!(tree.node(&counted, 0, 51, true), 0..512);
        counted = PageMask::range(0..256);
        assert_eq!(tree.node(&counted, 0, 51, true), 0..256);
    }

    #[test]
    fn a_node_of_which_exactly_the_threshold_is_there_does_not_grow() {
        // PAGING-103: more than 51 %. Full nodes have no such share; short blocks do.
        let node = |pages, there| Tree::new(0, pages).node(&PageMask::range(0..there), 0, 51, true);
        assert_eq!([node(100, 51), node(100, 52)], [0..64, 0..100]);
        assert_eq!([node(200, 102), node(200, 103)], [0..128, 0..200]);
    }

    #[test]
    fn three_quarters_of_a_node_bring_the_rest() {
        // PAGING-103: 64 KiB pages 1, 3, then 0.
        let tree = Tree::new(0, 512);
        let counted = PageMask::range(0..32) | PageMask::range(48..64);
        assert_eq!(tree.node(&counted, 0, 51, true), 0..64);
    }

    #[test]
    fn a_node_over_the_start_of_an_unaligned_block_loses_its_low_pages() {
        // PAGING-106: a prefix of 4 pages is an offset of 12.
        let tree = Tree::new(12, 100);
        assert_eq!((tree.prefix, tree.offset), (4, 12));
        let counted = PageMask::range(0..20);
        assert_eq!(tree.node(&counted, 2, 51, true), 12..20);
        assert_eq!(tree.node(&counted, 2, 51, false), 0..20);
        let prefix_only = tree.node(&PageMask::range(0..4), 2, 51, true);
        assert_eq!(prefix_only, 0..4);
        let empty = tree.node(&PageMask::range(0..4), 2, 20, true);
        assert_eq!((empty.start, empty.end), (12, 4));
    }

    #[test]
    fn growth_is_by_64_kib_page_prefix_and_suffix() {
        let tree = Tree::new(12, 100);
        let units = [0, 4, 19, 20, 99].map(|page| tree.unit(page));
        assert_eq!(units, [0..4, 4..20, 4..20, 20..36, 84..100]);
        assert_eq!(Tree::new(12, 98).unit(97), 84..98);
        assert_eq!(Tree::new(3, 20).unit(5), 0..20, "no whole 64 KiB page");
        assert_eq!(Tree::new(3, 20).offset, 0);
    }

    #[test]
    fn a_block_whose_only_whole_64_kib_page_is_its_last_grows_by_it() {
        let tree = Tree::new(12, 20);
        assert_eq!([tree.unit(3), tree.unit(4), tree.unit(19)], [0..4, 4..20, 4..20]);
        assert_eq!(tree.leaves(), 32);
    }

    #[test]
    fn a_node_counts_its_own_pages_only_and_without_any_there_is_none() {
        // Of the node over the prefix and one 64 KiB page only the prefix is there.
        let tree = Tree::new(12, 100);
        let counted = PageMask::range(0..4) | PageMask::range(20..36);
        assert_eq!(tree.node(&counted, 2, 51, true), 0..4);
        let nothing = tree.node(&PageMask::EMPTY, 5, 51, true);
        assert!(nothing.is_empty(), "{nothing:?}");
    }

    #[test]
    fn a_threshold_of_nothing_brings_the_whole_block() {
        assert_eq!(Tree::new(0, 512).node(&PageMask::single(7), 7, 0, true), 0..512);
    }

    /// The pages that a fault of the host on page 0 brings along. The host holds `resident`,
    /// maps `mapped` of it, and `thrashing` goes back and forth.
    fn brought(
        params: &PagingParams,
        preferred: Option<ProcId>,
        [resident, mapped, thrashing]: [Range<usize>; 3],
    ) -> PageMask {
        let policy = Policy { preferred, ..Policy::default() };
        let (pages, _) = heard_in(params, policy, |context| {
            let mut block = Block::new(0, 512);
            block.add_resident(ProcId::HOST, PageMask::range(resident));
            block.map(ProcId::HOST, PageMask::range(mapped), Protection::Read);
            for page in thrashing {
                make_thrashing(context, &mut block, page, &[ProcId::HOST, ProcId(1)]);
            }
            pages_to_prefetch(context.by_policy(), &mut block, PageMask::single(0), ProcId::HOST)
        });
        pages
    }

    #[test]
    fn the_gate_of_driver_595_stops_prefetches_that_leave_the_preferred_location() {
        // PAGING-102: 580 runs the tree wherever the preferred location is, 595 does not.
        let (home, elsewhere) = (Some(ProcId::HOST), Some(ProcId(1)));
        for gated in [false, true] {
            let params =
                PagingParams { prefetch_gated_by_preferred: gated, ..GpuProfile::h200().paging };
            let count = |preferred| brought(&params, preferred, [100..101, 0..0, 0..0]).count();
            assert_eq!([count(None), count(home)], [15, 15], "gated: {gated}");
            assert_eq!(count(elsewhere), if gated { 0 } else { 15 }, "gated: {gated}");
        }
    }

    #[test]
    fn the_host_is_brought_pages_that_it_holds_and_does_not_map() {
        // PAGING-107.
        let brought = brought(&GpuProfile::h200().paging, None, [1..12, 8..12, 0..0]);
        assert_eq!(brought, PageMask::range(1..8) | PageMask::range(12..16));
    }

    #[test]
    fn big_pages_bring_what_the_nodes_of_all_their_pages_do() {
        for seed in 0..100 {
            let [some, few] = [100, 200].map(|more| irregular(seed) & irregular(seed + more));
            let (resident, faulted) = (some.minus(few), few & irregular(seed + 300));
            let mut block = Block::new(512, 512);
            block.add_resident(ProcId(1), resident);
            for prefetch_threshold_percent in [0, 1, 25, 51, 99, 100] {
                let params =
                    PagingParams { prefetch_threshold_percent, ..GpuProfile::h200().paging };
                let brought = dense_big_pages(&params, &block, &faulted, ProcId(1));
                assert_eq!(brought, dense_nodes(&params, &block, faulted, ProcId(1)));
            }
        }
    }

    #[test]
    fn a_64_kib_page_counts_as_a_whole_unless_a_page_of_it_thrashes() {
        let params = GpuProfile::h200().paging;
        let brought = |thrashing| brought(&params, None, [0..0, 0..0, thrashing]);
        assert_eq!(brought(300..301), PageMask::range(1..16), "in another one");
        assert_eq!(brought(5..6), PageMask::EMPTY);
    }
}
