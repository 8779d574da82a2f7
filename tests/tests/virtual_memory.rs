//! Virtual memory resources over every back end: the same programs of allocations that come, grow
//! and go have the same answers, sizes and contents.
//!
//! The back ends are the simulator and the CUDA back end, over the simulated driver at each version
//! and over the driver of this machine if it has one. There growth may find other addresses free,
//! so the programs do not say whether an allocation moved.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use pagewise::resource::{Allocation, MemoryResource, VirtualMemoryResource, VirtualOptions};
use pagewise::{
    AccessFlags, Device, DeviceAccess, DeviceId, DeviceTouch, DriverVersion, Error, Host, Machine,
    Place, RangeReads, Result, SimBackend, SimConfig, Span, Stream,
};
use pagewise_cuda::CudaBackend;
use pagewise_tests::driver::SimulatedDriver;
use pagewise_tests::gpu::gpu;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// A step of a program.
#[derive(Debug, Clone)]
enum Step {
    Allocate(usize, u64),
    Grow(usize, u64),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Sizes of a few units, and two that no machine has.
    let bytes = || {
        prop_oneof![
            8 => 1..6 * MIB,
            1 => Just(0),
            1 => Just(1_u64 << 48),
            1 => Just(u64::MAX),
        ]
    };
    let step = prop_oneof![
        3 => (0..3_usize, bytes()).prop_map(|(place, bytes)| Step::Allocate(place, bytes)),
        4 => (any::<usize>(), bytes()).prop_map(|(which, bytes)| Step::Grow(which, 2 * (bytes / 2))),
        1 => any::<usize>().prop_map(Step::Free),
    ];
    proptest::collection::vec(step, 1..16)
}

fn text<T: std::fmt::Debug>(answer: &Result<T>) -> String {
    let failed = |error: &Error| format!("{:?} {:?}", error.kind(), error.code());
    answer.as_ref().map_or_else(failed, |value| format!("{value:?}"))
}

/// The sum that a device reads in a range, at each 4 KiB, after it has written there.
fn written(machine: &Machine, stream: &Stream, span: Span, value: u8) -> Result<u64> {
    let mut sum = 0;
    for access in [DeviceAccess::Write(value), DeviceAccess::Read] {
        let device = DeviceId(0);
        let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
        // SAFETY: only the program uses the memory, from one thread.
        sum = unsafe { machine.backend().device_touch(touch, stream.handle()) }?;
    }
    Ok(sum)
}

fn sum(machine: &Machine, stream: &Stream, span: Span) -> Result<u64> {
    let (device, access) = (DeviceId(0), DeviceAccess::Read);
    let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
    // SAFETY: only the program uses the memory, from one thread.
    unsafe { machine.backend().device_touch(touch, stream.handle()) }
}

