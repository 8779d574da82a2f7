//! Launches of kernels that wait before they begin: see `held`.

use crate::contexts;
use crate::deferred::Lane;
use crate::deferring::{self, settle};
use crate::driver::{Driver, Outcome};
use crate::launch::Ready;

/// Lets a kernel wait until the program does what takes time, or begins it at once where kernels do
/// not wait. Its stream has no work before it, but for kernels that wait.
///
/// # Errors
/// Of a kernel that begins at once. One that waits loses the device if it fails.
pub(crate) fn hold(driver: &Driver, lane: Lane, ready: Ready) -> Outcome {
    if !driver.holds_kernels || !driver.held.has_room() {
        driver.begin_held();
        return begin(driver, lane, ready);
    }
    let context = contexts::current();
    let is_watched = driver.held.push(Box::new(move |driver: &Driver| {
        let why = "a kernel failed when its turn came";
        settle(driver, (context, why), |driver| begin_in_turn(driver, lane, ready));
    }));
    if is_watched {
        driver.machine.simulator.watch_host();
    }
    Ok(())
}

fn begin(driver: &Driver, lane: Lane, ready: Ready) -> Outcome {
    let rest = ready(driver)?;
    deferring::go_on_later(driver, lane, rest)
}

/// Begins a kernel that waited.
fn begin_in_turn(driver: &Driver, lane: Lane, ready: Ready) -> Outcome {
    if driver.faults.of_work().is_err() {
        // The device is lost, and this kernel with it.
        return Ok(());
    }
    if driver.deferred.is_behind(lane) {
        // A kernel before it waits for memory to change.
        return deferring::kernel_later(driver, lane, ready);
    }
    begin(driver, lane, ready)
}
