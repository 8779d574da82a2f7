//! Where claims about managers of memory are checked: on every back end that there is.
//!
//! The simulator as several drivers, in a recorder, in a fault injector, and the CUDA back end over
//! the simulated driver; on a machine with a GPU, also over its driver. What a back
//! end may lack is read from its capabilities.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::sync::Arc;

use pagewise::inject::FaultInjector;
use pagewise::{
    Backend, CudaBackend, Device, DeviceAccess, DevicePtr, DeviceTouch, DiscardedContents,
    DriverVersion, HostAccess, HostTouch, Machine, PointerAttribute, RangeReads, Result,
    SimBackend, SimConfig, Span, Stream, observe,
};
use pagewise_tests::gpu::gpu;
use pagewise_trace::compare::compare_case;
use pagewise_trace::record::Recorder;
use pagewise_trace::replay::replay_case;

pub mod tensors;

pub const PAGE: u64 = pagewise::PAGE_BYTES;
pub const MIB: u64 = 1 << 20;

/// A claim: its name and how to check it. It leaves nothing allocated.
pub type Claim = (&'static str, fn(&Arc<dyn Backend>) -> Result<()>);

const VERSIONS: [DriverVersion; 3] =
    [DriverVersion::CUDA_12_0, DriverVersion::CUDA_12_2, DriverVersion::CUDA_13_0];

/// Lists functions as claims, and checks them everywhere.
macro_rules! claims_hold_everywhere {
    ($($claim:ident),* $(,)?) => {
        const CLAIMS: &[machines::Claim] = &[$((stringify!($claim), $claim)),*];

        #[test]
        fn claims_hold_on_the_simulator() {
            machines::on_the_simulator(CLAIMS);
        }

        #[test]
        fn claims_hold_in_a_recorder() {
            machines::in_a_recorder(CLAIMS);
        }

        #[test]
        fn claims_hold_in_a_fault_injector() {
            machines::in_a_fault_injector(CLAIMS);
        }

        #[test]
        #[cfg(target_os = "linux")]
        fn claims_hold_on_the_cuda_back_end_over_the_simulated_driver() {
            machines::over_the_simulated_driver(CLAIMS);
        }

        #[test]
        fn claims_hold_on_a_gpu() {
            machines::on_a_gpu(CLAIMS);
        }
    };
}
pub(crate) use claims_hold_everywhere;

/// Checks each claim on a back end of its own; the name of a failing one is in the message.
fn check(claims: &[Claim], what: &str, make: impl Fn() -> Result<Arc<dyn Backend>>) {
    for (name, claim) in claims {
        let backend = make().unwrap_or_else(|error| panic!("{what}: {error}"));
        println!("{what}: {name}");
        let free = || backend.memory_info(Device::FIRST.id()).map(|info| info.free_bytes);
        let before = free();
        claim(&backend).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        // On a driver others allocate too.
        if backend.capabilities().deterministic {
            assert_eq!(free(), before, "{what}: {name} leaves memory allocated");
        }
    }
}

fn sim(version: DriverVersion) -> Result<SimBackend> {
    SimBackend::new(SimConfig::h200().driver_version(version))
}

pub fn on_the_simulator(claims: &[Claim]) {
    for version in VERSIONS {
        check(claims, &format!("simulator {version}"), || Ok(Arc::new(sim(version)?)));
    }
    let as_a_driver = SimConfig::h200()
        .devices(2)
        .range_reads(RangeReads::Driver)
        .discarded_contents(DiscardedContents::Driver);
    let make = || Ok(Arc::new(SimBackend::new(as_a_driver.clone())?) as Arc<dyn Backend>);
    check(claims, "simulator as a driver, 2 devices", make);
}

/// What was recorded replays, unless the recorder says that calls are missing from it.
pub fn in_a_recorder(claims: &[Claim]) {
    for version in VERSIONS {
        for claim in claims {
            let recorder = Arc::new(Recorder::new(sim(version).expect("address space")));
            let shared = || Ok(Arc::clone(&recorder) as Arc<dyn Backend>);
            check(std::slice::from_ref(claim), &format!("recorder {version}"), shared);
            if recorder.left_out() > 0 {
                continue;
            }
            let case = recorder.take_case(claim.0);
            assert!(!case.ops.is_empty(), "{}", claim.0);
            let again = replay_case(&sim(version).expect("address space"), &case, |_, _| ());
            let tally = compare_case(&case, &again, false);
            let divergence = tally.first_divergence();
            assert!(tally.agrees(), "{} {version}: {divergence:?}", claim.0);
        }
    }
}

pub fn in_a_fault_injector(claims: &[Claim]) {
    for version in VERSIONS {
        let make = || Ok(Arc::new(FaultInjector::around(sim(version)?)) as Arc<dyn Backend>);
        check(claims, &format!("fault injector {version}"), make);
    }
}

#[cfg(target_os = "linux")]
pub fn over_the_simulated_driver(claims: &[Claim]) {
    let driver = pagewise_tests::driver::SimulatedDriver::load();
    for version in VERSIONS {
        // A new driver that acts as an old one, as a GPU's driver would.
        let make = || {
            driver.reset("devices=2 version=13000 reads=driver discarded=driver");
            Ok(Arc::new(driver.builder().max_version(version).open()?) as Arc<dyn Backend>)
        };
        check(claims, &format!("simulated driver {version}"), make);
    }
}

/// The driver itself, and as it acts as older ones.
pub fn on_a_gpu(claims: &[Claim]) {
    for version in VERSIONS {
        let Some(driver) = gpu(CudaBackend::builder().max_version(version)) else { return };
        let driver: Arc<dyn Backend> = Arc::new(driver);
        check(claims, &format!("driver {version}"), || Ok(Arc::clone(&driver)));
    }
}

/// Whether an allocation, or page-locked memory of ours, starts here.
pub fn is_allocated(backend: &dyn Backend, ptr: DevicePtr) -> bool {
    backend.pointer_attribute(ptr, PointerAttribute::RANGE_START_ADDR) == Ok(ptr.0)
}

/// Gives back what a call that was failed on purpose left allocated, so that a claim leaves nothing.
pub fn give_back(backend: &dyn Backend, ptrs: &[DevicePtr]) {
    for &ptr in ptrs {
        if !is_allocated(backend, ptr) {
            continue;
        }
        // SAFETY: the claim is done with it. What is not the call's kind of memory is refused.
        let freed = unsafe {
            backend
                .free(ptr)
                .or_else(|_| backend.free_pinned(ptr))
                .or_else(|_| backend.host_unregister(ptr))
        };
        freed.expect("memory of some kind");
    }
}

/// Runs something, with the bytes that it moved where the back end reports what moves.
pub fn moving<T>(machine: &Machine, run: impl FnOnce() -> Result<T>) -> Result<(T, Option<u64>)> {
    if !machine.capabilities().events {
        return run().map(|answer| (answer, None));
    }
    let (answer, seen) = observe(machine, run)?;
    Ok((answer?, Some(seen.counters.migrated_bytes())))
}

// ---- what claims share ------------------------------------------------------------------------

/// A machine on the back end, and a stream of its first device.
pub fn machine(backend: &Arc<dyn Backend>) -> Result<(Machine, Stream)> {
    let machine = Machine::from(Arc::clone(backend));
    let stream = Stream::new(&machine, Device::FIRST)?;
    Ok((machine, stream))
}

/// Bytes from one that is written or read to the next.
const STRIDE: u64 = 256;

/// Fills on the device, as work of the caller's would, and waits.
pub fn fill(span: Span, value: u8, stream: &Stream) -> Result<()> {
    let touch = DeviceTouch {
        device: Device::FIRST.id(),
        span,
        stride_bytes: STRIDE,
        access: DeviceAccess::Write(value),
        blocks: 8,
        threads: 64,
    };
    // SAFETY: claims use their memory from one thread, and it is live.
    unsafe { stream.machine().backend().device_touch(touch, stream.handle())? };
    stream.synchronize()
}

/// Whether the host reads what [`fill`] wrote, once the stream has come to it.
pub fn holds(span: Span, value: u8, stream: &Stream) -> Result<bool> {
    stream.synchronize()?;
    let touch = HostTouch { span, stride_bytes: STRIDE, access: HostAccess::Read };
    // SAFETY: claims use their memory from one thread, it is live, and the stream's work is done.
    let sum = unsafe { stream.machine().backend().host_touch(touch)? };
    Ok(sum == span.bytes.div_ceil(STRIDE) * u64::from(value))
}
