//! Allocation, addresses and contents.

use std::collections::BTreeSet;

use pagewise::{
    AttachFlags, Backend, DeviceAccess, DeviceAttribute, DeviceId, DevicePtr, DeviceTouch,
    EventFlags, HostAccess, HostAllocFlags, HostTouch, PointerAttribute, Result, Span, StreamFlags,
    StreamHandle,
};

use crate::{MIB, Managed, PAGE, WILD, code};

pub fn an_allocation_of_2_mib_starts_on_a_2_mib_boundary(backend: &dyn Backend) {
    for bytes in [2 * MIB, 2 * MIB + 1, 2 * MIB - 511] {
        let managed = Managed::new(backend, bytes);
        assert_eq!(managed.span.ptr.0 % (2 * MIB), 0, "{bytes}");
    }
}

pub fn small_allocations_do_not_overlap(backend: &dyn Backend) {
    let all: Vec<_> = [1, 511, 512, 513, 4096, 65537, MIB]
        .map(|b| Managed::new(backend, b))
        .into_iter()
        .collect();
    let mut spans: Vec<Span> = all.iter().map(|managed| managed.span).collect();
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].end() <= Some(pair[1].ptr.0)));
    assert!(spans.iter().all(|span| span.ptr.0 % 512 == 0));
}

pub fn an_address_knows_its_allocation(backend: &dyn Backend) {
    let managed = Managed::new(backend, 3 * MIB);
    let ask = |attribute| {
        backend.pointer_attribute(managed.span.ptr.offset(12345), attribute).expect("inside")
    };
    assert_eq!(ask(PointerAttribute::IS_MANAGED), 1);
    assert_eq!(ask(PointerAttribute::MEMORY_TYPE), 2);
    assert_eq!(ask(PointerAttribute::RANGE_START_ADDR), managed.span.ptr.0);
    assert_eq!(ask(PointerAttribute::RANGE_SIZE), 3 * MIB);
    assert_eq!(ask(PointerAttribute::MEMPOOL_HANDLE), 0);
    let pinned = backend.alloc_pinned(PAGE, HostAllocFlags::empty()).expect("pinned memory");
    let kind = backend.pointer_attribute(pinned, PointerAttribute::MEMORY_TYPE);
    assert_eq!(kind, Ok(1));
    // SAFETY: no work uses the memory, and it is freed once.
    unsafe { backend.free_pinned(pinned) }.expect("pinned memory");
}

pub fn an_address_of_nothing_is_an_invalid_value(backend: &dyn Backend) {
    let managed = Managed::new(backend, 3 * MIB);
    let past = managed.span.ptr.offset(3 * MIB);
    for ptr in [DevicePtr::NULL, WILD, past] {
        assert_eq!(code(backend.pointer_attribute(ptr, PointerAttribute::IS_MANAGED)), 1);
    }
}

pub fn an_unknown_device_is_an_invalid_device(backend: &dyn Backend) {
    for device in [DeviceId(99), DeviceId(-1)] {
        let attribute = pagewise::DeviceAttribute::MANAGED_MEMORY;
        assert_eq!(code(backend.device_attribute(device, attribute)), 101);
        assert_eq!(code(backend.memory_info(device)), 101);
        assert_eq!(code(backend.can_access_peer(device, DeviceId(0))), 101);
        assert_eq!(code(backend.can_access_peer(DeviceId(0), device)), 101);
    }
}

pub fn each_device_has_its_place_on_the_pci_and_is_no_peer_of_itself(backend: &dyn Backend) {
    let count = i32::try_from(backend.device_count().expect("a machine")).expect("a few");
    let ask = |id, attribute| backend.device_attribute(DeviceId(id), attribute).expect("known");
    let [domain, bus, device] = [
        DeviceAttribute::PCI_DOMAIN_ID,
        DeviceAttribute::PCI_BUS_ID,
        DeviceAttribute::PCI_DEVICE_ID,
    ];
    let places: BTreeSet<_> =
        (0..count).map(|id| [domain, bus, device].map(|number| ask(id, number))).collect();
    assert_eq!(places.len(), count as usize, "{places:?}");
    for id in 0..count {
        assert_eq!(backend.can_access_peer(DeviceId(id), DeviceId(id)), Ok(false));
        for peer in 0..count {
            let both = [(id, peer), (peer, id)]
                .map(|(one, other)| backend.can_access_peer(DeviceId(one), DeviceId(other)));
            assert_eq!(both[0], both[1], "devices {id} and {peer}");
        }
    }
}

