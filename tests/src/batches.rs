//! Batch calls: refusals of the whole batch, and the attributes that each range records.

use pagewise::{
    Advice, Backend, BatchSupport, Location, LocationKind, RangeAttribute, Span, StreamHandle,
};

use crate::{GPU, MIB, Managed, NO_GPU, PAGE, STREAM, code, is_absent};

fn has_batches(backend: &dyn Backend) -> bool {
    backend.capabilities().prefetch_batch != BatchSupport::Absent
}

fn last_prefetch(backend: &dyn Backend, span: Span) -> i32 {
    backend.range_attribute(span, RangeAttribute::LAST_PREFETCH_LOCATION).expect("managed")
}

pub fn a_batch_refuses_the_legacy_stream_and_flags(backend: &dyn Backend) {
    if !has_batches(backend) {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    let batch = |flags, stream| {
        code(backend.prefetch_batch(&[managed.span], &[Location::HOST], &[0], flags, stream))
    };
    assert_eq!(batch(0, StreamHandle::NULL), 1);
    assert_eq!(batch(0, StreamHandle::LEGACY), 1);
    assert_eq!(batch(1, STREAM), 1);
    assert_eq!(batch(0, STREAM), 0);
}

pub fn a_batch_refuses_malformed_lists(backend: &dyn Backend) {
    if !has_batches(backend) {
        return;
    }
    let managed = Managed::new(backend, 4 * MIB);
    let spans = [managed.at(0, PAGE), managed.at(PAGE, PAGE), managed.at(2 * PAGE, PAGE)];
    let to = [Location::HOST; 3];
    let batch = |spans: &[Span], to: &[Location], starts: &[usize]| {
        code(backend.prefetch_batch(spans, to, starts, 0, STREAM))
    };
    for starts in [&[1][..], &[1, 0], &[0, 3], &[0, 3, 1], &[0, usize::MAX]] {
        assert_eq!(batch(&spans, &to[..starts.len()], starts), 1, "{starts:?}");
    }
    assert_eq!(batch(&[], &to[..1], &[0]), 1);
    assert_eq!(batch(&spans, &[], &[]), 1);
    assert_eq!(batch(&spans, &to[..2], &[0]), 1);
    assert_eq!(batch(&spans, &to[..2], &[0, 2]), 0);
}

pub fn a_location_of_a_batch_may_serve_no_range(backend: &dyn Backend) {
    if !has_batches(backend) {
        return;
    }
    let managed = Managed::new(backend, 4 * MIB);
    let spans = [0, 1, 2].map(|page| managed.at(page * PAGE, PAGE));
    let batch = |to: [Location; 3], starts: &[usize]| {
        code(backend.prefetch_batch(&spans, &to, starts, 0, STREAM))
    };
    assert_eq!(batch([GPU; 3], &[0, 3, 3]), 1, "the number of ranges");
    let to = [GPU, Location::HOST, GPU];
    for (starts, went) in [
        ([0, 2, 2], [0, 0, -1]),
        ([0, 1, 1], [0, -1, -1]),
        ([0, 0, 1], [0, 0, 0]),
        ([0, 2, 1], [0, 0, -1]),
        ([0, 1, 2], [0, -1, 0]),
    ] {
        assert_eq!(batch(to, &starts), 0, "{starts:?}");
        assert_eq!(spans.map(|span| last_prefetch(backend, span)), went, "{starts:?}");
    }
}

pub fn a_batch_with_one_bad_range_moves_nothing(backend: &dyn Backend) {
    if !has_batches(backend) {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    for bad in [managed.at(0, 0), managed.at(0, 2 * MIB + 1), Span::default()] {
        let spans = [managed.span, bad];
        let answer = backend.prefetch_batch(&spans, &[Location::HOST], &[0], 0, STREAM);
        assert_eq!(code(answer), 1, "{bad}");
    }
    // The driver's own call has recorded the ranges before the bad one by then.
    let native = backend.capabilities().prefetch_batch == BatchSupport::Native;
    assert_eq!(last_prefetch(backend, managed.span), if native { -1 } else { -2 });
}

pub fn an_unknown_device_is_an_invalid_value_in_a_batch(backend: &dyn Backend) {
    if !has_batches(backend) {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    for to in [NO_GPU, Location::NONE, Location { kind: LocationKind(9), id: 0 }] {
        assert_eq!(code(backend.prefetch_batch(&[managed.span], &[to], &[0], 0, STREAM)), 1);
    }
}

pub fn each_location_serves_the_ranges_up_to_the_next_start(backend: &dyn Backend) {
    if !has_batches(backend) {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    let spans = [0, 1, 2].map(|page| managed.at(page * PAGE, PAGE));
    backend.prefetch_batch(&spans, &[GPU, Location::HOST], &[0, 2], 0, STREAM).expect("a batch");
    assert_eq!(spans.map(|span| last_prefetch(backend, span)), [0, 0, -1]);
}

pub fn ranges_of_a_batch_may_overlap(backend: &dyn Backend) {
    if !has_batches(backend) {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    let spans = [managed.span, managed.at(PAGE, PAGE), managed.span];
    assert_eq!(code(backend.prefetch_batch(&spans, &[GPU], &[0], 0, STREAM)), 0);
}

pub fn a_batch_records_the_id_of_the_host_as_it_was_passed(backend: &dyn Backend) {
    if backend.capabilities().prefetch_batch != BatchSupport::Native {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    let id = || {
        let attribute = RangeAttribute::LAST_PREFETCH_LOCATION_ID;
        backend.range_attribute(managed.span, attribute).expect("managed")
    };
    let host = Location { kind: LocationKind::HOST, id: 5 };
    backend.prefetch(managed.span, host, 0, STREAM).expect("the host");
    assert_eq!(id(), -1);
    backend.prefetch_batch(&[managed.span], &[host], &[0], 0, STREAM).expect("the host");
    assert_eq!(id(), 5);
    assert_eq!(last_prefetch(backend, managed.span), -1);
}

pub fn discard_is_absent_before_cuda_13(backend: &dyn Backend) {
    if backend.capabilities().discard {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    // SAFETY: the claim does not read the contents again.
    unsafe {
        assert!(is_absent(backend.discard_batch(&[managed.span], 0, STREAM)));
        let both = backend.discard_prefetch_batch(&[managed.span], &[GPU], &[0], 0, STREAM);
        assert!(is_absent(both));
    }
}

pub fn discard_takes_unaligned_ranges_and_leaves_the_last_prefetch(backend: &dyn Backend) {
    if !backend.capabilities().discard {
        return;
    }
    let managed = Managed::new(backend, 2 * MIB);
    backend.prefetch(managed.span, GPU, 0, STREAM).expect("a device");
    // A discard that queues behind a prefetch is carried out after every wait: on the next
    // allocation, where this one was.
    backend.stream_synchronize(STREAM).expect("a stream");
    // SAFETY: the claim does not read the contents again.
    let discard = |span, flags, stream| unsafe { backend.discard_batch(&[span], flags, stream) };
    assert_eq!(code(discard(managed.at(100, 8192), 0, STREAM)), 0);
    assert_eq!(code(discard(managed.at(100, 8192), 1, STREAM)), 1);
    assert_eq!(code(discard(managed.at(100, 8192), 0, StreamHandle::NULL)), 1);
    assert_eq!(last_prefetch(backend, managed.span), 0);
}

/// Rows: offset in pages and bytes, length, pages of eight that stay mapped on the host.
pub fn discard_unmaps_the_pages_that_it_covers_whole_and_no_others(backend: &dyn Backend) {
    let capabilities = backend.capabilities();
    if !(capabilities.discard && capabilities.host_page_map) {
        return;
    }
    for (offset, bytes, unmapped) in [
        (0, PAGE, 0..1),
        (100, 2 * PAGE, 1..2),
        (PAGE, 100, 0..0),
        (PAGE - 96, 200, 0..0),
        (PAGE, PAGE + 1, 1..2),
        (PAGE - 1, PAGE + 2, 1..2),
    ] {
        let managed = Managed::new(backend, 2 * MIB);
        backend.prefetch(managed.span, Location::HOST, 0, STREAM).expect("the host");
        // No wait covers a discard that queued behind a prefetch.
        backend.stream_synchronize(STREAM).expect("a stream");
        // SAFETY: the claim does not read the contents again.
        unsafe { backend.discard_batch(&[managed.at(offset, bytes)], 0, STREAM) }.expect("inside");
        backend.stream_synchronize(STREAM).expect("a stream");
        let mapped = |page| {
            let runs = backend.host_page_map(managed.at(page * PAGE, PAGE)).expect("inside");
            runs[0].mapped
        };
        let gone: Vec<u64> = (0..8).filter(|&page| !mapped(page)).collect();
        assert_eq!(gone, unmapped.collect::<Vec<_>>(), "{offset}+{bytes}");
    }
}

/// The device duplicates half of the first of two blocks.
pub fn discard_of_a_block_with_duplicated_pages_unmaps_only_those(backend: &dyn Backend) {
    let capabilities = backend.capabilities();
    if !(capabilities.discard && capabilities.host_page_map) {
        return;
    }
    let managed = Managed::new(backend, 4 * MIB);
    backend.advise(managed.span, Advice::SET_READ_MOSTLY, Location::HOST).expect("managed");
    backend.prefetch(managed.span, Location::HOST, 0, STREAM).expect("the host");
    backend.prefetch(managed.at(0, MIB), GPU, 0, STREAM).expect("a device");
    backend.stream_synchronize(STREAM).expect("a stream");
    // SAFETY: the claim does not read the contents again.
    unsafe { backend.discard_batch(&[managed.span], 0, STREAM) }.expect("managed");
    backend.stream_synchronize(STREAM).expect("a stream");
    let runs = backend.host_page_map(managed.span).expect("managed");
    let mapped: Vec<_> = runs.iter().map(|run| (run.pages, run.mapped)).collect();
    assert_eq!(mapped, [(256, false), (256, true), (512, false)]);
}
