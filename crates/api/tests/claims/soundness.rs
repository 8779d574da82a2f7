//! Soundness: no safe code changes bytes under a view, or frees memory under it.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::FaultInjector;
use pagewise::intercept::{Call, Intercepted, Interceptor, Operation};
use pagewise::resource::ManagedMemoryResource;
use pagewise::{
    Backend, Capabilities, Code, Device, DeviceAccess, DeviceProgram, DevicePtr, DiscardedContents,
    Error, ErrorKind, Host, HostAddresses, HostViews, Machine, ManagedBuffer, Result, SimBackend,
    SimConfig, Stream,
};
use pagewise_hal::mock::{MockBackend, permit_free};

/// A back end without memory: it gives out what it is told to.
fn mock(address: u64, capabilities: Capabilities) -> MockBackend {
    let mut mock = MockBackend::new();
    mock.expect_capabilities().returning(move || capabilities.clone());
    mock.expect_alloc_managed().returning(move |_, _| Ok(DevicePtr(address)));
    mock.expect_alloc_pinned().returning(move |_, _| Ok(DevicePtr(address)));
    mock.expect_device_count().returning(|| Ok(1));
    permit_free(&mut mock);
    mock
}

fn machine() -> Result<(Machine, Stream)> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    Ok((machine, stream))
}

#[test]
fn an_atomic_on_one_half_of_a_buffer_leaves_a_view_of_the_other_alone() -> Result<()> {
    let (machine, stream) = machine()?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
    let (mut left, right) = buffer.range_mut(..)?.split_at(5)?;
    left.run_on_device(DeviceProgram::write(Device::FIRST, 255), &stream)?;
    let view = right.read()?;
    let add = DeviceProgram::new(Device::FIRST, DeviceAccess::AtomicAdd).stride(4);
    let error = left.run_on_device(add, &stream).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
    assert!(error.to_string().contains("at multiples of 4"), "{error}");
    assert!(view.iter().all(|&byte| byte == 0));
    assert_eq!(left.read()?, [255; 5], "nothing was added");
    Ok(())
}

#[test]
fn no_address_that_a_mock_makes_up_is_followed_whatever_it_says_of_itself() -> Result<()> {
    let copied = pagewise::sim()?.capabilities();
    let plain: Arc<dyn Backend> = Arc::new(mock(0x1000, copied.clone()));
    let wrapped: Arc<dyn Backend> = Arc::new(FaultInjector::around(mock(0x1000, copied.clone())));
    let boxed: Box<dyn Backend> = Box::new(mock(0x1000, copied));
    for backend in [plain, wrapped, Arc::new(boxed)] {
        assert_eq!(backend.host_views(), HostViews::Absent);
        let machine = Machine::from(&backend);
        let mut buffer = ManagedBuffer::<u8>::new(&machine, 4096)?;
        for error in [buffer.read().map(drop).unwrap_err(), buffer.write().map(drop).unwrap_err()] {
            assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None), "{error}");
        }
        assert!(ManagedBuffer::<u8>::zeroed(&machine, 4096).is_err());
    }
    Ok(())
}

#[test]
fn wrappers_that_pass_addresses_on_pass_the_promise_on() -> Result<()> {
    let wrapped: Box<dyn Backend> = Box::new(FaultInjector::around(pagewise::sim()?));
    assert_eq!(wrapped.host_views(), HostViews::Declared);
    let buffer = ManagedBuffer::from_slice(Arc::new(wrapped), &[1_u8, 2])?;
    assert_eq!(buffer.read()?, [1, 2]);
    Ok(())
}

const BLOCK: usize = 2 << 20;

/// A machine on which discarded memory holds what it does on the hardware.
fn as_hardware() -> Result<(Machine, Stream)> {
    let config = SimConfig::h200().discarded_contents(DiscardedContents::Driver);
    let machine = Machine::from(Arc::new(SimBackend::new(config)?));
    let stream = Stream::new(&machine, Device::FIRST)?;
    Ok((machine, stream))
}

/// Read-mostly memory with a copy of its upper half on the device.
fn half_duplicated(machine: &Machine, stream: &Stream) -> Result<ManagedBuffer<u8>> {
    let buffer = ManagedBuffer::<u8>::zeroed(machine, BLOCK)?;
    buffer.set_read_mostly(true)?;
    buffer.range(BLOCK / 2..)?.prefetch(Device::FIRST, stream)?;
    Ok(buffer)
}

