//! Unified pools on every back end: their storage, suspending and resuming, and the effect of
//! failures and threads.

mod machines;

use std::sync::Arc;

use machines::tensors::{FIRST, HOST, apart, bytes, figures, mapped_by, prefers, sent_to};
use machines::{MIB, PAGE, fill, give_back, holds, is_allocated, machine, moving};
use pagewise::inject::Sweep;
use pagewise::intercept::Operation;
use pagewise::resource::{ManagedMemoryResource, PinnedMemoryResource};
use pagewise::{Backend, Code, Device, DevicePtr, ErrorKind, Machine, Place, Result, Stream};
use pagewise_managers::mempool::{
    MempoolOptions, Tensor, UnifiedMempool, advise_managed_tensor_accessed_by,
    create_unified_mempool, device_index, prefetch_managed_tensor,
};

machines::claims_hold_everywhere![
    a_suspended_pool_comes_back_with_what_was_kept,
    a_pool_is_moved_in_turns,
    a_limit_holds_and_pools_are_counted_apart,
    advice_at_creation_holds_for_every_tensor,
    whatever_fails_the_pool_is_as_it_was,
    several_threads_share_a_pool,
];

fn a_suspended_pool_comes_back_with_what_was_kept(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = create_unified_mempool(&machine)?;
    let tensor = |name, size| pool.tensor(name, bytes(size), &stream);
    let (weights, cache) = (tensor("weights", 8 * MIB)?, tensor("cache", 8 * MIB + 100)?);
    let state = tensor("state", 10_000)?;
    let all = [&weights, &cache, &state];
    all.iter().try_for_each(|tensor| fill(tensor.span(), 5, &stream))?;
    // SAFETY: the contents of a disposable tensor may be lost; the claim writes this one after a
    // suspension before it reads it.
    unsafe { cache.set_disposable(true)? };
    let addresses = all.map(Tensor::span);
    let discards = machine.capabilities().discard;
    let (away, bytes_moved) = moving(&machine, || {
        let away = pool.suspend(Place::HOST, &stream)?;
        stream.synchronize().map(|()| away)
    })?;
    assert!(pool.is_suspended());
    let expected = match discards {
        true => (2, 8 * MIB + 10_000, 1, 8 * MIB),
        false => (3, 16 * MIB + 10_100, 0, 0),
    };
    let (moved, discarded) = (&away.moved, &away.discarded);
    let got = (moved.tensors, moved.unique_bytes, discarded.tensors, discarded.page_bytes);
    assert_eq!(got, expected);
    if let Some(bytes) = bytes_moved.filter(|_| discards) {
        assert_eq!(bytes, 8 * MIB + 3 * PAGE, "no more than must be");
    }
    for kept in [&weights, &state] {
        assert_eq!(sent_to(kept, &stream)?, HOST);
        assert!(holds(kept.span(), 5, &stream)?, "{kept:?}");
    }
    let back = pool.resume(Device::FIRST, &stream)?;
    assert_eq!((back.tensors, back.unique_bytes), (3, 16 * MIB + 10_100));
    assert_eq!(sent_to(&weights, &stream)?, 0);
    assert!(!pool.is_suspended());
    assert_eq!(all.map(Tensor::span), addresses, "addresses stay");
    for kept in [&weights, &state] {
        assert!(holds(kept.span(), 5, &stream)?, "{kept:?}");
    }
    assert!(discards || holds(cache.span(), 5, &stream)?, "without discards nothing is lost");
    // Discarded contents are written before they are read.
    fill(cache.span(), 6, &stream)?;
    assert!(holds(cache.span(), 6, &stream)?);
    Ok(())
}

fn a_pool_is_moved_in_turns(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let (pool, other) = (apart(&machine)?, Stream::new(&machine, Device::FIRST)?);
    let tensor = pool.tensor("t", bytes(4 * MIB), &stream)?;
    fill(tensor.span(), 7, &stream)?;
    let early = pool.resume(FIRST, &stream).unwrap_err();
    assert_eq!((early.kind(), early.code()), (ErrorKind::InvalidValue, None));
    let default = Stream::legacy_default(&machine);
    for on in [&stream, &other, &default] {
        let away = pool.suspend(Place::HOST, on)?;
        assert_eq!(figures(&away.moved), (1, 4 * MIB, 4 * MIB, 4 * MIB, 1));
        let again = pool.suspend(Place::HOST, &stream).unwrap_err();
        assert_eq!((again.kind(), again.code()), (ErrorKind::InvalidValue, None));
        assert!(pool.resume(device_index(99)?, &stream).is_err());
        assert!(pool.is_suspended());
        // On another stream, which waits for the suspension.
        pool.resume(FIRST, &stream)?;
        assert_eq!(sent_to(&tensor, &stream)?, 0);
    }
    assert!(holds(tensor.span(), 7, &stream)?);
    // SAFETY: the contents of a disposable tensor may be lost; the claim writes this one after a
    // suspension before it reads it.
    unsafe { tensor.set_disposable(true)? };
    let answer = pool.suspend(Place::HOST, &default);
    assert_eq!(answer.is_err(), machine.capabilities().discard, "it takes no discards");
    assert_eq!(pool.is_suspended(), answer.is_ok());
    assert!(holds(tensor.span(), 7, &stream)?, "nothing was discarded");
    Ok(())
}

