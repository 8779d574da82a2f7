//! A span of the `tracing` crate around each call of a back end.
//!
//! There are spans only if the feature `tracing` is on *and* a back end is wrapped, so other
//! programs pay nothing. Spans are at level `TRACE`, named `pagewise`, with the fields `operation`,
//! `bytes`, `address` and `location`. A failed call adds an event at level `DEBUG` with its error.
//!
//! ```
//! use std::sync::Arc;
//! use pagewise::{Machine, ManagedBuffer, traced};
//!
//! let machine = Machine::from(Arc::new(traced::around(pagewise::sim()?)));
//! let buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
//! # Ok::<(), pagewise::Error>(())
//! ```

use pagewise_hal::{Backend, Result};

use crate::Place;
use crate::intercept::{Call, Intercepted, Interceptor};

/// The [`Interceptor`] that opens spans.
///
/// ```
/// use pagewise::{Backend, intercept::Intercepted, traced::Spans};
/// let backend = Intercepted::new(pagewise::sim()?, Spans);
/// assert_eq!(backend.device_count()?, 1);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Spans;

impl Interceptor for Spans {
    fn around<T>(&self, call: &Call, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let span = tracing::trace_span!(
            "pagewise",
            operation = call.operation().name(),
            bytes = call.size_bytes(),
            address = call.span().map(|span| span.ptr.0),
            location = call.location().and_then(Place::of_location).map(tracing::field::display),
        );
        let answer = span.in_scope(make);
        if let Err(error) = &answer {
            span.in_scope(|| tracing::debug!(%error, "failed"));
        }
        answer
    }
}

/// Puts spans around a back end's calls.
#[must_use]
pub fn around<B: Backend>(inner: B) -> Intercepted<B, Spans> {
    Intercepted::new(inner, Spans)
}
