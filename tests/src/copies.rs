//! Fills of 2 and 4 bytes, and batches of copies.

use pagewise::{
    Backend, CopyAttributes, CopyFlags, HostAccess, HostTouch, Location, LocationKind, SourceOrder,
    Span, SpanCopy, StreamHandle,
};

use crate::{GPU, Managed, NO_GPU, PAGE, STREAM, WILD, code};

const PLAIN: CopyAttributes = CopyAttributes {
    source_order: SourceOrder::STREAM,
    source_hint: Location::NONE,
    destination_hint: Location::NONE,
    flags: CopyFlags::empty(),
};

/// The sum of a range's bytes, as the host reads them when all work is done.
fn sum(backend: &dyn Backend, span: Span) -> u64 {
    backend.stream_synchronize(STREAM).expect("a default stream");
    // SAFETY: only the calling claim knows the memory, and no work is left.
    unsafe { backend.host_touch(HostTouch { span, stride_bytes: 1, access: HostAccess::Read }) }
        .expect("live memory")
}

/// Fills a range with a byte, and waits.
fn fill(backend: &dyn Backend, span: Span, value: u8) {
    // SAFETY: only the calling claim knows the memory.
    unsafe { backend.memset(span, value, STREAM) }.expect("live memory");
    backend.stream_synchronize(STREAM).expect("a default stream");
}

/// A copy of bytes from one allocation to another, at these offsets.
fn copy(to: &Managed<'_>, to_offset: u64, from: &Managed<'_>, offset: u64, bytes: u64) -> SpanCopy {
    SpanCopy::new(to.span.ptr.offset(to_offset), from.span.ptr.offset(offset), bytes)
}

/// Makes a batch. Callers give copies that overlap no others.
fn batch(
    backend: &dyn Backend,
    copies: &[SpanCopy],
    attributes: &[CopyAttributes],
    starts: &[usize],
    stream: StreamHandle,
) -> pagewise::Result<()> {
    // SAFETY: the copies overlap no others, only the calling claim knows the memory, and it waits
    // before it uses the memory again.
    unsafe { backend.memcpy_batch(copies, attributes, starts, stream) }
}

pub fn fills_of_2_and_4_bytes_repeat_their_value_and_change_nothing_else(backend: &dyn Backend) {
    let managed = Managed::new(backend, 4 * PAGE);
    fill(backend, managed.span, 1);
    // SAFETY: only this claim knows the memory, and waits before it reads it.
    unsafe {
        backend.memset_d16(managed.at(2, 6), 0x0203, STREAM).expect("inside");
        backend.memset_d32(managed.at(PAGE - 4, 8), 0x0405_0607, STREAM).expect("inside");
        assert_eq!(code(backend.memset_d16(managed.at(0, 0), 7, STREAM)), 0);
        assert_eq!(code(backend.memset_d32(managed.at(0, 0), 7, STREAM)), 0);
    }
    let bytes = |offset, count| -> Vec<u64> {
        (offset..offset + count).map(|at| sum(backend, managed.at(at, 1))).collect()
    };
    assert_eq!(bytes(0, 10), [1, 1, 3, 2, 3, 2, 3, 2, 1, 1]);
    assert_eq!(bytes(PAGE - 5, 10), [1, 7, 6, 5, 4, 7, 6, 5, 4, 1]);
}

pub fn fills_of_2_and_4_bytes_take_whole_elements_inside_an_allocation(backend: &dyn Backend) {
    let managed = Managed::new(backend, PAGE);
    fill(backend, managed.span, 1);
    for (offset, bytes) in [(1, 4), (3, 8), (0, 3), (PAGE - 4, 8), (0, PAGE + 4)] {
        // SAFETY: only this claim knows the memory, and the calls are refused.
        unsafe {
            let span = managed.at(offset, bytes);
            assert_eq!(code(backend.memset_d16(span, 7, STREAM)), 1, "16 at {offset}+{bytes}");
            assert_eq!(code(backend.memset_d32(span, 7, STREAM)), 1, "32 at {offset}+{bytes}");
        }
    }
    // SAFETY: only this claim knows the memory, and the call is refused.
    let half = unsafe { backend.memset_d32(managed.at(2, 8), 7, STREAM) };
    assert_eq!(code(half), 1, "2 is no multiple of 4");
    assert_eq!(sum(backend, managed.span), PAGE);
}

