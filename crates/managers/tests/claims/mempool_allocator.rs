//! The five functions of a pluggable allocator: their answers, and that they never panic.
#![cfg(feature = "unified-pool")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector, sweep};
use pagewise::intercept::{Call, Intercepted, Interceptor, Operation};
use pagewise::resource::{ManagedMemoryResource, MemoryKind, MemoryResource, PinnedMemoryResource};
use pagewise::{
    BackendExt, Code, Device, DevicePtr, DriverVersion, Error, ErrorKind, Machine, RangeAttribute,
    Result, SimBackend, SimConfig, Span, Stream,
};
use pagewise_managers::mempool::{LastError, ManagedAllocator, error_number};

const MIB: usize = 1 << 20;

fn over(machine: &Machine) -> Result<ManagedAllocator> {
    ManagedAllocator::new(Arc::new(ManagedMemoryResource::direct(machine)))
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn span(ptr: *mut c_void, bytes: usize) -> Span {
    Span::new(DevicePtr(ptr.expose_provenance() as u64), bytes as u64)
}

fn prefetch(allocator: &ManagedAllocator, ptr: *mut c_void, size: usize, device: i32) -> i32 {
    // SAFETY: the null pointer is the default stream, which lives for ever.
    unsafe { allocator.managed_prefetch(ptr, size, device, null_mut()) }
}

fn free(allocator: &ManagedAllocator, ptr: *mut c_void) {
    // SAFETY: no work uses the memory.
    unsafe { allocator.managed_free(ptr, 0, 0, null_mut()) }
}

/// Every device index with every kind of pointer.
#[test]
fn numbers_are_those_of_the_runtime() -> Result<()> {
    for version in [DriverVersion::CUDA_12_0, DriverVersion::CUDA_12_9, DriverVersion::CUDA_13_0] {
        let config = SimConfig::h200().devices(2).driver_version(version);
        let machine = Machine::from(Arc::new(SimBackend::new(config)?));
        let allocator = over(&machine)?;
        let managed = allocator.managed_malloc(2 * MIB, 0, null_mut());
        let device = machine.backend().alloc_device(Device::FIRST.id(), 4096)?;
        let (null, wild, unmanaged) = (null_mut(), pointer(64), pointer(device.0));
        for (index, valid) in [(-1, 0), (0, 0), (1, 0), (99, 101), (-2, 101), (i32::MIN, 101)] {
            let all = |ptr, size| {
                [
                    prefetch(&allocator, ptr, size, index),
                    allocator.managed_advise_preferred_location(ptr, size, index),
                    allocator.managed_advise_accessed_by(ptr, size, index),
                    allocator.managed_unadvise_accessed_by(ptr, size, index),
                ]
            };
            assert_eq!(all(managed, 2 * MIB), [valid; 4], "{version}, {index}");
            let refused = if valid == 0 { 1 } else { valid };
            for ptr in [null, wild, unmanaged] {
                assert_eq!(all(ptr, 4096), [refused; 4], "{version}, {index}, {ptr:?}");
                assert_eq!(all(ptr, 0), [0; 4], "0 bytes are nothing to do");
            }
            assert_eq!(all(managed, 2 * MIB + 1), [refused; 4], "past the end");
            assert_eq!(all(managed, usize::MAX), [refused; 4], "past the address space");
        }
        assert_eq!(allocator.managed_advise_read_mostly(managed, 2 * MIB, 1), 0);
        assert_eq!(allocator.managed_unadvise_preferred_location(managed, 2 * MIB), 0);
        free(&allocator, managed);
        // SAFETY: no work uses the memory, and it is freed once.
        unsafe { machine.backend().free(device)? };
    }
    Ok(())
}

/// Calls that the five lack: many ranges at once, and discards.
#[test]
fn batches_and_discards_return_numbers_too() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let allocator = over(&machine)?;
    let made = Stream::new(&machine, Device::FIRST)?;
    let stream = pointer(made.handle().as_raw());
    let ptrs = [(); 3].map(|()| allocator.managed_malloc(2 * MIB, 0, null_mut()));
    for (on, expected) in [(stream, 0), (null_mut(), 0)] {
        // SAFETY: `on` is a live stream.
        let answer = |sizes: &[usize], device| unsafe {
            allocator.managed_prefetch_batch(&ptrs, sizes, device, on)
        };
        assert_eq!(answer(&[2 * MIB, 0, 4096], -1), expected);
        assert_eq!(answer(&[0; 3], -1), 0);
        assert_eq!(answer(&[1; 2], -1), 1, "two sizes for three");
        assert_eq!(answer(&[1; 3], 9), 101);
        assert_eq!(answer(&[3 * MIB, 1, 1], 0), 1, "past the end");
    }
    let asked = |ptr| {
        let read = RangeAttribute::LAST_PREFETCH_LOCATION;
        machine.backend().range_attribute(span(ptr, 2 * MIB), read)
    };
    assert_eq!((asked(ptrs[0]), asked(ptrs[1])), (Ok(-1), Ok(-2)));
    // SAFETY: `stream` is a live stream, and no code reads the contents.
    unsafe {
        assert_eq!(allocator.managed_discard(ptrs[0], 2 * MIB, stream), 0);
        assert_eq!(allocator.managed_discard(ptrs[0], 100, stream), 0, "no whole page");
        assert_eq!(allocator.managed_discard(ptrs[0], 2 * MIB, null_mut()), 1, "default stream");
        assert_eq!(allocator.managed_discard(pointer(64), 1 << 20, stream), 1);
        assert_eq!(allocator.managed_discard_prefetch(ptrs[1], 2 * MIB, 0, stream), 0);
        assert_eq!(allocator.managed_discard_prefetch(ptrs[1], 2 * MIB, 7, stream), 101);
    }
    assert_eq!(asked(ptrs[1]), Ok(0));
    ptrs.into_iter().for_each(|ptr| free(&allocator, ptr));
    Ok(())
}

