//! Contents: the bytes that the host sees, the cost of seeing them, and the effect of a discard.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector, sweep};
use pagewise::intercept::{Call, Intercepted, Interceptor, Operation};
use pagewise::{
    Backend, Code, Device, DeviceAccess, DeviceId, DeviceProgram, DeviceTouch, DriverVersion,
    ErrorKind, Machine, ManagedBuffer, Place, Result, Rounding, SimBackend, SimConfig, Span,
    Stream, discard, discard_prefetch,
};
use proptest::prelude::*;

const PAGE: usize = 4096;

fn write_on_device(backend: &dyn Backend, span: Span, value: u8, stream: &Stream) -> Result<()> {
    let access = DeviceAccess::Write(value);
    let device = DeviceId(0);
    let touch = DeviceTouch { device, span, stride_bytes: 1, access, blocks: 1, threads: 1 };
    // SAFETY: callers hold the buffer and no view of it, so only the program uses the memory.
    unsafe { backend.device_touch(touch, stream.handle()) }.map(drop)
}

#[test]
fn a_host_view_counts_as_a_touch_of_each_page_and_of_no_other() -> Result<()> {
    let sim = pagewise::sim()?;
    let machine = Machine::from(&sim);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 4 << 20)?;
    buffer.prefetch(Device::FIRST, &stream)?;
    let faults = || sim.counters().cpu_faults;
    let before = faults();
    // Two pages in part: a view from the middle of one into the next.
    assert_eq!(buffer.range(PAGE - 1..PAGE + 1)?.read()?, [0, 0]);
    assert!(faults() > before);
    let read = faults();
    assert_eq!(buffer.range(PAGE - 1..PAGE + 1)?.read()?, [0, 0]);
    assert_eq!(faults(), read, "the pages are there now");
    let far = buffer.range(3 << 20..)?;
    let map = sim.host_page_map(far.span())?;
    assert!(map.iter().all(|run| !run.mapped), "nothing else was touched: {map:?}");
    buffer.range_mut(3 << 20..)?.write()?[0] = 1;
    let map = sim.host_page_map(buffer.range(3 << 20..)?.span())?;
    assert!(map.iter().all(|run| run.mapped), "a view for writing touches all of its pages");
    Ok(())
}

#[test]
fn a_view_for_writing_ends_read_duplication_and_changes_no_byte() -> Result<()> {
    let sim = pagewise::sim()?;
    let machine = Machine::from(&sim);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let values: Vec<u8> = (0..8 * PAGE).map(|n| (n / PAGE) as u8).collect();
    let mut buffer = ManagedBuffer::from_slice(&machine, &values)?;
    buffer.set_read_mostly(true)?;
    buffer.prefetch(Device::FIRST, &stream)?;
    let faults = || sim.counters().cpu_faults;
    let before = faults();
    assert_eq!(buffer.read()?, values);
    assert_eq!(faults(), before, "the host has a copy");
    assert_eq!(buffer.write()?, values);
    assert!(faults() > before, "writing collapses the copies");
    Ok(())
}

#[test]
fn what_a_device_writes_the_host_reads() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let buffer = ManagedBuffer::<u32>::zeroed(&machine, 100)?;
    write_on_device(machine.backend(), buffer.range(1..2)?.span(), 0xab, &stream)?;
    assert_eq!(buffer.range(..3)?.read()?, [0, 0xabab_abab, 0]);
    Ok(())
}

#[test]
fn without_concurrent_access_a_view_while_work_is_in_flight_is_an_error() -> Result<()> {
    let config = SimConfig::profile("wsl").expect("shipped");
    let machine = Machine::from(Arc::new(SimBackend::new(config)?));
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, PAGE)?;
    let other = ManagedBuffer::<u8>::zeroed(&machine, PAGE)?;
    // SAFETY: no view of the memory exists, so only the fill uses it.
    unsafe { machine.backend().memset(other.span(), 7, stream.handle())? };
    for error in [buffer.read().map(drop).unwrap_err(), buffer.write().map(drop).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::IllegalAddress, "{error}");
        assert!(error.to_string().contains("synchronise"), "{error}");
    }
    stream.synchronize()?;
    assert_eq!((buffer.read()?[0], other.read()?[0]), (0, 7));
    // A stream that goes takes its work along.
    // SAFETY: no view of the memory exists, so only the fill uses it.
    unsafe { machine.backend().memset(other.span(), 8, stream.handle())? };
    drop(stream);
    assert_eq!(other.read()?[0], 8);
    Ok(())
}

