//! Unified pools: the calls that they make, and the effect of failures. The claims of
//! `tests/tests/mempool_pools.rs` are about every back end.
#![cfg(feature = "unified-pool")]

use std::collections::BTreeSet;
use std::sync::Arc;

use pagewise::inject::{Fault, Sweep};
use pagewise::intercept::Operation;
use pagewise::mock::MockBackend;
use pagewise::resource::{Failing, ManagedMemoryResource, PinnedMemoryResource};
use pagewise::{
    BackendExt, Capabilities, Code, Device, DeviceAttribute, DevicePtr, DriverVersion, ErrorKind,
    Machine, Place, Result, SimBackend, SimConfig, Stream, observe,
};
use pagewise_managers::mempool::{
    MempoolOptions, Module, ModuleOptions, Tensor, UnifiedMempool,
    advise_managed_module_parameters_accessed_by, check_allocator_configuration,
    create_unified_mempool, device_index, discard_managed_module_parameters, expandable_segments,
    is_unified_memory_unsupported, prefetch_managed_module_parameters, prefetch_managed_tensor,
};
use proptest::prelude::*;

use crate::mempool_common::{FIRST, MIB, PAGE, bytes, host_sum, injected, operations, write};

// ---- the pool ---------------------------------------------------------------------------------

#[test]
fn a_pool_says_why_there_can_be_none() -> Result<()> {
    let none = Machine::from(Arc::new(SimBackend::new(SimConfig::h200().devices(0))?));
    let error = create_unified_mempool(&none).unwrap_err();
    assert!(is_unified_memory_unsupported(&error) && error.to_string().contains("no device"));
    let (backend, machine, _) = injected(DriverVersion::CUDA_13_0)?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::DeviceAttribute));
    assert!(!is_unified_memory_unsupported(&create_unified_mempool(&machine).unwrap_err()));
    let pinned = Arc::new(PinnedMemoryResource::direct(&machine));
    let error = UnifiedMempool::over(pinned, MempoolOptions::default()).unwrap_err();
    assert!(is_unified_memory_unsupported(&error) && error.to_string().contains("Pinned"));
    let nowhere =
        MempoolOptions { preferred_location: Some(device_index(7)?), ..MempoolOptions::default() };
    let error = UnifiedMempool::with_options(&machine, nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidDevice);
    Ok(())
}

/// Each device is asked, not the first alone.
#[test]
fn a_pool_needs_managed_memory_on_every_device() {
    for without in [0, 1, 2] {
        let mut mock = MockBackend::new();
        let version = DriverVersion::CUDA_13_0;
        mock.expect_capabilities().return_const(Capabilities::of_driver("mock", version));
        mock.expect_device_count().returning(|| Ok(3));
        mock.expect_device_attribute().returning(move |device, attribute| {
            let managed = attribute != DeviceAttribute::MANAGED_MEMORY || device.0 != without;
            Ok(i32::from(managed))
        });
        let error = create_unified_mempool(Machine::from(Arc::new(mock))).unwrap_err();
        assert!(is_unified_memory_unsupported(&error), "{error}");
        let says = format!("device {without} has no managed memory");
        assert!(error.to_string().contains(&says), "{error}");
    }
}

#[test]
fn expandable_segments_are_found_under_both_names() {
    for on in ["expandable_segments:True", "a:1, EXPANDABLE_SEGMENTS : true ,b:2"] {
        assert!(expandable_segments(on), "{on}");
        for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
            let of = |asked: &str| (asked == name).then(|| on.to_owned());
            let error = check_allocator_configuration(of).unwrap_err();
            assert!(is_unified_memory_unsupported(&error));
            assert!(error.to_string().contains(name), "{error}");
        }
    }
    for off in ["", "expandable_segments", "expandable_segments:False", "expandable_segments:truer"]
    {
        assert!(!expandable_segments(off), "{off}");
        assert!(check_allocator_configuration(|_| Some(off.to_owned())).is_ok());
    }
    assert!(check_allocator_configuration(|_| None).is_ok());
}

