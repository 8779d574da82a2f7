//! Differences between profiles, with one program for each.

use pagewise_hal::{
    Advice, AllocationType, AttachFlags, Backend, BackendExt, CopyCause, DeviceAccess,
    DeviceAttribute, DeviceId, DeviceTouch, ErrorKind, HostAccess, HostTouch, Location,
    MemoryEvent, Processor, Result, Span, StreamFlags, StreamHandle,
};
use pagewise_sim::{GpuProfile, SimBackend, SimConfig};

use crate::common::{MIB, STREAM};

const PAGE: u64 = 4096;
const GPU: Location = Location::device(DeviceId(0));

fn machine(name: &str) -> SimBackend {
    SimBackend::new(SimConfig::profile(name).expect("a shipped profile")).expect("a machine")
}

/// The same with another size of memory, so that filling it does not take gigabytes of this one.
fn small_machine(name: &str, usable_bytes: u64) -> SimBackend {
    let mut gpu = GpuProfile::named(name).expect("a shipped profile");
    gpu.memory_bytes = gpu.context_bytes + usable_bytes;
    SimBackend::new(SimConfig::new(gpu)).expect("a machine")
}

fn host(sim: &SimBackend, span: Span, access: HostAccess) -> Result<u64> {
    // SAFETY: only this test uses the simulator's memory, from one thread.
    unsafe { sim.host_touch(HostTouch { span, stride_bytes: PAGE, access }) }
}

fn gpu_in(sim: &SimBackend, span: Span, access: DeviceAccess, on: StreamHandle) -> Result<u64> {
    let device = DeviceId(0);
    let touch = DeviceTouch { device, span, stride_bytes: PAGE, access, blocks: 1, threads: 1 };
    // SAFETY: only this test uses the simulator's memory, from one thread.
    unsafe { sim.device_touch(touch, on) }
}

fn gpu(sim: &SimBackend, span: Span, access: DeviceAccess) -> Result<u64> {
    gpu_in(sim, span, access, STREAM)
}

fn set(sim: &SimBackend, span: Span, on: StreamHandle) -> Result<()> {
    // SAFETY: only this test uses the simulator's memory, from one thread.
    unsafe { sim.memset(span, 7, on) }
}

fn kind<T: std::fmt::Debug>(answer: Result<T>) -> (ErrorKind, Option<i32>) {
    let error = answer.expect_err("refused");
    (error.kind(), error.code())
}

/// Bytes copied for a reason.
fn copied(events: &[MemoryEvent], why: CopyCause) -> u64 {
    let bytes = |event: &MemoryEvent| match event {
        MemoryEvent::Copy { bytes, cause, .. } if *cause == why => *bytes,
        _ => 0,
    };
    events.iter().map(bytes).sum()
}

fn all_copied(events: &[MemoryEvent]) -> u64 {
    let bytes = |event: &MemoryEvent| match event {
        MemoryEvent::Copy { bytes, .. } => *bytes,
        _ => 0,
    };
    events.iter().map(bytes).sum()
}

fn gpu_faults(events: &[MemoryEvent]) -> usize {
    events.iter().filter(|event| matches!(event, MemoryEvent::GpuFault { .. })).count()
}

#[test]
fn attributes_and_memory_are_those_of_the_profile() {
    for profile in GpuProfile::all() {
        let sim = machine(&profile.name);
        let ask = |attribute| sim.device_attribute(DeviceId(0), attribute).expect("known");
        assert_eq!(ask(DeviceAttribute::COMPUTE_CAPABILITY_MAJOR), profile.compute_capability.0);
        assert_eq!(ask(DeviceAttribute::COMPUTE_CAPABILITY_MINOR), profile.compute_capability.1);
        let concurrent = ask(DeviceAttribute::CONCURRENT_MANAGED_ACCESS) == 1;
        assert_eq!(concurrent, profile.attributes.concurrent_managed_access);
        assert_eq!(sim.capabilities().concurrent_managed_access, concurrent, "{}", profile.name);
        let direct = ask(DeviceAttribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST) == 1;
        assert_eq!(direct, profile.host_link.is_coherent(), "{}", profile.name);
        let memory = sim.memory_info(DeviceId(0)).expect("a device");
        assert_eq!(memory.total_bytes, profile.memory_bytes);
        assert_eq!(memory.free_bytes, profile.usable_bytes());
    }
}

