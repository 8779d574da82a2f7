//! Random programs on the simulator, with the engine's invariants checked after every step.
//!
//! Programs mix every call that moves pages, over allocations of all shapes, right and wrong
//! arguments alike. Four claims must hold: contents are those of plain memory, except where
//! discarded; two runs give the same records, answers and times; a failed call changes nothing that
//! can be seen; nothing panics. `PROPTEST_CASES` asks for more than the usual number.

use pagewise::{
    Advice, AttachFlags, Backend, CopyAttributes, DeviceAccess, DeviceId, DeviceTouch,
    DiscardedContents, GpuProfile, HostAccess, HostTouch, Location, MemoryEvent, PAGE_BYTES,
    RangeAttribute, SimBackend, SimConfig, Span, SpanCopy, StreamHandle,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};

const STREAM: StreamHandle = StreamHandle::PER_THREAD;
const DEVICES: u32 = 2;

/// One call: which buffer, which part of it in thousandths, and what is done.
#[derive(Debug, Clone)]
struct Step {
    buffer: usize,
    start: u64,
    length: u64,
    action: Action,
}

#[derive(Debug, Clone)]
enum Action {
    Host(HostAccess, u64),
    /// Device, access, stride, blocks, threads.
    Device(i32, DeviceAccess, u64, (u32, u32)),
    Advise(i32, i32),
    Prefetch(i32),
    PrefetchBatch(i32),
    Discard,
    DiscardPrefetch(i32),
    Fill(u8),
    Fill16(u16),
    Fill32(u32),
    /// One copy for each destination: a buffer, and a part of it in thousandths.
    CopyBatch(Vec<(usize, u64)>),
    Read,
    /// Frees the buffer and allocates one of the same size.
    Renew,
    Sleep(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let ordinal = -2..3i32;
    let stride = prop_oneof![Just(1u64), Just(PAGE_BYTES), 1..200_000u64];
    let host = prop_oneof![Just(HostAccess::Read), any::<u8>().prop_map(HostAccess::Write)];
    let device = prop_oneof![
        Just(DeviceAccess::Read),
        any::<u8>().prop_map(DeviceAccess::Write),
        Just(DeviceAccess::AtomicAdd),
    ];
    let grid = prop_oneof![2 => Just((1, 1)), 1 => (1..300u32, 1..1025u32)];
    prop_oneof![
        6 => (host, stride.clone()).prop_map(|(access, stride)| Action::Host(access, stride)),
        8 => (0..3i32, device, stride, grid)
            .prop_map(|(d, access, stride, grid)| Action::Device(d, access, stride, grid)),
        6 => (0..8i32, ordinal.clone()).prop_map(|(advice, to)| Action::Advise(advice, to)),
        4 => ordinal.clone().prop_map(Action::Prefetch),
        2 => ordinal.clone().prop_map(Action::PrefetchBatch),
        2 => Just(Action::Discard),
        2 => ordinal.prop_map(Action::DiscardPrefetch),
        1 => any::<u8>().prop_map(Action::Fill),
        2 => Just(Action::Read),
        1 => Just(Action::Renew),
        1 => (0..2_000_000u64).prop_map(Action::Sleep),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    (0..4usize, 0..1000u64, 0..1100u64, action()).prop_map(|(buffer, start, length, action)| Step {
        buffer,
        start,
        length,
        action,
    })
}

/// A step, or a call that [`step`] leaves out: its steps are those of [`HASH`].
fn step_or_copy() -> impl Strategy<Value = Step> {
    let to = prop::collection::vec((0..4usize, 0..1000u64), 0..4);
    let copy = prop_oneof![
        any::<u16>().prop_map(Action::Fill16),
        any::<u32>().prop_map(Action::Fill32),
        to.prop_map(Action::CopyBatch),
    ];
    let copy = (0..4usize, 0..1000u64, 0..1100u64, copy);
    prop_oneof![
        3 => step(),
        1 => copy.prop_map(|(buffer, start, length, action)| Step { buffer, start, length, action }),
    ]
}

/// One byte of plain memory; `None` after a discard, until it is written.
type Byte = Option<u8>;

/// A simulator, and for each of its buffers the bytes that plain memory would hold.
struct SimAndBytes {
    sim: SimBackend,
    buffers: Vec<(Span, Vec<Byte>)>,
    events: Vec<MemoryEvent>,
    codes: Vec<i32>,
}

impl SimAndBytes {
    fn new(contents: DiscardedContents) -> Self {
        Self::of(SimConfig::h200().devices(DEVICES).discarded_contents(contents))
    }

    fn of(config: SimConfig) -> Self {
        let sim = SimBackend::new(config).expect("address space");
        let buffers = [100, 70_000, (2 << 20) + 5000, 5 << 20].map(|bytes| allocate(&sim, bytes));
        Self { sim, buffers: buffers.into(), events: Vec::new(), codes: Vec::new() }
    }

    fn run(&mut self, step: &Step) {
        let (whole, _) = self.buffers[step.buffer];
        let start = whole.bytes * step.start / 1000;
        let bytes = whole.bytes * step.length / 1000;
        let span = Span::new(whole.ptr.offset(start), bytes);
        let inside = start + bytes <= whole.bytes && bytes > 0;
        let code = self.act(step, span, start as usize, inside);
        self.codes.push(code);
        self.events.extend(self.sim.take_events().expect("records"));
    }

    fn act(&mut self, step: &Step, span: Span, start: usize, inside: bool) -> i32 {
        if let Action::Fill16(_) | Action::Fill32(_) | Action::CopyBatch(_) = &step.action {
            return self.fill_or_copy(step, span, start);
        }
        let sim = &self.sim;
        let places = |stride: u64| (0..span.bytes).step_by(stride as usize);
        let memory = &mut self.buffers[step.buffer].1;
        match step.action {
            Action::Host(access, stride_bytes) => {
                // SAFETY: one thread uses the memory.
                let sum = unsafe { sim.host_touch(HostTouch { span, stride_bytes, access }) };
                let at = places(stride_bytes).map(|offset| start + offset as usize);
                if let (true, HostAccess::Write(value)) = (sum.is_ok(), access) {
                    at.for_each(|at| memory[at] = Some(value));
                } else if let (true, Ok(sum)) = (inside, &sum) {
                    check_sum(*sum, at.map(|at| memory[at]));
                }
                code(sum)
            }
            Action::Device(device, access, stride_bytes, (blocks, threads)) => {
                let device = DeviceId(device);
                let touch = DeviceTouch { device, span, stride_bytes, access, blocks, threads };
                // SAFETY: one thread uses the memory.
                let sum = unsafe { sim.device_touch(touch, STREAM) };
                let at = places(stride_bytes).map(|offset| start + offset as usize);
                match (&sum, access) {
                    (Ok(_), DeviceAccess::Write(value)) => {
                        at.for_each(|at| memory[at] = Some(value));
                    }
                    (Ok(_), DeviceAccess::AtomicAdd) => at.for_each(|at| add_one(memory, at)),
                    (Ok(sum), DeviceAccess::Read) if inside => {
                        check_sum(*sum, at.map(|at| memory[at]));
                    }
                    _ => {}
                }
                code(sum)
            }
            Action::Advise(advice, to) => code(sim.advise_ordinal(span, Advice(advice), to)),
            Action::Prefetch(to) => code(sim.prefetch_ordinal(span, to, STREAM)),
            Action::PrefetchBatch(to) => {
                code(sim.prefetch_batch(&[span], &[location(to)], &[0], 0, STREAM))
            }
            Action::Discard => {
                // SAFETY: the claim does not compare discarded bytes: its model forgets them too.
                let answer = unsafe { sim.discard_batch(&[span], 0, STREAM) };
                forget(memory, span, start, answer.is_ok());
                code(answer)
            }
            Action::DiscardPrefetch(to) => {
                let to = [location(to)];
                // SAFETY: the claim does not compare discarded bytes: its model forgets them too.
                let answer = unsafe { sim.discard_prefetch_batch(&[span], &to, &[0], 0, STREAM) };
                forget(memory, span, start, answer.is_ok());
                code(answer)
            }
            Action::Fill(value) => {
                // SAFETY: one thread uses the memory.
                let answer = unsafe { sim.memset(span, value, STREAM) };
                if answer.is_ok() {
                    memory[start..start + span.bytes as usize].fill(Some(value));
                }
                code(answer)
            }
            Action::Read => code(sim.range_attribute(span, RangeAttribute::READ_MOSTLY)),
            Action::Renew => {
                let (old, _) = self.buffers[step.buffer];
                // SAFETY: no work uses the memory, and it is freed once.
                let answer = unsafe { sim.free(old.ptr) };
                let (span, mut memory) = allocate(sim, old.bytes);
                // A new allocation's contents are indeterminate.
                memory.fill(None);
                self.buffers[step.buffer] = (span, memory);
                code(answer)
            }
            Action::Sleep(ns) => {
                sim.sleep_ns(ns);
                0
            }
            Action::Fill16(_) | Action::Fill32(_) | Action::CopyBatch(_) => unreachable!("above"),
        }
    }

    fn fill_or_copy(&mut self, step: &Step, span: Span, start: usize) -> i32 {
        let sim = &self.sim;
        let range = start..start + span.bytes as usize;
        let (answer, value) = match step.action {
            Action::CopyBatch(ref to) => return self.copy_batch(step.buffer, span, start, to),
            // SAFETY: one thread uses the memory.
            Action::Fill16(value) => unsafe {
                (sim.memset_d16(span, value, STREAM), value.to_le_bytes().to_vec())
            },
            // SAFETY: one thread uses the memory.
            Action::Fill32(value) => unsafe {
                (sim.memset_d32(span, value, STREAM), value.to_le_bytes().to_vec())
            },
            _ => unreachable!("a fill or copy"),
        };
        if answer.is_ok() {
            let memory = &mut self.buffers[step.buffer].1[range];
            for (byte, value) in memory.iter_mut().zip(value.iter().cycle()) {
                *byte = Some(*value);
            }
        }
        code(answer)
    }

    /// Copies a range to each destination, by a batch. Destinations that overlap another range of
    /// the batch are left out. Those that the range does not fit into are refused, which ends the
    /// batch.
    fn copy_batch(&mut self, from: usize, span: Span, start: usize, to: &[(usize, u64)]) -> i32 {
        let bytes = span.bytes as usize;
        let mut used = vec![(from, start)];
        let mut copies = Vec::new();
        for &(buffer, at) in to {
            let whole = self.buffers[buffer].0;
            let at = (whole.bytes * at / 1000) as usize;
            if used.iter().all(|&(other, place)| other != buffer || place.abs_diff(at) >= bytes) {
                used.push((buffer, at));
                copies.push(SpanCopy::new(whole.ptr.offset(at as u64), span.ptr, span.bytes));
            }
        }
        let plain = [CopyAttributes::default()];
        // SAFETY: one thread uses the memory, and no destination overlaps another range.
        let answer = unsafe { self.sim.memcpy_batch(&copies, &plain, &[0], STREAM) };
        let done = match &answer {
            Ok(()) => copies.len(),
            Err(error) => error.item().unwrap_or(0),
        };
        for &(buffer, at) in &used[1..][..done] {
            let copied = self.buffers[from].1[start..start + bytes].to_vec();
            self.buffers[buffer].1[at..at + bytes].copy_from_slice(&copied);
        }
        code(answer)
    }
}

fn allocate(sim: &SimBackend, bytes: u64) -> (Span, Vec<Byte>) {
    let ptr = sim.alloc_managed(bytes, AttachFlags::GLOBAL).expect("managed memory");
    (Span::new(ptr, bytes), vec![Some(0); bytes as usize])
}

fn location(ordinal: i32) -> Location {
    match ordinal {
        -1 => Location::HOST,
        other => Location::device(DeviceId(other)),
    }
}

fn code<T>(answer: pagewise::Result<T>) -> i32 {
    answer.map_or_else(|error| error.code().expect("a driver's number"), |_| 0)
}

fn add_one(memory: &mut [Byte], at: usize) {
    let word = at & !3;
    let bytes: Option<Vec<u8>> = (word..word + 4).map(|i| memory.get(i).copied()?).collect();
    let sum = bytes.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]).wrapping_add(1));
    for (index, byte) in memory.iter_mut().skip(word).take(4).enumerate() {
        *byte = sum.map(|sum| sum.to_le_bytes()[index]);
    }
}

