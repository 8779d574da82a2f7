//! Reads the limits of a device from its attributes.

use std::ffi::c_int;

use pagewise_hal::{Code, DeviceId};

use super::limits::{Figures, Limits, Multiprocessor, optin};
use crate::attributes::attribute_of;
use crate::driver::{Driver, Outcome};

/// Reads attributes of a device that are counts.
fn ask(driver: &Driver, DeviceId(device): DeviceId) -> impl Fn(c_int) -> Outcome<u32> {
    move |number| attribute_of(driver, device, number).map(c_int::unsigned_abs)
}

/// The compute capability of a device: ten times the major number, and the minor one.
pub(crate) fn capability(driver: &Driver, device: DeviceId) -> Outcome<u32> {
    let ask = ask(driver, device);
    Ok(ask(75)?.saturating_mul(10).saturating_add(ask(76)?))
}

/// Refuses a device that the driver does not have; the kept figures answer for all others.
fn check(driver: &Driver, DeviceId(device): DeviceId) -> Outcome {
    match driver.options.ordinals().any(|one| one == device) {
        true => Ok(()),
        false => Err(Code::INVALID_DEVICE),
    }
}

/// The limits of a device.
pub(crate) fn limits(driver: &Driver, device: DeviceId) -> Outcome<Limits> {
    check(driver, device)?;
    Figures::kept(&driver.figures.limits, || read_limits(driver, device))
}

fn read_limits(driver: &Driver, device: DeviceId) -> Outcome<Limits> {
    let capability = capability(driver, device)?;
    let ask = ask(driver, device);
    Ok(Limits {
        capability,
        block_threads: ask(1)?,
        block: [ask(2)?, ask(3)?, ask(4)?],
        grid: [ask(5)?, ask(6)?, ask(7)?],
        shared_bytes_optin: u64::from(optin(capability)),
        has_clusters: capability >= 90,
    })
}

/// The multiprocessors of a device.
pub(crate) fn multiprocessor(driver: &Driver, device: DeviceId) -> Outcome<Multiprocessor> {
    check(driver, device)?;
    Figures::kept(&driver.figures.multiprocessor, || read_multiprocessor(driver, device))
}

fn read_multiprocessor(driver: &Driver, device: DeviceId) -> Outcome<Multiprocessor> {
    let ask = ask(driver, device);
    Ok(Multiprocessor {
        count: ask(16)?,
        threads: ask(39)?,
        blocks: ask(106)?,
        registers: ask(82)?,
        shared_bytes: u64::from(ask(81)?),
        reserved_bytes: u64::from(ask(111)?),
        warp: ask(10)?,
    })
}
