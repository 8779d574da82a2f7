//! The reasons why there are no records.

/// The reason why there are no records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CuptiUnavailable {
    /// No library could be opened.
    #[error(
        "CUPTI was not found: install the CUDA toolkit or the Python package nvidia-cuda-cupti, \
         and set PAGEWISE_CUPTI to its libcupti.so.13 or .12 (tried {tried})"
    )]
    NotFound {
        /// The libraries that were tried, and what the loader said.
        tried: String,
    },
    /// The library lacks a function.
    #[error("{library} is no CUPTI of version 12.0 or later: it has no {symbol}")]
    NoSymbol {
        /// The library.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// CUPTI refuses.
    #[error("CUPTI: {function} failed with {code} ({name}){hint}")]
    Refused {
        /// The function.
        function: &'static str,
        /// The `CUptiResult`.
        code: u32,
        /// Its name.
        name: &'static str,
        /// A remedy, if one is known.
        hint: &'static str,
    },
}
