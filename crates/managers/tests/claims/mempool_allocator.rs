//! The five functions of a pluggable allocator: failures are remembered, and nothing unwinds. The
//! claims of `tests/tests/mempool_allocator.rs` are about every back end.
#![cfg(feature = "unified-pool")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector, Sweep};
use pagewise::intercept::{Call, Intercepted, Interceptor, Operation};
use pagewise::resource::{ManagedMemoryResource, MemoryKind, MemoryResource, PinnedMemoryResource};
use pagewise::{
    BackendExt, Code, DevicePtr, Error, ErrorKind, Machine, Result, SimBackend, SimConfig, Stream,
};
use pagewise_managers::mempool::{LastError, ManagedAllocator, error_number};

const MIB: usize = 1 << 20;

fn over(machine: &Machine) -> Result<ManagedAllocator> {
    ManagedAllocator::new(Arc::new(ManagedMemoryResource::direct(machine)))
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn prefetch(allocator: &ManagedAllocator, ptr: *mut c_void, size: usize, device: i32) -> i32 {
    // SAFETY: the null pointer is the default stream, which lives for ever.
    unsafe { allocator.managed_prefetch(ptr, size, device, null_mut()) }
}

fn free(allocator: &ManagedAllocator, ptr: *mut c_void) {
    // SAFETY: no work uses the memory.
    unsafe { allocator.managed_free(ptr, 0, 0, null_mut()) }
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

/// Defects 1 and 2: what fails is null, or memory without the advice; either is remembered, in
/// words, until it is asked for.
#[test]
fn failures_are_null_and_remembered_and_advice_is_no_failure() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let allocator =
        ManagedAllocator::with_limit(Arc::new(ManagedMemoryResource::direct(&machine)), 64 << 20)?;
    assert!(allocator.managed_malloc(usize::MAX, 0, null_mut()).is_null());
    let error = LastError::take().expect("kept");
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
fn what_was_not_given_is_refused_without_asking_the_driver() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let allocator = over(&machine)?;
    let ptr = allocator.managed_malloc(MIB, 0, null_mut());
    let theirs = machine.backend().alloc(4096)?;
    free(&allocator, ptr);
    let _ = backend.take_calls();
    for foreign in [null_mut(), ptr, pointer(theirs.ptr.0), pointer(64)] {
        free(&allocator, foreign);
        assert_eq!(backend.take_calls(), [], "{foreign:?}");
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
    let every_call = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
    let swept = every_call.run(pagewise::sim, |backend, _| {
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
    assert!(swept.calls >= 10, "{swept}");
    Ok(())
}
