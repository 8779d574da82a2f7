//! The table of the driver's functions: their names, versions and symbols.
//!
//! The rows are data (`data/symbols.tsv`), taken from the headers of CUDA by `data/symbols.py`: all
//! functions of `cuda.h` and its companions up to CUDA 13.5. The build turns them into this table.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int};
use std::fmt;

use crate::options::Options;

/// One form of a function of the driver: a signature, under the name that all its forms share.
pub(crate) struct Form {
    /// The name that programs look up.
    pub(crate) name: &'static CStr,
    /// The version of CUDA that introduced this form.
    pub(crate) since: c_int,
    /// Its symbol in the library.
    pub(crate) symbol: &'static str,
    /// Whether the null stream is the per-thread default stream.
    pub(crate) per_thread: bool,
    /// Whether it does what its function does. The others refuse.
    pub(crate) answers: bool,
    /// Where it is.
    pub(crate) address: fn() -> *const (),
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of CUDA {}", self.symbol, self.since)
    }
}

impl Form {
    /// Whether a driver of these options has it.
    pub(crate) fn is_in(&self, options: &Options) -> bool {
        let name = self.name.to_str().unwrap_or_default();
        self.since <= options.version().0 && !options.hides(name, self.since)
    }
}

/// The symbols of what a driver of these options does not have.
pub(crate) fn missing(options: &Options) -> BTreeSet<&'static str> {
    let absent = FORMS.iter().filter(|form| !form.is_in(options));
    absent.map(|form| form.symbol).collect()
}

/// Every form of every function.
pub(crate) const FORMS: &[Form] = include!(concat!(env!("OUT_DIR"), "/forms.rs"));

/// Every function of the driver's ABI that this library implements: the name that programs look up,
/// the version of CUDA since which it has this form, and the form's symbol. Forms with the
/// per-thread default stream are left out.
pub fn entry_points() -> impl Iterator<Item = (&'static str, c_int, &'static str)> {
    let implemented = FORMS.iter().filter(|form| form.answers && !form.per_thread);
    implemented.map(|form| (form.name.to_str().unwrap_or_default(), form.since, form.symbol))
}

/// Every symbol of the driver's ABI that this library exports, whether or not it implements the
/// function: all of CUDA 13.5.
pub fn symbols() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.symbol)
}

/// Where each symbol is, for programs that call all of them by their signatures.
#[doc(hidden)]
pub fn addresses() -> impl Iterator<Item = (&'static str, *const ())> {
    FORMS.iter().map(|form| (form.symbol, (form.address)()))
}

/// Compares the parameters of implemented functions with the table: one line for each, evaluated
/// when the crate is compiled.
mod checks {
    use std::ffi::c_int;

    macro_rules! sizes_of {
        ($($function:ident $count:literal: $($parameter:ident)*;)*) => {
            $(
                #[allow(dead_code, reason = "not every number of parameters occurs")]
                const fn $function<$($parameter),*>(
                    _: unsafe extern "C" fn($($parameter),*) -> c_int,
                ) -> [usize; $count] {
                    [$(size_of::<$parameter>()),*]
                }
            )*
        };
    }
    sizes_of! {
        sizes_of_0 0: ;
        sizes_of_1 1: A;
        sizes_of_2 2: A B;
        sizes_of_3 3: A B C;
        sizes_of_4 4: A B C D;
        sizes_of_5 5: A B C D E;
        sizes_of_6 6: A B C D E F;
        sizes_of_7 7: A B C D E F G;
        sizes_of_8 8: A B C D E F G H;
        sizes_of_9 9: A B C D E F G H I;
        sizes_of_10 10: A B C D E F G H I J;
        sizes_of_11 11: A B C D E F G H I J K;
    }

    const fn same(function: &[usize], table: &[usize]) {
        if let ([first, others @ ..], [expected, rest @ ..]) = (function, table) {
            assert!(*first == *expected, "a parameter has not the size that the table says");
            same(others, rest);
        }
    }

    include!(concat!(env!("OUT_DIR"), "/checks.rs"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_has_one_form_and_a_name_one_form_of_each_version_and_stream() {
        let symbols: BTreeSet<_> = FORMS.iter().map(|form| form.symbol).collect();
        let forms: BTreeSet<_> =
            FORMS.iter().map(|form| (form.name, form.since, form.per_thread)).collect();
        assert_eq!((symbols.len(), forms.len()), (FORMS.len(), FORMS.len()));
    }
}
