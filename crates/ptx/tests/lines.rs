//! A warp with all of its 32 threads keeps values that follow from lane to lane as lines, and one with 31
//! threads does not. The 31 threads that both have leave the same.

mod line_kernels;
mod machine;

use line_kernels::{KERNELS, ROW, text};
use machine::{BASE, Flat, Journal, done};

/// The words that the first 31 threads of a block leave.
fn left(text: &str, threads: u32) -> Vec<u32> {
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    done(text, 1, threads, &mut memory, &mut journal);
    memory.words(BASE, 31 * ROW / 4)
}

#[test]
fn lines_and_lanes_leave_the_same() {
    for seed in 0..KERNELS {
        let text = text(seed);
        assert_eq!(left(&text, 32), left(&text, 31), "seed {seed}:\n{text}");
    }
}
