//! Entry points that let a stream call a function of the host: see `deferred`.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::Code;

use crate::deferred::{self, Entry};
use crate::driver::{Driver, Outcome, started, stream};
use crate::running;
use crate::work::{HostNodeParams, Work};

pub use crate::work::HostFunction;

/// `CUstreamCallback`
pub type StreamCallback = Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_void)>;

/// Pointers of the caller that its function gets, on the thread that calls it.
struct Sent<T>(T);

// SAFETY: the pointers are passed on and not used. The caller gave them for its function, which the
// driver may call from any thread.
unsafe impl<T> Send for Sent<T> {}

/// Submits a function to a stream.
fn submit(driver: &Driver, on: *mut c_void, work: impl FnOnce() + Send + 'static) -> Outcome {
    let handle = stream(on);
    driver.device_of_stream(handle)?;
    driver.submittable(handle)?;
    let (lane, work) = (driver.lane(handle), deferred::Work::Function(Box::new(work)));
    driver.deferred.submit(Entry { lane, work, records: None, waits_for: None })
}

/// `cuLaunchHostFunc`
///
/// # Safety
/// `function` must be sound to call with `data` from another thread, until it has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(
    on: *mut c_void,
    function: HostFunction,
    data: *mut c_void,
) -> c_int {
    started("cuLaunchHostFunc", |driver| {
        function.ok_or(Code::INVALID_VALUE)?;
        let call = Work::Host(HostNodeParams { function, data });
        // SAFETY: the caller promises that the function can be called with its data.
        unsafe { running::submit(driver, Some(on), call) }
    })
}

/// `cuStreamAddCallback`: the function gets the stream and `CUDA_SUCCESS`. Flags do not exist.
///
/// # Safety
/// `function` must be sound to call with `data` from another thread, until it has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamAddCallback(
    on: *mut c_void,
    function: StreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> c_int {
    started("cuStreamAddCallback", |driver| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let sent = Sent((on, data));
        submit(driver, on, move || {
            let Sent((on, data)) = { sent };
            // SAFETY: the caller promises that the function can be called with its data.
            unsafe { function(on, Code::SUCCESS, data) };
        })
    })
}