#[test]
fn advice_at_creation_that_fails_leaves_no_tensor() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let options = MempoolOptions {
        preferred_location: Some(FIRST),
        accessed_by: vec![FIRST],
        ..MempoolOptions::default()
    };
    let direct = Arc::new(ManagedMemoryResource::direct(&machine));
    let pool = UnifiedMempool::over(direct, options.clone())?;
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::Advise).nth(1));
    assert!(pool.tensor("t", bytes(2 * MIB), &stream).is_err());
    assert_eq!(pool.counters().allocations.current, 0, "it was given back");
    let ordered = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    let error = UnifiedMempool::over(ordered, options)?.tensor("v", bytes(8), &stream).unwrap_err();
    assert_eq!(error.code(), Some(Code::NOT_SUPPORTED), "pool memory takes no advice");
    Ok(())
}

/// A pool with something to keep and something to lose, both on the device.
fn filled(machine: &Machine, stream: &Stream) -> Result<(UnifiedMempool, [Tensor; 3])> {
    let pool = create_unified_mempool(machine)?;
    let tensors = [
        pool.tensor("weights", bytes(8 * MIB), stream)?,
        pool.tensor("cache", bytes(8 * MIB + 100), stream)?,
        pool.tensor("state", bytes(10_000), stream)?,
    ];
    for tensor in &tensors {
        write(machine, tensor, 5, stream)?;
    }
    // SAFETY: the contents of a disposable tensor may be lost; the tests write this one after a
    // suspension before they read it.
    unsafe { tensors[1].set_disposable(true)? };
    Ok((pool, tensors))
}

/// Defect 9: suspending does nothing there. The claim `a_suspended_pool_comes_back_with_what_was_kept`
/// is about contents, on every back end; this one is about calls and faults.
#[test]
fn a_pool_goes_away_and_comes_back_in_one_call_each() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let (pool, [_weights, cache, _state]) = filled(&machine, &stream)?;
    let _ = backend.take_calls();
    pool.suspend(Place::HOST, &stream)?;
    let made = [Operation::PrefetchBatch, Operation::StreamSynchronize, Operation::DiscardBatch];
    assert_eq!(operations(&backend)[..3], made);
    let (back, seen) = observe(&machine, || pool.resume(Device::FIRST, &stream))?;
    assert_eq!(operations(&backend)[1..], [Operation::PrefetchBatch, Operation::EventsSince]);
    assert_eq!(back?.unique_bytes, 16 * MIB + 10_100);
    assert_eq!(seen.counters.migrated_bytes(), 8 * MIB + 3 * PAGE, "what was lost is not copied");
    let (_, seen) = observe(&machine, || write(&machine, &cache, 6, &stream))?;
    assert_eq!(seen.counters.faults(), 0, "and is there all the same");
    Ok(())
}

#[test]
fn a_suspension_is_refused_before_anything_is_done() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let (pool, tensors) = filled(&machine, &stream)?;
    let _ = backend.take_calls();
    let (_, _, theirs) = injected(DriverVersion::CUDA_13_0)?;
    let default = Stream::legacy_default(&machine);
    assert!(pool.suspend(Place::HOST, &theirs).is_err());
    assert!(pool.suspend(device_index(3)?, &stream).is_err());
    assert!(pool.suspend(Place::HOST, &default).is_err(), "it takes no discards");
    assert!(pool.resume(FIRST, &stream).is_err(), "it is active");
    assert_eq!(operations(&backend), []);
    // SAFETY: only `true` asks for anything: a tensor that is not disposable keeps its contents.
    unsafe { tensors[1].set_disposable(false)? };
    assert!(pool.suspend(Place::HOST, &default).is_ok(), "nothing to discard");
    pool.resume(FIRST, &stream)?;
    let foreign = Tensor::foreign("f", &machine, DevicePtr(4096), bytes(1))?;
    // SAFETY: the pool refuses a tensor that is not its own, so nothing becomes disposable.
    assert!(unsafe { foreign.set_disposable(true) }.is_err());
    Ok(())
}