pub fn host_and_device_reach_memory_by_one_address(backend: &dyn Backend) {
    let managed = Managed::new(backend, 3 * MIB);
    let pinned = backend.alloc_pinned(PAGE, HostAllocFlags::DEVICE_MAP).expect("pinned memory");
    let device = backend.alloc_device(DeviceId(0), PAGE).expect("device memory");
    let [of_device, of_host] = [PointerAttribute::DEVICE_POINTER, PointerAttribute::HOST_POINTER];
    for start in [managed.span.ptr, pinned, device] {
        for ptr in [start, start.offset(100)] {
            assert_eq!(backend.pointer_attribute(ptr, of_device), Ok(ptr.0));
            let answer = backend.pointer_attribute(ptr, of_host);
            match start == device {
                true => assert_eq!(code(answer), 1, "the host does not reach it"),
                false => assert_eq!(answer, Ok(ptr.0)),
            }
        }
    }
    // SAFETY: no work uses the memory, and each piece is freed once.
    unsafe {
        backend.free_pinned(pinned).expect("pinned memory");
        backend.free(device).expect("device memory");
    }
}

pub fn free_memory_is_at_most_all_memory(backend: &dyn Backend) {
    let info = backend.memory_info(DeviceId(0)).expect("a device");
    assert!(0 < info.free_bytes && info.free_bytes <= info.total_bytes);
    let bytes = 64 * MIB;
    let ptr = backend.alloc_device(DeviceId(0), bytes).expect("device memory");
    let after = backend.memory_info(DeviceId(0)).expect("a device");
    assert!(after.free_bytes <= info.free_bytes - bytes);
    // SAFETY: no work uses the memory, and it is freed once.
    unsafe { backend.free(ptr) }.expect("device memory");
}

fn host(backend: &dyn Backend, span: Span, stride_bytes: u64, access: HostAccess) -> u64 {
    // SAFETY: claims use their memory from one thread.
    unsafe { backend.host_touch(HostTouch { span, stride_bytes, access }) }.expect("inside")
}

fn device(backend: &dyn Backend, span: Span, stride_bytes: u64, access: DeviceAccess) -> u64 {
    let device = DeviceId(0);
    let touch = DeviceTouch { device, span, stride_bytes, access, blocks: 1, threads: 1 };
    // SAFETY: claims use their memory from one thread.
    unsafe { backend.device_touch(touch, StreamHandle::NULL) }.expect("inside")
}

fn add(backend: &dyn Backend, span: Span, stride_bytes: u64) -> Result<u64> {
    let (device, access) = (DeviceId(0), DeviceAccess::AtomicAdd);
    let touch = DeviceTouch { device, span, stride_bytes, access, blocks: 1, threads: 1 };
    // SAFETY: claims use their memory from one thread.
    unsafe { backend.device_touch(touch, StreamHandle::NULL) }
}

pub fn what_the_host_writes_the_device_reads_and_back(backend: &dyn Backend) {
    let managed = Managed::new(backend, 4 * MIB);
    host(backend, managed.span, PAGE, HostAccess::Write(3));
    assert_eq!(device(backend, managed.span, PAGE, DeviceAccess::Read), 3 * 1024);
    device(backend, managed.at(1, 4 * MIB - 1), PAGE, DeviceAccess::Write(200));
    assert_eq!(host(backend, managed.at(1, 4 * MIB - 1), PAGE, HostAccess::Read), 200 * 1024);
    assert_eq!(host(backend, managed.span, PAGE, HostAccess::Read), 3 * 1024);
}

pub fn atomics_add_up(backend: &dyn Backend) {
    let managed = Managed::new(backend, MIB);
    host(backend, managed.span, 1, HostAccess::Write(0));
    for _ in 0..3 {
        device(backend, managed.span, PAGE, DeviceAccess::AtomicAdd);
    }
    assert_eq!(host(backend, managed.span, 1, HostAccess::Read), 3 * 256);
}

