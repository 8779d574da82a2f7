//! Clusters: blocks that are resident together, their barrier, and each other's shared memory.

mod machine;

use machine::{BASE, Flat, Journal, kernel, load, module};
use pagewise_ptx::execute::{Cause, Config, Launch, Run, SmLimits, StartError, Step};
use pagewise_ptx::module::{Module, Target};

/// Orders of blocks: ascending, and two others.
const SEEDS: [u64; 3] = [0, 0x9e37_79b9_7f4a_7c15, 0x1234_5678_0000_0007];

type Shape = [u32; 3];

fn start(
    text: &str,
    (grid, block, cluster): (Shape, u32, Option<Shape>),
    config: &Config,
) -> Result<Run, StartError> {
    let launch = Launch {
        grid,
        block: [block, 1, 1],
        dynamic_shared: 0,
        params: &BASE.to_le_bytes(),
        cooperative: false,
        cluster,
    };
    load(text).instantiate(&[]).unwrap().kernel("k").unwrap().start(&launch, config)
}

/// Runs a grid to its end, and gives the end and the memory.
fn finish(mut run: Run) -> (Step, Flat) {
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    loop {
        match run.step(&mut memory, &mut journal, 100_000) {
            Step::Paused => {}
            end => return (end, memory),
        }
    }
}

fn limited(seed: u64) -> Config {
    Config { seed, instruction_limit: Some(10_000_000), ..Config::default() }
}

/// The first words of memory behind a kernel with a grid in x.
fn words(text: &str, (grid, block, cluster): (u32, u32, u32), seed: u64, count: usize) -> Vec<u32> {
    let shape = ([grid, 1, 1], block, Some([cluster, 1, 1]));
    let (end, mut memory) = finish(start(text, shape, &limited(seed)).unwrap());
    assert!(matches!(end, Step::Done(_)), "{end:?}");
    memory.words(BASE, count)
}

/// The cause for which a kernel ends.
fn cause(text: &str, (grid, block, cluster): (u32, u32, u32)) -> Cause {
    let shape = ([grid, 1, 1], block, Some([cluster, 1, 1]));
    match finish(start(text, shape, &limited(0)).unwrap()).0 {
        Step::Trap(report) => report.cause,
        other => panic!("{other:?}"),
    }
}

/// A kernel with what the bodies here use: shared words, registers, the rank and size of the cluster.
fn clustered(body: &str) -> String {
    kernel(&format!(
        ".shared .align 16 .b32 s[256]; .shared .align 8 .b64 bar;
         .reg .b32 %i, %rank, %size, %a, %r<9>; .reg .b64 %l<9>; .reg .pred %p, %q;
         mov.u32 %i, %tid.x; mov.u32 %rank, %cluster_ctarank; mov.u32 %size, %cluster_nctarank;
         mov.u32 %a, s; mad.lo.u32 %a, %i, 4, %a; {body}"
    ))
}

const SYNC: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";

/// A histogram of 8 bins for each block of the cluster: each thread counts the bins of its 16 values
/// in the shared memory of the block that has the bin.
fn histogram() -> String {
    clustered(&format!(
        "mov.u32 %r0, 0; st.shared.u32 [%a], %r0; {SYNC}
         mul.lo.u32 %r1, %size, 8; mad.lo.u32 %r2, %t, 16, 1; mov.u32 %r3, 0;
         next: mad.lo.u32 %r4, %r2, 1103515245, 12345; add.u32 %r2, %r2, 1; shr.u32 %r4, %r4, 16;
         rem.u32 %r4, %r4, %r1; shr.u32 %r5, %r4, 3; and.b32 %r4, %r4, 7;
         mov.u32 %r6, s; mad.lo.u32 %r4, %r4, 4, %r6; mapa.shared::cluster.u32 %r4, %r4, %r5;
         atom.shared::cluster.add.u32 %r6, [%r4], 1;
         add.u32 %r3, %r3, 1; setp.lt.u32 %p, %r3, 16; @%p bra next;
         {SYNC}
         setp.ge.u32 %p, %i, 8; @%p bra end; ld.shared.u32 %r6, [%a];
         mov.u32 %r0, %clusterid.x; mad.lo.u32 %r0, %r0, %size, %rank; mad.lo.u32 %r0, %r0, 8, %i;
         mul.wide.u32 %off, %r0, 4; add.s64 %mine, %out, %off; st.global.u32 [%mine], %r6; end:"
    ))
}

