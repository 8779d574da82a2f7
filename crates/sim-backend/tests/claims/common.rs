//! Helpers that claims about the simulator share.

use std::fmt::Debug;

use pagewise_hal::{Result, StreamHandle};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const STREAM: StreamHandle = StreamHandle::PER_THREAD;

/// The driver's number of an answer, 0 for success.
pub(crate) fn code<T: Debug>(answer: Result<T>) -> i32 {
    answer.map_or_else(|error| error.code().unwrap(), |_| 0)
}
