//! A grid that waits for memory to change says so, and goes on once it has.

mod machine;

use machine::{BASE, Flat, Journal, kernel, start};
use pagewise_ptx::execute::{Config, Run, Step};

/// The word that kernels wait for.
const WORD: u64 = BASE + 4096;

/// Each thread waits until the word is not zero, and then stores it.
const WAIT: &str = ".reg .pred %p; .reg .b32 %v;
     again: ld.volatile.global.u32 %v, [%out+4096]; setp.eq.u32 %p, %v, 0; @%p bra again;
     st.global.u32 [%mine], %v;";

fn begin(body: &str, (grid, block): (u32, u32), config: &Config) -> (Run, Flat, Journal) {
    let run = start(&kernel(body), "k", grid, block, &BASE.to_le_bytes(), config);
    (run, Flat::new(1 << 20), Journal::default())
}

/// Steps to the end, and gives the first words of memory.
fn finish(run: &mut Run, memory: &mut Flat, journal: &mut Journal, count: usize) -> Vec<u32> {
    loop {
        match run.step(memory, journal, 100_000) {
            Step::Paused => assert!(!run.is_spinning(memory, journal)),
            Step::Done(_) => return memory.words(BASE, count),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_grid_spins_until_the_word_changes_that_all_its_warps_wait_for() {
    let (mut run, mut memory, mut journal) = begin(WAIT, (3, 64), &Config::default());
    assert!(matches!(run.step(&mut memory, &mut journal, 100_000), Step::Paused));
    for _ in 0..3 {
        assert!(run.is_spinning(&mut memory, &mut journal));
    }
    memory.write_words(WORD, &[7]);
    assert!(!run.is_spinning(&mut memory, &mut journal));
    assert_eq!(finish(&mut run, &mut memory, &mut journal, 192), vec![7; 192]);
}

#[test]
fn warps_at_a_barrier_wait_with_the_one_that_spins() {
    let body = format!(
        ".reg .pred %first; setp.ge.u32 %first, %t, 32; @%first bra meet;
         {{ {WAIT} }}
         meet: bar.sync 0; st.global.u32 [%mine], %t;"
    );
    let (mut run, mut memory, mut journal) = begin(&body, (1, 96), &Config::default());
    assert!(matches!(run.step(&mut memory, &mut journal, 100_000), Step::Paused));
    assert!(run.is_spinning(&mut memory, &mut journal));
    memory.write_words(WORD, &[1]);
    let expected: Vec<u32> = (0..96).collect();
    assert_eq!(finish(&mut run, &mut memory, &mut journal, 96), expected);
}

#[test]
fn a_loop_that_counts_is_no_wait() {
    let count = ".reg .pred %p; .reg .b32 %v; mov.u32 %v, 0;
         again: add.u32 %v, %v, 1; setp.lt.u32 %p, %v, 1000000; @%p bra again;
         st.global.u32 [%mine], %v;";
    let (mut run, mut memory, mut journal) = begin(count, (1, 32), &Config::default());
    assert!(matches!(run.step(&mut memory, &mut journal, 100_000), Step::Paused));
    assert!(!run.is_spinning(&mut memory, &mut journal));
    assert_eq!(finish(&mut run, &mut memory, &mut journal, 32), vec![1_000_000; 32]);
}

#[test]
fn a_grid_with_a_limit_of_instructions_ends_there_and_never_spins() {
    let config = Config { instruction_limit: Some(200_000), ..Config::default() };
    let (mut run, mut memory, mut journal) = begin(WAIT, (1, 32), &config);
    assert!(matches!(run.step(&mut memory, &mut journal, 100_000), Step::Paused));
    assert!(!run.is_spinning(&mut memory, &mut journal));
    assert!(matches!(run.step(&mut memory, &mut journal, 1_000_000), Step::Trap(_)));
}

#[test]
fn a_grid_that_misses_a_page_waits_for_the_page_and_does_not_spin() {
    let (mut run, mut memory, mut journal) = begin(WAIT, (1, 32), &Config::default());
    assert!(matches!(run.step(&mut memory, &mut journal, 100_000), Step::Paused));
    assert!(run.is_spinning(&mut memory, &mut journal));
    memory.missing = vec![1];
    assert!(!run.is_spinning(&mut memory, &mut journal));
    assert!(matches!(run.step(&mut memory, &mut journal, 100_000), Step::Waiting));
}
