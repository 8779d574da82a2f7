//! Spans and events of the `tracing` crate: calls, and what they moved.
#![cfg(all(feature = "sim", feature = "tracing"))]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use pagewise::intercept::{Call, Intercepted, Interceptor, Operation};

use pagewise::{
    Backend, Device, DevicePtr, EventCapture, EventsSince, FaultAccess, Machine, ManagedBuffer,
    MemoryEvent, Result, SimBackend, SimConfig, Stream, traced,
};
use pagewise_hal::mock::{MockBackend, permit_machine};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const MIB: usize = 1 << 20;

/// Keeps the fields of each span and event as text, in order, with the ends of spans.
#[derive(Clone)]
struct Lines {
    kept: Arc<Mutex<Vec<String>>>,
    most: Level,
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Lines {
    fn keep(&self, line: String) {
        self.kept.lock().expect("no panics").push(line);
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields("span ".to_owned());
        span.record(&mut fields);
        self.keep(fields.0);
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(format!("{} ", event.metadata().target()));
        event.record(&mut fields);
        self.keep(fields.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {
        self.keep("end".to_owned());
    }
}

/// The lines of a program at a level and the levels above it.
fn lines_at(most: Level, run: impl FnOnce() -> Result<()>) -> Result<Vec<String>> {
    let lines = Lines { kept: Arc::default(), most };
    tracing::subscriber::with_default(lines.clone(), run)?;
    Ok(Arc::into_inner(lines.kept).expect("the subscriber is gone").into_inner().expect("no panic"))
}

fn lines_of(run: impl FnOnce() -> Result<()>) -> Result<Vec<String>> {
    lines_at(Level::TRACE, run)
}

fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn each_call_is_a_span_and_each_failure_an_event() -> Result<()> {
    let lines = lines_of(|| {
        let machine = Machine::from(Arc::new(traced::around(pagewise::sim()?)));
        let buffer = ManagedBuffer::<u8>::new(&machine, 4096)?;
        buffer.prefetch(Device::FIRST, &Stream::legacy_default(&machine))?;
        assert!(Stream::new(&machine, Device::new(5)?).is_err());
        Ok(())
    })?;
    assert_eq!(count(&lines, "operation=\"alloc_managed\" bytes=4096"), 1, "{lines:?}");
    assert_eq!(count(&lines, "operation=\"prefetch\" bytes=4096"), 1, "{lines:?}");
    assert_eq!(count(&lines, "location=device 0"), 1, "{lines:?}");
    assert_eq!(count(&lines, "error=stream_create: invalid device"), 1, "{lines:?}");
    assert_eq!(count(&lines, "operation=\"free\""), 1, "{lines:?}");
    assert_eq!(count(&lines, "pagewise::movement"), 0, "spans alone were asked for");
    Ok(())
}

/// The event with a text, and the span that it is in: no span is in another one here.
fn with_span<'l>(lines: &'l [String], text: &str) -> (&'l str, &'l str) {
    let at = lines.iter().position(|line| line.contains(text));
    let at = at.unwrap_or_else(|| panic!("{text}: {lines:#?}"));
    let span = lines[..at].iter().rfind(|line| line.starts_with("span ") || *line == "end");
    (&lines[at], span.map_or("", String::as_str))
}

#[test]
fn migrations_and_faults_are_events_in_the_span_of_their_call_with_the_buffers_name() -> Result<()>
{
    let lines = lines_of(|| {
        let machine = traced::machine(pagewise::sim()?);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let mut weights = ManagedBuffer::<u8>::zeroed(&machine, 4 * MIB)?.named("weights");
        weights.range(..MIB)?.prefetch(Device::FIRST, &stream)?;
        weights.range_mut(..4096)?.write()?.fill(1);
        Ok(())
    })?;
    let (migrated, span) = with_span(&lines, "from=host");
    for field in [
        "migrated",
        "buffer=\"weights[0..1048576]\"",
        "bytes=1048576",
        "to=gpu0",
        "cause=User",
        "call=prefetch on stream 0x",
    ] {
        assert!(migrated.contains(field), "{field}: {migrated}");
    }
    assert!(migrated.starts_with("pagewise::movement ") && span.contains("operation=\"prefetch\""));
    let (back, span) = with_span(&lines, "cause=Coherence");
    assert!(back.contains("buffer=\"weights[0..") && back.contains("from=gpu0 to=host"), "{back}");
    assert!(span.contains("operation=\"host_touch\""), "{span}");
    let (faulted, span) = with_span(&lines, "processor=host");
    assert!(faulted.contains("faulted") && faulted.contains("traced.rs:"), "before it had a name");
    assert!(span.contains("operation=\"host_touch\""), "{span}");
    Ok(())
}

#[test]
fn threads_report_their_own_calls_and_lost_records_are_said() -> Result<()> {
    let config = SimConfig::h200().events(EventCapture::Ring { capacity: 1 });
    let sim = Arc::new(SimBackend::new(config)?);
    let lines = lines_of(|| {
        let machine = traced::machine(&sim);
        let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?.named("small");
        let elsewhere = || ManagedBuffer::<u8>::zeroed(&machine, 4 * MIB).map(drop);
        std::thread::scope(|scope| scope.spawn(elsewhere).join()).expect("no panic")?;
        buffer.prefetch(Device::FIRST, &Stream::legacy_default(&machine))?;
        buffer.write().map(|bytes| bytes.fill(2))
    })?;
    assert_eq!(count(&lines, "buffer=\"small\""), 2, "one there, one of two back: {lines:#?}");
    assert_eq!(count(&lines, "records are lost count=1"), 1, "{lines:#?}");
    assert_eq!(count(&lines, "4194304"), 0, "the other thread has no subscriber");
    Ok(())
}

/// Counts the questions for records.
#[derive(Debug, Default)]
struct Questions(Mutex<u64>);

impl Interceptor for Questions {
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
        *self.0.lock().expect("no panic") += u64::from(call.operation() == Operation::EventsSince);
        make()
    }
}

#[test]
fn records_are_fetched_only_if_a_subscriber_wants_them() -> Result<()> {
    for (level, fetched) in [(Level::INFO, false), (Level::DEBUG, true)] {
        let backend = Arc::new(Intercepted::new(pagewise::sim()?, Questions::default()));
        let lines = lines_at(level, || {
            ManagedBuffer::<u8>::zeroed(traced::machine(&backend), 4096).map(drop)
        })?;
        let questions = *backend.interceptor().0.lock().expect("no panic");
        assert_eq!((questions > 1, count(&lines, "faulted") == 1), (fetched, fetched), "{level}");
    }
    Ok(())
}

/// A back end as a driver's: its records have no calls.
#[test]
fn a_stream_of_records_is_reported_once_where_a_call_waits() -> Result<()> {
    let mut mock = MockBackend::new();
    mock.expect_alloc_managed().returning(|_, _| Ok(DevicePtr(0x5000)));
    mock.expect_prefetch().returning(|_, _, _, _| Ok(()));
    mock.expect_events_since().returning(|position| {
        let mut seen = EventsSince::default();
        seen.position = 1;
        if position == 0 {
            let (address, access) = (0x5000, FaultAccess::Read);
            seen.events.push(MemoryEvent::CpuFault { address, access });
        }
        if position == u64::MAX {
            seen.position = 0;
        }
        Ok(seen)
    });
    permit_machine(&mut mock);
    let backend: Arc<dyn Backend> = Arc::new(mock);
    let lines = lines_of(|| {
        let machine = traced::machine(&backend);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let buffer = ManagedBuffer::<u8>::new(&machine, 4096)?.named("of a driver");
        buffer.prefetch(Device::FIRST, &stream)?;
        stream.synchronize()?;
        stream.synchronize()
    })?;
    assert_eq!(count(&lines, "faulted"), 1, "{lines:#?}");
    let (faulted, span) = with_span(&lines, "faulted");
    assert!(faulted.contains("buffer=\"of a driver\"") && !faulted.contains("call="), "{faulted}");
    assert!(span.contains("operation=\"stream_synchronize\""), "{span}");
    Ok(())
}
