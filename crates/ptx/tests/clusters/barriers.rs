//! The barrier of a cluster.

use super::*;

#[test]
fn a_cluster_waits_at_its_barrier_for_a_block_that_waits_for_a_page() {
    let text = clustered(&format!(
        "mul.wide.u32 %off, %b, 4096; add.s64 %l0, %out, %off; ld.global.u32 %r0, [%l0+64];
         st.shared.u32 [%a], %r0; {SYNC} add.u32 %r1, %rank, 1; and.b32 %r1, %r1, 3;
         mapa.shared::cluster.u32 %r2, %a, %r1; ld.shared::cluster.u32 %r0, [%r2]; {SYNC}
         st.global.u32 [%mine], %r0;"
    ));
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    for block in 0..8 {
        memory.write_words(BASE + 4096 * block + 64, &[block as u32 + 10]);
    }
    memory.missing = vec![2, 7];
    let mut run = start(&text, ([8, 1, 1], 8, Some([4, 1, 1])), &Config::default()).unwrap();
    for page in [2, 7] {
        assert!(matches!(run.step(&mut memory, &mut journal, 1 << 20), Step::Waiting));
        assert!(run.outstanding().iter().any(|one| one.address == BASE + 4096 * page + 64));
        memory.missing.retain(|missing| *missing != page);
        memory.generation += 1;
    }
    assert!(matches!(run.step(&mut memory, &mut journal, 1 << 20), Step::Done(_)));
    let next = |t: u32| t / 32 * 4 + (t / 8 + 1) % 4 + 10;
    assert_eq!(memory.words(BASE, 64), (0..64).map(next).collect::<Vec<_>>());
}

#[test]
fn threads_that_have_ended_count_as_arrived() {
    // Before the barrier half of the threads of block 0 end, all of block 1, and of block 2 one that
    // has arrived and does not wait.
    let text = clustered(&format!(
        "setp.eq.u32 %p, %rank, 0; setp.ge.and.u32 %q, %i, 40, %p; @%q exit;
         setp.eq.u32 %p, %rank, 1; @%p exit;
         setp.eq.u32 %p, %rank, 2; setp.eq.and.u32 %q, %i, 33, %p;
         @!%q bra others; barrier.cluster.arrive; exit; others:
         mov.u32 %r0, 0; spin: add.u32 %r0, %r0, 1; setp.lt.u32 %p, %r0, 2000;
         @%p bra spin; st.global.u32 [%out+4096], %r0; {SYNC}
         ld.global.u32 %r0, [%out+4096]; add.u32 %r0, %r0, %t; st.global.u32 [%mine], %r0;"
    ));
    let ended = |t: u32| (40..128).contains(&t) || t == 161;
    let expected: Vec<u32> = (0..256).map(|t| if ended(t) { 0 } else { t + 2000 }).collect();
    for seed in SEEDS {
        assert_eq!(words(&text, (4, 64, 4), seed, 256), expected);
    }
}

#[test]
fn a_thread_that_arrives_and_ends_does_not_arrive_for_another() {
    // Thread 0 arrives and ends. Thread 1 of block 0 must wait for block 1, which takes longer.
    let text = clustered(
        "setp.ne.u32 %p, %t, 0; @%p bra others; barrier.cluster.arrive; exit; others:
         setp.eq.u32 %p, %rank, 0; @%p bra meet;
         mov.u32 %r0, 0; spin: add.u32 %r0, %r0, 1; setp.lt.u32 %q, %r0, 5000; @%q bra spin;
         st.global.u32 [%out+4096], %r0;
         meet: barrier.cluster.arrive; barrier.cluster.wait;
         ld.global.u32 %r0, [%out+4096]; st.global.u32 [%mine], %r0;",
    );
    assert_eq!(words(&text, (2, 2, 2), 0, 4), [0, 5000, 5000, 5000]);
}

#[test]
fn lanes_of_a_warp_arrive_and_wait_apart() {
    // Odd lanes go ahead through three phases; even ones come to each phase later.
    let text = clustered(
        "mov.u32 %r5, 0; mov.u32 %r6, 0; and.b32 %r0, %i, 1; setp.eq.u32 %p, %r0, 1;
         mov.u32 %r1, s; xor.b32 %r2, %rank, 1; mapa.shared::cluster.u32 %r1, %r1, %r2;
         st.shared.u32 [s], 0; barrier.cluster.arrive.relaxed; barrier.cluster.wait;
         again: @%p bra odd;
         mov.u32 %r3, 0; spin: add.u32 %r3, %r3, 1; setp.lt.u32 %q, %r3, 300; @%q bra spin;
         red.shared::cluster.add.u32 [%r1], 1; barrier.cluster.arrive; barrier.cluster.wait; bra both;
         odd: red.shared::cluster.add.u32 [%r1], 1; barrier.cluster.arrive;
         barrier.cluster.wait.acquire;
         both: ld.shared.u32 %r4, [s]; add.u32 %r6, %r6, %r4;
         barrier.cluster.arrive; barrier.cluster.wait;
         add.u32 %r5, %r5, 1; setp.lt.u32 %q, %r5, 3; @%q bra again; st.global.u32 [%mine], %r6;",
    );
    for seed in SEEDS {
        assert_eq!(words(&text, (2, 48, 2), seed, 96), vec![48 + 96 + 144; 96]);
    }
}

#[test]
fn work_between_arrival_and_wait_holds_nobody_back() {
    let text = clustered(
        "st.shared.u32 [%a], %t; barrier.cluster.arrive.release;
         mul.lo.u32 %r1, %t, 2; bar.sync 0; barrier.cluster.wait.acquire;
         xor.b32 %r2, %rank, 1; mapa.shared::cluster.u32 %r3, %a, %r2;
         ld.shared::cluster.u32 %r4, [%r3]; add.u32 %r4, %r4, %r1;
         barrier.cluster.arrive; barrier.cluster.wait; st.global.u32 [%mine], %r4;",
    );
    let expected: Vec<u32> = (0..128).map(|t| 2 * t + (t ^ 64)).collect();
    assert_eq!(words(&text, (2, 64, 2), 0, 128), expected);
}

#[test]
fn a_barrier_of_a_launch_without_clusters_is_one_of_the_block() {
    let text = clustered(&format!(
        "st.shared.u32 [%a], %t; {SYNC} xor.b32 %r0, %a, 128; mapa.shared::cluster.u32 %r0, %r0, %rank;
         ld.shared::cluster.u32 %r1, [%r0]; st.global.u32 [%mine], %r1;"
    ));
    let (end, mut memory) = finish(start(&text, ([3, 1, 1], 64, None), &limited(0)).unwrap());
    assert!(matches!(end, Step::Done(_)), "{end:?}");
    assert_eq!(memory.words(BASE, 192), (0..192).map(|t| t ^ 32).collect::<Vec<_>>());
}

#[test]
fn a_cluster_with_a_block_that_never_arrives_hangs() {
    let text = clustered(&format!(
        "setp.ne.u32 %p, %rank, 1; @%p bra meet; setp.ne.u32 %p, %i, 0; @%p bra meet;
         bar.sync 1, 64; meet: {SYNC}"
    ));
    assert_eq!(cause(&text, (4, 32, 4)), Cause::Deadlock);
    let waits = clustered("barrier.cluster.wait;");
    assert_eq!(cause(&waits, (2, 32, 2)), Cause::Deadlock);
}
