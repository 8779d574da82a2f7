//! Executed code: its accesses move pages as those of declared kernels do.

use pagewise_hal::{
    Backend, BackendExt, DeviceAccess, DeviceId, DevicePtr, DeviceTouch, FaultAccess, HostAccess,
    HostAddresses, HostAllocFlags, HostTouch, MemoryEvent, PAGE_BYTES, Span, StreamHandle,
};
use pagewise_sim::{
    CodeState, DeviceCode, DeviceMemory, DeviceWait, DeviceWindow, SimBackend, SimConfig,
};

use crate::common::{MIB, code};

const DEVICE: DeviceId = DeviceId(0);
/// The multiprocessors of an H200, and the threads that one holds.
const MULTIPROCESSORS: u32 = 132;
const THREADS_HELD: u32 = 2048;

/// A warp of a grid-stride loop, at its next place.
#[derive(Debug, Clone)]
struct Warp {
    /// Its number in the block.
    number: u32,
    multiprocessor: u32,
    block: u32,
    /// The place of its first lane.
    place: u64,
}

/// A grid-stride loop as code: each thread reads or writes a byte of a place, and goes on by as many
/// places as there are threads.
struct Loop {
    span: Span,
    stride: u64,
    blocks: u32,
    threads: u32,
    access: FaultAccess,
    resident: Vec<Warp>,
    next_block: u32,
    waits: Vec<DeviceWait>,
    sum: u64,
    refused: bool,
}

impl Loop {
    fn new(span: Span, stride: u64, (blocks, threads): (u32, u32), access: FaultAccess) -> Self {
        let (resident, waits) = (Vec::new(), Vec::new());
        let (next_block, sum, refused) = (0, 0, false);
        Self { span, stride, blocks, threads, access, resident, next_block, waits, sum, refused }
    }

    fn fill(&mut self) {
        let held = (THREADS_HELD / self.threads).clamp(1, 32) as usize;
        let blocks_on = |warps: &[Warp], number: u32| {
            let mut blocks: Vec<u32> = warps
                .iter()
                .filter(|warp| warp.multiprocessor == number)
                .map(|warp| warp.block)
                .collect();
            blocks.sort_unstable();
            blocks.dedup();
            blocks.len()
        };
        for _ in 0..held {
            for multiprocessor in 0..MULTIPROCESSORS {
                if self.next_block < self.blocks && blocks_on(&self.resident, multiprocessor) < held
                {
                    let block = self.next_block;
                    self.next_block += 1;
                    let first = u64::from(block) * u64::from(self.threads);
                    self.resident.extend((0..self.threads.div_ceil(32)).map(|warp| {
                        let place = first + u64::from(warp) * 32;
                        Warp { number: warp, multiprocessor, block, place }
                    }));
                }
            }
        }
        self.resident.sort_by_key(|warp| (warp.multiprocessor, warp.block, warp.number));
    }

    /// Runs a warp until it waits; `false` if it is through.
    fn run_warp(&mut self, warp: &mut Warp, memory: &DeviceMemory<'_>) -> bool {
        let places = self.span.bytes.div_ceil(self.stride);
        let step = u64::from(self.blocks) * u64::from(self.threads);
        while warp.place < places {
            let lanes = warp.place..(warp.place + 32).min(places);
            let address = |place: u64| self.span.ptr.0 + place * self.stride;
            let at = |place| memory.window(address(place), self.access);
            let windows: Vec<_> = lanes.clone().map(|place| (place, at(place))).collect();
            if windows.iter().any(|(_, window)| *window == DeviceWindow::Refused) {
                self.refused = true;
                return false;
            }
            let missing = windows.iter().filter(|(_, window)| *window == DeviceWindow::Missing);
            let waits: Vec<_> = missing
                .map(|&(place, _)| DeviceWait {
                    multiprocessor: warp.multiprocessor,
                    block: warp.block.into(),
                    warp: warp.number,
                    nth: 0,
                    address: address(place),
                    access: self.access,
                })
                .collect();
            if !waits.is_empty() {
                self.waits.extend(waits);
                return true;
            }
            for (place, window) in windows {
                let DeviceWindow::Here { start, at, .. } = window else { continue };
                let byte = at.wrapping_add((address(place) - start) as usize);
                // SAFETY: the window holds the address, and only this code uses the memory.
                unsafe {
                    match self.access {
                        FaultAccess::Read => self.sum += u64::from(*byte),
                        _ => *byte = 7,
                    }
                }
            }
            warp.place += step;
        }
        false
    }
}

