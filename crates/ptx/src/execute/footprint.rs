//! The memory that a resident block takes here, beside that which it takes on a GPU.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::block::Block;
use super::host::{AssertFailure, Host};
use super::launch::{Config, Launch};
use super::memory::{Kind, Memory, Stop, Window};
use super::report::Step;
use super::warp::Warp;
use crate::module::{KernelInfo, Module, Target};

/// The first address of the modules' variables.
const BASE: u64 = 0x7f00_0000_0000;
const THREADS: u32 = 256;

/// A memory in which every access waits.
struct Away;

impl Memory for Away {
    fn window(&mut self, _: u64, _: u32, _: Kind) -> Result<Window, Stop> {
        Err(Stop::Wait)
    }

    fn generation(&self) -> u64 {
        0
    }
}

struct Nothing;

impl Host for Nothing {
    fn print(&mut self, _: &[u8]) {}
    fn assert_failed(&mut self, _: &AssertFailure) {}
    fn allocate(&mut self, _: u64) -> Option<u64> {
        None
    }
    fn free(&mut self, _: u64) -> bool {
        false
    }
}

/// The bytes of a block that has begun, without local memory, which a GPU has elsewhere.
fn here(block: &Block) -> usize {
    let warps: usize = block.warps.iter().map(|warp| warp.bytes_without_local()).sum();
    size_of::<Block>() + warps + block.common.shared.len()
}

/// The bytes of registers and shared memory that a GPU gives the block: registers in pieces of 256 for
/// each warp, and the system's part of shared memory.
fn on_a_gpu(info: &KernelInfo, config: &Config) -> usize {
    let registers = (info.registers * 32).next_multiple_of(256) * 4 * THREADS.div_ceil(32);
    (registers + info.static_shared + config.limits.reserved_shared) as usize
}

/// Visits the resident blocks of each kernel of a module that waits for memory.
fn resident(text: &str, config: &Config, mut visit: impl FnMut(&KernelInfo, Vec<&Block>)) {
    let module = Arc::new(Module::load(text, &Target { compute: (9, 0) }).unwrap());
    let addresses: Vec<u64> =
        (0..module.variables().len() as u64).map(|at| BASE + 4096 * at).collect();
    let instance = module.instantiate(&addresses).unwrap();
    for info in module.kernels() {
        let slots = info.param_bytes.div_ceil(8) as usize;
        let params = (BASE + (1 << 20)).to_le_bytes().repeat(slots);
        let launch = Launch {
            grid: [4, 1, 1],
            block: [THREADS, 1, 1],
            dynamic_shared: 0,
            params: &params,
            cooperative: false,
            cluster: None,
        };
        let kernel = instance.kernel(&info.name).unwrap();
        let Ok(mut run) = kernel.start(&launch, config) else { continue };
        let step = run.step(&mut Away, &mut Nothing, 1 << 20);
        if let (Step::Waiting, Some(blocks)) = (step, run.begun()) {
            visit(info, blocks);
        }
    }
}

/// The factor of each kernel of the corpus that waits for memory, sorted.
fn factors() -> Vec<f64> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/ptx");
    let config = Config::default();
    let mut factors = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ptx") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        resident(&text, &config, |info, blocks| {
            let on_a_gpu = on_a_gpu(info, &config) * blocks.len();
            factors.push(blocks.into_iter().map(here).sum::<usize>() as f64 / on_a_gpu as f64);
        });
    }
    factors.sort_by(f64::total_cmp);
    factors
}

/// Registers of calls are in local memory on a GPU and stay registers here, so recursion takes more.
#[test]
fn resident_blocks_take_at_most_twice_the_memory_of_a_gpu_but_for_calls_and_smallest_kernels() {
    let factors = factors();
    assert!(factors.len() >= 200, "{}", factors.len());
    let (median, most) = (factors[factors.len() / 2], factors[factors.len() - 1]);
    let within = factors.iter().filter(|factor| **factor <= 2.0).count();
    println!(
        "{within} of {} kernels within 2 times a GPU's; {median:.2} at the median, {most:.2} at most",
        factors.len()
    );
    assert!(within * 100 >= factors.len() * 95 && median <= 1.5, "{factors:?}");
}

/// An unrolled loop of comparisons is such a kernel. Places for all of its registers would take megabytes.
#[test]
fn a_kernel_of_24000_registers_in_8000_basic_blocks_has_places_for_those_that_live_together() {
    let parts: String = (0..8000)
        .map(|at| {
            format!(
                "add.u32 %a{at}, %v, {at}; setp.eq.u32 %p{at}, %a{at}, 7;
                 @%p{at} bra L{at}; add.u32 %b{at}, %a{at}, 1; xor.b32 %v, %v, %b{at}; L{at}:\n"
            )
        })
        .collect();
    let text = format!(
        ".version 8.0 .target sm_80 .address_size 64
         .visible .entry k(.param .u64 to) {{
         .reg .b32 %a<8000>, %b<8000>, %v; .reg .pred %p<8000>; .reg .b64 %to;
         ld.param.u64 %to, [to]; ld.global.u32 %v, [%to];
         {parts} st.global.u32 [%to], %v; ret; }}"
    );
    let mut most = 0;
    resident(&text, &Config::default(), |_, blocks| {
        most = blocks
            .iter()
            .flat_map(|block| &block.warps)
            .map(Warp::bytes_without_local)
            .max()
            .unwrap();
    });
    assert!((1..8192).contains(&most), "{most} bytes a warp");
}
