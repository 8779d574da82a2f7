//! The driver of the process, and the ways in which entry points run on it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, PoisonError};

use pagewise_hal::{Code, DeviceId};

use crate::held;
use crate::host_room::warn_if_short;
use crate::options::Options;
pub(crate) use crate::outcome::{Outcome, answer, has_place, is_handle, load, store};
use crate::process::{Inherited, PerProcess, Place};
pub(crate) use crate::state::Driver;
pub(crate) use crate::state::streams::stream;

static DRIVER: PerProcess<Driver> = PerProcess::new();

/// The driver of the process, made at the first call as the environment says. A child of a process
/// that has initialised its driver has none.
fn driver() -> Outcome<Arc<Driver>> {
    let place = DRIVER.place().map_err(|Inherited| Code::NOT_INITIALIZED)?;
    if let Some(driver) = &*place.value.read().unwrap_or_else(PoisonError::into_inner) {
        return Ok(Arc::clone(driver));
    }
    let mut slot = place.value.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = &*slot {
        return Ok(Arc::clone(driver));
    }
    let text = std::env::var(Options::VARIABLE).unwrap_or_default();
    let made = make(&text).map_err(|why| {
        eprintln!("simulated CUDA driver: {why}");
        Code::UNKNOWN
    })?;
    Ok(Arc::clone(slot.insert(made)))
}

/// Gives the driver up, and makes a new one if options are given. Whatever came from the old one
/// is invalid from now on.
pub(crate) fn replace(text: Option<&str>) -> std::result::Result<(), String> {
    let mut slot = DRIVER.fresh().value.write().unwrap_or_else(PoisonError::into_inner);
    *slot = None;
    *slot = text.map(make).transpose()?;
    Ok(())
}

fn make(text: &str) -> std::result::Result<Arc<Driver>, String> {
    let options = text.parse::<Options>()?;
    warn_if_short(&options);
    at_exit();
    let driver = Driver::new(options).map(Arc::new)?;
    driver.deferred.ask(Arc::downgrade(&driver));
    let noting = Arc::downgrade(&driver);
    driver.machine.simulator.observe_host_faults(move |mut fault| match noting.upgrade() {
        Some(driver) => driver.serve(fault),
        None => _ = fault.service(),
    });
    let late = Arc::downgrade(&driver);
    driver.held.when_late(move || {
        if let Some(driver) = late.upgrade() {
            // The host's accesses wait until the kernels have run.
            driver.machine.simulator.watch_host();
            driver.begin_held();
            driver.note_work();
        }
    });
    Ok(driver)
}

/// Lets kernels begin and the recording of the driver end when the process does.
fn at_exit() {
    static ONCE: Once = Once::new();
    unsafe extern "C" {
        fn atexit(call: extern "C" fn()) -> c_int;
    }
    extern "C" fn end() {
        // Nothing may unwind into the C library. A driver that another thread is about to replace
        // has no end here; its journal stays.
        _ = catch_unwind(|| {
            if let Some(place) = DRIVER.own()
                && let Ok(slot) = place.value.try_read()
                && let Some(driver) = &*slot
            {
                driver.begin_held();
                driver.note_work();
                driver.machine.end();
            }
        });
    }
    // SAFETY: `atexit` is the C library's; `end` is a function of this library, which stays loaded
    // until it was called: the C library calls it when the library is unloaded, or at exit.
    ONCE.call_once(|| _ = unsafe { atexit(end) });
}

/// Panics that were caught, of which each is a bug: a missing check.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// How many calls ended in a panic since the library was loaded.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs a function that is no part of the driver's ABI, or one that finds the others. Kernels that
/// wait begin before it.
pub(crate) fn beside(call: impl FnOnce(&Driver) -> Outcome) -> c_int {
    within(|| true, call)
}

/// Runs a function of the library. Kernels that wait begin before it if it `takes_time`.
fn within(takes_time: impl FnOnce() -> bool, call: impl FnOnce(&Driver) -> Outcome) -> c_int {
    let outcome = guarded(|| {
        let driver = driver()?;
        let _in_call = driver.held.enter();
        if driver.held.are_pending() && (takes_time() || driver.held.has_worked()) {
            driver.begin_held();
        }
        let outcome = call(&driver);
        driver.note_work();
        if driver.faults.of_work().is_err() {
            // What kernels printed is not lost with the device. Only the program's threads write it:
            // one that waits for an access may hold a lock of the C library.
            driver.output.flush();
        }
        driver.held.goes_on();
        outcome
    });
    match outcome {
        Ok(()) => Code::SUCCESS,
        Err(code) => code,
    }
}

/// Lets no panic out. It is counted, and the outcome is `CUDA_ERROR_UNKNOWN`.
pub(crate) fn guarded<T>(call: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        Err(Code::UNKNOWN)
    })
}

/// Starts a driver: `cuInit`. From now on children of this process have none.
pub(crate) fn start(driver: &Driver) -> c_int {
    let code = driver.start();
    if code == Code::SUCCESS {
        DRIVER.own().into_iter().for_each(Place::is_used);
    }
    code
}

/// Runs an entry point that needs no start-up. `symbol` is its name in this library.
pub(crate) fn any_time(symbol: &str, call: impl FnOnce(&Driver) -> Outcome) -> c_int {
    let takes_time = || !held::is_patient(symbol);
    within(takes_time, |driver| {
        driver.check_exists(symbol)?;
        driver.faults.around(symbol, || call(driver), |ns| driver.sim.sleep_ns(ns))
    })
}

/// Runs an entry point that needs `cuInit` first, which is checked before any argument.
pub(crate) fn started(symbol: &str, call: impl FnOnce(&Driver) -> Outcome) -> c_int {
    started_after(symbol, Ok(()), call)
}

/// Runs an entry point that needs `cuInit`, with arguments that the driver checks even before.
pub(crate) fn started_after(
    symbol: &str,
    arguments: Outcome,
    call: impl FnOnce(&Driver) -> Outcome,
) -> c_int {
    any_time(symbol, |driver| {
        arguments?;
        if !driver.is_started() {
            return Err(Code::NOT_INITIALIZED);
        }
        call(driver)
    })
}

/// Runs an entry point that also needs a current context, which is checked before any argument.
pub(crate) fn in_context(symbol: &str, call: impl FnOnce(&Driver, DeviceId) -> Outcome) -> c_int {
    in_context_after(symbol, Ok(()), call)
}

/// Runs an entry point that needs a current context, with arguments that the driver checks even
/// before `cuInit`.
pub(crate) fn in_context_after(
    symbol: &str,
    arguments: Outcome,
    call: impl FnOnce(&Driver, DeviceId) -> Outcome,
) -> c_int {
    started_after(symbol, arguments, |driver| {
        let device = driver.device()?;
        call(driver, device)
    })
}
