//! A driver with work that takes its time: the host does not reach memory before the work is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagewise::inject::Injector;
use pagewise::intercept::Intercepted;
use pagewise::{
    Capabilities, Device, DriverVersion, ErrorKind, HostViews, Machine, ManagedBuffer, Result,
    Stream,
};
use pagewise_hal::mock::{MockBackend, permit_free};
use pagewise_hal::{DevicePtr, EventHandle, StreamHandle};

/// A driver without concurrent managed access over one page of this process's memory, and whether
/// it is busy.
fn driver(page: &'static mut [u8; 4096], concurrent: bool) -> (Machine, Arc<AtomicBool>) {
    let busy = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&busy);
    let address = page.as_mut_ptr().expose_provenance() as u64;
    let mut mock = MockBackend::new();
    mock.expect_capabilities().returning(move || {
        let mut found = Capabilities::of_driver("mock", DriverVersion::CUDA_13_0);
        found.concurrent_managed_access = concurrent;
        found
    });
    mock.expect_alloc_managed().times(1).returning(move |_, _| Ok(DevicePtr(address)));
    mock.expect_event_create()
        // SAFETY: `from_raw` asks for a handle that the back end can take; the mock dereferences
        // none.
        .returning(|_, _| Ok(unsafe { EventHandle::from_raw(5) }));
    mock.expect_event_record().returning(|_, _| Ok(()));
    mock.expect_event_query().returning(move |_| Ok(!asked.load(Ordering::Relaxed)));
    mock.expect_event_destroy().returning(|_| Ok(()));
    mock.expect_device_count().returning(|| Ok(1));
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock dereferences none.
    mock.expect_stream_create().returning(|_, _| Ok(unsafe { StreamHandle::from_raw(8) }));
    mock.expect_stream_destroy().returning(|_| Ok(()));
    mock.expect_discard_batch().returning(|_, _, _| Ok(()));
    permit_free(&mut mock);
    // SAFETY: views need memory that the host reaches. The one allocation of this mock is the page,
    // which is never freed and which no other code uses.
    let backend =
        unsafe { Intercepted::with_host_views(mock, Injector::default(), HostViews::Direct) };
    (Machine::from(Arc::new(backend)), busy)
}

#[repr(align(4096))]
struct Page([u8; 4096]);

fn page() -> &'static mut [u8; 4096] {
    &mut Box::leak(Box::new(Page([7; 4096]))).0
}

#[test]
fn a_busy_driver_without_concurrent_access_keeps_the_host_away() -> Result<()> {
    let (machine, busy) = driver(page(), false);
    let mut buffer = ManagedBuffer::<u8>::new(&machine, 4096)?;
    assert_eq!(buffer.read()?, [7; 4096]);
    busy.store(true, Ordering::Relaxed);
    for error in [buffer.read().map(drop).unwrap_err(), buffer.write().map(drop).unwrap_err()] {
        assert_eq!((error.kind(), error.code()), (ErrorKind::NotReady, None), "{error}");
        assert!(error.to_string().contains("synchronise its streams first"), "{error}");
    }
    busy.store(false, Ordering::Relaxed);
    buffer.write()?.fill(8);
    assert_eq!(buffer.read()?, [8; 4096]);
    Ok(())
}

#[test]
fn a_busy_driver_with_concurrent_access_is_not_even_asked() -> Result<()> {
    let (machine, busy) = driver(page(), true);
    let buffer = ManagedBuffer::<u8>::new(&machine, 4096)?;
    busy.store(true, Ordering::Relaxed);
    assert_eq!(buffer.read()?, [7; 4096]);
    Ok(())
}

#[test]
fn discarded_pages_are_written_when_they_are_lent_because_the_borrower_may_not() -> Result<()> {
    let (machine, _) = driver(page(), true);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::new(&machine, 4096)?;
    assert_eq!(buffer.write()?, [7; 4096], "what was not discarded is left alone");
    let _ = buffer.discard(&stream)?;
    assert!(buffer.read().is_err());
    let _ = buffer.range_mut(100..)?.write()?;
    assert!(buffer.read().is_err(), "the bytes before were not lent");
    let view = buffer.range(100..)?.read()?;
    assert_eq!((view[0], view[1]), (0, 7), "one byte of the page was written");
    Ok(())
}