/// Discard rounds inward; pages are counted from the address, not from the buffer.
fn forget(memory: &mut [Byte], span: Span, start: usize, done: bool) {
    if done {
        let base = span.ptr.0 - start as u64;
        let pages = span.pages_inward();
        if !pages.is_empty() {
            let offset = |page: u64| (page * PAGE_BYTES - base) as usize;
            memory[offset(pages.start)..offset(pages.end)].fill(None);
        }
    }
}

fn check_sum(sum: u64, bytes: impl Iterator<Item = Byte>) {
    let known: Option<u64> = bytes.map(|byte| byte.map(u64::from)).sum();
    if let Some(known) = known {
        assert_eq!(sum, known, "contents differ from plain memory");
    }
}

/// Addresses differ between two simulators by where their memory starts, which is aligned to 2 MiB.
fn relative(pair: &SimAndBytes) -> Vec<(String, u64)> {
    let one = |event: &MemoryEvent| {
        let mut event = *event;
        let address = match &mut event {
            MemoryEvent::Copy { address, .. }
            | MemoryEvent::CpuFault { address, .. }
            | MemoryEvent::GpuFault { address, .. }
            | MemoryEvent::RemoteMap { address, .. }
            | MemoryEvent::Thrashing { address, .. }
            | MemoryEvent::Throttling { address, .. } => std::mem::take(address),
            _ => 0,
        };
        (format!("{event:?}"), address % (2 << 20))
    };
    pair.events.iter().map(one).collect()
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(3),
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn contents_are_those_of_plain_memory(steps in prop::collection::vec(step_or_copy(), 1..60)) {
        for contents in [DiscardedContents::Kept, DiscardedContents::Driver] {
            let mut pair = SimAndBytes::new(contents);
            steps.iter().for_each(|step| pair.run(step));
        }
    }

    #[test]
    fn contents_are_those_of_plain_memory_on_machines_of_every_kind(
        steps in prop::collection::vec(step_or_copy(), 1..60),
    ) {
        // Full, coherent with access counters, without peers, without device faults; the last also
        // where devices share the host's memory.
        for (name, usable_mib, devices) in
            [("h200", 6, 2), ("gh200", 6, 2), ("l4", 6, 2), ("wsl", 32, 1), ("wsl", 32, 2)]
        {
            let mut gpu = GpuProfile::named(name).expect("a shipped profile");
            gpu.memory_bytes = gpu.context_bytes + (usable_mib << 20);
            gpu.paging.access_counters.threshold = 16;
            let config = SimConfig::new(gpu).devices(devices);
            let mut pair =
                SimAndBytes::of(config.discarded_contents(DiscardedContents::Driver));
            steps.iter().for_each(|step| pair.run(step));
            let faults = |event: &MemoryEvent| matches!(event, MemoryEvent::GpuFault { .. });
            prop_assert!(name != "wsl" || !pair.events.iter().any(faults));
        }
    }

    #[test]
    fn two_runs_give_the_same_records_answers_and_times(
        steps in prop::collection::vec(step_or_copy(), 1..60),
    ) {
        let run = || {
            let mut pair = SimAndBytes::new(DiscardedContents::Kept);
            steps.iter().for_each(|step| pair.run(step));
            (relative(&pair), pair.codes.clone(), pair.sim.clock_ns())
        };
        prop_assert_eq!(run(), run());
    }
}

/// FNV-1a, 64 bits: the same on every machine, unlike the standard library's hashers.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// One long program, the same everywhere: its records, answers and times have this hash in every
/// build on every machine. It changes only when the model does; then write the new one here.
#[test]
fn records_answers_and_times_are_the_same_in_every_build_on_every_machine() {
    let mut runner = TestRunner::deterministic();
    let mut pair = SimAndBytes::new(DiscardedContents::Kept);
    for _ in 0..1600 {
        let step = step().new_tree(&mut runner).expect("a step").current();
        pair.run(&step);
    }
    let records = relative(&pair);
    assert!(records.len() > 5000, "{} records are too few to tell", records.len());
    let all = format!("{records:?} {:?} {}", pair.codes, pair.sim.clock_ns());
    assert_eq!(format!("{:016x}", hash(&all)), HASH);
}

const HASH: &str = "dbf96049c0da4205";