#[test]
fn device_memory_is_full_where_the_profile_says() {
    for name in ["l4", "rtx4060ti-16gb", "v100", "gtx1080ti"] {
        let sim = machine(name);
        let room = GpuProfile::named(name).expect("a profile").usable_bytes() / (2 * MIB) * 2 * MIB;
        let fits = sim.alloc(room).expect("address space");
        sim.prefetch_to(fits, GPU).expect("moved");
        assert_eq!(copied(&sim.take_events().expect("events"), CopyCause::Eviction), 0, "{name}");
        let more = sim.alloc(2 * MIB).expect("address space");
        sim.prefetch_to(more, GPU).expect("moved");
        let evicted = copied(&sim.take_events().expect("events"), CopyCause::Eviction);
        assert_eq!(evicted, 2 * MIB, "{name}: one block makes way for one block");
    }
}

#[test]
fn a_slower_link_takes_longer_for_the_same_copies() {
    let took = |name: &str| {
        let sim = machine(name);
        let span = sim.alloc(64 * MIB).expect("memory");
        host(&sim, span, HostAccess::Write(1)).expect("written");
        let before = sim.clock_ns();
        sim.prefetch_to(span, GPU).expect("moved");
        sim.clock_ns() - before
    };
    let times = ["gh200", "h200", "a100", "rtx4060ti-16gb", "v100"].map(took);
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
}

#[test]
fn devices_without_a_peer_link_copy_through_the_host() {
    let through_host = |name: &str| {
        let config = SimConfig::profile(name).expect("a profile").devices(2);
        let sim = SimBackend::new(config).expect("a machine");
        let span = sim.alloc(2 * MIB).expect("memory");
        sim.prefetch_to(span, GPU).expect("moved");
        sim.prefetch_to(span, Location::device(DeviceId(1))).expect("moved");
        let events = sim.take_events().expect("events");
        events
            .iter()
            .any(|event| matches!(event, MemoryEvent::Copy { to, .. } if *to == Processor::HOST))
    };
    assert!(!through_host("a100") && through_host("l4"));
}

// ---- coherent host link ---------------------------------------------------------------------------

#[test]
fn over_a_coherent_link_the_host_reaches_device_memory_where_it_is() {
    let copied_back = |name: &str| {
        let sim = machine(name);
        let span = sim.alloc(2 * MIB).expect("memory");
        sim.advise(span, Advice::SET_ACCESSED_BY, Location::HOST).expect("advised");
        gpu(&sim, span, DeviceAccess::Write(5)).expect("written");
        sim.take_events().expect("events");
        assert_eq!(host(&sim, span, HostAccess::Read).expect("read"), 5 * 512);
        all_copied(&sim.take_events().expect("events"))
    };
    assert_eq!((copied_back("gh200"), copied_back("h200")), (0, 2 * MIB));
}

#[test]
fn over_a_coherent_link_host_and_device_share_a_page_without_faulting_in_turns() {
    let records = |name: &str| {
        let sim = machine(name);
        let span = sim.alloc(2 * MIB).expect("memory");
        sim.advise(span, Advice::SET_PREFERRED_LOCATION, GPU).expect("advised");
        sim.advise(span, Advice::SET_ACCESSED_BY, Location::HOST).expect("advised");
        host(&sim, span, HostAccess::Write(1)).expect("written");
        gpu(&sim, span, DeviceAccess::AtomicAdd).expect("updated");
        sim.take_events().expect("events");
        for _ in 0..4 {
            host(&sim, span, HostAccess::Write(1)).expect("written");
            gpu(&sim, span, DeviceAccess::AtomicAdd).expect("updated");
        }
        sim.take_events().expect("events")
    };
    assert_eq!(records("gh200"), [], "the page stays, and both keep the right to write");
    assert!(all_copied(&records("h200")) >= 4 * 2 * 2 * MIB, "the page comes and goes");
}

#[test]
fn over_a_coherent_link_what_the_device_keeps_reading_comes_to_it() {
    let moved_after = |name: &str, rounds: usize| {
        let sim = machine(name);
        let span = sim.alloc(2 * MIB).expect("memory");
        sim.advise(span, Advice::SET_ACCESSED_BY, GPU).expect("advised");
        host(&sim, span, HostAccess::Write(1)).expect("written");
        sim.take_events().expect("events");
        let part = Span::new(span.ptr, 128 * PAGE);
        for _ in 0..rounds {
            gpu(&sim, part, DeviceAccess::Read).expect("read");
        }
        copied(&sim.take_events().expect("events"), CopyCause::AccessCounters)
    };
    assert_eq!(moved_after("gh200", 1), 0, "128 of 256 accesses: it is read where it is");
    assert_eq!(moved_after("gh200", 2), 128 * PAGE);
    assert_eq!(moved_after("h200", 8), 0, "the counters are off");
}

