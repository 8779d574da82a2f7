//! The observer of moved pages, which the driver does not report by itself.

use std::fmt::Debug;

use pagewise_hal::{MemoryEvent, Result};

/// A source of unified-memory records, such as the profiling library.
pub trait Observer: Debug + Send + Sync + 'static {
    /// The records since the last call, in order. Called when all work has been waited for.
    ///
    /// # Errors
    /// If records were lost or cannot be had.
    fn take_events(&self) -> Result<Vec<MemoryEvent>>;
}