#[test]
fn discarded_contents_are_not_shown_until_they_are_written() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::from_slice(&machine, &[1_u8; 4 * PAGE])?;
    let _ = buffer.range_mut(PAGE..3 * PAGE)?.discard(&stream)?;
    assert_eq!(buffer.range(..PAGE)?.read()?[0], 1, "others keep their contents");
    let error = buffer.read().unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    assert!(error.to_string().contains("from byte 4096 of the range on"), "{error}");
    buffer.range_mut(PAGE..2 * PAGE)?.write()?.fill(2);
    assert!(buffer.range(2 * PAGE..2 * PAGE + 1)?.read().is_err(), "half is still unwritten");
    write_on_device(machine.backend(), buffer.range(2 * PAGE..3 * PAGE)?.span(), 3, &stream)?;
    // SAFETY: every page of the range has to be written, and the device has just written them.
    unsafe { buffer.range_mut(2 * PAGE..3 * PAGE)?.assume_written()? };
    let all = buffer.read()?;
    assert_eq!([0, 1, 2, 3].map(|page| all[page * PAGE]), [1, 2, 3, 1]);
    Ok(())
}

#[test]
fn a_discard_takes_whole_pages_and_says_so_if_asked() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::from_slice(&machine, &[5_u8; 3 * PAGE])?;
    for rounding in [Rounding::Exact, Rounding::Outward] {
        let range = buffer.range_mut(10..2 * PAGE)?.rounded(rounding);
        assert_eq!(range.discard(&stream).unwrap_err().kind(), ErrorKind::InvalidValue);
    }
    assert_eq!(buffer.read()?, [5; 3 * PAGE], "nothing happened");
    let _ = buffer.range_mut(10..2 * PAGE + 10)?.discard(&stream)?;
    assert_eq!(buffer.range(..PAGE)?.read()?, [5; PAGE]);
    assert!(buffer.range(PAGE..PAGE + 1)?.read().is_err());
    assert_eq!(buffer.range(2 * PAGE..)?.read()?, [5; PAGE]);
    let _ = buffer.range_mut(..10)?.discard(&stream)?;
    assert_eq!(buffer.range(..10)?.read()?, [5; 10], "no whole page: nothing is discarded");
    Ok(())
}

#[test]
fn writing_waits_for_the_discard_and_reports_what_that_says() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, PAGE)?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let _ = buffer.discard(&stream)?;
    drop(stream);
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::StreamSynchronize));
    let error = buffer.write().unwrap_err();
    assert_eq!(error.code(), Some(Code::ILLEGAL_ADDRESS));
    assert!(buffer.read().is_err(), "and nothing counts as written");
    buffer.write()?.fill(4);
    assert_eq!(buffer.read()?[0], 4);
    let calls = backend.take_calls();
    let place = |operation| calls.iter().position(|call| call.operation() == operation);
    assert!(place(Operation::StreamSynchronize) < place(Operation::StreamDestroy), "kept alive");
    Ok(())
}

#[test]
fn a_program_of_a_device_waits_for_discards_in_flight() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let streams = [Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?];
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 * PAGE)?;
    let _ = buffer.range_mut(..PAGE)?.discard(&streams[0])?;
    let _ = backend.take_calls();
    let waits = || {
        let calls = backend.take_calls();
        calls.iter().filter(|call| call.operation() == Operation::StreamSynchronize).count()
    };
    let write = DeviceProgram::write(Device::FIRST, 1);
    buffer.range_mut(PAGE..)?.run_on_device(write, &streams[1])?;
    assert_eq!(waits(), 0, "the other page was not discarded");
    buffer.run_on_device(write, &streams[1])?;
    assert!(waits() > 0);
    buffer.run_on_device(write, &streams[1])?;
    assert_eq!((waits(), buffer.read()?[0]), (0, 1), "it is written now");
    Ok(())
}

#[test]
fn bytes_discarded_again_wait_for_the_later_stream_and_no_longer_for_the_earlier() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let earlier = Stream::new(&machine, Device::FIRST)?;
    let later = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 * PAGE)?;
    let _ = buffer.discard(&earlier)?;
    let _ = buffer.discard(&later)?;
    let _ = backend.take_calls();
    let made =
        || -> Vec<Operation> { backend.take_calls().iter().map(|call| call.operation()).collect() };
    drop(earlier);
    assert_eq!(made(), [Operation::StreamDestroy], "nobody waits for it any more");
    drop(later);
    assert_eq!(made(), [], "the buffer keeps it, to wait for");
    buffer.write()?.fill(1);
    let made = made();
    let place = |operation| made.iter().position(|&other| other == operation);
    let waited = place(Operation::StreamSynchronize).expect("a wait");
    assert!(waited < place(Operation::StreamDestroy).expect("and then it goes"), "{made:?}");
    Ok(())
}

