//! Launches that were observed: carried out again without the code, they move the same pages.

use std::collections::{BTreeMap, VecDeque};

use pagewise_hal::{
    Backend, BackendExt, DeviceId, ErrorKind, FaultAccess, HostAccess, HostTouch, KernelWork,
    MemoryEvent, RecordedLaunch, Span, StreamHandle,
};
use pagewise_sim::{
    CodePlace, CodeState, DeviceCode, DeviceMemory, DeviceWait, DeviceWindow, SimBackend, SimConfig,
};

use crate::common::MIB;
use crate::oversubscription::small_gpu;

const DEVICE: DeviceId = DeviceId(0);
const SLOTS: u32 = 132;
const MULTIPROCESSORS: u32 = 132;

/// An instruction of a warp.
#[derive(Debug, Clone)]
enum Instruction {
    /// Accesses to these addresses.
    Access(Vec<u64>, FaultAccess),
    /// Waits until all warps of the block are here or have ended.
    Barrier,
}

/// Lanes of a warp that run together.
type Lanes = VecDeque<Instruction>;

#[derive(Debug)]
struct Warp {
    number: u32,
    /// Lanes that parted each have code of their own.
    code: Vec<Lanes>,
    waits: Vec<DeviceWait>,
}

/// A kernel of warps with barriers, on a few slots of a device.
struct Kernel {
    blocks: VecDeque<(u64, Vec<Warp>)>,
    resident: BTreeMap<u32, (u64, Vec<Warp>)>,
}

impl Kernel {
    /// A kernel of random accesses within a range.
    fn random(seed: u64, span: Span, (blocks, warps): (u64, u32)) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = move |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let mut lanes = |block: u64| {
            let mut code = VecDeque::new();
            for phase in 0..3 {
                for _ in 0..below(4) {
                    let access = [FaultAccess::Read, FaultAccess::Write, FaultAccess::Atomic];
                    let access = access[below(3) as usize];
                    let near = (block * 3 + phase) * 20_000 % span.bytes;
                    let one = |bound| span.ptr.0 + ((near + bound) % span.bytes) / 4 * 4;
                    let addresses = (0..=below(3)).map(|_| one(below(1 << 16))).collect();
                    code.push_back(Instruction::Access(addresses, access));
                }
                code.push_back(Instruction::Barrier);
            }
            code
        };
        let mut warp = |block: u64, number: u32| {
            let parts = 1 + (block + u64::from(number)) % 2;
            let code = (0..parts).map(|_| lanes(block)).collect();
            Warp { number, code, waits: Vec::new() }
        };
        let block = |block| (block, (0..warps).map(|number| warp(block, number)).collect());
        let blocks = (0..blocks).map(block).collect();
        Self { blocks, resident: BTreeMap::new() }
    }
}

impl Warp {
    /// Runs until all lanes wait; whether any did anything.
    fn run(&mut self, memory: &DeviceMemory<'_>, place: CodePlace) -> bool {
        memory.turn(place);
        self.waits.clear();
        let mut ran = false;
        for lanes in &mut self.code {
            let before = lanes.len();
            self.waits.extend(run(lanes, memory, place));
            ran |= lanes.len() < before;
        }
        self.waits.sort_by_key(|wait| wait.nth);
        ran
    }

    fn at_barrier(&self) -> bool {
        let waits = |lanes: &Lanes| matches!(lanes.front(), None | Some(Instruction::Barrier));
        self.code.iter().all(waits)
    }

    fn pass_barrier(&mut self) {
        self.code.iter_mut().for_each(|lanes| _ = lanes.pop_front());
        self.code.retain(|lanes| !lanes.is_empty());
    }
}

