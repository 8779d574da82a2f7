//! Random kernels, against what an H200 made of them.

#[path = "harness/machine.rs"]
mod machine;
mod random;

use std::fs;
use std::path::Path;

use machine::{Machine, pack};
use pagewise_ptx::execute::{Config, Launch};

/// The hash of what the kernel of a seed leaves.
fn left_behind(seed: u64, config: &Config, waits: bool) -> u64 {
    let mut machine = Machine::new();
    let instance =
        machine.load(&random::kernel(seed)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let mut numbers = random::Random::new(seed);
    let input: Vec<u8> =
        (0..random::INPUT_WORDS).flat_map(|_| (numbers.next() as u32).to_le_bytes()).collect();
    let bytes = (random::THREADS * random::THREAD_BYTES) as usize;
    let addresses =
        [machine.memory.allocate(input.len() as u64), machine.memory.allocate(bytes as u64)];
    machine.memory.write(addresses[0], &input);
    let kernel = instance.kernel("random").unwrap();
    let params = pack(&kernel, &addresses.map(|address| address.to_le_bytes().to_vec()));
    let launch = Launch {
        grid: [1; 3],
        block: [random::THREADS, 1, 1],
        dynamic_shared: 0,
        params: &params,
        cooperative: false,
        cluster: None,
    };
    if waits {
        machine.memory.wait_for_pages();
    }
    if let Err(report) = machine.launch(&kernel, launch, config) {
        panic!("seed {seed}: {report}");
    }
    let left = machine.memory.read(addresses[1], bytes);
    left.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// A file of `tests/corpus/expected`.
fn expected(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/expected");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The hash of each seed as an H200 left it. The optimiser of `ptxas` 13.0 breaks eight of these kernels
/// (`tests/corpus/README.md` says how). Of these it is what the GPU left without optimisations
/// (`CU_JIT_OPTIMIZATION_LEVEL` 0).
fn recorded() -> Vec<(u64, String)> {
    let optimised = expected("random.txt");
    let mut all: Vec<_> = (0..).zip(optimised.lines().map(str::to_owned)).collect();
    for line in expected("random_unoptimised.txt").lines() {
        let (seed, hash) = line.split_once(' ').unwrap();
        let seed: u64 = seed.parse().unwrap();
        assert_ne!(all[seed as usize].1, hash, "{seed}: optimisations change nothing");
        all[seed as usize].1 = hash.to_owned();
    }
    all
}

fn compare_all(waits: bool) {
    let wrong: Vec<u64> = recorded()
        .into_iter()
        .filter(|(seed, hash)| {
            let left = left_behind(*seed, &Config::default(), waits);
            format!("{left:016x}") != *hash
        })
        .map(|(seed, _)| seed)
        .collect();
    assert!(wrong.is_empty(), "{} seeds differ: {wrong:?}", wrong.len());
}

#[test]
fn random_kernels_leave_the_bytes_that_an_h200_leaves() {
    compare_all(false);
}

#[test]
fn accesses_that_wait_for_pages_change_no_byte_of_random_kernels() {
    compare_all(true);
}
