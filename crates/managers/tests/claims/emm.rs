//! External memory managers: the calls that they make, and the effect of failures. The claims of
//! `tests/tests/emm.rs` are about every back end.
#![cfg(feature = "emm")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::mock::MockBackend;
use pagewise::resource::{
    DeviceMemoryResource, Limit, ManagedMemoryResource, PinnedMemoryResource, Statistics,
};
use pagewise::{
    AttachFlags, Backend, Capabilities, Code, Device, DevicePtr, DriverVersion, ErrorKind,
    HostAllocFlags, Machine, MemoryInfo, Place, Result, SimBackend, Span, Stream,
};
use pagewise_managers::emm::{
    EmmOptions, ExternalMemoryManager, GiveBack, HostOnlyManager, HostOptions, ManagedOptions,
    MemoryPointer, PendingLimits, PointerKind, ResourceManager, StreamOrderedManager,
};

const FIRST: Device = Device::FIRST;
const MAPPED: HostOptions = HostOptions { mapped: true, portable: false, write_combined: false };

type Injected = Arc<FaultInjector<Arc<SimBackend>>>;

fn injected() -> Result<(Injected, Machine)> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    Ok((backend, machine))
}

fn direct(machine: &Machine) -> Result<ResourceManager> {
    let manager = ResourceManager::direct(machine, FIRST, EmmOptions::default())?;
    manager.initialize()?;
    Ok(manager)
}

fn times(backend: &Injected, operation: Operation) -> usize {
    backend.take_calls().iter().filter(|call| call.operation() == operation).count()
}

// ---- what it gives ----------------------------------------------------------------------------

/// Two arrays of 64-bit integers: sizes come through, and each finalizer runs when its array goes.
#[test]
fn memory_is_of_the_size_asked_for_and_goes_with_its_pointer() -> Result<()> {
    let (backend, machine) = injected()?;
    let manager = direct(&machine)?;
    let (ten, five) = (manager.memalloc(80)?, manager.memalloc(40)?);
    assert_eq!((ten.bytes(), five.bytes(), manager.base().count()), (80, 40, 2));
    assert_eq!(ten.kind(), PointerKind::AutoFree);
    drop(ten);
    manager.reset()?;
    assert_eq!((manager.base().count(), manager.base().used_bytes()), (1, 40));
    assert!(!five.is_freed());
    drop(five);
    manager.reset()?;
    assert_eq!((manager.base().count(), times(&backend, Operation::Free)), (0, 2));
    Ok(())
}

#[test]
fn nothing_is_given_before_it_is_initialised_and_no_0_bytes_after() -> Result<()> {
    let (backend, machine) = injected()?;
    let manager = ResourceManager::direct(&machine, FIRST, EmmOptions::default())?;
    assert_eq!(manager.reset()?, [], "a reset may come first");
    let stream = Stream::legacy_default(&machine);
    let refused = || {
        [
            manager.memalloc(8),
            manager.memhostalloc(8, MAPPED),
            manager.memallocmanaged(8, true),
            manager.memalloc_on(8, &stream),
        ]
    };
    for answer in refused() {
        assert!(answer.unwrap_err().to_string().contains("initialise"));
    }
    let zero =
        || [manager.memalloc(0), manager.memhostalloc(0, MAPPED), manager.memallocmanaged(0, true)];
    let _ = backend.take_calls();
    manager.initialize()?;
    for answer in zero() {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidValue);
    }
    for _ in 0..5 {
        manager.initialize()?;
    }
    let calls: Vec<_> = backend.take_calls().iter().map(|call| call.operation()).collect();
    assert_eq!(calls, [Operation::MemoryInfo], "once, however often the context is entered");
    assert!(manager.base().deallocations().capacity_bytes().is_some());
    Ok(())
}

