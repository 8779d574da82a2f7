//! Machines that move pages and carry no contents.

use pagewise_hal::HostAddresses;
use pagewise_hal::{
    Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, HostAccess, HostTouch, MemoryEvent,
    PAGE_BYTES, StreamHandle,
};
use pagewise_sim::{MemoryContents, SimBackend, SimConfig};

const BYTES: u64 = 8 << 20;

/// Writes on the host, adds and reads on the device; returns the sum, the records and the time.
fn program(contents: MemoryContents) -> (u64, Vec<MemoryEvent>, u64) {
    let sim = SimBackend::new(SimConfig::h200().contents(contents)).expect("address space");
    let span = sim.alloc(BYTES).expect("managed memory");
    let base = span.ptr.0;
    let device = DeviceId(0);
    let touch = |access| DeviceTouch {
        device,
        span,
        stride_bytes: PAGE_BYTES,
        access,
        blocks: 1,
        threads: 1,
    };
    let host = HostTouch { span, stride_bytes: PAGE_BYTES, access: HostAccess::Write(2) };
    // SAFETY: only this test uses the memory, from one thread.
    let sum = unsafe {
        sim.host_touch(host).expect("inside");
        sim.device_touch(touch(DeviceAccess::AtomicAdd), StreamHandle::NULL).expect("inside");
        sim.device_touch(touch(DeviceAccess::Read), StreamHandle::NULL).expect("inside")
    };
    let events = sim.take_events().expect("kept");
    let from_base = events.into_iter().map(|event| {
        let address = event.address() - base;
        event.with_address(address)
    });
    (sum, from_base.collect(), sim.clock_ns())
}

#[test]
fn without_contents_pages_move_as_with_them_in_the_same_time() {
    let real = program(MemoryContents::Real);
    let skipped = program(MemoryContents::Skipped);
    assert_eq!((real.1, real.2), (skipped.1, skipped.2));
    assert_eq!((real.0, skipped.0), (3 * BYTES / PAGE_BYTES, 0));
}

#[test]
fn described_contents_are_read_as_those_in_memory_at_the_same_time() {
    assert_eq!(program(MemoryContents::Described), program(MemoryContents::Real));
}

#[test]
fn described_contents_are_in_memory_once_a_program_asks_for_its_views() {
    let config = SimConfig::h200().contents(MemoryContents::Described);
    let sim = SimBackend::new(config).expect("address space");
    let span = sim.alloc(BYTES).expect("managed memory");
    let write = HostTouch { span, stride_bytes: PAGE_BYTES, access: HostAccess::Write(2) };
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.host_touch(write) }.expect("inside");
    assert_eq!(sim.host_views(), pagewise_hal::HostViews::Declared);
    let byte = std::ptr::with_exposed_provenance_mut::<u8>((span.ptr.0 + PAGE_BYTES) as usize);
    // SAFETY: the byte is of live memory that only this test uses, from one thread.
    unsafe {
        assert_eq!(byte.read(), 2);
        byte.write(5);
    }
    let read = HostTouch { span, stride_bytes: PAGE_BYTES, access: HostAccess::Read };
    // SAFETY: only this test uses the memory, from one thread.
    let sum = unsafe { sim.host_touch(read) }.expect("inside");
    assert_eq!(sum, 2 * BYTES / PAGE_BYTES + 3);
}

/// 64 GiB: more than a test may commit.
#[test]
fn a_described_fill_commits_no_memory_and_freed_contents_are_not_seen_again() {
    let config = SimConfig::h200().contents(MemoryContents::Described);
    let sim = SimBackend::new(config).expect("address space");
    let bytes = 64 << 30;
    for _ in 0..2 {
        let span = sim.alloc(bytes).expect("managed memory");
        let read = HostTouch { span, stride_bytes: 64 << 10, access: HostAccess::Read };
        // SAFETY: only this test uses the memory, from one thread.
        unsafe {
            assert_eq!(sim.host_touch(read).expect("inside"), 0, "fresh memory is zero");
            sim.memset(span, 3, StreamHandle::NULL).expect("inside");
            assert_eq!(sim.host_touch(read).expect("inside"), 3 * (bytes >> 16));
            sim.free(span.ptr).expect("live");
        }
    }
}

/// 64 GiB: more than a test may commit.
#[test]
fn without_contents_touched_memory_is_not_committed() {
    let config = SimConfig::h200().contents(MemoryContents::Skipped);
    let sim = SimBackend::new(config).expect("address space");
    let span = sim.alloc(64 << 30).expect("managed memory");
    let touch = HostTouch { span, stride_bytes: 64 << 10, access: HostAccess::Write(1) };
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.host_touch(touch) }.expect("inside");
    assert_eq!(sim.counters().cpu_faults, 6 * (span.bytes >> 21));
}
