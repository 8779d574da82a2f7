//! Views of memory by its address, over a back end with memory of this test. Miri can run it;
//! it has no address space for the simulator. The memory is never given back:
//! `MIRIFLAGS=-Zmiri-ignore-leaks cargo +nightly miri test -p pagewise --no-default-features
//! --features mock --test host_views --test in_flight`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise::inject::Injector;
use pagewise::intercept::Intercepted;
use pagewise::{
    Capabilities, Device, DriverVersion, HostViews, Machine, ManagedBuffer, Result, Stream,
};
use pagewise_hal::mock::{MockBackend, permit_free};
use pagewise_hal::{DevicePtr, EventHandle, StreamHandle};

#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "reached by its address")] [u8; 4096]);

/// Memory that is never given back, at an address that may be followed.
fn leaked(bytes: u64) -> DevicePtr {
    let pages = (0..bytes.div_ceil(4096)).map(|_| Page([7; 4096])).collect::<Box<[Page]>>();
    DevicePtr(Box::leak(pages).as_mut_ptr().expose_provenance() as u64)
}

/// A driver with allocations in the process's memory.
fn machine() -> Machine {
    let mut mock = MockBackend::new();
    mock.expect_capabilities()
        .returning(|| Capabilities::of_driver("mock", DriverVersion::CUDA_13_0));
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_alloc_managed().returning(|bytes, _| Ok(leaked(bytes)));
    let next = AtomicU64::new(16);
    mock.expect_stream_create().returning(move |_, _| {
        // SAFETY: `from_raw` asks for a handle that the back end can take; the mock dereferences
        // none.
        Ok(unsafe { StreamHandle::from_raw(next.fetch_add(1, Ordering::Relaxed)) })
    });
    mock.expect_stream_destroy().returning(|_| Ok(()));
    mock.expect_stream_wait_event().returning(|_, _| Ok(()));
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock dereferences none.
    mock.expect_event_create().returning(|_, _| Ok(unsafe { EventHandle::from_raw(5) }));
    mock.expect_event_record().returning(|_, _| Ok(()));
    mock.expect_event_destroy().returning(|_| Ok(()));
    mock.expect_discard_batch().returning(|_, _, _| Ok(()));
    mock.expect_prefetch().returning(|_, _, _, _| Ok(()));
    permit_free(&mut mock);
    // SAFETY: views need memory that the host reaches. Each allocation of this mock is memory of
    // its own, which is never freed.
    let backend =
        unsafe { Intercepted::with_host_views(mock, Injector::default(), HostViews::Direct) };
    Machine::from(Arc::new(backend))
}

#[test]
fn halves_of_a_buffer_are_written_and_read_side_by_side() -> Result<()> {
    let mut buffer = ManagedBuffer::<u16>::zeroed(machine(), 5000)?;
    let (left, right) = buffer.range_mut(..)?.split_at(2500)?;
    let (left, right) = (left.write()?, right.write()?);
    std::thread::scope(|scope| {
        scope.spawn(|| left.fill(1));
        right.fill(2);
    });
    assert_eq!((left[2499], right[0]), (1, 2));
    let (all, upper) = (buffer.read()?, buffer.range(2500..)?.read()?);
    assert_eq!((all.len(), all[0], all[2500], upper[2499]), (5000, 1, 2, 2));
    Ok(())
}

#[test]
fn views_stay_while_the_pages_are_asked_to_move() -> Result<()> {
    let machine = machine();
    let stream = Stream::new(&machine, Device::FIRST)?;
    let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 3 * 4096)?;
    let range = buffer.range_mut(4096..)?;
    let region = *range;
    let lent = range.write()?;
    region.prefetch(Device::FIRST, &stream)?;
    lent[0] = 3;
    let _ = buffer.range_mut(4096..8192)?.discard(&stream)?;
    let _ = buffer.range_mut(4096..8192)?.write()?;
    let view = buffer.read()?;
    buffer.prefetch(Device::FIRST, &stream)?;
    assert_eq!((view[0], view[4096], view[4097]), (0, 0, 0));
    Ok(())
}
