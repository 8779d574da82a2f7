//! Failures of each call in turn: nothing panics, nothing leaks, nothing is given back twice.
#![cfg(feature = "sim")]

use std::sync::Arc;

use pagewise::inject::{FaultInjector, Sweep};
use pagewise::intercept::{Call, Operation};
use pagewise::resource::{
    Allocation, DeviceMemoryResource, ManagedMemoryResource, PinnedMemoryResource, PoolOptions,
    PrefetchOnAllocate, SubAllocator,
};
use pagewise::{
    Backend, Code, Device, DeviceProgram, Machine, ManagedBuffer, MemoryAdvice, Place, Result,
    SimBackend, SimConfig, Stream, advise, discard, prefetch,
};

/// A call of the first makes a thing that one of the others gives back.
const PAIRS: [(Operation, &[Operation]); 5] = [
    (Operation::AllocManaged, &[Operation::Free]),
    (Operation::AllocPinned, &[Operation::FreePinned]),
    (Operation::PoolAlloc, &[Operation::FreeAsync]),
    (Operation::PoolCreate, &[Operation::PoolDestroy]),
    (Operation::StreamCreate, &[Operation::StreamDestroy]),
];

/// A little of everything that makes several calls.
fn everything(machine: &Machine) -> Result<()> {
    let (first, second) = (Device::FIRST, Device::new(1)?);
    let streams = [Stream::new(machine, first)?, Stream::new(machine, second)?];
    let mut a = ManagedBuffer::from_slice(machine, &[1_u8; 8192])?;
    let pool = Arc::new(ManagedMemoryResource::with_options(
        machine,
        Some(Place::HOST),
        PoolOptions { release_threshold_bytes: 1 << 20, ..PoolOptions::default() },
    )?);
    let mut b = ManagedBuffer::<u32>::from_resource(pool, 1000, &streams[0])?;
    prefetch([a.region(), b.region()], [first.into(), second.into()], &streams[1])?;
    advise([a.region(), a.range(..4096)?.region()], MemoryAdvice::SetReadMostly)?;
    a.accessed_by().assign([first, second])?;
    a.accessed_by().symmetric_difference_with([Place::HOST, first.into()])?;
    discard([a.region_mut(), b.region_mut()], &streams[0])?;
    a.run_on_device(DeviceProgram::write(second, 2), &streams[1])?;
    b.write()?.fill(3);
    let pieces = SubAllocator::new(ManagedMemoryResource::direct(machine), 64 << 10)?;
    let eager = Arc::new(PrefetchOnAllocate::new(pieces, first)?);
    let piece = Allocation::new(eager.clone(), 100, &streams[0])?;
    drop(piece);
    let mut piece = Allocation::new(eager, 100, &streams[1])?;
    piece.set_stream(&streams[0])?;
    let pinned = Arc::new(PinnedMemoryResource::direct(machine));
    Allocation::new(pinned, 10, &streams[0])?.free()?;
    let device = DeviceMemoryResource::new_pool(machine, first, PoolOptions::default())?;
    device.peer_accessible_by().map_or(Ok(()), |peers| peers.assign([second]))?;
    let _ = Allocation::new(Arc::new(device), 10, &streams[1])?;
    b.free()
}

fn made_and_given_back(backend: &FaultInjector<SimBackend>, calls: &[Call]) {
    let failed = backend.failed();
    let count = |calls: &[Call], operations: &[Operation]| {
        calls.iter().filter(|call| operations.contains(&call.operation())).count()
    };
    for (makes, gives_back) in PAIRS {
        let made = count(calls, &[makes]) - count(&failed, &[makes]);
        // Giving back is tried once, whether it fails or not.
        assert_eq!(count(calls, gives_back), made, "{makes}: {failed:?}");
    }
}

#[test]
fn whatever_fails_is_reported_and_nothing_stays_behind() -> Result<()> {
    let fresh = || SimBackend::new(SimConfig::h200().devices(2));
    let every_call = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
    let swept = every_call.run(fresh, |backend, failing| {
        let machine = Machine::from(backend);
        let answer = backend.watch(|| everything(&machine));
        let unreported = machine.failures_on_drop();
        // A stream that cannot wait for another lets the host wait: then nothing is lost.
        let recovers = [Operation::EventCreate, Operation::EventRecord, Operation::StreamWaitEvent];
        match backend.failed().first() {
            None => assert!(answer.is_ok() && unreported == 0 && failing.is_none(), "{answer:?}"),
            Some(call) if recovers.contains(&call.operation()) => {}
            Some(call) => assert!(answer.is_err() || unreported > 0, "{call:?}"),
        }
        made_and_given_back(backend, &backend.take_calls());
        // The back end is as good as before.
        assert!(backend.device_count().is_ok() && everything(&machine).is_ok());
        Ok(())
    })?;
    assert!(swept.calls > 50, "{swept}");
    Ok(())
}
