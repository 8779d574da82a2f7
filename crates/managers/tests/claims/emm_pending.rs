//! Pending deallocations and pointers: when and in which order memory is freed, and what foreign
//! code may do meanwhile.
#![cfg(feature = "emm")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pagewise::{DevicePtr, Error, ErrorKind, Machine, Result, Span};
use pagewise_managers::emm::{
    DeferCleanup, MemoryPointer, PendingDeallocations, PendingLimits, PointerKind,
};

const SPAN: Span = Span::new(DevicePtr(4096), 100);

/// A queue, and how many of its deallocations have run.
struct Counted {
    machine: Machine,
    queue: PendingDeallocations,
    done: Arc<AtomicUsize>,
}

impl Counted {
    fn new(limits: PendingLimits) -> Result<Self> {
        let machine = Machine::from(pagewise::sim()?);
        let queue = PendingDeallocations::new(&machine, limits)?;
        Ok(Self { machine, queue, done: Arc::default() })
    }

    fn add(&self, bytes: Option<u64>) -> Result<()> {
        let done = Arc::clone(&self.done);
        self.queue.add(
            bytes,
            Box::new(move || {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }),
        )
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }
}

fn failure() -> Error {
    Error::new("free", ErrorKind::InvalidValue)
}

#[test]
fn ten_wait_and_the_eleventh_takes_all_along() -> Result<()> {
    let counted = Counted::new(PendingLimits::default())?;
    for n in 1..=10 {
        counted.add(None)?;
        assert_eq!((counted.queue.count(), counted.done()), (n, 0));
    }
    counted.add(None)?;
    assert_eq!((counted.queue.count(), counted.done()), (0, 11));
    Ok(())
}

#[test]
fn bytes_that_pass_the_ratio_take_all_along() -> Result<()> {
    let counted = Counted::new(PendingLimits { ratio_max: 0.5, ..PendingLimits::default() })?;
    counted.add(Some(1 << 40))?;
    assert_eq!(counted.done(), 0, "of nothing known there is no half");
    counted.queue.flush()?;
    counted.queue.set_capacity(1000);
    counted.queue.set_capacity(1);
    assert_eq!(counted.queue.capacity_bytes(), Some(1000), "it is set once");
    counted.add(Some(500))?;
    counted.add(None)?;
    assert_eq!((counted.queue.bytes(), counted.queue.count()), (500, 2), "half is not too much");
    counted.add(Some(1))?;
    assert_eq!((counted.queue.bytes(), counted.queue.count(), counted.done()), (0, 0, 4));
    for ratio_max in [-0.1, f64::NAN, f64::INFINITY] {
        let limits = PendingLimits { ratio_max, ..PendingLimits::default() };
        assert!(PendingDeallocations::new(&counted.machine, limits).is_err());
    }
    Ok(())
}

/// There the queue stays as long as it has become: leaving frees nothing.
#[test]
fn deferrals_nest_and_the_last_frees_what_is_too_much() -> Result<()> {
    let counted = Counted::new(PendingLimits::default())?;
    let outer = counted.queue.defer();
    {
        let _inner = counted.queue.defer();
        (0..50).try_for_each(|_| counted.add(Some(1)))?;
        counted.queue.flush()?;
    }
    counted.queue.flush()?;
    assert_eq!((counted.queue.count(), counted.done()), (50, 0));
    assert!(counted.queue.is_deferred());
    outer.end()?;
    assert_eq!((counted.queue.count(), counted.done()), (0, 50));
    let few = counted.queue.defer();
    (0..3).try_for_each(|_| counted.add(None))?;
    drop(few);
    assert_eq!((counted.queue.count(), counted.done()), (3, 50), "three are not too much");
    counted.queue.flush()?;
    assert_eq!(counted.done(), 53);
    DeferCleanup::nothing().end()
}

#[test]
fn the_end_of_a_deferral_reports_what_failed_and_going_out_of_scope_counts_it() -> Result<()> {
    let limits = PendingLimits { count_max: 0, ..PendingLimits::default() };
    let Counted { machine, queue, .. } = Counted::new(limits)?;
    let fails = || queue.add(None, Box::new(|| Err(failure())));
    let deferred = queue.defer();
    fails()?;
    assert_eq!(deferred.end().map_err(|error| error.kind()), Err(ErrorKind::InvalidValue));
    assert_eq!(machine.failures_on_drop(), 0, "it was told");
    let deferred = queue.defer();
    fails()?;
    drop(deferred);
    assert_eq!(machine.failures_on_drop(), 1);
    Ok(())
}

#[test]
fn a_deferral_ends_when_somebody_panics() -> Result<()> {
    let counted = Counted::new(PendingLimits::default())?;
    let queue = counted.queue.clone();
    let panics = std::thread::spawn(move || {
        let _deferred = queue.defer();
        panic!("on purpose");
    });
    assert!(panics.join().is_err());
    assert!(!counted.queue.is_deferred());
    Ok(())
}