#[test]
fn a_failed_discard_leaves_contents_readable() -> Result<()> {
    let sites = sweep(Code::OUT_OF_MEMORY, pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let mut a = ManagedBuffer::from_slice(&machine, &[1_u8; PAGE])?;
        let mut b = ManagedBuffer::from_slice(&machine, &[2_u8; 2 * PAGE])?;
        machine.device_count()?;
        let first = backend.watch(|| discard([a.region_mut(), b.region_mut()], &stream));
        let lost = first.is_ok();
        assert_eq!((a.read().is_err(), b.read().is_err()), (lost, lost));
        a.write()?.fill(1);
        let to = Device::FIRST;
        let second = backend.watch(|| discard_prefetch(&mut a, to, &stream));
        assert_eq!(a.read().is_err(), second.is_ok());
        assert_eq!(first.is_err() || second.is_err(), failing.is_some());
        Ok(())
    })?;
    assert_eq!(sites, 3);
    Ok(())
}

/// On driver 580 a discard that queues behind a prefetch is carried out after every wait, and what
/// was written since is lost.
#[test]
fn a_discard_waits_for_what_is_unfinished_before_it() -> Result<()> {
    let log = Arc::new(Intercepted::new(pagewise::sim()?, Names::default()));
    let machine = Machine::from(&log);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, PAGE)?;
    buffer.prefetch(Device::FIRST, &stream)?;
    buffer.discard(&stream)?.fill(3)?;
    let made = log.interceptor().0.lock().expect("nobody panicked").clone();
    let at = made.iter().position(|&name| name == Operation::DiscardBatch).expect("a discard");
    assert_eq!(made[at - 2..at], [Operation::Prefetch, Operation::StreamSynchronize]);
    Ok(())
}

/// Which calls were made.
#[derive(Debug, Default)]
struct Names(std::sync::Mutex<Vec<Operation>>);

impl Interceptor for Names {
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
        self.0.lock().expect("nobody panicked").push(call.operation());
        make()
    }
}

#[test]
fn discards_need_cuda_13_and_an_ordinary_stream() -> Result<()> {
    let config = SimConfig::h200().driver_version(DriverVersion::CUDA_12_9);
    let backend = Arc::new(FaultInjector::around(SimBackend::new(config)?));
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, PAGE)?;
    let _ = backend.take_calls();
    let errors = [
        buffer.discard(&stream).map(drop).unwrap_err(),
        buffer.discard_prefetch(Place::HOST, &stream).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None), "{error}");
        assert!(error.to_string().contains("13.0"), "{error}");
    }
    assert_eq!(backend.take_calls(), []);
    let machine = Machine::from(pagewise::sim()?);
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, PAGE)?;
    let error = buffer.discard(&Stream::legacy_default(&machine)).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    Ok(())
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, usize, u8),
    Discard(usize, usize),
    Prefetch(usize, usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..6 * PAGE, 1..2 * PAGE);
    let step = prop_oneof![
        (range.clone(), any::<u8>()).prop_map(|((at, len), v)| Step::Write(at, at + len, v)),
        range.clone().prop_map(|(at, len)| Step::Discard(at, at + len)),
        (range, any::<bool>()).prop_map(|((at, len), host)| Step::Prefetch(at, at + len, host)),
    ];
    proptest::collection::vec(step, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Against a model of bytes that are known or not: known bytes read as written, others are
    /// refused, and no page outside a discard loses anything.
    #[test]
    fn contents_are_what_was_written_or_refused(steps in steps()) {
        let machine = Machine::from(pagewise::sim()?);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 8 * PAGE)?;
        let mut model: Vec<Option<u8>> = vec![Some(0); 8 * PAGE];
        for step in steps {
            match step {
                Step::Write(from, to, value) => {
                    buffer.range_mut(from..to)?.write()?.fill(value);
                    model[from..to].fill(Some(value));
                }
                Step::Discard(from, to) => {
                    let _ = buffer.range_mut(from..to)?.discard(&stream)?;
                    let (first, last) = (from.next_multiple_of(PAGE), to / PAGE * PAGE);
                    if first < last {
                        model[first..last].fill(None);
                    }
                }
                Step::Prefetch(from, to, host) => {
                    let place = if host { Place::HOST } else { Device::FIRST.into() };
                    buffer.range(from..to)?.prefetch(place, &stream)?;
                }
            }
            for page in 0..8 {
                let bytes = page * PAGE..(page + 1) * PAGE;
                let known: Option<Vec<u8>> = model[bytes.clone()].iter().copied().collect();
                let shown = buffer.range(bytes)?.read().ok().map(<[u8]>::to_vec);
                prop_assert_eq!(&shown, &known, "page {}", page);
            }
        }
    }
}
