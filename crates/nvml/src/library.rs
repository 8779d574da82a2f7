//! Start and end of the library's use, which are counted.

use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Driver, driver};
use crate::outcome::{Error, Outcome, api};

/// Calls of `nvmlInit` without their `nvmlShutdown`.
static USES: Mutex<u64> = Mutex::new(0);

/// Starts the library. Returns 9 (`NVML_ERROR_DRIVER_NOT_LOADED`) without a driver.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    api(|| {
        driver()?;
        let mut uses = uses();
        *uses = uses.saturating_add(1);
        Ok(())
    })
}

/// Does what [`nvmlInit_v2`] does.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> c_int {
    nvmlInit_v2()
}

/// Does what [`nvmlInit_v2`] does. Flags say what may be missing, and change nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_int {
    nvmlInit_v2()
}

/// Ends one use of the library.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    api(|| {
        let mut uses = uses();
        *uses = uses.checked_sub(1).ok_or(Error::UNINITIALIZED)?;
        Ok(())
    })
}

/// The driver, if the library was started.
pub(crate) fn started() -> Outcome<&'static Driver> {
    if *uses() == 0 { Err(Error::UNINITIALIZED) } else { driver() }
}

fn uses() -> MutexGuard<'static, u64> {
    USES.lock().unwrap_or_else(PoisonError::into_inner)
}
