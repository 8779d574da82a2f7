//! Sweeps with and without the calls of destructors.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector, Sweep, sweep};
use pagewise::intercept::Operation;
use pagewise::resource::{Allocation, Failing, ManagedMemoryResource};
use pagewise::{Code, Device, Machine, ManagedBuffer, Result, Stream};

/// Allocates, prefetches and frees inside: the stream, the pool and the buffers go when it ends,
/// whether midway or not.
fn frees_inside(machine: &Machine) -> Result<()> {
    let stream = Stream::new(machine, Device::FIRST)?;
    let pool = Arc::new(ManagedMemoryResource::new_pool(machine, None)?);
    let first = ManagedBuffer::<u8>::zeroed(machine, 4096)?;
    first.prefetch(Device::FIRST, &stream)?;
    let second = ManagedBuffer::<u8>::from_resource(pool.clone(), 4096, &stream)?;
    second.prefetch(Device::FIRST, &stream)?;
    Allocation::new(pool, 4096, &stream).map(drop)
}

/// Issue 15, item 7: an injected failure of a destructor's call made no error, so the documented
/// claim did not hold.
#[test]
fn each_failure_of_a_sweep_is_an_error_of_a_function_that_frees_inside() -> Result<()> {
    let swept = Sweep::new(Code::OUT_OF_MEMORY).run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let answer = backend.watch(|| frees_inside(&machine));
        assert_eq!(answer.is_err(), failing.is_some(), "{:?}", backend.failed());
        assert_eq!(machine.failures_on_drop(), 0);
        assert_eq!(backend.inner().live(), [], "nothing stays behind");
        Ok(())
    })?;
    assert!(swept.calls >= 9 && swept.left_out >= 5, "{swept}");
    assert_eq!(
        sweep(Code::OUT_OF_MEMORY, pagewise::sim, |backend, _| {
            let machine = Machine::from(backend);
            let _ = backend.watch(|| frees_inside(&machine));
            Ok(())
        })?,
        swept.calls
    );
    Ok(())
}

#[test]
fn a_sweep_with_destructors_lets_each_of_their_calls_fail_and_be_counted() -> Result<()> {
    let mut in_destructors = 0;
    let all = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
    let swept = all.run(pagewise::sim, |backend, failing| {
        let machine = Machine::from(backend);
        let answer = backend.watch(|| frees_inside(&machine));
        let hidden = backend.failed().iter().filter(|call| call.is_in_destructor()).count() as u64;
        assert_eq!(machine.failures_on_drop(), hidden, "{failing:?}");
        assert_eq!(answer.is_err(), failing.is_some() && hidden == 0, "{:?}", backend.failed());
        in_destructors += hidden;
        Ok(())
    })?;
    assert_eq!(swept.left_out, 0);
    let without = Sweep::new(Code::OUT_OF_MEMORY).run(pagewise::sim, |backend, _| {
        let machine = Machine::from(backend);
        let _ = backend.watch(|| frees_inside(&machine));
        Ok(())
    })?;
    assert_eq!(swept.calls, without.calls + without.left_out);
    assert_eq!(in_destructors, without.left_out);
    Ok(())
}

#[test]
fn a_call_says_whether_a_destructor_makes_it_on_each_thread_for_itself() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let buffer = ManagedBuffer::<u8>::new(&machine, 4096)?;
    ManagedBuffer::<u8>::new(&machine, 4096)?.free()?;
    machine.on_drop(|| {
        std::thread::scope(|scope| scope.spawn(|| machine.backend().device_count()).join())
            .expect("no panic")
            .map(drop)
    });
    drop(buffer);
    let calls = backend.take_calls();
    let inside = |operation, wanted| {
        let of = calls.iter().filter(|call| call.operation() == operation);
        of.filter(|call| call.is_in_destructor() == wanted).count()
    };
    assert_eq!((inside(Operation::Free, true), inside(Operation::Free, false)), (1, 1));
    assert_eq!(inside(Operation::DeviceCount, true), 0, "the other thread is in no destructor");
    Ok(())
}

#[test]
fn a_destructor_that_panics_leaves_the_thread_outside() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    let machine = Machine::from(&backend);
    let run = || machine.on_drop(|| panic!("a destructor of a test"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    machine.backend().device_count()?;
    assert!(backend.take_calls().iter().all(|call| !call.is_in_destructor()));
    Ok(())
}

#[test]
fn a_resource_that_fails_spares_destructors_as_a_back_end_does() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let stream = Stream::new(&machine, Device::FIRST)?;
    let resource = Arc::new(Failing::new(ManagedMemoryResource::direct(&machine)));
    let [first, second] = [(); 2].map(|()| Allocation::new(resource.clone(), 4096, &stream));
    let (first, second) = (first?, second?);
    resource.arm(Fault::new(Code::NOT_READY).outside_destructors());
    drop(first);
    assert_eq!(machine.failures_on_drop(), 0);
    assert!(second.free().is_err());
    Ok(())
}