/// The answers of a program.
fn transcript(machine: &Machine, steps: &[Step]) -> Result<String> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let info = || machine.backend().memory_info(DeviceId(0)).map(|info| info.free_bytes);
    let before = info()?;
    let node = Place::Host(Host::node(0)?);
    let mut log = String::new();
    let mut resources = Vec::new();
    for place in [Device::FIRST.into(), node, Place::HOST] {
        let mut options = VirtualOptions::default();
        if place != Place::from(Device::FIRST) {
            options.peers.push((Device::FIRST, AccessFlags::READ_WRITE));
        }
        let resource = VirtualMemoryResource::new(machine, place, options);
        let unit = resource.as_ref().map(VirtualMemoryResource::granularity_bytes);
        writeln!(log, "{place}: {}", text(&unit.map_err(Clone::clone))).expect("text");
        resources.push(resource.ok().map(Arc::new));
    }
    type Held = (Arc<VirtualMemoryResource>, Allocation, u8);
    let mut live: BTreeMap<usize, Held> = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        let pick = |which: usize| live.keys().copied().nth(which % live.len().max(1));
        match *step {
            Step::Allocate(place, bytes) => {
                let Some(resource) = &resources[place] else { continue };
                let made = Allocation::new(resource.clone(), bytes, &stream);
                let size = made.as_ref().map(|made| resource.capacity_bytes(made));
                writeln!(log, "allocate {}", text(&size.map_err(Clone::clone))).expect("text");
                let Ok(made) = made else { continue };
                let mark = number as u8 + 1;
                let sum = written(machine, &stream, made.span(), mark);
                writeln!(log, "{:?} {}", resource.memory_kind(), text(&sum)).expect("text");
                live.insert(number, (resource.clone(), made, mark));
            }
            Step::Grow(which, bytes) => {
                let Some((resource, made, mark)) = pick(which).and_then(|at| live.get_mut(&at))
                else {
                    continue;
                };
                let before = made.span().bytes;
                let grown = resource.grow(made, bytes).map(|_| resource.capacity_bytes(made));
                let kept = sum(machine, &stream, Span::new(made.device_ptr(), before));
                let sum = written(machine, &stream, made.span(), *mark);
                let texts = [text(&grown), text(&kept), text(&sum)];
                writeln!(log, "grow to {}: {texts:?}", made.span().bytes).expect("text");
            }
            Step::Free(which) => {
                let gone = pick(which).and_then(|at| live.remove(&at));
                let freed = gone.map(|(_, made, _)| text(&made.free()));
                writeln!(log, "free {freed:?}").expect("text");
            }
        }
    }
    drop(live);
    writeln!(log, "left: {}", before.saturating_sub(info()?)).expect("text");
    writeln!(log, "failures: {}", machine.failures_on_drop()).expect("text");
    Ok(log)
}

/// The answers without the line about memory: on a GPU other programs take and give some too.
fn without_memory(transcript: &str) -> Vec<&str> {
    transcript.lines().filter(|line| !line.starts_with("left:")).collect()
}

const VERSIONS: [i32; 4] = [12000, 12020, 12090, 13020];

fn simulated(version: i32, devices: u32) -> Result<Machine> {
    let config = SimConfig::h200()
        .devices(devices)
        .driver_version(DriverVersion(version))
        .range_reads(RangeReads::Driver);
    Ok(Machine::from(Arc::new(SimBackend::new(config)?)))
}

/// The driver of this machine, at each version.
static GPU: LazyLock<BTreeMap<i32, Arc<CudaBackend>>> = LazyLock::new(|| {
    let open = |version| {
        let opened = gpu(CudaBackend::builder().max_version(DriverVersion(version)));
        opened.map(|driver| (version, Arc::new(driver)))
    };
    VERSIONS.into_iter().map_while(open).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn growing_programs_have_the_same_answers_over_a_driver(steps in steps()) {
        let driver = SimulatedDriver::load();
        for version in VERSIONS {
            let plain = transcript(&simulated(version, 1)?, &steps)?;
            prop_assert!(plain.contains("left: 0\nfailures: 0"), "{}", plain);
            let native = Machine::from(Arc::new(driver.fresh(&format!("version={version}"))));
            prop_assert_eq!(&transcript(&native, &steps)?, &plain, "version {}", version);
            drop(native);
            driver.reset("version=13020");
            let ceiling = driver.builder().max_version(DriverVersion(version));
            let capped = Machine::from(Arc::new(ceiling.open()?));
            prop_assert_eq!(&transcript(&capped, &steps)?, &plain, "ceiling {}", version);
        }
    }

    #[test]
    fn growing_programs_have_the_same_answers_on_a_gpu(steps in steps()) {
        for (version, driver) in GPU.iter() {
            let plain = transcript(&simulated(*version, 1)?, &steps)?;
            let answers = transcript(&Machine::from(driver), &steps)?;
            prop_assert_eq!(without_memory(&answers), without_memory(&plain));
        }
    }
}
