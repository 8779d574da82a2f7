//! The GPU of the machine that the tests run on, if it has one.

use pagewise_cuda::{CudaBackend, CudaBuilder};

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
            println!("skipped: {error}");
            None
        }
    }
}
