//! The conformance kit on every back end: our managers pass it, and so does one of a plug-in; and
//! nothing is lost, whichever call fails.

mod machines;

use std::sync::Arc;

use machines::{PAGE, give_back};
use pagewise::inject::Sweep;
use pagewise::intercept::{Call, Operation};
use pagewise::resource::{
    DeviceMemoryResource, ManagedMemoryResource, PoolOptions, Statistics, SubAllocator,
};
use pagewise::{Backend, Code, Device, DevicePtr, Machine, MemoryInfo, Result, Span, StreamHandle};
use pagewise_managers::emm::{
    DeferCleanup, EmmOptions, ExternalMemoryManager, Finding, GiveBack, HostOnlyManager,
    HostOptions, INTERFACE_VERSION, IpcHandle, Leak, MemoryPointer, OrderChecker, Owner,
    PointerKind, ResourceManager, check_conformance,
};

machines::claims_hold_everywhere![
    managers_of_this_crate_conform,
    a_manager_over_a_pool_conforms_but_is_not_cheap_to_make,
    a_manager_that_a_plug_in_wrote_conforms,
    whatever_fails_nothing_leaks_and_nothing_is_freed_twice,
];

const FIRST: Device = Device::FIRST;

type Manager = Arc<dyn ExternalMemoryManager>;

fn options() -> EmmOptions {
    EmmOptions::default()
}

/// Rules that do not hold.
fn broken(
    backend: &Arc<dyn Backend>,
    make: impl Fn(&Machine, Device) -> Result<Manager>,
) -> Vec<Finding> {
    let findings = check_conformance(|| Ok(Arc::clone(backend)), make);
    assert_eq!(findings.len(), 17);
    findings.into_iter().filter(|finding| !finding.passes()).collect()
}

fn managers_of_this_crate_conform(backend: &Arc<dyn Backend>) -> Result<()> {
    type Make = fn(&Machine, Device) -> Result<ResourceManager>;
    let managers: [(&str, Make); 4] = [
        ("direct", |machine, device| ResourceManager::direct(machine, device, options())),
        ("managed", |machine, device| {
            let resource = Arc::new(ManagedMemoryResource::direct(machine));
            ResourceManager::over(resource, device, options())
        }),
        ("pieces of managed", |machine, device| {
            let pieces = SubAllocator::new(ManagedMemoryResource::direct(machine), 1 << 20)?;
            ResourceManager::over(Arc::new(pieces), device, options())
        }),
        ("counted", |machine, device| {
            let counted = Statistics::new(DeviceMemoryResource::direct(machine, device)?);
            ResourceManager::over(Arc::new(counted), device, options())
        }),
    ];
    for (what, make) in managers {
        let broken = broken(backend, |machine, device| {
            Ok(Arc::new(OrderChecker::around(Arc::new(make(machine, device)?))))
        });
        assert!(broken.is_empty(), "{what}: {broken:#?}");
    }
    Ok(())
}

/// A pool is made by a call of the driver.
fn a_manager_over_a_pool_conforms_but_is_not_cheap_to_make(
    backend: &Arc<dyn Backend>,
) -> Result<()> {
    let broken = broken(backend, |machine, device| {
        let pool = DeviceMemoryResource::new_pool(machine, device, PoolOptions::default())?;
        Ok(Arc::new(ResourceManager::over(Arc::new(pool), device, options())?))
    });
    assert_eq!(broken.len(), 1, "{broken:#?}");
    assert!(broken[0].to_string().contains("pool_create"), "{}", broken[0]);
    Ok(())
}

/// As a plug-in writes one: device memory of its own, all else of [`HostOnlyManager`].
#[derive(Debug)]
struct PluggedIn {
    host: HostOnlyManager,
}

impl ExternalMemoryManager for PluggedIn {
    fn interface_version(&self) -> u32 {
        INTERFACE_VERSION
    }

    fn initialize(&self) -> Result<()> {
        self.host.initialize()
    }

    fn memalloc(&self, bytes: u64) -> Result<MemoryPointer> {
        let (machine, device) = (self.host.machine().clone(), self.host.device().id());
        let allocate = || self.host.machine().backend().alloc_device(device, bytes);
        let (kind, back) = (PointerKind::AutoFree, GiveBack::Later);
        self.host.manage("memalloc", kind, bytes, back, allocate, move |span| {
            // SAFETY: the memory was allocated above, and a finalizer runs once, when no work uses
            // the memory.
            unsafe { machine.backend().free(span.ptr) }
        })
    }

    fn memhostalloc(&self, bytes: u64, options: HostOptions) -> Result<MemoryPointer> {
        self.host.memhostalloc(bytes, options)
    }

    unsafe fn mempin(&self, owner: Owner, span: Span, mapped: bool) -> Result<MemoryPointer> {
        // SAFETY: `mempin` of the inner manager asks that the memory lives as long as its owner is
        // kept. The caller promised that, and the inner manager keeps the owner.
        unsafe { self.host.mempin(owner, span, mapped) }
    }