/// The flags that an interface of arrays drops on the way.
#[test]
fn every_flag_reaches_the_driver() -> Result<()> {
    let mut mock = MockBackend::new();
    mock.expect_capabilities()
        .returning(|| Capabilities::of_driver("mock", DriverVersion::CUDA_13_0));
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_memory_info()
        .returning(|_| Ok(MemoryInfo { free_bytes: 32 << 20, total_bytes: 64 << 20 }));
    let all =
        HostAllocFlags::DEVICE_MAP | HostAllocFlags::PORTABLE | HostAllocFlags::WRITE_COMBINED;
    for (address, flags) in [(1, all), (2, HostAllocFlags::empty()), (3, HostAllocFlags::PORTABLE)]
    {
        mock.expect_alloc_pinned()
            .withf(move |bytes, given| *bytes == 100 && *given == flags)
            .times(1)
            .returning(move |_, _| Ok(DevicePtr(address << 12)));
    }
    for (address, flags) in [(4, AttachFlags::GLOBAL), (5, AttachFlags::HOST)] {
        mock.expect_alloc_managed()
            .withf(move |_, given| *given == flags)
            .times(1)
            .returning(move |_, _| Ok(DevicePtr(address << 12)));
    }
    mock.expect_pointer_attribute().returning(|ptr, _| Ok(ptr.0));
    mock.expect_free_pinned().times(3).returning(|_| Ok(()));
    mock.expect_free().times(2).returning(|_| Ok(()));
    let machine = Machine::from(Arc::new(mock));
    let manager = direct(&machine)?;
    let options = HostOptions { mapped: true, portable: true, write_combined: true };
    let mapped = manager.memhostalloc(100, options)?;
    let pinned = manager.memhostalloc(100, HostOptions::default())?;
    let portable =
        manager.memhostalloc(100, HostOptions { mapped: false, portable: true, ..MAPPED })?;
    let kinds = [mapped.kind(), pinned.kind(), portable.kind()];
    assert_eq!(kinds, [PointerKind::Mapped, PointerKind::Pinned, PointerKind::Pinned]);
    let managed = [manager.memallocmanaged(8, true)?, manager.memallocmanaged(8, false)?];
    assert!(managed.iter().all(|memory| memory.kind() == PointerKind::Managed));
    let info = manager.get_memory_info()?;
    assert_eq!((info.free_bytes, info.total_bytes), (32 << 20, 64 << 20));
    assert_eq!(manager.base().count(), 5, "pinned memory is counted too");
    Ok(())
}

/// A manager over a pool, with managed memory that goes past the pool.
#[test]
fn managed_memory_comes_from_the_resource_if_that_gives_it() -> Result<()> {
    let (_, machine) = injected()?;
    let options = EmmOptions::default();
    let managed = Arc::new(Statistics::new(ManagedMemoryResource::new_pool(&machine, None)?));
    let manager = ResourceManager::over(managed.clone(), FIRST, options)?;
    manager.initialize()?;
    let held = [manager.memalloc(100)?, manager.memallocmanaged(100, true)?];
    assert_eq!(managed.counters().bytes.current, 200);
    assert!(held.iter().all(|memory| memory.kind() == PointerKind::Managed));
    let device = Arc::new(Statistics::new(DeviceMemoryResource::current_pool(&machine, FIRST)?));
    let manager = ResourceManager::over(device.clone(), FIRST, options)?;
    manager.initialize()?;
    let held = [manager.memalloc(100)?, manager.memallocmanaged(100, true)?];
    assert_eq!(device.counters().bytes.current, 100, "it has no managed memory");
    assert_eq!(held.map(|m| m.kind()), [PointerKind::AutoFree, PointerKind::Managed]);
    let pinned = Arc::new(PinnedMemoryResource::direct(&machine));
    let error = ResourceManager::over(pinned, FIRST, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    Ok(())
}

#[test]
fn memory_in_stream_order_is_freed_in_it_and_failed_advice_leaves_none() -> Result<()> {
    let (backend, machine) = injected()?;
    let pool = Arc::new(DeviceMemoryResource::current_pool(&machine, FIRST)?);
    let manager = ResourceManager::over(pool, FIRST, EmmOptions::default())?;
    manager.initialize()?;
    let stream = Stream::new(&machine, FIRST)?;
    let deferred = manager.defer_cleanup();
    drop(manager.memalloc_on(4096, &stream)?);
    assert_eq!(times(&backend, Operation::FreeAsync), 1, "in the stream's order, not later");
    deferred.end()?;
    let options = ManagedOptions {
        preferred_location: Some(Place::HOST),
        accessed_by: vec![FIRST.into()],
        read_mostly: true,
    };
    let _ = backend.take_calls();
    let nowhere = ManagedOptions { accessed_by: vec![Device::new(9)?.into()], ..options.clone() };
    let error = manager.memallocmanaged_with(8, &nowhere).unwrap_err();
    assert_eq!((error.kind(), backend.take_calls().len()), (ErrorKind::InvalidDevice, 0));
    backend.arm(Fault::new(Code::NOT_SUPPORTED).on(Operation::Advise).nth(1));
    assert!(manager.memallocmanaged_with(8, &options).is_err());
    manager.reset()?;
    assert_eq!(manager.base().count(), 0, "what could not be advised is gone");
    Ok(())
}

// ---- without memory ---------------------------------------------------------------------------

/// Unmapped pinned memory is tried again there, too.
#[test]
fn without_memory_what_waits_is_freed_and_it_is_tried_again() -> Result<()> {
    type Give = fn(&ResourceManager) -> Result<MemoryPointer>;
    let kinds: [(Operation, Give); 4] = [
        (Operation::AllocDevice, |manager| manager.memalloc(4096)),
        (Operation::AllocPinned, |manager| manager.memhostalloc(4096, MAPPED)),
        (Operation::AllocPinned, |manager| manager.memhostalloc(4096, HostOptions::default())),
        (Operation::AllocManaged, |manager| manager.memallocmanaged(4096, false)),
    ];
    for (operation, give) in kinds {
        let (backend, machine) = injected()?;
        let manager = direct(&machine)?;
        let fails = || backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(operation));
        let _ = backend.take_calls();
        fails();
        assert!(give(&manager).is_err());
        assert_eq!(backend.take_calls().len(), 1, "nothing waits: it is not tried in vain");
        drop(give(&manager)?);
        fails();
        assert!(give(&manager).is_ok(), "{operation}");
        manager.reset()?;
        drop(give(&manager)?);
        let deferred = manager.defer_cleanup();
        fails();
        let error = give(&manager).unwrap_err();
        assert!(error.to_string().contains("1 deallocations of"), "{error}");
        deferred.end()?;
        assert!(give(&manager).is_ok());
        backend.arm(Fault::new(Code::INVALID_VALUE).on(operation));
        let _ = backend.take_calls();
        assert_eq!(give(&manager).unwrap_err().code(), Some(Code::INVALID_VALUE));
        assert_eq!(backend.take_calls().len(), 1, "other errors are not tried again");
    }
    Ok(())
}

