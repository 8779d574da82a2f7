//! Handles: back ends refuse those that are not live, from safe code too.

use pagewise::{
    AccessFlags, AllocationType, AttachFlags, Backend, CopyAttributes, DeviceAccess, DeviceId,
    DeviceTouch, ErrorKind, EventFlags, EventHandle, HandleTypes, Location, PoolAttribute,
    PoolHandle, PoolProps, Result, SpanCopy, StreamFlags, StreamHandle,
};

use crate::{GPU, MIB, Managed, STREAM};

/// No allocation of any back end lies there.
const MADE_UP: u64 = 0xdead_0000_bee0;

const UNTIMED: EventFlags = EventFlags::DISABLE_TIMING;

fn stream_of(backend: &dyn Backend) -> StreamHandle {
    backend.stream_create(DeviceId(0), StreamFlags::NON_BLOCKING).expect("a stream")
}

/// Each call was refused, in the words of a back end that did not ask the driver.
#[track_caller]
fn assert_refused(answers: Vec<Result<()>>, kind: ErrorKind, code: i32) {
    for (call, answer) in answers.into_iter().enumerate() {
        let error = answer.expect_err("no live handle");
        assert_eq!((error.kind(), error.code()), (kind, Some(code)), "call {call}: {error}");
        assert!(error.to_string().contains("destroyed"), "call {call}: {error}");
    }
}

/// Every call that takes a stream.
pub fn calls_with_stream(backend: &dyn Backend, stream: StreamHandle) -> Vec<Result<()>> {
    let memory = Managed::new(backend, MIB);
    let (span, to) = (memory.span, [Location::HOST]);
    let event = backend.event_create(DeviceId(0), UNTIMED).expect("an event");
    backend.event_record(event, STREAM).expect("a stream");
    let access = DeviceAccess::Read;
    let touch =
        DeviceTouch { device: DeviceId(0), span, stride_bytes: 1, access, blocks: 1, threads: 1 };
    let can = backend.capabilities();
    let mut answers = vec![
        backend.stream_synchronize(stream),
        backend.stream_wait_event(stream, event),
        backend.event_record(event, stream),
        backend.prefetch_ordinal(span, 0, stream),
        backend.prefetch_batch(&[span], &to, &[0], 0, stream),
        backend.prefetch_batch(&[span, span], &to, &[0], 0, stream),
    ];
    if can.locations {
        answers.push(backend.prefetch(span, GPU, 0, stream));
    }
    // SAFETY: no other code uses the memory.
    unsafe {
        answers.push(backend.memset(span, 1, stream));
        answers.push(backend.memcpy(span.ptr.offset(4096), span.ptr, 4096, stream));
        answers.push(backend.memset_d16(span, 1, stream));
        answers.push(backend.memset_d32(span, 1, stream));
        let copy = SpanCopy::new(span.ptr.offset(4096), span.ptr, 4096);
        answers.push(backend.memcpy_batch(&[copy], &[CopyAttributes::default()], &[0], stream));
        answers.push(backend.device_touch(touch, stream).map(drop));
        answers.push(backend.stream_attach(stream, span, AttachFlags::SINGLE));
        if can.discard {
            answers.push(backend.discard_batch(&[span], 0, stream));
            answers.push(backend.discard_batch(&[span, span], 0, stream));
            answers.push(backend.discard_prefetch_batch(&[span], &to, &[0], 0, stream));
        }
        backend.event_destroy(event).expect("live");
    }
    if can.location_pools {
        let pool = backend.pool_default(GPU, AllocationType::PINNED).expect("a default pool");
        answers.push(backend.pool_alloc(pool, MIB, stream).map(drop));
        let ptr = backend.pool_alloc(pool, MIB, STREAM).expect("room");
        // SAFETY: no other code uses the memory, and it is freed once.
        unsafe {
            answers.push(backend.free_async(ptr, stream));
            backend.free_async(ptr, STREAM).expect("live");
        }
        backend.stream_synchronize(STREAM).expect("a stream");
    }
    answers
}

/// An event of its own for [`calls_with_event`]. It is made before the other event goes: a driver
/// gives the address of a destroyed event to the next one, which the old handle then names.
pub fn own_event(backend: &dyn Backend) -> EventHandle {
    let own = backend.event_create(DeviceId(0), EventFlags::empty()).expect("an event");
    backend.event_record(own, STREAM).expect("a stream");
    own
}

