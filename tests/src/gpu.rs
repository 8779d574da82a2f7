//! The GPU of the machine that the tests run on, if it has one, and the note of a test that could
//! not check its claim here.

use std::fmt::Display;

use pagewise::Backend;
use pagewise_cuda::{CudaBackend, CudaBuilder};

/// Says that a test checks nothing on this machine. `cargo xtask test` counts such tests and lists
/// them with their reasons; it reads the output of tests, so this has to be called by the test's
/// own thread.
pub fn skipped(why: impl Display) {
    println!("skipped: {why}");
}

/// Says that a test leaves a part of its claim unchecked on this machine. It is listed, and counts
/// as passed.
pub fn partly_skipped(why: impl Display) {
    println!("partly skipped: {why}");
}

/// Opens the driver of this machine. Without one the test that asks is skipped, and says so;
/// `REQUIRE_CUDA=1` makes that a failure.
///
/// # Panics
/// If `REQUIRE_CUDA` is 1 and there is no driver, or no device.
#[must_use]
pub fn gpu(builder: CudaBuilder) -> Option<CudaBackend> {
    match builder.open() {
        Ok(driver) => Some(driver),
        Err(error) if std::env::var_os("REQUIRE_CUDA").is_some_and(|value| value == "1") => {
            panic!("REQUIRE_CUDA=1, and {error}")
        }
        Err(error) => {
            skipped(error);
            None
        }
    }
}

/// The same for a test that needs several devices. A machine with fewer skips it, whatever
/// `REQUIRE_CUDA` says.
///
/// # Panics
/// As [`gpu`] does.
#[must_use]
pub fn gpus(builder: CudaBuilder, least: u32) -> Option<CudaBackend> {
    let driver = gpu(builder)?;
    let count = driver.device_count().unwrap_or(0);
    if count < least {
        skipped(format!("{least} devices are needed, and there are {count}"));
        return None;
    }
    Some(driver)
}
