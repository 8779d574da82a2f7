//! The base of managers of memory: order between streams, ranges by address, checks.
#![cfg(feature = "sim")]

use std::sync::{Arc, Mutex};

use pagewise::inject::FaultInjector;
use pagewise::intercept::Operation;
use pagewise::resource::{
    Allocation, DeviceMemoryResource, ManagedMemoryResource, MemoryKind, MemoryResource,
};
use pagewise::{
    BackendExt, Device, DevicePtr, DriverVersion, ErrorKind, Machine, ManagedBuffer, MemoryAdvice,
    NumaNode, Place, RangeAttribute, Region, Result, Rounding, SimBackend, SimConfig, Stream,
    StreamHandle, use_on,
};

type Injected = Arc<FaultInjector<SimBackend>>;

fn machine(version: DriverVersion) -> Result<(Injected, Machine)> {
    let sim = SimBackend::new(SimConfig::h200().driver_version(version))?;
    let backend = Arc::new(FaultInjector::around(sim));
    let machine = Machine::from(&backend);
    Ok((backend, machine))
}

fn stream(machine: &Machine) -> Result<Stream> {
    Stream::new(machine, Device::FIRST)
}

/// How many calls of one kind there were since the last look.
fn count(backend: &Injected, operation: Operation) -> usize {
    backend.take_calls().iter().filter(|call| call.operation() == operation).count()
}

#[test]
fn a_stream_waits_once_for_each_stream_that_memory_came_on() -> Result<()> {
    let (backend, machine) = machine(DriverVersion::CUDA_13_0)?;
    let (first, second, user) = (stream(&machine)?, stream(&machine)?, stream(&machine)?);
    let pool = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    let of = |stream| ManagedBuffer::<u8>::from_resource(Arc::clone(&pool) as _, 100, stream);
    let (a, b, c) = (of(&first)?, of(&first)?, of(&second)?);
    let plain = ManagedBuffer::<u8>::new(&machine, 1)?;
    let regions = || [a.region(), b.region(), c.region(), plain.region()];
    let _ = backend.take_calls();
    use_on(regions(), &user)?;
    assert_eq!(count(&backend, Operation::StreamWaitEvent), 2, "one for each of the two streams");
    use_on(regions(), &user)?;
    assert_eq!(count(&backend, Operation::StreamWaitEvent), 0, "it has waited");
    drop((a, b, c));
    assert_eq!(count(&backend, Operation::StreamWaitEvent), 3, "each goes after its user");
    Ok(())
}

#[test]
fn a_stream_of_another_machine_is_refused_before_any_stream_waits() -> Result<()> {
    let (backend, machine) = machine(DriverVersion::CUDA_13_0)?;
    let (_, other) = self::machine(DriverVersion::CUDA_13_0)?;
    let (own, foreign) = (stream(&machine)?, stream(&other)?);
    let pool = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    let buffer = ManagedBuffer::<u8>::from_resource(pool, 100, &own)?;
    let theirs = ManagedBuffer::<u8>::new(&other, 1)?;
    let device = Arc::new(DeviceMemoryResource::current_pool(&machine, Device::FIRST)?);
    let bytes = Allocation::new(device, 8, &own)?;
    let _ = backend.take_calls();
    let error = use_on([theirs.region(), buffer.region()], &foreign).unwrap_err();
    assert_eq!((error.kind(), error.item()), (ErrorKind::InvalidValue, Some(1)));
    let error = bytes.use_on(&foreign).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    assert!(machine.check_discard("reset", &foreign).is_err());
    assert_eq!(backend.take_calls().len(), 0, "the back end was not asked");
    Ok(())
}

#[test]
fn no_region_is_nothing_to_wait_for() -> Result<()> {
    let (_, machine) = machine(DriverVersion::CUDA_13_0)?;
    use_on(Vec::<Region<'_>>::new(), &stream(&machine)?)
}

/// A resource that remembers on which streams its memory came back.
#[derive(Debug)]
struct Remembering {
    pool: ManagedMemoryResource,
    returned_on: Mutex<Vec<StreamHandle>>,
}

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time;
// the pool gives it and made that promise.
unsafe impl MemoryResource for Remembering {
    fn machine(&self) -> &Machine {
        self.pool.machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        self.pool.memory_kind()
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        self.pool.allocate(bytes, stream)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()> {
        self.returned_on.lock().expect("no test panics with it").push(stream.handle());
        // SAFETY: the memory came from the pool, and its `deallocate` asks for what the caller of
        // this one promised.
        unsafe { self.pool.deallocate(ptr, bytes, stream) }
    }
}

#[test]
fn memory_that_changed_streams_unchecked_goes_back_on_the_new_one() -> Result<()> {
    let (backend, machine) = machine(DriverVersion::CUDA_13_0)?;
    let (old, new) = (stream(&machine)?, stream(&machine)?);
    let pool = ManagedMemoryResource::new_pool(&machine, None)?;
    let resource = Arc::new(Remembering { pool, returned_on: Mutex::default() });
    let mut buffer = ManagedBuffer::<u8>::from_resource(Arc::clone(&resource) as _, 100, &old)?;
    let mut bytes = Allocation::new(Arc::clone(&resource) as _, 100, &old)?;
    new.wait_for(&old)?;
    let _ = backend.take_calls();
    // SAFETY: the new stream has to come after all work on the buffer, and it waits for the old
    // one.
    unsafe { buffer.set_stream_unchecked(&new) };
    // SAFETY: the new stream has to come after all work on the bytes, and it waits for the old one.
    unsafe { bytes.set_stream_unchecked(&new) };
    assert_eq!(backend.take_calls().len(), 0, "nothing is waited for");
    drop((buffer, bytes));
    let returned_on = resource.returned_on.lock().expect("no test panics with it").clone();
    assert_eq!(returned_on, [new.handle(); 2]);
    Ok(())
}

#[test]
fn a_discard_is_refused_before_13_0_and_on_the_legacy_default_stream() -> Result<()> {
    let (_, old) = machine(DriverVersion::CUDA_12_9)?;
    let error = old.check_discard("reset", &stream(&old)?).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, "reset"));
    let (_, new) = machine(DriverVersion::CUDA_13_0)?;
    let error = new.check_discard("reset", &Stream::legacy_default(&new)).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    new.check_discard("reset", &stream(&new)?)
}

