//! Measures the instructions of threads that one core executes in a second, over flat memory.
//!
//! usage: `cargo run --release -p pagewise-ptx --example speed [KERNEL [BLOCKS]]`
//!
//! With a count of blocks, the kernel runs once with so many, for profilers: two counts differ by the
//! instructions of the blocks between them.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use pagewise_ptx::execute::{
    AssertFailure, Config, Host, Kind, Launch, Memory, Stats, Step, Stop, Window,
};
use pagewise_ptx::module::{Instance, Module, Target};

const TEXT: &str = include_str!("speed.ptx");
const BASE: u64 = 0x7f00_0000_0000;
const BYTES: usize = 64 << 20;
const RUNS: usize = 5;

/// One allocation.
struct Flat(Vec<u128>);

impl Memory for Flat {
    fn window(&mut self, address: u64, bytes: u32, _: Kind) -> Result<Window, Stop> {
        let length = self.0.len() as u64 * 16;
        let offset = address.wrapping_sub(BASE);
        if offset >= length || length - offset < u64::from(bytes) {
            return Err(Stop::Refused("no allocation".to_owned()));
        }
        // SAFETY: the vector lives and does not move while a kernel runs, and nothing else uses it.
        Ok(unsafe { Window::new(BASE, length, self.0.as_mut_ptr().cast()) })
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// A process without services.
struct Quiet;

impl Host for Quiet {
    fn print(&mut self, _: &[u8]) {}
    fn assert_failed(&mut self, _: &AssertFailure) {}
    fn allocate(&mut self, _: u64) -> Option<u64> {
        None
    }
    fn free(&mut self, _: u64) -> bool {
        true
    }
}

impl Flat {
    fn words(&mut self) -> &mut [u32] {
        let count = self.0.len() * 4;
        // SAFETY: any bytes are words, and the borrow is the vector's.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), count) }
    }
}

/// A random graph in rows, with few neighbours for most nodes and many for some: rows, neighbours,
/// and levels of which one node in four is in the first.
fn graph(words: &mut [u32], nodes: usize) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(state >> 16) * u128::from(limit)) >> 48) as u32
    };
    let neighbours = 2 * nodes;
    let mut next = 0;
    for node in 0..nodes {
        words[node] = next as u32;
        let degree = 1 << random(6).min(random(6));
        for _ in 0..degree {
            words[neighbours + next] = random(nodes as u64);
            next += 1;
        }
    }
    words[nodes] = next as u32;
    for node in 0..nodes {
        words[words.len() / 2 + node] = if random(4) == 0 { 0 } else { u32::MAX >> 1 };
    }
}

/// The time that this process has had on a processor.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux with schedstat");
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("nanoseconds"))
}

fn once(
    instance: &Arc<Instance>,
    memory: &mut Flat,
    name: &str,
    grid: [u32; 3],
) -> (Stats, Duration) {
    let params: Vec<u8> =
        [BASE, BASE + BYTES as u64 / 2].iter().flat_map(|p| p.to_le_bytes()).collect();
    let launch = Launch {
        grid,
        block: [256, 1, 1],
        dynamic_shared: 0,
        params: &params,
        cooperative: false,
        cluster: None,
    };
    let kernel = instance.kernel(name).expect("a kernel of the text");
    let begun = processor_time();
    // So that few blocks are enough for a count of what compiled pieces take.
    let config = Config { compile_after: Some(500), ..Config::default() };
    let mut run = kernel.start(&launch, &config).expect("a launch");
    loop {
        match run.step(memory, &mut Quiet, u64::MAX) {
            Step::Done(stats) => return (stats, processor_time() - begun),
            Step::Paused => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn main() {
    let mut arguments = env::args().skip(1);
    let chosen = arguments.next();
    let count: Option<u32> = arguments.next().map(|count| count.parse().expect("a number"));
    let module = Module::load(TEXT, &Target { compute: (9, 0) }).expect("a text without errors");
    let instance = Arc::new(Arc::new(module).instantiate(&[]).expect("no variables"));
    let blocks = [
        ("empty", 1),
        ("vector", 32_768),
        ("arithmetic", 512),
        ("stencil", 8192),
        ("shared", 4096),
        ("graph", 1024),
        ("tiles", 512),
        ("atomics", 1024),
        ("integers", 512),
        ("matrices", 512),
        ("functions", 512),
    ];
    for (name, blocks) in blocks {
        if chosen.as_deref().is_some_and(|chosen| chosen != name) {
            continue;
        }
        let (blocks, times) = count.map_or((blocks, RUNS), |count| (count, 1));
        let mut runs = Vec::new();
        for _ in 0..times {
            let mut memory = Flat(vec![0; BYTES / 16]);
            graph(memory.words(), 1024 * 256);
            runs.push(once(&instance, &mut memory, name, [blocks, 1, 1]));
        }
        runs.sort_by_key(|(_, time)| *time);
        let (stats, time) = runs[times / 2];
        println!(
            "{name:12} {:8.2} ms, {:6} M thread instructions, {:6.0} M/s, {:5.1} ns for one of a warp",
            time.as_secs_f64() * 1e3,
            stats.thread_instructions / 1_000_000,
            stats.thread_instructions as f64 / time.as_secs_f64() / 1e6,
            time.as_secs_f64() * 1e9 / stats.warp_instructions as f64,
        );
    }
}
