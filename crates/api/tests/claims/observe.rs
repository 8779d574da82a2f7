//! Observations, budgets, claims about faults.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{
    Amount, Budget, Code, Counters, Device, DeviceProgram, ErrorKind, EventCapture, Machine,
    ManagedBuffer, MemoryEvent, Observation, Result, SimBackend, SimConfig, Span, Stream,
    assert_faults, assert_within, observe,
};

fn written_by_device(machine: &Machine) -> Result<ManagedBuffer<u8>> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::new(machine, 2 << 20)?;
    let write = DeviceProgram::write(Device::FIRST, 1).stride(4096);
    buffer.run_on_device(write, &stream)?;
    Ok(buffer)
}

#[test]
fn claims_hold_through_wrappers_without_knowing_what_is_inside() -> Result<()> {
    let machine = Machine::from(Arc::new(FaultInjector::around(pagewise::sim()?)));
    let buffer = assert_faults!(machine, 6, written_by_device(&machine)?);
    assert_faults!(&machine, 1.., assert_eq!(buffer.read()?[0], 1));
    Ok(())
}

#[test]
#[should_panic(expected = "faults: 6, expected 5")]
fn a_claim_about_faults_that_does_not_hold_panics_with_both_numbers() {
    let machine = Machine::from(pagewise::sim().expect("address space"));
    assert_faults!(machine, 5, written_by_device(&machine).expect("runs"));
}

#[test]
fn a_budget_names_all_that_is_over_and_nothing_else() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let (_, seen) = observe(&machine, || written_by_device(&machine))?;
    assert_eq!(seen.counters.gpu_faults, 6);
    assert!(seen.events.iter().all(|event| matches!(event, MemoryEvent::GpuFault { .. })));
    let over = Budget::new().faults(6).migrated_bytes(1..).elapsed_ns(0).thrashing_pages(..1);
    let over = over.check(&seen).unwrap_err().to_string();
    let lines: Vec<&str> = over.lines().collect();
    assert_eq!(lines[0], "migrated bytes: 0, expected at least 1");
    assert!(lines[1].starts_with("elapsed ns: ") && lines[1].ends_with(", expected 0"));
    assert_eq!(lines.len(), 2);
    Ok(())
}

/// A buffer that the host wrote, and that went to the device and came back: its observation.
fn there_and_back(machine: &Machine) -> Result<(ManagedBuffer<u8>, Observation)> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let buffer = ManagedBuffer::<u8>::zeroed(machine, 4 << 20)?;
    let (answer, seen) = observe(machine, || -> Result<u8> {
        buffer.prefetch(Device::FIRST, &stream)?;
        Ok(buffer.range(..4096)?.read()?[0])
    })?;
    answer?;
    Ok((buffer, seen))
}

#[test]
fn each_processor_direction_and_buffer_has_a_limit_of_its_own() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let other = ManagedBuffer::<u8>::zeroed(&machine, 4 << 20)?;
    let (buffer, seen) = there_and_back(&machine)?;
    let (there, back) = (seen.counters.to_device.bytes, seen.counters.to_host.bytes);
    assert!(there == 4 << 20 && back > 0, "{seen}");
    let within = |budget: Budget| budget.check(&seen).is_ok();
    for (wrong, faults) in [(false, seen.counters.cpu_faults), (true, 0)] {
        assert_eq!(within(Budget::new().cpu_faults(faults)), !wrong);
    }
    assert!(within(Budget::new().gpu_faults(0).bytes_to_devices(there).bytes_to_host(back)));
    assert!(!within(Budget::new().bytes_to_devices(back)));
    assert!(!within(Budget::new().bytes_to_host(there)));
    assert!(within(Budget::new().to_device(&buffer, there).to_host(&buffer, back)));
    assert!(within(Budget::new().to_device(&other, 0).to_host(other.region(), 0)));
    let half = Span::new(buffer.span().ptr, 2 << 20);
    assert!(within(Budget::new().to_device(half, 2 << 20)));
    assert!(!within(Budget::new().to_device(&buffer, 0)));
    assert!(within(Budget::new().gpu_faults(7).gpu_faults(0)), "the later limit counts");
    Ok(())
}