pub fn an_atomic_whose_word_reaches_beyond_its_range_is_refused_and_changes_nothing(
    backend: &dyn Backend,
) {
    let managed = Managed::new(backend, PAGE);
    host(backend, managed.span, 1, HostAccess::Write(255));
    for (offset, bytes, stride) in [(0, 5, 4), (5, 8, 4), (2, 1, 1), (0, 7, 1), (4, 6, 100)] {
        let code = code(add(backend, managed.at(offset, bytes), stride));
        let refused = (offset, bytes, stride) != (4, 6, 100);
        assert_eq!(code, i32::from(refused), "{offset}+{bytes} by {stride}");
    }
    assert_eq!(host(backend, managed.at(4, 4), 1, HostAccess::Read), 0, "all of one word");
    assert_eq!(host(backend, managed.span, 1, HostAccess::Read), 255 * (PAGE - 4));
}

pub fn memset_and_memcpy_change_what_they_name_and_nothing_else(backend: &dyn Backend) {
    let [from, to] = [(); 2].map(|()| Managed::new(backend, MIB));
    for managed in [&from, &to] {
        host(backend, managed.span, 1, HostAccess::Write(0));
    }
    // SAFETY: only this function knows the ranges, which do not overlap, and it uses them from one
    // thread.
    unsafe {
        backend.memset(from.at(100, 50), 7, StreamHandle::NULL).expect("inside");
        let (target, source) = (to.span.ptr.offset(10), from.span.ptr.offset(90));
        backend.memcpy(target, source, 20, StreamHandle::NULL).expect("inside");
        backend.stream_synchronize(StreamHandle::NULL).expect("the default stream");
        assert_eq!(code(backend.memset(from.at(MIB - 1, 2), 7, StreamHandle::NULL)), 1);
        assert_eq!(code(backend.memset(from.at(0, 0), 7, StreamHandle::NULL)), 0);
    }
    assert_eq!(host(backend, from.span, 1, HostAccess::Read), 7 * 50);
    assert_eq!(host(backend, to.span, 1, HostAccess::Read), 7 * 10);
    assert_eq!(host(backend, to.at(20, 10), 1, HostAccess::Read), 7 * 10);
}

pub fn devices_are_numbered_from_0_up_to_their_count(backend: &dyn Backend) {
    let count = i32::try_from(backend.device_count().expect("a machine")).expect("a few");
    let attribute = DeviceAttribute::MANAGED_MEMORY;
    let answer = |id| code(backend.device_attribute(DeviceId(id), attribute));
    for id in 0..count {
        assert_eq!(answer(id), 0, "device {id} of {count}");
    }
    assert_eq!([count, -1].map(answer), [101; 2], "{count} devices");
}

pub fn events_tell_the_nanoseconds_of_the_work_between_them(backend: &dyn Backend) {
    let bytes = 64 * MIB;
    let managed = Managed::new(backend, bytes);
    host(backend, managed.span, PAGE, HostAccess::Write(1));
    let events = [(); 3].map(|()| backend.event_create(DeviceId(0), EventFlags::empty()).unwrap());
    let stream = StreamHandle::NULL;
    let [first, second, third] = events;
    backend.event_record(first, stream).expect("a stream");
    backend.event_record(second, stream).expect("a stream");
    // SAFETY: claims use their memory from one thread, and wait for the stream.
    unsafe { backend.memset(managed.span, 2, stream) }.expect("inside");
    backend.event_record(third, stream).expect("a stream");
    backend.event_synchronize(third).expect("recorded");
    let elapsed = |start, end| backend.event_elapsed_ns(start, end).expect("both are over");
    let (nothing, fill) = (elapsed(first, second), elapsed(second, third));
    assert!(nothing < 1_000_000, "{nothing} ns without work");
    // At 4 TB/s, more than the memory of any GPU gives.
    assert!(fill > bytes / 4_000 && fill < 10_000_000_000, "{fill} ns for 64 MiB");
    assert_eq!(elapsed(third, second), 0, "the later first");
    for event in events {
        // SAFETY: the claim does not use the handle again.
        unsafe { backend.event_destroy(event) }.expect("live");
    }
}