#[test]
fn every_kind_of_error_has_a_number() {
    let kinds = [
        (ErrorKind::InvalidValue, 1),
        (ErrorKind::OutOfMemory, 2),
        (ErrorKind::InvalidDevice, 101),
        (ErrorKind::InvalidHandle, 400),
        (ErrorKind::NotReady, 600),
        (ErrorKind::IllegalAddress, 700),
        (ErrorKind::NotPermitted, 800),
        (ErrorKind::Unsupported, 801),
        (ErrorKind::LibraryMissing, 100),
        (ErrorKind::DeviceLost, 46),
        (ErrorKind::Driver, 999),
    ];
    for (kind, number) in kinds {
        assert_eq!(error_number(&Error::new("x", kind)), number, "{kind:?}");
    }
    assert_eq!(error_number(&Error::from_code("x", 4711)), 4711);
}

#[test]
fn memory_for_a_device_prefers_it_and_is_mapped_by_it() -> Result<()> {
    let machine = Machine::from(Arc::new(SimBackend::new(SimConfig::h200().devices(2))?));
    let allocator = over(&machine)?;
    let _ = LastError::take();
    for (device, preferred, mapped) in [(0, 0, [0, -2, -2]), (1, 1, [1, -2, -2]), (-1, -2, [-2; 3])]
    {
        let ptr = allocator.managed_malloc(2 * MIB, device, null_mut());
        let span = span(ptr, 2 * MIB);
        let read = machine.backend().range_attribute(span, RangeAttribute::PREFERRED_LOCATION);
        assert_eq!(read, Ok(preferred));
        let mut accessed_by = [0; 3];
        machine.backend().range_accessed_by(span, &mut accessed_by)?;
        assert_eq!(accessed_by, mapped);
        free(&allocator, ptr);
    }
    for device in [2, 99, -2] {
        assert!(allocator.managed_malloc(MIB, device, null_mut()).is_null());
        assert_eq!(LastError::take().map(|error| error.number), Some(101));
    }
    assert_eq!(allocator.counters().bytes.current, 0);
    Ok(())
}