/// A discard of a suspension must not be in flight when another stream brings the memory back.
#[test]
fn a_move_comes_after_the_one_before_on_whatever_stream() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    let other = Stream::new(&machine, Device::FIRST)?;
    let (pool, tensors) = filled(&machine, &stream)?;
    // From here on the other stream has waited for the memory to come.
    for tensor in &tensors {
        prefetch_managed_tensor(tensor, FIRST, &other)?;
    }
    let waits = || {
        let calls = operations(&backend);
        calls.iter().filter(|&&call| call == Operation::StreamWaitEvent).count()
    };
    pool.suspend(Place::HOST, &stream)?;
    let _ = waits();
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::StreamWaitEvent));
    assert!(pool.resume(FIRST, &other).is_err());
    assert!(!operations(&backend).contains(&Operation::PrefetchBatch) && pool.is_suspended());
    pool.resume(FIRST, &other)?;
    assert_eq!(waits(), 1, "it waits for the suspension");
    pool.suspend(Place::HOST, &stream)?;
    assert_eq!(waits(), 1, "and the next suspension for it");
    pool.resume(FIRST, &stream)?;
    assert_eq!(waits(), 0, "a stream need not wait for itself");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Disposable storage beside storage to keep, in pages that both are in: all pages with
    /// something to keep go away and come back by copies, which says that they were not discarded,
    /// and no others do.
    #[test]
    fn a_page_that_is_shared_with_something_to_keep_is_not_discarded(
        sizes in prop::collection::vec((1_u64..30_000, prop::bool::weighted(0.7)), 1..40),
    ) {
        let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
        let pool = create_unified_mempool(&machine)?;
        let mut tensors = Vec::new();
        for (n, &(size, disposable)) in (0..).zip(&sizes) {
            let tensor = pool.tensor(&format!("t{n}"), bytes(size), &stream)?;
            write(&machine, &tensor, n, &stream)?;
            // SAFETY: the contents of a disposable tensor may be lost; the tests do not read them
            // again.
            unsafe { tensor.set_disposable(disposable)? };
            tensors.push(tensor);
        }
        let pages = |disposable: bool| -> BTreeSet<u64> {
            let those = tensors.iter().zip(&sizes).filter(|(_, size)| size.1 == disposable);
            those.flat_map(|(tensor, _)| tensor.span().pages_outward()).collect()
        };
        let (kept, lost) = (pages(false), pages(true));
        let (away, seen) = observe(&machine, || pool.suspend(Place::HOST, &stream))?;
        let away = away?;
        prop_assert_eq!(away.moved.page_bytes, kept.len() as u64 * PAGE);
        prop_assert_eq!(seen.counters.migrated_bytes(), kept.len() as u64 * PAGE);
        let alone = lost.difference(&kept).count() as u64;
        prop_assert!(away.discarded.page_bytes <= alone * PAGE);
        let (back, seen) = observe(&machine, || pool.resume(Device::FIRST, &stream))?;
        back?;
        prop_assert_eq!(seen.counters.migrated_bytes(), kept.len() as u64 * PAGE);
        for ((n, tensor), (_, disposable)) in (0_u64..).zip(&tensors).zip(&sizes) {
            prop_assert!(*disposable || host_sum(&machine, tensor)? == n * tensor.span().bytes);
        }
    }
}

#[test]
fn without_concurrent_access_a_pool_gives_memory_that_stays_where_it_is() -> Result<()> {
    let config = SimConfig::profile("wsl").expect("shipped");
    let machine = Machine::from(Arc::new(SimBackend::new(config)?));
    let stream = Stream::new(&machine, Device::FIRST)?;
    let pool = create_unified_mempool(&machine)?;
    let tensor = pool.tensor("t", bytes(2 * MIB), &stream)?;
    assert_eq!(prefetch_managed_tensor(&tensor, FIRST, &stream).unwrap_err().code(), Some(101));
    let away = pool.suspend(Place::HOST, &stream);
    assert_eq!(away.is_ok(), pool.is_suspended());
    write(&machine, &tensor, 1, &stream)?;
    stream.synchronize()?;
    assert_eq!(host_sum(&machine, &tensor)?, 2 * MIB);
    Ok(())
}

// ---- failures ---------------------------------------------------------------------------------

