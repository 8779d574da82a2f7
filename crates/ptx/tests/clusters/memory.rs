//! Shared memory of other blocks.

use super::*;

#[test]
fn every_way_to_another_block_reaches_the_same_word() {
    // The block behind this one in the circle of the cluster writes, and this one reads.
    let next = "add.u32 %r1, %rank, 1; rem.u32 %r1, %r1, %size; mad.lo.u32 %r0, %t, 3, 7;";
    let named = "mapa.shared::cluster.u32 %r2, %a, %r1;";
    let wide = "cvt.u64.u32 %l0, %a; mapa.shared::cluster.u64 %l1, %l0, %r1;";
    let generic = "cvt.u64.u32 %l0, %a; cvta.shared.u64 %l0, %l0; mapa.u64 %l1, %l0, %r1;";
    let there = "cvta.to.shared::cluster.u64 %l2, %l1;";
    for write in [
        format!("{named} st.shared::cluster.u32 [%r2], %r0;"),
        format!("{wide} st.relaxed.cluster.shared::cluster.u32 [%l1], %r0;"),
        format!("{generic} st.u32 [%l1], %r0;"),
        format!("{generic} {there} st.shared::cluster.u32 [%l2], %r0;"),
        format!("{generic} {there} cvta.shared::cluster.u64 %l1, %l2; st.volatile.u32 [%l1], %r0;"),
        format!("{named} atom.shared::cluster.exch.b32 %r3, [%r2], %r0;"),
        format!("{named} red.shared::cluster.add.u32 [%r2], %r0;"),
        format!("{generic} atom.add.u32 %r3, [%l1], %r0;"),
    ] {
        let text = clustered(&format!(
            "st.shared.u32 [%a], 0; {SYNC} {next} {write} {SYNC} ld.shared.u32 %r0, [%a];
             st.global.u32 [%mine], %r0;"
        ));
        let from = |t: u32| t / 128 * 128 + (t + 96) % 128;
        let expected: Vec<u32> = (0..256).map(|t| 3 * from(t) + 7).collect();
        assert_eq!(words(&text, (8, 32, 4), SEEDS[1], 256), expected, "{write}");
    }
    for read in [
        format!("{named} ld.shared::cluster.u32 %r0, [%r2];"),
        format!("{named} ld.acquire.cluster.shared::cluster.u32 %r0, [%r2];"),
        format!("{generic} ld.u32 %r0, [%l1];"),
    ] {
        let text = clustered(&format!(
            "st.shared.u32 [%a], %t; {SYNC} {next} {read} {SYNC} st.global.u32 [%mine], %r0;"
        ));
        let expected: Vec<u32> = (0..256).map(|t| t / 128 * 128 + (t + 32) % 128).collect();
        assert_eq!(words(&text, (8, 32, 4), SEEDS[2], 256), expected, "{read}");
    }
}

#[test]
fn lanes_of_a_warp_reach_different_blocks() {
    // Some lanes of each warp are in the block itself, and some do not read.
    for read in [
        "mapa.shared::cluster.u32 %r2, %a, %r1; @%p ld.shared::cluster.u32 %r0, [%r2+128];",
        "cvt.u64.u32 %l0, %a; cvta.shared.u64 %l0, %l0; mapa.u64 %l1, %l0, %r1; @%p ld.u32 %r0, [%l1+128];",
    ] {
        for ranks in [4, 1] {
            let text = clustered(&format!(
                "st.shared.u32 [%a+128], %t; {SYNC} rem.u32 %r1, %i, {ranks}; setp.ne.u32 %p, %i, 5;
                 mov.u32 %r0, 77; {read} {SYNC} st.global.u32 [%mine], %r0;"
            ));
            let of = |t: u32| t / 128 * 128 + t % 32 % ranks * 32 + t % 32;
            let expected: Vec<u32> =
                (0..256).map(|t| if t % 32 == 5 { 77 } else { of(t) }).collect();
            assert_eq!(words(&text, (8, 32, 4), SEEDS[1], 256), expected, "{read} {ranks}");
        }
    }
}

