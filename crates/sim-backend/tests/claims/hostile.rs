//! Arguments that no program should pass: nothing panics, nothing waits for ever.

use pagewise_hal::{
    AllocationType, Backend, BackendExt, Code, DeviceAccess, DeviceId, DevicePtr, DeviceTouch,
    ErrorKind, HandleTypes, HostAccess, HostRegisterFlags, HostTouch, Location, PoolProps, Span,
    StreamHandle,
};
use pagewise_sim::{GpuProfile, SimBackend, SimConfig};

use crate::common::MIB;

fn host(sim: &SimBackend, span: Span, access: HostAccess) {
    let touch = HostTouch { span, stride_bytes: 4096, access };
    // SAFETY: only this test uses the range, from one thread.
    unsafe { sim.host_touch(touch) }.expect("the host may touch managed memory");
}

fn gpu(sim: &SimBackend, span: Span, access: DeviceAccess) {
    let device = DeviceId(0);
    let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
    // SAFETY: only this test uses the range, from one thread.
    unsafe { sim.device_touch(touch, StreamHandle::NULL) }.expect("the device may, too");
}

/// Host and device write the same page in turns, which thrashes.
fn thrash(sim: &SimBackend, span: Span) {
    for value in 0..40 {
        host(sim, span, HostAccess::Write(value));
        gpu(sim, span, DeviceAccess::Write(value));
    }
}

#[test]
fn fills_and_copies_on_a_machine_without_devices_answer_no_device() {
    let sim = SimBackend::new(SimConfig::h200().devices(0)).unwrap();
    let (from, to) = (sim.alloc(4 * MIB).unwrap(), sim.alloc(4 * MIB).unwrap());
    for stream in [StreamHandle::NULL, StreamHandle::LEGACY, StreamHandle::PER_THREAD] {
        // SAFETY: only this test uses the ranges, from one thread.
        let (filled, copied) =
            unsafe { (sim.memset(to, 7, stream), sim.memcpy(to.ptr, from.ptr, to.bytes, stream)) };
        for error in [filled.unwrap_err(), copied.unwrap_err()] {
            assert_eq!(error.code(), Some(Code::NO_DEVICE), "{error}");
            assert_eq!(error.kind(), ErrorKind::LibraryMissing);
        }
    }
    host(&sim, to, HostAccess::Write(1));
    sim.prefetch_to(to, Location::HOST).unwrap();
}

#[test]
fn the_clock_stops_at_its_end_and_memory_moves_on() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let span = sim.alloc(4 * MIB).unwrap();
    sim.sleep_ns(u64::MAX);
    let end_ns = sim.clock_ns();
    sim.sleep_ns(u64::MAX);
    assert_eq!(sim.clock_ns(), end_ns);
    thrash(&sim, span);
    sim.prefetch_to(span, Location::HOST).unwrap();
    assert!(sim.clock_ns() >= end_ns);
    assert!(sim.counters().to_host.bytes > 0);
}

#[test]
fn calls_and_faults_may_be_paced_to_take_for_ever() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let span = sim.alloc(4 * MIB).unwrap();
    for _ in 0..4 {
        sim.pace_next_op(u64::MAX, [(u64::MAX, u64::MAX), (1, u64::MAX)]);
        host(&sim, span, HostAccess::Write(1));
        sim.pace_next_op(1, [(u64::MAX, u64::MAX), (u64::MAX, 1)]);
        gpu(&sim, span, DeviceAccess::Write(2));
    }
    sim.pace_next_op(u64::MAX, []);
    sim.sleep_ns(1);
}

