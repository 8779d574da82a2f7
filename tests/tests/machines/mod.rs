//! The machines on which claims about managers of memory are checked: every back end that there is.
//!
//! The simulator as several drivers, in a recorder, in a fault injector, and the CUDA back end over
//! the simulated driver; on a machine with a GPU, also over its driver. What a back
//! end may lack is read from its capabilities.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// Makes a test of each claim on each back end and version: `on_the_simulator::cuda_12_2::name`.
macro_rules! claims_hold_everywhere {
    ($($claim:ident),* $(,)?) => {
        const CLAIMS: &[machines::Claim] = &[$((stringify!($claim), $claim)),*];

        machines::claims_hold! { on_the_simulator ($($claim)*) }
        machines::claims_hold! { in_a_recorder ($($claim)*) }
        machines::claims_hold! { in_a_fault_injector ($($claim)*) }
        #[cfg(target_os = "linux")]
        machines::claims_hold! { over_the_simulated_driver ($($claim)*) }

        mod on_the_simulator_as_a_driver {
            $(
                #[test]
                fn $claim() {
                    crate::machines::on_the_simulator_as_a_driver((
                        stringify!($claim),
                        crate::$claim,
                    ));
                }
            )*
        }

        #[test]
        fn claims_hold_on_a_gpu() {
            machines::on_a_gpu(CLAIMS);
        }
    };
}
pub(crate) use claims_hold_everywhere;

/// Makes a test of each claim at each version, by the function of this module with the name.
macro_rules! claims_hold {
    ($place:ident $claims:tt) => {
        mod $place {
            crate::machines::claims_hold! { $place cuda_12_0 CUDA_12_0 $claims }
            crate::machines::claims_hold! { $place cuda_12_2 CUDA_12_2 $claims }
            crate::machines::claims_hold! { $place cuda_13_0 CUDA_13_0 $claims }
        }
    };
    ($place:ident $name:ident $version:ident ($($claim:ident)*)) => {
        mod $name {
            $(
                #[test]
                fn $claim() {
                    let version = pagewise::DriverVersion::$version;
                    crate::machines::$place(version, (stringify!($claim), crate::$claim));
                }
            )*
        }
    };
}
pub(crate) use claims_hold;

/// Checks a claim on a back end of its own.
fn check((name, claim): Claim, what: &str, backend: Result<Arc<dyn Backend>>) {
    let backend = backend.unwrap_or_else(|error| panic!("{what}: {error}"));
    let free = || backend.memory_info(Device::FIRST.id()).map(|info| info.free_bytes);
    let before = free();
    claim(&backend).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
    // On a driver others allocate too.
    if backend.capabilities().deterministic {
        assert_eq!(free(), before, "{what}: {name} leaves memory allocated");
    }
}

fn sim(version: DriverVersion) -> Result<SimBackend> {
    SimBackend::new(SimConfig::h200().driver_version(version))
}

pub fn on_the_simulator(version: DriverVersion, claim: Claim) {
    let backend = sim(version).map(|sim| Arc::new(sim) as Arc<dyn Backend>);
    check(claim, &format!("simulator {version}"), backend);
}

pub fn on_the_simulator_as_a_driver(claim: Claim) {
    let config = SimConfig::h200()
        .devices(2)
        .range_reads(RangeReads::Driver)
        .discarded_contents(DiscardedContents::Driver);
    let backend = SimBackend::new(config).map(|sim| Arc::new(sim) as Arc<dyn Backend>);
    check(claim, "simulator as a driver, 2 devices", backend);
}

/// Checks a claim on a recorder, and replays the recording unless calls were left out of it.
pub fn in_a_recorder(version: DriverVersion, claim: Claim) {
    let recorder = Arc::new(Recorder::new(sim(version).expect("address space")));
    let shared = Arc::clone(&recorder) as Arc<dyn Backend>;
    check(claim, &format!("recorder {version}"), Ok(shared));
    if recorder.left_out() > 0 {
        return;
    }
    let case = recorder.take_case(claim.0);
    assert!(!case.ops.is_empty(), "{}", claim.0);
    let again = replay_case(&sim(version).expect("address space"), &case, |_, _| ());
    let tally = compare_case(&case, &again, false);
    let divergence = tally.first_divergence();
    assert!(tally.agrees(), "{} {version}: {divergence:?}", claim.0);
}

pub fn in_a_fault_injector(version: DriverVersion, claim: Claim) {
    let around = |sim| Arc::new(FaultInjector::around(sim)) as Arc<dyn Backend>;
    check(claim, &format!("fault injector {version}"), sim(version).map(around));
}

/// A new driver that acts as an old one, as a GPU's driver would.
#[cfg(target_os = "linux")]
pub fn over_the_simulated_driver(version: DriverVersion, claim: Claim) {
    let driver = pagewise_tests::driver::SimulatedDriver::load();
    driver.reset("devices=2 version=13000 reads=driver discarded=driver");
    let backend = driver.builder().max_version(version).open();
    let backend = backend.map(|backend| Arc::new(backend) as Arc<dyn Backend>);
    check(claim, &format!("simulated driver {version}"), backend);
}

/// The driver itself, and as it acts as older ones. One test for all, so that a machine without a
/// GPU skips one. It goes on after a claim that does not hold, and names all such at its end.
pub fn on_a_gpu(claims: &[Claim]) {
    let mut failed = Vec::new();
    for version in VERSIONS {
        let Some(driver) = gpu(CudaBackend::builder().max_version(version)) else { return };
        let driver: Arc<dyn Backend> = Arc::new(driver);
        for &claim in claims {
            let what = format!("driver {version}");
            let run = || check(claim, &what, Ok(Arc::clone(&driver)));
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                failed.push(format!("{what}: {}", claim.0));
            }
        }
    }
    assert!(failed.is_empty(), "claims that do not hold: {failed:?}");
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
        // SAFETY: the claim does not use the memory again. A call refuses memory of a kind that it
        // does not free.
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
    // SAFETY: claims use their memory from one thread. It is live, and the stream's work is done.
    let sum = unsafe { stream.machine().backend().host_touch(touch)? };
    Ok(sum == span.bytes.div_ceil(STRIDE) * u64::from(value))
}
