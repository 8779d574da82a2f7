//! Observations of one thread's calls and of one stream's calls, and the calls that messages name.
#![cfg(feature = "sim")]

use std::sync::{Arc, Barrier};

use pagewise::intercept::Operation;
use pagewise::{
    Backend, Budget, Counters, Device, DeviceProgram, ErrorKind, EventCapture, Machine,
    ManagedBuffer, Observation, Result, Scope, SimBackend, SimConfig, Stream, Watch, assert_faults,
    observe,
};
use pagewise_hal::EventsSince;
use pagewise_hal::mock::{MockBackend, permit_machine};

/// A program of one thread of a device that faults six times on 2 MiB.
const WRITE: DeviceProgram = DeviceProgram::write(Device::FIRST, 1).stride(4096);

fn machine_that_keeps(capacity: usize) -> Result<Machine> {
    let config = SimConfig::h200().events(EventCapture::Ring { capacity });
    Ok(Machine::from(Arc::new(SimBackend::new(config)?)))
}

fn buffers<const N: usize>(machine: &Machine) -> Result<[ManagedBuffer<u8>; N]> {
    let made: Result<Vec<_>> = (0..N).map(|_| ManagedBuffer::new(machine, 2 << 20)).collect();
    made.map(|made| made.try_into().expect("as many as asked for"))
}

/// Faults of a thread that writes so many buffers on the device, seen by itself.
fn faults_of_own_calls(machine: &Machine, count: usize, together: &Barrier) -> Result<Observation> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let (answer, seen) = observe(Scope::this_thread(machine), || -> Result<()> {
        for _ in 0..count {
            together.wait();
            let mut buffer = ManagedBuffer::<u8>::new(machine, 2 << 20)?;
            buffer.run_on_device(WRITE, &stream)?;
        }
        Ok(())
    })?;
    answer?;
    Ok(seen)
}

/// Issue 15, item 2: an observation saw the faults of all four threads.
#[test]
fn each_of_four_threads_sees_the_faults_of_its_own_calls_alone() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let together = Barrier::new(4);
    let (own, all) = observe(&machine, || {
        std::thread::scope(|scope| {
            let observed = || faults_of_own_calls(&machine, 8, &together);
            let threads = [(); 4].map(|()| scope.spawn(observed));
            threads.map(|thread| thread.join().expect("no panic"))
        })
    })?;
    for seen in own {
        let seen = seen?;
        assert_eq!((seen.counters.gpu_faults, seen.lost), (8 * 6, 0));
        assert_eq!(seen.events.iter().collect::<Counters>(), seen.counters);
        assert_eq!(seen.by_call().count(), 8, "one program each time");
    }
    assert_eq!(all.counters.gpu_faults, 4 * 8 * 6);
    Ok(())
}

#[test]
fn a_streams_observation_counts_the_calls_on_that_stream() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let [one, other] = [(); 2].map(|()| Stream::new(&machine, Device::FIRST));
    let (one, other) = (one?, other?);
    let [mut first, mut second] = buffers(&machine)?;
    let (answer, seen) = observe(&one, || -> Result<()> {
        first.run_on_device(WRITE, &one)?;
        second.run_on_device(WRITE, &other)?;
        second.write()?.fill(2);
        Ok(())
    })?;
    answer?;
    assert_eq!((seen.counters.faults(), seen.counters.gpu_faults), (6, 6));
    assert!(seen.by_call().all(|(made, _)| made.call.stream == Some(one.handle())));
    assert_faults!(one, 0, second.run_on_device(WRITE, &other)?);
    let legacy = Stream::legacy_default(&machine);
    let read = DeviceProgram::read(Device::FIRST).stride(4096);
    first.write()?.fill(3);
    assert_faults!(&legacy, 6, first.run_on_device(read, &legacy)?);
    Ok(())
}

#[test]
fn a_claim_about_a_part_fails_if_records_of_that_time_are_lost() -> Result<()> {
    for (kept, known) in [(0, false), (5, false), (6, true)] {
        let machine = machine_that_keeps(kept)?;
        let stream = Stream::new(&machine, Device::FIRST)?;
        let [mut buffer] = buffers(&machine)?;
        let (part, all) = observe(&machine, || {
            observe(&stream, || buffer.run_on_device(WRITE, &stream)).map(|(_, part)| part)
        })?;
        let part = part?;
        assert_eq!(all.counters.gpu_faults, 6, "those of the whole machine are always known");
        let answer = Budget::new().faults(6).check(&part);
        assert_eq!(answer.is_ok(), known, "{kept} records kept");
        let nothing = Budget::new().faults(0).gpu_faults(0).check(&part);
        let message = nothing.unwrap_err().to_string();
        assert_eq!(message.contains("faults: unknown, expected 0"), !known, "{message}");
        assert!(Budget::new().elapsed_ns(1..).check(&part).is_ok(), "time needs no records");
    }
    Ok(())
}

#[test]
fn a_failed_claim_names_the_calls_that_moved_the_pages() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let [mut buffer] = buffers(&machine)?;
    let (answer, seen) = observe(&machine, || -> Result<()> {
        buffer.run_on_device(WRITE, &stream)?;
        buffer.write()?.fill(2);
        buffer.prefetch(Device::FIRST, &stream)
    })?;
    answer?;
    let on = format!("on stream {:#x}", stream.handle().as_raw());
    let over = Budget::new().gpu_faults(0).cpu_faults(0).bytes_to_devices(0);
    let over = over.check(&seen).unwrap_err().to_string();
    for line in [
        format!("6 faults of gpu0, in device_touch {on}"),
        "faults of the host, in host_touch".to_owned(),
        format!("2097152 bytes from host to gpu0, in prefetch {on}"),
    ] {
        assert!(over.contains(&line), "{line}: {over}");
        assert!(seen.to_string().contains(&line), "{line}: {seen}");
    }
    assert!(over.lines().count() < 10, "{over}");
    let made: Vec<_> = seen.by_call().map(|(made, _)| made.call.operation).collect();
    assert_eq!(made[0], Operation::DeviceTouch);
    assert_eq!(made.last(), Some(&Operation::Prefetch));
    Ok(())
}

#[test]
fn a_back_end_that_cannot_tell_refuses_a_part_before_anything_runs() -> Result<()> {
    let mut mock = MockBackend::new();
    mock.expect_events_since().returning(|_| Ok(EventsSince::default()));
    permit_machine(&mut mock);
    let backend: Arc<dyn Backend> = Arc::new(mock);
    let machine = Machine::from(&backend);
    let stream = Stream::new(&machine, Device::FIRST)?;
    for scope in [Scope::this_thread(&machine), Scope::from(&stream)] {
        let mut ran = false;
        let error = observe(&scope, || ran = true).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
        assert!(error.to_string().contains("observe the whole machine"), "{error}");
        assert!(!ran);
        assert!(Watch::begin(&scope).is_err());
    }
    assert!(observe(&machine, || ()).is_ok());
    Ok(())
}

#[test]
#[should_panic(expected = "faults: 6, expected 0")]
fn a_claim_about_this_thread_fails_for_its_own_faults() {
    let machine = Machine::from(pagewise::sim().expect("address space"));
    let stream = Stream::new(&machine, Device::FIRST).expect("a stream");
    let [mut buffer] = buffers(&machine).expect("room");
    let here = Scope::this_thread(&machine);
    assert_faults!(here, 0, buffer.run_on_device(WRITE, &stream).expect("runs"));
}