/// There the failing one is lost, those after it stay, and its bytes count for ever.
#[test]
fn a_failing_deallocation_takes_no_other_with_it_and_bytes_stay_exact() -> Result<()> {
    let counted = Counted::new(PendingLimits::default())?;
    counted.add(Some(50))?;
    counted.queue.add(Some(50), Box::new(|| Err(failure())))?;
    counted.queue.add(Some(50), Box::new(|| panic!("on purpose")))?;
    counted.add(Some(50))?;
    assert_eq!(counted.queue.bytes(), 200);
    let error = counted.queue.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidValue, "that of the first");
    assert!(error.to_string().contains(" 2 of 4"), "{error}");
    assert_eq!((counted.queue.count(), counted.queue.bytes(), counted.done()), (0, 0, 2));
    counted.queue.flush()?;
    assert_eq!(counted.machine.failures_on_drop(), 0, "it was told");
    Ok(())
}

#[test]
fn what_waits_when_the_queue_goes_is_carried_out() -> Result<()> {
    let Counted { machine, queue, done } = {
        let counted = Counted::new(PendingLimits::default())?;
        (0..4).try_for_each(|_| counted.add(None))?;
        counted.queue.add(None, Box::new(|| panic!("on purpose")))?;
        counted
    };
    drop(queue);
    assert_eq!((done.load(Ordering::Relaxed), machine.failures_on_drop()), (4, 1));
    Ok(())
}

/// Destructors run without a lock: they may use the queue that they were in.
#[test]
fn a_destructor_may_use_its_queue() -> Result<()> {
    let counted = Counted::new(PendingLimits { count_max: 0, ..PendingLimits::default() })?;
    let (queue, done) = (counted.queue.clone(), Arc::clone(&counted.done));
    counted.queue.add(
        None,
        Box::new(move || {
            let _deferred = queue.defer();
            queue.add(
                Some(7),
                Box::new(move || {
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }),
            )?;
            queue.flush()
        }),
    )?;
    assert_eq!((counted.done(), counted.queue.count()), (1, 0));
    Ok(())
}

#[test]
fn threads_run_each_deallocation_once() -> Result<()> {
    let counted = Counted::new(PendingLimits::default())?;
    counted.queue.set_capacity(10_000);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let counted = &counted;
            scope.spawn(move || {
                for step in 0..2000_u64 {
                    let deferred = (step % 11 == seed).then(|| counted.queue.defer());
                    counted.add(Some(step % 700)).expect("none fails");
                    if step % 13 == seed {
                        counted.queue.flush().expect("none fails");
                    }
                    drop(deferred);
                }
            });
        }
    });
    counted.queue.flush()?;
    assert_eq!((counted.done(), counted.queue.count(), counted.queue.bytes()), (8000, 0, 0));
    Ok(())
}

// ---- pointers ---------------------------------------------------------------------------------

/// A pointer that notes in a log when its finalizer runs.
fn noting(
    machine: &Machine,
    kind: PointerKind,
    log: &Arc<Mutex<Vec<&'static str>>>,
) -> MemoryPointer {
    let log = Arc::clone(log);
    let finalizer = Box::new(move || {
        log.lock().expect("no panics").push("finalizer");
        Ok(())
    });
    MemoryPointer::new(machine, kind, SPAN, Some(finalizer))
}

struct Noting(Arc<Mutex<Vec<&'static str>>>);

impl Drop for Noting {
    fn drop(&mut self) {
        self.0.lock().expect("no panics").push("owner");
    }
}

#[test]
fn an_owner_stays_until_the_finalizer_has_run() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    for explicitly in [true, false] {
        let log = Arc::default();
        let pointer = noting(&machine, PointerKind::Pinned, &log);
        let pointer = pointer.with_owner(Arc::new(Noting(Arc::clone(&log))));
        let view = pointer.view(1, None)?;
        if explicitly {
            pointer.free()?;
        }
        drop(pointer);
        assert_eq!(log.lock().expect("no panics").is_empty(), !explicitly);
        drop(view);
        assert_eq!(*log.lock().expect("no panics"), ["finalizer", "owner"]);
    }
    Ok(())
}

/// The count of owners starts at 0 for the auto-free kinds, at 1 (the pointer) for the others.
#[test]
fn the_last_owner_frees_what_is_auto_free() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    for (kind, auto_free, host) in [
        (PointerKind::Memory, false, false),
        (PointerKind::AutoFree, true, false),
        (PointerKind::Managed, true, true),
        (PointerKind::Mapped, true, true),
        (PointerKind::Pinned, false, true),
    ] {
        let log = Arc::default();
        let pointer = noting(&machine, kind, &log);
        assert_eq!((kind.is_auto_free(), kind.is_host_accessible()), (auto_free, host));
        let (one, two) = (pointer.own(), pointer.own());
        let view = two.view(50, None)?;
        drop((one, two));
        assert_eq!((pointer.is_freed(), view.is_freed()), (auto_free, auto_free), "{kind:?}");
        assert_eq!(pointer.free().is_err(), auto_free);
        drop((pointer, view));
        assert_eq!(*log.lock().expect("no panics"), ["finalizer"], "{kind:?}");
    }
    Ok(())
}