impl DeviceCode for Loop {
    fn run(&mut self, memory: &DeviceMemory<'_>) -> CodeState {
        self.waits.clear();
        loop {
            let before = self.next_block;
            self.fill();
            let mut resident = std::mem::take(&mut self.resident);
            self.waits.clear();
            resident.retain_mut(|warp| self.run_warp(warp, memory));
            self.resident = resident;
            if self.refused || (self.resident.is_empty() && self.next_block == self.blocks) {
                return CodeState::Ended { ran_ns: 0 };
            }
            if before == self.next_block {
                return CodeState::Waits;
            }
        }
    }

    fn waiting(&self) -> Vec<DeviceWait> {
        self.waits.clone()
    }
}

fn sim() -> SimBackend {
    SimBackend::new(SimConfig::h200()).expect("address space")
}

fn run(sim: &SimBackend, kernel: &mut Loop) {
    let threads = u64::from(kernel.blocks) * u64::from(kernel.threads);
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.run_code(DEVICE, threads, kernel, StreamHandle::NULL) }.expect("a live machine");
}

/// The host touches every byte.
fn host(sim: &SimBackend, span: Span, access: HostAccess) -> u64 {
    let touch = HostTouch { span, stride_bytes: 1, access };
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.host_touch(touch) }.expect("managed")
}

/// The records of a machine, with addresses from a base on.
fn records(sim: &SimBackend, base: DevicePtr) -> Vec<MemoryEvent> {
    let events = sim.take_events().expect("kept").into_iter();
    events.map(|event| event.with_address(event.address() - base.0)).collect()
}

/// The records of a declared kernel and those of code with the same accesses.
fn both(
    (access, as_program): (FaultAccess, DeviceAccess),
    (blocks, threads): (u32, u32),
    stride_bytes: u64,
) -> [Vec<MemoryEvent>; 2] {
    let (declared, executed) = (sim(), sim());
    let [a, b] = [&declared, &executed].map(|sim| {
        let span = sim.alloc(32 * MIB).expect("memory");
        host(sim, span, HostAccess::Write(1));
        sim.take_events().expect("kept");
        span
    });
    let (device, span) = (DEVICE, a);
    let touch = DeviceTouch { device, span, stride_bytes, access: as_program, blocks, threads };
    // SAFETY: only this test uses the memory, from one thread.
    let sum = unsafe { declared.device_touch(touch, StreamHandle::NULL) };
    let mut kernel = Loop::new(b, stride_bytes, (blocks, threads), access);
    run(&executed, &mut kernel);
    assert_eq!(kernel.sum, sum.expect("inside"));
    [records(&declared, a.ptr), records(&executed, b.ptr)]
}

const SHAPES: [(u32, u32); 4] = [(1, 32), (16, 256), (132, 256), (528, 1024)];

/// How many batches of faults there were, and the bytes that came to the device.
fn moved(records: &[MemoryEvent]) -> (usize, u64) {
    let is_fault = |record: &&MemoryEvent| matches!(record, MemoryEvent::GpuFault { .. });
    let bytes = records.iter().map(|record| match record {
        MemoryEvent::Copy { bytes, .. } => *bytes,
        _ => 0,
    });
    (records.iter().filter(is_fault).count(), bytes.sum())
}