#[test]
fn over_a_coherent_link_evicted_memory_is_still_reached() {
    let refaults = |name: &str| {
        let sim = small_machine(name, 4 * MIB);
        let span = sim.alloc(8 * MIB).expect("memory");
        sim.prefetch_to(span, GPU).expect("moved");
        sim.take_events().expect("events");
        gpu(&sim, Span::new(span.ptr, PAGE), DeviceAccess::Read).expect("read");
        gpu_faults(&sim.take_events().expect("events"))
    };
    assert_eq!((refaults("gh200"), refaults("h200")), (0, 1));
}

// ---- without concurrent managed access ----------------------------------------------------------

#[test]
fn without_concurrent_access_devices_do_not_fault_and_memory_comes_as_a_whole() {
    let sim = machine("wsl");
    let [a, b] = [(); 2].map(|()| sim.alloc(4 * MIB).expect("memory"));
    assert_eq!(sim.take_events().expect("events"), [], "memory begins on the device");
    for span in [a, b] {
        host(&sim, span, HostAccess::Write(1)).expect("the device is idle");
    }
    sim.take_events().expect("events");
    let page = Span::new(a.ptr, PAGE);
    assert_eq!(gpu(&sim, page, DeviceAccess::Read).expect("read"), 1);
    let events = sim.take_events().expect("events");
    assert_eq!(gpu_faults(&events), 0);
    assert_eq!(all_copied(&events), 8 * MIB, "all that it might touch, not the page it touched");
    gpu(&sim, a, DeviceAccess::Write(2)).expect("written");
    assert_eq!(sim.take_events().expect("events"), [], "it is there");
    assert_eq!(host(&sim, page, HostAccess::Read).expect("read"), 2);
    assert_eq!(all_copied(&sim.take_events().expect("events")), 64 << 10, "the host faults");
}

#[test]
fn without_concurrent_access_the_host_keeps_away_until_somebody_waited() {
    let sim = machine("wsl");
    let [a, other] = [(); 2].map(|()| sim.alloc(2 * MIB).expect("memory"));
    let busy = (ErrorKind::IllegalAddress, Some(700));
    set(&sim, a, STREAM).expect("started");
    assert_eq!(kind(host(&sim, a, HostAccess::Read)), busy);
    assert_eq!(kind(host(&sim, other, HostAccess::Read)), busy, "unrelated memory, too");
    sim.stream_synchronize(STREAM).expect("done");
    assert_eq!(host(&sim, a, HostAccess::Read).expect("idle"), 7 * 512);

    let event = sim.event_create(DeviceId(0), pagewise_hal::EventFlags::empty()).expect("an event");
    set(&sim, a, STREAM).expect("started");
    sim.event_record(event, STREAM).expect("recorded");
    set(&sim, a, STREAM).expect("started");
    sim.event_synchronize(event).expect("happened");
    assert_eq!(kind(host(&sim, a, HostAccess::Read)), busy, "work after the event");
    sim.event_record(event, STREAM).expect("recorded");
    assert!(sim.event_query(event).expect("known"));
    host(&sim, a, HostAccess::Read).expect("idle");

    // What works with concurrent access works there without a wait.
    let h200 = machine("h200");
    let span = h200.alloc(2 * MIB).expect("memory");
    set(&h200, span, STREAM).expect("started");
    host(&h200, span, HostAccess::Read).expect("coherent");
}

#[test]
fn without_concurrent_access_attachment_decides_who_waits_for_whom() {
    let sim = machine("wsl");
    let stream = sim.stream_create(DeviceId(0), StreamFlags::NON_BLOCKING).expect("a stream");
    let [shared, own] = [(); 2].map(|()| sim.alloc(2 * MIB).expect("memory"));
    let hosts_ptr = sim.alloc_managed(2 * MIB, AttachFlags::HOST).expect("memory");
    let hosts = Span::new(hosts_ptr, 2 * MIB);
    // SAFETY: no view of the memory exists; only calls of the simulator access it, and they keep to
    // the attachment.
    unsafe { sim.stream_attach(stream, own, AttachFlags::SINGLE) }.expect("attached");

    set(&sim, shared, STREAM).expect("started");
    host(&sim, hosts, HostAccess::Write(1)).expect("the host's own");
    host(&sim, own, HostAccess::Write(1)).expect("its stream is idle");
    let refused = (ErrorKind::IllegalAddress, Some(700));
    assert_eq!(kind(gpu(&sim, hosts, DeviceAccess::Read)), refused, "attached to the host");
    assert_eq!(kind(gpu(&sim, own, DeviceAccess::Read)), refused, "attached to another stream");
    sim.take_events().expect("events");
    gpu_in(&sim, own, DeviceAccess::Read, stream).expect("its stream");
    assert_eq!(all_copied(&sim.take_events().expect("events")), 2 * MIB, "what is the stream's");
    // SAFETY: no view of the memory exists; only calls of the simulator access it, and they keep to
    // the attachment.
    unsafe { sim.stream_attach(stream, hosts, AttachFlags::GLOBAL) }.expect("attached");
    assert_eq!(gpu(&sim, hosts, DeviceAccess::Read).expect("everybody's"), 512);
}

