//! Warps of a block go on together behind a barrier.
//!
//! Programs without a barrier between loads of shared memory and the stores of the next round are right
//! on a GPU: the loads come soon, and the stores long after them. They are right here, too.

mod machine;

use machine::{BASE, Flat, Journal, kernel, load};
use pagewise_ptx::execute::{Config, Launch, Step};

const ROUNDS: u32 = 12;
const WARPS: u32 = 8;

/// In each round, each warp stores a word, and adds those of the warps before and behind it. Many
/// instructions follow, and no barrier.
fn rounds() -> String {
    kernel(&format!(
        ".reg .b32 %l, %x, %n, %at, %before, %behind, %v, %sum, %i, %k; .reg .pred %p, %q, %more;
         .shared .align 4 .b8 part[32];
         mov.u32 %l, %laneid; mov.u32 %n, %tid.x; shr.u32 %x, %n, 5; setp.ne.u32 %p, %l, 0;
         mov.u32 %v, part; shl.b32 %at, %x, 2; add.u32 %at, %at, %v;
         add.u32 %before, %x, 7; and.b32 %before, %before, 7;
         shl.b32 %before, %before, 2; add.u32 %before, %before, %v;
         add.u32 %behind, %x, 1; and.b32 %behind, %behind, 7;
         shl.b32 %behind, %behind, 2; add.u32 %behind, %behind, %v;
         mov.u32 %sum, 0; mov.u32 %i, 0;
         again:
         mad.lo.u32 %v, %x, 100, %i;
         @%p bra stored;
         st.shared.b32 [%at], %v;
         stored:
         bar.sync 0;
         ld.shared.b32 %v, [%before]; add.u32 %sum, %sum, %v;
         ld.shared.b32 %v, [%behind]; add.u32 %sum, %sum, %v;
         mov.u32 %k, 0;
         longer:
         mad.lo.u32 %v, %v, 5, %k; xor.b32 %v, %v, %l;
         add.u32 %k, %k, 1; setp.lt.u32 %more, %k, 20; @%more bra longer;
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, {ROUNDS};
         @%q bra again;
         st.global.b32 [%mine], %sum;
         ret;"
    ))
}

fn expected(warp: u32) -> u32 {
    let of = |warp: u32, round: u32| warp % WARPS * 100 + round;
    (0..ROUNDS).map(|round| of(warp + 7, round) + of(warp + 1, round)).sum()
}

#[test]
fn loads_behind_a_barrier_come_before_stores_of_the_next_round() {
    const BLOCKS: u32 = 3;
    let instance = load(&rounds()).instantiate(&[]).unwrap();
    let kernel = instance.kernel("k").unwrap();
    let launch = Launch {
        grid: [BLOCKS, 1, 1],
        block: [32 * WARPS, 1, 1],
        dynamic_shared: 0,
        params: &BASE.to_le_bytes(),
        cooperative: false,
        cluster: None,
    };
    // The second and third run of a kernel have pieces that the first one asked for.
    let compiled = [None, Some(0), Some(0), Some(0)];
    for (compile_after, step) in
        compiled.into_iter().flat_map(|c| [1 << 20, 100, 33].map(|s| (c, s)))
    {
        let config = Config { compile_after, ..Config::default() };
        let (mut memory, mut journal) = (Flat::new(1 << 16), Journal::default());
        let mut run = kernel.start(&launch, &config).unwrap();
        while let Step::Paused = run.step(&mut memory, &mut journal, step) {}
        let threads = BLOCKS * 32 * WARPS;
        let sums: Vec<u32> = (0..threads).map(|thread| expected(thread / 32)).collect();
        assert_eq!(memory.words(BASE, threads as usize), sums, "{compile_after:?}, {step}");
    }
}