#[test]
fn code_moves_what_a_declared_kernel_moves_in_up_to_twice_as_many_batches_of_faults() {
    let read = (FaultAccess::Read, DeviceAccess::Read);
    let write = (FaultAccess::Write, DeviceAccess::Write(7));
    for accesses in [read, write] {
        for shape in SHAPES {
            for stride_bytes in [256, PAGE_BYTES] {
                let [declared, executed] = both(accesses, shape, stride_bytes);
                let ((declared, bytes), (ours, our_bytes)) = (moved(&declared), moved(&executed));
                let name = format!("{accesses:?}, {shape:?} every {stride_bytes}");
                assert_eq!(our_bytes, bytes, "{name}");
                // The driver reads the faults of code earlier (TIMING-37).
                let near = declared * 3 / 4..=declared * 2;
                assert!(near.contains(&ours), "{name}: {ours} batches, declared {declared}");
            }
        }
    }
}

#[test]
fn what_code_writes_is_there_for_the_host() {
    let sim = sim();
    let span = sim.alloc(4 * MIB).expect("memory");
    run(&sim, &mut Loop::new(span, 4096, (4, 64), FaultAccess::Write));
    assert_eq!(host(&sim, span, HostAccess::Read), 7 * (4 * MIB / 4096));
}

#[test]
fn code_is_told_of_addresses_without_memory() {
    let sim = sim();
    let span = sim.alloc(MIB).expect("memory");
    let beyond = Span::new(span.ptr.offset(64 * MIB), MIB);
    let mut kernel = Loop::new(beyond, 4096, (1, 32), FaultAccess::Read);
    run(&sim, &mut kernel);
    assert!(kernel.refused);
}

#[test]
fn code_needs_a_device_and_contents() {
    let mut nothing = Loop::new(Span::new(DevicePtr(0), 0), 1, (1, 1), FaultAccess::Read);
    let machine = sim();
    // SAFETY: the code accesses nothing.
    let run = |sim: &SimBackend, device, code: &mut Loop| unsafe {
        sim.run_code(device, 1, code, StreamHandle::NULL)
    };
    assert_eq!(code(run(&machine, DeviceId(7), &mut nothing)), 101);
    let skipped = SimConfig::h200().contents(pagewise_sim::MemoryContents::Skipped);
    let machine = SimBackend::new(skipped).expect("address space");
    assert_eq!(code(run(&machine, DEVICE, &mut nothing)), 801);
}

/// Code that asks for windows and accesses nothing.
struct Asks {
    places: Vec<DevicePtr>,
    alone: Vec<Option<bool>>,
}

impl DeviceCode for Asks {
    fn run(&mut self, memory: &DeviceMemory<'_>) -> CodeState {
        let window = |place: &DevicePtr| memory.window(place.0, FaultAccess::Atomic);
        self.alone = self
            .places
            .iter()
            .map(|place| match window(place) {
                DeviceWindow::Here { is_alone, .. } => Some(is_alone),
                _ => None,
            })
            .collect();
        CodeState::Ended { ran_ns: 0 }
    }

    fn waiting(&self) -> Vec<DeviceWait> {
        Vec::new()
    }
}

#[test]
fn code_is_alone_with_memory_of_a_device_whose_address_nobody_else_has() {
    let sim = sim();
    let own = sim.alloc_device(DEVICE, MIB).expect("memory");
    let exported = sim.alloc_device(DEVICE, MIB).expect("memory");
    let pinned = sim.alloc_pinned(MIB, HostAllocFlags::default()).expect("memory");
    let managed = sim.alloc(MIB).expect("memory");
    run(&sim, &mut Loop::new(managed, PAGE_BYTES, (1, 32), FaultAccess::Write));
    sim.ipc_mem_handle(exported).expect("a handle");
    let asked = || {
        let places = vec![own, exported, pinned, managed.ptr];
        let mut code = Asks { places, alone: Vec::new() };
        // SAFETY: the code accesses nothing.
        unsafe { sim.run_code(DEVICE, 1, &mut code, StreamHandle::NULL) }.expect("a live machine");
        code.alone
    };
    assert_eq!(asked(), [Some(true), Some(false), Some(false), Some(false)]);
    sim.kernel_address(own);
    assert_eq!(asked()[0], Some(false));
}