/// Runs lanes up to a barrier or an access that waits, and gives what waits. Behind a write that does,
/// the accesses up to the next read or barrier are issued.
fn run(lanes: &mut Lanes, memory: &DeviceMemory<'_>, place: CodePlace) -> Vec<DeviceWait> {
    while let Some(Instruction::Access(addresses, access)) = lanes.front() {
        let mut waits = missing(memory, place, 0, addresses, *access);
        if waits.is_empty() {
            lanes.pop_front();
            continue;
        }
        let (mut nth, mut before) = (1, *access);
        for instruction in lanes.iter().skip(1) {
            let Instruction::Access(addresses, access) = instruction else { break };
            if before != FaultAccess::Write {
                break;
            }
            let behind = missing(memory, place, nth, addresses, *access);
            nth += u32::from(!behind.is_empty());
            waits.extend(behind);
            before = *access;
        }
        return waits;
    }
    Vec::new()
}

/// The lanes of an access that wait.
fn missing(
    memory: &DeviceMemory<'_>,
    place: CodePlace,
    nth: u32,
    addresses: &[u64],
    access: FaultAccess,
) -> Vec<DeviceWait> {
    let is_missing = |address: &&u64| memory.window(**address, access) == DeviceWindow::Missing;
    let wait = |&address: &u64| DeviceWait {
        multiprocessor: place.slot % MULTIPROCESSORS,
        block: place.block,
        warp: place.warp,
        nth,
        address,
        access,
    };
    addresses.iter().filter(is_missing).map(wait).collect()
}

impl DeviceCode for Kernel {
    fn run(&mut self, memory: &DeviceMemory<'_>) -> CodeState {
        loop {
            let mut progress = false;
            for slot in 0..SLOTS {
                if !self.resident.contains_key(&slot)
                    && let Some(next) = self.blocks.pop_front()
                {
                    self.resident.insert(slot, next);
                    progress = true;
                }
            }
            self.resident.retain(|&slot, (block, warps)| {
                for warp in &mut *warps {
                    let place = CodePlace { slot, block: *block, warp: warp.number };
                    progress |= warp.run(memory, place);
                }
                if warps.iter().all(Warp::at_barrier) {
                    warps.iter_mut().for_each(Warp::pass_barrier);
                    warps.retain(|warp| !warp.code.is_empty());
                    progress = true;
                }
                !warps.is_empty()
            });
            if self.resident.is_empty() && self.blocks.is_empty() {
                return CodeState::Ended { ran_ns: 0 };
            }
            if !progress {
                return CodeState::Waits;
            }
        }
    }

    fn waiting(&self) -> Vec<DeviceWait> {
        let warps = self.resident.values().flat_map(|(_, warps)| warps);
        let mut waits: Vec<_> = warps.flat_map(|warp| warp.waits.clone()).collect();
        waits.sort_by_key(|wait| (wait.multiprocessor, wait.block, wait.warp, wait.nth));
        waits
    }
}

fn machine(config: SimConfig) -> (SimBackend, Span) {
    let sim = SimBackend::new(config).expect("address space");
    let span = sim.alloc(16 * MIB).expect("memory");
    let touch = HostTouch { span, stride_bytes: 4096, access: HostAccess::Write(1) };
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.host_touch(touch) }.expect("managed");
    sim.take_events().expect("kept");
    (sim, span)
}

fn records(sim: &SimBackend, base: Span) -> Vec<MemoryEvent> {
    let events = sim.take_events().expect("kept").into_iter();
    events.map(|event| event.with_address(event.address() - base.ptr.0)).collect()
}

/// Runs a random kernel and gives its records and the launch.
fn observed(config: SimConfig, seed: u64, shape: (u64, u32)) -> (Vec<MemoryEvent>, RecordedLaunch) {
    let (sim, span) = machine(config);
    let mut kernel = Kernel::random(seed, span, shape);
    // SAFETY: only this test uses the memory, from one thread.
    let traced = unsafe { sim.trace_code(DEVICE, 1, &mut kernel, StreamHandle::NULL) };
    let traced = traced.expect("a live machine");
    assert!(traced.is_whole);
    let launch = RecordedLaunch {
        device: DEVICE,
        kernel: "random".to_owned(),
        grid: [shape.0 as u32, 1, 1],
        block: [shape.1 * 32, 1, 1],
        registers: 32,
        shared_bytes: 0,
        multiprocessors: MULTIPROCESSORS,
        blocks_each: 1,
        work: KernelWork::default(),
        ranges: traced.ranges,
        accesses: traced.accesses,
    };
    (records(&sim, span), launch)
}