/// Moves a buffer back and forth while a view of it is alive.
fn assert_stays_under_a_view(buffer: &ManagedBuffer<u8>, stream: &Stream) -> Result<()> {
    let view = buffer.read()?;
    let before = view.to_vec();
    for _ in 0..2 {
        buffer.prefetch(Device::FIRST, stream)?;
        assert!(*view == before, "bytes turned on the way to the device");
        buffer.prefetch(Host::Any, stream)?;
        assert!(*view == before, "bytes turned on the way back");
    }
    Ok(())
}

#[test]
fn what_was_written_after_a_discard_stays_wherever_the_pages_go() -> Result<()> {
    let (machine, stream) = as_hardware()?;
    let mut buffer = half_duplicated(&machine, &stream)?;
    buffer.discard(&stream)?.fill(7)?;
    assert_stays_under_a_view(&buffer, &stream)?;
    assert!(buffer.read()?.iter().all(|&byte| byte == 7));
    let mut buffer = half_duplicated(&machine, &stream)?;
    let _ = buffer.discard(&stream)?;
    buffer.run_on_device(DeviceProgram::write(Device::FIRST, 9), &stream)?;
    assert_stays_under_a_view(&buffer, &stream)?;
    assert!(buffer.read()?.iter().all(|&byte| byte == 9));
    Ok(())
}

#[test]
fn discarded_memory_that_was_lent_but_not_written_does_not_change_under_a_view() -> Result<()> {
    let (machine, stream) = as_hardware()?;
    for migrates in [false, true] {
        let mut buffer = half_duplicated(&machine, &stream)?;
        let _ = match migrates {
            true => buffer.discard_prefetch(Device::FIRST, &stream)?,
            false => buffer.discard(&stream)?,
        };
        let _ = buffer.write()?;
        assert_stays_under_a_view(&buffer, &stream)?;
    }
    Ok(())
}

#[test]
fn memory_that_a_pool_gives_again_does_not_change_under_a_view() -> Result<()> {
    let (machine, stream) = as_hardware()?;
    let pool = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    for round in 1..4 {
        let mut buffer = ManagedBuffer::<u8>::from_resource(pool.clone(), 2 * BLOCK, &stream)?;
        assert_stays_under_a_view(&buffer, &stream)?;
        buffer.range_mut(..BLOCK + 5)?.write()?.fill(round);
        buffer.prefetch(Device::FIRST, &stream)?;
        assert_stays_under_a_view(&buffer, &stream)?;
        assert!(buffer.range(..BLOCK + 5)?.read()?.iter().all(|&byte| byte == round));
    }
    Ok(())
}

#[test]
fn what_is_written_to_memory_that_a_pool_gives_again_stays() -> Result<()> {
    let (machine, stream) = as_hardware()?;
    for place in [None, Some(Host::Any.into()), Some(Device::FIRST.into())] {
        let pool = Arc::new(ManagedMemoryResource::new_pool(&machine, place)?);
        for round in 1..4 {
            let mut buffer = ManagedBuffer::<u8>::from_resource(pool.clone(), 2 * BLOCK, &stream)?;
            match round % 2 {
                0 => buffer.write()?.fill(round),
                _ => {
                    _ = buffer.run_on_device(DeviceProgram::write(Device::FIRST, round), &stream)?
                }
            }
            buffer.prefetch(Device::FIRST, &stream)?;
            assert_stays_under_a_view(&buffer, &stream)?;
            assert!(buffer.read()?.iter().all(|&byte| byte == round), "{place:?}, {round}");
            drop(buffer);
            stream.synchronize()?;
        }
    }
    Ok(())
}

/// Makes each discard, and says that it failed.
#[derive(Debug)]
struct Denier;

impl Interceptor for Denier {
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let answer = make();
        match call.operation() {
            Operation::DiscardBatch | Operation::DiscardPrefetchBatch => {
                Err(Error::from_code("discard", Code::UNKNOWN))
            }
            _ => answer,
        }
    }
}

#[test]
fn an_interceptor_cannot_hide_that_contents_were_discarded() -> Result<()> {
    let machine = Machine::from(Arc::new(Intercepted::new(pagewise::sim()?, Denier)));
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, BLOCK)?;
    let _ = buffer.range_mut(..BLOCK / 2)?.discard(&stream)?;
    let _ = buffer.range_mut(BLOCK / 2..)?.discard_prefetch(Device::FIRST, &stream)?;
    assert!(buffer.range(..1)?.read().is_err() && buffer.range(BLOCK / 2..)?.read().is_err());
    Ok(())
}
