//! The public API over every back end: the same programs, the same answers.
//!
//! The back ends are the simulator, a recorder around it, and the CUDA back end, both over the
//! driver of this machine if it has one and over the simulated driver. The latter is reached by the
//! C ABI, and host views of it declare nothing. The claims compare results with kind and code,
//! attributes and contents. They do not compare faults: only the simulator sees those of host views.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use pagewise::resource::ManagedMemoryResource;
use pagewise::{
    Backend, Device, DeviceAccess, DeviceProgram, DriverVersion, Error, ErrorKind, Host, Machine,
    ManagedBuffer, MemoryAdvice, Place, RangeReads, Result, Rounding, SimBackend, SimConfig,
    Stream, discard_prefetch, prefetch,
};
use pagewise_cuda::CudaBackend;
use pagewise_tests::driver::SimulatedDriver;
use pagewise_tests::gpu::gpus;
use pagewise_trace::record::Recorder;
use proptest::prelude::*;
use proptest::sample::subsequence;

const PAGE: usize = 4096;
const PAGES: usize = 8;
const BYTES: usize = PAGES * PAGE;

/// A step of a program, over two buffers of a few pages.
#[derive(Debug, Clone)]
enum Step {
    Advise(Range, MemoryAdvice),
    AccessedBy(Range, Vec<Place>),
    Prefetch(Range, Place),
    Both(Vec<Place>),
    Write(Range, u8),
    Discard(Range),
    DiscardPrefetch(Place),
    Run(Range, u32, DeviceAccess, u64),
}

#[derive(Debug, Clone, Copy)]
struct Range {
    buffer: usize,
    from: usize,
    to: usize,
    rounding: Option<Rounding>,
}

fn range() -> impl Strategy<Value = Range> {
    let bounds = prop_oneof![
        (0..PAGES, 1..=PAGES).prop_map(|(from, pages)| (from * PAGE, (from + pages) * PAGE)),
        (0..BYTES, 1..3 * PAGE).prop_map(|(from, bytes)| (from, from + bytes)),
    ];
    let rounding = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Rounding::Inward)),
        1 => Just(Some(Rounding::Exact)),
        1 => Just(Some(Rounding::Outward)),
    ];
    (0..2_usize, bounds, rounding).prop_map(|(buffer, (from, to), rounding)| {
        // A few pass the end, so that both refuse them.
        Range { buffer, from, to: to.min(BYTES + 1), rounding }
    })
}

fn device(ordinal: u32) -> Device {
    Device::new(ordinal).expect("in range")
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        4 => Just(device(0).into()),
        3 => Just(device(1).into()),
        4 => Just(Place::HOST),
        1 => Just(Host::node(0).expect("in range").into()),
        1 => Just(device(7).into()),
    ]
}

fn advice() -> impl Strategy<Value = MemoryAdvice> {
    prop_oneof![
        Just(MemoryAdvice::SetReadMostly),
        Just(MemoryAdvice::UnsetReadMostly),
        place().prop_map(MemoryAdvice::SetPreferredLocation),
        Just(MemoryAdvice::UnsetPreferredLocation),
        place().prop_map(MemoryAdvice::SetAccessedBy),
        place().prop_map(MemoryAdvice::UnsetAccessedBy),
    ]
}