#[test]
fn a_claim_that_fails_says_where_by_what_and_in_which_direction_in_less_than_ten_lines()
-> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let (buffer, seen) = there_and_back(&machine)?;
    let name = buffer.name();
    assert!(name.contains("observe.rs:"), "the place that made it: {name}");
    let over = Budget::new().to_device(&buffer, 0).check(&seen).unwrap_err().to_string();
    let start = format!("bytes of {name} to devices: 4194304, expected 0\n");
    let moved = format!("  {name}: 4194304 bytes from host to gpu0, in prefetch on stream 0x");
    assert!(over.starts_with(&(start + &moved)), "{over}");
    assert_eq!(over.lines().count(), 2, "{over}");
    let over = Budget::new().to_host(&buffer, 0).check(&seen).unwrap_err().to_string();
    assert!(over.contains(", by faults, in host_touch"), "{over}");
    let all = Budget::new()
        .faults(99)
        .gpu_faults(99)
        .cpu_faults(99)
        .migrated_bytes(9)
        .bytes_to_devices(9)
        .bytes_to_host(9)
        .to_device(&buffer, 9)
        .to_host(&buffer, 9)
        .thrashing_pages(9)
        .elapsed_ns(9);
    let over = all.check(&seen).unwrap_err().to_string();
    assert_eq!(over.lines().count(), 9, "{over}");
    assert_eq!(over.lines().last(), Some("and 2 more quantities"));
    Ok(())
}

#[test]
fn a_claim_that_needs_lost_records_fails_and_says_so() -> Result<()> {
    let machine = machine_that_keeps(EventCapture::Ring { capacity: 1 })?;
    let (buffer, seen) = there_and_back(&machine)?;
    assert!(seen.lost > 0);
    assert!(Budget::new().bytes_to_devices(4 << 20).check(&seen).is_ok(), "the sums are known");
    let over = Budget::new().to_device(&buffer, 4 << 20).check(&seen).unwrap_err().to_string();
    let lost = format!("unknown, expected 4194304: {} records are lost", seen.lost);
    assert!(over.contains(&lost) && over.contains("SimConfig::events"), "{over}");
    Ok(())
}

#[test]
fn an_observation_fits_on_a_screen_however_much_it_saw() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let (answer, seen) = observe(&machine, || -> Result<()> {
        let mut buffers = Vec::new();
        for _ in 0..20 {
            let mut buffer = ManagedBuffer::<u8>::new(&machine, 16 << 20)?;
            buffer.range_mut(..4096)?.write()?.fill(1);
            buffers.push(buffer);
        }
        Ok(())
    })?;
    answer?;
    let (display, debug) = (seen.to_string(), format!("{seen:#?}"));
    assert!(display.starts_with("0 GPU faults, 20 CPU faults, "), "{display}");
    assert!(display.lines().count() <= 24, "{display}");
    assert!(debug.lines().count() <= 100, "{debug}");
    let small = there_and_back(&machine)?.1.to_string();
    assert!(small.contains(": 4194304 bytes from host to gpu0, in prefetch on stream"), "{small}");
    Ok(())
}

#[test]
fn a_back_end_that_does_not_count_is_refused_before_anything_runs() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    backend.arm(Fault::new(Code::NOT_SUPPORTED).on(Operation::EventsSince));
    let mut ran = false;
    let error = observe(&machine, || ran = true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(!ran);
    Ok(())
}

/// Twelve faults: six of the device on each of two buffers.
fn twelve_faults(machine: &Machine) -> Result<()> {
    written_by_device(machine)?;
    written_by_device(machine)?;
    Ok(())
}

fn machine_that_keeps(events: EventCapture) -> Result<Machine> {
    Ok(Machine::from(Arc::new(SimBackend::new(SimConfig::h200().events(events))?)))
}

/// Issue 15, item 1: with a ring of 4 a claim saw one fault of twelve.
#[test]
fn claims_count_what_happened_whatever_records_are_kept() -> Result<()> {
    let captures = [(EventCapture::Off, 0), (EventCapture::default(), 12)];
    let rings = [0, 1, 4, 12, 13].map(|kept| (EventCapture::Ring { capacity: kept }, kept.min(12)));
    for (capture, kept) in captures.into_iter().chain(rings) {
        let machine = machine_that_keeps(capture)?;
        assert_faults!(machine, 12, twelve_faults(&machine)?);
        let (answer, seen) = observe(&machine, || twelve_faults(&machine))?;
        answer?;
        assert_eq!(seen.counters.gpu_faults, 12, "{capture:?}");
        assert_eq!((seen.events.len(), seen.lost), (kept, 12 - kept as u64), "{capture:?}");
    }
    Ok(())
}

