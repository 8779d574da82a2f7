//! Machines and accesses that benches and examples have in common.

use pagewise::{
    Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, HostAccess, HostTouch, Location,
    SimBackend, SimConfig, Span, StreamHandle,
};

/// The bytes of a page.
pub const PAGE: u64 = 4096;
/// The first device.
pub const DEVICE: DeviceId = DeviceId(0);
/// The first device as a place.
pub const GPU: Location = Location::device(DEVICE);

/// A machine with one allocation of managed memory.
///
/// # Panics
/// If this process has no room for it.
#[must_use]
pub fn machine_of(config: SimConfig, bytes: u64) -> (SimBackend, Span) {
    let sim = SimBackend::new(config).expect("address space");
    let span = sim.alloc(bytes).expect("managed memory");
    (sim, span)
}

/// The host accesses a byte of each page of a span, which only the calling thread uses.
///
/// # Panics
/// If the span is not live memory.
#[inline]
pub fn host(sim: &SimBackend, span: Span, access: HostAccess) -> u64 {
    // SAFETY: one thread uses the memory.
    unsafe { sim.host_touch(HostTouch { span, stride_bytes: PAGE, access }) }.expect("inside")
}

/// One thread of the first device accesses a byte of each page of a span.
///
/// # Panics
/// If the span is not live memory.
#[inline]
pub fn device(sim: &SimBackend, span: Span, access: DeviceAccess) -> u64 {
    kernel(sim, span, access, (1, 1))
}

/// So many blocks of so many threads of the first device access a byte of each page of a span.
///
/// # Panics
/// If the span is not live memory.
#[inline]
pub fn kernel(
    sim: &SimBackend,
    span: Span,
    access: DeviceAccess,
    (blocks, threads): (u32, u32),
) -> u64 {
    let touch = DeviceTouch { device: DEVICE, span, stride_bytes: PAGE, access, blocks, threads };
    // SAFETY: one thread uses the memory.
    unsafe { sim.device_touch(touch, StreamHandle::NULL) }.expect("inside")
}

/// The first byte of a page of a span, by the page's number.
#[must_use]
#[inline]
pub fn page_of(span: Span, page: u64) -> Span {
    Span::new(span.ptr.offset(page * PAGE), 1)
}