#[test]
fn a_histogram_over_the_shared_memory_of_a_cluster_counts_all_values() {
    const THREADS: u32 = 64;
    for blocks in [1, 2, 4, 8] {
        let (grid, bins) = (16, 8 * blocks);
        let mut expected = vec![0; (8 * grid) as usize];
        for thread in 0..grid * THREADS {
            let cluster = thread / (blocks * THREADS);
            for value in 0..16 {
                let hash =
                    (16 * thread + 1 + value).wrapping_mul(1_103_515_245).wrapping_add(12345);
                expected[(cluster * bins + (hash >> 16) % bins) as usize] += 1;
            }
        }
        for seed in SEEDS {
            let counted = words(&histogram(), (grid, THREADS, blocks), seed, expected.len());
            assert_eq!(counted, expected, "{blocks} blocks, seed {seed:#x}");
        }
    }
}

#[test]
fn the_histogram_is_the_same_when_one_cluster_is_resident_at_a_time() {
    let (text, shape) = (histogram(), ([16, 1, 1], 64, Some([4, 1, 1])));
    let limits = SmLimits { blocks: 1, ..Config::default().limits };
    // A multiprocessor is left over.
    let config = Config { sms: 5, limits, ..limited(SEEDS[1]) };
    let (end, mut memory) = finish(start(&text, shape, &config).unwrap());
    assert!(matches!(end, Step::Done(_)), "{end:?}");
    assert_eq!(memory.words(BASE, 128), words(&text, (16, 64, 4), 0, 128));
}

#[test]
fn the_histogram_is_the_same_however_warps_take_turns() {
    let (text, shape) = (histogram(), ([16, 1, 1], 64, Some([8, 1, 1])));
    for quantum in [1, 2, 7, 100_000] {
        let (end, mut memory) =
            finish(start(&text, shape, &Config { quantum, ..limited(SEEDS[2]) }).unwrap());
        assert!(matches!(end, Step::Done(_)), "{end:?}");
        assert_eq!(memory.words(BASE, 128), words(&text, (16, 64, 8), 0, 128), "{quantum}");
    }
}

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
fn registers_say_where_a_block_is_in_its_cluster() {
    let registers = [
        "clusterid.x",
        "clusterid.y",
        "clusterid.z",
        "nclusterid.x",
        "nclusterid.y",
        "nclusterid.z",
        "cluster_ctaid.x",
        "cluster_ctaid.y",
        "cluster_ctaid.z",
        "cluster_nctaid.x",
        "cluster_nctaid.y",
        "cluster_nctaid.z",
        "cluster_ctarank",
        "cluster_nctarank",
        "is_explicit_cluster",
    ];
    let moves = registers.map(|name| {
        format!("mov.u32 %r0, %{name}; st.global.u32 [%out], %r0; add.s64 %out, %out, 4;\n")
    });
    let text = clustered(&format!(
        "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z; mad.lo.u32 %r2, %r2, 4, %r1;
         mad.lo.u32 %r2, %r2, 6, %b; mul.wide.u32 %off, %r2, 64; add.s64 %out, %out, %off; {}
         mov.pred %p, %is_explicit_cluster; selp.u32 %r0, 1, 0, %p; st.global.u32 [%out], %r0;",
        moves.concat()
    ));
    for (cluster, shape) in
        [(Some([2, 2, 1]), [2, 2, 1]), (Some([3, 1, 2]), [3, 1, 2]), (None, [1; 3])]
    {
        let grid = [6, 4, 2];
        let (end, mut memory) = finish(start(&text, (grid, 1, cluster), &limited(5)).unwrap());
        assert!(matches!(end, Step::Done(_)), "{end:?}");
        for block in 0..48 {
            let at = [block % 6, block / 6 % 4, block / 24];
            let each =
                |f: fn(u32, u32) -> u32, of: Shape| [0, 1, 2].map(|axis| f(of[axis], shape[axis]));
            let [x, y, z] = each(|at, size| at % size, at);
            let rank = x + shape[0] * (y + shape[1] * z);
            let explicit = u32::from(cluster.is_some());
            let expected = [
                each(|at, size| at / size, at),
                each(|all, size| all / size, grid),
                [x, y, z],
                shape,
            ];
            let mut expected = expected.concat();
            expected.extend([rank, shape.iter().product(), explicit, explicit]);
            assert_eq!(
                memory.words(BASE + 64 * u64::from(block), 16),
                expected,
                "{block} of {cluster:?}"
            );
        }
    }
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
fn a_cluster_with_a_block_that_never_arrives_hangs() {
    let text = clustered(&format!(
        "setp.ne.u32 %p, %rank, 1; @%p bra meet; setp.ne.u32 %p, %i, 0; @%p bra meet;
         bar.sync 1, 64; meet: {SYNC}"
    ));
    assert_eq!(cause(&text, (4, 32, 4)), Cause::Deadlock);
    let waits = clustered("barrier.cluster.wait;");
    assert_eq!(cause(&waits, (2, 32, 2)), Cause::Deadlock);
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

/// A kernel with a directive.
fn declared(directive: &str) -> String {
    module(&format!(
        ".visible .entry k(.param .u64 k_out) {directive} {{
         .reg .b32 %r<9>; .reg .b64 %out, %off; ld.param.u64 %out, [k_out];
         mov.u32 %r0, %ctaid.x; mul.wide.u32 %off, %r0, 4; add.s64 %out, %out, %off;
         mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %is_explicit_cluster;
         mad.lo.u32 %r1, %r1, 10, %r2; st.global.u32 [%out], %r1; ret; }}"
    ))
}