#[test]
fn a_limit_of_the_resource_frees_what_waits_too() -> Result<()> {
    let (_, machine) = injected()?;
    let limited = Limit::new(DeviceMemoryResource::direct(&machine, FIRST)?, 100);
    let manager = ResourceManager::over(Arc::new(limited), FIRST, EmmOptions::default())?;
    manager.initialize()?;
    drop(manager.memalloc(60)?);
    assert!(manager.memalloc(60).is_ok(), "the first was freed for it");
    Ok(())
}

/// The limit of third parties' waiting bytes was 0, because their capacity was not set.
#[test]
fn a_fifth_of_the_device_s_memory_may_wait_by_default() -> Result<()> {
    let (backend, machine) = injected()?;
    let host = HostOnlyManager::new(&machine, FIRST, EmmOptions::default())?;
    assert_eq!(host.deallocations().capacity_bytes(), None);
    host.initialize()?;
    let total = backend.memory_info(FIRST.id())?.total_bytes;
    assert_eq!(host.deallocations().capacity_bytes(), Some(total));
    let made_up = AtomicU64::new(1);
    let give = |bytes| {
        let next = || Ok(DevicePtr(made_up.fetch_add(1, Ordering::Relaxed) << 40));
        host.manage("memalloc", PointerKind::Memory, bytes, GiveBack::Later, next, |_| Ok(()))
    };
    drop(give(total / 10)?);
    assert_eq!(host.deallocations().bytes(), total / 10, "a tenth may wait");
    drop(give(total / 5)?);
    assert_eq!(host.deallocations().count(), 0, "more than a fifth may not");
    Ok(())
}

// ---- leaks and errors -------------------------------------------------------------------------

/// At the end of a process pointers go after their manager.
#[test]
fn memory_may_outlive_its_manager() -> Result<()> {
    let (backend, machine) = injected()?;
    let manager = direct(&machine)?;
    let memory = manager.memalloc(100)?;
    let deferred = manager.defer_cleanup();
    drop(manager);
    drop(memory);
    assert_eq!(times(&backend, Operation::Free), 0, "cleanup is still deferred");
    drop(deferred);
    assert_eq!(times(&backend, Operation::Free), 1, "the last deferral has ended");
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}

#[test]
fn errors_name_the_address_and_the_size() -> Result<()> {
    let (backend, machine) = injected()?;
    let none = PendingLimits { count_max: 0, ..PendingLimits::default() };
    let options = EmmOptions { pending: none, ..EmmOptions::default() };
    let manager = ResourceManager::direct(&machine, FIRST, options)?;
    manager.initialize()?;
    let memory = manager.memalloc(100)?;
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::Free));
    let error = memory.free().unwrap_err();
    assert_eq!((error.code(), error.span()), (Some(Code::ILLEGAL_ADDRESS), Some(memory.span())));
    let error = memory.free().unwrap_err();
    assert_eq!((error.kind(), error.span()), (ErrorKind::InvalidValue, Some(memory.span())));
    assert!(error.to_string().contains("freed before"), "{error}");
    assert_eq!(manager.base().used_bytes(), 0, "it counts as given back");
    Ok(())
}

