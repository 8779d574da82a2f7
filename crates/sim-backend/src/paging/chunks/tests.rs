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
fn lists_stay_short_however_often_chunks_move() {
    let mut chunks = Chunks::new(8 << 20);
    for block in 0..4 {
        chunks.allocate(block * 512, 512);
    }
    for round in 0..10_000 {
        chunks.note(round % 3 * 512, List::Used);
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
