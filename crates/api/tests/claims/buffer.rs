//! Buffers and ranges: memory, attributes, contents.
#![cfg(feature = "sim")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{
    Advice, Backend, BackendExt, Capabilities, Code, Device, DevicePtr, DriverVersion, ErrorKind,
    Host, Machine, ManagedBuffer, MemoryAdvice, Place, Result, SimBackend, SimConfig, Stream,
};
use pagewise_hal::mock::{MockBackend, permit_free};

const PAGE: usize = 4096;

fn machine() -> Result<Machine> {
    Ok(Machine::from(pagewise::sim()?))
}

#[test]
fn sizes_that_are_no_memory_are_refused_before_the_driver_is_asked() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let refused = [
        ManagedBuffer::<u32>::new(&backend, 0).map(drop),
        ManagedBuffer::<[u8; 0]>::new(&backend, 7).map(drop),
        ManagedBuffer::<u64>::new(&backend, usize::MAX / 4).map(drop),
    ];
    for answer in refused {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None), "{error}");
    }
    assert_eq!(backend.take_calls(), []);
    Ok(())
}

#[test]
fn a_buffer_is_freed_once_whatever_becomes_of_it() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let frees = || {
        let calls = backend.take_calls();
        calls.iter().filter(|call| call.operation() == Operation::Free).count()
    };
    drop(ManagedBuffer::<u8>::new(&machine, 10)?);
    assert_eq!(frees(), 1);
    ManagedBuffer::<u8>::new(&machine, 10)?.free()?;
    assert_eq!(frees(), 1);
    backend.arm(Fault::new(Code::NOT_PERMITTED).on(Operation::Free).always());
    let error = ManagedBuffer::<u8>::new(&machine, 10)?.free().unwrap_err();
    assert_eq!((error.code(), frees()), (Some(Code::NOT_PERMITTED), 1));
    assert_eq!(machine.failures_on_drop(), 0, "it was reported");
    drop(ManagedBuffer::<u8>::new(&machine, 10)?);
    assert_eq!((frees(), machine.failures_on_drop()), (1, 1));
    // Writing the first contents fails: the memory is given back.
    backend.disarm();
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::HostTouch));
    assert!(ManagedBuffer::<u8>::zeroed(&machine, 10).is_err());
    assert_eq!(frees(), 1);
    Ok(())
}

#[test]
fn read_mostly_and_preferred_location_read_back() -> Result<()> {
    let config = SimConfig::h200().host_numa_nodes(2);
    let buffer = ManagedBuffer::<u8>::zeroed(Arc::new(SimBackend::new(config)?), PAGE)?;
    for on in [false, true, true, false] {
        buffer.set_read_mostly(on)?;
        assert_eq!(buffer.read_mostly()?, on);
    }
    for place in [Some(Device::FIRST.into()), Some(Place::HOST), None] {
        buffer.set_preferred_location(place)?;
        assert_eq!(buffer.preferred_location()?, place);
    }
    // As driver 580 does it: the call succeeds and has no effect.
    buffer.set_preferred_location(Some(Host::node(1)?.into()))?;
    assert_eq!(buffer.preferred_location()?, None);
    Ok(())
}

#[test]
fn each_place_of_a_prefetch_reads_back_and_says_nothing_before() -> Result<()> {
    let config = SimConfig::h200().host_numa_nodes(2).devices(2);
    let machine = Machine::from(Arc::new(SimBackend::new(config)?));
    let stream = Stream::new(&machine, Device::FIRST)?;
    let buffer = ManagedBuffer::<u8>::zeroed(&machine, PAGE)?;
    assert_eq!(buffer.last_prefetch_location()?, None);
    let places =
        [Place::HOST, machine.device(1)?.into(), Host::node(1)?.into(), Host::CurrentNode.into()];
    for place in places {
        buffer.prefetch(place, &stream)?;
        assert_eq!(buffer.last_prefetch_location()?, Some(place));
    }
    Ok(())
}

/// The table of advice against kinds of place: a refusal makes no call.
#[test]
fn advice_takes_the_places_that_it_can() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let buffer = ManagedBuffer::<u8>::zeroed(&backend, PAGE)?;
    let places =
        [Device::FIRST.into(), Place::HOST, Host::node(0)?.into(), Host::CurrentNode.into()];
    type Row = (fn(Place) -> MemoryAdvice, [bool; 4]);
    let table: [Row; 3] = [
        (MemoryAdvice::SetPreferredLocation, [true, true, true, true]),
        (MemoryAdvice::SetAccessedBy, [true, true, false, false]),
        (MemoryAdvice::UnsetAccessedBy, [true, true, false, false]),
    ];
    for (advice, takes) in table {
        for (place, takes) in places.into_iter().zip(takes) {
            let _ = backend.take_calls();
            let answer = buffer.region().advise(advice(place));
            assert_eq!(answer.is_ok(), takes, "{:?}: {answer:?}", advice(place));
            let advised = backend.take_calls().iter().any(|c| c.operation() == Operation::Advise);
            assert_eq!(advised, takes, "{:?}", advice(place));
        }
    }
    Ok(())
}

#[test]
fn a_device_that_does_not_exist_is_refused_without_a_code() -> Result<()> {
    let machine = machine()?;
    let buffer = ManagedBuffer::<u8>::zeroed(&machine, PAGE)?;
    let (bad, stream) = (Device::new(1)?, Stream::legacy_default(&machine));
    let answers = [
        buffer.prefetch(bad, &stream),
        buffer.set_preferred_location(Some(bad.into())),
        buffer.accessed_by().insert(bad),
    ];
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidDevice, None), "{error}");
    }
    Ok(())
}

