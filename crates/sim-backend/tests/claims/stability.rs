//! The model stays as it is: times and numbers of records of random programs of many threads.
//!
//! Recordings hold few kernels with advice, pages that thrash, or memory that runs out. A change that is
//! about speed alone leaves these sums; one of the model changes them, and its commit says why.

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use pagewise_hal::{
    Advice, AttachFlags, Backend, DeviceAccess, DeviceId, DeviceTouch, HostAccess, HostTouch,
    KernelAccess, KernelAccesses, KernelWalk, Location, Result, Span, StridedSpan,
};
use pagewise_sim::{GpuProfile, MemoryContents, SimBackend, SimConfig};

use crate::common::{MIB, STREAM};

const GPU: DeviceId = DeviceId(0);
const STRIDES: [u64; 10] = [64, 128, 256, 1000, 2048, 4096, 5000, 8192, 65_536, 2 * MIB];
const THREADS: [u32; 7] = [1, 32, 33, 100, 256, 512, 1024];
const BLOCKS: [u32; 7] = [1, 2, 16, 132, 264, 1000, 5000];
const ADVICE: [Advice; 6] = [
    Advice::SET_READ_MOSTLY,
    Advice::UNSET_READ_MOSTLY,
    Advice::SET_PREFERRED_LOCATION,
    Advice::UNSET_PREFERRED_LOCATION,
    Advice::SET_ACCESSED_BY,
    Advice::UNSET_ACCESSED_BY,
];

/// A random program, in managed memory of a machine of its own.
struct Program {
    random: ChaCha8Rng,
    sim: SimBackend,
    memory: Span,
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |limit: u64| random.next_u64() % limit;
        let (mib, is_small) = (4 + below(40), below(4) == 0);
        let multiprocessors = if below(3) == 0 { 1 + below(300) } else { 132 };
        let batch_faults = if below(4) == 0 { 1 + below(600) } else { 256 };
        let device_bytes = if is_small { mib * MIB * 2 / 3 } else { 256 * MIB };
        let memory_bytes = GpuProfile::h200().context_bytes + device_bytes;
        let gpu = GpuProfile::from_toml(&format!(
            "base = 'h200'\nname = 'small'\nmemory_bytes = {memory_bytes}\n\
             [arrival]\nmultiprocessors = {multiprocessors}\nbatch_faults = {batch_faults}"
        ));
        let config = SimConfig::new(gpu.unwrap()).contents(MemoryContents::Skipped).seed(seed);
        let sim = SimBackend::new(config).unwrap();
        let bytes = mib * MIB + below(1000);
        let memory = Span::new(sim.alloc_managed(bytes, AttachFlags::GLOBAL).unwrap(), bytes);
        Self { random, sim, memory }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A part of the memory.
    fn part(&mut self) -> Span {
        let bytes = self.memory.bytes;
        let start = if self.below(2) == 0 { 0 } else { self.below(bytes) };
        let most = bytes - start;
        let len = if self.below(2) == 0 { most } else { 1 + self.below(most) };
        Span::new(self.memory.ptr.offset(start), len)
    }

    fn location(&mut self) -> Location {
        self.one_of(&[Location::device(GPU), Location::HOST])
    }

    fn touch(&mut self, span: Span) -> Result<()> {
        let access = self.one_of(&[DeviceAccess::Read, DeviceAccess::Write(1)]);
        let (blocks, threads) = (self.one_of(&BLOCKS), self.one_of(&THREADS));
        let stride_bytes = self.one_of(&STRIDES);
        let touch = DeviceTouch { device: GPU, span, stride_bytes, access, blocks, threads };
        // SAFETY: this thread alone uses the memory.
        unsafe { self.sim.device_touch(touch, STREAM) }.map(drop)
    }

    fn touch_by_host(&mut self, span: Span) -> Result<()> {
        let access = self.one_of(&[HostAccess::Read, HostAccess::Write(2)]);
        // SAFETY: this thread alone uses the memory.
        unsafe { self.sim.host_touch(HostTouch { span, stride_bytes: 4096, access }) }.map(drop)
    }

    /// A kernel with up to three walks over a few ranges each.
    fn kernel(&mut self) -> Result<()> {
        let walk = |program: &mut Self| {
            let range = |program: &mut Self| {
                let (span, stride_bytes) = (program.part(), program.one_of(&STRIDES));
                StridedSpan { span, stride_bytes }
            };
            let access =
                program.one_of(&[KernelAccess::Load, KernelAccess::Store, KernelAccess::Atomic]);
            let ranges = 1 + program.below(4);
            KernelWalk { access, places: (0..ranges).map(|_| range(program)).collect() }
        };
        let walks = (0..1 + self.below(3)).map(|_| walk(self)).collect();
        let (blocks, threads) = (self.one_of(&BLOCKS), self.one_of(&THREADS));
        let kernel = KernelAccesses { device: GPU, blocks, threads, walks };
        // SAFETY: this thread alone uses the memory.
        unsafe { self.sim.kernel_accesses(&kernel, STREAM) }
    }

    fn step(&mut self) -> Result<()> {
        let part = self.part();
        match self.below(11) {
            0..3 => self.touch(part),
            3 => self.touch_by_host(part),
            4 => {
                let to = self.location();
                self.sim.prefetch(part, to, 0, STREAM)
            }
            5 => {
                let (advice, location) = (self.one_of(&ADVICE), self.location());
                self.sim.advise(part, advice, location)
            }
            // SAFETY: this thread alone uses the memory.
            6 => unsafe { self.sim.memset(part, 1, STREAM) },
            7 => {
                let half = self.memory.bytes / 2;
                let (to, from) = (self.memory.ptr.offset(half), self.memory.ptr);
                // SAFETY: this thread alone uses the memory, and the halves lie apart.
                unsafe { self.sim.memcpy(to, from, half, STREAM) }
            }
            8 => {
                // Back and forth, so that pages thrash.
                let few = Span::new(part.ptr, part.bytes.min(MIB / 4));
                (0..8).try_for_each(|_| self.touch_by_host(few).and_then(|()| self.touch(few)))
            }
            _ => self.kernel(),
        }
    }
}

/// Sums over programs of so many seeds: records, faults of the device, and the last time of each in
/// nanoseconds.
fn sums(seeds: std::ops::Range<u64>) -> [u64; 3] {
    let mut sums = [0; 3];
    for seed in seeds {
        let mut program = Program::new(seed);
        for _ in 0..1 + program.below(8) {
            // Some steps are refused, as advice about a location that does not fit it.
            let _ = program.step();
        }
        let records = program.sim.take_events().unwrap().len() as u64;
        let faults = program.sim.counters().gpu_faults;
        let of_program = [records, faults, program.sim.clock_ns()];
        sums.iter_mut().zip(of_program).for_each(|(sum, one)| *sum += one);
    }
    sums
}

#[test]
fn times_and_records_of_random_programs_are_those_of_the_model() {
    let batches = [0..100, 100..200, 200..300, 300..400].map(sums);
    let of_the_model = [
        [138_664, 7129, 922_048_043],
        [134_906, 34_369, 1_039_811_927],
        [95_009, 7428, 1_612_951_952],
        [154_759, 7797, 2_811_299_295],
    ];
    assert_eq!(batches, of_the_model);
}