pub fn a_program_outside_an_allocation_is_an_illegal_address(backend: &dyn Backend) {
    if !backend.capabilities().deterministic {
        // On a driver the access would end the process or the context.
        return;
    }
    let managed = Managed::new(backend, MIB);
    let access = HostAccess::Read;
    for span in [managed.at(0, MIB + 1), Span::new(WILD, 1)] {
        // SAFETY: the simulator refuses the range before it accesses memory.
        let answer = unsafe { backend.host_touch(HostTouch { span, stride_bytes: 1, access }) };
        assert_eq!(code(answer), 700);
    }
    let stride_bytes = 0;
    // SAFETY: the simulator refuses the stride before it accesses memory, and only simulators get
    // here.
    let answer =
        unsafe { backend.host_touch(HostTouch { span: managed.span, stride_bytes, access }) };
    assert_eq!(code(answer), 1);
    assert_eq!(code(backend.alloc_managed(MIB, AttachFlags::SINGLE)), 1);
}

/// A stream of the second device, if there is one.
fn stream_of_the_second_device(backend: &dyn Backend) -> Option<StreamHandle> {
    let devices = backend.device_count().expect("a machine");
    let make = || backend.stream_create(DeviceId(1), StreamFlags::NON_BLOCKING).expect("a stream");
    (devices > 1).then(make)
}

pub fn a_program_in_a_stream_of_another_device_is_an_invalid_handle(backend: &dyn Backend) {
    let Some(stream) = stream_of_the_second_device(backend) else { return };
    let managed = Managed::new(backend, MIB);
    host(backend, managed.span, 1, HostAccess::Write(1));
    let run = |device, span, stride_bytes, stream| {
        let access = DeviceAccess::Write(2);
        let touch = DeviceTouch { device, span, stride_bytes, access, blocks: 1, threads: 1 };
        // SAFETY: claims use their memory from one thread, and the call waits for the program.
        code(unsafe { backend.device_touch(touch, stream) })
    };
    for span in [managed.span, managed.at(0, 0), Span::new(WILD, 1)] {
        for stride_bytes in [PAGE, 0] {
            assert_eq!(run(DeviceId(0), span, stride_bytes, stream), 400);
        }
    }
    assert_eq!(run(DeviceId(99), managed.span, PAGE, stream), 101, "the device comes first");
    assert_eq!(run(DeviceId(1), managed.span, 0, stream), 1);
    assert_eq!(host(backend, managed.span, 1, HostAccess::Read), MIB, "nothing was written");
    for own in [stream, StreamHandle::NULL, StreamHandle::PER_THREAD] {
        assert_eq!(run(DeviceId(1), managed.span, PAGE, own), 0);
    }
    // SAFETY: no work is left in the stream, and the claim does not use the handle again.
    unsafe { backend.stream_destroy(stream) }.expect("live");
}

pub fn fills_copies_and_prefetches_take_a_stream_of_any_device(backend: &dyn Backend) {
    let Some(stream) = stream_of_the_second_device(backend) else { return };
    let capabilities = backend.capabilities();
    let [from, to] = [(); 2].map(|()| Managed::new(backend, MIB));
    // SAFETY: claims use their memory from one thread, and wait for the stream.
    unsafe {
        backend.memset(from.span, 3, stream).expect("inside");
        backend.memcpy(to.span.ptr, from.span.ptr, MIB, stream).expect("inside");
    }
    if capabilities.concurrent_managed_access {
        backend.prefetch_ordinal(to.span, 0, stream).expect("another device than the stream's");
    }
    let plain = [0, 1].map(|id| backend.alloc_device(DeviceId(id), PAGE).expect("device memory"));
    for (on, fills) in [(StreamHandle::NULL, [0, 1]), (stream, [1, 0])] {
        // SAFETY: only this function knows the memory, and it waits for each fill before the next.
        let fill = |ptr| code(unsafe { backend.memset(Span::new(ptr, PAGE), 3, on) });
        assert_eq!(plain.map(fill), fills, "but plain memory is filled by its own device");
        backend.stream_synchronize(on).expect("a stream");
    }
    // SAFETY: no work uses the memory, and it is freed once.
    plain.into_iter().for_each(|ptr| unsafe { backend.free(ptr) }.expect("live"));
    assert_eq!(host(backend, to.span, 1, HostAccess::Read), 3 * MIB);
    // SAFETY: no work is left in the stream, and the claim does not use the handle again.
    unsafe { backend.stream_destroy(stream) }.expect("live");
}