fn a_limit_holds_and_pools_are_counted_apart(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let options = MempoolOptions { limit_bytes: 3 * MIB, ..MempoolOptions::default() };
    let pool = UnifiedMempool::with_options(&machine, options)?;
    let other = create_unified_mempool(&machine)?;
    let kept = pool.tensor("kept", bytes(2 * MIB), &stream)?;
    let error = pool.tensor("much", bytes(MIB + 1), &stream).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::OutOfMemory, None));
    assert!(error.to_string().contains("`much`"), "{error}");
    let counters = pool.counters();
    assert_eq!((counters.bytes.current, counters.allocations.total), (2 << 20, 1));
    assert_eq!(other.counters().bytes.total, 0);
    let view = kept.view("view", 0, bytes(8))?;
    drop((pool, kept));
    prefetch_managed_tensor(&view, FIRST, &stream)?;
    drop(view);
    assert_eq!(machine.failures_on_drop(), 0, "tensors may outlive their pool");
    let pinned = Arc::new(PinnedMemoryResource::direct(&machine));
    let error = UnifiedMempool::over(pinned, MempoolOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    Ok(())
}

fn advice_at_creation_holds_for_every_tensor(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let options = MempoolOptions {
        preferred_location: Some(FIRST),
        accessed_by: vec![FIRST, Place::HOST],
        ..MempoolOptions::default()
    };
    let direct = Arc::new(ManagedMemoryResource::direct(&machine));
    let own = UnifiedMempool::over(direct, options.clone())?;
    let cut = UnifiedMempool::with_options(&machine, options.clone())?;
    for pool in [&own, &cut] {
        for size in [PAGE, 100 * PAGE, 6 * MIB] {
            let tensor = pool.tensor("t", bytes(size), &stream)?;
            let reads = (prefers(&tensor, &stream)?, mapped_by(&tensor)?);
            assert_eq!(reads, (0, vec![HOST, 0]), "{tensor:?}");
        }
    }
    let nowhere = MempoolOptions { accessed_by: vec![device_index(99)?], ..options };
    let error = UnifiedMempool::with_options(&machine, nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidDevice);
    Ok(())
}

/// Everything that a pool does, each call failing once: nothing is left behind, given back twice,
/// or lost, and a pool that could not be moved is as it was.
fn whatever_fails_the_pool_is_as_it_was(backend: &Arc<dyn Backend>) -> Result<()> {
    let apart: Make = |machine, options| {
        UnifiedMempool::over(Arc::new(ManagedMemoryResource::direct(machine)), options)
    };
    whatever_fails_a_pool_is_as_it_was(backend, apart, 3)?;
    let together: Make = |machine, options| UnifiedMempool::with_options(machine, options);
    whatever_fails_a_pool_is_as_it_was(backend, together, 1)
}

type Make = fn(&Machine, MempoolOptions) -> Result<UnifiedMempool>;