#[test]
fn without_concurrent_access_a_copy_that_is_refused_for_its_destination_brings_nothing() {
    let sim = machine("wsl");
    let source = sim.alloc(2 * MIB).expect("memory");
    let hosts = sim.alloc_managed(2 * MIB, AttachFlags::HOST).expect("memory");
    host(&sim, source, HostAccess::Write(1)).expect("written");
    sim.take_events().expect("events");
    // SAFETY: only this test uses the simulator's memory, from one thread.
    let copy = unsafe { sim.memcpy(hosts, source.ptr, 2 * MIB, STREAM) };
    assert_eq!(kind(copy), (ErrorKind::IllegalAddress, Some(700)));
    assert_eq!(sim.take_events().expect("events"), []);
}

#[test]
fn without_concurrent_access_calls_that_move_are_refused_as_the_driver_refuses_them() {
    let sim = machine("wsl");
    let span = sim.alloc(2 * MIB).expect("memory");
    let device = (ErrorKind::InvalidDevice, Some(101));
    let unsupported = (ErrorKind::Unsupported, Some(801));
    assert_eq!(kind(sim.prefetch_ordinal(span, 0, STREAM)), device);
    assert_eq!(kind(sim.prefetch(span, GPU, 0, STREAM)), device);
    assert_eq!(kind(sim.prefetch(span, Location::HOST, 0, STREAM)), device);
    assert_eq!(kind(sim.prefetch_batch(&[span], &[GPU], &[0], 0, STREAM)), unsupported);
    // SAFETY: the test does not read the contents again.
    assert_eq!(kind(unsafe { sim.discard_batch(&[span], 0, STREAM) }), unsupported);
    for advice in [Advice::SET_PREFERRED_LOCATION, Advice::SET_ACCESSED_BY] {
        assert_eq!(kind(sim.advise(span, advice, GPU)), device);
        assert_eq!(kind(sim.advise_ordinal(span, advice, 0)), device);
        sim.advise(span, advice, Location::HOST).expect("the host is no device");
    }
    sim.advise(span, Advice::SET_READ_MOSTLY, Location::HOST).expect("remembered");
    assert_eq!(kind(sim.pool_default(GPU, AllocationType::MANAGED)), unsupported);
    assert_eq!(sim.take_events().expect("events"), [], "nothing moved");
    // Advice has no effect on where pages are.
    host(&sim, span, HostAccess::Write(1)).expect("written");
    gpu(&sim, span, DeviceAccess::Read).expect("read");
    assert_eq!(gpu_faults(&sim.take_events().expect("events")), 0);
}

#[test]
fn without_concurrent_access_managed_memory_cannot_exceed_the_device() {
    let sim = small_machine("wsl", 64 * MIB);
    let spans = [(); 2].map(|()| sim.alloc(32 * MIB).expect("room"));
    assert_eq!(kind(sim.alloc(MIB)), (ErrorKind::OutOfMemory, Some(2)));
    assert_eq!(kind(sim.alloc_device(DeviceId(0), MIB)), (ErrorKind::OutOfMemory, Some(2)));
    // SAFETY: the test does not use the memory again.
    unsafe { sim.free(spans[0].ptr) }.expect("freed");
    sim.alloc_device(DeviceId(0), 16 * MIB).expect("room again");
    assert_eq!(kind(sim.alloc(17 * MIB)), (ErrorKind::OutOfMemory, Some(2)));
    sim.alloc(16 * MIB).expect("room again");
    // With concurrent access the same machine takes more than it has.
    let sim = small_machine("rtx4060ti-16gb", 64 * MIB);
    sim.alloc(128 * MIB).expect("oversubscribed");
}

#[test]
fn without_concurrent_access_several_devices_without_peers_use_the_hosts_memory() {
    let config = SimConfig::profile("wsl").expect("a profile").devices(2);
    let sim = SimBackend::new(config).expect("a machine");
    let span = sim.alloc(2 * MIB).expect("memory");
    sim.take_events().expect("events");
    host(&sim, span, HostAccess::Write(3)).expect("written");
    for device in [0, 1].map(DeviceId) {
        let access = DeviceAccess::Read;
        let touch = DeviceTouch { device, span, stride_bytes: PAGE, access, blocks: 1, threads: 1 };
        // SAFETY: only this test uses the simulator's memory, from one thread.
        assert_eq!(unsafe { sim.device_touch(touch, STREAM) }.expect("reached"), 3 * 512);
    }
    assert_eq!(sim.take_events().expect("events"), [], "nobody faults, nothing moves");
}
