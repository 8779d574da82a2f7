//! The names of the calls of a back end.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind, Result, with_calls};

macro_rules! operations {
    ($($call:ident = [$($unsafe:tt)?] fn $name:ident(
        $($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// A method of [`Backend`](crate::Backend) that can fail.
        ///
        /// ```
        /// use pagewise_hal::Operation;
        ///
        /// assert_eq!(Operation::AllocManaged.name(), "alloc_managed");
        /// assert_eq!("prefetch".parse::<Operation>()?, Operation::Prefetch);
        /// assert!("fly".parse::<Operation>().is_err());
        /// # Ok::<(), pagewise_hal::Error>(())
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum Operation {
            $(
                #[doc = concat!(
                    "[`Backend::", stringify!($name), "`](crate::Backend::", stringify!($name), ")"
                )]
                $call,
            )*
        }

        impl Operation {
            /// All of them, in the trait's order.
            pub const ALL: &[Self] = &[$(Self::$call),*];

            /// The method's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$call => stringify!($name),)*
                }
            }
        }
    };
}

with_calls!(operations);

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|operation| operation.name() == name);
        found.copied().ok_or_else(|| {
            Error::new("operation", ErrorKind::InvalidValue)
                .with_detail(format!("no call is named {name:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_no_two_are_the_same() {
        for (index, &operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation.name().parse(), Ok(operation));
            assert_eq!(Operation::ALL.iter().position(|&other| other == operation), Some(index));
        }
    }
}
