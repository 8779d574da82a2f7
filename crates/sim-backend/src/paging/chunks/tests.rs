//! Claims about the lists of root chunks and their pieces.

use super::*;

fn first_of(chunks: &mut Chunks) -> u64 {
    let id = chunks.next_to_give_up().expect("something in use");
    chunks.first_piece(id).expect("a piece")
}

#[test]
fn unused_goes_before_discarded_before_least_recently_serviced() {
    let mut chunks = Chunks::new(8 << 20);
    for block in 0..4 {
        chunks.allocate(block * 512, 512);
    }
    assert!(!chunks.has_room(512));
    chunks.note(0, List::Used);
    assert_eq!(first_of(&mut chunks), 512);
    chunks.note(1536, List::Discarded);
    assert_eq!(first_of(&mut chunks), 1536);
    chunks.note(1024, List::Unused);
    assert_eq!(first_of(&mut chunks), 1024);
    chunks.free(&(1024..1536));
    assert!(chunks.has_room(512));
}

#[test]
fn small_pieces_share_a_chunk_and_go_together() {
    let mut chunks = Chunks::new(2 << 20);
    chunks.allocate(0, BIG);
    chunks.allocate(600, 1);
    assert!(chunks.has_room(BIG) && chunks.has_room(1) && !chunks.has_room(ROOT));
    let shared = chunks.next_to_give_up().expect("one chunk");
    assert_eq!((chunks.first_piece(shared), chunks.in_use()), (Some(0), 1));
    assert_eq!(chunks.pieces_in(shared, &(0..512)), vec![0..16; 1]);
    assert!(!chunks.has_piece_in(shared, &(16..600)));
    chunks.free(&(0..100));
    assert_eq!((chunks.in_use(), chunks.first_piece(shared)), (1, Some(600)));
    chunks.free(&(600..601));
    assert_eq!(chunks.in_use(), 0);
}

#[test]
fn pages_that_become_free_together_are_64_kib_again() {
    // EVICTION-9.
    let mut chunks = Chunks::new(2 << 20);
    (0..3).for_each(|page| _ = chunks.allocate(page, 1));
    (1..32).for_each(|piece| _ = chunks.allocate(piece * 16, BIG));
    assert!(!chunks.has_room(BIG));
    chunks.free(&(0..3));
    assert!(chunks.has_room(BIG));
}

#[test]
fn a_chunk_that_loses_a_piece_goes_to_the_end_of_its_list() {
    // EVICTION-5.
    let mut chunks = Chunks::new(8 << 20);
    chunks.allocate(0, BIG);
    chunks.allocate(BIG.into(), BIG);
    chunks.allocate(512, ROOT);
    assert_eq!(first_of(&mut chunks), 0);
    chunks.free(&(0..16));
    assert_eq!(first_of(&mut chunks), 512);
}

#[test]
fn a_cut_block_keeps_its_memory_in_pieces_and_its_place() {
    // EVICTION-6.
    let mut chunks = Chunks::new(8 << 20);
    chunks.allocate(512, ROOT);
    chunks.allocate(1024, ROOT);
    chunks.split_at(512 + 36);
    let id = chunks.next_to_give_up().expect("a chunk");
    assert_eq!(
        chunks.pieces_in(id, &(512..548)),
        [512..528, 528..544, 544..545, 545..546, 546..547, 547..548]
    );
    assert_eq!(chunks.pieces_in(id, &(548..1024)).len(), 12 + 29);
    chunks.free(&(512..548));
    assert_eq!(first_of(&mut chunks), 1024, "it lost pieces");
    chunks.free(&(548..1024));
    assert_eq!(chunks.in_use(), 1);
}