#[test]
fn views_are_within_memory_and_of_what_was_not_freed() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let pointer = MemoryPointer::new(&machine, PointerKind::Memory, SPAN, None);
    let view = pointer.view(20, Some(60))?;
    assert_eq!((view.device_ptr(), view.bytes()), (DevicePtr(4116), 40));
    assert_eq!(view.view(10, None)?.span(), Span::new(DevicePtr(4126), 30));
    assert_eq!(pointer.view(100, None)?.bytes(), 0);
    for (start, stop) in [(60, Some(20)), (0, Some(101)), (101, None), (u64::MAX, None)] {
        let error = pointer.view(start, stop).unwrap_err();
        assert_eq!((error.kind(), error.span()), (ErrorKind::InvalidValue, Some(SPAN)));
    }
    assert!(view.view(0, Some(41)).is_err(), "nor beyond a view");
    view.free()?;
    assert!(pointer.is_freed() && pointer.view(0, None).is_err());
    assert!(pointer.free().unwrap_err().to_string().contains("freed before"));
    Ok(())
}

#[test]
fn an_owner_of_a_view_owns_the_memory() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    let pointer = MemoryPointer::new(&machine, PointerKind::AutoFree, SPAN, None);
    let owner = pointer.own();
    let view = owner.view(20, None)?;
    let of_view = view.own();
    drop((owner, view));
    assert!(!pointer.is_freed(), "its last owner is of a view");
    drop(of_view);
    assert!(pointer.is_freed());
    Ok(())
}

/// Finalizers run without a lock, and may fail and panic; so may the drop of an owner.
#[test]
fn foreign_code_may_fail_panic_and_look() -> Result<()> {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let machine = Machine::from(pagewise::sim()?);
    let of = |finalizer| MemoryPointer::new(&machine, PointerKind::Memory, SPAN, Some(finalizer));
    let fails = of(Box::new(|| Err(failure())));
    assert_eq!(fails.free().unwrap_err().kind(), ErrorKind::InvalidValue);
    assert!(fails.is_freed());
    assert!(of(Box::new(|| panic!("on purpose"))).free().is_err());
    assert_eq!(machine.failures_on_drop(), 0, "all were told");
    drop(of(Box::new(|| Err(failure()))));
    drop(of(Box::new(|| panic!("on purpose"))));
    drop(of(Box::new(|| Ok(()))).with_owner(Arc::new(Panics)));
    assert_eq!(machine.failures_on_drop(), 3, "nobody could be told");
    let itself: Arc<Mutex<Option<MemoryPointer>>> = Arc::default();
    let looks = Arc::clone(&itself);
    let pointer = of(Box::new(move || {
        let pointer = looks.lock().expect("no panics").take();
        assert!(pointer.is_some_and(|pointer| pointer.is_freed() && pointer.free().is_err()));
        Ok(())
    }));
    *itself.lock().expect("no panics") = Some(pointer.clone());
    pointer.free()
}

#[test]
fn threads_free_memory_once() -> Result<()> {
    let machine = Machine::from(pagewise::sim()?);
    for kind in [PointerKind::Memory, PointerKind::Managed] {
        for _ in 0..200 {
            let freed = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&freed);
            let finalizer = Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            let pointer = MemoryPointer::new(&machine, kind, SPAN, Some(finalizer));
            std::thread::scope(|scope| {
                for n in 0..4 {
                    let (owned, view) = (pointer.own(), pointer.view(n, None));
                    scope.spawn(move || {
                        drop(owned);
                        let _ = view.map(|view| view.free());
                    });
                }
            });
            drop(pointer);
            assert_eq!(freed.load(Ordering::Relaxed), 1);
        }
    }
    Ok(())
}

#[test]
fn limits_that_change_hold_from_the_next_deallocation_on() -> Result<()> {
    let counted = Counted::new(PendingLimits::default())?;
    counted.add(None)?;
    counted.add(None)?;
    let less = PendingLimits { count_max: 2, ratio_max: 0.5 };
    counted.queue.set_limits(less)?;
    assert_eq!((counted.queue.limits(), counted.queue.count()), (less, 2));
    counted.add(None)?;
    assert_eq!((counted.queue.count(), counted.done()), (0, 3));
    let refused = counted.queue.set_limits(PendingLimits { ratio_max: -1.0, ..less });
    assert!(refused.is_err() && counted.queue.limits() == less, "as before");
    Ok(())
}
