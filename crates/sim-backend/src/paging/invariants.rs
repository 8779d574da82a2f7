//! The invariants that every va_block satisfies between steps.
//!
//! Checked after every step in builds with debug assertions, so in all tests. A violation is a bug
//! of the engine, never of its caller.

use super::block::Block;
use super::mask::PageMask;
use super::processor::{ProcId, Relations};
use super::protection::Protection;

/// The first invariant that a block breaks, with the pages that break it.
pub(super) fn violation(block: &Block, relations: &Relations) -> Option<String> {
    let everybody = (0..relations.count()).map(|index| ProcId(index as u8));
    let mut once = PageMask::EMPTY;
    let mut twice = PageMask::EMPTY;
    for id in everybody.clone() {
        let resident = block.resident(id);
        twice |= once & resident;
        once |= resident;
    }
    let several = [
        ("pages behind the block's end are resident", once.minus(block.all())),
        ("pages with two owners are not read-duplicated", twice.minus(block.duplicated())),
    ];
    let each = everybody.flat_map(|id| broken_by(block, relations, id, twice));
    several.into_iter().chain(each).find(|(_, pages)| !pages.is_empty()).map(|(what, pages)| {
        let runs: Vec<_> = pages.runs().collect();
        format!("{what}: pages {runs:?} of the block at page {}", block.first_page())
    })
}

/// The rules that one processor's state could break, each with the pages against it.
fn broken_by(
    block: &Block,
    relations: &Relations,
    id: ProcId,
    duplicated: PageMask,
) -> [(&'static str, PageMask); 5] {
    let [read, write, atomic] = Protection::ALL.map(|level| block.mapped(id, level));
    let reachable = (0..relations.count())
        .map(|index| ProcId(index as u8))
        .filter(|owner| relations.can_access(id, *owner))
        .fold(PageMask::EMPTY, |pages, owner| pages | block.resident(owner));
    [
        ("resident pages have no memory", block.resident(id).minus(block.populated(id))),
        ("mapped pages are nowhere that the processor reaches", read.minus(reachable)),
        ("pages can be written but not read", write.minus(read)),
        ("pages can be updated but not written", atomic.minus(write)),
        ("duplicated pages can be written", write & duplicated),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: ProcId = ProcId(1);

    fn block() -> (Block, Relations) {
        let mut block = Block::new(512, 512);
        let all = block.all();
        block.populate(ProcId::HOST, all);
        block.add_resident(ProcId::HOST, PageMask::range(0..10));
        block.map(ProcId::HOST, PageMask::range(0..10), Protection::Atomic);
        (block, Relations::pcie_with_nvlink(1))
    }

    fn breaks(block: &Block, relations: &Relations, what: &str) {
        let found = violation(block, relations).expect("an invariant is broken");
        assert!(found.contains(what), "{found}");
    }

    #[test]
    fn a_sound_block_breaks_nothing() {
        let (mut block, relations) = block();
        block.map(GPU, PageMask::range(0..5), Protection::Write);
        assert_eq!(violation(&block, &relations), None);
    }

    #[test]
    fn each_planted_fault_is_named() {
        let (mut planted, relations) = block();
        planted.add_resident(GPU, PageMask::single(20));
        breaks(&planted, &relations, "no memory");
        planted.populate(GPU, PageMask::single(20));
        assert_eq!(violation(&planted, &relations), None);
        planted.map(ProcId::HOST, PageMask::single(20), Protection::Read);
        breaks(&planted, &relations, "nowhere that the processor reaches");

        let (mut planted, relations) = block();
        planted.populate(GPU, PageMask::single(3));
        planted.add_resident(GPU, PageMask::single(3));
        breaks(&planted, &relations, "not read-duplicated");
        planted.add_duplicated(PageMask::single(3));
        breaks(&planted, &relations, "duplicated pages can be written");
    }
}
