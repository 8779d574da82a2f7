//! Bulk copies and the transactions of mbarriers.

mod machine;

use machine::{BASE, Flat, Journal, PAGE, done, end, kernel, start, words};
use pagewise_ptx::execute::{Cause, Config, Kind, Step};

/// A kernel that declares what the bodies here use: shared bytes, an mbarrier, registers.
fn asynchronous(body: &str) -> String {
    kernel(&format!(
        ".shared .align 128 .b8 s[8192]; .shared .align 8 .b64 bar; .reg .b32 %r<9>; .reg .b64 %l<9>;
         .reg .pred %p, %q; setp.eq.u32 %p, %t, 0; {body}"
    ))
}

/// Waits for the phase of parity 0.
const WAIT: &str = "wait: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0; @!%q bra wait;";

#[test]
fn a_bulk_copy_into_shared_memory_ends_the_phase_that_expects_its_bytes() {
    let text = asynchronous(&format!(
        "@%p mbarrier.init.shared::cta.b64 [bar], 1; fence.proxy.async; bar.sync 0;
         @!%p bra wait;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%out], 256, [bar];
         mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 256;
         {WAIT}
         mov.u32 %r0, s; mad.lo.u32 %r0, %t, 4, %r0; ld.shared.u32 %r1, [%r0];
         add.u32 %r1, %r1, 1; st.global.u32 [%mine+256], %r1;"
    ));
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    let values: Vec<u32> = (0..64).map(|t| 7 * t).collect();
    memory.write_words(BASE, &values);
    let stats = done(&text, 1, 64, &mut memory, &mut journal);
    let expected: Vec<u32> = values.iter().map(|value| value + 1).collect();
    assert_eq!(memory.words(BASE + 256, 64), expected);
    assert_eq!(stats.bytes_read, 256);
}

/// Writes 4096 bytes of shared memory to the second half of a page and the first of the next.
fn store_over_two_pages() -> String {
    asynchronous(
        "mov.u32 %r0, s; mad.lo.u32 %r0, %t, 4, %r0; mov.u32 %r2, 0;
         fill: add.u32 %r3, %r2, %t; st.shared.u32 [%r0], %r3; add.u32 %r0, %r0, 128;
         add.u32 %r2, %r2, 32; setp.lt.u32 %q, %r2, 1024; @%q bra fill;
         bar.sync 0; mov.u32 %r4, 4096; add.s64 %l0, %out, 2048;
         @%p cp.async.bulk.global.shared::cta.bulk_group [%l0], [s], %r4;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;",
    )
}

#[test]
fn a_bulk_copy_waits_for_all_of_its_pages_and_moves_nothing_before() {
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    memory.missing = vec![1];
    let text = store_over_two_pages();
    let mut run = start(&text, "k", 1, 32, &BASE.to_le_bytes(), &Config::default());
    assert!(matches!(run.step(&mut memory, &mut journal, 1 << 20), Step::Waiting));
    let waits: Vec<_> = run.outstanding().iter().map(|one| (one.address, one.kind)).collect();
    assert_eq!(waits, [(BASE + PAGE, Kind::Write)]);
    assert_eq!(memory.words(BASE, 1024), [0; 1024]);
    memory.missing.clear();
    memory.generation += 1;
    let Step::Done(stats) = run.step(&mut memory, &mut journal, 1 << 20) else { panic!() };
    assert_eq!(memory.words(BASE + 2048, 1024), (0..1024).collect::<Vec<_>>());
    assert_eq!(stats.bytes_written, 4096);
}

#[test]
fn a_bulk_copy_lists_each_missing_page_once() {
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    memory.missing = vec![0, 1];
    let text = store_over_two_pages();
    let mut run = start(&text, "k", 1, 32, &BASE.to_le_bytes(), &Config::default());
    assert!(matches!(run.step(&mut memory, &mut journal, 1 << 20), Step::Waiting));
    let waits: Vec<_> = run.outstanding().iter().map(|one| one.address).collect();
    assert_eq!(waits, [BASE + 2048, BASE + PAGE]);
}

