//! Every claim on every back end and version, as a test of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pagewise::{Backend, DriverVersion, GpuProfile, RangeReads, SimBackend, SimConfig};
use pagewise_cuda::CudaBackend;
use pagewise_tests::gpu::gpu;
use pagewise_tests::{CLAIMS, CLAIMS_WITHOUT_CONCURRENT_ACCESS, Claim, with_claims};

fn sim(config: SimConfig) -> SimBackend {
    SimBackend::new(config).expect("address space")
}

/// The simulator as a driver of a version.
fn of_version(version: i32) -> SimBackend {
    sim(SimConfig::h200().driver_version(DriverVersion(version)))
}

/// Makes a module of tests: each claim on a back end of its own.
macro_rules! on {
    ($place:ident $make:block $($module:ident::$claim:ident)*) => {
        mod $place {
            use super::*;

            $(
                #[test]
                fn $claim() {
                    pagewise_tests::$module::$claim(&$make);
                }
            )*
        }
    };
}

macro_rules! everywhere {
    (on_every_machine { $($module:ident::$claim:ident)* }
     with_concurrent_access { $($other_module:ident::$other:ident)* }) => {
        everywhere! { @places $($module::$claim)* $($other_module::$other)* }
    };
    (@places $($claim:tt)*) => {
        on! { on_the_simulator { sim(SimConfig::h200()) } $($claim)* }
        on! { through_a_shared_reference { Arc::new(sim(SimConfig::h200())) } $($claim)* }
        on! { with_attribute_reads_as_the_driver_answers_them {
            sim(SimConfig::h200().range_reads(RangeReads::Driver))
        } $($claim)* }
        on! { with_several_devices { sim(SimConfig::h200().devices(4)) } $($claim)* }
        on! { as_cuda_12_0 { of_version(12000) } $($claim)* }
        on! { as_cuda_12_2 { of_version(12020) } $($claim)* }
        on! { as_cuda_12_8 { of_version(12080) } $($claim)* }
        on! { as_cuda_12_9 { of_version(12090) } $($claim)* }
        on! { as_cuda_13_0 { of_version(13000) } $($claim)* }
        on! { as_cuda_13_1 { of_version(13010) } $($claim)* }
        on! { as_cuda_13_2 { of_version(13020) } $($claim)* }
        on! { as_cuda_13_5 { of_version(13050) } $($claim)* }
    };
}
with_claims!(everywhere);

/// Checks claims one after another; all that do not hold are in the message.
fn check_all(claims: &[Claim], what: &str, make: impl Fn() -> Box<dyn Backend>) {
    let fails = |(_, claim): &&Claim| catch_unwind(AssertUnwindSafe(|| claim(&*make()))).is_err();
    let failed: Vec<_> = claims.iter().filter(fails).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "{what}: claims that do not hold: {failed:?}");
}

/// On the driver itself, and as it acts as older ones. One test, so that a machine without a GPU
/// skips one.
#[test]
fn claims_hold_on_a_gpu() {
    for version in [12000, 12020, 12080, 13000].map(DriverVersion) {
        let Some(driver) = gpu(CudaBackend::builder().max_version(version)) else { return };
        let driver = Arc::new(driver);
        check_all(CLAIMS, &format!("CUDA {version}"), || Box::new(Arc::clone(&driver)));
    }
}

/// Profiles are documents, of which there may be any number: one test for all.
#[test]
fn claims_hold_on_every_profile() {
    for profile in GpuProfile::all() {
        let make = || sim(SimConfig::new(profile.clone()));
        let claims = if make().capabilities().concurrent_managed_access {
            CLAIMS
        } else {
            CLAIMS_WITHOUT_CONCURRENT_ACCESS
        };
        check_all(claims, &profile.name, || Box::new(make()));
    }
}
