//! Prefetch: the refusals, the attributes that it records, and the pages that move.

use pagewise::{
    AttachFlags, Backend, DeviceId, HostAccess, HostTouch, Location, LocationKind, PageRun,
    RangeAttribute, Span, StreamFlags, StreamHandle,
};

use crate::{GPU, MIB, Managed, NO_GPU, PAGE, WILD, code, has_locations, is_absent};

fn prefetch(backend: &dyn Backend, span: Span, ordinal: i32) -> i32 {
    code(backend.prefetch_ordinal(span, ordinal, StreamHandle::NULL))
}

fn last(backend: &dyn Backend, span: Span) -> i32 {
    backend.range_attribute(span, RangeAttribute::LAST_PREFETCH_LOCATION).expect("managed")
}

pub fn a_prefetch_to_an_unknown_device_is_an_invalid_device(backend: &dyn Backend) {
    let managed = Managed::new(backend, MIB);
    assert_eq!([99, -2, -1, 0].map(|to| prefetch(backend, managed.span, to)), [101, 101, 0, 0]);
    if has_locations(backend) {
        let to = |location| code(backend.prefetch(managed.span, location, 0, StreamHandle::NULL));
        assert_eq!(to(NO_GPU), 101);
        assert_eq!(to(Location::NONE), 1);
        assert_eq!(to(Location { kind: LocationKind(5), id: 0 }), 1);
        assert_eq!(to(Location::host_numa(77)), 1);
    } else {
        assert!(is_absent(backend.prefetch(managed.span, GPU, 0, StreamHandle::NULL)));
    }
}

pub fn an_empty_range_and_flags_are_refused_before_the_device(backend: &dyn Backend) {
    let managed = Managed::new(backend, MIB);
    assert_eq!(prefetch(backend, managed.at(0, 0), 99), 1);
    assert_eq!(prefetch(backend, Span::default(), 99), 1);
    if has_locations(backend) {
        assert_eq!(code(backend.prefetch(managed.span, NO_GPU, 1, StreamHandle::NULL)), 1);
    }
}

pub fn an_unknown_device_is_refused_before_the_range(backend: &dyn Backend) {
    let managed = Managed::new(backend, MIB);
    for span in [managed.at(0, MIB + 1), Span::new(WILD, PAGE)] {
        assert_eq!(prefetch(backend, span, 99), 101);
        assert_eq!(prefetch(backend, span, 0), 1);
    }
}

pub fn a_prefetch_is_recorded_even_if_nothing_moves(backend: &dyn Backend) {
    let managed = Managed::new(backend, 2 * MIB);
    for to in [-1, -1, 0, 0] {
        assert_eq!(prefetch(backend, managed.span, to), 0);
        assert_eq!(last(backend, managed.span), to);
    }
}