#[test]
fn bulk_copies_have_addresses_and_sizes_that_are_multiples_of_16() {
    for (to, size) in [(8, 64), (0, 24)] {
        let text = asynchronous(&format!(
            "mov.u32 %r0, {size}; add.s64 %l0, %out, {to};
             @%p cp.async.bulk.global.shared::cta.bulk_group [%l0], [s], %r0;"
        ));
        let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
        match end(&text, 1, 32, &mut memory, &mut journal) {
            Step::Trap(report) => assert_eq!(report.cause, Cause::Misaligned { bytes: 16 }),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_bulk_copy_beyond_shared_memory_is_refused_whole() {
    let text = asynchronous(
        "mov.u32 %r0, 8192; @%p cp.async.bulk.global.shared::cta.bulk_group [%out], [s+4096], %r0;",
    );
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    match end(&text, 1, 32, &mut memory, &mut journal) {
        Step::Trap(report) => assert!(matches!(report.cause, Cause::OutsideShared { .. })),
        other => panic!("{other:?}"),
    }
    assert_eq!(memory.words(BASE, 1024), [0; 1024]);
}

#[test]
fn bulk_reductions_combine_each_element() {
    let run = |operation: &str, old: [u32; 4], new: [u32; 4]| {
        let text = asynchronous(&format!(
            "mov.u32 %r0, s; mad.lo.u32 %r0, %t, 4, %r0; ld.global.u32 %r1, [%mine+16];
             st.shared.u32 [%r0], %r1; bar.sync 0;
             @%p cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%out], [s], 16;
             cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
        ));
        let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
        memory.write_words(BASE, &old);
        memory.write_words(BASE + 16, &new);
        done(&text, 1, 4, &mut memory, &mut journal);
        memory.words(BASE, 4)
    };
    assert_eq!(run("add.u32", [1, 2, 3, u32::MAX], [10, 20, 30, 1]), [11, 22, 33, 0]);
    assert_eq!(run("min.s32", [1, 2, 3, 0], [0, 5, 3, u32::MAX]), [0, 2, 3, u32::MAX]);
    assert_eq!(run("xor.b64", [1, 2, 3, 4], [1, 1, 1, 1]), [0, 3, 2, 5]);
    assert_eq!(run("inc.u32", [1, 2, 3, 4], [2, 2, 2, 9]), [2, 0, 0, 5]);
    // Two halves of 1.0 each, and sums of them.
    assert_eq!(run("add.noftz.f16", [0x3c00_3c00; 4], [0x3c00_4000; 4]), [0x4000_4200; 4]);
    // Singles keep what is below the normal numbers, unlike those of `atom`.
    assert_eq!(
        run("add.f32", [1, 0x3f80_0000, 0, 0], [1, 0x3f80_0000, 0, 0])[..2],
        [2, 0x4000_0000]
    );
}

/// The same kernel in a launch with clusters of one block.
fn clustered(text: &str) -> String {
    text.replace("(.param .u64 k_out) {", "(.param .u64 k_out) .reqnctapercluster 1 {")
}

/// Copies bytes within shared memory.
fn copy_within_shared_memory() -> String {
    asynchronous(&format!(
        "@%p mbarrier.init.shared::cta.b64 [bar], 1;
         mov.u32 %r0, s; mad.lo.u32 %r0, %t, 4, %r0; st.shared.u32 [%r0], %t; bar.sync 0;
         @!%p bra wait;
         mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 128;
         cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [s+1024], [s], 128, [bar];
         mbarrier.arrive.release.cta.shared::cta.b64 _, [bar];
         {WAIT} ld.shared.u32 %r1, [%r0+1024]; st.global.u32 [%mine], %r1;"
    ))
}

#[test]
fn a_copy_between_parts_of_shared_memory_tells_its_mbarrier() {
    let text = clustered(&copy_within_shared_memory());
    assert_eq!(words(&text, 1, 32, 32), (0..32).collect::<Vec<_>>());
}

/// As on an H100: the launch ends with CUDA_ERROR_ILLEGAL_INSTRUCTION.
#[test]
fn accesses_to_the_cluster_that_tell_an_mbarrier_need_a_launch_with_clusters() {
    let store = "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %t, [%r2];";
    let reduce = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 \
                  [%r1], %t, [%r2];";
    let remote = [store, reduce].map(|access| {
        asynchronous(&format!(
            "@%p mbarrier.init.shared::cta.b64 [bar], 1; bar.sync 0;
             mov.u32 %r1, s; mapa.shared::cluster.u32 %r1, %r1, 0;
             mov.u32 %r2, bar; mapa.shared::cluster.u32 %r2, %r2, 0; {access}"
        ))
    });
    for text in [copy_within_shared_memory(), remote[0].clone(), remote[1].clone()] {
        let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
        let Step::Trap(report) = end(&text, 1, 32, &mut memory, &mut journal) else {
            panic!("no trap: {text}");
        };
        assert_eq!(report.cause, Cause::NoCluster);
        let with = end(&clustered(&text), 1, 32, &mut memory, &mut journal);
        assert!(matches!(with, Step::Done(_)), "{with:?}");
    }
}

#[test]
fn copies_of_a_thread_arrive_at_a_barrier_by_any_address_of_it() {
    let wide = "mov.u32 %r0, bar; cvt.u64.u32 %l0, %r0; cvta.shared.u64 %l0, %l0;";
    for arrive in ["mbarrier.arrive.noinc.shared.b64 [bar]", "mbarrier.arrive.noinc.b64 [%l0]"] {
        let text = asynchronous(&format!(
            "@%p mbarrier.init.shared::cta.b64 [bar], 32; bar.sync 0; {wide}
             cp.async.{arrive}; {WAIT} st.global.u32 [%mine], 7;"
        ));
        assert_eq!(words(&text, 1, 32, 32), [7; 32]);
    }
}

#[test]
fn a_phase_ends_when_arrivals_and_transactions_have_come_in_any_order() {
    let test = |before: &str| {
        let text = asynchronous(&format!(
            "mbarrier.init.shared::cta.b64 [bar], 1; {before}
             mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %q, [bar], 0;
             selp.u32 %r0, 1, 0, %q; st.global.u32 [%out], %r0;"
        ));
        words(&text, 1, 1, 1)[0] == 1
    };
    let expect = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 48;";
    let complete = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 48;";
    let arrive = "mbarrier.arrive.shared::cta.b64 %l0, [bar];";
    let both = "mbarrier.arrive.expect_tx.shared::cta.b64 %l0, [bar], 48;";
    assert!(test(arrive));
    assert!(!test(&[expect, arrive].concat()));
    assert!(!test(&[expect, complete].concat()));
    assert!(test(&[expect, arrive, complete].concat()));
    assert!(test(&[complete, both].concat()));
    assert!(!test(both));
    assert!(test(&[both, complete].concat()));
}

#[test]
fn the_next_phase_starts_without_transactions() {
    let text = asynchronous(
        "mbarrier.init.shared::cta.b64 [bar], 1;
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
         mbarrier.complete_tx.shared::cta.b64 [bar], 16;
         mbarrier.arrive_drop.expect_tx.shared::cta.b64 %l1, [bar], 0;
         mbarrier.test_wait.shared::cta.b64 %q, [bar], %l1;
         mbarrier.pending_count.b64 %r1, %l1; selp.u32 %r0, 16, 0, %q; or.b32 %r0, %r0, %r1;
         st.global.u32 [%out], %r0;",
    );
    assert_eq!(words(&text, 1, 1, 1), [17]);
}

#[test]
fn a_copy_of_a_few_bytes_writes_zeros_where_a_predicate_ignores_its_source() {
    let text = asynchronous(
        "and.b32 %r1, %t, 1; setp.eq.u32 %q, %r1, 1; mov.u32 %r0, s; mad.lo.u32 %r0, %t, 4, %r0;
         add.u32 %r2, %t, 9; st.global.u32 [%mine], %r2;
         cp.async.ca.shared.global [%r0], [%mine], 4, %q; cp.async.wait_all;
         ld.shared.u32 %r2, [%r0]; st.global.u32 [%mine], %r2;",
    );
    let expected: Vec<u32> = (0..32).map(|t| if t % 2 == 1 { 0 } else { t + 9 }).collect();
    assert_eq!(words(&text, 1, 32, 32), expected);
}
