//! A flat memory, a host that keeps what kernels print, and short ways to run kernels.

#![allow(dead_code, reason = "each test uses its own part")]

use std::sync::Arc;

use pagewise_ptx::execute::{
    AssertFailure, Config, Host, Kind, Launch, Memory, Run, Stats, Step, Stop, Window,
};
use pagewise_ptx::module::{Module, Target};

/// Where the memory begins.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
/// Where the variables of modules are: each has a page of its own.
pub(crate) const VARIABLES: u64 = BASE + (1 << 18);
/// The size of a page of [`Flat::missing`].
pub(crate) const PAGE: u64 = 4096;

/// Words before and behind the memory that no kernel may change.
const FENCE: usize = 256;
/// The contents of these words.
const UNTOUCHED: u128 = 0xa5c3_96f0_a5c3_96f0_a5c3_96f0_a5c3_96f0;

/// One range of memory between two fences. Pages in `missing` wait.
#[derive(Default)]
pub(crate) struct Flat {
    words: Vec<u128>,
    /// Pages that are not there yet, by their index.
    pub(crate) missing: Vec<u64>,
    pub(crate) generation: u64,
}

impl Flat {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut words = vec![UNTOUCHED; bytes.div_ceil(16) + 2 * FENCE];
        let end = words.len() - FENCE;
        words[FENCE..end].fill(0);
        Self { words, ..Self::default() }
    }

    /// The memory between the fences.
    fn inside(&mut self) -> &mut [u128] {
        let end = self.words.len().saturating_sub(FENCE);
        self.words.get_mut(FENCE..end).unwrap_or_default()
    }

    /// Whether the words around the memory are as they were.
    pub(crate) fn fences_hold(&self) -> bool {
        let (first, last) = (&self.words[..FENCE], &self.words[self.words.len() - FENCE..]);
        first.iter().chain(last).all(|word| *word == UNTOUCHED)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let words = self.inside();
        // SAFETY: any bytes are bytes, and the borrow is the vector's.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 16) }
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let at = (at - BASE) as usize;
        self.bytes()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn write_words(&mut self, at: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(at, &bytes);
    }

    pub(crate) fn words(&mut self, at: u64, count: usize) -> Vec<u32> {
        let at = (at - BASE) as usize;
        let bytes = &self.bytes()[at..at + 4 * count];
        bytes.chunks(4).map(|chunk| u32::from_le_bytes(chunk.try_into().unwrap())).collect()
    }
}

impl Memory for Flat {
    fn window(&mut self, address: u64, bytes: u32, _kind: Kind) -> Result<Window, Stop> {
        let length = self.inside().len() as u64 * 16;
        let offset = address.wrapping_sub(BASE);
        if offset >= length || length - offset < u64::from(bytes) {
            return Err(Stop::Refused("no allocation".to_owned()));
        }
        let page = offset / PAGE;
        if self.missing.contains(&page) {
            return Err(Stop::Wait);
        }
        let start = page * PAGE;
        let host = self.inside().as_mut_ptr().cast::<u8>().wrapping_add(start as usize);
        // SAFETY: the page is part of the vector, which lives and does not move while it runs.
        Ok(unsafe { Window::new(BASE + start, PAGE.min(length - start), host) })
    }

    fn generation(&self) -> u64 {
        self.generation
    }
}

/// Keeps what kernels print and assert; its heap is the end of the flat memory.
#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) text: String,
    pub(crate) failures: Vec<AssertFailure>,
    pub(crate) heap: Vec<u64>,
    pub(crate) next: u64,
}

impl Host for Journal {
    fn print(&mut self, text: &[u8]) {
        self.text.push_str(&String::from_utf8_lossy(text));
    }

    fn assert_failed(&mut self, failure: &AssertFailure) {
        self.failures.push(failure.clone());
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let address = BASE + (1 << 19) + self.next;
        self.next += bytes.next_multiple_of(16);
        self.heap.push(address);
        (self.next < 1 << 19).then_some(address)
    }

    fn free(&mut self, address: u64) -> bool {
        let before = self.heap.len();
        self.heap.retain(|&other| other != address);
        self.heap.len() < before
    }
}

/// The text of a module with this body.
pub(crate) fn module(body: &str) -> String {
    format!(".version 8.6\n.target sm_90\n.address_size 64\n{body}")
}

/// A kernel `k` that takes one pointer, in `%out`; `%t` is the thread's index in the grid, and
/// `%mine` the address of its word.
pub(crate) fn kernel(body: &str) -> String {
    module(&format!(
        ".visible .entry k(.param .u64 k_out) {{
         .reg .b32 %t, %w, %b; .reg .b64 %out, %mine, %off;
         ld.param.u64 %out, [k_out];
         mov.u32 %t, %tid.x; mov.u32 %w, %ntid.x; mov.u32 %b, %ctaid.x;
         mad.lo.s32 %t, %w, %b, %t;
         mul.wide.u32 %off, %t, 4; add.s64 %mine, %out, %off;
         {body}
         }}"
    ))
}

pub(crate) fn load(text: &str) -> Arc<Module> {
    let target = Target { compute: (9, 0) };
    Arc::new(Module::load(text, &target).unwrap_or_else(|error| panic!("{error}")))
}

fn places_of_variables(module: &Module) -> Vec<u64> {
    (0..module.variables().len()).map(|index| VARIABLES + 4096 * index as u64).collect()
}

pub(crate) fn start(
    text: &str,
    name: &str,
    grid: u32,
    block: u32,
    params: &[u8],
    config: &Config,
) -> Run {
    let module = load(text);
    let addresses = places_of_variables(&module);
    let instance = module.instantiate(&addresses).unwrap();
    let launch = Launch {
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        dynamic_shared: 0,
        params,
        cooperative: false,
        cluster: None,
    };
    instance.kernel(name).unwrap().start(&launch, config).unwrap()
}

/// Runs to the end and gives the first words of memory.
pub(crate) fn words(text: &str, grid: u32, block: u32, count: usize) -> Vec<u32> {
    let (mut memory, mut journal) = (Flat::new(1 << 20), Journal::default());
    done(text, grid, block, &mut memory, &mut journal);
    memory.words(BASE, count)
}

/// Runs to the end over a memory.
pub(crate) fn done(
    text: &str,
    grid: u32,
    block: u32,
    memory: &mut Flat,
    journal: &mut Journal,
) -> Stats {
    match end(text, grid, block, memory, journal) {
        Step::Done(stats) => stats,
        other => panic!("{other:?}"),
    }
}

/// Runs until something other than a pause happens. Variables have their contents.
pub(crate) fn end(
    text: &str,
    grid: u32,
    block: u32,
    memory: &mut Flat,
    journal: &mut Journal,
) -> Step {
    let module = load(text);
    let addresses = places_of_variables(&module);
    let instance = module.instantiate(&addresses).unwrap();
    for (index, &address) in addresses.iter().enumerate() {
        memory.write(address, &instance.contents(index));
    }
    let params = BASE.to_le_bytes();
    let launch = Launch {
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        dynamic_shared: 0,
        params: &params,
        cooperative: false,
        cluster: None,
    };
    let config = Config { instruction_limit: Some(50_000_000), ..Config::default() };
    let mut run = instance.kernel("k").unwrap().start(&launch, &config).unwrap();
    loop {
        match run.step(memory, journal, 1_000_000) {
            Step::Paused => {}
            other => return other,
        }
    }
}