#[test]
fn a_chunk_that_the_running_step_took_stays_on_the_list_of_used_ones() {
    // EVICTION-4.
    let mut chunks = Chunks::new(8 << 20);
    chunks.allocate(0, ROOT);
    let taken = chunks.allocate(512, ROOT);
    chunks.pin(taken);
    chunks.note(512, List::Unused);
    chunks.unpin();
    assert_eq!(first_of(&mut chunks), 0);
    chunks.note(512, List::Unused);
    assert_eq!(first_of(&mut chunks), 512);
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
fn a_chunk_is_in_one_place_however_often_it_moves() {
    let mut chunks = Chunks::new(8 << 20);
    for block in 0..4 {
        chunks.allocate(block * 512, 512);
    }
    for round in 0..10_000 {
        chunks.note(round % 3 * 512, List::Used);
    }
    assert_eq!(chunks.lists.iter().count(), 4);
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

#[test]
fn a_step_has_the_effect_of_taking_a_chunk_or_moving_it_and_none_if_others_went() {
    let mut chunks = Chunks::new(8 << 20);
    let nowhere = chunks.standing(0);
    chunks.allocate(0, ROOT);
    let there = chunks.standing(0);
    let taken = Effect { taken: true, placed: Some(List::Used) };
    assert_eq!(nowhere.effect(&there), Some(taken));
    assert_eq!(there.effect(&there), Some(Effect { taken: false, placed: None }));
    chunks.note(0, List::Discarded);
    let placed = Effect { taken: false, placed: Some(List::Discarded) };
    assert_eq!(there.effect(&chunks.standing(0)), Some(placed));
    let before = chunks.standing(512);
    chunks.allocate(512, ROOT);
    chunks.allocate(1024, ROOT);
    assert_eq!(before.effect(&chunks.standing(512)), None, "two were taken");
    let before = chunks.standing(512);
    chunks.free(&(0..512));
    assert_eq!(before.effect(&chunks.standing(512)), None, "another was given up");
}

#[test]
fn an_effect_is_repeated_where_there_is_room_for_it() {
    let mut chunks = Chunks::new(6 << 20);
    let taken = Effect { taken: true, placed: Some(List::Used) };
    let placed = Effect { taken: false, placed: Some(List::Unused) };
    for block in 0..3 {
        assert!(chunks.can(taken), "block {block}");
        chunks.repeat(block * 512, taken);
    }
    assert!(!chunks.can(taken) && chunks.can(placed));
    assert_eq!((chunks.in_use(), first_of(&mut chunks)), (3, 0));
    chunks.repeat(1024, placed);
    assert_eq!((chunks.in_use(), first_of(&mut chunks)), (3, 1024));
    chunks.repeat(0, Effect { taken: false, placed: None });
    assert_eq!(first_of(&mut chunks), 1024);
}

#[test]
fn the_peak_counts_chunks_in_use_and_claimed_up_to_the_capacity() {
    let mut chunks = Chunks::new(8 << 20);
    assert_eq!((chunks.capacity(), chunks.turnover().peak_chunks), (4, 0));
    chunks.allocate(0, ROOT);
    assert_eq!(chunks.turnover().peak_chunks, 1);
    chunks.claim((2 << 20) + 1);
    assert_eq!(chunks.turnover().peak_chunks, 3);
    chunks.claim(100 << 20);
    assert_eq!((chunks.capacity(), chunks.turnover().peak_chunks), (4, 4));
    chunks.claim(0);
    chunks.free(&(0..512));
    assert_eq!(chunks.turnover().peak_chunks, 4);
}

#[test]
fn a_chunk_counts_as_written_once_a_piece_of_it_was_evicted() {
    // EVICTION-8.
    let is_written = |evicts: bool| {
        let mut chunks = Chunks::new(8 << 20);
        chunks.allocate(0, BIG);
        let id = chunks.allocate(16, BIG);
        if evicts {
            chunks.evict(&(0..16))
        } else {
            chunks.free(&(0..16))
        }
        chunks.root(id).evicted
    };
    assert_eq!([true, false].map(is_written), [true, false]);
    let mut chunks = Chunks::new(8 << 20);
    let id = chunks.allocate(0, ROOT);
    chunks.evict(&(0..512));
    assert_eq!((chunks.in_use(), chunks.turnover().evicted_pages), (0, 512));
    assert_eq!((chunks.allocate(0, BIG), chunks.root(id).evicted), (id, true));
    assert_eq!(chunks.turnover().returned_pages, 16);
    chunks.free(&(0..16));
    assert!(!chunks.root(id).evicted, "given back as free memory");
}