/// Issue 15, item 2: the inner claim took the records of the outer one, which held.
#[test]
fn an_observation_around_another_one_sees_all_of_it() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let (inner, outer) = observe(&machine, || -> Result<_> {
        written_by_device(&machine)?;
        let (answer, inner) = observe(&machine, || written_by_device(&machine))?;
        answer?;
        Ok(inner)
    })?;
    let inner = inner?;
    assert_eq!((outer.counters.gpu_faults, inner.counters.gpu_faults), (12, 6));
    assert_eq!(outer.events[6..], inner.events);
    assert_eq!((outer.lost, inner.lost), (0, 0));
    Ok(())
}

#[test]
#[should_panic(expected = "faults: 12, expected 0")]
fn a_claim_around_another_one_does_not_pass_falsely() {
    let machine = Machine::from(pagewise::sim().expect("address space"));
    assert_faults!(machine, 0, assert_faults!(machine, 12, twelve_faults(&machine).expect("runs")));
}

/// Four threads stole each other's records.
#[test]
fn observations_side_by_side_take_nothing_from_each_other() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let (answers, all) = observe(&machine, || {
        std::thread::scope(|scope| {
            let observed = || observe(&machine, || twelve_faults(&machine));
            let threads = [(); 4].map(|()| scope.spawn(observed));
            threads.map(|thread| thread.join().expect("no panic"))
        })
    })?;
    for answer in answers {
        let (answer, seen) = answer?;
        answer?;
        assert!((12..=48).contains(&seen.counters.gpu_faults), "{:?}", seen.counters);
        assert_eq!(seen.events.iter().collect::<Counters>(), seen.counters);
    }
    assert_eq!((all.counters.gpu_faults, all.events.len()), (48, 48));
    Ok(())
}

#[test]
fn records_that_are_taken_away_count_and_are_lost() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let (answer, seen) = observe(&machine, || -> Result<_> {
        written_by_device(&machine)?;
        let taken = machine.backend().take_events()?;
        written_by_device(&machine)?;
        Ok(taken.len())
    })?;
    assert_eq!(answer?, 6);
    assert_eq!((seen.counters.gpu_faults, seen.events.len(), seen.lost), (12, 6, 6));
    Ok(())
}

#[test]
fn amounts_are_what_ranges_contain() {
    let inside = |amount: Amount| (0..6).map(|n| amount.contains(n)).collect::<Vec<_>>();
    let of = |from: u64, to: u64| (0..6).map(|n| n >= from && n < to).collect::<Vec<_>>();
    assert_eq!(inside(3.into()), of(3, 4));
    assert_eq!(inside((1..3).into()), of(1, 3));
    assert_eq!(inside((1..=3).into()), of(1, 4));
    assert_eq!(inside((2..).into()), of(2, 6));
    assert_eq!(inside((..2).into()), of(0, 2));
    assert_eq!(inside((..=2).into()), of(0, 3));
    assert_eq!(inside((..0).into()), of(0, 0));
    assert_eq!(inside((3..3).into()), of(0, 0));
}

#[test]
fn what_runs_gives_its_value() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let number = assert_within!(machine, Budget::new().faults(0), 40 + 2);
    assert_eq!(number, 42);
    Ok(())
}

#[test]
fn programs_are_checked_and_leave_their_bytes() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 * 4096)?;
    let write = DeviceProgram::write(Device::FIRST, 9);
    let _ = buffer.range_mut(..4096)?.discard(&stream)?;
    let read = buffer.run_on_device(DeviceProgram::read(Device::FIRST), &stream).unwrap_err();
    assert_eq!((read.kind(), read.code()), (ErrorKind::InvalidValue, None), "{read}");
    buffer.run_on_device(write.stride(2), &stream)?;
    assert!(buffer.read().is_err(), "not every byte was written");
    buffer.run_on_device(write, &stream)?;
    assert_eq!(buffer.read()?, [9; 2 * 4096]);
    let sum = buffer.run_on_device(DeviceProgram::read(Device::FIRST).grid(2, 64), &stream)?;
    assert_eq!(sum, 9 * 2 * 4096);
    let elsewhere = DeviceProgram::read(Device::new(1)?);
    let error = buffer.run_on_device(elsewhere, &stream).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidDevice, None));
    let still = buffer.run_on_device(write.stride(0), &stream).unwrap_err();
    assert_eq!((still.kind(), still.code()), (ErrorKind::InvalidValue, None), "{still}");
    Ok(())
}