pub fn a_prefetch_to_the_host_maps_whole_pages_there_and_to_the_device_unmaps_them(
    backend: &dyn Backend,
) {
    if !backend.capabilities().host_page_map {
        assert!(is_absent(backend.host_page_map(Span::default())));
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    let map = || {
        backend.stream_synchronize(StreamHandle::NULL).expect("the default stream");
        let runs = backend.host_page_map(managed.span).expect("inside");
        runs.into_iter().map(|PageRun { pages, mapped }| (pages, mapped)).collect::<Vec<_>>()
    };
    assert_eq!(map(), [(512, false)]);
    assert_eq!(prefetch(backend, managed.span, -1), 0);
    assert_eq!(map(), [(512, true)]);
    assert_eq!(prefetch(backend, managed.at(PAGE + 1, PAGE), 0), 0);
    assert_eq!(map(), [(1, true), (2, false), (509, true)]);
}

pub fn each_kind_of_location_is_recorded_as_itself(backend: &dyn Backend) {
    if !has_locations(backend) {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    for (location, expected) in [
        (GPU, [0, 1, 0]),
        (Location { kind: LocationKind::HOST, id: 9 }, [-1, 2, -1]),
        (Location::host_numa(0), [-1, 3, 0]),
        (Location::HOST_NUMA_CURRENT, [-1, 4, 0]),
    ] {
        backend.prefetch(managed.span, location, 0, StreamHandle::NULL).expect("a place");
        let read = [
            RangeAttribute::LAST_PREFETCH_LOCATION,
            RangeAttribute::LAST_PREFETCH_LOCATION_TYPE,
            RangeAttribute::LAST_PREFETCH_LOCATION_ID,
        ]
        .map(|attribute| backend.range_attribute(managed.span, attribute).expect("managed"));
        assert_eq!(read, expected, "{location:?}");
    }
}

pub fn a_range_never_prefetched_or_mixed_reports_none(backend: &dyn Backend) {
    let managed = Managed::new(backend, 2 * MIB);
    assert_eq!(last(backend, managed.span), -2);
    assert_eq!(prefetch(backend, managed.at(0, MIB), 0), 0);
    assert_eq!(last(backend, managed.span), -2);
    assert_eq!(prefetch(backend, managed.at(MIB, MIB), -1), 0);
    assert_eq!(last(backend, managed.span), -2);
    assert_eq!(last(backend, managed.at(MIB, MIB)), -1);
}

/// Three small allocations of one slab, two of them attached to a stream each.
pub fn memory_of_one_stream_moves_for_that_stream_and_is_left_alone_by_others(
    backend: &dyn Backend,
) {
    if !backend.capabilities().host_page_map {
        return;
    }
    let work = Managed::new(backend, 4 * MIB);
    let small = [0; 3].map(|_| Managed::new(backend, PAGE));
    let streams = [0; 2]
        .map(|_| backend.stream_create(DeviceId(0), StreamFlags::NON_BLOCKING).expect("a stream"));
    for (stream, managed) in streams.iter().zip(&small) {
        // SAFETY: one thread uses the memory, and it waits for its streams.
        unsafe { backend.stream_attach(*stream, managed.span, AttachFlags::SINGLE) }
            .expect("whole");
        backend.stream_synchronize(*stream).expect("a stream");
    }
    let write = |managed: &Managed<'_>| {
        let access = HostAccess::Write(1);
        // SAFETY: only this claim uses the memory, from one thread.
        unsafe { backend.host_touch(HostTouch { span: managed.span, stride_bytes: PAGE, access }) }
            .expect("inside");
    };
    let mapped = || {
        small.each_ref().map(|managed| {
            let runs = backend.host_page_map(managed.span).expect("inside");
            runs.iter().any(|run| run.mapped)
        })
    };
    write(&small[0]);
    assert_eq!(mapped(), [true, false, true], "the fault leaves another stream's page alone");
    small.iter().for_each(write);
    for (stream, expected) in streams.into_iter().zip([[false, true, true], [false, false, true]]) {
        // SAFETY: only this claim uses the memory, from one thread.
        unsafe { backend.memset(work.at(0, PAGE), 1, stream) }.expect("inside");
        backend.stream_synchronize(stream).expect("a stream");
        assert_eq!(mapped(), expected, "work brings its own stream's memory");
    }
    drop(small);
    for stream in streams {
        // SAFETY: no work is left in the stream, and the claim does not use the handle again.
        unsafe { backend.stream_destroy(stream) }.expect("live");
    }
}

pub fn fills_and_copies_of_plain_memory_leave_what_is_attached_to_their_stream(
    backend: &dyn Backend,
) {
    if !backend.capabilities().host_page_map {
        return;
    }
    let device = DeviceId(0);
    let attached = Managed::new(backend, 4 * MIB);
    let work = Managed::new(backend, MIB);
    let plain = [(); 2].map(|()| backend.alloc_device(device, MIB).expect("device memory"));
    let stream = backend.stream_create(device, StreamFlags::NON_BLOCKING).expect("a stream");
    let is_mapped = || {
        let runs = backend.host_page_map(attached.span).expect("inside");
        runs.iter().any(|run| run.mapped)
    };
    let access = HostAccess::Write(1);
    // SAFETY: one thread uses the memory, and it waits for its stream.
    unsafe {
        backend.stream_attach(stream, attached.span, AttachFlags::SINGLE).expect("whole");
        backend.stream_synchronize(stream).expect("a stream");
        let touch = HostTouch { span: attached.span, stride_bytes: PAGE, access };
        backend.host_touch(touch).expect("inside");
        backend.memset(Span::new(plain[0], MIB), 1, stream).expect("inside");
        backend.memcpy(plain[1], plain[0], MIB, stream).expect("inside");
        backend.stream_synchronize(stream).expect("a stream");
        assert!(is_mapped(), "the host has it still");
        backend.memset(work.span, 1, stream).expect("inside");
        backend.stream_synchronize(stream).expect("a stream");
        assert!(!is_mapped(), "a fill of managed memory brings it");
        plain.into_iter().for_each(|ptr| backend.free(ptr).expect("live"));
        backend.stream_destroy(stream).expect("live");
    }
}
