//! The interceptor that opens a span around each call.

use pagewise_hal::Result;

use crate::Place;
use crate::intercept::{Call, Interceptor};

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