#[test]
fn ranges_are_prefetched_in_one_call_unless_the_stream_is_the_legacy_default() -> Result<()> {
    for (version, default, batches) in [
        (DriverVersion::CUDA_13_0, false, 1),
        (DriverVersion::CUDA_13_0, true, 0),
        (DriverVersion::CUDA_12_2, false, 1),
    ] {
        let (backend, machine) = machine(version)?;
        let own = stream(&machine)?;
        let handle = if default { StreamHandle::NULL } else { own.handle() };
        let spans = [backend.alloc(4096)?, backend.alloc(4096)?];
        let _ = backend.take_calls();
        machine.prefetch_spans(&spans, Device::FIRST.into(), handle)?;
        assert_eq!(count(&backend, Operation::PrefetchBatch), batches, "{version}");
        for span in spans {
            let last = RangeAttribute::LAST_PREFETCH_LOCATION;
            assert_eq!(machine.backend().range_attribute(span, last)?, 0, "{version}");
        }
    }
    Ok(())
}

#[test]
fn a_place_that_was_not_checked_is_refused_all_the_same() -> Result<()> {
    for version in [DriverVersion::CUDA_12_0, DriverVersion::CUDA_13_0] {
        let (backend, machine) = machine(version)?;
        let span = backend.alloc(4096)?;
        let nowhere = Place::Device(Device::new(9)?);
        assert!(machine.prefetch(span, nowhere, StreamHandle::NULL).is_err(), "{version}");
        let advice = MemoryAdvice::SetPreferredLocation(nowhere);
        assert!(machine.advise(span, advice).is_err(), "{version}");
        assert_eq!(advice.check("x", &machine).unwrap_err().kind(), ErrorKind::InvalidDevice);
    }
    let (backend, before_locations) = machine(DriverVersion::CUDA_12_0)?;
    let span = backend.alloc(4096)?;
    let node = Place::from(pagewise::Host::Node(NumaNode::new(0)?));
    let error = before_locations.prefetch(span, node, StreamHandle::NULL).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
    Ok(())
}

#[test]
fn contents_that_work_in_a_stream_writes_count_as_written_without_another_wait() -> Result<()> {
    let (backend, machine) = machine(DriverVersion::CUDA_13_0)?;
    let own = stream(&machine)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 8192)?;
    drop(buffer.discard(&own)?);
    let _ = backend.take_calls();
    buffer.region().wait_for_discards()?;
    assert_eq!(count(&backend, Operation::StreamSynchronize), 1);
    assert!(buffer.read().is_err(), "waiting writes nothing");
    // SAFETY: no view of the buffer exists, so only the fill uses its memory.
    unsafe { machine.backend().memset(buffer.span(), 7, own.handle())? };
    let _ = backend.take_calls();
    // SAFETY: every page has to be written before it is read. Discards were waited for, and the
    // fill writes all of the buffer and is waited for below.
    unsafe { buffer.range_mut(..)?.forget_discards() };
    assert_eq!(backend.take_calls().len(), 0);
    own.synchronize()?;
    assert_eq!(buffer.read()?, [7; 8192]);
    Ok(())
}

#[test]
fn rounding_inward_leaves_nothing_of_a_range_within_a_page() -> Result<()> {
    let (backend, _) = machine(DriverVersion::CUDA_13_0)?;
    let span = backend.alloc(8192)?;
    let part = pagewise::Span::new(span.ptr.offset(8), 100);
    assert_eq!(Rounding::Inward.apply("x", part)?.bytes, 0);
    assert_eq!(Rounding::Outward.apply("x", part)?, part);
    let error = Rounding::Exact.apply("x", part).unwrap_err();
    assert_eq!((error.operation(), error.span()), ("x", Some(part)));
    for rounding in [Rounding::Inward, Rounding::Outward, Rounding::Exact] {
        assert_eq!(rounding.apply("x", span)?, span);
    }
    Ok(())
}
