//! What safe code may not bring about: bytes that change under a view, memory that is not there.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::FaultInjector;
use pagewise::{
    Backend, Capabilities, Device, DeviceAccess, DeviceProgram, DevicePtr, ErrorKind,
    HostAddresses, HostViews, Machine, ManagedBuffer, Result, Stream,
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