/// A page's turn ends at a time stamp. If a processor woke at just that stamp, it would find that
/// its turn has not come, for ever.
#[test]
fn throttling_ends_whatever_the_resolution_of_time_stamps() {
    for (stamp_ns, nap_ns) in [(1, 500_000), (64, 64), (1, 0), (1_000, 1_000)] {
        let mut config = SimConfig::h200().gpu().clone();
        (config.paging.thrashing.stamp_ns, config.paging.thrashing.nap_ns) = (stamp_ns, nap_ns);
        let sim = SimBackend::new(SimConfig::new(config)).unwrap();
        let span = sim.alloc(4 * MIB).unwrap();
        thrash(&sim, span);
    }
}

/// The descriptors that this process has open, as names.
#[cfg(target_os = "linux")]
fn pipes() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux lists descriptors");
    let targets = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("pipe:")).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_pool_that_is_gone_keeps_no_descriptor() {
    use std::os::fd::{FromRawFd, OwnedFd};

    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    let props = PoolProps {
        allocation_type: AllocationType::PINNED,
        location: Location::device(DeviceId(0)),
        handle_types: HandleTypes::POSIX_FILE_DESCRIPTOR,
        max_bytes: 0,
    };
    let before = pipes();
    for _ in 0..64 {
        let pool = sim.pool_create(props).unwrap();
        let memory = sim.pool_alloc(pool, 1, StreamHandle::NULL).unwrap();
        let handle = sim.pool_export(pool, HandleTypes::POSIX_FILE_DESCRIPTOR).unwrap();
        // SAFETY: the call made the descriptor for its caller, so it is open and this test's to
        // close. The test does not use the pool's memory again.
        unsafe {
            drop(OwnedFd::from_raw_fd(handle.0));
            sim.pool_destroy(pool).unwrap();
            sim.free_async(memory, StreamHandle::NULL).unwrap();
        }
        sim.stream_synchronize(StreamHandle::NULL).unwrap();
    }
    // Tests beside this one open none.
    assert_eq!(pipes(), before);
}

#[test]
fn host_memory_that_would_end_with_the_address_space_cannot_be_registered() {
    let sim = SimBackend::new(SimConfig::h200()).unwrap();
    for (start, bytes) in [(u64::MAX - 9, 9), (u64::MAX - 4096, 4096), (u64::MAX, 1)] {
        let span = Span::new(DevicePtr(start), bytes);
        // SAFETY: the span is no memory of this process, and the simulator refuses it before it
        // reads any.
        let answer = unsafe { sim.host_register(span, HostRegisterFlags::empty()) };
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidValue, "{span}");
    }
}

#[test]
fn without_concurrent_access_memory_on_the_host_is_limited_too() {
    let mut gpu = GpuProfile::named("wsl").expect("a shipped profile");
    gpu.memory_bytes = gpu.context_bytes + 64 * MIB;
    let sim = SimBackend::new(SimConfig::new(gpu).devices(2)).unwrap();
    assert_eq!(sim.alloc(1 << 40).unwrap_err().kind(), ErrorKind::OutOfMemory);
    let span = sim.alloc(48 * MIB).unwrap();
    assert_eq!(sim.alloc(32 * MIB).unwrap_err().kind(), ErrorKind::OutOfMemory);
    // SAFETY: the test does not use the memory again.
    unsafe { sim.free(span.ptr) }.unwrap();
    sim.alloc(64 * MIB).unwrap();
}

#[test]
fn a_profile_changed_beyond_the_bounds_makes_no_machine() {
    let gpu = || SimConfig::h200().gpu().clone();
    let (mut nap, mut stamp, mut fault, mut cost) = (gpu(), gpu(), gpu(), gpu());
    nap.paging.thrashing.nap_ns = u64::MAX;
    stamp.paging.thrashing.stamp_ns = u64::MAX;
    fault.arrival.fault_ns = u64::MAX;
    cost.cost.fixed.sleep_ns = 1e30;
    let mut batches = gpu();
    batches.paging.throttled_batches_per_service = u32::MAX;
    for profile in [nap, stamp, fault, cost, batches] {
        let error = SimBackend::new(SimConfig::new(profile)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert!(error.detail().contains("give"), "{error}");
    }
}
