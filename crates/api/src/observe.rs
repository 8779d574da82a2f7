//! Observation of movements while a program runs: for tests that make claims about it.
//!
//! [`observe`] runs a closure and returns the back end's records of that time. A [`Budget`] limits
//! them. [`assert_faults!`](crate::assert_faults),
//! [`assert_migrated_bytes!`](crate::assert_migrated_bytes) and
//! [`assert_no_thrashing!`](crate::assert_no_thrashing) are claims in one line. All of it works
//! over any back end that counts ([`Backend::events_since`](crate::Backend::events_since)): the
//! simulator, whether it keeps records or not, wrappers around it, a driver with CUPTI. A
//! [`Scope`] limits it to the calls of one thread or of one stream.
//!
//! ```
//! use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Stream};
//! use pagewise::{assert_faults, assert_migrated_bytes, assert_no_thrashing};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
//! let write = DeviceProgram::write(Device::FIRST, 1).stride(4096);
//! assert_migrated_bytes!(machine, 2 << 20, buffer.prefetch(Device::FIRST, &stream)?);
//! assert_faults!(machine, 0, buffer.run_on_device(write, &stream)?);
//! assert_no_thrashing!(machine, assert_eq!(buffer.read()?[0], 1));
//! # Ok::<(), pagewise::Error>(())
//! ```

mod amount;
mod budget;
mod buffers;
mod observation;
#[cfg(feature = "tracing")]
pub(crate) mod report;
mod scope;
mod stretch;

pub use amount::Amount;
pub use budget::{Budget, OverBudget};
pub use buffers::NamedSpan;
pub use observation::{Observation, Watch, observe};
pub use scope::Scope;

/// Claims the number of faults of an expression, of all processors: a number or a range of `u64`.
/// Its value is that of the expression.
///
/// Panics if the claim does not hold, or if nothing counts on the back end.
///
/// ```
/// use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Stream, assert_faults};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::<u8>::new(&machine, 2 << 20)?;
/// let write = DeviceProgram::write(Device::FIRST, 1).stride(4096);
/// // One thread faults six times on 2 MiB: the prefetcher does the rest.
/// assert_faults!(machine, 6, buffer.run_on_device(write, &stream)?);
/// assert_faults!(machine, ..=600, buffer.write()?.fill(2));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[macro_export]
macro_rules! assert_faults {
    ($machine:expr, $amount:expr, $run:expr $(,)?) => {
        $crate::assert_within!($machine, $crate::Budget::new().faults($amount), $run)
    };
}

/// Claims the bytes that an expression migrates, all ways together: a number or a range of `u64`.
/// Its value is that of the expression.
///
/// Panics if the claim does not hold, or if nothing counts on the back end.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Stream, assert_migrated_bytes};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
/// assert_migrated_bytes!(machine, 2 << 20, buffer.prefetch(Device::FIRST, &stream)?);
/// assert_migrated_bytes!(machine, 0, buffer.prefetch(Device::FIRST, &stream)?);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[macro_export]
macro_rules! assert_migrated_bytes {
    ($machine:expr, $amount:expr, $run:expr $(,)?) => {
        $crate::assert_within!($machine, $crate::Budget::new().migrated_bytes($amount), $run)
    };
}

/// Claims that no page thrashes while an expression runs. Its value is that of the expression.
///
/// Panics if the claim does not hold, or if nothing counts on the back end.
///
/// ```
/// use pagewise::{Machine, ManagedBuffer, assert_no_thrashing};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let mut buffer = ManagedBuffer::<u8>::new(&machine, 2 << 20)?;
/// assert_no_thrashing!(machine, buffer.write()?.fill(1));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[macro_export]
macro_rules! assert_no_thrashing {
    ($machine:expr, $run:expr $(,)?) => {
        $crate::assert_within!($machine, $crate::Budget::new().thrashing_pages(0), $run)
    };
}

/// Claims that an expression stays within a [`Budget`](crate::Budget). Its value is that of the
/// expression. `?` and `return` in it end the function around it, and then nothing is claimed.
///
/// Panics if the claim does not hold, or if nothing counts on the back end.
///
/// ```
/// use pagewise::{Budget, Machine, ManagedBuffer, assert_within};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let quiet = Budget::new().faults(0).migrated_bytes(0);
/// let buffer = assert_within!(machine, quiet, ManagedBuffer::<u8>::new(&machine, 4096)?);
/// assert_eq!(buffer.len(), 4096);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[macro_export]
macro_rules! assert_within {
    ($machine:expr, $budget:expr, $run:expr $(,)?) => {{
        let watch = $crate::Watch::begin(&$machine).expect("a back end that counts");
        let answer = $run;
        $budget.assert(&watch.end().expect("a back end that counts"));
        answer
    }};
}
