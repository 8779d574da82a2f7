//! The reason why a profile cannot be used.

use thiserror::Error;

/// The reason why a profile cannot be used. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The text is not a document, a key is unknown or missing, or a value has the wrong type.
    #[error("{0}")]
    Document(String),
    /// The document builds on a profile that does not exist.
    #[error("base = \"{base}\": no such profile; there are: {known}")]
    UnknownBase {
        /// The profile that was asked for.
        base: String,
        /// The names of the profiles that exist.
        known: String,
    },
    /// A value makes no sense.
    #[error("{field} is {value}: {remedy}")]
    Value {
        /// The field, with dots.
        field: String,
        /// The value that it holds.
        value: String,
        /// The value to put instead.
        remedy: String,
    },
}
