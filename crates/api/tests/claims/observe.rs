//! Observations, budgets, claims about faults; spans.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::FaultInjector;
use pagewise::{
    Amount, Budget, Device, DeviceProgram, ErrorKind, EventCapture, Machine, ManagedBuffer,
    MemoryEvent, Result, SimBackend, SimConfig, Stream, Watch, assert_faults, assert_within,
    observe,
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

#[test]
fn a_back_end_that_reports_nothing_is_refused_before_anything_runs() -> Result<()> {
    let config = SimConfig::h200().events(EventCapture::Off);
    let machine = Machine::from(Arc::new(SimBackend::new(config)?));
    let mut ran = false;
    let error = observe(&machine, || ran = true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(!ran);
    assert!(Watch::begin(&machine).is_err());
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

#[cfg(feature = "tracing")]
mod spans {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use pagewise::{Device, Machine, ManagedBuffer, Stream, traced};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Keeps the fields of each span and event as text.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0 += &format!("{}={value:?} ", field.name());
        }
    }

    impl Lines {
        fn keep(&self, fields: Fields) {
            self.0.lock().expect("no panics").push(fields.0);
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let mut fields = Fields(String::new());
            span.record(&mut fields);
            self.keep(fields);
            Id::from_u64(1)
        }

        fn event(&self, event: &Event<'_>) {
            let mut fields = Fields(String::new());
            event.record(&mut fields);
            self.keep(fields);
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn each_call_is_a_span_and_each_failure_an_event() -> pagewise::Result<()> {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let machine = Machine::from(Arc::new(traced::around(pagewise::sim()?)));
            let buffer = ManagedBuffer::<u8>::new(&machine, 4096)?;
            buffer.prefetch(Device::FIRST, &Stream::legacy_default(&machine))?;
            assert!(Stream::new(&machine, Device::new(5)?).is_err());
            Ok::<_, pagewise::Error>(())
        })?;
        let lines = lines.0.lock().expect("no panics");
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count("operation=\"alloc_managed\" bytes=4096"), 1, "{lines:?}");
        assert_eq!(count("operation=\"prefetch\" bytes=4096"), 1, "{lines:?}");
        assert_eq!(count("location=device 0"), 1, "{lines:?}");
        assert_eq!(count("error=stream_create: invalid device"), 1, "{lines:?}");
        assert_eq!(count("operation=\"free\""), 1, "{lines:?}");
        Ok(())
    }
}