#[test]
fn an_address_that_is_out_is_not_given_again() -> Result<()> {
    let (_, machine) = injected()?;
    let host = HostOnlyManager::new(&machine, FIRST, EmmOptions::default())?;
    host.initialize()?;
    let released = Arc::new(AtomicU64::new(0));
    let give = || {
        let released = Arc::clone(&released);
        let same = || Ok(DevicePtr(4096));
        host.manage("memalloc", PointerKind::Memory, 8, GiveBack::AtOnce, same, move |_| {
            released.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    };
    let first = give()?;
    let error = give().unwrap_err();
    assert!(error.to_string().contains("still out"), "{error}");
    assert_eq!((host.count(), host.used_bytes(), released.load(Ordering::Relaxed)), (1, 8, 0));
    drop(first);
    drop(give()?);
    assert_eq!(released.load(Ordering::Relaxed), 2);
    Ok(())
}

// ---- failures ---------------------------------------------------------------------------------

/// Memory of all kinds from several threads, with deferrals, resets and failures at random.
#[test]
fn several_threads_with_failures_at_random_lose_nothing() -> Result<()> {
    let (backend, machine) = injected()?;
    let free_bytes = backend.memory_info(FIRST.id())?.free_bytes;
    let manager = direct(&machine)?;
    for operation in [Operation::AllocDevice, Operation::AllocManaged, Operation::AllocPinned] {
        backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(operation).seeded(7, 100));
    }
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let manager = &manager;
            scope.spawn(move || {
                let mut kept = Vec::new();
                for step in 0..300_u64 {
                    let bytes = 1 + (seed * 7919 + step * 104_729) % 100_000;
                    let memory = match step % 3 {
                        0 => manager.memalloc(bytes),
                        1 => manager.memhostalloc(bytes, MAPPED),
                        _ => manager.memallocmanaged(bytes, true),
                    };
                    let deferred = (step % 5 == seed).then(|| manager.defer_cleanup());
                    kept.extend(memory);
                    if step % 2 == 1 && !kept.is_empty() {
                        drop(kept.swap_remove(step as usize % kept.len()));
                    }
                    if step % 50 == 0 {
                        manager.reset().expect("nothing fails to be given back");
                    }
                    drop(deferred);
                }
            });
        }
    });
    backend.disarm();
    assert_eq!(manager.reset()?, [], "every thread has dropped what it had");
    assert_eq!((manager.base().used_bytes(), manager.base().count()), (0, 0));
    assert_eq!(machine.failures_on_drop(), 0);
    assert_eq!(backend.memory_info(FIRST.id())?.free_bytes, free_bytes);
    let calls = backend.take_calls();
    let count = |what| calls.iter().filter(|call| call.operation() == what).count();
    let failed = |what| backend.failed().iter().filter(|call| call.operation() == what).count();
    let gave = |what| count(what) - failed(what);
    let frees = gave(Operation::AllocDevice) + gave(Operation::AllocManaged);
    assert_eq!(count(Operation::Free), frees);
    assert_eq!(count(Operation::FreePinned), gave(Operation::AllocPinned));
    assert!(backend.failed().len() > 50);
    Ok(())
}

#[test]
fn failed_page_locking_lets_the_owner_go_and_failed_unlocking_keeps_it() -> Result<()> {
    let (backend, machine) = injected()?;
    let manager = direct(&machine)?;
    let owner = Arc::new(vec![0_u8; 8192]);
    let span = Span::new(DevicePtr(owner.as_ptr().expose_provenance() as u64), 8192);
    // SAFETY: `mempin` asks that the memory lives as long as its owner is kept; the owner here is
    // the memory's.
    let pin = || unsafe { manager.mempin(owner.clone(), span, true) };
    for code in [Code::OUT_OF_MEMORY, Code::INVALID_VALUE] {
        backend.arm(Fault::new(code).on(Operation::HostRegister));
        assert_eq!(pin().unwrap_err().code(), Some(code));
        assert_eq!((Arc::strong_count(&owner), manager.base().used_bytes()), (1, 0));
    }
    let pinned = pin()?;
    backend.arm(Fault::new(Code::ILLEGAL_ADDRESS).on(Operation::HostUnregister));
    assert_eq!(pinned.free().unwrap_err().span(), Some(span));
    assert_eq!(manager.base().count(), 0, "it counts as given back");
    assert_eq!(Arc::strong_count(&owner), 2, "the driver may still use it: it is never freed");
    Ok(())
}
