//! The functions of a pluggable allocator: the same numbers on every back end.

mod machines;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use machines::tensors::{HOST, NOWHERE, WILD};
use machines::{fill, holds, machine};
use pagewise::resource::ManagedMemoryResource;
use pagewise::{
    Backend, Code, Device, DevicePtr, Machine, RangeAttribute, Result, Span, Stream, StreamHandle,
};
use pagewise_managers::mempool::{LastError, ManagedAllocator};

machines::claims_hold_everywhere![
    devices_and_pointers_have_the_same_numbers_everywhere,
    what_cannot_be_given_is_null_and_remembered,
    memory_for_a_device_prefers_it_and_is_mapped_by_it,
    prefetches_move_contents_and_are_recorded,
    many_ranges_are_prefetched_or_none,
    discards_have_numbers_with_and_without_the_call,
    what_was_not_given_or_was_taken_back_is_left_alone,
    several_threads_allocate_and_free,
];

const SIZE: usize = 2 << 20;

/// Small enough that nothing here can oversubscribe a device.
fn over(machine: &Machine) -> Result<ManagedAllocator> {
    let direct = Arc::new(ManagedMemoryResource::direct(machine));
    let _ = LastError::take();
    ManagedAllocator::with_limit(direct, 64 << 20)
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn span(ptr: *mut c_void, bytes: usize) -> Span {
    Span::new(DevicePtr(ptr.expose_provenance() as u64), bytes as u64)
}

fn raw(stream: &Stream) -> *mut c_void {
    pointer(stream.handle().as_raw())
}

fn prefetch(allocator: &ManagedAllocator, ptr: *mut c_void, size: usize, device: i32) -> i32 {
    // SAFETY: the null pointer is the default stream, which lives for ever.
    unsafe { allocator.managed_prefetch(ptr, size, device, null_mut()) }
}

fn free(allocator: &ManagedAllocator, ptr: *mut c_void) {
    // SAFETY: no work uses the memory.
    unsafe { allocator.managed_free(ptr, 0, 0, null_mut()) }
}

fn last_number() -> Option<i32> {
    LastError::take().map(|error| error.number)
}

fn read(ptr: *mut c_void, attribute: RangeAttribute, backend: &dyn Backend) -> Result<i32> {
    backend.stream_synchronize(StreamHandle::NULL)?;
    backend.range_attribute(span(ptr, SIZE), attribute)
}

/// The processors that keep the memory mapped, by ordinal.
fn mapped_by(ptr: *mut c_void, backend: &dyn Backend) -> Result<Vec<i32>> {
    let mut ordinals = [NOWHERE; 4];
    backend.range_accessed_by(span(ptr, SIZE), &mut ordinals)?;
    Ok(ordinals.into_iter().filter(|&ordinal| ordinal != NOWHERE).collect())
}

/// The error numbers that the functions with a device return for a range.
fn numbers(allocator: &ManagedAllocator, ptr: *mut c_void, size: usize, device: i32) -> [i32; 4] {
    [
        prefetch(allocator, ptr, size, device),
        allocator.managed_advise_preferred_location(ptr, size, device),
        allocator.managed_advise_accessed_by(ptr, size, device),
        allocator.managed_unadvise_accessed_by(ptr, size, device),
    ]
}

/// The numbers are those of `cudaMemPrefetchAsync` and `cudaMemAdvise` on an H200 under driver 580:
/// 0 bytes and a null pointer come before a device that does not exist, other memory after it.
fn devices_and_pointers_have_the_same_numbers_everywhere(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let allocator = over(&machine)?;
    let managed = allocator.managed_malloc(SIZE, 0, null_mut());
    let device = backend.alloc_device(Device::FIRST.id(), 4096)?;
    // Advice by location refuses a device that does not exist as a value, by ordinal as a device.
    let advised = if backend.capabilities().locations { 1 } else { 101 };
    let unknown = [101, advised, advised, advised];
    let second = if backend.device_count()? > 1 { [0; 4] } else { unknown };
    let wrong = [99, -2, i32::MIN, i32::MAX].map(|index| (index, unknown));
    for (index, valid) in [(-1, [0; 4]), (0, [0; 4]), (1, second)].into_iter().chain(wrong) {
        let all = |ptr, size| numbers(&allocator, ptr, size, index);
        assert_eq!(all(managed, SIZE), valid, "{index}");
        assert_eq!(all(null_mut(), 4096), [1; 4], "{index}, no memory");
        let unmanaged = if valid == [0; 4] { [1; 4] } else { valid };
        for ptr in [pointer(WILD.0), pointer(device.0)] {
            assert_eq!(all(ptr, 4096), unmanaged, "{index}, {ptr:?}");
            assert_eq!(all(ptr, 0), [1; 4], "{index}, {ptr:?}, 0 bytes");
        }
        assert_eq!(all(managed, SIZE + 1), unmanaged, "{index}, past the end");
        // A driver may accept it (CONTRACT-23).
        if backend.capabilities().deterministic {
            assert_eq!(all(managed, usize::MAX), unmanaged, "{index}, past the address space");
        }
        assert_eq!(all(managed, 0), [1; 4], "{index}, 0 bytes");
    }
    for ptr in [null_mut(), pointer(WILD.0), pointer(device.0)] {
        assert_eq!(allocator.managed_advise_read_mostly(ptr, 4096, 1), 1, "{ptr:?}");
        assert_eq!(allocator.managed_unadvise_preferred_location(ptr, 4096), 1, "{ptr:?}");
        assert_eq!(last_number(), Some(1));
    }
    for on in [1, 0] {
        assert_eq!(allocator.managed_advise_read_mostly(managed, SIZE, on), 0);
        assert_eq!(read(managed, RangeAttribute::READ_MOSTLY, &**backend)?, on);
    }
    assert_eq!(allocator.managed_unadvise_preferred_location(managed, SIZE), 0);
    assert_eq!(read(managed, RangeAttribute::PREFERRED_LOCATION, &**backend)?, NOWHERE);
    free(&allocator, managed);
    // SAFETY: no work uses the memory, and it is freed once.
    unsafe { backend.free(device) }
}

fn what_cannot_be_given_is_null_and_remembered(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let allocator = over(&machine)?;
    let refused = [(0, 0, 1), (0, -1, 1), (0, 99, 101), (SIZE, 99, 101)];
    let too_much = [((64 << 20) + 1, 0, 2), (usize::MAX, 0, 2)];
    for (size, device, number) in refused.into_iter().chain(too_much) {
        assert!(allocator.managed_malloc(size, device, null_mut()).is_null(), "{size} {device}");
        assert_eq!(last_number(), Some(number), "{size} bytes for {device}");
    }
    assert_eq!(allocator.counters().allocations.total, 0);
    // A negative number names no device, as in the original: memory without advice.
    for nowhere in [-1, -2, i32::MIN] {
        let ptr = allocator.managed_malloc(SIZE, nowhere, null_mut());
        assert!(!ptr.is_null(), "{nowhere}");
        assert_eq!(read(ptr, RangeAttribute::PREFERRED_LOCATION, &**backend)?, NOWHERE);
        free(&allocator, ptr);
        assert_eq!(last_number(), None, "{nowhere}");
    }
    let smallest = allocator.managed_malloc(1, 0, null_mut());
    assert!(!smallest.is_null());
    free(&allocator, smallest);
    assert_eq!(last_number(), None);
    Ok(())
}

fn memory_for_a_device_prefers_it_and_is_mapped_by_it(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let allocator = over(&machine)?;
    let second = (backend.device_count()? > 1).then_some((1, 1, vec![1]));
    let places = [(0, 0, vec![0]), (-1, NOWHERE, vec![])];
    for (device, preferred, mapped) in places.into_iter().chain(second) {
        // The stream means nothing.
        let ptr = allocator.managed_malloc(SIZE, device, pointer(64));
        assert_eq!(read(ptr, RangeAttribute::PREFERRED_LOCATION, &**backend)?, preferred);
        assert_eq!(mapped_by(ptr, &**backend)?, mapped);
        free(&allocator, ptr);
    }
    assert_eq!(last_number(), None, "no advice was refused");
    Ok(())
}

fn prefetches_move_contents_and_are_recorded(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let allocator = over(&machine)?;
    let ptr = allocator.managed_malloc(SIZE, 0, null_mut());
    fill(span(ptr, SIZE), 8, &stream)?;
    for (device, on) in [(-1, raw(&stream)), (0, null_mut()), (-1, null_mut()), (0, raw(&stream))] {
        // SAFETY: `on` is a live stream.
        assert_eq!(unsafe { allocator.managed_prefetch(ptr, SIZE, device, on) }, 0);
        stream.synchronize()?;
        assert_eq!(read(ptr, RangeAttribute::LAST_PREFETCH_LOCATION, &**backend)?, device);
        assert!(holds(span(ptr, SIZE), 8, &stream)?);
    }
    free(&allocator, ptr);
    Ok(())
}

fn many_ranges_are_prefetched_or_none(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let allocator = over(&machine)?;
    let ptrs = [(); 3].map(|()| allocator.managed_malloc(SIZE, 0, null_mut()));
    let last = |ptr| -> Result<i32> {
        stream.synchronize()?;
        read(ptr, RangeAttribute::LAST_PREFETCH_LOCATION, &**backend)
    };
    for on in [raw(&stream), null_mut()] {
        // SAFETY: `on` is a live stream.
        let answer = |ptrs: &[*mut c_void], sizes: &[usize], device| unsafe {
            allocator.managed_prefetch_batch(ptrs, sizes, device, on)
        };
        assert_eq!(answer(&ptrs, &[SIZE; 2], -1), 1, "two sizes for three");
        assert_eq!(answer(&ptrs, &[SIZE; 3], 99), 101);
        assert_eq!(answer(&ptrs, &[SIZE + 1, 1, 1], 0), 1, "past the end");
        assert_eq!(answer(&[null_mut(), ptrs[0], ptrs[0]], &[SIZE; 3], -1), 1);
        assert_eq!(answer(&ptrs, &[0; 3], -1), 0, "nothing to do");
        assert_eq!(answer(&[], &[], -1), 0);
        assert_eq!(answer(&ptrs, &[SIZE, 0, SIZE], -1), 0);
        assert_eq!([last(ptrs[0])?, last(ptrs[2])?], [HOST; 2]);
        assert_eq!(answer(&ptrs, &[SIZE, 0, SIZE], 0), 0);
        assert_eq!([last(ptrs[0])?, last(ptrs[1])?, last(ptrs[2])?], [0, NOWHERE, 0]);
    }
    ptrs.into_iter().for_each(|ptr| free(&allocator, ptr));
    Ok(())
}

fn discards_have_numbers_with_and_without_the_call(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let allocator = over(&machine)?;
    let ptr = allocator.managed_malloc(SIZE, 0, null_mut());
    fill(span(ptr, SIZE), 1, &stream)?;
    let has = machine.capabilities().discard;
    let number = |with| if has { with } else { Code::NOT_SUPPORTED };
    let on = raw(&stream);
    // SAFETY: `on` is a live stream, and the claim writes what is discarded before it reads it.
    unsafe {
        assert_eq!(allocator.managed_discard(ptr, 100, on), 0, "no whole page");
        assert_eq!(allocator.managed_discard(ptr, 0, on), 0);
        assert_eq!(allocator.managed_discard(ptr, SIZE, null_mut()), number(1), "default stream");
        assert_eq!(allocator.managed_discard(pointer(WILD.0), SIZE, on), number(1));
        assert!(holds(span(ptr, SIZE), 1, &stream)?, "none of them discarded anything");
        assert_eq!(allocator.managed_discard(ptr, SIZE, on), number(0));
        assert_eq!(allocator.managed_discard_prefetch(ptr, SIZE, -1, on), number(0));
        let sent_to = if has { HOST } else { NOWHERE };
        stream.synchronize()?;
        assert_eq!(read(ptr, RangeAttribute::LAST_PREFETCH_LOCATION, &**backend)?, sent_to);
        assert_eq!(allocator.managed_discard_prefetch(ptr, SIZE, 99, on), 101);
        assert_eq!(allocator.managed_discard_prefetch(ptr, 0, 0, on), 0);
    }
    fill(span(ptr, SIZE), 2, &stream)?;
    assert!(holds(span(ptr, SIZE), 2, &stream)?);
    free(&allocator, ptr);
    Ok(())
}

fn what_was_not_given_or_was_taken_back_is_left_alone(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let allocator = over(&machine)?;
    free(&allocator, null_mut());
    assert_eq!(last_number(), None);
    let (ptr, kept) = (
        allocator.managed_malloc(SIZE, 0, null_mut()),
        allocator.managed_malloc(SIZE, -1, null_mut()),
    );
    let device = backend.alloc_device(Device::FIRST.id(), 4096)?;
    fill(span(kept, SIZE), 4, &stream)?;
    free(&allocator, ptr);
    assert_eq!(last_number(), None);
    let inside = pointer(span(kept, SIZE).ptr.0 + 4096);
    for foreign in [ptr, pointer(WILD.0), pointer(device.0), inside] {
        free(&allocator, foreign);
        assert_eq!(last_number(), Some(1), "{foreign:?}");
    }
    assert!(holds(span(kept, SIZE), 4, &stream)?);
    // SAFETY: the allocator has not freed the memory, no work uses it, and it is freed once.
    unsafe { backend.free(device)? };
    free(&allocator, kept);
    assert_eq!(allocator.counters().bytes.current, 0);
    Ok(())
}

fn several_threads_allocate_and_free(backend: &Arc<dyn Backend>) -> Result<()> {
    let machine = Machine::from(Arc::clone(backend));
    let allocator = over(&machine)?;
    let work = |seed: usize| -> Result<()> {
        let stream = Stream::new(&machine, Device::FIRST)?;
        let mut out: Vec<(u8, u64, usize)> = Vec::new();
        for step in 0..30_usize {
            let value = (1 + seed * 40 + step) as u8;
            let size = 1 + (seed * 7919 + step * 104_729) % (256 << 10);
            let ptr = allocator.managed_malloc(size, 0, null_mut());
            assert!(!ptr.is_null());
            fill(span(ptr, size), value, &stream)?;
            assert_eq!(prefetch(&allocator, ptr, size, -1), 0);
            out.push((value, ptr.expose_provenance() as u64, size));
            if step % 2 == 0 {
                let (value, address, size) = out.swap_remove(step % out.len());
                assert!(holds(span(pointer(address), size), value, &stream)?);
                free(&allocator, pointer(address));
            }
        }
        for (value, address, size) in out {
            assert!(holds(span(pointer(address), size), value, &stream)?);
            free(&allocator, pointer(address));
        }
        assert_eq!(last_number(), None);
        Ok(())
    };
    let answers: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).collect()
    });
    answers.into_iter().collect::<Result<()>>()?;
    let counters = allocator.counters();
    assert_eq!((counters.bytes.current, counters.allocations.total), (0, 120));
    Ok(())
}
