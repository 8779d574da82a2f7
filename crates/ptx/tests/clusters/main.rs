//! Clusters: blocks that are resident together, their barrier, and each other's shared memory.

mod barriers;
mod launches;
#[path = "../machine/mod.rs"]
mod machine;
mod memory;

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