/// Every call that takes an event; two of them take another one too, which is live.
pub fn calls_with_event(
    backend: &dyn Backend,
    event: EventHandle,
    own: EventHandle,
) -> Vec<Result<()>> {
    vec![
        backend.event_record(event, STREAM),
        backend.event_query(event).map(drop),
        backend.event_synchronize(event),
        backend.event_elapsed_ns(own, event).map(drop),
        backend.event_elapsed_ns(event, own).map(drop),
        backend.stream_wait_event(STREAM, event),
    ]
}

/// Every call that takes a pool.
pub fn calls_with_pool(backend: &dyn Backend, pool: PoolHandle) -> Vec<Result<()>> {
    let threshold = PoolAttribute::RELEASE_THRESHOLD;
    let mut answers = vec![
        backend.pool_attribute(pool, threshold).map(drop),
        backend.pool_set_attribute(pool, threshold, 0),
        backend.pool_trim(pool, 0),
        backend.pool_access(pool, GPU).map(drop),
        backend.pool_set_access(pool, GPU, AccessFlags::READ_WRITE),
        backend.pool_alloc(pool, MIB, STREAM).map(drop),
        backend.pool_export(pool, HandleTypes::POSIX_FILE_DESCRIPTOR).map(drop),
    ];
    if backend.capabilities().location_pools {
        answers.push(backend.pool_set_current(GPU, AllocationType::PINNED, pool));
    }
    answers
}

pub fn a_stream_that_was_destroyed_or_made_up_is_refused_by_every_call(backend: &dyn Backend) {
    let stream = stream_of(backend);
    backend.stream_synchronize(stream).expect("live");
    // SAFETY: back ends have to refuse copies of a checked handle that was destroyed, which is the
    // claim.
    unsafe { backend.stream_destroy(stream) }.expect("live");
    for stream in [stream, StreamHandle::checked(MADE_UP), StreamHandle::checked(3)] {
        let mut answers = calls_with_stream(backend, stream);
        // SAFETY: the handle names no live stream, so no code uses one.
        answers.push(unsafe { backend.stream_destroy(stream) });
        assert_refused(answers, ErrorKind::InvalidHandle, 400);
    }
}

pub fn an_event_that_was_destroyed_or_made_up_is_refused_by_every_call(backend: &dyn Backend) {
    let own = own_event(backend);
    let event = backend.event_create(DeviceId(0), UNTIMED).expect("an event");
    backend.event_record(event, STREAM).expect("live");
    // SAFETY: back ends have to refuse copies of a checked handle that was destroyed, which is the
    // claim.
    unsafe { backend.event_destroy(event) }.expect("live");
    for event in [event, EventHandle::checked(MADE_UP), EventHandle::NULL] {
        let mut answers = calls_with_event(backend, event, own);
        // SAFETY: the handle names no live event, so no code uses one.
        answers.push(unsafe { backend.event_destroy(event) });
        assert_refused(answers, ErrorKind::InvalidHandle, 400);
    }
    // SAFETY: the event was made above, and the claim does not use it again.
    unsafe { backend.event_destroy(own) }.expect("live");
}

pub fn a_pool_that_was_destroyed_or_made_up_is_refused_by_every_call(backend: &dyn Backend) {
    let props = PoolProps {
        allocation_type: AllocationType::PINNED,
        location: GPU,
        handle_types: HandleTypes::empty(),
        max_bytes: 0,
    };
    let pool = backend.pool_create(props).expect("a pool");
    backend.pool_trim(pool, 0).expect("live");
    // SAFETY: back ends have to refuse copies of a checked handle that was destroyed, which is the
    // claim.
    unsafe { backend.pool_destroy(pool) }.expect("live");
    for pool in [pool, PoolHandle::checked(MADE_UP), PoolHandle::NULL] {
        let mut answers = calls_with_pool(backend, pool);
        // SAFETY: the handle names no live pool, so no code uses one.
        answers.push(unsafe { backend.pool_destroy(pool) });
        assert_refused(answers, ErrorKind::InvalidValue, 1);
    }
}

pub fn a_refused_end_of_a_default_pool_leaves_it_live(backend: &dyn Backend) {
    if !backend.capabilities().location_pools {
        return;
    }
    let pool = backend.pool_default(GPU, AllocationType::PINNED).expect("a default pool");
    // SAFETY: a default pool is not destroyed: the call is refused, which is the claim.
    let error = unsafe { backend.pool_destroy(pool) }.expect_err("a default pool");
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, Some(1)));
    assert_eq!(backend.pool_trim(pool, 0), Ok(()));
}