/// Tensors of the pool lie in `allocations` of the driver.
fn whatever_fails_a_pool_is_as_it_was(
    backend: &Arc<dyn Backend>,
    make: Make,
    allocations: usize,
) -> Result<()> {
    let options = MempoolOptions {
        preferred_location: Some(FIRST),
        accessed_by: vec![FIRST],
        ..MempoolOptions::default()
    };
    let (mut moved, mut leaked) = (0, 0);
    let fresh = || Ok(Arc::clone(backend));
    let every_call = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
    let swept = every_call.run(fresh, |injected, failing| {
        let machine = Machine::from(injected);
        let stream = Stream::new(&machine, Device::FIRST)?;
        let Ok(pool) = injected.watch(|| make(&machine, options.clone())) else {
            assert!(failing.is_some());
            return Ok(());
        };
        let tensor = |name, size| injected.watch(|| pool.tensor(name, bytes(size), &stream));
        let made = [tensor("weights", MIB), tensor("cache", MIB), tensor("bias", 5000)];
        let live: Vec<Tensor> = made.into_iter().flatten().collect();
        assert!(live.len() == 3 || failing.is_some());
        assert_eq!(pool.counters().allocations.current, live.len() as i64);
        for tensor in &live {
            fill(tensor.span(), 7, &stream)?;
            // SAFETY: the contents of a disposable tensor may be lost; the claim does not read them
            // again.
            unsafe { tensor.set_disposable(tensor.name() == "cache")? };
        }
        let away = injected.watch(|| pool.suspend(Place::HOST, &stream));
        assert_eq!(away.is_ok(), pool.is_suspended(), "{away:?}");
        let lost = pool.is_suspended();
        if lost {
            let back = injected.watch(|| pool.resume(Device::FIRST, &stream));
            assert_eq!(back.is_err(), pool.is_suspended(), "it can be resumed again");
            moved += u32::from(back.is_ok());
        }
        for tensor in live.iter().filter(|tensor| !lost || tensor.name() != "cache") {
            assert!(holds(tensor.span(), 7, &stream)?, "{tensor:?}");
        }
        let given: Vec<DevicePtr> = live.iter().map(|tensor| tensor.span().ptr).collect();
        let while_moving = injected.failed().len();
        injected.watch(|| drop((live, pool)));
        let failed = injected.failed();
        // A wait is a part of moving too, and what that says there.
        let gone_wrong = failed.iter().enumerate().any(|(at, call)| match call.operation() {
            Operation::Free => true,
            Operation::StreamSynchronize => at >= while_moving,
            _ => false,
        });
        assert_eq!(machine.failures_on_drop() > 0, gone_wrong, "{failed:?}");
        let calls = injected.take_calls();
        let count = |what| calls.iter().filter(|call| call.operation() == what).count();
        let refused = failed.iter().filter(|c| c.operation() == Operation::AllocManaged).count();
        assert_eq!(count(Operation::Free), count(Operation::AllocManaged) - refused);
        if gone_wrong {
            leaked += given.iter().filter(|ptr| is_allocated(&**backend, **ptr)).count();
            give_back(&**backend, &given);
        }
        Ok(())
    })?;
    assert!(swept.calls > 12 && moved > 6, "{swept}, {moved} pools moved");
    assert_eq!(leaked, allocations, "what could not be freed, each in its run, and nothing else");
    Ok(())
}

/// Makes, fills, moves, advises, suspends, checks and drops from several threads over one pool.
fn several_threads_share_a_pool(backend: &Arc<dyn Backend>) -> Result<()> {
    let (machine, stream) = machine(backend)?;
    let pool = create_unified_mempool(&machine)?;
    let work = |seed: u8| -> Result<u32> {
        let stream = Stream::new(&machine, Device::FIRST)?;
        let mut kept: Vec<(u8, Tensor)> = Vec::new();
        let mut suspended = 0;
        for step in 0..24_u8 {
            let value = 1 + seed * 50 + step;
            let size = 1 + (u64::from(value) * 104_729) % (256 << 10);
            let tensor = pool.tensor(&format!("{seed}.{step}"), bytes(size), &stream)?;
            fill(tensor.span(), value, &stream)?;
            prefetch_managed_tensor(&tensor, FIRST, &stream)?;
            advise_managed_tensor_accessed_by(&tensor, FIRST)?;
            kept.push((value, tensor));
            if step % 3 == seed % 3 {
                let (value, tensor) = kept.swap_remove(usize::from(step / 2) % kept.len());
                assert!(holds(tensor.span(), value, &stream)?, "{tensor:?}");
            }
            if step % 6 == seed {
                match pool.suspend(Place::HOST, &stream) {
                    Ok(_) => {
                        suspended += 1;
                        pool.resume(FIRST, &stream)?;
                    }
                    Err(error) => {
                        let kinds = [ErrorKind::NotReady, ErrorKind::InvalidValue];
                        assert!(kinds.contains(&error.kind()), "{error}");
                    }
                }
            }
        }
        for (value, tensor) in &kept {
            assert!(holds(tensor.span(), *value, &stream)?, "{tensor:?}");
        }
        Ok(suspended)
    };
    let suspended: Vec<Result<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).collect()
    });
    assert!(suspended.into_iter().sum::<Result<u32>>()? > 0);
    assert!(!pool.is_suspended());
    assert_eq!(pool.counters().bytes.current, 0);
    drop(pool);
    stream.synchronize()?;
    assert_eq!(machine.failures_on_drop(), 0);
    Ok(())
}