    fn memallocmanaged(&self, bytes: u64, attach_global: bool) -> Result<MemoryPointer> {
        self.host.memallocmanaged(bytes, attach_global)
    }

    fn get_ipc_handle(&self, memory: &MemoryPointer) -> Result<IpcHandle> {
        IpcHandle::of(memory)
    }

    fn get_memory_info(&self) -> Result<MemoryInfo> {
        self.host.get_memory_info()
    }

    fn reset(&self) -> Result<Vec<Leak>> {
        self.host.reset()
    }

    fn defer_cleanup(&self) -> DeferCleanup {
        self.host.defer_cleanup()
    }
}

fn a_manager_that_a_plug_in_wrote_conforms(backend: &Arc<dyn Backend>) -> Result<()> {
    let broken = broken(backend, |machine, device| {
        let host = HostOnlyManager::new(machine, device, options())?;
        Ok(Arc::new(PluggedIn { host }))
    });
    assert!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

// ---- failures ---------------------------------------------------------------------------------

const PAIRS: [(Operation, Operation); 5] = [
    (Operation::HostRegister, Operation::HostUnregister),
    (Operation::AllocDevice, Operation::Free),
    (Operation::AllocManaged, Operation::Free),
    (Operation::AllocPinned, Operation::FreePinned),
    (Operation::PoolAlloc, Operation::FreeAsync),
];

/// Gives of every kind and takes back, and notes what was given.
fn use_everything(
    manager: &ResourceManager,
    pages: &Arc<Vec<u8>>,
    given: &mut Vec<DevicePtr>,
) -> Result<()> {
    manager.initialize()?;
    let mut note = |memory: MemoryPointer| {
        given.push(memory.device_ptr());
        memory
    };
    let first = note(manager.memalloc(64 * PAGE)?);
    let start = (pages.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE);
    let span = Span::new(DevicePtr(start), 2 * PAGE);
    // SAFETY: `mempin` asks that the memory lives as long as its owner is kept; the owner here is
    // the memory's.
    let locked = note(unsafe { manager.mempin(pages.clone(), span, true)? });
    let mapped = HostOptions { mapped: true, ..HostOptions::default() };
    let pinned = note(manager.memhostalloc(PAGE, mapped)?);
    locked.free()?;
    first.free()?;
    let deferred = manager.defer_cleanup();
    drop(note(manager.memallocmanaged(64 * PAGE, true)?));
    deferred.end()?;
    let last = note(manager.memalloc(128 * PAGE)?);
    drop((pinned, last));
    manager.reset().map(drop)
}

fn whatever_fails_nothing_leaks_and_nothing_is_freed_twice(
    backend: &Arc<dyn Backend>,
) -> Result<()> {
    for pooled in [false, true] {
        let fresh = || Ok(Arc::clone(backend));
        let every_call = Sweep::new(Code::OUT_OF_MEMORY).with_destructors();
        let swept = every_call.run(fresh, |injected, failing| {
            let machine = Machine::from(injected);
            let manager = match pooled {
                true => {
                    let pool = DeviceMemoryResource::current_pool(&machine, FIRST)?;
                    ResourceManager::over(Arc::new(pool), FIRST, options())?
                }
                false => ResourceManager::direct(&machine, FIRST, options())?,
            };
            // Kept by the driver for ever if it could not be unlocked: of this run alone.
            let pages = Arc::new(vec![0_u8; 4 * PAGE as usize]);
            let mut given = Vec::new();
            let answer = injected.watch(|| use_everything(&manager, &pages, &mut given));
            let reset = injected.watch(|| manager.reset());
            assert_eq!((manager.base().used_bytes(), manager.base().count()), (0, 0));
            let failed = injected.failed();
            let takes = |call: &Call| PAIRS.iter().any(|pair| pair.1 == call.operation());
            // Without memory what waits is freed and it is tried again: that is no failure.
            let gives = |call: &Call| PAIRS.iter().any(|pair| pair.0 == call.operation());
            let told = answer.is_err() || failed.iter().all(gives);
            assert!(told && (failing.is_some() || answer.is_ok()), "{failed:?}");
            assert!(reset.is_ok() || failed.iter().any(takes), "{failed:?}");
            injected.watch(|| drop(manager));
            assert_eq!(machine.failures_on_drop(), 0, "{failed:?}");
            let calls = injected.take_calls();
            let count = |all: &[Call], what| all.iter().filter(|c| c.operation() == what).count();
            for taking in PAIRS.map(|pair| pair.1) {
                let giving = PAIRS.iter().filter(|pair| pair.1 == taking);
                let gave: usize =
                    giving.map(|pair| count(&calls, pair.0) - count(&failed, pair.0)).sum();
                assert_eq!(count(&calls, taking), gave, "{taking}: {failed:?}");
            }
            give_back(&**backend, &given);
            // A pool lets go of its chunks when its stream is waited for.
            backend.stream_synchronize(StreamHandle::NULL)
        })?;
        assert!(swept.calls >= 9, "{swept}");
    }
    Ok(())
}