/// Defects 1 and 2: what fails is null, or memory without the advice; either is remembered, in
/// words, until it is asked for.
#[test]
fn failures_are_null_and_remembered_and_advice_is_no_failure() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let allocator =
        ManagedAllocator::with_limit(Arc::new(ManagedMemoryResource::direct(&machine)), 64 << 20)?;
    let _ = LastError::take();
    assert!(allocator.managed_malloc(0, 0, null_mut()).is_null());
    assert_eq!(LastError::take().map(|error| error.number), Some(1));
    assert!(allocator.managed_malloc(usize::MAX, 0, null_mut()).is_null());
    let error = LastError::take().expect("kept");
    assert_eq!(error.number, 2);
    assert!(error.text.contains("limit"), "{}", error.text);
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::AllocManaged));
    assert!(allocator.managed_malloc(MIB, 0, null_mut()).is_null());
    assert_eq!(LastError::take().map(|error| error.number), Some(2));
    backend.arm(Fault::new(Code::NOT_SUPPORTED).on(Operation::Advise));
    let ptr = allocator.managed_malloc(MIB, 0, null_mut());
    assert!(!ptr.is_null(), "the memory serves without advice");
    let error = LastError::take().expect("kept");
    assert!(error.number == 801 && error.text.contains("injected"), "{}", error.text);
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::Free));
    free(&allocator, ptr);
    assert_eq!(LastError::take().map(|error| error.number), Some(700));
    assert!(LastError::take().is_none());
    std::thread::scope(|scope| {
        prefetch(&allocator, null_mut(), 1, 0);
        let theirs = scope.spawn(LastError::take).join();
        assert!(theirs.is_ok_and(|error| error.is_none()), "each thread has its own");
    });
    assert!(LastError::take().is_some());
    Ok(())
}

/// Devices that refuse advice and prefetch (profile `wsl`) still have managed memory.
#[test]
fn memory_serves_where_nothing_can_be_advised_or_prefetched() -> Result<()> {
    let config = SimConfig::profile("wsl").expect("shipped");
    let machine = Machine::from(Arc::new(SimBackend::new(config)?));
    let allocator = over(&machine)?;
    let _ = LastError::take();
    let ptr = allocator.managed_malloc(2 * MIB, 0, null_mut());
    assert!(!ptr.is_null());
    assert_eq!(prefetch(&allocator, ptr, 2 * MIB, 0), 101);
    assert_eq!(LastError::take().map(|error| error.number), Some(101));
    free(&allocator, ptr);
    assert_eq!(LastError::take(), None);
    Ok(())
}

#[test]
fn what_was_not_given_or_was_taken_back_is_left_alone() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let allocator = over(&machine)?;
    let ptr = allocator.managed_malloc(MIB, 0, null_mut());
    let theirs = machine.backend().alloc(4096)?;
    let _ = (LastError::take(), backend.take_calls());
    free(&allocator, null_mut());
    assert_eq!((LastError::take(), backend.take_calls()), (None, vec![]));
    free(&allocator, ptr);
    for foreign in [ptr, pointer(theirs.ptr.0), pointer(64)] {
        let _ = backend.take_calls();
        free(&allocator, foreign);
        assert_eq!(backend.take_calls(), [], "the driver is not asked");
        assert_eq!(LastError::take().map(|error| error.number), Some(1));
    }
    // SAFETY: no work uses the memory, and it is freed once.
    unsafe { machine.backend().free(theirs.ptr) }
}

/// A back end that panics.
#[derive(Debug)]
struct Panics;

impl Interceptor for Panics {
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let quiet = [Operation::DeviceCount, Operation::StreamSynchronize];
        assert!(quiet.contains(&call.operation()), "on purpose");
        make()
    }
}

#[test]
fn nothing_unwinds() -> Result<()> {
    let machine = Machine::from(Arc::new(Intercepted::new(pagewise::sim()?, Panics)));
    let allocator = over(&machine)?;
    assert!(allocator.managed_malloc(MIB, 0, null_mut()).is_null());
    assert_eq!(LastError::take().map(|error| error.number), Some(999));
    let wild = pointer(4096);
    assert_eq!(prefetch(&allocator, wild, 1, 0), 999);
    assert_eq!(allocator.managed_advise_preferred_location(wild, 1, -1), 999);
    assert_eq!(allocator.managed_advise_accessed_by(wild, 1, -1), 999);
    assert!(LastError::take().is_some_and(|error| error.text.contains("panicked")));
    Ok(())
}