/// Carries a launch out on a machine of its own.
fn replayed(config: SimConfig, launch: &RecordedLaunch) -> Vec<MemoryEvent> {
    let (sim, span) = machine(config);
    let launch = RecordedLaunch { ranges: vec![span], ..launch.clone() };
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.launch_recorded(&launch, StreamHandle::NULL) }.expect("its accesses are inside");
    records(&sim, span)
}

#[test]
fn a_recorded_launch_gives_the_records_of_its_code() {
    for seed in 1..10 {
        for shape in [(1, 1), (3, 4), (300, 2)] {
            let config = || SimConfig::h200().seed(seed);
            let (ran, launch) = observed(config(), seed, shape);
            assert_eq!(replayed(config(), &launch), ran, "seed {seed}, {shape:?}");
        }
    }
}

#[test]
fn a_recorded_launch_gives_the_records_of_its_code_when_memory_is_short() {
    for seed in 1..8 {
        let config = || SimConfig::new(small_gpu(8 * MIB)).seed(seed);
        let (ran, launch) = observed(config(), seed, (200, 2));
        assert_eq!(replayed(config(), &launch), ran, "seed {seed}");
    }
}

/// The pages that copies to the device brought.
fn brought(records: &[MemoryEvent]) -> u64 {
    let bytes = records.iter().map(|record| match record {
        MemoryEvent::Copy { bytes, to, .. } if *to != pagewise_hal::Processor::HOST => *bytes,
        _ => 0,
    });
    bytes.sum()
}

#[test]
fn a_recorded_launch_brings_its_pages_to_any_other_gpu() {
    for seed in 1..10 {
        let (ran, launch) = observed(SimConfig::h200().seed(seed), seed, (40, 8));
        for name in ["a100", "l4", "v100"] {
            let config = SimConfig::profile(name).expect("a profile").seed(seed + 100);
            let elsewhere = replayed(config, &launch);
            assert_eq!(brought(&elsewhere), brought(&ran), "{name}, seed {seed}");
        }
    }
}

#[test]
fn accesses_that_cannot_be_read_are_refused_and_move_nothing() {
    let (_, launch) = observed(SimConfig::h200(), 3, (5, 2));
    let (sim, span) = machine(SimConfig::h200());
    let good = RecordedLaunch { ranges: vec![span], ..launch };
    let cut = good.accesses[..good.accesses.len() - 1].to_vec();
    let small = Span::new(span.ptr, 128);
    for bad in [
        RecordedLaunch { accesses: cut, ..good.clone() },
        RecordedLaunch { grid: [4, 1, 1], ..good.clone() },
        RecordedLaunch { block: [32, 1, 1], ..good.clone() },
        RecordedLaunch { block: [0, 1, 1], ..good.clone() },
        RecordedLaunch { block: [32, 32, 2], ..good.clone() },
        RecordedLaunch { multiprocessors: 0, ..good.clone() },
        RecordedLaunch { multiprocessors: u32::MAX, blocks_each: u32::MAX, ..good.clone() },
        RecordedLaunch { ranges: vec![small], ..good.clone() },
        RecordedLaunch { ranges: Vec::new(), ..good.clone() },
    ] {
        // SAFETY: only this test uses the memory, from one thread.
        let refused = unsafe { sim.launch_recorded(&bad, StreamHandle::NULL) };
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::InvalidValue), "{bad:?}");
    }
    assert_eq!(records(&sim, span), []);
}
