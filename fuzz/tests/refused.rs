//! A refused call of a back end changes nothing: every method, on every profile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pagewise::intercept::{Call, Intercepted, Interceptor, Operation};
use pagewise_fuzz::unchanged::Snapshot;
use pagewise_fuzz::{Choices, Log, hal};
use pagewise_hal::{
    AccessFlags, AllocationType, Backend, DeviceId, DriverVersion, HandleTypes, Location,
    PoolAttribute, PoolHandle, Result, StreamHandle,
};
use pagewise_sim::{DiscardedContents, GpuProfile, RangeReads, SimBackend, SimConfig};

/// Compares the machine before and after each call that is refused.
#[derive(Debug)]
struct Unchanged {
    sim: Arc<SimBackend>,
    refused: Arc<Mutex<BTreeMap<Operation, u64>>>,
}

impl Unchanged {
    fn snapshot(&self) -> Snapshot {
        // SAFETY: the spans are live memory at addresses of this process, and only this thread uses
        // them.
        unsafe { Snapshot::new(self.sim.state(), self.sim.live()) }
    }
}

impl Interceptor for Unchanged {
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.snapshot();
        let answer = make();
        if let Err(error) = &answer {
            let name = call.operation().name();
            before.assert_same(&self.snapshot(), name, || format!("{call:?}: {error}"));
            *self.refused.lock().unwrap().entry(call.operation()).or_default() += 1;
        }
        answer
    }
}

fn machines() -> Vec<SimConfig> {
    let profiles = GpuProfile::all().into_iter().map(SimConfig::new);
    let mut machines: Vec<SimConfig> = profiles.collect();
    machines.push(SimConfig::h200().devices(2).discarded_contents(DiscardedContents::Driver));
    machines.push(SimConfig::h200().devices(0));
    machines.push(SimConfig::h200().range_reads(RangeReads::Driver));
    machines.push(SimConfig::h200().driver_version(DriverVersion::CUDA_12_0));
    machines
}

/// Calls of a pool that does not exist: random ones seldom do all of them.
fn use_no_pool(backend: &dyn Backend) {
    // SAFETY: `from_raw` asks for a handle that the back end can take; the simulator looks handles
    // up and dereferences none.
    let none = unsafe { PoolHandle::from_raw(0xdead) };
    let device = Location::device(DeviceId(0));
    assert!(backend.pool_trim(none, 0).is_err());
    assert!(backend.pool_attribute(none, PoolAttribute::USED_MEM_CURRENT).is_err());
    assert!(backend.pool_set_attribute(none, PoolAttribute::RELEASE_THRESHOLD, 0).is_err());
    assert!(backend.pool_set_access(none, device, AccessFlags::READ_WRITE).is_err());
    assert!(backend.pool_access(none, device).is_err());
    assert!(backend.pool_set_current(device, AllocationType::PINNED, none).is_err());
    assert!(backend.pool_alloc(none, 1, StreamHandle::NULL).is_err());
    assert!(backend.pool_export(none, HandleTypes::POSIX_FILE_DESCRIPTOR).is_err());
    // SAFETY: the handle names no pool, so no code uses one.
    assert!(unsafe { backend.pool_destroy(none) }.is_err());
}

#[test]
fn a_refused_call_of_a_back_end_changes_nothing() {
    let refused = Arc::default();
    std::thread::scope(|scope| {
        for (number, config) in machines().into_iter().enumerate() {
            let refused = Arc::clone(&refused);
            scope.spawn(move || {
                let sim = Arc::new(SimBackend::new(config).expect("room"));
                let unchanged = Unchanged { sim: Arc::clone(&sim), refused };
                let backend = Intercepted::new(Arc::clone(&sim), unchanged);
                use_no_pool(&backend);
                for round in 0..3 {
                    let bytes = Choices::bytes_of(number as u64, round, 700);
                    let (mut choices, mut log) = (Choices::new(&bytes), Log::default());
                    hal::attack_through(&backend, &sim, &mut choices, &mut log);
                }
            });
        }
    });
    let refused = refused.lock().unwrap();
    // These answer, whatever the machine and the arguments.
    let always = [
        Operation::DriverVersion,
        Operation::DeviceCount,
        Operation::TakeEvents,
        Operation::EventsSince,
    ];
    let wrong = Operation::ALL
        .iter()
        .filter(|operation| refused.contains_key(operation) == always.contains(operation));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "refused and never are, or never refused and should be: {wrong:?}");
}