#[test]
fn a_row_that_passes_the_end_of_another_block_is_refused_whole() {
    for (at, outside) in [(896, false), (900, true)] {
        let text = clustered(&format!(
            "st.global.u32 [%mine], 9; {SYNC} xor.b32 %r1, %rank, 1; add.u32 %r2, %a, {at};
             mapa.shared::cluster.u32 %r2, %r2, %r1; st.shared::cluster.u32 [%r2], %t; {SYNC}
             ld.shared.u32 %r3, [%a+896]; st.global.u32 [%mine], %r3;"
        ));
        if outside {
            assert_eq!(cause(&text, (2, 32, 2)), Cause::OutsideShared { bytes: 2048 });
        } else {
            assert_eq!(
                words(&text, (2, 32, 2), 0, 64),
                (0..64).map(|t| t ^ 32).collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn vectors_and_pairs_of_words_move_between_blocks() {
    let text = clustered(&format!(
        "mov.u32 %r0, s; mad.lo.u32 %r0, %i, 16, %r0; xor.b32 %r1, %rank, 1;
         mapa.shared::cluster.u32 %r0, %r0, %r1; add.u32 %r2, %t, 1;
         st.shared::cluster.v4.u32 [%r0], {{%t, %r2, %t, %r2}}; {SYNC}
         ld.shared::cluster.v2.u64 {{%l0, %l1}}, [%r0]; add.u64 %l0, %l0, %l1; {SYNC}
         mov.b64 {{%r1, %r2}}, %l0; add.u32 %r1, %r1, %r2; ld.shared.u32 %r2, [%a];
         mad.lo.u32 %r1, %r2, 1000, %r1; st.global.u32 [%mine], %r1;"
    ));
    let first = |t: u32| (t ^ 32) / 32 * 32 + t % 32 / 4 + t % 2;
    let expected: Vec<u32> = (0..64).map(|t| 1000 * first(t) + 4 * t + 2).collect();
    assert_eq!(words(&text, (2, 32, 2), 0, 64), expected);
}

#[test]
fn addresses_name_their_block() {
    // A digit for each question, asked of the block's own address and of one in the next block.
    let ask = |address: &str| {
        format!(
            "getctarank.u64 %r0, {address}; mad.lo.u32 %r7, %r7, 10, %r0;
             isspacep.shared::cta %p, {address}; selp.u32 %r0, 1, 0, %p; mad.lo.u32 %r7, %r7, 10, %r0;
             isspacep.shared %p, {address}; selp.u32 %r0, 1, 0, %p; mad.lo.u32 %r7, %r7, 10, %r0;
             isspacep.shared::cluster %p, {address}; selp.u32 %r0, 1, 0, %p;
             mad.lo.u32 %r7, %r7, 10, %r0; cvta.to.shared::cluster.u64 %l3, {address};
             getctarank.shared::cluster.u64 %r0, %l3; mad.lo.u32 %r7, %r7, 10, %r0;"
        )
    };
    let text = clustered(&format!(
        "mov.u32 %r7, 0; cvt.u64.u32 %l0, %a; cvta.shared.u64 %l0, %l0; {}
         add.u32 %r1, %rank, 1; rem.u32 %r1, %r1, %size; mapa.u64 %l1, %l0, %r1; {}
         mapa.u64 %l2, %l1, %rank; setp.eq.u64 %p, %l2, %l0; @!%p trap;
         mapa.shared::cluster.u32 %r2, s+4, %r1; getctarank.shared::cluster.u32 %r3, %r2;
         setp.eq.u32 %p, %r3, %r1; @!%p trap; isspacep.shared::cluster %p, %out; @%p trap;
         st.global.u32 [%mine], %r7;",
        ask("%l0"),
        ask("%l1")
    ));
    assert_eq!(words(&text, (3, 1, 3), 0, 3), [111_010_011, 1_111_120_012, 2_111_200_010]);
}

#[test]
fn an_address_beyond_the_cluster_or_its_shared_memory_ends_the_kernel() {
    let read = |rank: u32, address: &str| {
        clustered(&format!(
            "{SYNC} mov.u32 %r0, {rank}; mapa.shared::cluster.u32 %r1, {address}, %r0;
             ld.shared::cluster.u32 %r2, [%r1]; {SYNC}"
        ))
    };
    let beyond = Cause::OutsideCluster { blocks: 2 };
    for rank in [2, 15, 254, 255, u32::MAX] {
        assert_eq!(cause(&read(rank, "%a"), (2, 1, 2)), beyond, "{rank}");
    }
    // The variable ends at 1024 + 1024.
    for address in ["s+1024", "s+4096", "s+16776188"] {
        assert_eq!(cause(&read(1, address), (2, 1, 2)), Cause::OutsideShared { bytes: 2048 });
    }
    let generic = clustered(
        "cvt.u64.u32 %l0, %a; cvta.shared.u64 %l0, %l0; mov.u32 %r0, 7; mapa.u64 %l1, %l0, %r0;
         st.u32 [%l1], %r0;",
    );
    assert_eq!(cause(&generic, (2, 1, 2)), beyond);
    let none = clustered("mov.u32 %r0, 0; mapa.u64 %l1, %out, %r0; st.u32 [%l1], %r0;");
    assert_eq!(cause(&none, (2, 1, 2)), beyond);
    // Without `::cluster` the address has to be in the block.
    let other = clustered(
        "xor.b32 %r0, %rank, 1; mapa.shared::cluster.u32 %r1, %a, %r0; ld.shared.u32 %r2, [%r1];",
    );
    assert!(matches!(cause(&other, (2, 1, 2)), Cause::OutsideShared { .. }));
    let misaligned = clustered(
        "mov.u32 %r0, 1; mapa.shared::cluster.u32 %r1, s+2, %r0; st.shared::cluster.u32 [%r1], %r0;",
    );
    assert_eq!(cause(&misaligned, (2, 1, 2)), Cause::Misaligned { bytes: 4 });
}

#[test]
fn the_shared_memory_of_a_block_that_has_ended_is_gone() {
    let text = clustered(
        "setp.eq.u32 %p, %rank, 1; @%p exit; barrier.cluster.arrive; barrier.cluster.wait;
         mov.u32 %r0, 1; mapa.shared::cluster.u32 %r1, %a, %r0; ld.shared::cluster.u32 %r2, [%r1];",
    );
    assert_eq!(cause(&text, (4, 1, 2)), Cause::EndedBlock { rank: 1 });
}

#[test]
fn asynchronous_stores_and_reductions_tell_the_mbarrier_of_their_block() {
    let body = |access: &str, bytes: u32| {
        clustered(&format!(
            "setp.eq.u32 %p, %i, 0; @%p mbarrier.init.shared::cta.b64 [bar], 1;
             mov.u32 %r8, 0; st.shared.u32 [%a], %r8; bar.sync 0;
             @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {};
             fence.mbarrier_init.release.cluster; {SYNC}
             xor.b32 %r0, %rank, 1; mapa.shared::cluster.u32 %r1, %a, %r0;
             mapa.shared::cluster.u32 %r2, bar, %r0; {access}
             wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [bar], 0; @!%q bra wait;
             ld.shared.u32 %r3, [%a]; st.global.u32 [%mine], %r3; {SYNC}",
            32 * bytes
        ))
    };
    let way = "shared::cluster.mbarrier::complete_tx::bytes";
    let crossed: Vec<u32> = (0..64).map(|t| t ^ 32).collect();
    let store = format!("st.async.weak.{way}.b32 [%r1], %t, [%r2];");
    assert_eq!(words(&body(&store, 4), (2, 32, 2), 0, 64), crossed);
    let reduce = format!(
        "red.async.relaxed.cluster.{way}.add.u32 [%r1], %t, [%r2];
         red.async.relaxed.cluster.{way}.inc.u32 [%r1], 1000, [%r2];"
    );
    let next: Vec<u32> = crossed.iter().map(|t| t + 1).collect();
    assert_eq!(words(&body(&reduce, 8), (2, 32, 2), SEEDS[1], 64), next);
    let vector = format!(
        "mov.u32 %r3, s; mad.lo.u32 %r3, %i, 16, %r3; mapa.shared::cluster.u32 %r3, %r3, %r0;
         st.async.{way}.v4.b32 [%r3], {{%t, %t, %t, %t}}, [%r2];"
    );
    let quarters: Vec<u32> = (0..64).map(|t| (t ^ 32) / 32 * 32 + t % 32 / 4).collect();
    assert_eq!(words(&body(&vector, 16), (2, 32, 2), 0, 64), quarters);
}

#[test]
fn a_bulk_copy_and_an_arrival_reach_another_block() {
    let text = clustered(&format!(
        "setp.eq.u32 %p, %i, 0; @%p mbarrier.init.shared::cta.b64 [bar], 2;
         st.shared.u32 [%a], %t; bar.sync 0;
         @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128; {SYNC}
         xor.b32 %r0, %rank, 1; mapa.shared::cluster.u32 %r1, s+512, %r0;
         mapa.shared::cluster.u32 %r2, bar, %r0; @!%p bra wait;
         cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [s], 128, [%r2];
         mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];
         wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [bar], 0; @!%q bra wait;
         ld.shared.u32 %r3, [%a+512]; st.global.u32 [%mine], %r3; {SYNC}"
    ));
    assert_eq!(words(&text, (2, 32, 2), 0, 64), (0..64).map(|t| t ^ 32).collect::<Vec<_>>());
    let beyond = text.replace("[s], 128", "[s], 1024");
    assert_eq!(cause(&beyond, (2, 32, 2)), Cause::OutsideShared { bytes: 2056 });
}