#[test]
fn a_loop_that_fails_midway_names_the_tensor_and_what_became_of_the_others() -> Result<()> {
    let (backend, machine, stream) = injected(DriverVersion::CUDA_12_9)?;
    let direct = Arc::new(ManagedMemoryResource::direct(&machine));
    let pool = UnifiedMempool::over(direct, MempoolOptions::default())?;
    let mut module = Module::new();
    for name in ["zero", "one", "two"] {
        module.add_parameter(name, pool.tensor(name, bytes(2 * MIB), &stream)?)?;
    }
    let mut by_address: Vec<(u64, String)> =
        module.named_parameters().map(|(name, tensor)| (tensor.span().ptr.0, name)).collect();
    by_address.sort();
    let second = format!("`{}`", by_address[1].1);
    let options = ModuleOptions::default();
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::PrefetchBatch));
    let error = prefetch_managed_module_parameters(&module, FIRST, &options, &stream).unwrap_err();
    assert!(error.to_string().contains("3 tensors"), "{error}");
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::Prefetch).nth(1));
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::Advise).nth(1));
    let default = Stream::legacy_default(&machine);
    let answers = [
        prefetch_managed_module_parameters(&module, FIRST, &options, &default),
        advise_managed_module_parameters_accessed_by(&module, FIRST, &options),
    ];
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.code(), error.item()), (Some(Code::OUT_OF_MEMORY), Some(1)));
        let text = error.to_string();
        assert!(text.contains("the 1 regions before") && text.contains(&second), "{text}");
    }
    Ok(())
}

/// Everything that is done to a module, each call failing once: one error, with a name, the pool as
/// it was, contents there unless they were discarded, and all of it works afterwards.
#[test]
fn whatever_fails_an_operation_says_so_and_can_be_repeated() -> Result<()> {
    let every_call = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
    let swept = every_call.run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let home = Stream::new(&machine, Device::FIRST)?;
        let stream = Stream::new(&machine, Device::FIRST)?;
        let pool = create_unified_mempool(&machine)?;
        let (kept, lost) =
            (pool.tensor("k", bytes(MIB), &home)?, pool.tensor("l", bytes(MIB), &home)?);
        let span = machine.backend().alloc(8192)?;
        let mut module = Module::new();
        module.add_parameter("kept", kept.clone())?;
        module.add_parameter("foreign", Tensor::foreign("f", &machine, span.ptr, bytes(8192))?)?;
        let mut worthless = Module::new();
        worthless.add_parameter("lost", lost.clone())?;
        for tensor in [&kept, &lost] {
            write(&machine, tensor, 9, &home)?;
        }
        let options = ModuleOptions::default();
        let before = pool.counters();
        let all = || {
            [
                prefetch_managed_module_parameters(&module, Place::HOST, &options, &stream),
                advise_managed_module_parameters_accessed_by(&module, FIRST, &options),
                prefetch_managed_tensor(&kept, FIRST, &stream),
                // SAFETY: no code reads the contents.
                unsafe {
                    discard_managed_module_parameters(&worthless, Some(FIRST), &options, &stream)
                },
            ]
        };
        let answers = backend.watch(all);
        let errors: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        // The giving back of an event that a stream waited for can fail without an error.
        let quiet = backend.failed().iter().all(|c| c.operation() == Operation::EventDestroy);
        assert!(errors.len() == usize::from(!quiet), "{failing:?}: {errors:?}");
        assert_eq!(pool.counters(), before);
        assert!(!pool.is_suspended());
        assert_eq!(host_sum(&machine, &kept)?, 9 * MIB);
        if answers[3].is_err() {
            assert_eq!(host_sum(&machine, &lost)?, 9 * MIB);
        }
        assert!(all().iter().all(Result::is_ok));
        // SAFETY: no work uses the memory, and it is freed once.
        unsafe { machine.backend().free(span.ptr) }
    })?;
    assert!(swept.calls >= 10, "{swept}");
    Ok(())
}

/// A resource that gives memory only sometimes.
#[test]
fn whatever_allocation_fails_nothing_stays_counted() -> Result<()> {
    let (_, machine, stream) = injected(DriverVersion::CUDA_13_0)?;
    for nth in 0..6 {
        let direct = ManagedMemoryResource::direct(&machine);
        let resource = Failing::new(direct);
        resource.arm(Fault::new(Code::OUT_OF_MEMORY).nth(nth));
        let pool = UnifiedMempool::over(Arc::new(resource), MempoolOptions::default())?;
        let made: Vec<Result<Tensor>> =
            (0..6).map(|n| pool.tensor(&format!("t{n}"), bytes(4096), &stream)).collect();
        assert_eq!(made.iter().filter(|tensor| tensor.is_err()).count(), 1);
        assert_eq!(pool.counters().allocations.current, 5);
        drop(made);
        assert_eq!(pool.counters().bytes.current, 0);
    }
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}