#[test]
fn a_stream_of_another_machine_is_refused() -> Result<()> {
    let (here, there) = (machine()?, machine()?);
    let mut buffer = ManagedBuffer::<u8>::zeroed(&here, PAGE)?;
    let stream = Stream::new(&there, Device::FIRST)?;
    assert!(buffer.prefetch(Place::HOST, &stream).is_err());
    assert!(buffer.discard(&stream).is_err());
    Ok(())
}

#[test]
fn ranges_are_checked_and_do_what_the_buffer_does_on_their_pages() -> Result<()> {
    let machine = machine()?;
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u16>::zeroed(&machine, 4 * PAGE)?;
    let pages = PAGE / 2;
    let backwards = std::ops::Range { start: 5, end: 4 };
    for bad in [0..0, backwards, 0..4 * PAGE + 1, 4 * PAGE..4 * PAGE + 1] {
        let error = buffer.range(bad.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue, "{bad:?}: {error}");
        assert!(buffer.range_mut(bad).is_err());
    }
    assert!(buffer.range(..=usize::MAX).is_err());
    let second = buffer.range(pages..2 * pages)?;
    second.set_read_mostly(true)?;
    second.set_preferred_location(Some(Place::HOST))?;
    second.accessed_by().insert(Device::FIRST)?;
    second.prefetch(Device::FIRST, &stream)?;
    for (index, expected) in [(0, false), (1, true), (2, false)] {
        let range = buffer.range(index * pages..(index + 1) * pages)?;
        assert_eq!(range.read_mostly()?, expected, "{index}");
        assert_eq!(range.preferred_location()?.is_some(), expected, "{index}");
        assert_eq!(range.accessed_by().contains(Device::FIRST)?, expected, "{index}");
        assert_eq!(range.last_prefetch_location()?.is_some(), expected, "{index}");
    }
    let (left, right) = buffer.range_mut(1..5)?.split_at(1)?;
    left.write()?.fill(1);
    right.write()?.fill(2);
    assert_eq!(buffer.range(..6)?.read()?, [0, 1, 2, 2, 2, 0]);
    assert!(buffer.range_mut(..2)?.split_at(2).is_err(), "both sides have an element");
    Ok(())
}

#[test]
fn foreign_memory_is_checked_and_its_owner_kept() -> Result<()> {
    struct Owner(Arc<AtomicBool>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let sim = pagewise::sim()?;
    let span = sim.alloc(PAGE as u64)?;
    let pinned = sim.alloc_pinned(4096, pagewise::HostAllocFlags::empty())?;
    let gone = Arc::new(AtomicBool::new(false));
    let adopt = |ptr: DevicePtr, len: usize| {
        // SAFETY: the memory has to live as long as the buffer; it is freed below, after all
        // buffers.
        unsafe { ManagedBuffer::<u64>::from_raw(&sim, ptr, len, Owner(Arc::clone(&gone))) }
    };
    let buffer = adopt(span.ptr.offset(8), 511)?;
    buffer.set_read_mostly(true)?;
    assert!(!gone.load(Ordering::Relaxed));
    drop(buffer);
    assert!(gone.load(Ordering::Relaxed));
    for (ptr, len, says) in [
        (span.ptr, 513, "passes the end"),
        (span.ptr.offset(4), 1, "multiple of 8"),
        (pinned, 1, "not managed"),
        (span.ptr, 0, "at least one"),
        (DevicePtr(8), 1, "address belongs to no live allocation"),
        (DevicePtr(u64::MAX - 7), 1, "address belongs to no live allocation"),
    ] {
        let error = adopt(ptr, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    // SAFETY: the buffers over the memory are dropped, and no other code uses it.
    unsafe {
        sim.free(span.ptr)?;
        sim.free_pinned(pinned)
    }
}

#[test]
fn memory_of_a_managed_pool_moves_but_takes_no_advice() -> Result<()> {
    let sim = pagewise::sim()?;
    let kind = pagewise::AllocationType::MANAGED;
    let pool = sim.pool_default(pagewise::Location::HOST, kind)?;
    let ptr = sim.pool_alloc(pool, 8192, pagewise::StreamHandle::NULL)?;
    // SAFETY: the memory has to live as long as the buffer; it is freed below, after the buffer.
    let buffer = unsafe { ManagedBuffer::<u8>::from_raw(&sim, ptr, 8192, ()) }?;
    let machine = Machine::from(&sim);
    buffer.prefetch(Device::FIRST, &Stream::legacy_default(&machine))?;
    let error = buffer.set_read_mostly(true).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, Some(Code::NOT_SUPPORTED)));
    drop(buffer);
    // SAFETY: the buffers over the memory are dropped, and no other code uses it.
    unsafe { sim.free(ptr) }
}

#[test]
fn a_mock_sees_the_calls_and_its_made_up_addresses_are_never_read() -> Result<()> {
    let mut mock = MockBackend::new();
    mock.expect_capabilities()
        .times(1)
        .returning(|| Capabilities::of_driver("mock", DriverVersion::CUDA_13_0));
    mock.expect_alloc_managed().returning(|_, _| Ok(DevicePtr(0x20_0000)));
    mock.expect_advise()
        .withf(|span, advice, _| span.bytes == 400 && *advice == Advice::SET_READ_MOSTLY)
        .times(1)
        .returning(|_, _, _| Ok(()));
    permit_free(&mut mock);
    let mut buffer = ManagedBuffer::<u32>::new(Arc::new(mock), 100)?;
    buffer.set_read_mostly(true)?;
    for error in [buffer.read().map(drop).unwrap_err(), buffer.write().map(drop).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    Ok(())
}

#[test]
fn buffers_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<ManagedBuffer<f64>>();
    crosses::<Machine>();
    crosses::<Stream>();
}
