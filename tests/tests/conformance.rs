//! Every claim on every back end and every way to hold one.

use std::sync::Arc;

use pagewise::{Backend, DriverVersion, GpuProfile, RangeReads, SimBackend, SimConfig};
use pagewise_cuda::CudaBackend;
use pagewise_tests::gpu::gpu;
use pagewise_tests::{CLAIMS, CLAIMS_WITHOUT_CONCURRENT_ACCESS, Claim};

/// Checks every claim on a fresh back end each; the name of a failing one is in the message.
fn check(make: impl Fn() -> Box<dyn Backend>) {
    check_these(CLAIMS, make);
}

fn check_these(claims: &[&[Claim]], make: impl Fn() -> Box<dyn Backend>) {
    for (name, claim) in claims.iter().copied().flatten() {
        let backend = make();
        println!("{name}");
        claim(&*backend);
    }
}

fn sim(config: SimConfig) -> SimBackend {
    SimBackend::new(config).expect("address space")
}

#[test]
fn claims_hold_on_the_simulator() {
    check(|| Box::new(sim(SimConfig::h200())));
}

#[test]
fn claims_hold_through_a_shared_reference() {
    check(|| Box::new(Arc::new(sim(SimConfig::h200())) as Arc<dyn Backend>));
}

#[test]
fn claims_hold_with_attribute_reads_as_the_driver_answers_them() {
    check(|| Box::new(sim(SimConfig::h200().range_reads(RangeReads::Driver))));
}

#[test]
fn claims_hold_for_every_driver_version() {
    for version in [12000, 12020, 12080, 12090, 13000, 13010, 13020, 13050].map(DriverVersion) {
        check(|| Box::new(sim(SimConfig::h200().driver_version(version))));
    }
}

/// On the driver itself, and as it acts as older ones.
#[test]
fn claims_hold_on_a_gpu() {
    for version in [12000, 12020, 12080, 13000].map(DriverVersion) {
        let Some(driver) = gpu(CudaBackend::builder().max_version(version)) else { return };
        println!("CUDA {version}");
        let driver = Arc::new(driver);
        check(|| Box::new(Arc::clone(&driver)));
    }
}

#[test]
fn claims_hold_with_several_devices() {
    check(|| Box::new(sim(SimConfig::h200().devices(4))));
}

#[test]
fn claims_hold_on_every_profile() {
    for profile in GpuProfile::all() {
        println!("profile {}", profile.name);
        let make = || sim(SimConfig::new(profile.clone()));
        let claims = if make().capabilities().concurrent_managed_access {
            CLAIMS
        } else {
            CLAIMS_WITHOUT_CONCURRENT_ACCESS
        };
        check_these(claims, || Box::new(make()));
    }
}
