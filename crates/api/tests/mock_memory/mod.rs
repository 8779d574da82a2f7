//! A mock of a driver with allocations in this process, so that the host can view them. The tests of
//! `pagewise-managers` share it; a test that includes it imports `mock`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise::inject::Injector;
use pagewise::intercept::Intercepted;
use pagewise::{
    Capabilities, DevicePtr, DriverVersion, EventHandle, HostViews, Machine, MemoryInfo,
    StreamHandle,
};

use super::mock::{MockBackend, permit_free};

#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "reached by its address")] [u8; 4096]);

/// Memory that is never given back, at an address that may be followed.
fn leaked(bytes: u64) -> DevicePtr {
    let pages = (0..bytes.div_ceil(4096)).map(|_| Page([7; 4096])).collect::<Box<[Page]>>();
    DevicePtr(Box::leak(pages).as_mut_ptr().expose_provenance() as u64)
}

/// A machine over the mock.
pub(super) fn machine() -> Machine {
    let mut mock = MockBackend::new();
    mock.expect_capabilities()
        .returning(|| Capabilities::of_driver("mock", DriverVersion::CUDA_13_0));
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_memory_info()
        .returning(|_| Ok(MemoryInfo { free_bytes: 1 << 30, total_bytes: 1 << 30 }));
    mock.expect_alloc_managed().returning(|bytes, _| Ok(leaked(bytes)));
    mock.expect_alloc_pinned().returning(|bytes, _| Ok(leaked(bytes)));
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
