//! The description of a call that an interceptor gets.

use pagewise_hal::{Location, Operation, Span};

use crate::destructors;

/// A call of a back end: its operation, with its bytes, range and place.
///
/// ```
/// use pagewise::Location;
/// use pagewise::intercept::{Call, Operation};
///
/// let call = Call::new(Operation::Prefetch).at(Location::HOST).bytes(4096);
/// assert_eq!((call.operation(), call.size_bytes()), (Operation::Prefetch, 4096));
/// assert_eq!(call.location(), Some(Location::HOST));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    operation: Operation,
    bytes: u64,
    span: Option<Span>,
    location: Option<Location>,
    in_destructor: bool,
}

impl Call {
    /// A call about nothing in particular.
    #[must_use]
    pub const fn new(operation: Operation) -> Self {
        Self { operation, bytes: 0, span: None, location: None, in_destructor: false }
    }

    /// The same call about so many bytes.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// The same call about a range.
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// use pagewise::{DevicePtr, Span};
    /// let span = Span::new(DevicePtr(4096), 8);
    /// assert_eq!(Call::new(Operation::Advise).on(span).span(), Some(span));
    /// ```
    #[must_use]
    pub const fn on(mut self, span: Span) -> Self {
        self.span = Some(span);
        self.bytes = span.bytes;
        self
    }

    /// The same call about a place.
    ///
    /// ```
    /// use pagewise::Location;
    /// use pagewise::intercept::{Call, Operation};
    /// let call = Call::new(Operation::Advise).at(Location::HOST);
    /// assert_eq!(call.location(), Some(Location::HOST));
    /// ```
    #[must_use]
    pub const fn at(mut self, location: Location) -> Self {
        self.location = Some(location);
        self
    }

    /// The same call, made by a destructor or a clean-up ([`Machine::on_drop`](crate::Machine::on_drop)).
    ///
    /// ```
    /// use pagewise::intercept::{Call, Operation};
    /// assert!(!Call::new(Operation::Free).is_in_destructor());
    /// assert!(Call::new(Operation::Free).in_destructor().is_in_destructor());
    /// ```
    #[must_use]
    pub const fn in_destructor(mut self) -> Self {
        self.in_destructor = true;
        self
    }

    /// A call that the present thread is about to make.
    pub(crate) fn made_here(operation: Operation) -> Self {
        Self { in_destructor: destructors::is_inside(), ..Self::new(operation) }
    }

    /// The same call about so many bytes, from the start of its range if it has one.
    pub(super) fn sized(mut self, bytes: u64) -> Self {
        if let Some(span) = &mut self.span {
            span.bytes = bytes;
        }
        self.bytes(bytes)
    }

    /// A batch: the bytes of all, the first range.
    pub(super) fn all(self, spans: &[Span]) -> Self {
        self.over(spans.iter().copied())
    }

    /// Several ranges: the bytes of all, the first range.
    pub(super) fn over(mut self, spans: impl IntoIterator<Item = Span>) -> Self {
        let mut spans = spans.into_iter().peekable();
        self.span = spans.peek().copied();
        self.bytes = spans.fold(0, |sum, span| sum.saturating_add(span.bytes));
        self
    }

    /// A batch: the first place.
    pub(super) fn first(mut self, locations: &[Location]) -> Self {
        self.location = locations.first().copied();
        self
    }

    /// The operation that is called.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// The bytes that it is about, of all ranges of a batch together; 0 if none.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.bytes
    }

    /// The range that it is about; of a batch, the first.
    #[must_use]
    pub const fn span(&self) -> Option<Span> {
        self.span
    }

    /// The place that it is about; of a batch, the first. Ordinal forms count as what they name.
    #[must_use]
    pub const fn location(&self) -> Option<Location> {
        self.location
    }

    /// Whether a destructor or a clean-up behind an error makes it, which can report no failure:
    /// one of this crate or of `pagewise-managers`, or a user's in
    /// [`Machine::on_drop`](crate::Machine::on_drop).
    #[must_use]
    pub const fn is_in_destructor(&self) -> bool {
        self.in_destructor
    }
}