#[test]
fn a_kernel_declares_its_clusters() {
    let run = |directive: &str, cluster: Option<u32>| {
        let cluster = cluster.map(|x| [x, 1, 1]);
        let (end, mut memory) =
            finish(start(&declared(directive), ([8, 1, 1], 32, cluster), &limited(0))?);
        assert!(matches!(end, Step::Done(_)), "{end:?}");
        Ok(memory.words(BASE, 8)[7])
    };
    let differs = |declared: &str, given: Option<u32>| {
        let (declared, given) = (declared.to_owned(), given.map(|x| [x, 1, 1]));
        Err(StartError::DeclaredCluster { declared, given })
    };
    assert_eq!(run(".reqnctapercluster 4", None), Ok(41));
    assert_eq!(run(".explicitcluster .reqnctapercluster 4, 1, 1", Some(4)), Ok(41));
    assert_eq!(
        run(".reqnctapercluster 4", Some(2)),
        differs(".reqnctapercluster 4, 1, 1", Some(2))
    );
    assert_eq!(run(".explicitcluster", Some(2)), Ok(21));
    assert_eq!(run(".explicitcluster", None), differs(".explicitcluster", None));
    assert_eq!(run(".maxclusterrank 4", Some(4)), Ok(41));
    assert_eq!(run(".maxclusterrank 4", Some(8)), differs(".maxclusterrank 4", Some(8)));
    assert_eq!(run(".maxclusterrank 4", None), Ok(10));
    assert_eq!(run("", Some(1)), Ok(11));
}

#[test]
fn a_cluster_that_does_not_fit_is_refused() {
    let text = declared("");
    let refused = |grid: Shape, cluster: Shape, config: &Config| {
        start(&text, (grid, 32, Some(cluster)), config).unwrap_err()
    };
    for (grid, cluster) in [
        ([8, 1, 1], [3, 1, 1]),
        ([32, 1, 1], [32, 1, 1]),
        ([8, 8, 1], [4, 8, 1]),
        ([8, 1, 1], [0, 1, 1]),
    ] {
        let error = refused(grid, cluster, &Config::default());
        assert_eq!(error, StartError::Cluster { grid, cluster });
    }
    let limits = SmLimits { blocks: 1, ..Config::default().limits };
    let small = Config { sms: 7, limits, ..Config::default() };
    let error = refused([8, 1, 1], [8, 1, 1], &small);
    assert!(matches!(error, StartError::Resources { needed: 8, limit: 7, .. }), "{error}");
}

#[test]
fn what_clusters_lack_here_is_refused_by_name() {
    for (body, reason) in [
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
             [s], [%out], 64, [bar], %h;",
            "multicast::cluster",
        ),
        ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [s], 64, %h;", "cp_mask"),
        ("st.async.mmio.release.sys.global.b32 [%out], %r0;", "st.async"),
        ("red.async.mmio.release.sys.global.add.u32 [%out], %r0;", "red.async"),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b16 [%a], %h, [%a];",
            "no such type",
        ),
        ("mapa.u32 %r0, %a, %rank;", "generic address"),
        ("barrier.cluster.sync;", "one of .arrive, .wait"),
        ("barrier.cluster.wait.release;", "`.release`"),
        ("clusterlaunchcontrol.try_cancel.async.b128 [%a], [%a];", "clusterlaunchcontrol"),
    ] {
        let text = clustered(&format!(".reg .b16 %h; {body}"));
        let error = Module::load(&text, &Target { compute: (9, 0) }).expect_err(body);
        assert!(error.message.contains(reason), "{body}: {error}");
    }
    let error = Module::load(&declared(".blocksareclusters"), &Target { compute: (9, 0) });
    assert!(error.unwrap_err().message.contains(".blocksareclusters"));
}