/// A resource with another's memory, which panics when it takes it back.
#[derive(Debug)]
struct Keeps(ManagedMemoryResource);

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time.
// The inner resource gives it, and this one never gives it a second time.
unsafe impl MemoryResource for Keeps {
    fn machine(&self) -> &Machine {
        self.0.machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        self.0.memory_kind()
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        self.0.allocate(bytes, stream)
    }

    unsafe fn deallocate(&self, _: DevicePtr, _: u64, _: &Stream) -> Result<()> {
        panic!("on purpose")
    }
}

#[test]
fn a_resource_that_panics_is_a_failure_too() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let keeps = Keeps(ManagedMemoryResource::direct(&machine));
    let allocator = ManagedAllocator::new(Arc::new(keeps))?;
    let ptr = allocator.managed_malloc(MIB, 0, null_mut());
    let _ = LastError::take();
    free(&allocator, ptr);
    assert_eq!(LastError::take().map(|error| error.number), Some(999));
    free(&allocator, ptr);
    assert_eq!(LastError::take().map(|error| error.number), Some(1), "not twice");
    let pinned = Arc::new(PinnedMemoryResource::direct(&machine));
    assert_eq!(ManagedAllocator::new(pinned).unwrap_err().kind(), ErrorKind::Unsupported);
    Ok(())
}

/// Each call of the driver fails once: memory that was given is given back, once.
#[test]
fn whatever_fails_nothing_leaks_and_nothing_is_freed_twice() -> Result<()> {
    let sites = sweep(Code::OUT_OF_MEMORY, pagewise::sim, |backend, _| {
        let machine = Machine::from(backend);
        let allocator = over(&machine)?;
        backend.watch(|| {
            let first = allocator.managed_malloc(MIB, 0, null_mut());
            let second = allocator.managed_malloc(3 * MIB, -1, null_mut());
            prefetch(&allocator, second, 3 * MIB, 0);
            free(&allocator, first);
            free(&allocator, second);
            free(&allocator, first);
        });
        let counters = allocator.counters();
        assert_eq!((counters.bytes.current, counters.allocations.current), (0, 0));
        let calls = backend.take_calls();
        let count = |what| calls.iter().filter(|call| call.operation() == what).count();
        let failed = backend.failed();
        let refused = failed.iter().filter(|c| c.operation() == Operation::AllocManaged).count();
        assert_eq!(count(Operation::Free), count(Operation::AllocManaged) - refused);
        Ok(())
    })?;
    assert!(sites >= 10, "{sites}");
    Ok(())
}

#[test]
fn several_threads_allocate_and_free() -> Result<()> {
    let sim = pagewise::sim()?;
    let machine = Machine::from(&sim);
    let allocator = over(&machine)?;
    std::thread::scope(|scope| {
        for seed in 1..5_usize {
            let allocator = &allocator;
            scope.spawn(move || {
                let mut out: Vec<usize> = Vec::new();
                for step in 0..200 {
                    let size = 1 + (seed * 7919 + step * 104_729) % MIB;
                    let ptr = allocator.managed_malloc(size, 0, null_mut());
                    assert!(!ptr.is_null());
                    assert_eq!(prefetch(allocator, ptr, size, -1), 0);
                    out.push(ptr.expose_provenance());
                    if step % 2 == 0 {
                        free(allocator, pointer(out.swap_remove(step % out.len()) as u64));
                    }
                }
                for address in out {
                    free(allocator, pointer(address as u64));
                }
                assert_eq!(LastError::take(), None);
            });
        }
    });
    assert_eq!(allocator.counters().bytes.current, 0);
    assert_eq!(allocator.counters().allocations.total, 800);
    Ok(())
}
