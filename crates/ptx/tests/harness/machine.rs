//! A machine that runs kernels: some memory, a heap, and a printer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pagewise_ptx::execute::{
    AssertFailure, Config, Host, Kind, Launch, Memory, Report, Step, Stop, Window,
};
use pagewise_ptx::module::{Instance, Kernel, Module, Target};

const HEAP_BYTES: u64 = 1 << 20;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Memory of 16-byte words, by address.
#[derive(Default)]
pub(crate) struct Flat {
    allocations: BTreeMap<u64, Vec<u128>>,
    /// The pages that have come, if accesses wait for theirs.
    arrived: Option<BTreeSet<u64>>,
    generation: u64,
}

impl Flat {
    /// Reserves zeros and gives their address. Between allocations is nothing.
    pub(crate) fn allocate(&mut self, bytes: u64) -> u64 {
        let end = |(start, words): (&u64, &Vec<u128>)| start + 16 * words.len() as u64;
        let after = self.allocations.last_key_value().map_or(0x7f00_0000_0000, end);
        let start = (after + 0x10000).next_multiple_of(0x10000);
        self.allocations.insert(start, vec![0; bytes.div_ceil(16).max(1) as usize]);
        start
    }

    /// Where the bytes at an address are.
    fn place(&mut self, address: u64, bytes: u64) -> Option<(u64, &mut Vec<u128>)> {
        let (&start, words) = self.allocations.range_mut(..=address).next_back()?;
        let offset = address - start;
        (offset.checked_add(bytes)? <= 16 * words.len() as u64).then_some((start, words))
    }

    /// From now on a page comes only after an access waited for it, and later pages may come first.
    pub(crate) fn wait_for_pages(&mut self) {
        self.arrived = Some(BTreeSet::new());
    }

    /// The page of the last access that waits comes, and about half of the others.
    fn bring(&mut self, waiting: &[u64]) {
        self.generation += 1;
        let pages = waiting.iter().map(|address| address / PAGE);
        let odd =
            |page: &u64| (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63) == self.generation % 2;
        let chosen = pages.clone().filter(odd).chain(pages.clone().next_back());
        self.arrived.get_or_insert_default().extend(chosen);
    }

    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
        let (start, words) = self.place(address, bytes.len() as u64).unwrap();
        let at = (address - start) as usize;
        let mut all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        for (word, bytes) in words.iter_mut().zip(all.chunks_exact(16)) {
            *word = u128::from_le_bytes(bytes.try_into().unwrap());
        }
    }

    pub(crate) fn read(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        let (start, words) = self.place(address, bytes as u64).unwrap();
        let at = (address - start) as usize;
        let all: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        all[at..at + bytes].to_vec()
    }
}

impl Memory for Flat {
    fn window(&mut self, address: u64, bytes: u32, _: Kind) -> Result<Window, Stop> {
        let refused = || Stop::Refused("no allocation holds it".into());
        let (start, words) = self.place(address, u64::from(bytes)).ok_or_else(refused)?;
        let length = 16 * words.len() as u64;
        let all = words.as_mut_ptr().cast::<u8>();
        if let Some(arrived) = &self.arrived {
            if !arrived.contains(&(address / PAGE)) {
                return Err(Stop::Wait);
            }
            // Allocations begin with a page.
            let offset = (address - start) / PAGE * PAGE;
            let bytes = PAGE.min(length - offset);
            let at = all.wrapping_add(offset as usize);
            // SAFETY: as below; the page is a part of the words.
            return Ok(unsafe { Window::new(start + offset, bytes, at) });
        }
        // SAFETY: the words stay where they are while the kernel runs, and nothing else uses them.
        Ok(unsafe { Window::new(start, length, all).alone() })
    }

    fn generation(&self) -> u64 {
        self.generation
    }
}

/// The services of the process for kernels.
#[derive(Default)]
pub(crate) struct Services {
    heap: u64,
    used: u64,
    live: BTreeSet<u64>,
    pub(crate) printed: Vec<u8>,
}

impl Host for Services {
    fn print(&mut self, text: &[u8]) {
        self.printed.extend_from_slice(text);
    }

    fn assert_failed(&mut self, _: &AssertFailure) {}

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let address = self.heap + self.used;
        self.used += bytes.max(1).next_multiple_of(16);
        self.live.insert(address);
        (self.used <= HEAP_BYTES).then_some(address)
    }

    fn free(&mut self, address: u64) -> bool {
        self.live.remove(&address)
    }
}

/// The machine.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) memory: Flat,
    pub(crate) services: Services,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let mut machine = Self::default();
        machine.services.heap = machine.memory.allocate(HEAP_BYTES);
        machine
    }

    /// Loads a module and places its variables.
    pub(crate) fn load(&mut self, text: &str) -> Result<Instance, String> {
        let module = Module::load(text, &Target { compute: (9, 0) }).map_err(|e| e.to_string())?;
        let module = Arc::new(module);
        let sizes = module.variables().iter().map(|variable| variable.bytes);
        let addresses: Vec<u64> = sizes.map(|bytes| self.memory.allocate(bytes)).collect();
        let instance = module.instantiate(&addresses).map_err(|error| error.to_string())?;
        for (index, &address) in addresses.iter().enumerate() {
            self.memory.write(address, &instance.contents(index));
        }
        Ok(instance)
    }

    /// Runs one launch to its end.
    pub(crate) fn launch(
        &mut self,
        kernel: &Kernel,
        launch: Launch<'_>,
        config: &Config,
    ) -> Result<(), Box<Report>> {
        let workspace = self.memory.allocate(16);
        let config = Config { instruction_limit: Some(20_000_000), workspace, ..config.clone() };
        let mut run = kernel.start(&launch, &config).unwrap_or_else(|error| panic!("{error}"));
        loop {
            match run.step(&mut self.memory, &mut self.services, 1 << 18) {
                Step::Done(_) => return Ok(()),
                Step::Trap(report) => return Err(report),
                Step::Paused if run.outstanding().is_empty() => {}
                // Others may spin until one that waits goes on.
                Step::Paused | Step::Waiting => {
                    let waiting: Vec<u64> =
                        run.outstanding().iter().map(|one| one.address).collect();
                    self.memory.bring(&waiting);
                }
            }
        }
    }
}

/// The parameters of a kernel, laid out as it declares them.
pub(crate) fn pack(kernel: &Kernel, arguments: &[Vec<u8>]) -> Vec<u8> {
    let info = kernel.info();
    assert_eq!(info.params.len(), arguments.len(), "{}", info.name);
    let mut bytes = vec![0; info.param_bytes as usize];
    for (parameter, argument) in info.params.iter().zip(arguments) {
        assert_eq!(parameter.bytes as usize, argument.len(), "{}", info.name);
        bytes[parameter.offset as usize..][..argument.len()].copy_from_slice(argument);
    }
    bytes
}