pub fn a_batch_of_copies_makes_each_copy_with_the_attributes_of_its_start(backend: &dyn Backend) {
    let [from, to] = [(); 2].map(|()| Managed::new(backend, 8 * PAGE));
    fill(backend, from.span, 3);
    fill(backend, from.at(PAGE, PAGE), 5);
    fill(backend, to.span, 1);
    let copies = [
        copy(&to, 0, &from, 0, 100),
        copy(&to, PAGE, &from, PAGE, PAGE),
        copy(&to, 5 * PAGE + 1, &from, PAGE - 1, 2),
    ];
    let hinted = CopyAttributes {
        source_order: SourceOrder::ANY,
        source_hint: Location::HOST,
        destination_hint: GPU,
        flags: CopyFlags::PREFER_OVERLAP_WITH_COMPUTE,
    };
    let during = CopyAttributes { source_order: SourceOrder::DURING_CALL, ..PLAIN };
    batch(backend, &copies, &[PLAIN, hinted, during], &[0, 1, 2], STREAM).expect("inside");
    let page = |index| sum(backend, to.at(index * PAGE, PAGE));
    assert_eq!([0, 1, 2].map(page), [PAGE + 200, 5 * PAGE, PAGE]);
    assert_eq!(page(5), PAGE + 2 + 4, "a byte of each page of the source");
    assert_eq!(sum(backend, from.span), 3 * 7 * PAGE + 5 * PAGE, "sources keep their contents");
}

pub fn a_batch_of_copies_refuses_the_legacy_stream_and_malformed_lists(backend: &dyn Backend) {
    let [from, to] = [(); 2].map(|()| Managed::new(backend, 4 * PAGE));
    fill(backend, from.span, 3);
    fill(backend, to.span, 1);
    let copies: Vec<_> = (0..3).map(|at| copy(&to, at * PAGE, &from, at * PAGE, PAGE)).collect();
    let kinds = [PLAIN; 3];
    let batch = |copies: &[SpanCopy], kinds: &[CopyAttributes], starts: &[usize], stream| {
        code(batch(backend, copies, kinds, starts, stream))
    };
    for stream in [StreamHandle::NULL, StreamHandle::LEGACY] {
        assert_eq!(batch(&copies, &kinds[..1], &[0], stream), 1);
    }
    for starts in [&[1][..], &[0, 2, 1], &[0, 3], &[0, usize::MAX]] {
        assert_eq!(batch(&copies, &kinds[..starts.len()], starts, STREAM), 1, "{starts:?}");
    }
    assert_eq!(batch(&[], &kinds[..1], &[0], STREAM), 1);
    assert_eq!(batch(&copies, &[], &[], STREAM), 1);
    assert_eq!(batch(&copies, &kinds[..2], &[0], STREAM), 1);
    assert_eq!(sum(backend, to.span), 4 * PAGE, "nothing was copied");
    assert_eq!(batch(&copies, &kinds[..2], &[0, 2], STREAM), 0);
    assert_eq!(sum(backend, to.span), 3 * 3 * PAGE + PAGE);
}

pub fn a_batch_of_copies_refuses_unknown_orders_flags_and_hints(backend: &dyn Backend) {
    let [from, to] = [(); 2].map(|()| Managed::new(backend, PAGE));
    fill(backend, from.span, 3);
    fill(backend, to.span, 1);
    let copies = [copy(&to, 0, &from, 0, 10), copy(&to, 20, &from, 20, 10)];
    for bad in [
        CopyAttributes { source_order: SourceOrder(0), ..PLAIN },
        CopyAttributes { source_order: SourceOrder(4), ..PLAIN },
        CopyAttributes { flags: CopyFlags::from_bits_retain(2), ..PLAIN },
        CopyAttributes { source_hint: NO_GPU, ..PLAIN },
        CopyAttributes { destination_hint: Location { kind: LocationKind(5), id: 0 }, ..PLAIN },
    ] {
        assert_eq!(code(batch(backend, &copies, &[PLAIN, bad], &[0, 1], STREAM)), 1, "{bad:?}");
    }
    assert_eq!(sum(backend, to.span), PAGE, "nothing was copied");
}

pub fn a_batch_of_copies_ends_at_the_first_bad_one_and_names_it(backend: &dyn Backend) {
    let [from, to] = [(); 2].map(|()| Managed::new(backend, 4 * PAGE));
    fill(backend, from.span, 3);
    let (first, last) = (copy(&to, 0, &from, 0, PAGE), copy(&to, 2 * PAGE, &from, 0, PAGE));
    let outside = [copy(&to, 0, &from, PAGE, 4 * PAGE), copy(&to, PAGE, &from, 0, 4 * PAGE)];
    for bad in outside.into_iter().chain([copy(&to, PAGE, &from, 0, 0)]) {
        fill(backend, to.span, 1);
        let error = batch(backend, &[first, bad, last], &[PLAIN], &[0], STREAM).expect_err("bad");
        assert_eq!((error.code(), error.item()), (Some(1), Some(1)), "{error}");
        assert_eq!(sum(backend, to.span), 3 * PAGE + 3 * PAGE, "only the first was made");
    }
    // A driver takes an unknown address for the host's memory, and the process dies of it.
    if backend.capabilities().deterministic {
        let wild = SpanCopy::new(WILD, from.span.ptr, PAGE);
        assert_eq!(code(batch(backend, &[wild], &[PLAIN], &[0], STREAM)), 1);
    }
}