fn access() -> impl Strategy<Value = DeviceAccess> {
    prop_oneof![
        Just(DeviceAccess::Read),
        any::<u8>().prop_map(DeviceAccess::Write),
        Just(DeviceAccess::AtomicAdd),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let places = vec![device(0).into(), device(1).into(), Place::HOST];
    let step = prop_oneof![
        (range(), advice()).prop_map(|(range, advice)| Step::Advise(range, advice)),
        (range(), subsequence(places, 0..=3)).prop_map(|(r, places)| Step::AccessedBy(r, places)),
        (range(), place()).prop_map(|(range, to)| Step::Prefetch(range, to)),
        proptest::collection::vec(place(), 1..=3).prop_map(Step::Both),
        (range(), any::<u8>()).prop_map(|(range, value)| Step::Write(range, value)),
        range().prop_map(Step::Discard),
        place().prop_map(Step::DiscardPrefetch),
        (range(), 0..2_u32, access(), prop_oneof![Just(1_u64), Just(4), Just(4096)])
            .prop_map(|(range, on, access, stride)| Step::Run(range, on, access, stride)),
    ];
    proptest::collection::vec(step, 1..16)
}

fn carry_out(
    buffers: &mut [ManagedBuffer<u8>; 2],
    step: &Step,
    streams: &[Stream; 2],
) -> Result<u64> {
    let stream = &streams[0];
    match step {
        Step::Advise(range, advice) => {
            let region = buffers[range.buffer].range(range.from..range.to)?.region();
            range.rounding.map_or(region, |rounding| region.rounded(rounding)).advise(*advice)?;
        }
        Step::AccessedBy(range, places) => {
            let range = buffers[range.buffer].range(range.from..range.to)?;
            range.accessed_by().assign(places.iter().copied())?;
        }
        Step::Prefetch(range, to) => {
            let region = buffers[range.buffer].range(range.from..range.to)?.region();
            let region = range.rounding.map_or(region, |rounding| region.rounded(rounding));
            region.prefetch(*to, stream)?;
        }
        Step::Both(places) => {
            let regions = [buffers[0].region(), buffers[1].region()];
            prefetch(regions, places.clone(), stream)?;
        }
        Step::Write(range, value) => {
            buffers[range.buffer].range_mut(range.from..range.to)?.write()?.fill(*value);
        }
        Step::Discard(range) => {
            let part = buffers[range.buffer].range_mut(range.from..range.to)?;
            let part = match range.rounding {
                Some(rounding) => part.rounded(rounding),
                None => part,
            };
            drop(part.discard(stream)?);
        }
        Step::DiscardPrefetch(to) => {
            let [first, second] = buffers;
            discard_prefetch([first.region_mut(), second.region_mut()], [*to, *to], stream)?;
        }
        Step::Run(range, on, access, stride) => {
            let mut part = buffers[range.buffer].range_mut(range.from..range.to)?;
            let program = DeviceProgram::new(device(*on), *access).stride(*stride);
            return part.run_on_device(program, &streams[*on as usize]);
        }
    }
    Ok(0)
}

/// The kind and code of an error, without its text, which differs between back ends.
fn outcome<T>(answer: Result<T>) -> std::result::Result<T, String> {
    answer.map_err(|error: Error| {
        format!("{:?} {:?} item {:?}", error.kind(), error.code(), error.item())
    })
}

/// Everything that can be seen of a buffer, page by page.
fn visible(buffer: &ManagedBuffer<u8>) -> Result<String> {
    let mut text = String::new();
    for page in 0..PAGES {
        let range = buffer.range(page * PAGE..(page + 1) * PAGE)?;
        let contents = outcome(buffer.range(page * PAGE..(page + 1) * PAGE)?.read());
        let sum = contents.map(|bytes| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
        let _ = write!(
            text,
            "{sum:?} {} {:?} {:?} {:?}; ",
            range.read_mostly()?,
            range.preferred_location()?,
            range.last_prefetch_location()?,
            range.accessed_by()
        );
    }
    Ok(text)
}

fn transcript(machine: &Machine, steps: &[Step]) -> Result<Vec<String>> {
    let streams = [Stream::new(machine, device(0))?, Stream::new(machine, device(1))?];
    let mut buffers =
        [ManagedBuffer::zeroed(machine, BYTES)?, ManagedBuffer::zeroed(machine, BYTES)?];
    let mut lines = Vec::new();
    for step in steps {
        let answer = outcome(carry_out(&mut buffers, step, &streams));
        streams.iter().try_for_each(Stream::synchronize)?;
        lines.push(format!("{answer:?}"));
    }
    for buffer in &buffers {
        lines.push(visible(buffer)?);
    }
    for buffer in buffers {
        buffer.free()?;
    }
    Ok(lines)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn programs_have_the_same_answers_on_every_back_end(
        steps in steps(),
        version in prop_oneof![Just(12000), Just(12020), Just(12090), Just(13000)],
    ) {
        let config = SimConfig::h200().devices(2).driver_version(DriverVersion(version));
        let sim = || SimBackend::new(config.clone());
        let plain = transcript(&Machine::from(Arc::new(sim()?)), &steps)?;
        let recorded = transcript(&Machine::from(Arc::new(Recorder::new(sim()?))), &steps)?;
        prop_assert_eq!(&recorded, &plain);
        static DRIVER: LazyLock<Arc<SimulatedDriver>> = LazyLock::new(SimulatedDriver::load);
        let cuda = DRIVER.fresh(&format!("devices=2 version={version}"));
        let driven = transcript(&Machine::from(Arc::new(cuda)), &steps)?;
        prop_assert_eq!(&driven, &plain);
    }
}

/// The driver of this machine for each version, opened once.
static GPU: LazyLock<BTreeMap<i32, Arc<CudaBackend>>> = LazyLock::new(|| {
    let open = |version| {
        let opened = gpus(CudaBackend::builder().max_version(DriverVersion(version)), 2);
        opened.map(|driver| (version, Arc::new(driver)))
    };
    [12000, 12020, 12090, 13000].into_iter().map_while(open).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn programs_have_the_same_answers_on_a_gpu(
        steps in steps(),
        version in prop_oneof![Just(12000), Just(12020), Just(12090), Just(13000)],
    ) {
        if let Some(driver) = GPU.get(&version) {
            let devices = driver.device_count()?;
            let config = SimConfig::h200()
                .devices(devices)
                .driver_version(DriverVersion(version))
                .range_reads(RangeReads::Driver);
            let plain = transcript(&Machine::from(Arc::new(SimBackend::new(config)?)), &steps)?;
            prop_assert_eq!(&transcript(&Machine::from(driver), &steps)?, &plain);
        }
    }
}

/// Memory of a pool comes on one stream and is used on another's device: each waits for the other.
fn streams_of_two_devices_share_a_lease(machine: &Machine) -> Result<()> {
    let streams = [Stream::new(machine, device(0))?, Stream::new(machine, device(1))?];
    let pool = Arc::new(ManagedMemoryResource::new_pool(machine, None)?);
    let mut buffer = ManagedBuffer::<u8>::from_resource(pool, 2 * PAGE, &streams[0])?;
    buffer.run_on_device(DeviceProgram::write(device(1), 3), &streams[1])?;
    buffer.prefetch(device(1), &streams[1])?;
    assert_eq!(buffer.read()?, [3; 2 * PAGE]);
    let wrong = buffer.run_on_device(DeviceProgram::read(device(1)), &streams[0]).unwrap_err();
    assert_eq!((wrong.kind(), wrong.code()), (ErrorKind::InvalidValue, None), "{wrong}");
    streams[1].wait_for(&streams[0])?;
    streams[0].wait_for(&streams[1])?;
    buffer.free()
}

#[test]
fn streams_of_two_devices_wait_for_each_other() -> Result<()> {
    let sim = SimBackend::new(SimConfig::h200().devices(2))?;
    streams_of_two_devices_share_a_lease(&Machine::from(Arc::new(sim)))?;
    let driver = SimulatedDriver::load();
    streams_of_two_devices_share_a_lease(&Machine::from(Arc::new(driver.fresh("devices=2"))))
}

/// On a driver the host's views are not declared, so the API asks whether anything runs.
#[test]
fn without_concurrent_access_idle_streams_let_the_host_in() -> Result<()> {
    let driver = SimulatedDriver::load();
    let machine = Machine::from(Arc::new(driver.fresh("profile=wsl")));
    let _stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::new(&machine, PAGE)?;
    buffer.write()?.fill(1);
    assert_eq!(buffer.read()?, [1; PAGE]);
    Ok(())
}
