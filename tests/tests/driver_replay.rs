//! The recordings of a real H200, replayed through the CUDA back end over the simulated driver.
//!
//! What the simulator answers directly, it must answer through the driver's C ABI, the table and
//! the back end too.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pagewise::{DeviceId, Result};
use pagewise_tests::driver::SimulatedDriver;
use pagewise_trace::format::Header;
use pagewise_trace::pace::Pace;
use pagewise_trace::report::{Count, TraceReport};
use pagewise_trace::run::{Input, Options, Session, Target, run};

/// Libraries that no session uses.
#[derive(Default)]
struct Drivers(Arc<Mutex<Vec<Arc<SimulatedDriver>>>>);

/// A library in use, given back at the end.
struct Lent {
    driver: Option<Arc<SimulatedDriver>>,
    home: Arc<Mutex<Vec<Arc<SimulatedDriver>>>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        home.extend(self.driver.take());
    }
}

impl Target for Drivers {
    fn open(&self, header: &Header) -> Result<Session> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let driver = free.unwrap_or_else(SimulatedDriver::load);
        let machine = &header.recorded_on;
        let (gpus, version) = (machine.gpus, machine.cuda_driver_version);
        driver.reset(&format!("devices={gpus} version={version} reads=driver discarded=driver"));
        let backend = Arc::new(driver.builder().open()?);
        for device in 0..gpus {
            backend.prepare_device(DeviceId(device.cast_signed()))?;
        }
        let lent = Lent { driver: Some(Arc::clone(&driver)), home: Arc::clone(&self.0) };
        let pace = move |pace: Pace| {
            let _held = &lent;
            driver.pace(pace.call_ns, &pace.faults);
        };
        Ok(Session { backend, pace: Some(Box::new(pace)) })
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}

fn replay(family: &str) -> TraceReport {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces/h200-580");
    let inputs = vec![Input::file(folder.join(format!("{family}.jsonl.zst")))];
    let mut report = run(inputs, &Drivers::default(), Options::default(), &|| {});
    report.traces.remove(0)
}

fn missed(count: Count) -> u64 {
    count.checked - count.agree
}

/// Contract, pages and events: all.
fn assert_agrees(family: &str) {
    let report = replay(family);
    assert_eq!(report.error, None, "{family}");
    assert!(report.contract.checked > 0, "{family}: nothing was checked");
    let differ =
        [report.contract, report.range_attributes, report.pages, report.events].map(missed);
    assert_eq!(differ, [0; 4], "{family}: {:?}", report.first_divergence);
}

#[test]
fn calls_answer_as_recorded() {
    for family in ["contract", "attrs", "two-gpu-contract", "two-gpu-attrs"] {
        assert_agrees(family);
    }
}

#[test]
fn pools_answer_as_recorded() {
    assert_agrees("pools");
}

#[test]
fn pages_move_as_recorded() {
    for family in ["small", "migrate", "advise", "timing", "discard"] {
        assert_agrees(family);
    }
}

#[test]
fn pages_move_between_devices_as_recorded() {
    for family in ["two-gpu-migrate", "two-gpu-advise", "two-gpu-peer"] {
        assert_agrees(family);
    }
}

/// Which faults a parallel kernel raises varies from run to run; bytes and residency do not.
#[test]
fn parallel_kernels_move_the_recorded_bytes() {
    let aggregate = replay("parallel").aggregate.expect("a parallel family");
    assert_eq!((aggregate.h2d_bytes_ratio, aggregate.d2h_bytes_ratio), (Some(1.0), Some(1.0)));
    assert!(aggregate.host_mapped_agree);
}
